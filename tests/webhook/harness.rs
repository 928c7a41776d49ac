//! Test harness: the webhook function on an in-memory store, and builders for GitHub's deliveries.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use domain::event::{Event, Fact, FactKind};
use domain::id::PrId;
use domain::policy::Policies;
use domain::pull_request::PullRequest;
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use platform::engine::ingest::apply_fact;
use platform::engine::repo_registry::RepoRegistry;
use platform::publish::OutboundMessage;
use platform::store::queries;
use platform::telemetry::MetricLog;
use serde_json::{Value, json};
use testbed::{FaultStore, RecordingPublisher};
use webhook::github::BotIdentity;
use webhook::signature::{SenderSecrets, sign};
use webhook::{ReportingBot, WebhookHandler, WebhookSecrets};

pub(crate) const SECRET: &str = "a secret";
pub(crate) const JENKINS: &str = "continuous-integration/jenkins/pr-merge";
pub(crate) const POLICY: &str = "policy-bot: main";

/// Act mode with one required check, so that no test needs a query to GitHub.
pub(crate) const CONFIG: &str = "mode = 'act'\n[checks]\nrequired = ['continuous-integration/jenkins/pr-merge']\n[limits]\nwebhooks_per_minute_per_repo = 1000\n";

/// Captured log lines.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = std::str::from_utf8(bytes).unwrap().strip_suffix('\n').unwrap();
        assert!(!line.contains('\n'), "each write is one whole line");
        self.0.lock().unwrap().push(line.to_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Caches parsed configurations: parsing compiles patterns, and some tests start thousands of harnesses.
fn policies(config: &str) -> Policies {
    static READ: Mutex<BTreeMap<String, Policies>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap();
    read.entry(config.to_owned()).or_insert_with(|| Policies::parse(config).unwrap()).clone()
}

/// Response of the webhook function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebhookResponse {
    pub(crate) code: u16,
    /// `status` of a 200 response, `code` of a problem.
    pub(crate) outcome: String,
    pub(crate) reason: String,
}

/// The webhook function with its store, publisher and log.
pub(crate) struct Harness {
    webhook: WebhookHandler<FaultStore, RecordingPublisher>,
    lines: Lines,
    pub(crate) now: Timestamp,
}

impl Harness {
    pub(crate) fn new(config: &str) -> Self {
        let secrets = |text| Some(SenderSecrets::parse(text).unwrap());
        let bot = |bot: ReportingBot| (bot, SenderSecrets::parse(&format!("{bot}-new,{bot}-old")).unwrap());
        Self::with_secrets(config, secrets("j"), ReportingBot::ALL.map(bot).into())
    }

    /// With these secrets of Jenkins and the bots.
    pub(crate) fn with_secrets(
        config: &str,
        jenkins: Option<SenderSecrets>,
        bots: BTreeMap<ReportingBot, SenderSecrets>,
    ) -> Self {
        let policies = policies(config);
        let senders = WebhookSecrets { github: SenderSecrets::parse(SECRET).unwrap(), jenkins, bots };
        let own = BotIdentity { app_id: Some(77), login: Some("suture[bot]".to_owned()) };
        let lines = Lines::default();
        let log = MetricLog::writing_to(lines.clone());
        let webhook =
            WebhookHandler::new(FaultStore::default(), RecordingPublisher::default(), policies, own, senders, log);
        Self { webhook, lines, now: tests::minute(60) }
    }

    pub(crate) fn store(&self) -> &FaultStore {
        self.webhook.engine().store()
    }

    pub(crate) fn publisher(&self) -> &RecordingPublisher {
        self.webhook.engine().publisher()
    }

    pub(crate) fn sent(&self) -> Vec<OutboundMessage> {
        self.publisher().sent()
    }

    /// The last log line as written.
    pub(crate) fn raw_line(&self) -> String {
        self.lines.0.lock().unwrap().last().unwrap().clone()
    }

    /// The last log line, parsed.
    pub(crate) fn line(&self) -> Value {
        serde_json::from_str(&self.raw_line()).unwrap()
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> WebhookResponse {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let lines = self.lines.0.lock().unwrap().len();
        let response = self.webhook.handle(&parts, body, self.now).await;
        assert_eq!(self.lines.0.lock().unwrap().len(), lines + 1, "one log line per request");
        let code = response.status().as_u16();
        let content_type = response.headers()["content-type"].to_str().unwrap();
        let json: Value = serde_json::from_str(response.body()).unwrap();
        let text = |name: &str| json[name].as_str().unwrap().to_owned();
        if code == 200 {
            assert_eq!(content_type, "application/json");
            return WebhookResponse { code, outcome: text("status"), reason: text("reason") };
        }
        assert_eq!((content_type, json["status"].as_u64()), ("application/problem+json", Some(u64::from(code))));
        WebhookResponse { code, outcome: text("code"), reason: text("detail") }
    }

    /// Sends a signed GitHub delivery.
    pub(crate) async fn deliver(&self, delivery: &Delivery) -> WebhookResponse {
        let body = delivery.payload.to_string();
        let signature = sign(SECRET, body.as_bytes());
        let headers = [
            ("x-hub-signature-256", signature.as_str()),
            ("x-github-event", delivery.event),
            ("x-github-delivery", &delivery.id),
        ];
        self.request(Method::POST, "/webhook/github", &headers, body.as_bytes()).await
    }

    /// Sends a GitHub delivery and asserts the outcome.
    #[track_caller]
    pub(crate) fn expect(&self, delivery: &Delivery, outcome: &str) -> impl Future<Output = WebhookResponse> {
        let place = std::panic::Location::caller();
        async move {
            let response = self.deliver(delivery).await;
            assert_eq!(response.outcome, outcome, "{} at {place}: {response:?}", delivery.id);
            response
        }
    }

    pub(crate) async fn record(&self, number: u64) -> PullRequest {
        self.find_record(number).await.unwrap()
    }

    pub(crate) async fn find_record(&self, number: u64) -> Option<PullRequest> {
        self.webhook.engine().load(&tests::pr(number), self.now).await.unwrap()
    }

    /// The event log of a pull request, in order.
    pub(crate) async fn events(&self, number: u64) -> Vec<Event> {
        queries::events(self.store(), &tests::pr(number), false, None, 100, self.now).await.unwrap().entries
    }

    pub(crate) async fn kinds(&self, number: u64) -> String {
        let events = self.events(number).await;
        events.iter().map(|event| event.kind.name()).collect::<Vec<_>>().join(" ")
    }

    /// Applies a fact that does not come from a webhook.
    pub(crate) async fn apply(&self, fact: &Fact) {
        self.webhook.engine().apply(fact, self.now).await.unwrap();
    }

    /// Applies a fact from the queue, as the Car Bridge does.
    pub(crate) async fn apply_deferred(&self, fact: &Fact) {
        apply_fact(self.webhook.engine(), &RepoRegistry::default(), None, fact, self.now).await.unwrap();
    }

    pub(crate) async fn claim(&self, pr: &PrId, run: &str) {
        let fact = tests::claim(self.webhook.engine(), pr, run, self.now).await;
        self.apply(&fact).await;
        let accepted =
            FactKind::Remedy { run: domain::id::RunId::new(run), update: domain::event::RemedyUpdate::Accepted };
        let moment_later = self.now + SignedDuration::from_secs(1);
        self.apply(&tests::fact(pr, format!("{run}-accepted"), moment_later, accepted)).await;
    }
}

/// A GitHub webhook delivery.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) event: &'static str,
    pub(crate) id: String,
    pub(crate) payload: Value,
}

impl Delivery {
    /// Replaces the value at a JSON pointer.
    pub(crate) fn with(mut self, pointer: &str, value: Value) -> Self {
        *self.payload.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} in {}", self.id)) = value;
        self
    }
}

/// [`tests::minute`] in GitHub's time format.
pub(crate) fn at(minute: i64) -> String {
    tests::minute(minute).to_string()
}

fn repository() -> Value {
    json!({"id": 5, "full_name": "acme/shop"})
}

/// A `pull_request` delivery of a CodeGenie pull request whose head is this digit, repeated.
pub(crate) fn pull(number: u64, action: &str, head: char, minute: i64) -> Delivery {
    Delivery {
        event: "pull_request",
        id: format!("pull-{number}-{action}-{head}-{minute}"),
        payload: json!({
            "action": action,
            "pull_request": {
                "number": number, "node_id": format!("PR_{number}"), "state": "open", "title": "Fix CVE-2026-1234", "body": "",
                "user": {"login": "codegenie[bot]"}, "labels": [],
                "head": {"ref": "codegenie/fix", "sha": head.to_string().repeat(40), "repo": {"id": 5}},
                "base": {"ref": "main", "repo": {"id": 5}}, "draft": false, "merged": false, "merged_by": null,
                "created_at": at(0), "updated_at": at(minute), "closed_at": null, "merged_at": null
            },
            "before": null,
            "repository": repository(),
            "sender": {"login": "codegenie[bot]"}
        }),
    }
}

pub(crate) fn closed(number: u64, minute: i64) -> Delivery {
    pull(number, "closed", 'a', minute)
        .with("/pull_request/state", json!("closed"))
        .with("/pull_request/closed_at", json!(at(minute)))
}

pub(crate) fn merged(number: u64, minute: i64) -> Delivery {
    closed(number, minute)
        .with("/pull_request/merged", json!(true))
        .with("/pull_request/merged_at", json!(at(minute)))
        .with("/pull_request/merged_by", json!({"login": "automerge-bot[bot]"}))
}

pub(crate) fn enqueued(number: u64, minute: i64) -> Delivery {
    pull(number, "enqueued", 'a', minute).with("/sender/login", json!("automerge-bot[bot]"))
}

pub(crate) fn status(head: char, context: &str, state: &str, description: &str, minute: i64) -> Delivery {
    Delivery {
        event: "status",
        id: format!("status-{head}-{}-{state}-{minute}", context.replace(['/', ' ', ':'], "-")),
        payload: json!({
            "sha": head.to_string().repeat(40), "context": context, "state": state, "description": description,
            "created_at": at(minute), "updated_at": at(minute), "branches": [], "repository": repository(),
            "sender": {"login": if context == POLICY { "policy-bot[bot]" } else { "jenkins[bot]" }}
        }),
    }
}

/// A `check_run` delivery that lists these pull requests.
pub(crate) fn run(head: char, name: &str, conclusion: Option<&str>, listed: &[u64], minute: i64) -> Delivery {
    let listed: Vec<Value> =
        listed.iter().map(|number| json!({"number": number, "base": {"repo": {"id": 5}}})).collect();
    let done = conclusion.is_some();
    Delivery {
        event: "check_run",
        id: format!("run-{head}-{name}-{}-{minute}", conclusion.unwrap_or("running")).replace(['/', ' '], "-"),
        payload: json!({
            "action": if done { "completed" } else { "created" },
            "check_run": {
                "id": 9, "name": name, "head_sha": head.to_string().repeat(40),
                "status": if done { "completed" } else { "in_progress" }, "conclusion": conclusion,
                "started_at": at(1), "completed_at": done.then(|| at(minute)), "output": {"title": null, "summary": null},
                "app": {"id": 3}, "check_suite": {"created_at": at(1), "updated_at": at(minute)}, "pull_requests": listed
            },
            "repository": repository()
        }),
    }
}

pub(crate) fn suite(head: char, action: &str, listed: &[u64], minute: i64) -> Delivery {
    let listed: Vec<Value> =
        listed.iter().map(|number| json!({"number": number, "base": {"repo": {"id": 5}}})).collect();
    Delivery {
        event: "check_suite",
        id: format!("suite-{head}-{action}-{minute}"),
        payload: json!({
            "action": action,
            "check_suite": {
                "head_sha": head.to_string().repeat(40), "app": {"id": 3}, "pull_requests": listed, "conclusion": "success",
                "created_at": at(minute), "updated_at": at(minute)
            },
            "repository": repository()
        }),
    }
}

pub(crate) fn approval(number: u64, head: char, minute: i64) -> Delivery {
    Delivery {
        event: "pull_request_review",
        id: format!("review-{number}-{head}-{minute}"),
        payload: json!({
            "action": "submitted",
            "review": {
                "node_id": "PRR_1", "user": {"login": "approver-bot[bot]"}, "body": null, "state": "approved",
                "commit_id": head.to_string().repeat(40), "submitted_at": at(minute), "author_association": "NONE"
            },
            "pull_request": {"number": number, "updated_at": at(minute)},
            "repository": repository()
        }),
    }
}

pub(crate) fn comment(number: u64, body: &str, minute: i64) -> Delivery {
    Delivery {
        event: "issue_comment",
        id: format!("comment-{number}-{minute}"),
        payload: json!({
            "action": "created",
            "issue": {"number": number, "pull_request": {}},
            "comment": {
                "node_id": format!("IC_{number}_{minute}"), "user": {"login": "jane"}, "body": body, "created_at": at(minute),
                "author_association": "MEMBER", "performed_via_github_app": null
            },
            "repository": repository()
        }),
    }
}

pub(crate) fn push(branch: &str, minute: i64) -> Delivery {
    Delivery {
        event: "push",
        id: format!("push-{branch}-{minute}"),
        payload: json!({
            "ref": format!("refs/heads/{branch}"), "deleted": false, "head_commit": null,
            "repository": {"id": 5, "full_name": "acme/shop", "pushed_at": tests::minute(minute).as_second()}
        }),
    }
}
