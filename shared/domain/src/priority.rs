//! The priority score of a pull request (R-SWEEP-8), used when there is more work than time. Due dates are decided
//! elsewhere.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Points per day of waiting, so that nothing waits for ever behind newer work.
const POINTS_PER_DAY: i64 = 5;

named! {
    /// The priority that people set with a label.
    #[derive(Default)]
    pub enum Priority {
        /// `suture/priority-p0`: before everything else.
        P0 = "P0",
        /// `suture/priority-p1`: before normal work.
        P1 = "P1",
        /// `suture/priority-p2`, or no such label: normal.
        #[default]
        P2 = "P2",
    }
}

impl Priority {
    /// The priority from these labels, compared without case as on GitHub. Of several labels the most urgent wins.
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

/// The size of a change, by changed lines.
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
    /// The tier for this many changed lines, additions and deletions together.
    pub fn of(lines: u64) -> Self {
        match lines {
            0..10 => Self::Xs,
            10..50 => Self::S,
            50..250 => Self::M,
            250..1000 => Self::L,
            1000.. => Self::Xl,
        }
    }

    /// The points to subtract: a slight preference for small changes.
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

/// The score; the highest comes first: priority, plus 5 for each *whole* day since `created_at` (so that the order does not
/// change every minute), minus the size penalty. An unknown size has no penalty; a creation in the future counts as age 0.
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
    fn most_urgent_label_wins_in_any_case_and_order() {
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
    fn size_tiers_have_exact_limits() {
        let rows =
            [0, 9, 10, 49, 50, 249, 250, 999, 1000, u64::MAX].map(|n| (SizeTier::of(n), SizeTier::of(n).penalty()));
        use SizeTier::{L, M, S, Xl, Xs};
        assert_eq!(rows, [(Xs, 0), (Xs, 0), (S, 1), (S, 1), (M, 2), (M, 2), (L, 3), (L, 3), (Xl, 4), (Xl, 4)]);
    }

    #[test]
    fn age_counts_whole_days_and_never_below_zero() {
        let created = at("2026-01-01T12:00:00Z");
        let points = |now: &str| score(Priority::P2, created, at(now), None);
        assert_eq!(points("2026-01-01T12:00:00Z"), 10);
        assert_eq!(points("2026-01-02T11:59:59.999Z"), 10);
        assert_eq!(points("2026-01-02T12:00:00Z"), 15);
        assert_eq!(points("2026-01-31T12:00:00Z"), 160);
        assert_eq!(points("2025-06-01T12:00:00Z"), 10);
    }

    #[test]
    fn score_is_priority_plus_age_minus_size() {
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
