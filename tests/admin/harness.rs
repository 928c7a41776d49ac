//! Test harness: the admin function on a store, with keys of every role and requests without sockets.

use std::sync::Arc;

use admin::keys::{ApiKeys, new_key};
use admin::{Admin, AdminSettings, router};
use bytes::Bytes;
use domain::command::ApiRole;
use domain::event::Fact;
use domain::policy::Policies;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use platform::engine::Engine;
use platform::github::GitHub;
use platform::publish::dead_letters::DeadLetterQueue;
use platform::store::Store;
use platform::store::schema;
use platform::telemetry::MetricLog;
use serde_json::Value;
use testbed::{ManualClock, MemoryStore, RecordingPublisher};
use tests::{Written, acting, start};
use tower::ServiceExt as _;

/// The caller of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Anonymous,
    UnknownKey,
    Viewer,
    Operator,
    Admin,
    /// An admin with the scope `acme/shop`.
    ShopAdmin,
    /// A viewer with the scope `acme/web`.
    WebViewer,
}

pub(crate) struct Harness<S: Store + 'static> {
    pub(crate) admin: Arc<Admin<S, RecordingPublisher>>,
    pub(crate) clock: ManualClock,
    pub(crate) lines: Written,
    keys: Vec<(Caller, String)>,
}

/// Response of the admin function.
#[derive(Debug, Clone)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl ApiResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// Status and code of a problem response; asserts that the response is a valid one.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{} {}", self.status, self.text);
        let json = self.json();
        assert_eq!(json["status"], self.status);
        assert_eq!(json["type"], "about:blank");
        let detail = json["detail"].as_str().unwrap();
        assert!(detail.ends_with(['.', '?', '!']) && detail.len() < 900, "{detail}");
        (self.status, json["code"].as_str().unwrap().to_owned())
    }
}

pub(crate) struct Options {
    pub(crate) policies: Policies,
    pub(crate) github: Option<GitHub>,
    pub(crate) dlq: DeadLetterQueue,
}

impl Default for Options {
    fn default() -> Self {
        Self { policies: acting(), github: None, dlq: DeadLetterQueue::None }
    }
}

impl Harness<MemoryStore> {
    pub(crate) fn new() -> Self {
        Self::on(MemoryStore::new(), Options::default())
    }
}

impl<S: Store + 'static> Harness<S> {
    pub(crate) fn on(store: S, options: Options) -> Self {
        let clock = ManualClock::at(start());
        let lines = Written::default();
        let mut keys = Vec::new();
        let mut entries = Vec::new();
        for (caller, name, role, scope) in [
            (Caller::Viewer, "viewer", ApiRole::Viewer, ""),
            (Caller::Operator, "operator", ApiRole::Operator, ""),
            (Caller::Admin, "admin", ApiRole::Admin, ""),
            (Caller::ShopAdmin, "shop-admin", ApiRole::Admin, ":acme/shop"),
            (Caller::WebViewer, "web-viewer", ApiRole::Viewer, ":acme/web"),
        ] {
            let (key, entry) = new_key(name, role).unwrap();
            keys.push((caller, key));
            entries.push(format!("{entry}{scope}"));
        }
        let settings = AdminSettings {
            keys: ApiKeys::parse(&entries.join(";")).unwrap(),
            owner: Some("acme".to_owned()),
            github: options.github,
            jenkins: None,
            dlq: options.dlq,
            clock: Arc::new(clock.clone()),
            log: MetricLog::writing_to(lines.clone()),
        };
        let engine = Engine::new(store, RecordingPublisher::default(), options.policies);
        Self { admin: Arc::new(Admin::new(engine, settings)), clock, lines, keys }
    }

    pub(crate) fn key(&self, caller: Caller) -> Option<&str> {
        match caller {
            Caller::Anonymous => None,
            Caller::UnknownKey => Some("suture_0000000000000000000000000000000000000000000000000000000000000000"),
            known => self.keys.iter().find(|(one, _)| *one == known).map(|(_, key)| key.as_str()),
        }
    }

    pub(crate) fn publisher(&self) -> &RecordingPublisher {
        self.admin.engine().publisher()
    }

    pub(crate) fn store(&self) -> &S {
        self.admin.engine().store()
    }

    /// Applies a fact at its own time.
    pub(crate) async fn apply_fact(&self, fact: &Fact) {
        let at = fact.occurred_at;
        self.admin.engine().apply(fact, at).await.unwrap();
        self.store().write(vec![schema::add_repo(&fact.pr.repo)], at).await.unwrap();
    }

    pub(crate) async fn send(&self, caller: Caller, request: Request<Bytes>) -> ApiResponse {
        let (mut parts, body) = request.into_parts();
        if let Some(key) = self.key(caller) {
            parts.headers.insert("authorization", format!("Bearer {key}").parse().unwrap());
        }
        let request = Request::from_parts(parts, http_body_util::Full::new(body));
        let response = router(Arc::clone(&self.admin)).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        ApiResponse { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    pub(crate) async fn get(&self, caller: Caller, path: &str) -> ApiResponse {
        self.send(caller, Request::builder().uri(path).body(Bytes::new()).unwrap()).await
    }

    pub(crate) async fn post(&self, caller: Caller, path: &str, body: &str) -> ApiResponse {
        self.post_with_key(caller, path, body, None).await
    }

    pub(crate) async fn post_with_key(
        &self,
        caller: Caller,
        path: &str,
        body: &str,
        name: Option<&str>,
    ) -> ApiResponse {
        let request = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
        let request = match name {
            Some(name) => request.header("idempotency-key", name),
            None => request,
        };
        self.send(caller, request.body(Bytes::from(body.to_owned())).unwrap()).await
    }
}
