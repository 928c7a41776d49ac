//! How many remedies are under way, over all repositories: a set of run ids in one row, looked through by each sweep. An id is
//! put in before its claim and taken out by a later sweep once its run is over, so that a crash leaves one too many for a
//! minute and never one too few.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::RunId;
use domain::run::RunState;
use jiff::Timestamp;

use platform::lookup;
use platform::store::{Change, Key, Store, StoreError, Write, set_of};

const RUNS: &str = "runs";

fn key() -> Key {
    Key::state("LIMIT#remedies")
}

/// Counts what is under way, and forgets what is over. What waits for a person's approval is not under way.
pub(crate) async fn count<S: Store>(store: &S, now: Timestamp) -> Result<u32, StoreError> {
    let Some(row) = store.get(&key(), now).await? else { return Ok(0) };
    let ids: Vec<RunId> = set_of(&row, RUNS).map(RunId::new).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    let runs = lookup::runs(store, &ids, now).await?;
    let live: Vec<_> = runs.iter().filter(|run| !run.state.is_terminal()).collect();
    let over: BTreeSet<String> =
        ids.iter().filter(|id| live.iter().all(|run| run.id != **id)).map(|id| id.as_str().to_owned()).collect();
    if !over.is_empty() {
        let change = Change { take: BTreeMap::from([(RUNS.to_owned(), over)]), ..Change::default() };
        store.write(vec![Write::Change { key: key(), change }], now).await?;
    }
    let under_way = live.iter().filter(|run| run.state != RunState::AwaitingApproval).count();
    Ok(u32::try_from(under_way).unwrap_or(u32::MAX))
}

/// One more is about to be claimed.
pub(crate) async fn add<S: Store>(store: &S, run: &RunId, now: Timestamp) -> Result<(), StoreError> {
    let one = BTreeSet::from([run.as_str().to_owned()]);
    let change = Change { insert: BTreeMap::from([(RUNS.to_owned(), one)]), ..Change::default() };
    store.write(vec![Write::Change { key: key(), change }], now).await
}
