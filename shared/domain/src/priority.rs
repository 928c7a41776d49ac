//! Which pull request comes first when there is more work than time (R-SWEEP-8). Only the score;
//! what is due at all, and when, is decided elsewhere.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a day of waiting is worth: enough that nothing waits for ever behind newer work.
const POINTS_PER_DAY: i64 = 5;

named! {
    /// How urgent people say it is, by label.
    #[derive(Default)]
    pub enum Priority {
        /// `suture/priority-p0`: before everything else.
        P0 = "P0",
        /// `suture/priority-p1`: before the ordinary.
        P1 = "P1",
        /// `suture/priority-p2`, or no such label: the ordinary.
        #[default]
        P2 = "P2",
    }
}

impl Priority {
    /// The priority these labels ask for. Case does not matter to GitHub's labels, so it does not here; of several the
    /// most urgent wins, since somebody put it there on purpose.
    pub fn from_labels<L: AsRef<str>>(labels: impl IntoIterator<Item = L>) -> Self {
        labels.into_iter().filter_map(|label| Self::from_label(label.as_ref())).min().unwrap_or_default()
    }

    fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| label.eq_ignore_ascii_case(priority.label()))
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::P0 => "suture/priority-p0",
            Self::P1 => "suture/priority-p1",
            Self::P2 => "suture/priority-p2",
        }
    }

    pub fn points(self) -> i64 {
        match self {
            Self::P0 => 1000,
            Self::P1 => 100,
            Self::P2 => 10,
        }
    }
}

/// How large a change is, by changed lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SizeTier {
    /// Fewer than 10 lines.
    Xs,
    /// Fewer than 50 lines.
    S,
    /// Fewer than 250 lines.
    M,
    /// Fewer than 1000 lines.
    L,
    /// 1000 lines and more.
    Xl,
}

impl SizeTier {
    /// The tier of a change with this many lines, additions and deletions together.
    pub fn of(lines: u64) -> Self {
        match lines {
            0..10 => Self::Xs,
            10..50 => Self::S,
            50..250 => Self::M,
            250..1000 => Self::L,
            1000.. => Self::Xl,
        }
    }

    /// The points a change of this size loses: a slight preference for the small.
    pub fn penalty(self) -> i64 {
        match self {
            Self::Xs => 0,
            Self::S => 1,
            Self::M => 2,
            Self::L => 3,
            Self::Xl => 4,
        }
    }
}

/// The higher, the sooner: priority, plus 5 for each *whole* day since `created_at` (so that an order does not change
/// from minute to minute), less the size. A size nobody knows costs nothing; a creation in the future is no age.
pub fn score(priority: Priority, created_at: Timestamp, now: Timestamp, size: Option<SizeTier>) -> i64 {
    let age_days = (now.duration_since(created_at).as_hours() / 24).max(0);
    priority.points() + age_days * POINTS_PER_DAY - size.map_or(0, SizeTier::penalty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn of_labels(labels: &[&str]) -> Priority {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        Priority::from_labels(&labels)
    }

    #[test]
    fn the_most_urgent_label_wins_whatever_its_case_and_place() {
        assert_eq!(of_labels(&[]), Priority::P2);
        assert_eq!(of_labels(&["codegenie", "priority-p0", "suture/priority-p3", "xsuture/priority-p0"]), Priority::P2);
        assert_eq!(of_labels(&["suture/priority-p2"]), Priority::P2);
        assert_eq!(of_labels(&["suture/priority-p2", "SUTURE/Priority-P1"]), Priority::P1);
        assert_eq!(of_labels(&["suture/priority-p1", "suture/priority-p0", "suture/priority-p2"]), Priority::P0);
    }

    #[test]
    fn priorities_have_fixed_names_points_and_labels() {
        let rows = Priority::ALL.map(|p| (p.to_string(), p.points(), p.label()));
        assert_eq!(
            rows,
            [
                ("P0".to_owned(), 1000, "suture/priority-p0"),
                ("P1".to_owned(), 100, "suture/priority-p1"),
                ("P2".to_owned(), 10, "suture/priority-p2"),
            ]
        );
        assert_eq!(serde_json::to_string(&Priority::P0).unwrap(), "\"P0\"");
        assert_eq!(serde_json::to_string(&SizeTier::Xl).unwrap(), "\"XL\"");
    }

    #[test]
    fn sizes_change_tier_exactly_at_their_edges() {
        let rows =
            [0, 9, 10, 49, 50, 249, 250, 999, 1000, u64::MAX].map(|n| (SizeTier::of(n), SizeTier::of(n).penalty()));
        use SizeTier::{L, M, S, Xl, Xs};
        assert_eq!(rows, [(Xs, 0), (Xs, 0), (S, 1), (S, 1), (M, 2), (M, 2), (L, 3), (L, 3), (Xl, 4), (Xl, 4)]);
    }

    #[test]
    fn age_counts_whole_days_and_the_future_is_no_age() {
        let created = at("2026-01-01T12:00:00Z");
        let points = |now: &str| score(Priority::P2, created, at(now), None);
        assert_eq!(points("2026-01-01T12:00:00Z"), 10);
        assert_eq!(points("2026-01-02T11:59:59.999Z"), 10);
        assert_eq!(points("2026-01-02T12:00:00Z"), 15);
        assert_eq!(points("2026-01-31T12:00:00Z"), 160);
        assert_eq!(points("2025-06-01T12:00:00Z"), 10);
    }

    #[test]
    fn the_score_is_priority_plus_age_less_size() {
        let (created, now) = (at("2026-01-01T00:00:00Z"), at("2026-01-04T00:00:00Z"));
        assert_eq!(score(Priority::P0, created, now, Some(SizeTier::Xl)), 1011);
        assert_eq!(score(Priority::P1, created, now, Some(SizeTier::M)), 113);
        assert_eq!(score(Priority::P1, created, now, Some(SizeTier::Xs)), score(Priority::P1, created, now, None));
    }

    #[test]
    fn nothing_starves_and_no_time_overflows() {
        let (created, now) = (at("2026-01-01T00:00:00Z"), at("2026-12-31T00:00:00Z"));
        assert!(score(Priority::P2, created, now, None) > score(Priority::P0, now, now, None));
        assert!(score(Priority::P2, Timestamp::MIN, Timestamp::MAX, None) > 1_000_000);
        assert_eq!(score(Priority::P2, Timestamp::MAX, Timestamp::MIN, None), 10);
    }
}
