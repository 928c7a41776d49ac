//! Everything at once.

use std::sync::Arc;

use crate::api_keys::Caller;
use axum::Json;
use axum::extract::State;
use platform::outlets::Outlets;
use platform::outlets::dlq::Dlq;
use platform::store::{Store, StoreError};
use platform::{breaker, guards, lookup, sweep_summary};

use crate::Admin;
use crate::auth::Viewer;
use crate::problem::{Problem, Problems};
use crate::view::overview::{BreakerView, DlqCount, Overview, Paused, Seen, SweepView, told};
use crate::view::word;

/// Sweeps that are looked at for the last one that ended: dry ones and those under way are passed over.
const LAST_SWEEPS: u32 = 10;

/// Counts, what is stuck, what needs a person, what happened, the breaker, the last sweep. A key with a scope sees its own.
#[utoipa::path(get, path = "/api/overview", security(("key" = [])), responses((status = 200, description = "Here it is.", body = Overview), Problems))]
pub(crate) async fn overview<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Viewer(caller): Viewer,
) -> Result<Json<Overview>, Problem> {
    let desk = &admin.desk;
    let (store, now) = (desk.engine().store(), desk.now());
    let counted = async { Ok::<_, Problem>(desk.counted().await?) };
    let history = async { Ok(desk.history(&caller).await?) };
    let paused = async { Ok(guards::paused(store, now).await?) };
    let breaker = async { Ok(read_breaker(&admin).await?) };
    let swept = async { Ok(last_sweep(&admin, &caller).await?) };
    let (counted, history, paused, breaker, last_sweep, dlq) =
        tokio::try_join!(counted, history, paused, breaker, swept, async { Ok(dlq_count(&admin.dlq).await) })?;
    let policies = desk.engine().policies();
    let Seen { states, repos, needs_person, stuck } = Seen::of(&counted, &caller, policies, now);
    let (days, dwell, activity) = told(history);
    Ok(Json(Overview {
        now,
        mode: word(&policies.base().mode),
        owner: admin.owner.clone(),
        role: caller.role.name(),
        key: caller.name.clone(),
        paused: paused.map(|by| Paused { by }),
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

/// A queue that does not answer is no reason to show nothing.
async fn dlq_count(dlq: &Dlq) -> Option<DlqCount> {
    dlq.count().await.ok().map(|messages| DlqCount { messages })
}

pub(super) async fn read_breaker<S: Store, O: Outlets>(admin: &Admin<S, O>) -> Result<BreakerView, StoreError> {
    let (store, now) = (admin.desk.engine().store(), admin.desk.now());
    let settings = &admin.desk.engine().policies().base().breaker;
    let state = breaker::load(store, now).await?;
    let minutes = breaker::minutes(store, &state, settings, now).await?;
    Ok(BreakerView::of(&state, &minutes, settings, now))
}

async fn last_sweep<S: Store, O: Outlets>(
    admin: &Admin<S, O>,
    caller: &Caller,
) -> Result<Option<SweepView>, StoreError> {
    let runs = lookup::runs_of(admin.desk.engine().store(), None, None, LAST_SWEEPS, admin.desk.now()).await?;
    // A request for less than everything says nothing about how sweeps are doing.
    let mut whole = runs.entries.iter().filter(|run| run.request.as_deref().is_none_or(|key| key == "all"));
    let ended = whole.find_map(|run| {
        let summary = sweep_summary::summary_of(run).filter(|summary| !summary.dry_run)?;
        Some(SweepView::of(run, summary, caller))
    });
    Ok(ended)
}
