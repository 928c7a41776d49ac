//! Running Suture: sweeps, the breaker, stopping and going on, the dead-letter queue, the export.

use std::sync::Arc;

use crate::command::SweepAsk;
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::event::{Payload, cut};
use domain::id::RunId;
use jiff::{SignedDuration, Timestamp};
use platform::outlets::Outlets;
use platform::store::Store;
use platform::{breaker as breakers, guards};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use super::commands::OnceParams;
use super::overview::read_breaker;
use crate::Admin;
use crate::auth::{Administrator, Everywhere, Operator, Viewer};
use crate::extract::{Asked, PrNumber, RepoText, repo};
use crate::idempotent_request::{Processing, Wish};
use crate::problem::{Problem, Problems};
use crate::view::EventView;
use crate::view::overview::{BreakerView, Paused};

/// Events that are exported at once: what a function may answer with has an end.
const MOST_EXPORTED: usize = 8_000;

/// The longest name of a branch, in characters: it becomes part of a key, which has room for 2048 bytes.
const MOST_BRANCH: usize = 255;

/// What to sweep; nothing said is everything that is due.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReconcileBody {
    repo: Option<String>,
    pr_number: Option<PrNumber>,
    base: Option<String>,
    dry_run: bool,
}

/// What to sweep; nothing said is everything that is due. What goes together is one of three kinds.
#[derive(ToSchema)]
#[schema(as = ReconcileBody)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum SweepBody {
    Due(SweepDue),
    One(SweepOne),
    Base(SweepBase),
}

/// What is due.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct SweepDue {
    /// Of this repository only.
    repo: Option<RepoText>,
    #[serde(default)]
    #[schema(schema_with = nothing)]
    pr_number: (),
    #[serde(default)]
    #[schema(schema_with = nothing)]
    base: (),
    /// Only say what would be done; see the run's summary.
    #[serde(default)]
    dry_run: bool,
}

/// One pull request, due or not.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct SweepOne {
    repo: RepoText,
    #[schema(inline)]
    pr_number: PrNumber,
    #[serde(default)]
    #[schema(schema_with = nothing)]
    base: (),
    /// Only say what would be done; see the run's summary.
    #[serde(default)]
    dry_run: bool,
}

/// What is open on a base branch, due or not.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct SweepBase {
    repo: RepoText,
    #[serde(default)]
    #[schema(schema_with = nothing)]
    pr_number: (),
    #[schema(min_length = 1, max_length = 255)]
    base: String,
    /// Only say what would be done; see the run's summary.
    #[serde(default)]
    dry_run: bool,
}

/// Left out, or null.
fn nothing() -> Object {
    ObjectBuilder::new().schema_type(Type::Null).build()
}

/// A sweep that was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Requested {
    /// Its run: `GET /api/runs/{id}`.
    run_id: String,
}

/// On its way, or being asked for by somebody else.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum Sweeping {
    Requested(Requested),
    Processing(Processing),
}

/// Asks for a sweep now.
#[utoipa::path(
    post, path = "/api/reconciler/run", params(OnceParams), request_body = Option<SweepBody>, security(("key" = [])),
    responses((status = 202, description = "It is taken.", body = inline(Sweeping)), Problems)
)]
pub(crate) async fn reconcile<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Operator(caller): Operator,
    wish: Wish,
) -> Result<Response, Problem> {
    let asked: Option<ReconcileBody> = wish.body.object_or_default()?;
    let ReconcileBody { repo: name, pr_number, base, dry_run } = asked.unwrap_or_default();
    if base.as_ref().is_some_and(|base| !(1..=MOST_BRANCH).contains(&base.chars().count())) {
        let detail = format!("`base` is a branch's name, 1 to {MOST_BRANCH} characters.");
        return Err(Problem::bad_request("BAD_REQUEST", detail));
    }
    let named_repo = name.as_deref().map(|text| repo(text, admin.owner.as_deref())).transpose()?;
    wish.once(&admin, &caller, StatusCode::ACCEPTED, async |named| {
        let run = RunId::new(format!("requested-{}", named.part(0)));
        let ask = SweepAsk { run, repo: named_repo, number: pr_number.map(|PrNumber(number)| number), base, dry_run };
        Ok(Requested { run_id: admin.desk.sweep(&caller, ask).await?.to_string() })
    })
    .await
}

/// The circuit breaker.
#[utoipa::path(get, path = "/api/circuit-breaker", security(("key" = [])), responses((status = 200, description = "Here it is.", body = BreakerView), Problems))]
pub(crate) async fn breaker<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    _caller: Viewer,
) -> Result<Json<BreakerView>, Problem> {
    Ok(Json(read_breaker(&admin).await?))
}

/// The trouble is over: the breaker closes, and counts from here.
#[utoipa::path(
    post, path = "/api/circuit-breaker/reset", params(OnceParams), security(("key" = [])),
    responses((status = 200, description = "Here it is.", body = BreakerView), (status = 202, description = "Somebody else is at it.", body = Processing), Problems)
)]
pub(crate) async fn reset_breaker<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Everywhere(caller): Everywhere,
    wish: Wish,
) -> Result<Response, Problem> {
    wish.once(&admin, &caller, StatusCode::OK, async |_| {
        breakers::reset(admin.desk.engine().store(), admin.desk.now()).await?;
        Ok(read_breaker(&admin).await?)
    })
    .await
}

/// Why.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PauseBody {
    /// Shown to everybody while it lasts.
    reason: Option<String>,
}

/// Whether Suture acts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PauseState {
    paused: Option<Paused>,
}

/// Stops all acting at once; Suture goes on watching.
#[utoipa::path(
    post, path = "/api/pause", params(OnceParams), request_body = Option<PauseBody>, security(("key" = [])),
    responses((status = 200, description = "Here it is.", body = PauseState), (status = 202, description = "Somebody else is at it.", body = Processing), Problems)
)]
pub(crate) async fn pause<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Everywhere(caller): Everywhere,
    wish: Wish,
) -> Result<Response, Problem> {
    let asked: Option<PauseBody> = wish.body.object_or_default()?;
    let reason = asked.unwrap_or_default().reason.unwrap_or_default();
    let by = match reason.trim() {
        "" => caller.name.clone(),
        why => cut(&format!("{} ({why})", caller.name), Payload::MAX_TEXT),
    };
    wish.once(&admin, &caller, StatusCode::OK, async |named| {
        let by = guards::pause(admin.desk.engine().store(), &by, named.at, admin.desk.now()).await?;
        Ok(PauseState { paused: by.map(|by| Paused { by }) })
    })
    .await
}

/// Lets Suture act again.
#[utoipa::path(
    post, path = "/api/unpause", params(OnceParams), security(("key" = [])),
    responses((status = 200, description = "Here it is.", body = PauseState), (status = 202, description = "Somebody else is at it.", body = Processing), Problems)
)]
pub(crate) async fn unpause<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Everywhere(caller): Everywhere,
    wish: Wish,
) -> Result<Response, Problem> {
    wish.once(&admin, &caller, StatusCode::OK, async |named| {
        let by = guards::unpause(admin.desk.engine().store(), named.at, admin.desk.now()).await?;
        Ok(PauseState { paused: by.map(|by| Paused { by }) })
    })
    .await
}

/// A message nobody could act on.
#[derive(Debug, Serialize, ToSchema)]
struct DeadMessage {
    id: String,
    sent_at: Option<Timestamp>,
    /// Why it is here.
    reason: String,
    body_excerpt: String,
    receive_count: u32,
}

/// What is in the dead-letter queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadMessages {
    messages: Vec<DeadMessage>,
    approximate_count: u64,
}

/// What is in the dead-letter queue, and why.
#[utoipa::path(get, path = "/api/dlq", security(("key" = [])), responses((status = 200, description = "Here it is.", body = DeadMessages), Problems))]
pub(crate) async fn dlq<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    _caller: Everywhere,
) -> Result<Json<DeadMessages>, Problem> {
    let dump = admin.dlq.look().await?;
    let message = |dead: &platform::outlets::dlq::Dead| DeadMessage {
        id: dead.id.clone(),
        sent_at: dead.sent_at,
        reason: dead.reason(),
        body_excerpt: dead.excerpt(),
        receive_count: dead.receive_count,
    };
    let messages = dump.messages.iter().map(message).collect();
    Ok(Json(DeadMessages { messages, approximate_count: dump.approximate_count }))
}

/// How many messages went back.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Moved {
    moved: u64,
}

/// Back on the queue, or being sent back by somebody else.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum Redriven {
    Moved(Moved),
    Processing(Processing),
}

/// Sends what is in the dead-letter queue back to the command queue.
#[utoipa::path(
    post, path = "/api/dlq/redrive", params(OnceParams), security(("key" = [])),
    responses((status = 202, description = "It is taken.", body = inline(Redriven)), Problems)
)]
pub(crate) async fn redrive<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Everywhere(caller): Everywhere,
    wish: Wish,
) -> Result<Response, Problem> {
    let redrive = async |_| Ok(Moved { moved: admin.dlq.redrive().await? });
    wish.once(&admin, &caller, StatusCode::ACCEPTED, redrive).await
}

/// Which stretch of time.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportQuery {
    /// From this time on; a day before `to` unless said otherwise.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Up to this time; now unless said otherwise.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
}

/// One line of the export.
#[derive(Serialize, ToSchema)]
struct ExportedEvent {
    repo: String,
    number: u64,
    #[serde(flatten)]
    event: EventView,
}

/// Events that changed a state or are notable, one JSON object a line, in order of time, of at most 31 days. If there are
/// more than fit, the header `x-next-from` says where to go on; the events of that moment come again.
#[utoipa::path(
    get, path = "/api/export/events", params(ExportQuery), security(("key" = [])),
    responses((status = 200, description = "Here it is.", content_type = "application/x-ndjson", body = String), Problems)
)]
pub(crate) async fn export_events<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Administrator(caller): Administrator,
    Asked(query): Asked<ExportQuery>,
) -> Result<Response, Problem> {
    let to = query.to.unwrap_or_else(|| admin.desk.now());
    let day = SignedDuration::from_hours(24);
    let from = query.from.unwrap_or_else(|| to.saturating_sub(day).unwrap_or(Timestamp::MIN));
    let (events, next) = admin.desk.export(&caller, from, to, MOST_EXPORTED).await?;
    let mut lines = String::new();
    for event in &events {
        let repo = event.pr.repo.to_string();
        let line = ExportedEvent { repo, number: event.pr.number, event: EventView::from(event) };
        lines.push_str(&serde_json::to_string(&line).map_err(Problem::unavailable)?);
        lines.push('\n');
    }
    let mut response = ([(CONTENT_TYPE, "application/x-ndjson")], lines).into_response();
    if let Some(value) = next.and_then(|next| HeaderValue::from_str(&next.to_string()).ok()) {
        response.headers_mut().insert("x-next-from", value);
    }
    Ok(response)
}
