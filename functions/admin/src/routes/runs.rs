//! Run routes: list, show, cancel, approve, reject.

use std::sync::Arc;

use crate::api_keys::ApiCaller;
use crate::command::RunAction;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::id::{PrId, RunId};
use platform::publish::Publisher;
use platform::store::Store;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::commands::IdempotencyHeaders;
use crate::Admin;
use crate::auth::{Administrator, Operator, Viewer};
use crate::cursor::{self, CursorText};
use crate::extract::{PrNumber, QueryParams, RepoParam, RunIdParam, RunPath, number, repo};
use crate::idempotent_request::{IdempotentRequest, StillProcessing};
use crate::problem::{ApiProblem, CommonProblems};
use crate::view::run::{RunPage, RunView};

/// The filter of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunsQuery {
    repo: Option<String>,
    number: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

/// The same for the description: `repo` and `number` belong together, which two separate parameters could not express.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct RunsParams {
    /// The runs of this pull request, as `repo=…&number=…`; without it, the sweeps.
    #[param(inline, style = Form, explode)]
    pr: Option<RunsPullRequest>,
    /// The `next` of the previous page.
    #[param(inline)]
    after: Option<CursorText>,
    /// The page size, 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// A pull request; both fields or none.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its description is used")]
struct RunsPullRequest {
    #[schema(inline)]
    repo: RepoParam,
    #[schema(inline)]
    number: PrNumber,
}

/// Lists the runs of a pull request, or the sweeps, newest first.
#[utoipa::path(get, path = "/api/runs", params(RunsParams), security(("key" = [])), responses((status = 200, description = "OK.", body = RunPage), CommonProblems))]
pub(crate) async fn runs<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    QueryParams(query): QueryParams<RunsQuery>,
) -> Result<Json<RunPage>, ApiProblem> {
    let limit = cursor::limit(query.limit, 20, 100)?;
    let pr = match (query.repo.as_deref(), query.number.as_deref()) {
        (Some(name), Some(digits)) => Some(PrId::new(repo(name, admin.owner.as_deref())?, number(digits)?)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            return Err(ApiProblem::bad_request(
                "BAD_QUERY",
                "Give both `repo` and `number`, or neither (for sweeps).",
            ));
        }
    };
    let after: Option<RunId> = cursor::read("runs", query.after.as_deref())?;
    let (runs, next) = admin.api.runs(&caller, pr.as_ref(), after.as_ref(), limit).await?;
    let next = next.and_then(|next| cursor::write("runs", &next));
    Ok(Json(RunPage { runs: runs.iter().map(|run| RunView::of(run, &caller)).collect(), next }))
}

/// The path parameter of a run, for the description.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct RunParams {
    /// The run id.
    #[param(inline)]
    id: RunIdParam,
}

/// One run.
#[utoipa::path(get, path = "/api/runs/{id}", params(RunParams), security(("key" = [])), responses((status = 200, description = "OK.", body = RunView), CommonProblems))]
pub(crate) async fn run<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    RunPath(id): RunPath,
) -> Result<Json<RunView>, ApiProblem> {
    Ok(Json(RunView::of(&admin.api.run(&caller, &id).await?, &caller)))
}

/// The changed run, or still being processed.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum RunChanged {
    Run(Box<RunView>),
    Processing(StillProcessing),
}

async fn change<S: Store + 'static, O: Publisher + 'static>(
    admin: &Admin<S, O>,
    caller: &ApiCaller,
    request: &IdempotentRequest,
    (id, action): (RunId, RunAction),
) -> Result<Response, ApiProblem> {
    let changed = async |_| Ok(RunView::of(&admin.api.change_run(caller, &id, action).await?, caller));
    request.run_once(admin, caller, StatusCode::ACCEPTED, changed).await
}

/// Cancels a run: a remedy that has not started returns its budget, a sweep stops between two stages.
#[utoipa::path(
    post, path = "/api/runs/{id}/cancel", params(RunParams, IdempotencyHeaders), security(("key" = [])),
    responses((status = 202, description = "Accepted.", body = inline(RunChanged)), CommonProblems)
)]
pub(crate) async fn cancel<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Operator(caller): Operator,
    RunPath(id): RunPath,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    change(&admin, &caller, &request, (id, RunAction::Cancel)).await
}

/// Approves a remedy that awaits approval. Needs the same role as `/approve`.
#[utoipa::path(
    post, path = "/api/runs/{id}/approve", params(RunParams, IdempotencyHeaders), security(("key" = [])),
    responses((status = 202, description = "Accepted.", body = inline(RunChanged)), CommonProblems)
)]
pub(crate) async fn approve<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Administrator(caller): Administrator,
    RunPath(id): RunPath,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    change(&admin, &caller, &request, (id, RunAction::Approve)).await
}

/// Rejects a remedy that awaits approval; Suture escalates the pull request to a person.
#[utoipa::path(
    post, path = "/api/runs/{id}/reject", params(RunParams, IdempotencyHeaders), security(("key" = [])),
    responses((status = 202, description = "Accepted.", body = inline(RunChanged)), CommonProblems)
)]
pub(crate) async fn reject<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Operator(caller): Operator,
    RunPath(id): RunPath,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    change(&admin, &caller, &request, (id, RunAction::Reject)).await
}
