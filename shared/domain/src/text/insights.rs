//! Advice derived from statistics: thresholds to change and transient rules to narrow.

use super::duration;
use crate::insights::{MIN_SAMPLES, StateDuration, TransientRuleStats};
use jiff::SignedDuration;

pub const THRESHOLD_FORMULA: &str = "The suggested threshold is the 99th percentile (p99) of the time in the state, counting only stays \
                           that ended without Suture or a person, plus 25 %, in whole minutes and at least 1. It needs 20 \
                           such stays.";

pub const FLAG_CRITERION: &str = "A rule is flagged when at least 2 of its retries, and at least half of the finished ones, failed again \
                        with the same text, digits ignored.";

/// Advice about the threshold of a state.
pub fn threshold_advice(stay: &StateDuration) -> String {
    let (state, has) = (stay.state, stay.configured_minutes);
    let setting = format!("`thresholds_minutes.{}`", state.name().to_ascii_lowercase());
    let Some(suggested) = stay.suggested_minutes else {
        let count = stay.undisturbed;
        return format!(
            "{state} ended {count} times without Suture or a person; {MIN_SAMPLES} are needed to suggest a threshold."
        );
    };
    let p99 = duration(SignedDuration::from_secs(i64::try_from(stay.p99_secs).unwrap_or(i64::MAX)));
    if suggested > has {
        return format!(
            "Raise {setting} from {has} to {suggested}: pull requests become stale within their normal time (p99 {p99})."
        );
    }
    if suggested * 2 <= has {
        return format!(
            "Lower {setting} from {has} to {suggested}: a pull request that takes longer is already stuck."
        );
    }
    format!("{setting} = {has} matches the measured times.")
}

/// Advice about a transient rule, if it is flagged.
pub fn rule_advice(rule: &TransientRuleStats) -> Option<String> {
    let (name, same, over) = (&rule.rule, rule.identical, rule.outcomes.finished());
    rule.is_flagged().then(|| {
        format!(
            "{same} of {over} retries by rule `{name}` failed again with the same text, so these failures are not transient. \
             Narrow its patterns, or set `transient.{name}.enabled = false`."
        )
    })
}

pub fn incomplete_data(days: usize, most: u32) -> String {
    let period = if days == 1 { "one day".to_owned() } else { format!("{days} days") };
    format!("For {period}, only the first {most} events of each partition were read, so the numbers are incomplete.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insights::OutcomeCounts;
    use crate::state::State;

    fn stay(by_itself: usize, suggested_minutes: Option<u64>) -> StateDuration {
        StateDuration {
            repo: None,
            state: State::ChecksRunning,
            count: 30,
            undisturbed: by_itself,
            p50_secs: 60,
            p95_secs: 600,
            p99_secs: 4_000,
            configured_minutes: 60,
            suggested_minutes,
        }
    }

    #[test]
    fn advice_names_the_setting_and_the_value() {
        let text = |suggested| threshold_advice(&stay(30, suggested));
        assert_eq!(
            text(Some(84)),
            "Raise `thresholds_minutes.checks_running` from 60 to 84: pull requests become stale within their normal time (p99 1 h 6 min)."
        );
        assert!(text(Some(30)).starts_with("Lower `thresholds_minutes.checks_running` from 60 to 30: "));
        for fits in [31, 60] {
            assert_eq!(text(Some(fits)), "`thresholds_minutes.checks_running` = 60 matches the measured times.");
        }
        let few = "CHECKS_RUNNING ended 3 times without Suture or a person; 20 are needed to suggest a threshold.";
        assert_eq!(threshold_advice(&stay(3, None)), few);
    }

    #[test]
    fn only_flagged_rules_get_advice() {
        let rule = |identical| TransientRuleStats {
            rule: "network".to_owned(),
            outcomes: OutcomeCounts { claimed: 4, failed_again: 4, ..OutcomeCounts::default() },
            identical,
        };
        let text = rule_advice(&rule(3)).unwrap();
        assert!(text.starts_with("3 of 4 retries by rule `network` failed again with the same text"), "{text}");
        assert!(text.ends_with("`transient.network.enabled = false`."), "{text}");
        assert_eq!(rule_advice(&rule(1)), None);
        assert!(
            incomplete_data(1, 5).starts_with("For one day, only")
                && incomplete_data(3, 5).starts_with("For 3 days, only")
        );
    }
}
