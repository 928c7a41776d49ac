//! Looking: lists of pull requests, and one alone.

use std::sync::Arc;

use crate::query::{Filter, StalePlace};
use axum::Json;
use axum::extract::State;
use domain::id::PrId;
use domain::pull_request::Record;
use domain::state::State as PrState;
use platform::outlets::Outlets;
use platform::store::Store;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Admin;
use crate::auth::{Looker, Viewer};
use crate::cursor::{self, PlaceText};
use crate::extract::{Asked, PrNumber, PrPath, RepoText, repo};
use crate::problem::{Problem, Problems};
use crate::view::pull_request::{Explanation, Item, ItemPage, Status};
use crate::view::{EventPage, EventView};

/// Pull requests of a page, unless it is asked for fewer or more.
const USUAL: u32 = 50;
/// Most pull requests of a page.
const MOST: u32 = 100;
/// Most events of a page.
const MOST_EVENTS: u32 = 200;

/// Which pull requests.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrsQuery {
    /// In this state only, such as `CHECKS_FAILED`.
    #[param(inline, value_type = Option<StateName>)]
    state: Option<PrState>,
    /// Of this repository only: `owner/name`, or a bare name of the configured owner.
    #[param(inline, value_type = Option<RepoText>)]
    repo: Option<String>,
    /// The `next` of the page before.
    #[param(inline, value_type = Option<PlaceText>)]
    after: Option<String>,
    /// How many, 50 unless said otherwise.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// A state, as it is spelled everywhere.
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

fn items<S: Store, O: Outlets>(admin: &Admin<S, O>, records: &[Record]) -> Vec<Item> {
    let (policies, now) = (admin.desk.engine().policies(), admin.desk.now());
    records.iter().map(|record| Item::of(record, policies.for_repo(&record.id.repo), now)).collect()
}

/// Pull requests by repository, state and number; merged and closed ones for a day.
#[utoipa::path(get, path = "/api/prs", params(PrsQuery), security(("key" = [])), responses((status = 200, description = "Here it is.", body = ItemPage), Problems))]
pub(crate) async fn prs<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    Asked(query): Asked<PrsQuery>,
) -> Result<Json<ItemPage>, Problem> {
    let limit = cursor::limit(query.limit, USUAL, MOST)?;
    let after: Option<(PrId, PrState)> = cursor::read("prs", query.after.as_deref())?;
    let named = query.repo.as_deref().map(|text| repo(text, admin.owner.as_deref())).transpose()?;
    let filter = Filter { state: query.state, repo: named };
    let (records, next) = admin.desk.pull_requests(&caller, &filter, after, limit).await?;
    Ok(Json(ItemPage { prs: items(&admin, &records), next: next.and_then(|next| cursor::write("prs", &next)) }))
}

/// Which stale pull requests.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StaleQuery {
    /// Of this repository only.
    #[param(inline, value_type = Option<RepoText>)]
    repo: Option<String>,
    /// The `next` of the page before.
    #[param(inline, value_type = Option<PlaceText>)]
    after: Option<String>,
    /// How many, 50 unless said otherwise.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// Pull requests that have been in their state for longer than is normal, the most urgent first.
#[utoipa::path(get, path = "/api/prs/stale", params(StaleQuery), security(("key" = [])), responses((status = 200, description = "Here it is.", body = ItemPage), Problems))]
pub(crate) async fn stale<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    Asked(query): Asked<StaleQuery>,
) -> Result<Json<ItemPage>, Problem> {
    let limit = cursor::limit(query.limit, USUAL, MOST)?;
    let after: Option<StalePlace> = cursor::read("stale", query.after.as_deref())?;
    let named = query.repo.as_deref().map(|text| repo(text, admin.owner.as_deref())).transpose()?;
    let (records, next) = admin.desk.stale(&caller, named.as_ref(), after.as_ref(), limit).await?;
    let next = next.and_then(|next| cursor::write("stale", &next));
    Ok(Json(ItemPage { prs: items(&admin, &records), next }))
}

/// The pull request of a path, for the description.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct PrParams {
    /// A bare name (of the configured owner), or `owner%2Fname`.
    #[param(inline, example = "shop")]
    repo: RepoText,
    /// Its number.
    #[param(inline, example = 1)]
    number: PrNumber,
}

/// Where a pull request stands: state, checks, budgets, history, runs, and what could be asked for now.
#[utoipa::path(get, path = "/api/pr/{repo}/{number}/status", params(PrParams), security(("key" = [])), responses((status = 200, description = "Here it is.", body = Status), Problems))]
pub(crate) async fn status<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    looker: Looker,
    PrPath(pr): PrPath,
) -> Result<Json<Status>, Problem> {
    let standing = looker.look(&admin, admin.desk.standing(&looker.0, &pr)).await?;
    let policy = admin.desk.engine().policies().for_repo(&standing.record.id.repo);
    Ok(Json(Status::of(&standing, policy, &looker.0, admin.desk.now())))
}

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// The `next` of the page before.
    #[param(inline, value_type = Option<PlaceText>)]
    after: Option<String>,
    /// `asc`: the oldest first; `desc`: the newest first.
    #[param(inline)]
    order: Option<Order>,
    /// How many, 100 unless said otherwise.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    Desc,
}

/// The log of a pull request, page by page.
#[utoipa::path(get, path = "/api/pr/{repo}/{number}/events", params(PrParams, EventsQuery), security(("key" = [])), responses((status = 200, description = "Here it is.", body = EventPage), Problems))]
pub(crate) async fn events<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    PrPath(pr): PrPath,
    Asked(query): Asked<EventsQuery>,
) -> Result<Json<EventPage>, Problem> {
    let limit = cursor::limit(query.limit, 100, MOST_EVENTS)?;
    let after: Option<String> = cursor::read("events", query.after.as_deref())?;
    let after = after.filter(|sort| !sort.is_empty());
    let backwards = matches!(query.order, Some(Order::Desc));
    let (events, next) = admin.desk.events(&caller, &pr, backwards, after, limit).await?;
    let next = next.and_then(|next| cursor::write("events", &next));
    Ok(Json(EventPage { events: events.iter().map(EventView::from).collect(), next }))
}

/// Whether GitHub is asked.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainQuery {
    /// Ask GitHub first, and explain what it shows.
    #[serde(default)]
    live: bool,
}

/// Why a pull request is where it is: the rule, its evidence, what comes next, what a person could do. Changes nothing.
#[utoipa::path(get, path = "/api/pr/{repo}/{number}/explain", params(PrParams, ExplainQuery), security(("key" = [])), responses((status = 200, description = "Here it is.", body = Explanation), Problems))]
pub(crate) async fn explain<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    PrPath(pr): PrPath,
    Asked(query): Asked<ExplainQuery>,
) -> Result<Json<Explanation>, Problem> {
    let explained = Box::pin(admin.desk.explain(&caller, &pr, query.live)).await?;
    let policy = admin.desk.engine().policies().for_repo(&explained.record.id.repo);
    Ok(Json(Explanation::of(&explained, policy, caller.role, admin.desk.now())))
}
