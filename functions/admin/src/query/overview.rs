//! The counts of the overview, cached for a few seconds.

use domain::time::saturating_after;
use std::sync::Arc;

use super::{AdminApi, OVERVIEW_CACHE, locked};
use platform::overview::{OverviewCounts, count};
use platform::publish::Publisher;
use platform::store::{Store, StoreError};

impl<S: Store, O: Publisher> AdminApi<S, O> {
    /// The counts, at most a few seconds old.
    pub async fn overview_counts(&self) -> Result<Arc<OverviewCounts>, StoreError> {
        let now = self.now();
        let known = locked(&self.counted).clone();
        if let Some((at, counted)) = known
            && at <= now
            && now < saturating_after(at, OVERVIEW_CACHE)
        {
            return Ok(counted);
        }
        let counted = Arc::new(count(self.store(), self.engine.policies(), now).await?);
        *locked(&self.counted) = Some((now, Arc::clone(&counted)));
        Ok(counted)
    }
}
