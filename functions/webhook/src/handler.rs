//! Handles one HTTP request: verify the sender, parse the payload, ingest it, log one line, respond. The parsers are in `github`,
//! `jenkins` and `bot`; `ingest` applies facts and queues commands; the `domain` crate decides what follows. The same code runs behind
//! API Gateway and locally.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use crate::github::{BotIdentity, GithubDelivery, ParseOutcome, parse_delivery};
use crate::ingest::{IngestError, IngestResult, IngestStatus, Ingester};
use crate::signature::{SenderSecrets, SignatureError};
use domain::policy::Policies;
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use jiff::Timestamp;
use platform::engine::Engine;
use platform::publish::Publisher;
use platform::secrets::SecretRefresher;
use platform::store::Store;
use platform::store::last_webhook::LastWebhook;
use platform::telemetry::MetricLog;

use crate::bot::ReportingBot;
use crate::response::{self, WebhookProblem};
use crate::{bot, jenkins, log};

/// The largest body accepted: Lambda's limit for one invocation.
pub const MAX_BODY_BYTES: usize = 6 * 1024 * 1024;

/// The secrets of the senders. Requests from a sender without a secret get 404.
#[derive(Debug, Clone)]
pub struct WebhookSecrets {
    pub github: SenderSecrets,
    pub jenkins: Option<SenderSecrets>,
    /// One for each bot that reports directly: a bot's secret authenticates only its own reports.
    pub bots: BTreeMap<ReportingBot, SenderSecrets>,
}

#[derive(Debug)]
pub struct WebhookHandler<S, O> {
    ingester: Ingester<S, O>,
    policies: Policies,
    identity: BotIdentity,
    secrets: RwLock<Arc<WebhookSecrets>>,
    refresher: Option<SecretRefresher<WebhookSecrets>>,
    last_webhook: Option<LastWebhook>,
    log: MetricLog,
}

/// The facts about a request that its log record carries.
#[derive(Debug, Default)]
pub(crate) struct RequestLog<'a> {
    pub(crate) path: &'a str,
    pub(crate) event: &'a str,
    pub(crate) delivery: &'a str,
    pub(crate) repo: Option<String>,
}

impl<S: Store, O: Publisher> WebhookHandler<S, O> {
    pub fn new(
        store: S,
        publisher: O,
        policies: Policies,
        identity: BotIdentity,
        secrets: WebhookSecrets,
        log: MetricLog,
    ) -> Self {
        let engine = Engine::new(store, publisher, policies.clone());
        let (ingester, secrets) = (Ingester::new(engine, policies.clone()), RwLock::new(Arc::new(secrets)));
        Self { ingester, policies, identity, secrets, refresher: None, last_webhook: None, log }
    }

    /// Refreshes the secrets regularly, and after each failed verification: the sender's secret may have been rotated first.
    #[must_use]
    pub fn with_secret_refresh(self, refresher: SecretRefresher<WebhookSecrets>) -> Self {
        Self { refresher: Some(refresher), ..self }
    }

    /// Stores when the last webhook of GitHub was received, so that a sweep notices silence.
    #[must_use]
    pub fn with_last_webhook(self) -> Self {
        Self { last_webhook: Some(LastWebhook::default()), ..self }
    }

    fn use_secrets(&self, secrets: WebhookSecrets) {
        *self.secrets.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(secrets);
    }

    fn secrets(&self) -> Arc<WebhookSecrets> {
        Arc::clone(&self.secrets.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Refreshes the secrets; true if they differ from `before`.
    async fn refreshed_since(&self, before: &Arc<WebhookSecrets>) -> bool {
        if let Some(refresher) = &self.refresher
            && let Some(secrets) = refresher.refresh_now().await
        {
            self.use_secrets(secrets);
        }
        // A concurrent request may have refreshed them.
        !Arc::ptr_eq(before, &self.secrets())
    }

    pub fn engine(&self) -> &Engine<S, O> {
        self.ingester.engine()
    }

    /// Handles a request. A 2xx response means that everything is stored in the table or on the queue.
    pub async fn handle(&self, request: &Parts, body: &[u8], now: Timestamp) -> Response<String> {
        let started = Instant::now();
        if let Some(refresher) = &self.refresher
            && let Some(secrets) = refresher.refresh_if_stale(now).await
        {
            self.use_secrets(secrets);
        }
        let mut request_log = RequestLog { path: request.uri.path(), ..RequestLog::default() };
        let result = self.process(request, body, now, &mut request_log).await;
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match result {
            Ok(result) => {
                // Only GitHub sends a delivery id.
                if let Some(last_webhook) = self.last_webhook.as_ref().filter(|_| !request_log.delivery.is_empty()) {
                    last_webhook.received(self.engine().store(), now).await;
                }
                self.log.write(&log::ingested(&request_log, &result, now, ms));
                response::ingested(&result)
            }
            Err(HandlerFailure::Rejected(problem)) => {
                self.log.write(&log::rejected(&request_log, &problem, now));
                problem.response()
            }
            Err(HandlerFailure::Store(error)) => {
                let problem = WebhookProblem::unavailable();
                self.log.write(&log::failed(&request_log, &error, now, ms));
                problem.response()
            }
        }
    }

    async fn process<'a>(
        &self,
        request: &'a Parts,
        body: &[u8],
        now: Timestamp,
        request_log: &mut RequestLog<'a>,
    ) -> Result<IngestResult, HandlerFailure> {
        let secrets = self.secrets();
        let outcome = match self.parse(&secrets, request, body, request_log) {
            Err(problem) if problem.is_unauthorized() && self.refreshed_since(&secrets).await => {
                self.parse(&self.secrets(), request, body, request_log)
            }
            outcome => outcome,
        };
        match outcome? {
            ParseOutcome::Parsed(webhook) => {
                request_log.repo = Some(webhook.repo.to_string());
                Ok(self.ingester.ingest(&webhook, now).await?)
            }
            ParseOutcome::Installed { id, at } => Ok(self.ingester.installed(&id, at.unwrap_or(now), now).await?),
            ParseOutcome::Ignored(reason) => Ok(IngestResult::result(IngestStatus::Ignored, reason)),
            ParseOutcome::Malformed(why) => Err(WebhookProblem::malformed(why).into()),
        }
    }

    /// Verifies the sender, then parses the payload.
    fn parse<'a>(
        &self,
        webhook_secrets: &WebhookSecrets,
        request: &'a Parts,
        body: &[u8],
        request_log: &mut RequestLog<'a>,
    ) -> Result<ParseOutcome, WebhookProblem> {
        // API Gateway may put the stage before the path.
        let (_, sender) = request.uri.path().rsplit_once("/webhook/").ok_or_else(WebhookProblem::not_found)?;
        let is_known = match sender {
            "github" => true,
            "jenkins" => webhook_secrets.jenkins.is_some(),
            "bot" => !webhook_secrets.bots.is_empty(),
            _ => false,
        };
        if !is_known {
            return Err(WebhookProblem::not_found());
        }
        if request.method != Method::POST {
            return Err(WebhookProblem::method_not_allowed());
        }
        if body.len() > MAX_BODY_BYTES {
            return Err(WebhookProblem::too_large(MAX_BODY_BYTES));
        }
        let headers = &request.headers;
        if let ("jenkins", Some(secrets)) = (sender, &webhook_secrets.jenkins) {
            verify(secrets, headers, body).map_err(WebhookProblem::unauthorized)?;
            request_log.event = "jenkins";
            return Ok(jenkins::read(body, &self.policies));
        }
        if sender == "bot" {
            let bot = authenticated_bot(&webhook_secrets.bots, headers, body).map_err(WebhookProblem::unauthorized)?;
            request_log.event = "bot";
            return Ok(bot::read(body, bot, &self.policies));
        }
        webhook_secrets
            .github
            .check_signature(body, text(headers, "x-hub-signature-256"))
            .map_err(WebhookProblem::unauthorized)?;
        let needed = |name: &'static str| {
            text(headers, name).ok_or_else(|| WebhookProblem::malformed(format!("header `{name}` is missing")))
        };
        request_log.event = needed("x-github-event")?;
        request_log.delivery = needed("x-github-delivery")?;
        let delivery = GithubDelivery { event: request_log.event, id: request_log.delivery, body };
        Ok(parse_delivery(&delivery, &self.policies, &self.identity))
    }
}

/// The bot that the report names, if the request proves to be that bot's.
fn authenticated_bot(
    bots: &BTreeMap<ReportingBot, SenderSecrets>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<ReportingBot, SignatureError> {
    let bot = bot::named_bot(body).ok_or(SignatureError::UnknownBot)?;
    verify(bots.get(&bot).ok_or(SignatureError::UnknownBot)?, headers, body)?;
    Ok(bot)
}

/// Jenkins and the bots sign as GitHub does, or send the secret as a bearer token if they cannot sign.
fn verify(secrets: &SenderSecrets, headers: &HeaderMap, body: &[u8]) -> Result<(), SignatureError> {
    match text(headers, "x-hub-signature-256") {
        Some(signature) => secrets.check_signature(body, Some(signature)),
        None => secrets.check_bearer(text(headers, "authorization")),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Why a request is answered with an error.
enum HandlerFailure {
    Rejected(WebhookProblem),
    Store(IngestError),
}

impl From<WebhookProblem> for HandlerFailure {
    fn from(problem: WebhookProblem) -> Self {
        Self::Rejected(problem)
    }
}

impl From<IngestError> for HandlerFailure {
    fn from(error: IngestError) -> Self {
        Self::Store(error)
    }
}
