//! The tables of `suture.toml`, one struct each, every field with its default and what it is for: these sentences are
//! also what editors show from the schema. What a number may be is in `validate`; the failure rules are in `transient`.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use crate::state::{Strategy, Substatus};

/// Whether Suture acts, or only says what it would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Watch, diagnose and log what would be done; touch nothing.
    #[default]
    Observe,
    /// Apply remedies and escalate.
    Act,
}

/// When a branch that lacks commits of its base counts as behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Behind {
    /// Only where the base branch requires branches to be up to date before merging.
    #[default]
    Strict,
    /// Always.
    Always,
}

/// How checks are run again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RebuildVia {
    /// A new build of the pull request's Jenkins job.
    #[default]
    Jenkins,
    /// The last build of that job once more, of the same revision.
    Replay,
    /// Jenkins looks for branches and pull requests again: for webhooks that Jenkins missed.
    Rescan,
    /// A comment that Jenkins listens to.
    Comment,
    /// GitHub runs failed jobs and check suites again.
    GitHub,
}

/// How a bot is woken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Wake {
    /// An event on the bus.
    #[default]
    Bus,
    /// A label that is taken off and put on again.
    Label,
    /// A comment.
    Comment,
    /// An HTTP call.
    Http,
}

/// Derives what every table of the file has in common, and writes its defaults next to nothing else.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }
    };
}

pub(super) use table;

table! {
    /// Which pull requests are ours: any one of author, branch and label is enough.
    Ours {
        /// Logins that open our pull requests, compared without case; apps end in `[bot]`.
        authors: Vec<String> = texts(&["codegenie[bot]"]),
        /// How our head branches begin.
        branch_prefixes: Vec<String> = texts(&["codegenie/"]),
        /// Labels that make a pull request ours, compared without case.
        labels: Vec<String> = texts(&["codegenie"]),
        /// How a vulnerability id looks in a title, a branch or a body; the first match counts. CVE and GHSA ids are
        /// brought to their official spelling first, so `cve-2024-1234` in a branch is found too.
        vulnerability_patterns: Vec<Pattern> = VULNERABILITIES.clone(),
    }
}

table! {
    /// Continuous integration.
    Checks {
        /// The checks and statuses that must be green. Empty: ask GitHub for them; if it cannot be asked, every check
        /// seen on the head.
        required: Vec<String> = Vec::new(),
        /// `strict`: a branch is behind only where its base requires up-to-date branches; `always`: everywhere.
        behind: Behind = Behind::Strict,
    }
}

table! {
    /// Policy Bot, which reports through a commit status.
    PolicyBot {
        /// How its status context begins; `policy-bot` means `policy-bot` and `policy-bot: main`.
        context_prefix: String = "policy-bot".to_owned(),
        /// Descriptions that say separation of duties failed. That is worth one retry, but only if it failed alone.
        sod_patterns: Vec<Pattern> = SOD.clone(),
        /// Descriptions that say the build policy failed; wins over separation of duties.
        build_patterns: Vec<Pattern> = BUILD.clone(),
        /// Descriptions that say branch protection failed; wins over separation of duties.
        branch_protection_patterns: Vec<Pattern> = BRANCH_PROTECTION.clone(),
    }
}

table! {
    /// Approver Bot, which reports through a review.
    ApproverBot {
        /// Its logins, compared without case.
        logins: Vec<String> = texts(&["approver-bot[bot]"]),
    }
}

table! {
    /// Automerge Bot, which reports by merging.
    AutomergeBot {
        /// Its logins, compared without case.
        logins: Vec<String> = texts(&["automerge-bot[bot]"]),
    }
}

table! {
    /// How checks are run again.
    Rebuild {
        /// `jenkins`, `replay`, `rescan`, `comment` or `github`.
        via: RebuildVia = RebuildVia::Jenkins,
        /// The Jenkins job of a pull request; `{owner}`, `{repo}`, `{number}` and `{branch}` are filled in.
        job: String = "{owner}/{repo}/PR-{number}".to_owned(),
        /// The job's parameter for the commit; empty if the job builds this pull request and nothing else.
        sha_parameter: String = String::new(),
        /// What to write for `via = "comment"`.
        comment: String = "retest this please".to_owned(),
    }
}

table! {
    /// The living check run: one of Suture's own on each head, which says how the pull request stands. For GitHub Apps.
    LivingCheck {
        /// Whether there is one. Only where Suture acts: in observe mode it touches nothing.
        enabled: bool = false,
    }
}

table! {
    /// How the bots are woken; each by an event on the bus, unless said otherwise.
    WakeUp {
        /// Policy Bot.
        policy_bot: Wake = Wake::Bus,
        /// The label, the comment or the address for it.
        policy_bot_with: String = String::new(),
        /// The separation-of-duties validator.
        sod_validator: Wake = Wake::Bus,
        /// The label, the comment or the address for it.
        sod_validator_with: String = String::new(),
        /// Approver Bot.
        approver_bot: Wake = Wake::Bus,
        /// The label, the comment or the address for it.
        approver_bot_with: String = String::new(),
        /// Automerge Bot.
        automerge_bot: Wake = Wake::Bus,
        /// The label, the comment or the address for it.
        automerge_bot_with: String = String::new(),
    }
}

impl WakeUp {
    /// How this strategy's bot is woken, and with what; nothing for strategies that wake nobody.
    pub fn of(&self, strategy: Strategy) -> Option<(Wake, &str)> {
        match strategy {
            Strategy::RetriggerPolicyBot => Some((self.policy_bot, &self.policy_bot_with)),
            Strategy::RetriggerSodCheck => Some((self.sod_validator, &self.sod_validator_with)),
            Strategy::RetriggerApproverBot => Some((self.approver_bot, &self.approver_bot_with)),
            Strategy::RetriggerAutomergeBot => Some((self.automerge_bot, &self.automerge_bot_with)),
            Strategy::Rebuild | Strategy::BranchUpdate | Strategy::CloseAndReopen => None,
        }
    }
}

table! {
    /// Which rules apply.
    Rules {
        /// Also heal pull requests whose checks never started, never ended, or whose merge hangs.
        extended_rules: bool = true,
        /// Strategies that wait for a person's approval before they are carried out; suggested: `close_and_reopen`.
        approval_required: Vec<Strategy> = Vec::new(),
    }
}

table! {
    /// How many minutes a pull request may stay in a state before it is stale.
    Thresholds {
        /// CREATED: checks should start almost at once.
        created: u32 = 5,
        /// CHECKS_RUNNING: builds are slow, but not this slow.
        checks_running: u32 = 60,
        /// CHECKS_FAILED: somebody may be at it already.
        checks_failed: u32 = 30,
        /// CHECKS_PASSED: Policy Bot should have begun.
        checks_passed: u32 = 30,
        /// POLICY_EVALUATING: Policy Bot should have answered.
        policy_evaluating: u32 = 30,
        /// POLICY_FAILED: separation of duties may settle by itself.
        policy_failed: u32 = 15,
        /// POLICY_PASSED: Approver Bot should have approved.
        policy_passed: u32 = 15,
        /// APPROVED: Automerge Bot should have begun.
        approved: u32 = 10,
        /// MERGING: a merge is quick.
        merging: u32 = 5,
    }
}

table! {
    /// How often each remedy may be tried automatically before a person is called; 0 means never.
    Budgets {
        /// Run the checks again.
        rebuild: u32 = 3,
        /// Merge the base branch into the head.
        branch_update: u32 = 2,
        /// Wake Policy Bot.
        retrigger_policy_bot: u32 = 2,
        /// Wake Approver Bot.
        retrigger_approver_bot: u32 = 2,
        /// Wake Automerge Bot.
        retrigger_automerge_bot: u32 = 2,
        /// Ask the separation-of-duties validator again; its failures are usually real.
        retrigger_sod_check: u32 = 1,
        /// Close and ask for a fresh pull request; counted on the vulnerability, never reset.
        close_and_reopen: u32 = 1,
        /// All remedies of one pull request together, whatever the other budgets say: ends every loop.
        lifetime: u32 = 12,
    }
}

table! {
    /// How long to wait between attempts.
    Backoff {
        /// The first wait; each further one doubles.
        base_secs: u32 = 30,
        /// No wait is longer.
        max_secs: u32 = 600,
        /// The least time between two automatic remedies of one pull request.
        cooldown_secs: u32 = 900,
    }
}

table! {
    /// The circuit breaker: stops all remedies when too many of them fail.
    Breaker {
        /// How far back remedies are counted.
        window_minutes: u32 = 15,
        /// Opens above this share of failures, from 0 (excluded) to 1.
        failure_threshold: f64 = 0.5,
        /// Opens only above this many remedies in the window: two of three prove nothing.
        minimum_actions: u32 = 5,
        /// How long it stays open before one remedy is let through as a probe.
        cooldown_minutes: u32 = 10,
    }
}

table! {
    /// A limit on everything that others could make unbounded.
    Limits {
        /// Webhooks of one repository handled at once per minute; more are queued, never dropped.
        webhooks_per_minute_per_repo: u32 = 30,
        /// Builds that Suture has running in one repository at a time.
        rebuilds_in_flight_per_repo: u32 = 2,
        /// Commands of one person on one pull request per hour.
        commands_per_person_per_hour: u32 = 20,
        /// Checks and statuses remembered per head; a record must fit into one DynamoDB item.
        checks_per_head: u32 = 250,
        /// Remedies under way at a time, over all repositories.
        remedies_in_flight: u32 = 10,
        /// Requests of one API key per minute.
        api_requests_per_minute_per_key: u32 = 600,
    }
}

table! {
    /// The reconciler's regular pass over what is due.
    Sweep {
        /// How often; the deployed schedule must agree.
        every_minutes: u32 = 1,
        /// Pull requests worked on at the same time.
        concurrency: u32 = 8,
        /// Pull requests per sweep; the rest is still due at the next.
        max_prs: u32 = 500,
        /// Every how many sweeps the open pull requests on GitHub are listed, to find those never heard of.
        inventory_every: u32 = 12,
    }
}

table! {
    /// Requests to look at pull requests before the schedule would: one, those of a base branch, or everything.
    Triggers {
        /// What webhooks ask for waits until nothing newer has come for this long; what people ask for does not wait.
        quiet_secs: u32 = 10,
        /// But it waits no longer than this, however often it is asked for.
        longest_wait_secs: u32 = 120,
        /// Requests taken for one repository per day (UTC), those that stand for one another counted once; more are left to the schedule.
        per_repo_per_day: u32 = 100,
        /// Requests taken for all repositories of one owner per day; everything is not counted.
        per_org_per_day: u32 = 1000,
        /// Requests worked on at the same time, over all repositories; of one repository it is one.
        at_once: u32 = 5,
        /// How often a request that went wrong is tried again.
        retries: u32 = 3,
        /// After this long a request ends with what it has: the rest is still due.
        timeout_minutes: u32 = 10,
        /// Pull requests visited by one request, the highest in rank first; the others are named and left to the schedule.
        max_prs: u32 = 50,
    }
}

table! {
    /// How long things are kept.
    Retention {
        /// Records of merged and closed pull requests.
        terminal_hours: u32 = 24,
        /// The event log; at least 3, since GitHub redelivers webhooks for 3 days and the log tells duplicates.
        events_days: u32 = 90,
        /// Records of remedies and sweeps.
        runs_days: u32 = 30,
    }
}

pub(super) fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

/// GitHub compares logins and labels without case; both are ASCII where it matters.
fn contains(list: &[String], item: &str) -> bool {
    list.iter().any(|entry| entry.eq_ignore_ascii_case(item))
}

impl Ours {
    /// Whether a pull request is ours, by any of its author, its head branch and its labels.
    pub fn matches(&self, author: &str, branch: &str, labels: &[String]) -> bool {
        contains(&self.authors, author)
            || self.branch_prefixes.iter().any(|prefix| branch.starts_with(prefix.as_str()))
            || labels.iter().any(|label| contains(&self.labels, label))
    }

    /// The vulnerability that a pull request is about: the first of the texts (title, branch, body) that names one.
    ///
    /// One vulnerability must have one spelling, since it is a key: `CVE-2024-1234` is upper case, `GHSA-xxxx-xxxx-xxxx`
    /// is lower case after its prefix, both wherever and however they are written. Any other id is kept as found: only
    /// those two are known to ignore case.
    pub fn vulnerability_id(&self, texts: &[&str]) -> Option<String> {
        texts.iter().find_map(|text| {
            let text = OFFICIAL_ID.replace_all(text, official_spelling);
            self.vulnerability_patterns
                .iter()
                .filter_map(|pattern| pattern.find(&text))
                .find(|id| !id.is_empty())
                .map(str::to_owned)
        })
    }
}

fn official_spelling(found: &Captures<'_>) -> String {
    match found.get(1) {
        Some(rest) => format!("GHSA{}", rest.as_str().to_ascii_lowercase()),
        None => found[0].to_ascii_uppercase(),
    }
}

impl PolicyBot {
    /// What a failing description means. Separation of duties is worth a retry only if nothing else failed with it.
    pub fn failure(&self, description: &str) -> Substatus {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.is_match(description));
        if any(&self.build_patterns) {
            Substatus::BuildFailure
        } else if any(&self.branch_protection_patterns) {
            Substatus::BranchProtectionFailure
        } else if any(&self.sod_patterns) {
            Substatus::SodFailure
        } else {
            Substatus::OtherPolicyFailure
        }
    }

    /// Whether a status context is Policy Bot's: the prefix alone, or followed by `:`, `/` or a space.
    pub fn is_context(&self, context: &str) -> bool {
        let ends = |c| matches!(c, ':' | '/' | ' ');
        context
            .strip_prefix(self.context_prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(ends) || self.context_prefix.ends_with(ends))
    }
}

impl ApproverBot {
    /// Whether a login is Approver Bot's.
    pub fn is(&self, login: &str) -> bool {
        contains(&self.logins, login)
    }
}

impl AutomergeBot {
    /// Whether a login is Automerge Bot's.
    pub fn is(&self, login: &str) -> bool {
        contains(&self.logins, login)
    }
}

/// The two kinds of id whose spelling is settled by those who issue them.
#[expect(clippy::expect_used, reason = "a constant, compiled by the tests")]
static OFFICIAL_ID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)CVE-[0-9]{4}-[0-9]{4,}|GHSA((?:-[0-9a-z]{4}){3})").expect("a constant pattern compiles")
});

// One list each, so that every policy shares the same compiled patterns.
static VULNERABILITIES: LazyLock<Vec<Pattern>> =
    LazyLock::new(|| known(&[r"CVE-\d{4}-\d{4,}", r"GHSA(-[0-9a-z]{4}){3}", r"VULN-[A-Za-z0-9]+"]));
static SOD: LazyLock<Vec<Pattern>> = LazyLock::new(|| known(&[r"(?i)separation of duties", r"(?i)\bsod\b"]));
// "separation of duties failed, build passed" must stay SOD: the word alone is not enough, it must be said to fail.
static BUILD: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    known(&[
        r"(?i)\bbuilds?([ _-]polic(y|ies))?\b[^,;.]*\b(fail[a-z]*|not|unmet|missing|broken|red)\b",
        r"(?i)\bbuild_fail",
        r"(?i)\b(fail[a-z]*|unmet|missing|broken)( the)? builds?\b",
        r"(?i)\b(fail[a-z]*|unmet)( [a-z]+)?: [^;.]*\bbuilds?\b",
    ])
});
static BRANCH_PROTECTION: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    known(&[
        r"(?i)\bbranch[ _-]?protections?\b[^,;.]*\b(fail[a-z]*|not|unmet|missing|violat[a-z]*)\b",
        r"(?i)\bbranch_protection_fail",
        r"(?i)\b(fail[a-z]*|unmet|missing|violat[a-z]*)( the)? branch[ _-]?protections?\b",
        r"(?i)\b(fail[a-z]*|unmet)( [a-z]+)?: [^;.]*\bbranch[ _-]?protections?\b",
    ])
});

fn known(texts: &[&'static str]) -> Vec<Pattern> {
    texts.iter().map(|&text| Pattern::known(text)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_built_in_pattern_compiles() {
        let bot = PolicyBot::default();
        for pattern in [&VULNERABILITIES, &bot.sod_patterns, &bot.build_patterns, &bot.branch_protection_patterns]
            .into_iter()
            .flatten()
        {
            assert_eq!(&Pattern::new(pattern.as_str()).unwrap(), pattern);
        }
        assert_eq!(VULNERABILITIES.len(), 3);
        assert_eq!(bot.sod_patterns, [r"(?i)separation of duties", r"(?i)\bsod\b"].map(Pattern::known));
    }

    #[test]
    fn any_one_of_author_branch_and_label_makes_it_ours() {
        let ours = Ours::default();
        let labels = |label: &str| vec!["bug".to_owned(), label.to_owned()];
        assert!(ours.matches("CodeGenie[bot]", "x", &[]));
        assert!(ours.matches("jane", "codegenie/fix", &[]));
        assert!(ours.matches("jane", "x", &labels("CodeGenie")));
        assert!(!ours.matches("codegenie", "x/codegenie/fix", &labels("codegenie-like")));
        assert!(!ours.matches("jane", "Codegenie/fix", &[]));
    }

    #[test]
    fn a_vulnerability_has_one_spelling() {
        let ours = Ours::default();
        let id = |texts: &[&str]| ours.vulnerability_id(texts);
        assert_eq!(id(&["Fix lodash", "codegenie/cve-2024-12345-lodash"]).as_deref(), Some("CVE-2024-12345"));
        assert_eq!(id(&["ghsa-ABCD-0e9f-x2x3 in a title", "CVE-2024-1111"]).as_deref(), Some("GHSA-abcd-0e9f-x2x3"));
        assert_eq!(id(&["both GHSA-aaaa-bbbb-cccc and CVE-2024-1111"]).as_deref(), Some("CVE-2024-1111"));
        assert_eq!(id(&["VULN-aB3"]).as_deref(), Some("VULN-aB3"));
        assert_eq!(id(&["codegenie/vuln-fix", "CVE-2024-123", "GHSA-aaaa-bbbb", ""]), None);
        assert_eq!(id(&[]), None);
        let custom = Ours { vulnerability_patterns: vec![Pattern::known("x*")], ..Ours::default() };
        assert_eq!(custom.vulnerability_id(&["abc"]), None);
        let none = Ours { vulnerability_patterns: Vec::new(), ..Ours::default() };
        assert_eq!(none.vulnerability_id(&["CVE-2024-1111"]), None);
    }

    #[test]
    fn separation_of_duties_counts_only_when_it_failed_alone() {
        let bot = PolicyBot::default();
        for (description, expected) in [
            ("Separation of duties violated", Substatus::SodFailure),
            ("SOD check failed", Substatus::SodFailure),
            ("SOD failed, build passed", Substatus::SodFailure),
            ("sod: author is approver; branch protections satisfied", Substatus::SodFailure),
            ("SOD failed; build policy not met", Substatus::BuildFailure),
            ("Failing policies: sod, build", Substatus::BuildFailure),
            ("BUILD_FAILURE", Substatus::BuildFailure),
            ("Failed build", Substatus::BuildFailure),
            ("build failed and branch protection not met", Substatus::BuildFailure),
            ("Branch protection requirements not met", Substatus::BranchProtectionFailure),
            ("SOD failed and violates branch protection", Substatus::BranchProtectionFailure),
            ("failed: sod, branch protections", Substatus::BranchProtectionFailure),
            ("BRANCH_PROTECTION_FAILURE", Substatus::BranchProtectionFailure),
            ("Rebuilding the sodium library", Substatus::OtherPolicyFailure),
            ("0/1 rules approved", Substatus::OtherPolicyFailure),
            ("", Substatus::OtherPolicyFailure),
        ] {
            assert_eq!(bot.failure(description), expected, "{description}");
        }
    }

    #[test]
    fn bots_are_known_by_login_without_case() {
        let approver = ApproverBot::default();
        assert!(approver.is("Approver-Bot[bot]") && !approver.is("approver-bot") && !approver.is("automerge-bot[bot]"));
        let automerge = AutomergeBot::default();
        assert!(
            automerge.is("automerge-BOT[bot]") && !automerge.is("automerge-bot") && !automerge.is("approver-bot[bot]")
        );
    }

    proptest! {
        #[test]
        fn an_id_found_is_found_again_in_itself(text in "\\PC{0,40}(cve|CVE|Ghsa|VULN)-[0-9a-zA-Z-]{0,20}\\PC{0,10}") {
            let ours = Ours::default();
            if let Some(id) = ours.vulnerability_id(&[&text]) {
                prop_assert_eq!(ours.vulnerability_id(&[&id]), Some(id));
            }
        }
    }
}
