//! Maps GitHub's conclusions, states, descriptions and labels to domain types. Webhooks and snapshots share this mapping, so that both
//! produce the same signals (R-SIGNAL-1).

use domain::event::{FactKind, truncate};
use domain::id::Sha;
use domain::policy::{Policy, PullRequestOrigin, ReportAuthor};
use domain::signals::{CheckFailure, CheckKind, CheckReport, CheckVerdict, PolicyReport, PolicyVerdict, RenewalMark};
use domain::text::check_run::CHECK_RUN_NAME;
use domain::transient::{FailureClass, FailureSignals, classify};
use jiff::Timestamp;

use super::checks::pr_of_check_run;

/// Prefix of the labels with which users control Suture.
const LABEL_PREFIX: &str = "suture/";

/// The longest name of an author that is kept, in characters.
const MAX_AUTHOR: usize = 100;

/// Only this much of a description is searched for the vulnerability id.
const BODY_BYTES: usize = 16 * 1024;

/// Whether a check run is Suture's own, which is never a signal: it has Suture's name or external id, and it is Suture's App that created
/// it, or the payload names none. Any App can copy a name or an external id, so they alone hide nothing.
pub fn is_own_check_run(own_app: Option<u64>, app: Option<u64>, name: &str, external_id: &str) -> bool {
    let looks_own = name == CHECK_RUN_NAME || pr_of_check_run(external_id).is_some();
    looks_own && (app.is_none() || app == own_app)
}

/// The verdict of a check run; `None` for unknown values. `completed` without a conclusion still counts as running.
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

/// The verdict of a commit status; `None` for unknown values.
pub fn status_verdict(state: &str) -> Option<CheckVerdict> {
    match lower(state).as_str() {
        // `expected`: required by branch protection and not yet reported.
        "pending" | "expected" => Some(CheckVerdict::Running),
        "success" => Some(CheckVerdict::Passed),
        "failure" | "error" => Some(CheckVerdict::Failed),
        _ => None,
    }
}

/// A report of Policy Bot. An error while loading or evaluating the policy is usually transient and counts as evaluating, so that
/// Suture requests a new evaluation if it persists.
pub fn policy_report(
    policy: &Policy,
    verdict: CheckVerdict,
    conclusion: &str,
    at: Timestamp,
    description: &str,
) -> PolicyReport {
    let not_evaluated = || ["error loading", "error evaluating"].iter().any(|text| lower(description).contains(text));
    let verdict = match verdict {
        CheckVerdict::Queued | CheckVerdict::Running => PolicyVerdict::Evaluating,
        CheckVerdict::Passed => PolicyVerdict::Passed,
        CheckVerdict::Failed if lower(conclusion) == "error" && not_evaluated() => PolicyVerdict::Evaluating,
        CheckVerdict::Failed => PolicyVerdict::Failed(policy.policy_bot.failure(description)),
    };
    PolicyReport { verdict, at, text: first_line(description), renewal: RenewalMark::None }
}

/// The report of a check, from a webhook or a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct CheckReportSource<'a> {
    /// Check-run name or status context.
    pub name: &'a str,
    pub kind: CheckKind,
    pub verdict: CheckVerdict,
    /// The conclusion, or the state of the status.
    pub conclusion: &'a str,
    /// The check run's id.
    pub id: Option<u64>,
    pub started_at: Option<Timestamp>,
    /// The time of the report.
    pub at: Timestamp,
    /// The complete output or description.
    pub text: &'a str,
    pub author: ReportAuthor<'a>,
}

/// What a status or a check run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappedReport {
    Policy(PolicyReport),
    Check(CheckReport),
}

impl MappedReport {
    /// The fact for a webhook about this commit.
    pub fn fact(self, head: Sha) -> FactKind {
        match self {
            Self::Policy(report) => FactKind::Policy { head, report },
            Self::Check(check) => FactKind::Check { head, check },
        }
    }
}

/// A report under Policy Bot's name is a policy signal if Policy Bot posted it, and a check otherwise. Webhooks and snapshots share this
/// decision (R-SIGNAL-15).
pub fn report(policy: &Policy, reported: &CheckReportSource<'_>) -> MappedReport {
    if policy.is_policy_context(reported.name) && policy.policy_bot.is(reported.author) {
        let CheckReportSource { verdict, conclusion, at, text, .. } = *reported;
        return MappedReport::Policy(policy_report(policy, verdict, conclusion, at, text));
    }
    MappedReport::Check(check(policy, reported))
}

/// Builds the domain's report of a check and classifies a failure.
pub fn check(policy: &Policy, reported: &CheckReportSource<'_>) -> CheckReport {
    let CheckReportSource { name, kind, verdict, conclusion, id, started_at, at, text, author } = *reported;
    let failure = (verdict == CheckVerdict::Failed).then(|| {
        let signals = FailureSignals { conclusion, source: name, text };
        let transient_rule = match classify(policy, &signals) {
            FailureClass::Transient { rule } => Some(rule),
            FailureClass::Persistent { .. } => None,
        };
        let summary = first_line(text);
        CheckFailure { transient_rule, text: if summary.is_empty() { conclusion.to_owned() } else { summary } }
    });
    let posted_by = policy.is_policy_context(name).then(|| truncate(&author.to_string(), MAX_AUTHOR));
    let name = name.to_owned();
    CheckReport { name, kind, verdict, id, started_at, at, failure, renewal: RenewalMark::None, posted_by }
}

/// The labels that Suture uses: those with the prefix `suture/`, and those that mark a pull request as managed. Sorted, without duplicates.
pub fn labels<'a>(policy: &Policy, all: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let marks_managed = |label: &str| policy.managed.labels.iter().any(|managed| managed.eq_ignore_ascii_case(label));
    let mut labels: Vec<String> = all
        .into_iter()
        .filter(|label| lower(label).starts_with(LABEL_PREFIX) || marks_managed(label))
        .map(str::to_owned)
        .collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

/// The vulnerability that a pull request fixes; none for a stranger's, whatever it says.
pub fn vulnerability_id(policy: &Policy, origin: &PullRequestOrigin<'_>, title: &str, body: &str) -> Option<String> {
    let texts = [title, origin.branch, &body[..body.floor_char_boundary(BODY_BYTES)]];
    policy.managed.may_claim_vulnerability(origin).then(|| policy.managed.vulnerability_id(&texts))?
}

/// The address of a page; `None` if it is no web address, because it becomes a link.
pub fn page_url(url: &str) -> Option<String> {
    let is_web = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
    is_web.then(|| url.to_owned())
}

/// The first non-empty line.
fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use domain::policy::Policies;
    use domain::state::Substatus;

    use super::*;

    #[test]
    fn own_check_run_is_recognised_by_app_and_name_or_external_id() {
        let own = |app, name, external_id| is_own_check_run(Some(77), app, name, external_id);
        for app in [Some(77), None] {
            assert!(own(app, "suture", "") && own(app, "renamed", "suture:acme/shop#42"), "{app:?}");
            assert!(!own(app, "build", "") && !own(app, "build", "job/x#12"), "{app:?}");
        }
        // Another App copied both.
        assert!(!own(Some(3), "suture", "suture:acme/shop#42"));
        assert!(!is_own_check_run(None, Some(3), "suture", "suture:acme/shop#42"));
    }

    #[test]
    fn run_and_status_states_map_to_verdicts() {
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
    fn policy_evaluation_error_is_not_a_failure() {
        let policy = Policy::default();
        let other = PolicyVerdict::Failed(Substatus::OtherPolicyFailure);
        for (state, description, verdict) in [
            ("success", "All rules approved", PolicyVerdict::Passed),
            ("pending", "0/1 rules approved", PolicyVerdict::Evaluating),
            ("failure", "SOD check failed", PolicyVerdict::Failed(Substatus::SodFailure)),
            ("failure", "Disapproved", other),
            ("error", "Error evaluating policy", PolicyVerdict::Evaluating),
            ("Error", "Error loading policy from acme/shop", PolicyVerdict::Evaluating),
            ("error", "Invalid policy", other),
            ("error", "All rules were skipped", other),
            ("failure", "Error evaluating policy", other),
        ] {
            let reported = status_verdict(state).unwrap();
            let report = policy_report(&policy, reported, state, Timestamp::UNIX_EPOCH, description);
            assert_eq!(report.verdict, verdict, "{state} {description}");
        }
    }

    #[test]
    fn policy_context_of_another_account_is_a_check_with_its_author() {
        let reported = |author| CheckReportSource {
            name: "policy-bot: main",
            kind: CheckKind::Status,
            verdict: CheckVerdict::Passed,
            conclusion: "success",
            id: None,
            started_at: None,
            at: Timestamp::UNIX_EPOCH,
            text: "",
            author,
        };
        let mapped = |author| report(&Policy::default(), &reported(author));
        assert!(matches!(mapped(ReportAuthor::Account("policy-bot[bot]")), MappedReport::Policy(_)));
        let MappedReport::Check(check) = mapped(ReportAuthor::Account("github-actions[bot]")) else { panic!() };
        assert_eq!(check.posted_by.as_deref(), Some("github-actions[bot]"));
        let long = "x".repeat(1_000);
        let MappedReport::Check(check) = mapped(ReportAuthor::Account(&long)) else { panic!() };
        assert!(check.posted_by.unwrap().chars().count() <= MAX_AUTHOR);
    }

    #[test]
    fn failure_is_classified_by_full_text_and_shown_by_first_line() {
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
            author: ReportAuthor::App { id: Some(3), slug: "jenkins" },
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
    fn vulnerability_id_is_searched_in_the_first_16_kib_of_the_body() {
        let origin = PullRequestOrigin { author: "jane", branch: "fix", fork: false };
        let id = |body: &str| vulnerability_id(&Policy::default(), &origin, "Fix", body);
        assert_eq!(id(&format!("{}\nCVE-2026-1234", "x".repeat(16_000))).as_deref(), Some("CVE-2026-1234"));
        assert_eq!(id(&format!("{}\nCVE-2026-1234", "é".repeat(8_192))), None);
    }

    #[test]
    fn only_web_addresses_become_links() {
        let page = "https://ghe.example.org/acme/shop/pull/42";
        assert_eq!(page_url(page).as_deref(), Some(page));
        for other in ["", "javascript:alert(1)", "ftp://x", "/acme/shop/pull/42"] {
            assert_eq!(page_url(other), None, "{other}");
        }
    }

    #[test]
    fn labels_unknown_to_suture_are_dropped() {
        let policies = Policies::parse("[managed]\nlabels = ['fix me']").unwrap();
        let all = ["Suture/Hold", "bug", "fix me", "FIX ME", "codegenie", "suture/priority-p0", "fix me", "sutures/x"];
        assert_eq!(labels(policies.base(), all), ["FIX ME", "Suture/Hold", "fix me", "suture/priority-p0"]);
    }
}
