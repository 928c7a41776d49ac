//! The stack under test: SAM deploys `template.yaml` with the release binaries to ministack; the fakes play GitHub, Jenkins and the
//! bots.

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
use fakes::{FakeBot, FakePrId, FakeServers, FakeSettings, FakeTiming, Fakes, FaultRates};
use jiff::{SignedDuration, Timestamp};
use platform::store::dynamo::DynamoStore;
use platform::store::dynamo::tables::TableNames;
use platform::store::schema;
use platform::store::{Key, Store};
use serde_json::{Value, json};
use tests::lambda::{FUNCTIONS, binaries, request, root, tools};
use tests::local_aws::{Folder, Ministack};

/// The names of the secrets with the tokens of the fakes, their webhook secrets, and the admin key.
pub(crate) const SECRET: &str = "suture-test";
pub(crate) const WEBHOOK_SECRET: &str = "suture-test/webhook";
pub(crate) const ADMIN_SECRET: &str = "suture-test/admin";
/// The key of the admin API.
pub(crate) const ADMIN_KEY: &str = "a key for the test";

pub(crate) struct Stack {
    pub(crate) fakes: Arc<Mutex<Fakes>>,
    pub(crate) aws: SdkConfig,
    pub(crate) outputs: BTreeMap<String, String>,
    pub(crate) store: DynamoStore,
    /// The URL of a queue that receives all events of the bus.
    bus_queue: String,
    /// The URL of a queue that receives all mails.
    mail_queue: String,
    queue: aws_sdk_sqs::Client,
    port: u16,
    _servers: FakeServers,
    _folder: Folder,
}

fn settings() -> FakeSettings {
    let short_ms = (200, 400);
    let timing = FakeTiming {
        webhook_ms: (10, 50),
        mergeable_ms: (10, 50),
        notice_ms: short_ms,
        queue_ms: short_ms,
        build_ms: (1_000, 2_000),
        bot_ms: short_ms,
        policy_ms: short_ms,
        genie_ms: short_ms,
        merge_queue_ms: short_ms,
        asleep_ms: (1_000, 2_000),
        base_moves_ms: short_ms,
    };
    // The fakes' clock starts three hours ago, so that stuck pull requests are already stale when it catches up.
    let start = Timestamp::now() - SignedDuration::from_hours(3);
    FakeSettings { start, timing, faults: FaultRates::none(), secondary_limits: false, ..FakeSettings::default() }
}

impl Stack {
    pub(crate) async fn deploy() -> Self {
        let settings = settings();
        let fields = secret_of(&settings);
        let fakes = Arc::new(Mutex::new(Fakes::new(9, settings)));
        let servers = fakes::serve(Arc::clone(&fakes)).await.unwrap();
        // This ministack enforces IAM, so a permission that is missing in the template fails the test.
        let ministack = Ministack::guarded();
        let port: u16 = ministack.endpoint().rsplit_once(':').unwrap().1.parse().unwrap();
        let aws = aws_config::defaults(BehaviorVersion::latest()).region(Region::new("us-east-1"));
        let owner = Credentials::new("test", "test", None, None, "the owner");
        let aws = aws.credentials_provider(owner).endpoint_url(ministack.endpoint()).load().await;
        let secrets = aws_sdk_secretsmanager::Client::new(&aws);
        for (name, fields) in fields.as_object().unwrap() {
            secrets.create_secret().name(name).secret_string(fields.to_string()).send().await.unwrap();
        }
        let folder = Folder::new();
        prepare_build(folder.path());
        python(ministack.endpoint(), "boto3.client('s3').create_bucket(Bucket='artifacts')");
        let config = folder.path().join("infra/config/suture.toml");
        let parameters = [
            format!("EndpointUrl={}", ministack.endpoint()),
            format!("ConfigPath={}", config.display()),
            format!("GitHubApiUrl={}", servers.github_url),
            format!("JenkinsUrl={}", servers.jenkins_url),
            "JenkinsUser=suture".to_owned(),
            "JenkinsReports=true".to_owned(),
            "PolicyBotReports=true".to_owned(),
            "ApproverBotReports=true".to_owned(),
            "AutomergeBotReports=true".to_owned(),
            "GitHubOwner=acme".to_owned(),
            "GitHubLogin=suture-operator".to_owned(),
            "AlertEmail=ops@example.org".to_owned(),
            "DeletionProtection=false".to_owned(),
            "Architecture=x86_64".to_owned(),
            format!("SecretName={SECRET}"),
            format!("WebhookSecretName={WEBHOOK_SECRET}"),
            format!("AdminSecretName={ADMIN_SECRET}"),
        ];
        sam(folder.path(), ministack.endpoint(), &deploy_arguments(&parameters));
        let listed = sam(
            folder.path(),
            ministack.endpoint(),
            &["list", "stack-outputs", "--stack-name", "suture", "--output", "json"].map(str::to_owned),
        );
        let outputs = outputs(&listed);
        let names = TableNames { state: outputs["StateTableName"].clone(), events: outputs["EventsTableName"].clone() };
        let store = DynamoStore::new(aws_sdk_dynamodb::Client::new(&aws), names);
        let queue = aws_sdk_sqs::Client::new(&aws);
        let bus_queue = subscribe_to_bus(&aws, &queue, &outputs["BusName"]).await;
        let mail_queue = subscribe_to_mails(&aws, &queue, &outputs["AlertTopicArn"]).await;
        Self { fakes, aws, outputs, store, bus_queue, mail_queue, queue, port, _servers: servers, _folder: folder }
    }

    /// Sends a request to the API from outside.
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

    /// Advances the fakes to the present, delivers their webhooks, and passes bus events to the fake bots.
    pub(crate) async fn advance(&self) {
        let deliveries = {
            let mut fakes = self.fakes.lock().unwrap();
            fakes.advance_to(Timestamp::now());
            fakes.take_webhooks()
        };
        for delivery in deliveries {
            let (status, answer) =
                self.call("POST", delivery.target.path(), delivery.headers.clone(), &delivery.body).await;
            eprintln!("{} {:?} {:?}: {status} {answer}", delivery.event, delivery.action, delivery.pr);
            self.fakes.lock().unwrap().webhook_answered(&delivery, status);
            assert!(status < 300, "{status}: {answer}");
        }
        for body in self.take(&self.bus_queue).await {
            let event: Value = serde_json::from_str(&body).unwrap();
            eprintln!("bus: {body}");
            let detail_type = event["detail-type"].as_str().unwrap();
            self.fakes.lock().unwrap().bus_event(detail_type, &event["detail"].to_string());
        }
    }

    /// Advances the fakes until the condition holds; panics with the logs after the timeout.
    pub(crate) async fn until(&self, what: &str, timeout: Duration, mut holds: impl AsyncFnMut(&Self) -> bool) {
        let deadline = Instant::now() + timeout;
        while !holds(self).await {
            if Instant::now() >= deadline {
                panic!("not within {timeout:?}: {what}\n{}", self.logs());
            }
            self.advance().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Receives and deletes up to ten messages of a queue.
    pub(crate) async fn take(&self, url: &str) -> Vec<String> {
        let received = self.queue.receive_message().queue_url(url).max_number_of_messages(10).send().await.unwrap();
        let mut bodies = Vec::new();
        for message in received.messages.unwrap_or_default() {
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

    /// The last log lines of all functions, for failure messages.
    pub(crate) fn logs(&self) -> String {
        logs(Ministack::guarded().endpoint())
    }

    /// All log lines of a function.
    pub(crate) fn lines(&self, function: &str) -> Vec<String> {
        let read = format!(
            "pages = boto3.client('logs').get_paginator('filter_log_events').paginate(logGroupName='/suture/suture/{function}')\n\
             print(json.dumps([event['message'] for page in pages for event in page['events']]))"
        );
        serde_json::from_str(&python(Ministack::guarded().endpoint(), &read)).unwrap()
    }

    pub(crate) async fn mails(&self) -> Vec<String> {
        self.take(&self.mail_queue).await
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

/// The entry of the key in `SUTURE_ADMIN_KEYS`.
pub(crate) fn admin_key_entry() -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, ADMIN_KEY.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("ops:admin:{digest}")
}

/// The fields of each secret.
fn secret_of(settings: &FakeSettings) -> Value {
    json!({
        SECRET: {"github_token": settings.tokens[0].0, "jenkins_token": settings.jenkins_token},
        WEBHOOK_SECRET: {
            "webhook_secret": settings.webhook_secret,
            "jenkins_webhook_secret": settings.jenkins_secret,
            "policy_bot_secret": settings.bot_secret(FakeBot::Policy),
            "approver_bot_secret": settings.bot_secret(FakeBot::Approver),
            "automerge_bot_secret": settings.bot_secret(FakeBot::Automerge),
        },
        ADMIN_SECRET: {"admin_keys": admin_key_entry()},
    })
}

/// Puts the template and the binaries where `sam build` would put them.
fn prepare_build(folder: &Path) {
    std::fs::copy(root().join("template.yaml"), folder.join("template.yaml")).unwrap();
    for function in FUNCTIONS {
        let at = folder.join("functions").join(function);
        std::fs::create_dir_all(&at).unwrap();
        std::fs::copy(&binaries()[function], at.join("bootstrap")).unwrap();
    }
    std::fs::create_dir_all(folder.join("infra/config")).unwrap();
    std::fs::write(folder.join("infra/config/suture.toml"), "mode = \"act\"\n").unwrap();
}

fn deploy_arguments(parameters: &[String]) -> Vec<String> {
    let fixed = "deploy --template-file template.yaml --stack-name suture --s3-bucket artifacts --capabilities CAPABILITY_IAM \
                 --no-confirm-changeset --no-progressbar --parameter-overrides";
    fixed.split_whitespace().map(str::to_owned).chain(parameters.iter().cloned()).collect()
}

/// Runs Python code with boto3, for AWS services whose SDK is no dependency of Suture. Returns its standard output.
pub(crate) fn python(endpoint: &str, code: &str) -> String {
    let program = format!("import boto3, json\n{code}");
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
    let output = command
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("SAM_CLI_TELEMETRY", "0")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

fn outputs(listed: &str) -> BTreeMap<String, String> {
    let listed: Vec<Value> = serde_json::from_str(listed).unwrap_or_else(|error| panic!("{error}: {listed}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    listed.iter().map(|output| (text(&output["OutputKey"]), text(&output["OutputValue"]))).collect()
}

async fn create_queue(queue: &aws_sdk_sqs::Client, name: &str) -> (String, String) {
    let url = queue.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let arn_attribute = QueueAttributeName::QueueArn;
    let got = queue.get_queue_attributes().queue_url(&url).attribute_names(arn_attribute.clone()).send().await.unwrap();
    let arn = got.attributes.unwrap()[&arn_attribute].clone();
    (url, arn)
}

/// Adds a rule that copies all events of Suture to a queue for the fake bots.
async fn subscribe_to_bus(aws: &SdkConfig, queue: &aws_sdk_sqs::Client, bus: &str) -> String {
    let (url, arn) = create_queue(queue, "bots").await;
    let events = aws_sdk_eventbridge::Client::new(aws);
    let rule = events.put_rule().name("bots").event_bus_name(bus).event_pattern(r#"{"source": ["suture"]}"#);
    rule.send().await.unwrap();
    let target = aws_sdk_eventbridge::types::Target::builder().id("bots").arn(arn).build().unwrap();
    events.put_targets().rule("bots").event_bus_name(bus).targets(target).send().await.unwrap();
    url
}

/// Adds a second subscription to the alert topic: a queue, which the test can read.
async fn subscribe_to_mails(aws: &SdkConfig, queue: &aws_sdk_sqs::Client, topic: &str) -> String {
    let (url, arn) = create_queue(queue, "mails").await;
    let policy = json!({"Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": arn
    }]});
    let allow = queue.set_queue_attributes().queue_url(&url).attributes(QueueAttributeName::Policy, policy.to_string());
    allow.send().await.unwrap();
    let topics = aws_sdk_sns::Client::new(aws);
    topics.subscribe().topic_arn(topic).protocol("sqs").endpoint(arn).send().await.unwrap();
    url
}
