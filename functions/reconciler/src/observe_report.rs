//! What would have been done, where Suture only watches: one row a week with the pull requests it would have healed and
//! those it would have handed to people. Sets, so that saying it twice changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use domain::comment::sweep as words;
use jiff::{SignedDuration, Timestamp};
use platform::outlets::Outlets;
use platform::rows;
use platform::store::{Change, Key, Store, StoreError, TTL, Write, number, set_of};
use platform::sweep_summary::Summary;
use serde_dynamo::Item;

use crate::context::SweepContext;

const REMEDY: &str = "would_remedy";
const ESCALATE: &str = "would_escalate";
const WEEK: SignedDuration = SignedDuration::from_hours(24 * 7);
/// 1970 began on a Thursday; weeks begin on Mondays.
const FIRST_MONDAY_SECS: i64 = 4 * 86_400;
/// More than this do not fit into a row. Whoever watches that many knows enough.
const MOST_SETS: usize = 4_000;

/// What a week of watching has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Week {
    /// Pull requests that would have been remedied.
    pub would_remedy: BTreeSet<String>,
    /// Pull requests that people would have been called for.
    pub would_escalate: BTreeSet<String>,
}

/// The beginning of the week, Monday 00:00 UTC.
pub fn week_of(at: Timestamp) -> Timestamp {
    let second = at.as_second() - FIRST_MONDAY_SECS;
    let begun = second - second.rem_euclid(WEEK.as_secs()) + FIRST_MONDAY_SECS;
    Timestamp::from_second(begun).unwrap_or(at)
}

fn key(week: Timestamp) -> Key {
    Key::state(format!("OBSERVED#{}", rows::sortable(week)))
}

fn members(item: &Item, attribute: &str) -> BTreeSet<String> {
    set_of(item, attribute).map(str::to_owned).collect()
}

/// What the week of this moment has seen so far.
pub async fn week<S: Store>(store: &S, at: Timestamp, now: Timestamp) -> Result<Week, StoreError> {
    let row = store.get(&key(week_of(at)), now).await?.unwrap_or_default();
    Ok(Week { would_remedy: members(&row, REMEDY), would_escalate: members(&row, ESCALATE) })
}

/// Adds what a sweep has seen, if anything; the summary says what the whole week has.
pub(crate) async fn write(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    seen: &Week,
    summary: &mut Summary,
) -> Result<(), StoreError> {
    if *seen != Week::default() {
        let week = add(cx.store(), seen, cx.now()).await?;
        let (heals, calls) = (week.would_remedy.len(), week.would_escalate.len());
        summary.observed = Some(words::observed(heals, calls, week_of(cx.now())));
    }
    Ok(())
}

/// Adds what a sweep has seen, and answers the whole week.
async fn add<S: Store>(store: &S, seen: &Week, now: Timestamp) -> Result<Week, StoreError> {
    let mut known = week(store, now, now).await?;
    let fresh = |seen: &BTreeSet<String>, known: &BTreeSet<String>| -> BTreeSet<String> {
        seen.difference(known).take(MOST_SETS.saturating_sub(known.len())).cloned().collect()
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
        let change = Change { insert, set, ..Change::default() };
        store.write(vec![Write::Change { key: key(week_of(now)), change }], now).await?;
    }
    known.would_remedy.extend(seen.would_remedy.iter().cloned());
    known.would_escalate.extend(seen.would_escalate.iter().cloned());
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_begin_on_mondays() {
        let week = |at: &str| week_of(at.parse().unwrap()).to_string();
        assert_eq!(week("2026-03-02T00:00:00Z"), "2026-03-02T00:00:00Z");
        assert_eq!(week("2026-03-08T23:59:59.9Z"), "2026-03-02T00:00:00Z");
        assert_eq!(week("2026-03-09T00:00:00Z"), "2026-03-09T00:00:00Z");
        assert_eq!(week("1970-01-01T00:00:00Z"), "1969-12-29T00:00:00Z");
    }
}
