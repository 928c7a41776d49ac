//! The insights route.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use platform::publish::Publisher;
use platform::store::Store;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Admin;
use crate::auth::Viewer;
use crate::extract::{QueryParams, RepoParam, repo};
use crate::problem::{ApiProblem, CommonProblems};
use crate::view::insights::InsightsView;

/// The filter of the insights.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct InsightsQuery {
    /// Only this repository: `owner/name`, or a bare name of the configured owner.
    #[param(inline, value_type = Option<RepoParam>)]
    repo: Option<String>,
}

/// Dwell times and suggested thresholds, missed webhooks, and the success of remedies and transient rules, from the event log
/// of the last 14 days. A key that is limited to some repositories sees only those.
#[utoipa::path(get, path = "/api/insights", params(InsightsQuery), security(("key" = [])), responses((status = 200, description = "OK.", body = InsightsView), CommonProblems))]
pub(crate) async fn insights<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    QueryParams(query): QueryParams<InsightsQuery>,
) -> Result<Json<InsightsView>, ApiProblem> {
    let named = query.repo.as_deref().map(|text| repo(text, admin.owner.as_deref())).transpose()?;
    let advice = admin.api.insights(&caller, named.as_ref()).await?;
    Ok(Json(InsightsView::of(&advice, admin.api.now())))
}
