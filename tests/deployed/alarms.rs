//! Evaluates the alarms of template.yaml as CloudWatch does, on the metrics that the functions really emit: each alarm must ring on what it is
//! for, and stay silent on what it is not for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use domain::breaker::BreakerStatus;
use domain::policy::Policies;
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use platform::store::{Store, StoreError, last_webhook};
use platform::sweep_summary::SweepSummary;
use platform::telemetry::{LogRecord, MetricLog};
use serde_json::{Value, json};
use testbed::{FaultStore, RecordingPublisher};
use tests::lambda::root;
use webhook::github::BotIdentity;
use webhook::signature::{SenderSecrets, sign};
use webhook::{WebhookHandler, WebhookSecrets};

use crate::template::{property, resources, template};

const SECRET: &str = "a secret";

fn alarms() -> BTreeMap<&'static str, &'static Value> {
    resources("AWS::CloudWatch::Alarm")
}

/// A number of the template; a reference stands for the parameter's default.
fn number(value: &Value) -> f64 {
    match value["Ref"].as_str() {
        Some(parameter) => template()["Parameters"][parameter]["Default"].as_f64().unwrap(),
        None => value.as_f64().unwrap(),
    }
}

/// Minutes after an hour that is a multiple of every alarm's period.
fn minute(minutes: i64) -> Timestamp {
    Timestamp::from_second(1_794_787_200).unwrap() + SignedDuration::from_mins(minutes)
}

/// The values that a log line gives to an alarm's metric: only with its name, its dimension, and the time of the line.
fn emitted(line: &Value, alarm: &Value) -> Option<(i64, f64)> {
    let emf = &line["_aws"]["CloudWatchMetrics"][0];
    let name = alarm["MetricName"].as_str().unwrap();
    let is_metric = emf["Metrics"].as_array()?.iter().any(|metric| metric["Name"] == name);
    let dimension = &alarm["Dimensions"][0];
    assert_eq!(emf["Dimensions"], json!([[dimension["Name"]]]), "{line}");
    let is_dimension = line[dimension["Name"].as_str().unwrap()] == dimension["Value"];
    let at = line["_aws"]["Timestamp"].as_i64()? / 1000;
    (is_metric && is_dimension).then(|| (at, line[name].as_f64().unwrap()))
}

/// Whether the alarm is in the state ALARM at this time. CloudWatch divides time into periods, takes the statistic of each, and counts those
/// that breach among the last `EvaluationPeriods`.
fn rings(alarm: &Value, lines: &[Value], now: Timestamp) -> bool {
    let period = alarm["Period"].as_i64().unwrap();
    let evaluated = alarm["EvaluationPeriods"].as_i64().unwrap();
    let needed = alarm["DatapointsToAlarm"].as_i64().unwrap_or(evaluated);
    let points: Vec<(i64, f64)> = lines.iter().filter_map(|line| emitted(line, alarm)).collect();
    let breaches = |back: i64| {
        let end = now.as_second() - back * period;
        let values = points.iter().filter(|(at, _)| (end - period..end).contains(at)).map(|(_, value)| *value);
        let value = match alarm["Statistic"].as_str().unwrap() {
            "Sum" => values.reduce(|a, b| a + b),
            "Maximum" => values.reduce(f64::max),
            "Minimum" => values.reduce(f64::min),
            other => panic!("unknown statistic {other}"),
        };
        let Some(value) = value else { return alarm["TreatMissingData"] == "breaching" };
        match alarm["ComparisonOperator"].as_str().unwrap() {
            "GreaterThanThreshold" => value > number(&alarm["Threshold"]),
            "LessThanThreshold" => value < number(&alarm["Threshold"]),
            other => panic!("unknown operator {other}"),
        }
    };
    i64::try_from((0..evaluated).filter(|back| breaches(*back)).count()).unwrap() >= needed
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn handler(lines: &Lines) -> WebhookHandler<FaultStore, RecordingPublisher> {
    let senders =
        WebhookSecrets { github: SenderSecrets::parse(SECRET).unwrap(), jenkins: None, bots: BTreeMap::new() };
    let log = MetricLog::writing_to(lines.clone());
    let own = BotIdentity::default();
    WebhookHandler::new(FaultStore::default(), RecordingPublisher::default(), Policies::default(), own, senders, log)
}

/// A delivery of GitHub with this signature.
fn delivery(method: Method, event: &str, id: &str, signature: &str) -> http::request::Parts {
    let request = Request::builder().method(method).uri("/webhook/github").header("x-github-event", event);
    let request = request.header("x-github-delivery", id).header("x-hub-signature-256", signature);
    request.body(()).unwrap().into_parts().0
}

/// What the webhook function logs for this many requests at these minutes.
async fn webhooks(kind: WebhookKind, count: usize, minutes: &[i64]) -> Vec<Value> {
    let lines = Lines::default();
    let handler = handler(&lines);
    for at in minutes {
        for n in 0..count {
            if kind == WebhookKind::Unstorable {
                handler.engine().store().fail_writes([StoreError::Unavailable("no route".to_owned())]);
            }
            let (method, event, secret) = match kind {
                WebhookKind::Forged => (Method::POST, "ping", "another secret"),
                WebhookKind::Malformed => (Method::GET, "ping", SECRET),
                WebhookKind::Accepted => (Method::POST, "ping", SECRET),
                WebhookKind::Unstorable => (Method::POST, "installation", SECRET),
            };
            let body = installation();
            let parts = delivery(method, event, &format!("{at}-{n}"), &sign(secret, body.as_bytes()));
            handler.handle(&parts, body.as_bytes(), minute(*at)).await;
        }
    }
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn installation() -> String {
    let repositories = json!([{"id": 1, "full_name": "acme/shop"}]);
    json!({"action": "created", "installation": {"id": 1}, "repositories": repositories}).to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WebhookKind {
    Accepted,
    /// Wrong signature: 401.
    Forged,
    /// 405.
    Malformed,
    /// The store fails: 503.
    Unstorable,
}

fn json_of(record: &LogRecord) -> Value {
    serde_json::from_str(&record.to_json()).unwrap()
}

/// The lines of scheduled sweeps at these minutes.
fn scheduled(minutes: impl IntoIterator<Item = i64>, summary: &SweepSummary) -> Vec<Value> {
    minutes.into_iter().map(|at| json_of(&summary.scheduled_line("sweep", minute(at), 1))).collect()
}

/// The lines of requested sweeps at these minutes.
fn requested(minutes: impl IntoIterator<Item = i64>, summary: &SweepSummary) -> Vec<Value> {
    minutes.into_iter().map(|at| json_of(&summary.line("requested", minute(at), 1))).collect()
}

/// For each alarm on a metric of ours: lines of the last three hours on which it must ring, and lines on which it must not.
async fn scenarios() -> BTreeMap<&'static str, (Vec<Value>, Vec<Value>)> {
    let quiet = SweepSummary::default();
    let with = |change: fn(&mut SweepSummary)| {
        let mut summary = SweepSummary::default();
        change(&mut summary);
        summary
    };
    let late = with(|summary| summary.oldest_due_secs = 2_000);
    let failing = with(|summary| summary.fail("due", &"throttled"));
    let missed = with(|summary| summary.webhooks_missed = BTreeMap::from([("check_run".to_owned(), 7)]));
    let escalated = with(|summary| summary.escalated = 4);
    let open = with(|summary| summary.breaker = Some(BreakerStatus::Open));
    let silent = with(|summary| summary.webhooks_silent = true);
    let undelivered = with(|summary| summary.undelivered = 1);
    let unreadable = with(|summary| summary.unreadable = 1);
    let every_minute = || 120..180;
    BTreeMap::from([
        (
            "WebhookStoreAlarm",
            (webhooks(WebhookKind::Unstorable, 1, &[177]).await, webhooks(WebhookKind::Forged, 9, &[177]).await),
        ),
        // 401 in two periods; not for other rejections, nor for one burst.
        (
            "WebhooksRejectedAlarm",
            (
                webhooks(WebhookKind::Forged, 3, &[151, 178]).await,
                [
                    webhooks(WebhookKind::Malformed, 9, &[151, 178]).await,
                    webhooks(WebhookKind::Accepted, 9, &[151, 178]).await,
                    webhooks(WebhookKind::Forged, 50, &[178]).await,
                ]
                .concat(),
            ),
        ),
        // A requested sweep must neither ring it nor hide that scheduled ones are late.
        (
            "OldestDueAlarm",
            (
                [scheduled(every_minute(), &late), requested(every_minute(), &quiet)].concat(),
                [scheduled(every_minute(), &quiet), requested(every_minute(), &late)].concat(),
            ),
        ),
        ("BreakerAlarm", (scheduled(178..180, &open), scheduled(178..179, &open))),
        ("EscalationsAlarm", (scheduled([166, 170, 175], &escalated), scheduled([166, 170], &escalated))),
        ("SweepsStoppedAlarm", (requested(every_minute(), &quiet), scheduled([172], &quiet))),
        // 2 of 6 periods of five minutes.
        (
            "SweepStagesAlarm",
            (
                scheduled([151, 170], &failing),
                [scheduled([170, 171, 172], &failing), scheduled(every_minute(), &quiet)].concat(),
            ),
        ),
        ("WebhooksSilentAlarm", (scheduled([177], &silent), requested([177], &silent))),
        ("LostWebhooksAlarm", (scheduled([121, 140, 170], &missed), scheduled([60, 121, 170], &missed))),
        ("UndeliveredAlarm", (scheduled([166, 171, 176], &undelivered), scheduled([166, 171], &undelivered))),
        ("UnreadableRowsAlarm", (scheduled([70], &unreadable), scheduled(every_minute(), &quiet))),
    ])
}

#[tokio::test]
async fn alarms_ring_on_what_the_code_emits_and_only_then() {
    let scenarios = scenarios().await;
    let own: BTreeMap<&str, &Value> = alarms()
        .into_iter()
        .filter(|(_, alarm)| alarm["Namespace"] == json!({"Fn::Sub": "Suture/${AWS::StackName}"}))
        .collect();
    assert_eq!(own.keys().collect::<Vec<_>>(), scenarios.keys().collect::<Vec<_>>(), "each has a scenario");
    for (name, (ringing, quiet)) in &scenarios {
        assert!(rings(own[name], ringing, minute(180)), "{name} does not ring on {ringing:#?}");
        assert!(!rings(own[name], quiet, minute(180)), "{name} rings on {quiet:#?}");
        let silence = *name == "SweepsStoppedAlarm";
        assert_eq!(rings(own[name], &[], minute(180)), silence, "{name} without any data");
    }
    let variables = &template()["Globals"]["Function"]["Environment"]["Variables"];
    assert_eq!(variables["SUTURE_METRICS_NAMESPACE"], json!({"Fn::Sub": "Suture/${AWS::StackName}"}));
}

/// Metrics of AWS services as AWS documents them: namespace, name, dimensions.
const AWS_METRICS: [(&str, &str, &[&str]); 8] = [
    ("AWS/SQS", "ApproximateAgeOfOldestMessage", &["QueueName"]),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", &["QueueName"]),
    ("AWS/SQS", "ApproximateNumberOfMessagesNotVisible", &["QueueName"]),
    ("AWS/ApiGateway", "4xx", &["ApiId", "Stage"]),
    ("AWS/ApiGateway", "5xx", &["ApiId", "Stage"]),
    ("AWS/Lambda", "Errors", &["FunctionName"]),
    ("AWS/Lambda", "Throttles", &["FunctionName"]),
    ("AWS/Lambda", "RecursiveInvocationsDropped", &["FunctionName"]),
];

#[test]
fn alarms_on_aws_metrics_use_documented_names_and_resources_of_the_stack() {
    let metrics = alarms().into_iter().flat_map(|(name, alarm)| -> Vec<(&str, &Value)> {
        match alarm["Metrics"].as_array() {
            Some(metrics) => metrics.iter().filter_map(|one| Some((name, one["MetricStat"].get("Metric")?))).collect(),
            None => vec![(name, alarm)],
        }
    });
    let mut used = BTreeSet::new();
    for (name, metric) in metrics.filter(|(_, metric)| metric["Namespace"].is_string()) {
        let dimensions = metric["Dimensions"].as_array().unwrap();
        let names: Vec<&str> = dimensions.iter().map(|one| one["Name"].as_str().unwrap()).collect();
        let found = (metric["Namespace"].as_str().unwrap(), metric["MetricName"].as_str().unwrap(), names.as_slice());
        assert!(AWS_METRICS.contains(&found), "{name}: {found:?}");
        used.insert((found.0, found.1));
        for dimension in dimensions.iter().filter(|one| one["Value"].is_object()) {
            let value = &dimension["Value"];
            let resource = value["Ref"].as_str().or_else(|| value["Fn::GetAtt"][0].as_str()).unwrap();
            let kind = template()["Resources"][resource]["Type"].as_str().unwrap();
            let expected = match dimension["Name"].as_str().unwrap() {
                "QueueName" => "AWS::SQS::Queue",
                "FunctionName" => "AWS::Serverless::Function",
                _ => "AWS::ApiGatewayV2::Api",
            };
            assert_eq!(kind, expected, "{name}: {resource}");
        }
    }
    assert_eq!(used.len(), AWS_METRICS.len(), "{used:?}");
}

/// `DIFF(SUM(FILL(METRICS(), 0)))` on the counts of several queues, minute by minute.
fn arrived(queues: &[Vec<Option<f64>>]) -> Vec<Option<f64>> {
    let sum = |at: usize| -> f64 { queues.iter().map(|queue| queue[at].unwrap_or(0.0)).sum() };
    (0..queues[0].len()).map(|at| at.checked_sub(1).map(|before| sum(at) - sum(before))).collect()
}

/// The alarm was about the number of dead letters, so it stayed on after the first one and was silent about every further one.
#[test]
fn dead_letters_alarm_rings_for_each_arrival_in_any_dead_letter_queue() {
    let alarm = alarms()["DeadLettersAlarm"];
    let metrics = alarm["Metrics"].as_array().unwrap();
    let expressions: Vec<&Value> = metrics.iter().filter_map(|metric| metric.get("Expression")).collect();
    assert_eq!(expressions, [&json!("DIFF(SUM(FILL(METRICS(), 0)))")]);
    // Every queue that something is sent to when it failed.
    let mut dead: BTreeSet<&str> = BTreeSet::new();
    for queue in resources("AWS::SQS::Queue").values() {
        dead.extend(queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0].as_str());
    }
    for function in resources("AWS::Serverless::Function").values() {
        dead.extend(function["DeadLetterQueue"]["TargetArn"]["Fn::GetAtt"][0].as_str());
    }
    dead.extend(property("SweepSchedule", "Target")["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0].as_str());
    let mut watched: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for metric in metrics.iter().filter_map(|metric| metric["MetricStat"].get("Metric")) {
        let queue = metric["Dimensions"][0]["Value"]["Fn::GetAtt"][0].as_str().unwrap();
        watched.entry(queue).or_default().insert(metric["MetricName"].as_str().unwrap());
    }
    assert_eq!(watched.keys().copied().collect::<BTreeSet<_>>(), dead);
    for (queue, names) in watched {
        let both = ["ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesVisible"];
        assert_eq!(names, BTreeSet::from(both), "{queue}: a message that somebody looks at is still there");
    }
    let breaching = |queues: &[Vec<Option<f64>>]| -> Vec<usize> {
        let arrived = arrived(queues);
        let above = |value: &Option<f64>| value.is_some_and(|value| value > number(&alarm["Threshold"]));
        arrived.iter().enumerate().filter(|(_, value)| above(value)).map(|(at, _)| at).collect()
    };
    let counts = |counts: [i32; 6]| -> Vec<Option<f64>> {
        counts.iter().map(|count| (*count >= 0).then(|| f64::from(*count))).collect()
    };
    let (never, none) = (-1, 0);
    // The first message in a queue without data, then a second one while the first is still there; a purge does not ring.
    assert_eq!(breaching(&[counts([never, never, 1, 1, 2, none])]), [2, 4]);
    // Visible messages become invisible while somebody reads them.
    assert_eq!(breaching(&[counts([2, 2, 0, 2, 2, 2]), counts([0, 0, 2, 0, 0, 0])]), Vec::<usize>::new());
    // An arrival in the other queue.
    assert_eq!(breaching(&[counts([1, 1, 1, 1, 1, 1]), counts([never, never, never, 1, 1, 1])]), [3]);
}

/// A sweep notices silence by this row.
#[tokio::test]
async fn accepted_webhooks_store_their_time_at_most_once_a_minute() {
    let handler = handler(&Lines::default()).with_last_webhook();
    let store = handler.engine().store();
    let stored = async |at| last_webhook::read(&store.get_many(&[last_webhook::key()], at).await.unwrap());
    let send = async |secret: &str, at: Timestamp| {
        let body = b"{}";
        let parts = delivery(Method::POST, "ping", &at.to_string(), &sign(secret, body));
        handler.handle(&parts, body, at).await;
    };
    send("another secret", minute(0)).await;
    assert_eq!(stored(minute(0)).await, None, "a rejected webhook is no sign of life");
    send(SECRET, minute(1)).await;
    send(SECRET, minute(1) + SignedDuration::from_secs(59)).await;
    assert_eq!(stored(minute(2)).await, Some(minute(1)));
    send(SECRET, minute(2)).await;
    assert_eq!(stored(minute(2)).await, Some(minute(2)));
}

#[test]
fn every_alarm_description_names_a_section_of_the_playbook() {
    let playbook = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let headings: BTreeSet<String> = playbook
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|heading| heading.to_lowercase().replace(' ', "-"))
        .collect();
    for (name, alarm) in alarms() {
        let description = alarm["AlarmDescription"].as_str().unwrap();
        let section = description.split("docs/operations.md#").nth(1);
        let section = section.unwrap_or_else(|| panic!("{name} names no section: {description}"));
        assert!(headings.contains(section), "{name}: operations.md has no section `{section}`");
    }
}
