//! Read routes: lists of pull requests, and the status, events and explanation of one.

use std::sync::Arc;

use crate::query::{PullRequestFilter, StaleCursor};
use axum::Json;
use axum::extract::State;
use domain::id::PrId;
use domain::pull_request::PullRequest;
use domain::state::State as PrState;
use platform::publish::Publisher;
use platform::store::Store;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Admin;
use crate::auth::{CountedViewer, Viewer};
use crate::cursor::{self, CursorText};
use crate::extract::{PrNumber, PrPath, QueryParams, RepoParam, repo};
use crate::problem::{ApiProblem, CommonProblems};
use crate::view::pull_request::{ExplanationView, PullRequestItem, PullRequestPage, PullRequestStatus, StalePage};
use crate::view::{EventPage, EventView};

/// Default page size.
const DEFAULT_LIMIT: u32 = 50;
/// Largest page size.
const MAX_LIMIT: u32 = 100;
/// Largest page size of events.
const MAX_EVENTS: u32 = 200;

/// The filter of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrsQuery {
    /// Only in this state, such as `CHECKS_FAILED`.
    #[param(inline, value_type = Option<StateName>)]
    state: Option<PrState>,
    /// Only this repository: `owner/name`, or a bare name of the configured owner.
    #[param(inline, value_type = Option<RepoParam>)]
    repo: Option<String>,
    /// The `next` of the previous page.
    #[param(inline, value_type = Option<CursorText>)]
    after: Option<String>,
    /// The page size, 50 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// The name of a state.
#[derive(utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(dead_code, reason = "only its description is used")]
enum StateName {
    Created,
    ChecksRunning,
    ChecksFailed,
    ChecksPassed,
    PolicyEvaluating,
    PolicyFailed,
    PolicyPassed,
    Approved,
    Merging,
    Merged,
    Closed,
    NeedsIntervention,
}

fn items<S: Store, O: Publisher>(admin: &Admin<S, O>, records: &[PullRequest]) -> Vec<PullRequestItem> {
    let (policies, now) = (admin.api.engine().policies(), admin.api.now());
    records.iter().map(|record| PullRequestItem::of(record, policies.for_repo(&record.id.repo), now)).collect()
}

/// Lists pull requests by repository, state and number; merged and closed ones for a day.
#[utoipa::path(get, path = "/api/prs", params(PrsQuery), security(("key" = [])), responses((status = 200, description = "OK.", body = PullRequestPage), CommonProblems))]
pub(crate) async fn prs<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    QueryParams(query): QueryParams<PrsQuery>,
) -> Result<Json<PullRequestPage>, ApiProblem> {
    let limit = cursor::limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let after: Option<(PrId, PrState)> = cursor::read("prs", query.after.as_deref())?;
    let named = query.repo.as_deref().map(|text| repo(text, admin.owner.as_deref())).transpose()?;
    let filter = PullRequestFilter { state: query.state, repo: named };
    let (records, next) = admin.api.pull_requests(&caller, &filter, after, limit).await?;
    Ok(Json(PullRequestPage { prs: items(&admin, &records), next: next.and_then(|next| cursor::write("prs", &next)) }))
}

/// The filter of the stale list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StaleQuery {
    /// Only this repository.
    #[param(inline, value_type = Option<RepoParam>)]
    repo: Option<String>,
    /// `needs_intervention` also lists those that need a person, after the stale ones.
    #[param(inline)]
    include: Option<StaleInclude>,
    /// The `next` of the previous page.
    #[param(inline, value_type = Option<CursorText>)]
    after: Option<String>,
    /// The page size, 50 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// What the stale list includes besides stale pull requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StaleInclude {
    NeedsIntervention,
}

/// Lists pull requests that have been in their state for longer than its threshold, most urgent first.
#[utoipa::path(get, path = "/api/prs/stale", params(StaleQuery), security(("key" = [])), responses((status = 200, description = "OK.", body = StalePage), CommonProblems))]
pub(crate) async fn stale<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    QueryParams(query): QueryParams<StaleQuery>,
) -> Result<Json<StalePage>, ApiProblem> {
    let limit = cursor::limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let after: Option<StaleCursor> = cursor::read("stale", query.after.as_deref())?;
    let named = query.repo.as_deref().map(|text| repo(text, admin.owner.as_deref())).transpose()?;
    let escalated = query.include == Some(StaleInclude::NeedsIntervention);
    let page = admin.api.stale(&caller, named.as_ref(), escalated, after.as_ref(), limit).await?;
    Ok(Json(StalePage {
        prs: items(&admin, &page.stale),
        needs_intervention: escalated.then(|| items(&admin, &page.needs_intervention)),
        next: page.next.and_then(|next| cursor::write("stale", &next)),
    }))
}

/// The path parameters of a pull request, for the description.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct PrParams {
    /// A bare name (of the configured owner), or `owner%2Fname`.
    #[param(inline, example = "shop")]
    repo: RepoParam,
    /// The pull request number.
    #[param(inline, example = 1)]
    number: PrNumber,
}

/// The status of a pull request: state, checks, budgets, history, runs, and the commands that are possible now.
#[utoipa::path(get, path = "/api/pr/{repo}/{number}/status", params(PrParams), security(("key" = [])), responses((status = 200, description = "OK.", body = PullRequestStatus), CommonProblems))]
pub(crate) async fn status<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    viewer: CountedViewer,
    PrPath(pr): PrPath,
) -> Result<Json<PullRequestStatus>, ApiProblem> {
    let detail = viewer.authenticate_viewer(&admin, admin.api.pull_request_detail(&viewer.0, &pr)).await?;
    let policy = admin.api.engine().policies().for_repo(&detail.record.id.repo);
    Ok(Json(PullRequestStatus::of(&detail, policy, &viewer.0, admin.api.now())))
}

/// The order and page of the events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// The `next` of the previous page.
    #[param(inline, value_type = Option<CursorText>)]
    after: Option<String>,
    /// `asc`: oldest first; `desc`: newest first.
    #[param(inline)]
    order: Option<EventOrder>,
    /// The page size, 100 by default.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum EventOrder {
    Asc,
    Desc,
}

/// The event log of a pull request, page by page.
#[utoipa::path(get, path = "/api/pr/{repo}/{number}/events", params(PrParams, EventsQuery), security(("key" = [])), responses((status = 200, description = "OK.", body = EventPage), CommonProblems))]
pub(crate) async fn events<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    PrPath(pr): PrPath,
    QueryParams(query): QueryParams<EventsQuery>,
) -> Result<Json<EventPage>, ApiProblem> {
    let limit = cursor::limit(query.limit, 100, MAX_EVENTS)?;
    let after: Option<String> = cursor::read("events", query.after.as_deref())?;
    let after = after.filter(|sort| !sort.is_empty());
    let backwards = matches!(query.order, Some(EventOrder::Desc));
    let (events, next) = admin.api.events(&caller, &pr, backwards, after, limit).await?;
    let next = next.and_then(|next| cursor::write("events", &next));
    Ok(Json(EventPage { events: events.iter().map(EventView::from).collect(), next }))
}

/// Whether to read GitHub.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainQuery {
    /// Read the pull request from GitHub first, and explain its current state.
    #[serde(default)]
    live: bool,
}

/// Explains why a pull request is in its state: the matching rule, its evidence, the next action, and what a person can do.
/// Changes nothing.
#[utoipa::path(get, path = "/api/pr/{repo}/{number}/explain", params(PrParams, ExplainQuery), security(("key" = [])), responses((status = 200, description = "OK.", body = ExplanationView), CommonProblems))]
pub(crate) async fn explain<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    PrPath(pr): PrPath,
    QueryParams(query): QueryParams<ExplainQuery>,
) -> Result<Json<ExplanationView>, ApiProblem> {
    let explained = Box::pin(admin.api.explain(&caller, &pr, query.live)).await?;
    let policy = admin.api.engine().policies().for_repo(&explained.record.id.repo);
    Ok(Json(ExplanationView::of(&explained, policy, caller.role, admin.api.now())))
}
