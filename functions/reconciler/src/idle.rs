//! Whether a sweep would find anything to do, without sweeping. The simulation asks before each virtual minute: most of them
//! are idle, and a world in which nothing is due is not worth the twenty requests a sweep takes to find that out.

use domain::breaker::BreakerState;
use domain::policy::Policy;
use jiff::Timestamp;

use crate::inventory::INVENTORY;
use platform::store::{Store, StoreError};
use platform::{breaker, guards, lookup};

/// Whether no sweep that happens until then has anything to do: nothing is due, no inventory, no failure for the breaker to
/// judge.
pub async fn is_idle<S: Store>(store: &S, policy: &Policy, until: Timestamp) -> Result<bool, StoreError> {
    if !lookup::due(store, 1, until).await?.entries.is_empty() {
        return Ok(false);
    }
    if guards::held_off(store, INVENTORY, until).await?.is_none() {
        return Ok(false);
    }
    let known = breaker::load(store, until).await?;
    if known.state != BreakerState::Closed {
        return Ok(false);
    }
    let minutes = breaker::minutes(store, &known, &policy.breaker, until).await?;
    Ok(minutes.iter().all(|minute| minute.failed.is_empty()))
}
