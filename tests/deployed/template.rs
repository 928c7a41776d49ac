//! Compares template.yaml with the code: tables and indexes, metrics and alarms, permissions of the roles, and timeouts.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::OnceLock;

use domain::bus::{BUS_SOURCE, DetailType};
use platform::store::dynamo::tables::TableNames;
use serde_json::{Value, json};
use tests::lambda::root;
use tests::local_aws::{Dynoxide, client, fresh_names};

/// template.yaml, before SAM transforms it.
pub(crate) fn template() -> &'static Value {
    static TEMPLATE: OnceLock<Value> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let printed = Command::new(root().join("scripts/template-as-json")).arg("source").output().unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        serde_json::from_slice(&printed.stdout).unwrap()
    })
}

pub(crate) fn resources(kind: &str) -> BTreeMap<&'static str, &'static Value> {
    let all = template()["Resources"].as_object().unwrap();
    let chosen = all.iter().filter(|(_, resource)| resource["Type"] == kind);
    chosen.map(|(name, resource)| (name.as_str(), &resource["Properties"])).collect()
}

pub(crate) fn property<'a>(name: &str, property: &str) -> &'a Value {
    &template()["Resources"][name]["Properties"][property]
}

/// A schema without the order of attribute definitions and indexes.
fn shape(attributes: &[(String, String)], keys: Vec<(String, String)>, indexes: BTreeMap<String, Value>) -> Value {
    let attributes: BTreeSet<_> = attributes.iter().collect();
    json!({"attributes": attributes, "keys": keys, "indexes": indexes})
}

fn pairs(list: &Value, first: &str, second: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(|pair| (text(&pair[first]), text(&pair[second]))).collect()
}

fn table_in_template(table: &str) -> Value {
    let table = resources("AWS::DynamoDB::Table")[table];
    let indexes = table["GlobalSecondaryIndexes"].as_array().cloned().unwrap_or_default();
    let indexes = indexes.iter().map(|index| {
        let mut projected: Vec<Value> = index["Projection"]["NonKeyAttributes"].as_array().cloned().unwrap_or_default();
        projected.sort_by_key(Value::to_string);
        let keys = pairs(&index["KeySchema"], "AttributeName", "KeyType");
        let described =
            json!({"keys": keys, "projection": index["Projection"]["ProjectionType"], "projected": projected});
        (index["IndexName"].as_str().unwrap().to_owned(), described)
    });
    let attributes = pairs(&table["AttributeDefinitions"], "AttributeName", "AttributeType");
    shape(&attributes, pairs(&table["KeySchema"], "AttributeName", "KeyType"), indexes.collect())
}

async fn table_in_code(client: &aws_sdk_dynamodb::Client, table: &str) -> Value {
    let table = client.describe_table().table_name(table).send().await.unwrap().table.unwrap();
    let keys = |keys: &[aws_sdk_dynamodb::types::KeySchemaElement]| -> Vec<(String, String)> {
        keys.iter().map(|key| (key.attribute_name.clone(), key.key_type.as_str().to_owned())).collect()
    };
    let attributes: Vec<(String, String)> = table
        .attribute_definitions()
        .iter()
        .map(|one| (one.attribute_name.clone(), one.attribute_type.as_str().to_owned()))
        .collect();
    let indexes = table.global_secondary_indexes().iter().map(|index| {
        let projection = index.projection().unwrap();
        let mut projected: Vec<String> = projection.non_key_attributes().to_vec();
        projected.sort();
        let kind = projection.projection_type().unwrap().as_str();
        let described = json!({"keys": keys(index.key_schema()), "projection": kind, "projected": projected});
        (index.index_name().unwrap().to_owned(), described)
    });
    shape(&attributes, keys(table.key_schema()), indexes.collect())
}

#[tokio::test]
async fn template_and_code_have_the_same_tables() {
    let dynamo = Dynoxide::in_memory().await;
    let names: TableNames = fresh_names();
    drop(dynamo.store_on(names.clone()).await);
    let client = client(dynamo.endpoint());
    assert_eq!(table_in_template("StateTable"), table_in_code(&client, &names.state).await);
    assert_eq!(table_in_template("EventsTable"), table_in_code(&client, &names.events).await);
    for (name, table) in resources("AWS::DynamoDB::Table") {
        assert_eq!(table["TimeToLiveSpecification"], json!({"AttributeName": "ttl", "Enabled": true}), "{name}");
        assert_eq!(table["PointInTimeRecoverySpecification"], json!({"PointInTimeRecoveryEnabled": true}), "{name}");
        assert_eq!(table["BillingMode"], "PAY_PER_REQUEST", "{name}");
    }
}

/// The metrics that each function logs, taken from the source of its log calls.
fn counted() -> BTreeMap<&'static str, BTreeSet<String>> {
    let source = |paths: &[&str]| -> String {
        paths.iter().map(|path| std::fs::read_to_string(root().join(path)).unwrap()).collect()
    };
    let names = |text: &str, before: &str| -> Vec<String> {
        let found = text.split(before).skip(1).filter_map(|rest| rest.split('"').next());
        found.map(str::to_owned).collect()
    };
    let mut all = BTreeMap::new();
    for (function, paths) in [
        ("webhook", &["functions/webhook/src/log.rs"][..]),
        ("car-bridge", &["functions/car-bridge/src/batch.rs"]),
        ("reconciler", &["functions/reconciler/src/handler.rs", "shared/platform/src/sweep_summary.rs"]),
        ("admin", &["functions/admin/src/lib.rs"]),
    ] {
        let text = source(paths);
        let mut metrics: BTreeSet<String> = BTreeSet::new();
        metrics.extend(names(&text, ".count(\""));
        metrics.extend(names(&text, ".gauge(\""));
        // Outcomes are counted under their own name.
        if function == "webhook" {
            metrics.extend(names(&text, " => \""));
        }
        if function == "car-bridge" {
            metrics.extend(names(&text, " => (\""));
        }
        if text.contains("duration_ms(") || text.contains(".line(") {
            metrics.insert("ms".to_owned());
        }
        all.insert(function, metrics);
    }
    all
}

#[test]
fn code_counts_every_metric_of_the_template() {
    let counted = counted();
    let is_counted = |function: &str, metric: &str| {
        let known = counted.get(function).unwrap_or_else(|| panic!("unknown function `{function}`"));
        assert!(known.contains(metric), "{function} does not count `{metric}`, only {known:?}");
    };
    let mut alarms = 0;
    for (name, alarm) in resources("AWS::CloudWatch::Alarm") {
        assert!(!alarm["AlarmActions"].as_array().unwrap().is_empty(), "{name}");
        if alarm["Namespace"] == json!({"Fn::Sub": "Suture/${AWS::StackName}"}) {
            let dimension = &alarm["Dimensions"][0];
            assert_eq!(dimension["Name"], "function", "{name}");
            is_counted(dimension["Value"].as_str().unwrap(), alarm["MetricName"].as_str().unwrap());
            alarms += 1;
        }
    }
    assert!(alarms >= 6, "{alarms}");
    let body = property("Dashboard", "DashboardBody")["Fn::Sub"].as_str().unwrap();
    let board: Value = serde_json::from_str(body).unwrap();
    let mut shown = 0;
    for widget in board["widgets"].as_array().unwrap() {
        for metric in widget["properties"]["metrics"].as_array().unwrap() {
            if metric[0] == "Suture/${AWS::StackName}" {
                assert_eq!(metric[2], "function");
                is_counted(metric[3].as_str().unwrap(), metric[1].as_str().unwrap());
                shown += 1;
            }
        }
    }
    assert!(shown >= 30, "{shown}");
}

#[test]
fn missing_data_breaches_only_the_sweeps_stopped_alarm() {
    for (name, alarm) in resources("AWS::CloudWatch::Alarm") {
        let expected = if name == "SweepsStoppedAlarm" { "breaching" } else { "notBreaching" };
        assert_eq!(alarm["TreatMissingData"], expected, "{name}");
    }
    let sweeps_stopped = resources("AWS::CloudWatch::Alarm")["SweepsStoppedAlarm"];
    assert_eq!((&sweeps_stopped["Period"], &sweeps_stopped["Threshold"]), (&json!(600), &json!(1)));
}

/// The statements of a role's policies, by action.
fn grants(role: &str) -> BTreeMap<String, Vec<Value>> {
    let mut grants: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for policy in property(role, "Policies").as_array().unwrap() {
        let policy = policy.get("Fn::If").map_or(policy, |either| &either[1]);
        for statement in policy["PolicyDocument"]["Statement"].as_array().unwrap() {
            assert_eq!(statement["Effect"], "Allow", "{role}");
            let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            for action in list(&statement["Action"]) {
                // Actions that only a local AWS needs are conditional.
                let Some(action) = action.as_str() else { continue };
                assert!(!action.contains('*'), "{role}: {action}");
                grants.entry(action.to_owned()).or_default().push(statement.clone());
                for resource in list(&statement["Resource"]) {
                    // X-Ray has no resource-level permissions.
                    assert!(resource != "*" || action.starts_with("xray:"), "{role}: {action} on all resources");
                }
            }
        }
    }
    grants
}

#[test]
fn only_car_bridge_and_admin_publish_to_the_bus_and_only_their_detail_types() {
    let permitted = |role: &str| -> BTreeSet<String> {
        let grants = grants(role);
        let Some(statements) = grants.get("events:PutEvents") else { return BTreeSet::new() };
        // The first branch of the `Fn::If` is for a local AWS.
        let condition = &statements[0]["Condition"]["Fn::If"][2]["StringEquals"];
        assert_eq!(condition["events:source"], BUS_SOURCE, "{role}");
        let types = &condition["events:detail-type"];
        let types = types.as_array().cloned().unwrap_or_else(|| vec![types.clone()]);
        types.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let names = |types: &[DetailType]| -> BTreeSet<String> { types.iter().map(|one| one.name().to_owned()).collect() };
    let bots: Vec<DetailType> =
        DetailType::ALL.into_iter().filter(|one| *one != DetailType::ReconcileRequested).collect();
    assert_eq!(permitted("CarBridgeRole"), names(&bots));
    assert_eq!(permitted("AdminRole"), names(&[DetailType::ReconcileRequested]));
    assert_eq!(permitted("WebhookRole"), names(&[]));
    assert_eq!(permitted("ReconcilerRole"), names(&[]));
}

#[test]
fn roles_grant_no_wildcard_and_no_forbidden_action() {
    for role in ["WebhookRole", "CarBridgeRole", "ReconcilerRole", "AdminRole"] {
        let grants = grants(role);
        for never in ["dynamodb:Scan", "dynamodb:DeleteTable", "secretsmanager:PutSecretValue", "lambda:InvokeFunction"]
        {
            assert!(!grants.contains_key(never), "{role}: {never}");
        }
        assert!(grants.contains_key("secretsmanager:GetSecretValue"), "{role}");
    }
    // These two functions are reachable from the internet and must not send mail.
    for role in ["WebhookRole", "AdminRole"] {
        assert!(!grants(role).contains_key("sns:Publish"), "{role}");
    }
}

/// A queue without a dead-letter queue retries a poison message for days; a role without the second queue fails at the first deferred fact.
#[test]
fn each_queue_of_the_car_bridge_has_dead_letters_senders_and_a_reader() {
    let may = |role: &str, action: &str, queue: &str| {
        let statements = grants(role);
        let resources = statements.get(action).map(|statements| format!("{statements:?}")).unwrap_or_default();
        resources.contains(queue)
    };
    for (queue, dead) in [("CommandQueue", "CommandDeadLetters"), ("FactsQueue", "FactDeadLetters")] {
        let target = &property(queue, "RedrivePolicy")["deadLetterTargetArn"];
        assert_eq!(target, &json!({"Fn::GetAtt": [dead, "Arn"]}));
        for action in ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"] {
            assert!(may("CarBridgeRole", action, queue), "{action} {queue}");
        }
        assert!(may("AdminRole", "sqs:ReceiveMessage", dead) && may("AdminRole", "sqs:SendMessage", queue), "{queue}");
        assert!(may("WebhookRole", "sqs:SendMessage", queue), "{queue}");
    }
    assert!(!may("ReconcilerRole", "sqs:SendMessage", "FactsQueue"), "sweeps send no facts");
    assert_eq!(property("CarBridgeFunction", "RecursiveLoop"), "Terminate");
}

#[test]
fn no_role_may_change_or_delete_an_event() {
    let mut appended = 0;
    for (role, _) in resources("AWS::IAM::Role") {
        for (action, statements) in grants(role) {
            let on_events = statements.iter().filter(|one| one["Resource"].to_string().contains("EventsTable")).count();
            let permitted = ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:Query"];
            assert!(on_events == 0 || permitted.contains(&action.as_str()), "{role}: {action} on the events table");
            appended += usize::from(on_events > 0 && action == "dynamodb:PutItem");
        }
    }
    assert_eq!(appended, 4, "each function appends to the log");
}

/// The names of the secrets that a role may read.
fn readable_secrets(role: &str) -> Vec<String> {
    let grants = grants(role);
    let statements = grants["secretsmanager:GetSecretValue"].iter();
    let resources: String = statements.map(|one| one["Resource"].to_string()).collect();
    let names = resources.split(":secret:${").skip(1);
    let mut names: Vec<String> = names.map(|rest| rest.split('}').next().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn each_role_reads_only_its_own_secrets() {
    assert_eq!(readable_secrets("WebhookRole"), ["WebhookSecretName"]);
    assert_eq!(readable_secrets("CarBridgeRole"), ["SecretName"]);
    assert_eq!(readable_secrets("ReconcilerRole"), ["SecretName"]);
    assert_eq!(readable_secrets("AdminRole"), ["AdminSecretName", "SecretName"]);
    // By default they are three secrets, and no name is a pattern that matches another.
    let default = |name: &str| template()["Parameters"][name]["Default"].as_str().unwrap();
    let names = ["SecretName", "WebhookSecretName", "AdminSecretName"].map(default);
    assert_eq!(names, ["suture", "suture/webhook", "suture/admin"]);
    for role in ["WebhookFunction", "CarBridgeFunction", "ReconcilerFunction", "AdminFunction"] {
        let readable = readable_secrets(&role.replace("Function", "Role"));
        let variables = property(role, "Environment")["Variables"].to_string();
        for name in variables.split("secret:${").skip(1).map(|rest| rest.split('}').next().unwrap()) {
            assert!(readable.iter().any(|one| one == name), "{role} uses {name}, which its role may not read");
        }
    }
}

#[test]
fn admin_and_reconciler_may_query_the_by_day_index() {
    // The admin API shows the daily counts, and the reconciler writes them into the status issue.
    for role in ["AdminRole", "ReconcilerRole"] {
        let lists = format!("{:?}", grants(role)["dynamodb:Query"]);
        assert!(lists.contains("${EventsTable.Arn}${TableSuffix}/index/by_day"), "{role}: {lists}");
    }
}

#[test]
fn timeouts_are_consistent() {
    let seconds = |name: &str, of: &str| property(name, of).as_i64().unwrap();
    let bridge = seconds("CarBridgeFunction", "Timeout");
    for (queue, mapping) in [("CommandQueue", "Commands"), ("FactsQueue", "Facts")] {
        assert!(seconds(queue, "VisibilityTimeout") >= 6 * bridge, "{queue}");
        let mapping = &property("CarBridgeFunction", "Events")[mapping]["Properties"];
        assert_eq!(mapping["Queue"], json!({"Fn::GetAtt": [queue, "Arn"]}));
        assert!(mapping["ScalingConfig"]["MaximumConcurrency"].as_i64().unwrap() >= 2, "{queue}");
        assert_eq!(mapping["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]), "{queue}");
    }
    // WORKER_LEASE: the lease on a run (6 min) must not expire while the function still runs.
    assert!(bridge < 120, "the timeout must stay well below the lease on a run");
    // SNAPSHOT_RESERVE: a sweep reads no snapshots in its last minute.
    assert!(seconds("ReconcilerFunction", "Timeout") >= 120, "a sweep would have no time to read snapshots");
    assert!(seconds("WebhookFunction", "Timeout") <= 10, "GitHub waits 10 s for a response");
    assert!(seconds("AdminFunction", "Timeout") < 30, "API Gateway waits 30 s for a response");
    assert_eq!(property("SweepSchedule", "ScheduleExpression"), "rate(1 minute)");
    assert_eq!(
        domain::policy::Policies::default().base().sweep.every_minutes,
        1,
        "the schedule and the default policy must agree"
    );
    let input = property("SweepSchedule", "Target")["Input"].as_str().unwrap();
    let input: Value = serde_json::from_str(input).unwrap();
    assert_eq!(input["slot"], "<aws.scheduler.scheduled-time>");
}

#[test]
fn packaged_configuration_is_valid_and_in_observe_mode() {
    let text = std::fs::read_to_string(root().join("infra/config/suture.toml")).unwrap();
    let policies = domain::policy::Policies::parse(&text).unwrap();
    assert_eq!(policies.base().mode, domain::policy::Mode::Observe, "new installations start in observe mode");
}

#[test]
fn access_log_contains_no_headers_query_or_body() {
    let format = property("ApiStage", "AccessLogSettings")["Format"].as_str().unwrap();
    let _: Value = serde_json::from_str(format).unwrap();
    for secret in ["header", "authorizer", "query", "body"] {
        assert!(!format.to_ascii_lowercase().contains(secret), "{format}");
    }
}
