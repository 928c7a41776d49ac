//! Entry point of GitHub's API: authentication, rate limits, faults, ETags, headers. The endpoints are in `rest` and
//! `graphql`.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use http::{Method, Request, Response};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::fakes::Fakes;
use crate::faults::Fault;
use crate::github::model::PrIx;
use crate::http_api::{ApiRequest, ApiResponse, NoResponse};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiIdentity {
    /// The App itself, authenticated by a JWT.
    App,
    /// An installation of the App, authenticated by a token that expires after an hour. It writes as this login.
    Installation(String),
    /// A user, authenticated by a personal token.
    Person(String),
}

impl ApiIdentity {
    /// The login shown as the author of its writes.
    pub(crate) fn login(&self) -> &str {
        match self {
            Self::App => "app",
            Self::Installation(login) | Self::Person(login) => login,
        }
    }
}

/// A token's use of its rate limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenUsage {
    core: UsageWindow,
    graphql: UsageWindow,
    /// Points used in the last minute: time and number.
    points: VecDeque<(Timestamp, u64)>,
    /// Content writes of the last hour.
    writes: VecDeque<Timestamp>,
    not_before: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default)]
struct UsageWindow {
    used: u64,
    reset: Option<Timestamp>,
}

impl UsageWindow {
    fn at(&mut self, now: Timestamp) -> &mut Self {
        if self.reset.is_none_or(|reset| reset <= now) {
            *self = Self { used: 0, reset: now.checked_add(SignedDuration::from_hours(1)).ok() };
        }
        self
    }

    fn reset_secs(&self) -> i64 {
        self.reset.map_or(0, Timestamp::as_second)
    }
}

const SECONDARY: &str = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
/// GitHub's documented secondary limits.
const POINTS_A_MINUTE: u64 = 900;
const WRITES_A_MINUTE: usize = 80;
const WRITES_AN_HOUR: usize = 500;

impl Fakes {
    /// Handles a request to GitHub (REST or GraphQL), synchronously and at the fakes' time.
    /// [`NoResponse`] is what a client sees as a timeout or a reset connection.
    pub fn github(&mut self, request: Request<Bytes>) -> Result<Response<Bytes>, NoResponse> {
        self.requests += 1;
        let mut request = ApiRequest::of(request);
        if request.path.starts_with("/api/v3/") || request.path == "/api/graphql" {
            request.parts.drain(..if request.path == "/api/graphql" { 1 } else { 2 });
        }
        let (key, caller) = match self.caller(&request) {
            Ok(known) => known,
            Err(answer) => return Ok(answer.into_response()),
        };
        let fault = self.request_fault(&request, false);
        if fault == Some(Fault::ApiTimeout) {
            return Err(NoResponse { applied: false });
        }
        let graphql = request.parts == ["graphql"];
        let answer = match self.limited(&key, &request, graphql, fault) {
            Some(refusal) => refusal,
            None if fault == Some(Fault::ApiError) => ApiResponse::error(500, "Server Error"),
            None if graphql => self.graphql(&request, &key, &caller, fault == Some(Fault::GraphqlPartial)),
            None => self.rest(&request, &key, &caller),
        };
        if fault == Some(Fault::AnswerLost) {
            return Err(NoResponse { applied: answer.code < 400 });
        }
        let answer = self.tagged(&key, &request, answer);
        Ok(self.with_limits(&key, graphql, answer).into_response())
    }

    /// The caller's identity, and the key of its rate limit.
    fn caller(&self, request: &ApiRequest) -> Result<(String, ApiIdentity), ApiResponse> {
        let given = request.header("authorization").unwrap_or_default();
        let token = given.split_once(' ').map_or("", |(_, token)| token);
        if token.matches('.').count() == 2 && token.len() > 40 {
            return Ok(("app".to_owned(), ApiIdentity::App));
        }
        if let Some((_, login)) = self.settings.tokens.iter().find(|(known, _)| known == token) {
            return Ok((token.to_owned(), ApiIdentity::Person(login.clone())));
        }
        match self.installation_tokens.get(token) {
            Some(until) if *until > self.now() => {
                Ok(("installation".to_owned(), ApiIdentity::Installation(format!("{}[bot]", self.settings.app_slug))))
            }
            _ if given.is_empty() => Err(ApiResponse::error(401, "Requires authentication")),
            _ => Err(ApiResponse::error(401, "Bad credentials")),
        }
    }

    /// The fault that strikes this request, if any: one forced by a test, otherwise a random one.
    pub(crate) fn request_fault(&mut self, request: &ApiRequest, jenkins: bool) -> Option<Fault> {
        let graphql = request.path.ends_with("/graphql");
        let mutates =
            || request.text("query").is_some_and(|text| text.lines().any(|line| line.starts_with("mutation")));
        let fits = |fault: Fault| {
            if fault == Fault::AnswerLost {
                request.is_write() && (!graphql || mutates())
            } else if fault == Fault::GraphqlPartial {
                graphql
            } else {
                jenkins == (fault == Fault::JenkinsDown)
            }
        };
        let about = self.about(request, jenkins);
        let place = self.forced.iter().position(|(fault, pr)| fits(*fault) && (pr.is_none() || *pr == about));
        if let Some((fault, _)) = place.and_then(|place| self.forced.remove(place)) {
            return Some(fault);
        }
        if self.request_faults.is_empty() || !self.request_rng.happens(self.settings.faults.requests) {
            return None;
        }
        self.request_rng.pick(&self.request_faults).copied().filter(|fault| fits(*fault))
    }

    /// The pull request that a path names.
    fn about(&self, request: &ApiRequest, jenkins: bool) -> Option<PrIx> {
        let parts: Vec<&str> = request.parts.iter().map(String::as_str).collect();
        if jenkins {
            return self.job_of(&parts).and_then(|(job, _)| job.pr);
        }
        match parts.as_slice() {
            ["repos", owner, name, "pulls" | "issues", number, ..] => {
                self.github.pull_at(self.repo_ix(&format!("{owner}/{name}"))?, number.parse().ok()?)
            }
            _ => None,
        }
    }

    /// The error response if a limit is reached; otherwise counts the request.
    fn limited(&mut self, key: &str, request: &ApiRequest, graphql: bool, fault: Option<Fault>) -> Option<ApiResponse> {
        let (now, limit, enforced) = (self.now(), self.settings.rate_limit, self.settings.secondary_limits);
        let budget = self.budgets.entry(key.to_owned()).or_default();
        let wait = |secs: i64| now.checked_add(SignedDuration::from_secs(secs)).ok();
        if fault == Some(Fault::ApiTooMany) {
            return Some(ApiResponse::error(429, SECONDARY).with("retry-after", "30"));
        }
        if fault == Some(Fault::ApiForbidden) {
            budget.not_before = wait(60);
            return Some(ApiResponse::error(403, SECONDARY).with("retry-after", "60"));
        }
        if let Some(until) = budget.not_before.filter(|until| *until > now) {
            let secs = until.as_second() - now.as_second();
            return Some(ApiResponse::error(403, SECONDARY).with("retry-after", secs.max(1).to_string()));
        }
        if !graphql {
            let core = budget.core.at(now);
            if core.used >= limit {
                return Some(ApiResponse::error(403, "API rate limit exceeded for installation."));
            }
            core.used += 1;
        }
        if !enforced {
            return None;
        }
        let a_minute_ago = wait(-60).unwrap_or(Timestamp::MIN);
        while budget.points.front().is_some_and(|(at, _)| *at <= a_minute_ago) {
            budget.points.pop_front();
        }
        let cost = if request.is_write() && !graphql { 5 } else { 1 };
        let spent: u64 = budget.points.iter().map(|(_, points)| points).sum();
        budget.points.push_back((now, cost));
        let writes = creates_content(request);
        if writes {
            let an_hour_ago = wait(-3_600).unwrap_or(Timestamp::MIN);
            while budget.writes.front().is_some_and(|at| *at <= an_hour_ago) {
                budget.writes.pop_front();
            }
            budget.writes.push_back(now);
        }
        let lately = budget.writes.iter().rev().take_while(|at| **at > a_minute_ago).count();
        if spent + cost > POINTS_A_MINUTE
            || writes && (lately > WRITES_A_MINUTE || budget.writes.len() > WRITES_AN_HOUR)
        {
            budget.not_before = wait(60);
            return Some(ApiResponse::error(403, SECONDARY).with("retry-after", "60"));
        }
        None
    }

    /// Spends GraphQL points. Returns false if too few are left.
    pub(crate) fn spend_graphql(&mut self, key: &str, cost: u64) -> bool {
        let (now, limit) = (self.now(), self.settings.graphql_limit);
        let window = self.budgets.entry(key.to_owned()).or_default().graphql.at(now);
        if window.used + cost > limit {
            return false;
        }
        window.used += cost;
        true
    }

    /// Remaining GraphQL points, and the time of the reset.
    pub(crate) fn graphql_left(&mut self, key: &str) -> (u64, Timestamp) {
        let (now, limit) = (self.now(), self.settings.graphql_limit);
        let window = self.budgets.entry(key.to_owned()).or_default().graphql.at(now);
        (limit.saturating_sub(window.used), window.reset.unwrap_or(now))
    }

    /// `GET /rate_limit`, which is free itself.
    pub(crate) fn rate_limit_json(&mut self, key: &str) -> Value {
        let (now, core_limit, graphql_limit) = (self.now(), self.settings.rate_limit, self.settings.graphql_limit);
        let budget = self.budgets.entry(key.to_owned()).or_default();
        budget.core.at(now).used -= 1;
        let show = |limit: u64, window: UsageWindow| json!({"limit": limit, "used": window.used, "remaining": limit.saturating_sub(window.used), "reset": window.reset_secs()});
        let core = show(core_limit, budget.core);
        json!({"resources": {"core": core, "graphql": show(graphql_limit, *budget.graphql.at(now))}, "rate": core})
    }

    /// Adds an ETag. A matching conditional request gets 304 and is free.
    fn tagged(&mut self, key: &str, request: &ApiRequest, answer: ApiResponse) -> ApiResponse {
        if request.method != Method::GET || answer.code != 200 {
            return answer;
        }
        let mut hasher = DefaultHasher::new();
        answer.body.hash(&mut hasher);
        let tag = format!("W/\"{:016x}\"", hasher.finish());
        if request.header("if-none-match") != Some(tag.as_str()) {
            return answer.with("etag", tag);
        }
        if let Some(budget) = self.budgets.get_mut(key) {
            budget.core.used = budget.core.used.saturating_sub(1);
        }
        ApiResponse::empty(304).with("etag", tag)
    }

    fn with_limits(&mut self, key: &str, graphql: bool, answer: ApiResponse) -> ApiResponse {
        let now = self.now();
        let (limit, resource) = match graphql {
            true => (self.settings.graphql_limit, "graphql"),
            false => (self.settings.rate_limit, "core"),
        };
        let budget = self.budgets.entry(key.to_owned()).or_default();
        let window = if graphql { budget.graphql.at(now) } else { budget.core.at(now) };
        let id = format!("{:04X}:{:06X}", now.as_second() & 0xFFFF, self.requests);
        answer
            .with("x-ratelimit-limit", limit.to_string())
            .with("x-ratelimit-used", window.used.to_string())
            .with("x-ratelimit-remaining", limit.saturating_sub(window.used).to_string())
            .with("x-ratelimit-reset", window.reset_secs().to_string())
            .with("x-ratelimit-resource", resource)
            .with("x-github-request-id", id)
    }
}

/// Content-creating writes have a separate secondary limit.
fn creates_content(request: &ApiRequest) -> bool {
    request.method == Method::POST && request.path.contains("/repos/") && !request.path.ends_with("/rerequest")
}

/// User and password of `Authorization: Basic`.
pub(crate) fn basic(request: &ApiRequest) -> Option<(String, String)> {
    use base64::Engine as _;
    let given = request.header("authorization")?.strip_prefix("Basic ")?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(given.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.split_once(':').map(|(user, secret)| (user.to_owned(), secret.to_owned()))
}
