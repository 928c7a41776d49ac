//! What GitHub's words mean in Suture's: conclusions, states, descriptions, labels. Whoever reads GitHub, by webhook or by
//! asking, takes them from here, so that both say the same of the same thing (R-SIGNAL-1).

use domain::policy::Policy;
use domain::signals::{CheckFailure, CheckKind, CheckReport, CheckVerdict, PolicyReport, PolicyVerdict, RenewalMark};
use domain::transient::{FailureClass, FailureSignals, classify};
use jiff::Timestamp;

/// Labels by which people tell Suture something all begin like this.
const OUR_LABELS: &str = "suture/";

/// What a check run says. An end without a conclusion is none yet, and a word nobody knows is no verdict: `None`.
#[must_use]
pub fn run_verdict(status: &str, conclusion: &str) -> Option<CheckVerdict> {
    match (lower(status).as_str(), lower(conclusion).as_str()) {
        ("queued" | "requested" | "waiting" | "pending", _) => Some(CheckVerdict::Queued),
        ("in_progress", _) | ("completed", "") => Some(CheckVerdict::Running),
        ("completed", "success" | "neutral" | "skipped") => Some(CheckVerdict::Passed),
        ("completed", "failure" | "timed_out" | "cancelled" | "action_required" | "startup_failure" | "stale") => {
            Some(CheckVerdict::Failed)
        }
        (_, _) => None,
    }
}

/// What a commit status says; `None` for a word nobody knows.
#[must_use]
pub fn status_verdict(state: &str) -> Option<CheckVerdict> {
    match lower(state).as_str() {
        // A context that branch protection waits for and nobody has reported is `expected`.
        "pending" | "expected" => Some(CheckVerdict::Running),
        "success" => Some(CheckVerdict::Passed),
        "failure" | "error" => Some(CheckVerdict::Failed),
        _ => None,
    }
}

/// What a policy status says. "Could not load or evaluate" is no verdict on the change, and usually passes: Policy Bot is
/// asked again when it stays that way. `None` for a word nobody knows.
#[must_use]
pub fn policy_verdict(policy: &Policy, state: &str, description: &str) -> Option<PolicyVerdict> {
    let unable = || ["error loading", "error evaluating"].iter().any(|words| lower(description).contains(words));
    match lower(state).as_str() {
        "pending" | "expected" => Some(PolicyVerdict::Evaluating),
        "success" => Some(PolicyVerdict::Passed),
        "error" if unable() => Some(PolicyVerdict::Evaluating),
        "failure" | "error" => Some(PolicyVerdict::Failed(policy.policy_bot.failure(description))),
        _ => None,
    }
}

/// A report of Policy Bot.
#[must_use]
pub fn policy_report(verdict: PolicyVerdict, at: Timestamp, description: &str) -> PolicyReport {
    PolicyReport { verdict, at, text: first_line(description), renewal: RenewalMark::None }
}

/// What is known of one report of a check, whoever brings it.
#[derive(Debug, Clone, Copy)]
pub struct CheckReportSource<'a> {
    /// Check-run name or status context.
    pub name: &'a str,
    /// Check run or status.
    pub kind: CheckKind,
    pub verdict: CheckVerdict,
    /// The conclusion, or the state of the status.
    pub conclusion: &'a str,
    /// The check run's id.
    pub id: Option<u64>,
    /// When this run of it started.
    pub started_at: Option<Timestamp>,
    /// When it said so.
    pub at: Timestamp,
    /// Everything it says about its failure.
    pub text: &'a str,
}

/// The check, its failure classified.
#[must_use]
pub fn check(policy: &Policy, reported: &CheckReportSource<'_>) -> CheckReport {
    let CheckReportSource { name, kind, verdict, conclusion, id, started_at, at, text } = *reported;
    let failure = (verdict == CheckVerdict::Failed).then(|| {
        let signals = FailureSignals { conclusion, source: name, text };
        let transient_rule = match classify(policy, &signals) {
            FailureClass::Transient { rule } => Some(rule),
            FailureClass::Persistent { .. } => None,
        };
        let said = first_line(text);
        CheckFailure { transient_rule, text: if said.is_empty() { conclusion.to_owned() } else { said } }
    });
    CheckReport { name: name.to_owned(), kind, verdict, id, started_at, at, failure, renewal: RenewalMark::None }
}

/// The labels that mean something to Suture: those that begin with `suture/`, and those that make a pull request ours.
/// Sorted, each once.
#[must_use]
pub fn labels<'a>(policy: &Policy, all: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let ours = |label: &str| policy.managed.labels.iter().any(|own| own.eq_ignore_ascii_case(label));
    let mut labels: Vec<String> = all
        .into_iter()
        .filter(|label| lower(label).starts_with(OUR_LABELS) || ours(label))
        .map(str::to_owned)
        .collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

/// The first line that says something.
fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

fn lower(word: &str) -> String {
    word.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use domain::policy::Policies;
    use domain::state::Substatus;

    use super::*;

    #[test]
    fn every_word_of_githubs_has_its_meaning() {
        use CheckVerdict::{Failed, Passed, Queued, Running};
        for (status, conclusion, verdict) in [
            ("queued", "", Some(Queued)),
            ("requested", "", Some(Queued)),
            ("waiting", "", Some(Queued)),
            ("pending", "", Some(Queued)),
            ("in_progress", "", Some(Running)),
            ("IN_PROGRESS", "success", Some(Running)),
            ("completed", "", Some(Running)),
            ("completed", "success", Some(Passed)),
            ("COMPLETED", "NEUTRAL", Some(Passed)),
            ("completed", "skipped", Some(Passed)),
            ("completed", "failure", Some(Failed)),
            ("completed", "timed_out", Some(Failed)),
            ("completed", "cancelled", Some(Failed)),
            ("completed", "action_required", Some(Failed)),
            ("completed", "startup_failure", Some(Failed)),
            ("completed", "stale", Some(Failed)),
            ("completed", "splendid", None),
            ("dreaming", "success", None),
            ("", "", None),
        ] {
            assert_eq!(run_verdict(status, conclusion), verdict, "{status} {conclusion}");
        }
        for (state, verdict) in [
            ("pending", Some(Running)),
            ("EXPECTED", Some(Running)),
            ("success", Some(Passed)),
            ("failure", Some(Failed)),
            ("error", Some(Failed)),
            ("", None),
            ("maybe", None),
        ] {
            assert_eq!(status_verdict(state), verdict, "{state}");
        }
    }

    #[test]
    fn a_policy_that_could_not_be_evaluated_has_not_failed() {
        let policy = Policy::default();
        let other = PolicyVerdict::Failed(Substatus::OtherPolicyFailure);
        for (state, description, verdict) in [
            ("success", "All rules approved", Some(PolicyVerdict::Passed)),
            ("pending", "0/1 rules approved", Some(PolicyVerdict::Evaluating)),
            ("failure", "SOD check failed", Some(PolicyVerdict::Failed(Substatus::SodFailure))),
            ("failure", "Disapproved", Some(other)),
            ("error", "Error evaluating policy", Some(PolicyVerdict::Evaluating)),
            ("error", "Error loading policy from acme/shop", Some(PolicyVerdict::Evaluating)),
            ("error", "Invalid policy", Some(other)),
            ("error", "All rules were skipped", Some(other)),
            ("failure", "Error evaluating policy", Some(other)),
            ("odd", "", None),
        ] {
            assert_eq!(policy_verdict(&policy, state, description), verdict, "{state} {description}");
        }
    }

    #[test]
    fn a_failure_is_classified_by_all_its_text_and_shown_by_its_first_line() {
        let at = Timestamp::UNIX_EPOCH;
        let reported = |text, conclusion| CheckReportSource {
            name: "Jenkins",
            kind: CheckKind::Run,
            verdict: CheckVerdict::Failed,
            conclusion,
            id: Some(3),
            started_at: None,
            at,
            text,
        };
        let failure = |text, conclusion| check(&Policy::default(), &reported(text, conclusion)).failure.unwrap();
        let lost = failure("\n \n Build failed\n\nhudson: channel is already closed", "failure");
        assert_eq!((lost.transient_rule.as_deref(), lost.text.as_str()), (Some("agent-lost"), "Build failed"));
        let late = failure("", "timed_out");
        assert_eq!((late.transient_rule.as_deref(), late.text.as_str()), (Some("timed-out"), "timed_out"));
        assert_eq!(failure("Tests run: 3, Failures: 1", "failure").transient_rule, None);
        let green =
            check(&Policy::default(), &CheckReportSource { verdict: CheckVerdict::Passed, ..reported("x", "success") });
        assert_eq!(green.failure, None);
    }

    #[test]
    fn only_labels_that_mean_something_are_kept() {
        let policies = Policies::parse("[managed]\nlabels = ['fix me']").unwrap();
        let all = ["Suture/Hold", "bug", "fix me", "FIX ME", "codegenie", "suture/priority-p0", "fix me", "sutures/x"];
        assert_eq!(labels(policies.base(), all), ["FIX ME", "Suture/Hold", "fix me", "suture/priority-p0"]);
    }
}
