//! Handles one HTTP request: verify the sender, parse the payload, ingest it, log one line, respond. The parsers are in `github`,
//! `jenkins` and `bot`; `ingest` applies facts and queues commands; the `domain` crate decides what follows. The same code runs behind
//! API Gateway and locally.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use crate::github::{Delivery, Own, Reading, read};
use crate::ingest::{Intake, IntakeError, Status, Taken};
use crate::signature::{Distrust, Secrets};
use domain::policy::Policies;
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use jiff::Timestamp;
use platform::engine::Engine;
use platform::outlets::Outlets;
use platform::secrets::Renewal;
use platform::store::Store;
use platform::telemetry::Log;

use crate::response::{self, Problem};
use crate::{bot, jenkins, log};

/// The largest body accepted: Lambda's limit for one invocation.
pub const MAX_BODY_BYTES: usize = 6 * 1024 * 1024;

/// The secrets of the senders. Requests from a sender without a secret get 404.
#[derive(Debug, Clone)]
pub struct Senders {
    pub github: Secrets,
    pub jenkins: Option<Secrets>,
    pub bot: Option<Secrets>,
}

#[derive(Debug)]
pub struct Webhook<S, O> {
    intake: Intake<S, O>,
    policies: Policies,
    own: Own,
    senders: RwLock<Arc<Senders>>,
    renewal: Option<Renewal<Senders>>,
    log: Log,
}

/// The facts about a request that its log record carries.
#[derive(Debug, Default)]
pub(crate) struct Seen<'a> {
    pub(crate) path: &'a str,
    pub(crate) event: &'a str,
    pub(crate) delivery: &'a str,
    pub(crate) repo: Option<String>,
}

impl<S: Store, O: Outlets> Webhook<S, O> {
    pub fn new(store: S, outlets: O, policies: Policies, own: Own, senders: Senders, log: Log) -> Self {
        let engine = Engine::new(store, outlets, policies.clone());
        let (intake, senders) = (Intake::new(engine, policies.clone()), RwLock::new(Arc::new(senders)));
        Self { intake, policies, own, senders, renewal: None, log }
    }

    /// Refreshes the secrets regularly, and after each failed verification: the sender's secret may have been rotated first.
    #[must_use]
    pub fn renewing(self, renewal: Renewal<Senders>) -> Self {
        Self { renewal: Some(renewal), ..self }
    }

    fn use_senders(&self, senders: Senders) {
        *self.senders.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(senders);
    }

    fn senders(&self) -> Arc<Senders> {
        Arc::clone(&self.senders.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Refreshes the secrets; true if they differ from `before`.
    async fn renewed_since(&self, before: &Arc<Senders>) -> bool {
        if let Some(renewal) = &self.renewal
            && let Some(senders) = renewal.doubt().await
        {
            self.use_senders(senders);
        }
        // A concurrent request may have refreshed them.
        !Arc::ptr_eq(before, &self.senders())
    }

    pub fn engine(&self) -> &Engine<S, O> {
        self.intake.engine()
    }

    /// Handles a request. A 2xx response means that everything is stored in the table or on the queue.
    pub async fn handle(&self, request: &Parts, body: &[u8], now: Timestamp) -> Response<String> {
        let started = Instant::now();
        if let Some(renewal) = &self.renewal
            && let Some(senders) = renewal.freshen(now).await
        {
            self.use_senders(senders);
        }
        let mut request_log = Seen { path: request.uri.path(), ..Seen::default() };
        let result = self.process(request, body, now, &mut request_log).await;
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        match result {
            Ok(result) => {
                self.log.write(&log::taken(&request_log, &result, now, ms));
                response::taken(&result)
            }
            Err(Failed::Turned(problem)) => {
                self.log.write(&log::rejected(&request_log, &problem, now));
                problem.response()
            }
            Err(Failed::Store(error)) => {
                let problem = Problem::unavailable();
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
        request_log: &mut Seen<'a>,
    ) -> Result<Taken, Failed> {
        let senders = self.senders();
        let reading = match self.reading(&senders, request, body, request_log) {
            Err(problem) if problem.is_distrust() && self.renewed_since(&senders).await => {
                self.reading(&self.senders(), request, body, request_log)
            }
            reading => reading,
        };
        match reading? {
            Reading::Told(webhook) => {
                request_log.repo = Some(webhook.repo.to_string());
                Ok(self.intake.take(&webhook, now).await?)
            }
            Reading::Installed { id, at } => Ok(self.intake.installed(&id, at.unwrap_or(now), now).await?),
            Reading::Ignored(reason) => Ok(Taken::said(Status::Ignored, reason)),
            Reading::Malformed(why) => Err(Problem::malformed(why).into()),
        }
    }

    /// Verifies the sender, then parses the payload.
    fn reading<'a>(
        &self,
        senders: &Senders,
        request: &'a Parts,
        body: &[u8],
        request_log: &mut Seen<'a>,
    ) -> Result<Reading, Problem> {
        // API Gateway may put the stage before the path.
        let (_, sender) = request.uri.path().rsplit_once("/webhook/").ok_or_else(Problem::not_found)?;
        let secrets = match sender {
            "github" => Some(&senders.github),
            "jenkins" => senders.jenkins.as_ref(),
            "bot" => senders.bot.as_ref(),
            _ => None,
        };
        let secrets = secrets.ok_or_else(Problem::not_found)?;
        if request.method != Method::POST {
            return Err(Problem::method_not_allowed());
        }
        if body.len() > MAX_BODY_BYTES {
            return Err(Problem::too_large(MAX_BODY_BYTES));
        }
        let headers = &request.headers;
        if sender != "github" {
            believe(secrets, headers, body).map_err(Problem::distrusted)?;
            request_log.event = if sender == "bot" { "bot" } else { "jenkins" };
            return Ok(match sender {
                "bot" => bot::read(body, &self.policies),
                _ => jenkins::read(body, &self.policies),
            });
        }
        secrets.check_signature(body, text(headers, "x-hub-signature-256")).map_err(Problem::distrusted)?;
        let needed = |name: &'static str| {
            text(headers, name).ok_or_else(|| Problem::malformed(format!("header `{name}` is missing")))
        };
        request_log.event = needed("x-github-event")?;
        request_log.delivery = needed("x-github-delivery")?;
        let delivery = Delivery { event: request_log.event, id: request_log.delivery, body };
        Ok(read(&delivery, &self.policies, &self.own))
    }
}

/// Jenkins and the bots sign as GitHub does, or send the secret as a bearer token if they cannot sign.
fn believe(secrets: &Secrets, headers: &HeaderMap, body: &[u8]) -> Result<(), Distrust> {
    match text(headers, "x-hub-signature-256") {
        Some(signature) => secrets.check_signature(body, Some(signature)),
        None => secrets.check_bearer(text(headers, "authorization")),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Why a request is answered with an error.
enum Failed {
    Turned(Problem),
    Store(IntakeError),
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self::Turned(problem)
    }
}

impl From<IntakeError> for Failed {
    fn from(error: IntakeError) -> Self {
        Self::Store(error)
    }
}
