//! The overview route.

use std::sync::Arc;

use crate::api_keys::ApiCaller;
use axum::Json;
use axum::extract::State;
use domain::reconcile_request::{ReconcileRequest, ReconcileScope};
use platform::publish::Publisher;
use platform::publish::dead_letters::DeadLetterQueue;
use platform::store::breaker;
use platform::store::github_contact;
use platform::store::pause;
use platform::store::queries;
use platform::store::{Store, StoreError};
use platform::sweep_summary;

use crate::Admin;
use crate::auth::Viewer;
use crate::problem::{ApiProblem, CommonProblems};
use crate::view::overview::{
    BreakerView, DeadLetterCount, HealthView, OverviewView, PauseView, SweepView, VisibleCounts, activity_items,
};
use crate::view::serialized_name;

/// How many sweeps are searched for the last completed one, skipping dry runs and running ones.
const LAST_SWEEPS: u32 = 10;

/// Counts by state, stale pull requests, those that need a person, recent activity, the circuit breaker and the last sweep. A
/// key that is limited to some repositories sees only those.
#[utoipa::path(get, path = "/api/overview", security(("key" = [])), responses((status = 200, description = "OK.", body = OverviewView), CommonProblems))]
pub(crate) async fn overview<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
) -> Result<Json<OverviewView>, ApiProblem> {
    let api = &admin.api;
    let (store, now) = (api.engine().store(), api.now());
    let counted = async { Ok::<_, ApiProblem>(api.overview_counts().await?) };
    let history = async { Ok(api.history(&caller).await?) };
    let paused = async { Ok(pause::paused_by(store, now).await?) };
    let breaker = async { Ok(read_breaker(&admin).await?) };
    let sweep = async { Ok(last_sweep(&admin, &caller).await?) };
    let contact = async { Ok(github_contact::load(store, now).await?) };
    let dlq = async { Ok(dlq_count(&admin.dlq).await) };
    let (counted, history, paused, breaker, last_sweep, contact, dlq) =
        tokio::try_join!(counted, history, paused, breaker, sweep, contact, dlq)?;
    let policies = api.engine().policies();
    let VisibleCounts { states, repos, needs_person, stuck } = VisibleCounts::of(&counted, &caller, policies, now);
    let (days, dwell, activity) = activity_items(history);
    Ok(Json(OverviewView {
        now,
        health: HealthView::of(&contact, &policies.base().sweep, now),
        mode: serialized_name(&policies.base().mode),
        owner: admin.owner.clone(),
        role: caller.role.name(),
        key: caller.name.clone(),
        paused: paused.map(|by| PauseView { by }),
        breaker,
        last_sweep,
        states,
        repos,
        needs_person,
        stuck,
        activity,
        days,
        dwell,
        dlq,
    }))
}

/// `None` if the queue does not answer: the rest of the overview is still shown.
async fn dlq_count(dlq: &DeadLetterQueue) -> Option<DeadLetterCount> {
    dlq.count().await.ok().map(|messages| DeadLetterCount { messages })
}

pub(super) async fn read_breaker<S: Store, O: Publisher>(admin: &Admin<S, O>) -> Result<BreakerView, StoreError> {
    let (store, now) = (admin.api.engine().store(), admin.api.now());
    let settings = &admin.api.engine().policies().base().breaker;
    let state = breaker::load(store, now).await?;
    let minutes = breaker::minutes(store, &state, settings, now).await?;
    Ok(BreakerView::of(&state, &minutes, settings, now))
}

async fn last_sweep<S: Store, O: Publisher>(
    admin: &Admin<S, O>,
    caller: &ApiCaller,
) -> Result<Option<SweepView>, StoreError> {
    let runs = queries::runs_of(admin.api.engine().store(), None, None, LAST_SWEEPS, admin.api.now()).await?;
    // Scheduled sweeps and requests for everything; a smaller scope does not represent the state of the sweeps.
    let all = ReconcileRequest::key_of(&ReconcileScope::All, false);
    let mut full = runs.entries.iter().filter(|run| run.request.as_deref().is_none_or(|key| key == all));
    let ended = full.find_map(|run| {
        let summary = sweep_summary::summary_of(run).filter(|summary| !summary.dry_run)?;
        Some(SweepView::of(run, summary, caller))
    });
    Ok(ended)
}
