//! The tables of `suture.toml`, one struct each, every field with its default. The doc comments also appear in the JSON
//! schema, so editors show them. Allowed ranges are in `validate`; the failure rules are in `transient`.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use crate::state::{Strategy, Substatus};

/// Whether Suture acts, or only logs what it would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Diagnose and log what would be done; change nothing.
    #[default]
    Observe,
    /// Apply remedies and escalate.
    Act,
}

/// When a branch that lacks commits of its base branch counts as behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum BehindRule {
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
    /// A replay of the last build of that job, of the same revision.
    Replay,
    /// A new scan for branches and pull requests: for webhooks that Jenkins missed.
    Rescan,
    /// A comment that Jenkins reacts to.
    Comment,
    /// A rerun of failed jobs and check suites on GitHub.
    GitHub,
}

/// How a bot is retriggered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RetriggerVia {
    /// An event on the event bus.
    #[default]
    Bus,
    /// A label that is removed and added again.
    Label,
    /// A comment.
    Comment,
    /// An HTTP request.
    Http,
}

/// Defines one table of the file: a struct with a default for every field that rejects unknown fields.
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
    /// Which pull requests Suture manages: a match of author, branch or label is enough. A pull request from a fork needs
    /// the author, because everybody can open one with any branch name.
    ManagedSelector {
        /// Logins of the authors, compared without case; apps end in `[bot]`.
        authors: Vec<String> = texts(&["codegenie[bot]"]),
        /// Prefixes of the head branches.
        branch_prefixes: Vec<String> = texts(&["codegenie/"]),
        /// Labels, compared without case.
        labels: Vec<String> = texts(&["codegenie"]),
        /// Patterns of a vulnerability id in a title, a branch or a body; the first match counts. CVE and GHSA ids are
        /// normalised to their official spelling first, so `cve-2024-1234` in a branch is found too.
        vulnerability_patterns: Vec<Pattern> = VULNERABILITIES.clone(),
    }
}

table! {
    /// Continuous integration.
    Checks {
        /// The checks and statuses that must pass. Empty: those that GitHub requires; if GitHub does not tell, every
        /// check on the head commit.
        required: Vec<String> = Vec::new(),
        /// `strict`: a branch is behind only where its base requires up-to-date branches; `always`: everywhere.
        behind: BehindRule = BehindRule::Strict,
        /// Names of the checks and statuses that Jenkins reports. Their build logs are read.
        jenkins_patterns: Vec<Pattern> = JENKINS.clone(),
    }
}

table! {
    /// Policy Bot, which reports with a commit status or a check run.
    PolicyBot {
        /// The prefix of its status context; `policy-bot` matches `policy-bot` and `policy-bot: main`.
        context_prefix: String = "policy-bot".to_owned(),
        /// Its logins, compared without case. Under that context, a report by anybody else is an ordinary check.
        logins: Vec<String> = texts(&["policy-bot[bot]"]),
        /// The ids of its GitHub Apps: their check runs count too.
        app_ids: Vec<u64> = Vec::new(),
        /// Descriptions of a failed separation-of-duties (SOD) policy. It is retried, but only if no other policy failed.
        sod_patterns: Vec<Pattern> = SOD.clone(),
        /// Descriptions of a failed build policy; takes precedence over separation of duties.
        build_patterns: Vec<Pattern> = BUILD.clone(),
        /// Descriptions of failed branch protection; takes precedence over separation of duties.
        branch_protection_patterns: Vec<Pattern> = BRANCH_PROTECTION.clone(),
    }
}

table! {
    /// Approver Bot, which reports with a review.
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
        /// The job parameter for the commit; empty if the job builds only this pull request.
        sha_parameter: String = String::new(),
        /// The comment for `via = "comment"`.
        comment: String = "retest this please".to_owned(),
    }
}

table! {
    /// Suture's own check run on each head commit, which shows the status of the pull request. Needs a GitHub App.
    CheckRunSettings {
        /// Whether to publish it. Only in act mode: in observe mode Suture changes nothing.
        enabled: bool = false,
    }
}

table! {
    /// How one bot is retriggered.
    BotRetrigger {
        /// `bus`, `label`, `comment` or `http`.
        via: RetriggerVia = RetriggerVia::Bus,
        /// The label, the comment or the URL; unused for `bus`. In a comment, `{vulnerability_id}`, `{base_branch}` and
        /// `{number}` are replaced.
        target: String = String::new(),
    }
}

impl BotRetrigger {
    /// The comment, with its placeholders replaced.
    pub fn comment(&self, vulnerability_id: &str, base_branch: &str, number: u64) -> String {
        self.target
            .replace("{vulnerability_id}", vulnerability_id)
            .replace("{base_branch}", base_branch)
            .replace("{number}", &number.to_string())
    }
}

table! {
    /// How the bots are retriggered; by default with an event on the bus.
    Retrigger {
        /// Policy Bot.
        policy_bot: BotRetrigger = BotRetrigger::default(),
        /// The separation-of-duties validator.
        sod_validator: BotRetrigger = BotRetrigger::default(),
        /// Approver Bot.
        approver_bot: BotRetrigger = BotRetrigger::default(),
        /// Automerge Bot.
        automerge_bot: BotRetrigger = BotRetrigger::default(),
        /// CodeGenie, which opens the pull requests: how a replacement or the pull request of an issue is requested.
        codegenie: BotRetrigger = BotRetrigger::default(),
    }
}

impl Retrigger {
    /// How the bot of this strategy is retriggered; `None` for strategies without a bot.
    pub fn of(&self, strategy: Strategy) -> Option<&BotRetrigger> {
        match strategy {
            Strategy::RetriggerPolicyBot => Some(&self.policy_bot),
            Strategy::RetriggerSodCheck => Some(&self.sod_validator),
            Strategy::RetriggerApproverBot => Some(&self.approver_bot),
            Strategy::RetriggerAutomergeBot => Some(&self.automerge_bot),
            Strategy::CloseAndReopen => Some(&self.codegenie),
            Strategy::Rebuild | Strategy::BranchUpdate => None,
        }
    }
}

table! {
    /// Which rules apply.
    Rules {
        /// Also remedy pull requests whose checks never started or never finished, or whose merge hangs.
        extended: bool = true,
        /// Strategies that need a person's approval before they run; suggested: `close_and_reopen`.
        approval_required: Vec<Strategy> = Vec::new(),
    }
}

table! {
    /// How many minutes a pull request may stay in a state before it is stale.
    Thresholds {
        /// CREATED: checks should start almost immediately.
        created: u32 = 5,
        /// CHECKS_RUNNING: builds are slow, but not this slow.
        checks_running: u32 = 60,
        /// CHECKS_FAILED: time for a person to fix it first.
        checks_failed: u32 = 30,
        /// CHECKS_PASSED: Policy Bot should have started.
        checks_passed: u32 = 30,
        /// POLICY_EVALUATING: Policy Bot should have reported.
        policy_evaluating: u32 = 30,
        /// POLICY_FAILED: a separation-of-duties failure may resolve without action.
        policy_failed: u32 = 15,
        /// POLICY_PASSED: Approver Bot should have approved.
        policy_passed: u32 = 15,
        /// APPROVED: Automerge Bot should have started.
        approved: u32 = 10,
        /// MERGING: a merge is quick.
        merging: u32 = 5,
    }
}

table! {
    /// How often each remedy may run automatically before the pull request is escalated to a person; 0 means never.
    Budgets {
        /// Run the checks again.
        rebuild: u32 = 3,
        /// Merge the base branch into the head.
        branch_update: u32 = 2,
        /// Retrigger Policy Bot.
        retrigger_policy_bot: u32 = 2,
        /// Retrigger Approver Bot.
        retrigger_approver_bot: u32 = 2,
        /// Retrigger Automerge Bot.
        retrigger_automerge_bot: u32 = 2,
        /// Request the separation-of-duties check again; its failures are usually real.
        retrigger_sod_check: u32 = 1,
        /// Close the pull request and request a new one; counted per vulnerability, never reset.
        close_and_reopen: u32 = 1,
        /// All remedies of one pull request together, even if the other budgets reset: ends every loop.
        lifetime: u32 = 12,
    }
}

table! {
    /// How long to wait between attempts.
    Backoff {
        /// The first wait; each next one is twice as long.
        base_secs: u32 = 30,
        /// The longest wait.
        max_secs: u32 = 600,
        /// The least time between two automatic remedies of one pull request, unless it progressed in between.
        cooldown_secs: u32 = 900,
    }
}

table! {
    /// The circuit breaker: stops all automatic remedies when too many of them fail.
    Breaker {
        /// The period over which remedies are counted.
        window_minutes: u32 = 15,
        /// The breaker opens above this share of failures, greater than 0 and at most 1.
        failure_threshold: f64 = 0.5,
        /// The breaker opens only above this many remedies in the window: two failures of three prove little.
        minimum_actions: u32 = 5,
        /// How long the breaker stays open before one remedy runs as a probe.
        cooldown_minutes: u32 = 10,
    }
}

table! {
    /// Rate, concurrency and size limits.
    Limits {
        /// Webhooks of one repository per minute that are handled immediately; more are queued, never dropped.
        webhooks_per_minute_per_repo: u32 = 30,
        /// Builds started by Suture that may run in one repository at the same time.
        rebuilds_in_flight_per_repo: u32 = 2,
        /// Commands per person and pull request per hour.
        commands_per_person_per_hour: u32 = 20,
        /// Checks and statuses stored per head commit; a record must fit into one DynamoDB item.
        checks_per_head: u32 = 250,
        /// Remedies in progress at the same time, over all repositories.
        remedies_in_flight: u32 = 10,
        /// Requests per API key per minute.
        api_requests_per_minute_per_key: u32 = 600,
    }
}

table! {
    /// The reconciler's scheduled sweep over pull requests that are due.
    Sweep {
        /// The interval; the deployed schedule must match.
        every_minutes: u32 = 1,
        /// Pull requests processed at the same time.
        concurrency: u32 = 8,
        /// Pull requests per sweep; the rest stays due for the next one.
        max_prs: u32 = 500,
        /// Every how many sweeps GitHub's open pull requests are listed, to find those whose webhook was lost.
        inventory_every: u32 = 12,
    }
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DayOfWeek {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

table! {
    /// When GitHub's silence raises an alarm.
    WebhookSilence {
        /// Minutes without a webhook within business hours; 0 turns the alarm off.
        minutes: u32 = 120,
        /// The hour (UTC) at which a business day begins.
        from_hour: u32 = 7,
        /// The hour (UTC) at which it ends; if it is not after `from_hour`, on the next day.
        to_hour: u32 = 18,
        /// The days on which business hours begin.
        days: Vec<DayOfWeek> = vec![DayOfWeek::Mon, DayOfWeek::Tue, DayOfWeek::Wed, DayOfWeek::Thu, DayOfWeek::Fri],
    }
}

table! {
    /// Reconcile requests, which run before the next scheduled sweep: one pull request, a base branch, or everything.
    Triggers {
        /// A request from a webhook starts once no newer one has come for this long; a person's request starts at once.
        debounce_secs: u32 = 10,
        /// The longest time that a request from a webhook waits.
        max_debounce_secs: u32 = 120,
        /// Requests per repository and day (UTC), coalesced ones counted once; more are left to the scheduled sweep.
        per_repo_per_day: u32 = 100,
        /// Requests per repository owner and day (UTC); requests for everything are not counted.
        per_org_per_day: u32 = 1000,
        /// Requests processed at the same time, over all repositories; at most one per repository.
        max_concurrent: u32 = 5,
        /// How often a failed request is retried.
        retries: u32 = 3,
        /// The time limit of a request; unfinished pull requests stay due.
        timeout_minutes: u32 = 10,
        /// Pull requests per request, highest priority first; the others are left to the scheduled sweep.
        max_prs: u32 = 50,
    }
}

table! {
    /// How long data is kept.
    Retention {
        /// Records of merged and closed pull requests.
        terminal_hours: u32 = 24,
        /// The event log; at least 3, because GitHub redelivers webhooks for 3 days and the log detects duplicates.
        events_days: u32 = 90,
        /// Records of remedies and sweeps.
        runs_days: u32 = 30,
    }
}

pub(super) fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

/// Compares logins and labels without case, as GitHub does; ASCII is enough for both.
pub(super) fn contains(list: &[String], item: &str) -> bool {
    list.iter().any(|entry| entry.eq_ignore_ascii_case(item))
}

impl ManagedSelector {
    /// The vulnerability id of a pull request, from the first of the texts (title, branch, body) that has one.
    ///
    /// The id is a key, so it needs one spelling: `CVE-2024-1234` becomes upper case, `GHSA-xxxx-xxxx-xxxx` lower case
    /// after its prefix. Other ids are kept as found, because only those two are known to ignore case.
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

impl Checks {
    /// Whether Jenkins reports the check or status with this name.
    pub fn is_jenkins(&self, name: &str) -> bool {
        self.jenkins_patterns.iter().any(|pattern| pattern.is_match(name))
    }
}

impl PolicyBot {
    /// The substatus for the description of a failed policy. SOD_FAILURE only if no other policy failed with it.
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

/// The two kinds of vulnerability id with an official spelling.
#[expect(clippy::expect_used, reason = "a constant, compiled by the tests")]
static OFFICIAL_ID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)CVE-[0-9]{4}-[0-9]{4,}|GHSA((?:-[0-9a-z]{4}){3})").expect("a constant pattern compiles")
});

// Static, so that every policy shares the same compiled patterns.
static VULNERABILITIES: LazyLock<Vec<Pattern>> =
    LazyLock::new(|| known(&[r"CVE-\d{4}-\d{4,}", r"GHSA(-[0-9a-z]{4}){3}", r"VULN-[A-Za-z0-9]+"]));
static JENKINS: LazyLock<Vec<Pattern>> = LazyLock::new(|| known(&[r"(?i)jenkins"]));
static SOD: LazyLock<Vec<Pattern>> = LazyLock::new(|| known(&[r"(?i)separation of duties", r"(?i)\bsod\b"]));
// "separation of duties failed, build passed" must stay SOD, so a pattern needs "build" together with a failure word.
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
        for pattern in
            [&VULNERABILITIES, &JENKINS, &bot.sod_patterns, &bot.build_patterns, &bot.branch_protection_patterns]
                .into_iter()
                .flatten()
        {
            assert_eq!(&Pattern::new(pattern.as_str()).unwrap(), pattern);
        }
        assert_eq!(VULNERABILITIES.len(), 3);
        assert_eq!(bot.sod_patterns, [r"(?i)separation of duties", r"(?i)\bsod\b"].map(Pattern::known));
    }

    #[test]
    fn vulnerability_id_has_one_spelling() {
        let managed = ManagedSelector::default();
        let id = |texts: &[&str]| managed.vulnerability_id(texts);
        assert_eq!(id(&["Fix lodash", "codegenie/cve-2024-12345-lodash"]).as_deref(), Some("CVE-2024-12345"));
        assert_eq!(id(&["ghsa-ABCD-0e9f-x2x3 in a title", "CVE-2024-1111"]).as_deref(), Some("GHSA-abcd-0e9f-x2x3"));
        assert_eq!(id(&["both GHSA-aaaa-bbbb-cccc and CVE-2024-1111"]).as_deref(), Some("CVE-2024-1111"));
        assert_eq!(id(&["VULN-aB3"]).as_deref(), Some("VULN-aB3"));
        assert_eq!(id(&["codegenie/vuln-fix", "CVE-2024-123", "GHSA-aaaa-bbbb", ""]), None);
        assert_eq!(id(&[]), None);
        let custom =
            ManagedSelector { vulnerability_patterns: vec![Pattern::known("x*")], ..ManagedSelector::default() };
        assert_eq!(custom.vulnerability_id(&["abc"]), None);
        let none = ManagedSelector { vulnerability_patterns: Vec::new(), ..ManagedSelector::default() };
        assert_eq!(none.vulnerability_id(&["CVE-2024-1111"]), None);
    }

    #[test]
    fn sod_failure_only_if_no_other_policy_failed() {
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
    fn every_bot_setting_belongs_to_a_strategy() {
        let retrigger = Retrigger {
            codegenie: BotRetrigger {
                via: RetriggerVia::Comment,
                target: "@codegenie fix {vulnerability_id} on {base_branch}, not in #{number}".to_owned(),
            },
            ..Retrigger::default()
        };
        let strategies = crate::state::Strategy::ALL.into_iter();
        assert_eq!(strategies.filter(|strategy| retrigger.of(*strategy).is_some()).count(), 5);
        let comment = retrigger.codegenie.comment("CVE-2026-1", "release/1.x", 7);
        assert_eq!(comment, "@codegenie fix CVE-2026-1 on release/1.x, not in #7");
    }

    #[test]
    fn bot_logins_match_without_case() {
        let approver = ApproverBot::default();
        assert!(approver.is("Approver-Bot[bot]") && !approver.is("approver-bot") && !approver.is("automerge-bot[bot]"));
        let automerge = AutomergeBot::default();
        assert!(
            automerge.is("automerge-BOT[bot]") && !automerge.is("automerge-bot") && !automerge.is("approver-bot[bot]")
        );
    }

    proptest! {
        #[test]
        fn vulnerability_id_is_found_in_itself(text in "\\PC{0,40}(cve|CVE|Ghsa|VULN)-[0-9a-zA-Z-]{0,20}\\PC{0,10}") {
            let managed = ManagedSelector::default();
            if let Some(id) = managed.vulnerability_id(&[&text]) {
                prop_assert_eq!(managed.vulnerability_id(&[&id]), Some(id));
            }
        }
    }
}
