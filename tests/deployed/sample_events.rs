//! Sends the sample events of `tests/events` to the release binaries behind the Lambda emulator, with the environment of
//! `tests/env.json`: the same as `sam local invoke` in Docker, except for the addresses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fakes::{FakeServers, FakeSettings, Fakes, NewPullRequest};
use jiff::Timestamp;
use platform::store::dynamo::tables::{self, TableNames};
use serde_json::{Value, json};
use tests::lambda::{Function, MOST_ZIPPED_BYTES, binaries, root, zipped_bytes};
use tests::local_aws::{Folder, Ministack, client};

use crate::template::template;

fn read(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join(path)).unwrap()).unwrap()
}

fn sample(name: &str) -> Value {
    read(&format!("tests/events/{name}.json"))
}

/// The services that the functions call: tables, a queue, and the fakes.
struct SampleEnvironment {
    names: TableNames,
    queue: String,
    servers: FakeServers,
    folder: Folder,
}

impl SampleEnvironment {
    async fn set_up() -> Self {
        let settings = FakeSettings { start: Timestamp::now(), ..FakeSettings::default() };
        let fakes = Arc::new(Mutex::new(Fakes::new(1, settings)));
        fakes.lock().unwrap().open_pr(NewPullRequest::default());
        let servers = fakes::serve(fakes).await.unwrap();
        let endpoint = Ministack::shared().endpoint();
        let names = TableNames { state: "sample-state".to_owned(), events: "sample-events".to_owned() };
        tables::create(&client(endpoint), &names).await.unwrap();
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest())
            .region(aws_sdk_sqs::config::Region::from_static("us-east-1"))
            .credentials_provider(aws_sdk_sqs::config::Credentials::for_tests())
            .endpoint_url(endpoint);
        let queue = aws_sdk_sqs::Client::from_conf(config.build());
        let queue = queue.create_queue().queue_name("sample-commands").send().await.unwrap().queue_url.unwrap();
        let folder = Folder::new();
        std::fs::write(folder.path().join("suture.toml"), "mode = \"act\"\n").unwrap();
        Self { names, queue, servers, folder }
    }

    /// Starts the function with the variables of `tests/env.json` and the addresses of this environment.
    async fn start(&self, function: &str, binary: &str) -> Function {
        let set = read("tests/env.json")[function].as_object().unwrap().clone();
        let mut set: BTreeMap<String, String> =
            set.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect();
        let config = self.folder.path().join("suture.toml").display().to_string();
        for (name, value) in [
            ("AWS_ENDPOINT_URL", Ministack::shared().endpoint()),
            ("SUTURE_STATE_TABLE", &self.names.state),
            ("SUTURE_EVENTS_TABLE", &self.names.events),
            ("SUTURE_COMMAND_QUEUE_URL", &self.queue),
            ("SUTURE_FACTS_QUEUE_URL", &self.queue),
            ("SUTURE_GITHUB_API_URL", &self.servers.github_url),
            ("SUTURE_JENKINS_URL", &self.servers.jenkins_url),
        ] {
            if let Some(entry) = set.get_mut(name) {
                value.clone_into(entry);
            }
        }
        let own = [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("SUTURE_CONFIG", &config),
        ];
        let set: Vec<(&str, &str)> =
            set.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(own).collect();
        Function::start(binary, &set).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_binaries_handle_the_sample_events() {
    let environment = SampleEnvironment::set_up().await;
    let webhook = environment.start("WebhookFunction", "webhook").await;
    let response = webhook.invoke(&sample("webhook")).await;
    assert_eq!(response["statusCode"], 200, "{response}");
    assert!(response["body"].as_str().unwrap().contains(r#""status":"applied""#), "{response}");

    let bridge = environment.start("CarBridgeFunction", "car-bridge").await;
    let batch = bridge.invoke(&sample("car-bridge")).await;
    let invalid = "2e1424d4-f796-459a-8184-9c92662be6da";
    assert_eq!(
        batch,
        json!({"batchItemFailures": [{"itemIdentifier": invalid}]}),
        "only the undecodable message is retried"
    );

    let reconciler = environment.start("ReconcilerFunction", "reconciler").await;
    let scheduled = reconciler.invoke(&sample("reconciler")).await;
    assert_eq!(
        (&scheduled["status"], &scheduled["run_id"]),
        (&json!("completed"), &json!("sweep-20261116T0905Z")),
        "{scheduled}"
    );
    let repeated = reconciler.invoke(&sample("reconciler")).await;
    assert_eq!(repeated["status"], "duplicate_trigger", "{repeated}");
    let requested = reconciler.invoke(&sample("reconciler-requested")).await;
    assert_eq!(
        (&requested["status"], &requested["run_id"]),
        (&json!("completed"), &json!("asked-by-sample")),
        "{requested}"
    );

    let admin = environment.start("AdminFunction", "admin").await;
    let healthy = admin.invoke(&sample("admin")).await;
    assert_eq!(healthy["statusCode"], 200, "{healthy}");
    let mut page = sample("admin");
    page["rawPath"] = json!("/");
    page["headers"]["accept-encoding"] = json!("gzip");
    let page = admin.invoke(&page).await;
    assert_eq!((&page["statusCode"], &page["headers"]["content-encoding"]), (&json!(200), &json!("gzip")), "{page}");
    assert_eq!(page["isBase64Encoded"], true, "a compressed body must be base64: {page}");
    assert!(page["body"].as_str().unwrap().starts_with("H4sI"), "base64 of the gzip header: {page}");
    let mut bad_query = sample("admin");
    bad_query["rawQueryString"] = json!("a=<b> c");
    let bad_query = admin.invoke(&bad_query).await;
    assert_eq!(bad_query["statusCode"], 200, "a query string that is not a valid URI crashed the process: {bad_query}");
    let mut bad_method = sample("admin");
    bad_method["requestContext"]["http"]["method"] = json!("no method");
    let bad_method = admin.invoke(&bad_method).await;
    assert!(bad_method["errorMessage"].as_str().unwrap().contains("Amazon API Gateway"), "{bad_method}");
}

#[test]
fn zipped_function_is_at_most_six_megabytes() {
    // Unoptimised binaries are never deployed.
    if std::env::var("SUTURE_PROFILE").is_ok_and(|profile| profile == "dev") {
        return;
    }
    for (name, binary) in binaries() {
        let zipped = zipped_bytes(binary);
        println!("{name}: {zipped} bytes zipped");
        assert!(zipped <= MOST_ZIPPED_BYTES, "{name}: {zipped} bytes zipped, {MOST_ZIPPED_BYTES} are allowed");
    }
}

#[test]
fn template_declares_every_variable_of_the_sample_environment() {
    let globals = template()["Globals"]["Function"]["Environment"]["Variables"].as_object().unwrap();
    let env = read("tests/env.json");
    for (function, set) in env.as_object().unwrap() {
        let own = template()["Resources"][function]["Properties"]["Environment"]["Variables"].as_object().unwrap();
        for name in set.as_object().unwrap().keys() {
            // `sam local` ignores variables that the template does not declare.
            assert!(
                globals.contains_key(name) || own.contains_key(name),
                "the template does not declare {name} for {function}"
            );
        }
    }
    assert_eq!(env.as_object().unwrap().len(), 4);
}
