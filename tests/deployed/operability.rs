//! What an operator relies on in template.yaml: a first deployment that can roll back, tables that can be replaced after a restore, a switch
//! that stops everything, limits per route, and log lines that belong together.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tests::lambda::root;

use crate::template::{property, resources, template};

/// With deletion protection from the start CloudFormation could not delete the tables of a failed first deployment.
#[test]
fn first_deployment_can_roll_back() {
    assert_eq!(template()["Parameters"]["DeletionProtection"]["Default"], "false");
    for (name, _) in resources("AWS::DynamoDB::Table") {
        let table = &template()["Resources"][name];
        assert_eq!(table["DeletionPolicy"], "RetainExceptOnCreate", "{name}");
        assert_eq!(table["Properties"]["DeletionProtectionEnabled"], json!({"Fn::If": ["IsProtected", true, false]}));
    }
}

#[test]
fn running_false_stops_schedule_rule_and_event_source_mappings() {
    let state = json!({"Fn::If": ["IsRunning", "ENABLED", "DISABLED"]});
    for kind in ["AWS::Scheduler::Schedule", "AWS::Events::Rule"] {
        for (name, resource) in resources(kind) {
            assert_eq!(resource["State"], state, "{name}");
        }
    }
    let mut mappings = 0;
    for (name, function) in resources("AWS::Serverless::Function") {
        for event in function["Events"].as_object().into_iter().flat_map(|events| events.values()) {
            assert_eq!(event["Properties"]["Enabled"], json!({"Fn::If": ["IsRunning", true, false]}), "{name}");
            mappings += 1;
        }
    }
    assert!(mappings > 0, "the Car Bridge reads a queue");
}

/// After a restore the functions use other tables, and only their roles' policies and their environment may say which.
#[test]
fn table_suffix_is_used_by_roles_environment_and_outputs_alike() {
    let variables = &template()["Globals"]["Function"]["Environment"]["Variables"];
    for (variable, output, table) in [
        ("SUTURE_STATE_TABLE", "StateTableName", "StateTable"),
        ("SUTURE_EVENTS_TABLE", "EventsTableName", "EventsTable"),
    ] {
        let name = json!({"Fn::Sub": format!("${{{table}}}${{TableSuffix}}")});
        assert_eq!(variables[variable], name);
        assert_eq!(template()["Outputs"][output]["Value"], name);
    }
    for (name, role) in resources("AWS::IAM::Role") {
        let text = role.to_string();
        for table in ["StateTable", "EventsTable"] {
            assert!(!text.contains(&format!(r#"["{table}","Arn"]"#)), "{name} names {table} without the suffix");
            let with_suffix = text.matches(&format!("${{{table}.Arn}}${{TableSuffix}}")).count();
            assert_eq!(text.matches(&format!("{table}.Arn")).count(), with_suffix, "{name}: {table}");
        }
    }
}

#[test]
fn webhook_routes_have_their_own_limit() {
    let limit = |settings: &Value| (settings["ThrottlingRateLimit"].clone(), settings["ThrottlingBurstLimit"].clone());
    let of = |parameter: &str| (json!({"Ref": parameter}), json!({"Ref": parameter}));
    assert_eq!(limit(property("ApiStage", "DefaultRouteSettings")), of("PagesPerSecond"));
    let limited = property("ApiStage", "RouteSettings").as_object().unwrap();
    let routes = resources("AWS::ApiGatewayV2::Route");
    let webhooks = routes.iter().filter(|(_, route)| route["RouteKey"].as_str().unwrap().contains("/webhook/"));
    let webhooks: BTreeSet<(&str, &str)> =
        webhooks.map(|(name, route)| (*name, route["RouteKey"].as_str().unwrap())).collect();
    assert_eq!(
        limited.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        webhooks.iter().map(|(_, key)| *key).collect()
    );
    for settings in limited.values() {
        assert_eq!(limit(settings), of("WebhooksPerSecond"));
        assert_eq!(settings["DetailedMetricsEnabled"], true);
    }
    // API Gateway refuses settings of a route that does not exist.
    let first = template()["Resources"]["ApiStage"]["DependsOn"].as_array().unwrap();
    let first: BTreeSet<&str> = first.iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(first, webhooks.iter().map(|(name, _)| *name).collect());
}

/// Two stacks in one account published versions of the same layer.
#[test]
fn layer_is_named_after_the_stack() {
    assert_eq!(property("Configuration", "LayerName"), &json!({"Fn::Sub": "${AWS::StackName}-configuration"}));
}

/// `platform.report` has the level INFO; with WARN there were neither durations nor memory in the logs.
#[test]
fn report_lines_and_request_ids_are_logged() {
    for (name, function) in resources("AWS::Serverless::Function") {
        let logging = &function["LoggingConfig"];
        assert_eq!((&logging["LogFormat"], &logging["SystemLogLevel"]), (&json!("JSON"), &json!("INFO")), "{name}");
    }
    let format = property("ApiStage", "AccessLogSettings")["Format"].as_str().unwrap();
    let format: Value = serde_json::from_str(format).unwrap();
    assert_eq!(format["integration"], "$context.integration.requestId");
}

#[test]
fn functions_may_decrypt_with_the_key_of_the_secrets() {
    for role in ["WebhookRole", "CarBridgeRole", "ReconcilerRole", "AdminRole"] {
        let policies = property(role, "Policies").as_array().unwrap();
        let key = policies.iter().filter_map(|policy| policy.get("Fn::If")).find(|either| either[0] == "HasSecretKey");
        let statement = &key.unwrap_or_else(|| panic!("{role}"))[1]["PolicyDocument"]["Statement"][0];
        assert_eq!(statement["Action"], "kms:Decrypt", "{role}");
        assert_eq!(statement["Resource"], json!({"Ref": "SecretKeyArn"}), "{role}");
    }
}

/// The policy in docs/setup.md must let its holder create every resource of the stack.
#[test]
fn deployer_policy_covers_every_service_of_the_template() {
    let policy = std::fs::read_to_string(root().join("infra/deployer-policy.json")).unwrap();
    let policy: Value = serde_json::from_str(&policy).unwrap();
    let mut allowed: BTreeSet<String> = BTreeSet::new();
    for statement in policy["Statement"].as_array().unwrap() {
        for action in statement["Action"].as_array().unwrap() {
            allowed.insert(action.as_str().unwrap().split(':').next().unwrap().to_owned());
        }
        let broad = statement["Resource"] == "*";
        assert!(!broad || !statement["Action"].to_string().contains("iam:"), "roles are limited by name: {statement}");
    }
    for (name, resource) in template()["Resources"].as_object().unwrap() {
        let kind = resource["Type"].as_str().unwrap();
        let service = match kind.split("::").nth(1).unwrap() {
            "ApiGatewayV2" => "apigateway".to_owned(),
            // SAM's functions and layers.
            "Serverless" => "lambda".to_owned(),
            other => other.to_lowercase(),
        };
        assert!(allowed.contains(&service), "{name}: the deployer may not use {service}");
    }
}
