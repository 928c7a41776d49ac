//! What there is, counted at most every few seconds.

use domain::time::saturating_after;
use std::sync::Arc;

use super::{COUNTED_FOR, Desk, locked};
use platform::outlets::Outlets;
use platform::overview::{Counted, count};
use platform::store::{Store, StoreError};

impl<S: Store, O: Outlets> Desk<S, O> {
    /// What there is, at most a few seconds old.
    pub async fn counted(&self) -> Result<Arc<Counted>, StoreError> {
        let now = self.now();
        let known = locked(&self.counted).clone();
        if let Some((at, counted)) = known
            && at <= now
            && now < saturating_after(at, COUNTED_FOR)
        {
            return Ok(counted);
        }
        let counted = Arc::new(count(self.store(), self.engine.policies(), now).await?);
        *locked(&self.counted) = Some((now, Arc::clone(&counted)));
        Ok(counted)
    }
}
