//! The fakes' clock and the queue of scheduled events. `fakes` runs them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{SignedDuration, Timestamp};

use crate::github::model::{PrIx, RepoIx, Sha};
use crate::settings::FakeBot;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TimedEvent {
    /// GitHub has computed mergeability for this version of the pull request.
    MergeabilityKnown(PrIx, u32),
    /// GitHub (or Jenkins, or a bot) sends the webhook with this index in the delivery log.
    Send(usize),
    /// Jenkins notices a new head.
    JenkinsNotices(PrIx, Sha),
    /// A queue item gets an executor.
    BuildStarts(u64),
    /// A build finishes.
    BuildEnds(usize),
    /// Jenkins reports the result of a build.
    BuildReported(usize),
    /// A bot examines a pull request.
    BotExamines(FakeBot, PrIx),
    /// Policy Bot finishes an evaluation of this head.
    PolicyAnswers(PrIx, Sha),
    /// GitHub's merge queue merges a tested pull request.
    QueueMerges(PrIx),
    /// Another user pushes to the base; if true, the push conflicts with this pull request.
    BaseMoves(PrIx, bool),
    /// CodeGenie opens a requested pull request.
    GenieOpens(usize),
    /// CodeGenie opens a pull request on its own.
    GenieFinds(RepoIx),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ScheduledEntry {
    at: Timestamp,
    order: u64,
    event: TimedEvent,
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
    scheduled: BinaryHeap<Reverse<ScheduledEntry>>,
}

impl FakeClock {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { now, order: 0, scheduled: BinaryHeap::new() }
    }

    /// Schedules an event. Events with the same time run in the order of scheduling.
    pub(crate) fn after_ms(&mut self, ms: u64, event: TimedEvent) {
        let at = later(self.now, ms);
        self.order += 1;
        self.scheduled.push(Reverse(ScheduledEntry { at, order: self.order, event }));
    }

    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.scheduled.peek().map(|Reverse(entry)| entry.at)
    }

    /// Removes the next event due by `until` and advances the clock to it.
    pub(crate) fn step(&mut self, until: Timestamp) -> Option<TimedEvent> {
        if self.next_at()? > until {
            return None;
        }
        let Reverse(entry) = self.scheduled.pop()?;
        self.now = self.now.max(entry.at);
        Some(entry.event)
    }
}

/// Adds milliseconds, saturating.
pub(crate) fn later(at: Timestamp, ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    at.checked_add(SignedDuration::from_millis(ms)).unwrap_or(Timestamp::MAX)
}

/// A timestamp in GitHub's format: whole seconds.
pub(crate) fn stamp(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_run_in_order_and_advance_the_clock() {
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
