//! The fakes' own clock and the events that are still to come, in order. `fakes` runs them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{SignedDuration, Timestamp};

use crate::github::model::{PrIx, RepoIx, Sha};
use crate::settings::FakeBot;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TimedEvent {
    /// GitHub has worked out whether the head can be merged, as of this many changes.
    MergeabilityKnown(PrIx, u32),
    /// GitHub (or Jenkins, or a bot) sends the webhook of this place in the log.
    Send(usize),
    /// Jenkins has noticed a head.
    JenkinsNotices(PrIx, Sha),
    /// A queue item gets an executor.
    BuildStarts(u64),
    /// A build ends by itself.
    BuildEnds(usize),
    /// Jenkins reports how a build ended.
    BuildReported(usize),
    /// A bot looks at a pull request.
    BotLooks(FakeBot, PrIx),
    /// Policy Bot has finished an evaluation of this head.
    PolicyAnswers(PrIx, Sha),
    /// GitHub's merge queue merges what it has tested.
    QueueMerges(PrIx),
    /// Somebody else's push reaches the base; it conflicts with this pull request if so marked.
    BaseMoves(PrIx, bool),
    /// CodeGenie opens the pull request it was asked for.
    GenieOpens(usize),
    /// CodeGenie opens a pull request by itself.
    GenieFinds(RepoIx),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ScheduledEntry {
    at: Timestamp,
    order: u64,
    what: TimedEvent,
}

impl Ord for ScheduledEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for ScheduledEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct FakeClock {
    pub(crate) now: Timestamp,
    order: u64,
    coming: BinaryHeap<Reverse<ScheduledEntry>>,
}

impl FakeClock {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { now, order: 0, coming: BinaryHeap::new() }
    }

    /// This happens after so many milliseconds; equal times keep the order in which they were planned.
    pub(crate) fn after_ms(&mut self, ms: u64, what: TimedEvent) {
        let at = later(self.now, ms);
        self.order += 1;
        self.coming.push(Reverse(ScheduledEntry { at, order: self.order, what }));
    }

    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.coming.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next thing that happens not later than this; the clock goes with it.
    pub(crate) fn step(&mut self, until: Timestamp) -> Option<TimedEvent> {
        if self.next_at()? > until {
            return None;
        }
        let Reverse(entry) = self.coming.pop()?;
        self.now = self.now.max(entry.at);
        Some(entry.what)
    }
}

/// A time so many milliseconds later; at the end of time it stays there.
pub(crate) fn later(at: Timestamp, ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    at.checked_add(SignedDuration::from_millis(ms)).unwrap_or(Timestamp::MAX)
}

/// A time as GitHub writes it: whole seconds.
pub(crate) fn stamp(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_order_and_take_the_clock_along() {
        let start = Timestamp::UNIX_EPOCH;
        let mut clock = FakeClock::new(start);
        for (ms, build) in [(500, 3), (100, 1), (100, 2), (900, 4)] {
            clock.after_ms(ms, TimedEvent::BuildEnds(build));
        }
        let until = later(start, 600);
        let order: Vec<_> = std::iter::from_fn(|| clock.step(until)).collect();
        assert_eq!(order, [1, 2, 3].map(TimedEvent::BuildEnds));
        assert_eq!(clock.now, later(start, 500));
        assert_eq!(clock.next_at(), Some(later(start, 900)));
        assert_eq!(stamp(later(start, 1_999)), "1970-01-01T00:00:01Z");
    }
}
