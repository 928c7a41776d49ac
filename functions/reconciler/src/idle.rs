//! Whether a sweep would have work, without sweeping. The simulation checks this before each virtual minute: most of
//! them are idle, and a sweep takes about twenty store requests to find that out.

use domain::breaker::BreakerState;
use domain::policy::Policy;
use jiff::Timestamp;

use crate::inventory::INVENTORY;
use platform::store::breaker;
use platform::store::not_before;
use platform::store::queries;
use platform::store::{Store, StoreError};

/// Whether no sweep until then has work: no item and no inventory is due, and the breaker has no failure to evaluate.
pub async fn is_idle<S: Store>(store: &S, policy: &Policy, until: Timestamp) -> Result<bool, StoreError> {
    if !queries::due(store, 1, until).await?.entries.is_empty() {
        return Ok(false);
    }
    if not_before::load(store, INVENTORY, until).await?.is_none() {
        return Ok(false);
    }
    let known = breaker::load(store, until).await?;
    if known.state != BreakerState::Closed {
        return Ok(false);
    }
    let minutes = breaker::minutes(store, &known, &policy.breaker, until).await?;
    Ok(minutes.iter().all(|minute| minute.failed.is_empty()))
}
