//! Counts the remedies in flight over all repositories: a set of run ids in one item. An id is added before its claim
//! and removed by a later sweep once its run has ended, so that after a crash the count may be one too high for a
//! minute, and never too low.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::RunId;
use domain::run::RunState;
use jiff::Timestamp;

use platform::store::queries;
use platform::store::{Key, RowUpdate, RowWrite, Store, StoreError, set_of};

const RUNS: &str = "runs";

fn key() -> Key {
    Key::state("LIMIT#remedies")
}

/// Counts the live runs, and removes ended ones from the set. Runs that await approval do not count.
pub(crate) async fn count<S: Store>(store: &S, now: Timestamp) -> Result<u32, StoreError> {
    let Some(row) = store.get(&key(), now).await? else { return Ok(0) };
    let ids: Vec<RunId> = set_of(&row, RUNS).map(RunId::new).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    let runs = queries::runs(store, &ids, now).await?;
    let live: Vec<_> = runs.iter().filter(|run| !run.state.is_terminal()).collect();
    let ended: BTreeSet<String> =
        ids.iter().filter(|id| live.iter().all(|run| run.id != **id)).map(|id| id.as_str().to_owned()).collect();
    if !ended.is_empty() {
        let change = RowUpdate { remove_members: BTreeMap::from([(RUNS.to_owned(), ended)]), ..RowUpdate::default() };
        store.write(vec![RowWrite::Update { key: key(), change }], now).await?;
    }
    let in_flight = live.iter().filter(|run| run.state != RunState::AwaitingApproval).count();
    Ok(u32::try_from(in_flight).unwrap_or(u32::MAX))
}

/// Adds a run that is about to be claimed.
pub(crate) async fn add<S: Store>(store: &S, run: &RunId, now: Timestamp) -> Result<(), StoreError> {
    let one = BTreeSet::from([run.as_str().to_owned()]);
    let change = RowUpdate { insert: BTreeMap::from([(RUNS.to_owned(), one)]), ..RowUpdate::default() };
    store.write(vec![RowWrite::Update { key: key(), change }], now).await
}
