//! The sample events of `tests/events`, with the environment of `tests/env.json`: what `sam local invoke` runs in Docker runs here
//! against the release binaries behind the Lambda emulator. Only addresses differ.

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

/// What the functions find around them.
struct Surroundings {
    names: TableNames,
    queue: String,
    serving: FakeServers,
    folder: Folder,
}

impl Surroundings {
    async fn set_up() -> Self {
        let settings = FakeSettings { start: Timestamp::now(), ..FakeSettings::default() };
        let world = Arc::new(Mutex::new(Fakes::new(1, settings)));
        world.lock().unwrap().open_pr(NewPullRequest::default());
        let serving = fakes::serve(world).await.unwrap();
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
        Self { names, queue, serving, folder }
    }

    /// The function as `tests/env.json` sets it up, with the addresses of here.
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
            ("SUTURE_GITHUB_API_URL", &self.serving.github_url),
            ("SUTURE_JENKINS_URL", &self.serving.jenkins_url),
        ] {
            if let Some(place) = set.get_mut(name) {
                value.clone_into(place);
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
async fn the_sample_events_go_through_the_release_binaries() {
    let here = Surroundings::set_up().await;
    let webhook = here.start("WebhookFunction", "webhook").await;
    let heard = webhook.invoke(&sample("webhook")).await;
    assert_eq!(heard["statusCode"], 200, "{heard}");
    assert!(heard["body"].as_str().unwrap().contains(r#""status":"applied""#), "{heard}");

    let bridge = here.start("CarBridgeFunction", "car-bridge").await;
    let batch = bridge.invoke(&sample("car-bridge")).await;
    let poison = "2e1424d4-f796-459a-8184-9c92662be6da";
    assert_eq!(
        batch,
        json!({"batchItemFailures": [{"itemIdentifier": poison}]}),
        "only what nobody can read comes back"
    );

    let reconciler = here.start("ReconcilerFunction", "reconciler").await;
    let swept = reconciler.invoke(&sample("reconciler")).await;
    assert_eq!((&swept["status"], &swept["run_id"]), (&json!("completed"), &json!("sweep-20261116T0905Z")), "{swept}");
    let again = reconciler.invoke(&sample("reconciler")).await;
    assert_eq!(again["status"], "duplicate_trigger", "{again}");
    let asked = reconciler.invoke(&sample("reconciler-requested")).await;
    assert_eq!((&asked["status"], &asked["run_id"]), (&json!("completed"), &json!("asked-by-sample")), "{asked}");

    let admin = here.start("AdminFunction", "admin").await;
    let healthy = admin.invoke(&sample("admin")).await;
    assert_eq!(healthy["statusCode"], 200, "{healthy}");
    let mut page = sample("admin");
    page["rawPath"] = json!("/");
    page["headers"]["accept-encoding"] = json!("gzip");
    let page = admin.invoke(&page).await;
    assert_eq!((&page["statusCode"], &page["headers"]["content-encoding"]), (&json!(200), &json!("gzip")), "{page}");
    assert_eq!(page["isBase64Encoded"], true, "what is compressed is no text: {page}");
    assert!(page["body"].as_str().unwrap().starts_with("H4sI"), "base64 of what gzip begins with: {page}");
    let mut odd = sample("admin");
    odd["rawQueryString"] = json!("a=<b> c");
    let odd = admin.invoke(&odd).await;
    assert_eq!(odd["statusCode"], 200, "a query that is no URI ended the process: {odd}");
    let mut nonsense = sample("admin");
    nonsense["requestContext"]["http"]["method"] = json!("no method");
    let nonsense = admin.invoke(&nonsense).await;
    assert!(nonsense["errorMessage"].as_str().unwrap().contains("Amazon API Gateway"), "{nonsense}");
}

#[test]
fn no_function_is_larger_than_six_megabytes() {
    // Only what is optimised is uploaded.
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
fn the_samples_environment_is_that_of_the_template() {
    let globals = template()["Globals"]["Function"]["Environment"]["Variables"].as_object().unwrap();
    let env = read("tests/env.json");
    for (function, set) in env.as_object().unwrap() {
        let own = template()["Resources"][function]["Properties"]["Environment"]["Variables"].as_object().unwrap();
        for name in set.as_object().unwrap().keys() {
            // `sam local` sets only what the template names.
            assert!(globals.contains_key(name) || own.contains_key(name), "{function} has no {name}");
        }
    }
    assert_eq!(env.as_object().unwrap().len(), 4);
}
