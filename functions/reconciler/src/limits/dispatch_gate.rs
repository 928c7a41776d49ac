//! Whether anything may be started at all: the breaker, after what the last minutes brought, and people who have stopped
//! everything. And the mail about a trip, once for each.

use domain::breaker::{BreakerState, SKIPPED_LOG};
use domain::comment::sweep as words;
use jiff::{SignedDuration, Timestamp};
use serde_dynamo::Item;
use tracing::{info, warn};

use crate::sweep::{Pass, after};
use platform::guards;
use platform::outlets::{Content, Outlets, Parcel};
use platform::store::{COUNT, Key, OnlyIf, Store, StoreError, Write, number, number_of};
use platform::sweep_summary::Skip;

/// While a person has stopped all acting, stale pull requests are looked at this often.
const PAUSED_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// While a probe is under way, they are looked at this often: it may close the breaker at any moment.
const PROBING_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// Why nothing may be started, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(crate) why: Skip,
    pub(crate) text: String,
    pub(crate) until: Timestamp,
}

impl Gate {
    /// What the breaker would say could not be found out.
    pub(crate) fn unknown(now: Timestamp) -> Self {
        let text = "whether the circuit breaker is open could not be found out".to_owned();
        Self { why: Skip::Store, text, until: after(now, PROBING_AGAIN) }
    }
}

impl<S: Store, O: Outlets> Pass<'_, S, O> {
    /// The breaker, after what the last minutes brought: whether it trips, who has to know, and whether anything may start.
    pub(crate) async fn breaker(&mut self) -> Result<(), StoreError> {
        let settings = &self.policies().base().breaker;
        let now = self.now();
        if !self.wish.dry_run
            && let Some(tripped) = platform::breaker::evaluate(self.store(), settings, now).await?
        {
            warn!(run = %self.wish.run, "{}", tripped.log);
        }
        let breaker = platform::breaker::load(self.store(), now).await?;
        let (name, gate_until) = match &breaker.state {
            BreakerState::Closed => ("closed", None),
            BreakerState::Open { cooldown_until, .. } => ("open", Some(*cooldown_until).filter(|until| now < *until)),
            BreakerState::HalfOpen { lease_until, .. } => {
                ("half_open", Some(after(now, PROBING_AGAIN).min(*lease_until)))
            }
        };
        name.clone_into(&mut self.summary.breaker);
        if let Some(until) = gate_until {
            info!(run = %self.wish.run, "{SKIPPED_LOG}");
            self.gate = Some(Gate { why: Skip::Breaker, text: SKIPPED_LOG.to_owned(), until });
        }
        if let Some(by) = guards::paused(self.store(), now).await? {
            let text = format!("{by} has paused Suture");
            self.gate = Some(Gate { why: Skip::Paused, text, until: after(now, PAUSED_AGAIN) });
        }
        if let BreakerState::Open { since, cooldown_until, failure_rate_percent } = breaker.state
            && !self.wish.dry_run
        {
            let notice = words::breaker_tripped(failure_rate_percent, since, cooldown_until);
            self.tell_of_trip(breaker.trips, Content::People(notice)).await?;
        }
        Ok(())
    }

    /// People hear of each trip once: which was the last they heard of is in the table.
    async fn tell_of_trip(&mut self, trips: u64, what: Content) -> Result<(), StoreError> {
        let key = Key::state("BREAKER-TOLD");
        let now = self.now();
        let told = self.store().get(&key, now).await?.and_then(|row| number_of(&row, COUNT)).unwrap_or(0);
        if u64::try_from(told).unwrap_or(0) >= trips {
            return Ok(());
        }
        let parcel = Parcel { id: format!("breaker-trip-{trips}"), what };
        if let Err(error) = self.engine().outlets().send_now(parcel).await {
            warn!(%error, "the mail about the breaker is tried again by the next sweep");
            return Ok(());
        }
        self.summary.notices += 1;
        let mut item = Item::default();
        item.inner_mut().insert(COUNT.to_owned(), number(trips));
        self.store().write(vec![Write::Put { key, item, only_if: OnlyIf::Always }], now).await
    }
}
