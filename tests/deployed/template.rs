//! The template against the code: tables and indexes, metrics and alarms, what each role may do, and how times fit together.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::OnceLock;

use domain::bus::{BUS_SOURCE, DetailType};
use platform::store::dynamo::tables::TableNames;
use serde_json::{Value, json};
use tests::lambda::root;
use tests::local_aws::{Dynoxide, client, fresh_names};

/// template.yaml, as it is written.
pub(crate) fn template() -> &'static Value {
    static TEMPLATE: OnceLock<Value> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let printed = Command::new(root().join("scripts/template-as-json")).arg("source").output().unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        serde_json::from_slice(&printed.stdout).unwrap()
    })
}

fn resources(kind: &str) -> BTreeMap<&'static str, &'static Value> {
    let all = template()["Resources"].as_object().unwrap();
    let chosen = all.iter().filter(|(_, resource)| resource["Type"] == kind);
    chosen.map(|(name, resource)| (name.as_str(), &resource["Properties"])).collect()
}

fn property<'a>(name: &str, property: &str) -> &'a Value {
    &template()["Resources"][name]["Properties"][property]
}

/// A schema as a set: the order of definitions and indexes means nothing.
fn shape(attributes: &[(String, String)], keys: Vec<(String, String)>, indexes: BTreeMap<String, Value>) -> Value {
    let attributes: BTreeSet<_> = attributes.iter().collect();
    json!({"attributes": attributes, "keys": keys, "indexes": indexes})
}

fn pairs(list: &Value, first: &str, second: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(|pair| (text(&pair[first]), text(&pair[second]))).collect()
}

fn in_template(table: &str) -> Value {
    let table = resources("AWS::DynamoDB::Table")[table];
    let indexes = table["GlobalSecondaryIndexes"].as_array().cloned().unwrap_or_default();
    let indexes = indexes.iter().map(|index| {
        let mut carried: Vec<Value> = index["Projection"]["NonKeyAttributes"].as_array().cloned().unwrap_or_default();
        carried.sort_by_key(Value::to_string);
        let keys = pairs(&index["KeySchema"], "AttributeName", "KeyType");
        let described = json!({"keys": keys, "projection": index["Projection"]["ProjectionType"], "carried": carried});
        (index["IndexName"].as_str().unwrap().to_owned(), described)
    });
    let attributes = pairs(&table["AttributeDefinitions"], "AttributeName", "AttributeType");
    shape(&attributes, pairs(&table["KeySchema"], "AttributeName", "KeyType"), indexes.collect())
}

async fn in_code(client: &aws_sdk_dynamodb::Client, table: &str) -> Value {
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
        let mut carried: Vec<String> = projection.non_key_attributes().to_vec();
        carried.sort();
        let kind = projection.projection_type().unwrap().as_str();
        let described = json!({"keys": keys(index.key_schema()), "projection": kind, "carried": carried});
        (index.index_name().unwrap().to_owned(), described)
    });
    shape(&attributes, keys(table.key_schema()), indexes.collect())
}

#[tokio::test]
async fn the_tables_are_those_the_code_makes() {
    let dynamo = Dynoxide::in_memory().await;
    let names: TableNames = fresh_names();
    drop(dynamo.store_on(names.clone()).await);
    let client = client(dynamo.endpoint());
    assert_eq!(in_template("StateTable"), in_code(&client, &names.state).await);
    assert_eq!(in_template("EventsTable"), in_code(&client, &names.events).await);
    for (name, table) in resources("AWS::DynamoDB::Table") {
        assert_eq!(table["TimeToLiveSpecification"], json!({"AttributeName": "ttl", "Enabled": true}), "{name}");
        assert_eq!(table["PointInTimeRecoverySpecification"], json!({"PointInTimeRecoveryEnabled": true}), "{name}");
        assert_eq!(table["BillingMode"], "PAY_PER_REQUEST", "{name}");
    }
}

/// Every metric the code counts, by function, as the lines it writes have them: found where they are counted.
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
        // Words that stand for an outcome, and are counted under it.
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
fn every_metric_in_the_template_is_one_the_code_counts() {
    let counted = counted();
    let is_counted = |function: &str, metric: &str| {
        let known = counted.get(function).unwrap_or_else(|| panic!("no function `{function}`"));
        assert!(known.contains(metric), "{function} does not count `{metric}`, but {known:?}");
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
fn silence_is_an_alarm_only_where_silence_means_that_nobody_looks() {
    for (name, alarm) in resources("AWS::CloudWatch::Alarm") {
        let expected = if name == "SweepsStoppedAlarm" { "breaching" } else { "notBreaching" };
        assert_eq!(alarm["TreatMissingData"], expected, "{name}");
    }
    let stopped = resources("AWS::CloudWatch::Alarm")["SweepsStoppedAlarm"];
    assert_eq!((&stopped["Period"], &stopped["Threshold"]), (&json!(600), &json!(1)));
}

/// What each role may do, by action.
fn grants(role: &str) -> BTreeMap<String, Vec<Value>> {
    let mut grants: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for policy in property(role, "Policies").as_array().unwrap() {
        let policy = policy.get("Fn::If").map_or(policy, |either| &either[1]);
        for statement in policy["PolicyDocument"]["Statement"].as_array().unwrap() {
            assert_eq!(statement["Effect"], "Allow", "{role}");
            let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            for action in list(&statement["Action"]) {
                // What only a local AWS asks for.
                let Some(action) = action.as_str() else { continue };
                assert!(!action.contains('*'), "{role}: {action}");
                grants.entry(action.to_owned()).or_default().push(statement.clone());
                for resource in list(&statement["Resource"]) {
                    // X-Ray has no resources to name.
                    assert!(resource != "*" || action.starts_with("xray:"), "{role}: {action} on everything");
                }
            }
        }
    }
    grants
}

#[test]
fn only_the_car_bridge_and_the_desk_speak_on_the_bus_and_only_their_own_words() {
    let spoken = |role: &str| -> BTreeSet<String> {
        let grants = grants(role);
        let Some(statements) = grants.get("events:PutEvents") else { return BTreeSet::new() };
        // The other branch is that of a local AWS.
        let condition = &statements[0]["Condition"]["Fn::If"][2]["StringEquals"];
        assert_eq!(condition["events:source"], BUS_SOURCE, "{role}");
        let types = &condition["events:detail-type"];
        let types = types.as_array().cloned().unwrap_or_else(|| vec![types.clone()]);
        types.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let names = |types: &[DetailType]| -> BTreeSet<String> { types.iter().map(|one| one.name().to_owned()).collect() };
    let bots: Vec<DetailType> =
        DetailType::ALL.into_iter().filter(|one| *one != DetailType::ReconcileRequested).collect();
    assert_eq!(spoken("CarBridgeRole"), names(&bots));
    assert_eq!(spoken("AdminRole"), names(&[DetailType::ReconcileRequested]));
    assert_eq!(spoken("WebhookRole"), names(&[]));
    assert_eq!(spoken("ReconcilerRole"), names(&[]));
}

#[test]
fn roles_name_what_they_may_do_and_to_what() {
    for role in ["WebhookRole", "CarBridgeRole", "ReconcilerRole", "AdminRole"] {
        let grants = grants(role);
        for never in ["dynamodb:Scan", "dynamodb:DeleteTable", "secretsmanager:PutSecretValue", "lambda:InvokeFunction"]
        {
            assert!(!grants.contains_key(never), "{role}: {never}");
        }
        assert!(grants.contains_key("secretsmanager:GetSecretValue"), "{role}");
    }
    // Anybody can reach these two: neither writes mails, and the ear does not read lists it does not need.
    for role in ["WebhookRole", "AdminRole"] {
        assert!(!grants(role).contains_key("sns:Publish"), "{role}");
    }
}

#[test]
fn who_counts_a_day_may_read_the_index_by_day() {
    // The desk shows it, and the reconciler writes it into the status issue.
    for role in ["AdminRole", "ReconcilerRole"] {
        let lists = format!("{:?}", grants(role)["dynamodb:Query"]);
        assert!(lists.contains("${EventsTable.Arn}/index/by_day"), "{role}: {lists}");
    }
}

#[test]
fn times_fit_together() {
    let seconds = |name: &str, of: &str| property(name, of).as_i64().unwrap();
    let bridge = seconds("CarBridgeFunction", "Timeout");
    assert!(seconds("CommandQueue", "VisibilityTimeout") >= 6 * bridge);
    let mapping = &property("CarBridgeFunction", "Events")["Commands"]["Properties"];
    assert!(mapping["ScalingConfig"]["MaximumConcurrency"].as_i64().unwrap() >= 2);
    assert_eq!(mapping["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
    // bridge::runs::LEASE: a worker that has not come back by then is gone.
    assert!(bridge < 120, "a run is leased for two minutes");
    // SNAPSHOT_RESERVE: in its last minute a sweep reads nothing from GitHub.
    assert!(seconds("ReconcilerFunction", "Timeout") >= 120, "there would be no time to look at anything");
    assert!(seconds("WebhookFunction", "Timeout") <= 10, "GitHub does not wait longer");
    assert!(seconds("AdminFunction", "Timeout") < 30, "API Gateway does not wait longer");
    assert_eq!(property("SweepSchedule", "ScheduleExpression"), "rate(1 minute)");
    assert_eq!(domain::policy::Policies::default().base().sweep.every_minutes, 1, "the schedule must agree");
    let input = property("SweepSchedule", "Target")["Input"].as_str().unwrap();
    let input: Value = serde_json::from_str(input).unwrap();
    assert_eq!(input["slot"], "<aws.scheduler.scheduled-time>");
}

#[test]
fn the_packaged_configuration_can_be_read_and_only_looks() {
    let text = std::fs::read_to_string(root().join("infra/config/suture.toml")).unwrap();
    let policies = domain::policy::Policies::parse(&text).unwrap();
    assert_eq!(policies.base().mode, domain::policy::Mode::Observe, "new installations start in observe mode");
}

#[test]
fn the_access_log_says_nothing_that_is_worth_stealing() {
    let format = property("ApiStage", "AccessLogSettings")["Format"].as_str().unwrap();
    let _: Value = serde_json::from_str(format).unwrap();
    for secret in ["header", "authorizer", "query", "body"] {
        assert!(!format.to_ascii_lowercase().contains(secret), "{format}");
    }
}
