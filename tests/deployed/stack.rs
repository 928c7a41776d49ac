//! The stack: `template.yaml` deployed by CloudFormation onto ministack, with the release binaries, for a pretended world.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::Credentials;
use aws_sdk_sqs::types::QueueAttributeName;
use domain::id::PrId;
use domain::pull_request::PullRequest;
use fakes::{FakePrId, FakeServers, FakeSettings, FakeTiming, Fakes, FaultRates};
use jiff::{SignedDuration, Timestamp};
use platform::schema;
use platform::store::dynamo::DynamoStore;
use platform::store::dynamo::tables::TableNames;
use platform::store::{Key, Store};
use serde_json::{Value, json};
use tests::lambda::{FUNCTIONS, binaries, request, root, tools};
use tests::local_aws::{Folder, Ministack};

/// What the world's tokens and secrets are, in one secret.
pub(crate) const SECRET: &str = "suture-test";
/// The key of the admin API.
pub(crate) const ADMIN_KEY: &str = "a key for the test";

/// Everything together.
pub(crate) struct Stack {
    pub(crate) world: Arc<Mutex<Fakes>>,
    pub(crate) aws: SdkConfig,
    pub(crate) outputs: BTreeMap<String, String>,
    pub(crate) store: DynamoStore,
    /// What the bots hear.
    bus: String,
    /// What people get.
    mails: String,
    queue: aws_sdk_sqs::Client,
    port: u16,
    _serving: FakeServers,
    _folder: Folder,
}

fn settings() -> FakeSettings {
    let quick = (200, 400);
    let timing = FakeTiming {
        webhook_ms: (10, 50),
        mergeable_ms: (10, 50),
        notice_ms: quick,
        queue_ms: quick,
        build_ms: (1_000, 2_000),
        bot_ms: quick,
        policy_ms: quick,
        genie_ms: quick,
        merge_queue_ms: quick,
        asleep_ms: (1_000, 2_000),
        base_moves_ms: quick,
    };
    // It began three hours ago: what was stuck then is stale now, and nobody has to wait for it.
    let start = Timestamp::now() - SignedDuration::from_hours(3);
    FakeSettings { start, timing, faults: FaultRates::none(), secondary_limits: false, ..FakeSettings::default() }
}

impl Stack {
    pub(crate) async fn deploy() -> Self {
        let settings = settings();
        let fields = secret_of(&settings);
        let world = Arc::new(Mutex::new(Fakes::new(9, settings)));
        let serving = fakes::serve(Arc::clone(&world)).await.unwrap();
        // Every call is held against the caller's policies: what the template forgets to allow fails here.
        let ministack = Ministack::guarded();
        let port: u16 = ministack.endpoint().rsplit_once(':').unwrap().1.parse().unwrap();
        let aws = aws_config::defaults(BehaviorVersion::latest()).region(Region::new("us-east-1"));
        let owner = Credentials::new("test", "test", None, None, "the owner");
        let aws = aws.credentials_provider(owner).endpoint_url(ministack.endpoint()).load().await;
        let secrets = aws_sdk_secretsmanager::Client::new(&aws);
        secrets.create_secret().name(SECRET).secret_string(fields.to_string()).send().await.unwrap();
        let folder = Folder::new();
        lay_out(folder.path());
        python(ministack.endpoint(), "boto3.client('s3').create_bucket(Bucket='artifacts')");
        let config = folder.path().join("infra/config/suture.toml");
        let parameters = [
            format!("EndpointUrl={}", ministack.endpoint()),
            format!("ConfigPath={}", config.display()),
            format!("GitHubApiUrl={}", serving.github_url),
            format!("JenkinsUrl={}", serving.jenkins_url),
            "JenkinsUser=suture".to_owned(),
            "JenkinsReports=true".to_owned(),
            "BotsReport=true".to_owned(),
            "GitHubOwner=acme".to_owned(),
            "GitHubLogin=suture-operator".to_owned(),
            "AlertEmail=ops@example.org".to_owned(),
            "DeletionProtection=false".to_owned(),
            "Architecture=x86_64".to_owned(),
            format!("SecretName={SECRET}"),
        ];
        sam(folder.path(), ministack.endpoint(), &deploying(&parameters));
        let listed = sam(
            folder.path(),
            ministack.endpoint(),
            &["list", "stack-outputs", "--stack-name", "suture", "--output", "json"].map(str::to_owned),
        );
        let outputs = outputs(&listed);
        let names = TableNames { state: outputs["StateTableName"].clone(), events: outputs["EventsTableName"].clone() };
        let store = DynamoStore::new(aws_sdk_dynamodb::Client::new(&aws), names);
        let queue = aws_sdk_sqs::Client::new(&aws);
        let bus = listen_to_bus(&aws, &queue, &outputs["BusName"]).await;
        let mails = listen_to_mails(&aws, &queue, &outputs["AlertTopicArn"]).await;
        Self { world, aws, outputs, store, bus, mails, queue, port, _serving: serving, _folder: folder }
    }

    /// A request to the API, as it comes from outside.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: Vec<(String, String)>,
        body: &[u8],
    ) -> (u16, String) {
        let host = format!("{}.execute-api.localhost:{}", self.outputs["ApiId"], self.port);
        let (port, method, path, body) = (self.port, method.to_owned(), path.to_owned(), body.to_vec());
        let call = move || {
            let headers = headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
            let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
            let headers: Vec<(&str, &str)> = headers.chain([("host", host.as_str())]).collect();
            request(port, &method, &path, &headers, &body)
        };
        tokio::task::spawn_blocking(call).await.unwrap()
    }

    /// The world goes on: time passes there, what it sends arrives, and bots hear what is on the bus.
    pub(crate) async fn go_on(&self) {
        let deliveries = {
            let mut world = self.world.lock().unwrap();
            world.advance_to(Timestamp::now());
            world.take_webhooks()
        };
        for delivery in deliveries {
            let (status, answer) =
                self.call("POST", delivery.target.path(), delivery.headers.clone(), &delivery.body).await;
            eprintln!("{} {:?} {:?}: {status} {answer}", delivery.event, delivery.action, delivery.pr);
            self.world.lock().unwrap().webhook_answered(&delivery, status);
            assert!(status < 300, "{status}: {answer}");
        }
        for body in self.take(&self.bus).await {
            let event: Value = serde_json::from_str(&body).unwrap();
            eprintln!("bus: {body}");
            let known = event["detail-type"].as_str().unwrap();
            self.world.lock().unwrap().bus_event(known, &event["detail"].to_string());
        }
    }

    /// Lets the world go on until this is so.
    pub(crate) async fn until(&self, what: &str, within: Duration, mut is_so: impl AsyncFnMut(&Self) -> bool) {
        let give_up = Instant::now() + within;
        while !is_so(self).await {
            if Instant::now() >= give_up {
                panic!("not within {within:?}: {what}\n{}", self.logs());
            }
            self.go_on().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What is in a queue; it is empty then.
    pub(crate) async fn take(&self, url: &str) -> Vec<String> {
        let asked = self.queue.receive_message().queue_url(url).max_number_of_messages(10).send().await.unwrap();
        let mut bodies = Vec::new();
        for message in asked.messages.unwrap_or_default() {
            self.queue
                .delete_message()
                .queue_url(url)
                .receipt_handle(message.receipt_handle.unwrap())
                .send()
                .await
                .unwrap();
            bodies.push(message.body.unwrap());
        }
        bodies
    }

    /// What the functions wrote, for whoever has to find out why.
    pub(crate) fn logs(&self) -> String {
        logs(Ministack::guarded().endpoint())
    }

    /// Every line that a function wrote.
    pub(crate) fn lines(&self, function: &str) -> Vec<String> {
        let read = format!(
            "pages = boto3.client('logs').get_paginator('filter_log_events').paginate(logGroupName='/suture/suture/{function}')\n\
             print(json.dumps([event['message'] for page in pages for event in page['events']]))"
        );
        serde_json::from_str(&python(Ministack::guarded().endpoint(), &read)).unwrap()
    }

    pub(crate) async fn mails(&self) -> Vec<String> {
        self.take(&self.mails).await
    }

    pub(crate) fn queue(&self) -> &aws_sdk_sqs::Client {
        &self.queue
    }

    pub(crate) async fn record(&self, pr: &FakePrId) -> Option<PullRequest> {
        let pr: PrId = format!("{}#{}", pr.repo, pr.number).parse().unwrap();
        let key = schema::record_key(&pr);
        let item = self.store.get(&key, Timestamp::now()).await.unwrap()?;
        Some(schema::read(&key, &item).unwrap())
    }

    pub(crate) async fn has_row(&self, key: &str) -> bool {
        self.store.get(&Key::state(key), Timestamp::now()).await.unwrap().is_some()
    }
}

fn secret_of(settings: &FakeSettings) -> Value {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, ADMIN_KEY.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "github_token": settings.tokens[0].0,
        "webhook_secret": settings.webhook_secret,
        "jenkins_token": settings.jenkins_token,
        "jenkins_webhook_secret": settings.jenkins_secret,
        "bot_secret": settings.bot_secret,
        "admin_keys": format!("ops:admin:{digest}"),
    })
}

/// Lays the template beside what `sam build` would have built.
fn lay_out(folder: &Path) {
    std::fs::copy(root().join("template.yaml"), folder.join("template.yaml")).unwrap();
    for function in FUNCTIONS {
        let at = folder.join("functions").join(function);
        std::fs::create_dir_all(&at).unwrap();
        std::fs::copy(&binaries()[function], at.join("bootstrap")).unwrap();
    }
    std::fs::create_dir_all(folder.join("infra/config")).unwrap();
    std::fs::write(folder.join("infra/config/suture.toml"), "mode = \"act\"\n").unwrap();
}

fn deploying(parameters: &[String]) -> Vec<String> {
    let fixed = "deploy --template-file template.yaml --stack-name suture --s3-bucket artifacts --capabilities CAPABILITY_IAM \
                 --no-confirm-changeset --no-progressbar --parameter-overrides";
    fixed.split_whitespace().map(str::to_owned).chain(parameters.iter().cloned()).collect()
}

/// Does something with Amazon's own SDK that no crate of ours needs; what it prints last is the answer.
pub(crate) fn python(endpoint: &str, what: &str) -> String {
    let program = format!("import boto3, json\n{what}");
    run(Command::new(tools("sam").join("python")).args(["-c", &program]), endpoint)
}

fn logs(endpoint: &str) -> String {
    let read = "logs = boto3.client('logs')\n\
        for group in logs.describe_log_groups()['logGroups']:\n\
        \x20   print('──', group['logGroupName'])\n\
        \x20   events = logs.filter_log_events(logGroupName=group['logGroupName'])['events']\n\
        \x20   print(*[event['message'].strip()[:600] for event in events[-25:]], sep='\\n')";
    python(endpoint, read)
}

fn sam(folder: &Path, endpoint: &str, arguments: &[String]) -> String {
    run(Command::new(tools("sam").join("sam")).args(arguments).current_dir(folder), endpoint)
}

fn run(command: &mut Command, endpoint: &str) -> String {
    let said = command
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("SAM_CLI_TELEMETRY", "0")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

fn outputs(listed: &str) -> BTreeMap<String, String> {
    let listed: Vec<Value> = serde_json::from_str(listed).unwrap_or_else(|error| panic!("{error}: {listed}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    listed.iter().map(|output| (text(&output["OutputKey"]), text(&output["OutputValue"]))).collect()
}

async fn fresh_queue(queue: &aws_sdk_sqs::Client, name: &str) -> (String, String) {
    let url = queue.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let wanted = QueueAttributeName::QueueArn;
    let got = queue.get_queue_attributes().queue_url(&url).attribute_names(wanted.clone()).send().await.unwrap();
    let arn = got.attributes.unwrap()[&wanted].clone();
    (url, arn)
}

/// The bots listen, by a rule of their own, to everything Suture says.
async fn listen_to_bus(aws: &SdkConfig, queue: &aws_sdk_sqs::Client, bus: &str) -> String {
    let (url, arn) = fresh_queue(queue, "bots").await;
    let events = aws_sdk_eventbridge::Client::new(aws);
    let rule = events.put_rule().name("bots").event_bus_name(bus).event_pattern(r#"{"source": ["suture"]}"#);
    rule.send().await.unwrap();
    let target = aws_sdk_eventbridge::types::Target::builder().id("bots").arn(arn).build().unwrap();
    events.put_targets().rule("bots").event_bus_name(bus).targets(target).send().await.unwrap();
    url
}

/// A second subscription, which can be read, gets what goes out by mail.
async fn listen_to_mails(aws: &SdkConfig, queue: &aws_sdk_sqs::Client, topic: &str) -> String {
    let (url, arn) = fresh_queue(queue, "mails").await;
    let policy = json!({"Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": arn
    }]});
    let allow = queue.set_queue_attributes().queue_url(&url).attributes(QueueAttributeName::Policy, policy.to_string());
    allow.send().await.unwrap();
    let people = aws_sdk_sns::Client::new(aws);
    people.subscribe().topic_arn(topic).protocol("sqs").endpoint(arn).send().await.unwrap();
    url
}
