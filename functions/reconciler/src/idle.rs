//! Whether a sweep would have work, without sweeping. The simulation checks this before each virtual minute, because most
//! of them are idle.

use domain::policy::Policies;
use jiff::Timestamp;
use platform::store::queries;
use platform::store::{Store, StoreError};

use crate::coordination;
use crate::limits::gates;

/// Whether no sweep until then has work: no item and no inventory is due, and no gate is closed or has just opened.
pub async fn is_idle<S: Store>(store: &S, policies: &Policies, until: Timestamp) -> Result<bool, StoreError> {
    let rows = gates::load(store, until).await?;
    let is_due = !queries::due(store, 1, until, until).await?.entries.is_empty();
    Ok(!is_due && rows.are_idle() && !coordination::is_configured(policies))
}
