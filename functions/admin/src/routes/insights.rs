//! The insights route.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use platform::outlets::Outlets;
use platform::store::Store;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Admin;
use crate::auth::Viewer;
use crate::extract::{Asked, RepoText, repo};
use crate::problem::{Problem, Problems};
use crate::view::insights::Insights;

/// The filter of the insights.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct InsightsQuery {
    /// Only this repository: `owner/name`, or a bare name of the configured owner.
    #[param(inline, value_type = Option<RepoText>)]
    repo: Option<String>,
}

/// Dwell times and suggested thresholds, missed webhooks, and the success of remedies and transient rules, from the event log
/// of the last 14 days. A key that is limited to some repositories sees only those.
#[utoipa::path(get, path = "/api/insights", params(InsightsQuery), security(("key" = [])), responses((status = 200, description = "OK.", body = Insights), Problems))]
pub(crate) async fn insights<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
    Asked(query): Asked<InsightsQuery>,
) -> Result<Json<Insights>, Problem> {
    let named = query.repo.as_deref().map(|text| repo(text, admin.owner.as_deref())).transpose()?;
    let advice = admin.api.advice(&caller, named.as_ref()).await?;
    Ok(Json(Insights::of(&advice, admin.api.now())))
}
