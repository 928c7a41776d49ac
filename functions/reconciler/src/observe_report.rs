//! The weekly report of observe mode: one item a week with the pull requests that would have been remedied and those
//! that would have been escalated. Stored as sets, so that writing the same pull request twice changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use domain::text::sweep as sweep_text;
use jiff::{SignedDuration, Timestamp};
use platform::publish::Publisher;
use platform::store::schema;
use platform::store::{Key, RowUpdate, RowWrite, Store, StoreError, TTL, number, set_of};
use platform::sweep_summary::SweepSummary;
use serde_dynamo::Item;

use crate::context::SweepContext;

const REMEDY: &str = "would_remedy";
const ESCALATE: &str = "would_escalate";
const WEEK: SignedDuration = SignedDuration::from_hours(24 * 7);
/// 1970 began on a Thursday; weeks begin on Mondays.
const FIRST_MONDAY_SECS: i64 = 4 * 86_400;
/// More members do not fit into an item; the report stops counting there.
const MAX_SET_MEMBERS: usize = 4_000;

/// The pull requests of one week in observe mode.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedWeek {
    /// Pull requests that would have been remedied.
    pub would_remedy: BTreeSet<String>,
    /// Pull requests that would have been escalated.
    pub would_escalate: BTreeSet<String>,
}

/// The start of the week, Monday 00:00 UTC.
pub fn week_of(at: Timestamp) -> Timestamp {
    let second = at.as_second() - FIRST_MONDAY_SECS;
    let start = second - second.rem_euclid(WEEK.as_secs()) + FIRST_MONDAY_SECS;
    Timestamp::from_second(start).unwrap_or(at)
}

fn key(week: Timestamp) -> Key {
    Key::state(format!("OBSERVED#{}", schema::sort_time(week)))
}

fn members(item: &Item, attribute: &str) -> BTreeSet<String> {
    set_of(item, attribute).map(str::to_owned).collect()
}

/// The report of the week that contains `at`, so far.
pub async fn week<S: Store>(store: &S, at: Timestamp, now: Timestamp) -> Result<ObservedWeek, StoreError> {
    let row = store.get(&key(week_of(at)), now).await?.unwrap_or_default();
    Ok(ObservedWeek { would_remedy: members(&row, REMEDY), would_escalate: members(&row, ESCALATE) })
}

/// Adds the results of a sweep, if any, and writes the totals of the week to the summary.
pub(crate) async fn write(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    seen: &ObservedWeek,
    summary: &mut SweepSummary,
) -> Result<(), StoreError> {
    if *seen != ObservedWeek::default() {
        let week = add(cx.store(), seen, cx.now()).await?;
        let (remedies, escalations) = (week.would_remedy.len(), week.would_escalate.len());
        summary.observed = Some(sweep_text::observe_report(remedies, escalations, week_of(cx.now())));
    }
    Ok(())
}

/// Adds the results of a sweep, and returns the whole week.
async fn add<S: Store>(store: &S, seen: &ObservedWeek, now: Timestamp) -> Result<ObservedWeek, StoreError> {
    let mut known = week(store, now, now).await?;
    let fresh = |seen: &BTreeSet<String>, known: &BTreeSet<String>| -> BTreeSet<String> {
        seen.difference(known).take(MAX_SET_MEMBERS.saturating_sub(known.len())).cloned().collect()
    };
    let mut insert = BTreeMap::new();
    for (name, new) in [
        (REMEDY, fresh(&seen.would_remedy, &known.would_remedy)),
        (ESCALATE, fresh(&seen.would_escalate, &known.would_escalate)),
    ] {
        if !new.is_empty() {
            insert.insert(name.to_owned(), new);
        }
    }
    if !insert.is_empty() {
        // Kept for a month after its week.
        let ttl = week_of(now).saturating_add(WEEK.saturating_mul(5)).unwrap_or(Timestamp::MAX);
        let set = BTreeMap::from([(TTL.to_owned(), number(ttl.as_second()))]);
        let change = RowUpdate { insert, set, ..RowUpdate::default() };
        store.write(vec![RowWrite::Update { key: key(week_of(now)), change }], now).await?;
    }
    known.would_remedy.extend(seen.would_remedy.iter().cloned());
    known.would_escalate.extend(seen.would_escalate.iter().cloned());
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn week_starts_on_monday() {
        let week = |at: &str| week_of(at.parse().unwrap()).to_string();
        assert_eq!(week("2026-03-02T00:00:00Z"), "2026-03-02T00:00:00Z");
        assert_eq!(week("2026-03-08T23:59:59.9Z"), "2026-03-02T00:00:00Z");
        assert_eq!(week("2026-03-09T00:00:00Z"), "2026-03-09T00:00:00Z");
        assert_eq!(week("1970-01-01T00:00:00Z"), "1969-12-29T00:00:00Z");
    }
}
