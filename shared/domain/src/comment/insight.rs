//! What the numbers suggest, in sentences.

use super::duration;
use crate::insight::{ENOUGH, RuleRecord, Stay};
use jiff::SignedDuration;

pub const FORMULA: &str = "A suggested threshold is the p99 of the stays that ended without Suture or a person, plus a quarter, \
                           in whole minutes and at least 1; it takes 20 such stays.";

pub const FLAG: &str = "A rule is flagged when at least 2 of its retries, and at least half of those that are over, failed again \
                        with the same words, numbers aside.";

/// What to do about a state's threshold.
pub fn advice(stay: &Stay) -> String {
    let (state, has) = (stay.state, stay.configured_minutes);
    let knob = format!("`thresholds_minutes.{}`", state.name().to_ascii_lowercase());
    let Some(suggested) = stay.suggested_minutes else {
        let seen = stay.by_itself;
        return format!("{state} was left by itself {seen} times: {ENOUGH} are needed to suggest a threshold.");
    };
    let p99 = duration(SignedDuration::from_secs(i64::try_from(stay.p99_secs).unwrap_or(i64::MAX)));
    if suggested > has {
        return format!(
            "Raise {knob} from {has} to {suggested}: it is stale before it has had its ordinary time (p99 {p99})."
        );
    }
    if suggested * 2 <= has {
        return format!(
            "{knob} could come down from {has} to {suggested}: what takes longer than that is stuck already."
        );
    }
    format!("{knob} = {has} fits what was seen.")
}

/// What to do about a transient rule, if anything.
pub fn rule_advice(rule: &RuleRecord) -> Option<String> {
    let (name, same, over) = (&rule.rule, rule.identical, rule.tally.over());
    rule.is_flagged().then(|| {
        format!(
            "{same} of {over} retries by rule `{name}` failed again with the same words: what it matches is no accident. \
             Narrow its patterns, or set `transient.{name}.enabled = false`."
        )
    })
}

pub fn partial(days: usize, most: u32) -> String {
    let what = if days == 1 { "one day".to_owned() } else { format!("{days} days") };
    format!("Of {what} only the first {most} events of each part were read: the numbers are of those.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::Tally;
    use crate::state::State;

    fn stay(by_itself: usize, suggested_minutes: Option<u64>) -> Stay {
        Stay {
            repo: None,
            state: State::ChecksRunning,
            count: 30,
            by_itself,
            p50_secs: 60,
            p95_secs: 600,
            p99_secs: 4_000,
            configured_minutes: 60,
            suggested_minutes,
        }
    }

    #[test]
    fn advice_names_the_knob_and_what_to_set_it_to() {
        let told = |suggested| advice(&stay(30, suggested));
        assert_eq!(
            told(Some(84)),
            "Raise `thresholds_minutes.checks_running` from 60 to 84: it is stale before it has had its ordinary time (p99 1 h 6 min)."
        );
        assert!(told(Some(30)).starts_with("`thresholds_minutes.checks_running` could come down from 60 to 30"));
        for fits in [31, 60] {
            assert_eq!(told(Some(fits)), "`thresholds_minutes.checks_running` = 60 fits what was seen.");
        }
        let few = "CHECKS_RUNNING was left by itself 3 times: 20 are needed to suggest a threshold.";
        assert_eq!(advice(&stay(3, None)), few);
    }

    #[test]
    fn a_flagged_rule_is_told_with_its_numbers_and_others_are_not() {
        let rule = |identical| RuleRecord {
            rule: "network".to_owned(),
            tally: Tally { claimed: 4, failed_again: 4, ..Tally::default() },
            identical,
        };
        let told = rule_advice(&rule(3)).unwrap();
        assert!(told.starts_with("3 of 4 retries by rule `network` failed again with the same words"), "{told}");
        assert!(told.ends_with("`transient.network.enabled = false`."), "{told}");
        assert_eq!(rule_advice(&rule(1)), None);
        assert!(partial(1, 5).starts_with("Of one day only") && partial(3, 5).starts_with("Of 3 days only"));
    }
}
