//! Operations routes: sweeps, the circuit breaker, pause and unpause, the event export.

use std::sync::Arc;

use crate::command::SweepRequest;
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::event::{EventPayload, truncate};
use domain::id::RunId;
use jiff::{SignedDuration, Timestamp};
use platform::publish::Publisher;
use platform::store::Store;
use platform::store::breaker as breakers;
use platform::store::pause;
use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use super::commands::IdempotencyHeaders;
use super::overview::read_breaker;
use crate::Admin;
use crate::api_keys::ApiCaller;
use crate::auth::{Administrator, GlobalAdministrator, Operator, Viewer};
use crate::extract::{PrNumber, QueryParams, RepoParam, repo};
use crate::idempotent_request::{IdempotentRequest, RequestIdentity, StillProcessing};
use crate::problem::{ApiProblem, CommonProblems};
use crate::view::EventView;
use crate::view::overview::{BreakerView, PauseView};

/// Events of one export.
const MAX_EXPORTED: usize = 8_000;
/// Bytes of one export: a Lambda response has at most 6 MB.
const MAX_EXPORTED_BYTES: usize = 4 << 20;

/// The longest branch name, in characters: it is part of a DynamoDB key of at most 2048 bytes.
const MAX_BRANCH_CHARS: usize = 255;

/// The scope of the sweep; an empty body means everything that is due.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReconcileBody {
    repo: Option<String>,
    pr_number: Option<PrNumber>,
    base: Option<String>,
    dry_run: bool,
}

/// The scope of the sweep, one of three kinds; an empty body means everything that is due.
#[derive(ToSchema)]
#[schema(as = ReconcileBody)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum SweepBody {
    Due(SweepDue),
    One(SweepOne),
    Base(SweepBase),
}

/// Due pull requests.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct SweepDue {
    /// Only this repository.
    repo: Option<RepoParam>,
    #[serde(default)]
    #[schema(schema_with = null_schema)]
    pr_number: (),
    #[serde(default)]
    #[schema(schema_with = null_schema)]
    base: (),
    /// Only report what would be done, in the summary of the run.
    #[serde(default)]
    dry_run: bool,
}

/// One pull request, due or not.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct SweepOne {
    repo: RepoParam,
    #[schema(inline)]
    pr_number: PrNumber,
    #[serde(default)]
    #[schema(schema_with = null_schema)]
    base: (),
    /// Only report what would be done, in the summary of the run.
    #[serde(default)]
    dry_run: bool,
}

/// The open pull requests of a base branch, due or not.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct SweepBase {
    repo: RepoParam,
    #[serde(default)]
    #[schema(schema_with = null_schema)]
    pr_number: (),
    #[schema(min_length = 1, max_length = 255)]
    base: String,
    /// Only report what would be done, in the summary of the run.
    #[serde(default)]
    dry_run: bool,
}

/// Omitted, or null.
fn null_schema() -> Object {
    ObjectBuilder::new().schema_type(Type::Null).build()
}

/// A requested sweep.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SweepRequested {
    /// The id of its run; see `GET /api/runs/{id}`.
    run_id: String,
}

/// Requested, or still being processed.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum SweepAccepted {
    Requested(SweepRequested),
    Processing(StillProcessing),
}

/// Requests a sweep now.
#[utoipa::path(
    post, path = "/api/reconciler/run", params(IdempotencyHeaders), request_body = Option<SweepBody>, security(("key" = [])),
    responses((status = 202, description = "Accepted.", body = inline(SweepAccepted)), CommonProblems)
)]
pub(crate) async fn reconcile<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Operator(caller): Operator,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    let body: Option<ReconcileBody> = request.body.object_or_default()?;
    let ReconcileBody { repo: name, pr_number, base, dry_run } = body.unwrap_or_default();
    if base.as_ref().is_some_and(|base| !(1..=MAX_BRANCH_CHARS).contains(&base.chars().count())) {
        let detail = format!("`base` must be a branch name of 1 to {MAX_BRANCH_CHARS} characters.");
        return Err(ApiProblem::bad_request("BAD_REQUEST", detail));
    }
    let named_repo = name.as_deref().map(|text| repo(text, admin.owner.as_deref())).transpose()?;
    request
        .run_once(&admin, &caller, StatusCode::ACCEPTED, async |identity| {
            let run = RunId::new(format!("requested-{}", identity.part(0)));
            let number = pr_number.map(|PrNumber(number)| number);
            let sweep = SweepRequest { run, repo: named_repo, number, base, dry_run };
            Ok(SweepRequested { run_id: admin.api.sweep(&caller, sweep).await?.to_string() })
        })
        .await
}

/// The state of the circuit breaker.
#[utoipa::path(get, path = "/api/circuit-breaker", security(("key" = [])), responses((status = 200, description = "OK.", body = BreakerView), CommonProblems))]
pub(crate) async fn breaker<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    _caller: Viewer,
) -> Result<Json<BreakerView>, ApiProblem> {
    Ok(Json(read_breaker(&admin).await?))
}

/// Closes the circuit breaker, restarts its failure count, and requests a sweep of what it had put off.
#[utoipa::path(
    post, path = "/api/circuit-breaker/reset", params(IdempotencyHeaders), security(("key" = [])),
    responses((status = 200, description = "OK.", body = BreakerView), (status = 202, description = "The same request is already being processed.", body = StillProcessing), CommonProblems)
)]
pub(crate) async fn reset_breaker<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    GlobalAdministrator(caller): GlobalAdministrator,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    request
        .run_once(&admin, &caller, StatusCode::OK, async |identity| {
            breakers::reset(admin.api.engine().store(), admin.api.now()).await?;
            sweep_released(&admin, &caller, identity).await;
            Ok(read_breaker(&admin).await?)
        })
        .await
}

/// Requests a sweep of what the breaker or the pause had put off. Without it, the next scheduled sweep visits them.
async fn sweep_released<S: Store, O: Publisher>(admin: &Admin<S, O>, caller: &ApiCaller, identity: RequestIdentity) {
    let run = RunId::new(format!("released-{}", identity.part(0)));
    let everything = SweepRequest { run, repo: None, number: None, base: None, dry_run: false };
    if let Err(error) = admin.api.sweep(caller, everything).await {
        warn!(%error, "cannot request a sweep; the next scheduled one visits what was put off");
    }
}

/// The reason of a pause.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PauseBody {
    /// Shown while Suture is paused.
    reason: Option<String>,
}

/// Whether Suture is paused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PauseState {
    paused: Option<PauseView>,
}

/// Pauses all actions immediately; Suture keeps recording events.
#[utoipa::path(
    post, path = "/api/pause", params(IdempotencyHeaders), request_body = Option<PauseBody>, security(("key" = [])),
    responses((status = 200, description = "OK.", body = PauseState), (status = 202, description = "The same request is already being processed.", body = StillProcessing), CommonProblems)
)]
pub(crate) async fn pause<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    GlobalAdministrator(caller): GlobalAdministrator,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    let body: Option<PauseBody> = request.body.object_or_default()?;
    let reason = body.unwrap_or_default().reason.unwrap_or_default();
    let by = match reason.trim() {
        "" => caller.name.clone(),
        why => truncate(&format!("{} ({why})", caller.name), EventPayload::MAX_TEXT),
    };
    request
        .run_once(&admin, &caller, StatusCode::OK, async |identity| {
            let by = pause::pause(admin.api.engine().store(), &by, identity.at, admin.api.now()).await?;
            Ok(PauseState { paused: by.map(|by| PauseView { by }) })
        })
        .await
}

/// Resumes all actions, and requests a sweep of what the pause had put off.
#[utoipa::path(
    post, path = "/api/unpause", params(IdempotencyHeaders), security(("key" = [])),
    responses((status = 200, description = "OK.", body = PauseState), (status = 202, description = "The same request is already being processed.", body = StillProcessing), CommonProblems)
)]
pub(crate) async fn unpause<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    GlobalAdministrator(caller): GlobalAdministrator,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    request
        .run_once(&admin, &caller, StatusCode::OK, async |identity| {
            let by = pause::unpause(admin.api.engine().store(), identity.at, admin.api.now()).await?;
            if by.is_none() {
                sweep_released(&admin, &caller, identity).await;
            }
            Ok(PauseState { paused: by.map(|by| PauseView { by }) })
        })
        .await
}

/// The period of the export.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportQuery {
    /// The start; by default a day before `to`.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// The end; by default now.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
}

/// One exported event.
#[derive(Serialize, ToSchema)]
struct ExportedEvent {
    repo: String,
    number: u64,
    #[serde(flatten)]
    event: EventView,
}

/// The lines that fit, and the time to continue from if some do not. A page holds all events of its first time, so that each page makes
/// progress.
fn first_page(lines: Vec<(Timestamp, String)>, max_bytes: usize) -> (String, Option<Timestamp>) {
    let (mut page, mut first) = (String::new(), None);
    for (at, line) in lines {
        let began = *first.get_or_insert(at);
        if page.len() + line.len() >= max_bytes && at > began {
            return (page, Some(at));
        }
        page.push_str(&line);
        page.push('\n');
    }
    (page, None)
}

/// Exports the events that changed a state or are notable, one JSON object per line, in order of time, of at most 31 days. If
/// the response is truncated, the header `x-next-from` has the `from` to continue with; events of that time are repeated.
#[utoipa::path(
    get, path = "/api/export/events", params(ExportQuery), security(("key" = [])),
    responses((status = 200, description = "OK.", content_type = "application/x-ndjson", body = String), CommonProblems)
)]
pub(crate) async fn export_events<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Administrator(caller): Administrator,
    QueryParams(query): QueryParams<ExportQuery>,
) -> Result<Response, ApiProblem> {
    let to = query.to.unwrap_or_else(|| admin.api.now());
    let day = SignedDuration::from_hours(24);
    let from = query.from.unwrap_or_else(|| to.saturating_sub(day).unwrap_or(Timestamp::MIN));
    let (events, next) = admin.api.export(&caller, from, to, MAX_EXPORTED).await?;
    let mut lines = Vec::with_capacity(events.len());
    for event in &events {
        let repo = event.pr.repo.to_string();
        let line = ExportedEvent { repo, number: event.pr.number, event: EventView::from(event) };
        lines.push((event.occurred_at, serde_json::to_string(&line).map_err(ApiProblem::unavailable)?));
    }
    let (lines, cut_at) = first_page(lines, MAX_EXPORTED_BYTES);
    let next = cut_at.or(next);
    let mut response = ([(CONTENT_TYPE, "application/x-ndjson")], lines).into_response();
    if let Some(value) = next.and_then(|next| HeaderValue::from_str(&next.to_string()).ok()) {
        response.headers_mut().insert("x-next-from", value);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_pages_end_before_their_byte_limit_and_lose_nothing() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let all: Vec<(Timestamp, String)> =
            (0..10).map(|n| (at(if n < 4 { 0 } else { n }), format!("{{\"n\":{n}}}"))).collect();
        let (mut seen, mut from, mut pages) = (std::collections::BTreeSet::new(), Some(at(0)), 0);
        while let Some(start) = from {
            let rest: Vec<_> = all.iter().filter(|(at, _)| *at >= start).cloned().collect();
            let (page, next) = first_page(rest, 20);
            assert!(next.is_none_or(|next| next > start), "a page makes progress");
            // Only events of one time may exceed the limit.
            assert!(page.len() <= 20 || start == at(0), "{page}");
            seen.extend(page.lines().map(str::to_owned));
            (from, pages) = (next, pages + 1);
        }
        assert_eq!((seen.len(), pages), (10, 4));
        assert_eq!(first_page(Vec::new(), 20), (String::new(), None));
    }
}
