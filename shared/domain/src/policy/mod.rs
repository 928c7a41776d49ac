//! The typed settings of `suture.toml` with their defaults, and the overrides per repository. The tables are in
//! `sections`, parsing is in `load`, range checks are in `validate`. Nothing here reads a file.

mod coordination;
mod identity;
mod load;
mod pattern;
#[cfg(feature = "schema")]
mod schema;
mod sections;
mod url;
mod validate;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

pub use self::coordination::{Backlog, Coordination, PostMergeHealth, StatusIssue};
pub use self::identity::{PullRequestOrigin, ReportAuthor};
pub use self::load::{ConfigProblem, PolicyError};
pub use self::pattern::{CompiledPattern, InvalidPattern, Pattern, TextPattern};
#[cfg(feature = "schema")]
pub use self::schema::schema;
pub use self::sections::{
    ApproverBot, AutomergeBot, Backoff, BehindRule, BotRetrigger, Breaker, Budgets, CheckRunSettings, Checks,
    DayOfWeek, Limits, ManagedSelector, Mode, PolicyBot, Rebuild, RebuildVia, Retention, Retrigger, RetriggerVia,
    Rules, Sweep, Thresholds, Triggers, WebhookSilence,
};
pub use self::url::is_secure_url;
use crate::id::RepoName;
use crate::state::{State, Strategy};
use crate::transient::{NeverTransientRules, TransientRules};

/// All settings for one repository. `suture.toml` holds one, plus overrides in `[repos."owner/name"]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// `observe`: only log what would be done; `act`: do it.
    pub mode: Mode,
    /// Which pull requests Suture manages.
    pub managed: ManagedSelector,
    /// Continuous integration.
    pub checks: Checks,
    /// Policy Bot.
    pub policy_bot: PolicyBot,
    /// Approver Bot.
    pub approver_bot: ApproverBot,
    /// Automerge Bot.
    pub automerge_bot: AutomergeBot,
    /// How checks are run again.
    pub rebuild: Rebuild,
    /// Suture's own check run, which shows the status of a pull request.
    pub check_run: CheckRunSettings,
    /// How the bots are retriggered.
    pub retrigger: Retrigger,
    /// Which rules apply.
    pub rules: Rules,
    /// When a pull request is stale, by state.
    pub thresholds_minutes: Thresholds,
    /// How often each remedy may run.
    pub budgets: Budgets,
    /// How long to wait between attempts.
    pub backoff: Backoff,
    /// The circuit breaker.
    pub breaker: Breaker,
    /// Rate, concurrency and size limits.
    pub limits: Limits,
    /// The reconciler's scheduled sweep.
    pub sweep: Sweep,
    /// When GitHub's silence raises an alarm.
    pub webhook_silence: WebhookSilence,
    /// Reconcile requests, which run before the next scheduled sweep.
    pub triggers: Triggers,
    /// How long data is kept.
    pub retention: Retention,
    /// Limits on work in progress across repositories.
    pub coordination: Coordination,
    /// Health checks after merges.
    pub post_merge_health: PostMergeHealth,
    /// An issue that shows the current status.
    pub status_issue: StatusIssue,
    /// Issues that become pull requests.
    pub backlog: Backlog,
    /// Failures that are never retried, by name; matched before `transient`.
    pub never_transient: NeverTransientRules,
    /// Failures that are retried, by name.
    pub transient: TransientRules,
    /// The address of GitHub's pages. It follows from the address of its API, so it is not a setting of the file.
    #[serde(skip)]
    pub github_url: GithubUrl,
}

/// The address of GitHub's pages, for links to pull requests whose page GitHub has not named yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GithubUrl(pub String);

impl Default for GithubUrl {
    fn default() -> Self {
        Self("https://github.com".to_owned())
    }
}

impl GithubUrl {
    /// From the address of the API: `https://HOST/api/v3` with GitHub Enterprise Server, `https://api.HOST` otherwise.
    pub fn from_api_url(url: &str) -> Self {
        let url = url.trim_end_matches('/');
        let url = ["/api/v3", "/api"].iter().find_map(|path| url.strip_suffix(path)).unwrap_or(url);
        Self(url.replacen("://api.", "://", 1))
    }
}

impl Policy {
    /// How long a pull request may stay in a state; `None` for MERGED, CLOSED and NEEDS_INTERVENTION.
    pub fn threshold(&self, state: State) -> Option<SignedDuration> {
        let minutes = &self.thresholds_minutes;
        let minutes = match state {
            State::Created => minutes.created,
            State::ChecksRunning => minutes.checks_running,
            State::ChecksFailed => minutes.checks_failed,
            State::ChecksPassed => minutes.checks_passed,
            State::PolicyEvaluating => minutes.policy_evaluating,
            State::PolicyFailed => minutes.policy_failed,
            State::PolicyPassed => minutes.policy_passed,
            State::Approved => minutes.approved,
            State::Merging => minutes.merging,
            State::Merged | State::Closed | State::NeedsIntervention => return None,
        };
        Some(SignedDuration::from_mins(i64::from(minutes)))
    }

    /// How often a strategy may run automatically; 0 means never.
    pub fn budget(&self, strategy: Strategy) -> u32 {
        match strategy {
            Strategy::Rebuild => self.budgets.rebuild,
            Strategy::BranchUpdate => self.budgets.branch_update,
            Strategy::RetriggerPolicyBot => self.budgets.retrigger_policy_bot,
            Strategy::RetriggerApproverBot => self.budgets.retrigger_approver_bot,
            Strategy::RetriggerAutomergeBot => self.budgets.retrigger_automerge_bot,
            Strategy::RetriggerSodCheck => self.budgets.retrigger_sod_check,
            Strategy::CloseAndReopen => self.budgets.close_and_reopen,
        }
    }

    /// Whether this is Suture's own check run, which Suture must never wait for.
    pub fn is_own_check(&self, name: &str) -> bool {
        self.check_run.enabled && name == crate::text::check_run::CHECK_RUN_NAME
    }

    /// Whether a status context is Policy Bot's. A report by Policy Bot is then a policy signal, never a check.
    pub fn is_policy_context(&self, context: &str) -> bool {
        self.policy_bot.is_context(context)
    }
}

/// The policies of all repositories: one base policy and the overrides of single repositories.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policies {
    base: Policy,
    /// By lower-case name, because GitHub compares names without case.
    repos: BTreeMap<String, Policy>,
}

impl Policies {
    /// Parses the text of a `suture.toml`.
    ///
    /// The error lists every problem, not only the first.
    pub fn parse(toml_text: &str) -> Result<Self, PolicyError> {
        load::parse(toml_text)
    }

    /// The same policies with this address of GitHub's pages.
    #[must_use]
    pub fn with_github_url(mut self, url: &GithubUrl) -> Self {
        for policy in std::iter::once(&mut self.base).chain(self.repos.values_mut()) {
            policy.github_url = url.clone();
        }
        self
    }

    /// The policy of a repository: its own if it has overrides, else the base policy.
    pub fn for_repo(&self, repo: &RepoName) -> &Policy {
        self.repos.get(&repo.as_str().to_ascii_lowercase()).unwrap_or(&self.base)
    }

    /// Whether a bot is retriggered by HTTP, in any repository.
    pub fn retriggers_by_http(&self) -> bool {
        let by_http = |policy: &Policy| {
            let mut bots = Strategy::ALL.into_iter().filter_map(|strategy| policy.retrigger.of(strategy));
            bots.any(|bot| bot.via == RetriggerVia::Http)
        };
        by_http(&self.base) || self.repos.values().any(by_http)
    }

    /// The policy of every repository without overrides.
    pub fn base(&self) -> &Policy {
        &self.base
    }

    /// The repositories with overrides, in lower case, and their policies.
    pub fn overrides(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.repos.iter().map(|(name, policy)| (name.as_str(), policy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(name: &str) -> RepoName {
        name.parse().unwrap()
    }

    #[test]
    fn github_url_follows_from_the_api_url() {
        for (api, pages) in [
            ("https://api.github.com", "https://github.com"),
            ("https://api.github.com/", "https://github.com"),
            ("https://ghe.example.org/api/v3", "https://ghe.example.org"),
            ("https://ghe.example.org/api/v3/", "https://ghe.example.org"),
            ("https://api.tenant.ghe.com", "https://tenant.ghe.com"),
            ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
        ] {
            assert_eq!(GithubUrl::from_api_url(api).0, pages, "{api}");
        }
        assert_eq!(GithubUrl::default(), GithubUrl::from_api_url("https://api.github.com"));
        let policies = Policies::parse("[repos.'acme/shop']\nmode = 'act'").unwrap();
        let policies = policies.with_github_url(&GithubUrl("https://ghe.example.org".to_owned()));
        for name in ["acme/shop", "acme/other"] {
            assert_eq!(policies.for_repo(&repo(name)).github_url.0, "https://ghe.example.org");
        }
    }

    #[test]
    fn default_thresholds() {
        let policy = Policy::default();
        let minutes: Vec<Option<i64>> =
            State::ALL.map(|state| policy.threshold(state).map(|threshold| threshold.as_secs() / 60)).into();
        let expected = [5, 60, 30, 30, 30, 15, 15, 10, 5].map(Some).into_iter().chain([None; 3]);
        assert_eq!(minutes, expected.collect::<Vec<_>>());

        let thresholds_minutes = Thresholds {
            created: 1,
            checks_running: 2,
            checks_failed: 3,
            checks_passed: 4,
            policy_evaluating: 5,
            policy_failed: 6,
            policy_passed: 7,
            approved: 8,
            merging: u32::MAX,
        };
        let policy = Policy { thresholds_minutes, ..Policy::default() };
        let secs: Vec<i64> =
            State::ALL.into_iter().filter_map(|state| policy.threshold(state)).map(|t| t.as_secs()).collect();
        assert_eq!(secs, [60, 120, 180, 240, 300, 360, 420, 480, 257_698_037_700]);
    }

    #[test]
    fn default_budgets() {
        let mut policy = Policy::default();
        assert_eq!(Strategy::ALL.map(|strategy| policy.budget(strategy)), [3, 2, 2, 2, 2, 1, 1]);
        assert_eq!(policy.budgets.lifetime, 12);
        policy.budgets = Budgets {
            rebuild: 1,
            branch_update: 2,
            retrigger_policy_bot: 3,
            retrigger_approver_bot: 4,
            retrigger_automerge_bot: 5,
            retrigger_sod_check: 6,
            close_and_reopen: 7,
            lifetime: 8,
        };
        assert_eq!(Strategy::ALL.map(|strategy| policy.budget(strategy)), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn other_defaults() {
        let policy = Policy::default();
        assert_eq!((policy.mode, policy.checks.behind), (Mode::Observe, BehindRule::Strict));
        assert!(policy.rules.extended && policy.rules.approval_required.is_empty());
        assert_eq!(policy.backoff, Backoff { base_secs: 30, max_secs: 600, cooldown_secs: 900 });
        let breaker = Breaker { window_minutes: 15, failure_threshold: 0.5, minimum_actions: 5, cooldown_minutes: 10 };
        assert_eq!(policy.breaker, breaker);
        let limits = Limits {
            webhooks_per_minute_per_repo: 30,
            rebuilds_in_flight_per_repo: 2,
            commands_per_person_per_hour: 20,
            checks_per_head: 250,
            remedies_in_flight: 10,
            api_requests_per_minute_per_key: 600,
        };
        assert_eq!(policy.limits, limits);
        let sweep = Sweep { every_minutes: 1, concurrency: 8, max_prs: 500, inventory_every: 12 };
        assert_eq!(policy.sweep, sweep);
        let triggers = Triggers {
            debounce_secs: 10,
            max_debounce_secs: 120,
            per_repo_per_day: 100,
            per_org_per_day: 1000,
            max_concurrent: 5,
            retries: 3,
            timeout_minutes: 10,
            max_prs: 50,
        };
        assert_eq!(policy.triggers, triggers);
        assert_eq!(policy.retention, Retention { terminal_hours: 24, events_days: 90, runs_days: 30 });
    }

    #[test]
    fn sample_file_has_the_defaults() {
        let sample = Policies::parse(include_str!("../../../../suture.toml")).unwrap();
        assert_eq!(sample, Policies::default());
    }

    #[test]
    fn sample_override_is_valid() {
        let sample = include_str!("../../../../suture.toml");
        let (_, example) = sample.split_once("# [repos.").unwrap();
        let policies = Policies::parse(&format!("[repos.{}", example.replace("# ", ""))).unwrap();
        let policy = policies.for_repo(&repo("acme/payments"));
        assert_eq!((policy.mode, policy.thresholds_minutes.checks_running), (Mode::Act, 120));
        assert_eq!(policy.checks.required, ["continuous-integration/jenkins/pr-merge"]);
        assert!(!policy.transient.0["timeout"].enabled);
    }

    #[test]
    fn override_merges_tables_and_replaces_lists() {
        let policies = Policies::parse(
            r#"
            mode = "act"
            [budgets]
            rebuild = 4
            branch_update = 5
            [managed]
            authors = ["a", "b"]
            [transient.mine]
            patterns = ["flux"]
            sources = ["ci"]
            [repos."Acme/App"]
            mode = "observe"
            budgets.rebuild = 6
            managed.authors = ["c"]
            transient.mine.sources = []
            transient.network.enabled = false
            "#,
        )
        .unwrap();
        let own: Vec<(&str, u32)> = policies.overrides().map(|(name, policy)| (name, policy.budgets.rebuild)).collect();
        assert_eq!(own, [("acme/app", 6)]);
        let base = policies.base();
        let app = policies.for_repo(&repo("aCME/aPP"));
        assert_eq!((base.mode, base.budgets.rebuild, base.budgets.branch_update), (Mode::Act, 4, 5));
        assert_eq!((app.mode, app.budgets.rebuild, app.budgets.branch_update), (Mode::Observe, 6, 5));
        assert_eq!((app.budgets.close_and_reopen, app.managed.authors.as_slice()), (1, ["c".to_owned()].as_slice()));
        assert_eq!(app.managed.labels, ["codegenie"]);
        assert_eq!(base.transient.0["mine"].sources, [TextPattern::known("ci")]);
        assert_eq!(app.transient.0["mine"].sources, []);
        assert_eq!(app.transient.0["mine"].patterns, [TextPattern::known("flux")]);
        assert!(base.transient.0["network"].enabled && !app.transient.0["network"].enabled);
        assert_eq!(app.transient.0["network"].patterns, base.transient.0["network"].patterns);
        assert_eq!(app.transient.0.len(), 11);
        assert_eq!(policies.for_repo(&repo("acme/other")), base);
        assert_ne!(app, base);
    }

    #[test]
    fn policy_bot_context_is_not_a_check() {
        let policy = Policy::default();
        for context in ["policy-bot", "policy-bot: main", "policy-bot/main", "policy-bot main"] {
            assert!(policy.is_policy_context(context), "{context}");
        }
        for context in ["policy-bottle", "policy-bot-staging: main", "my policy-bot", "Policy-bot", "policy", ""] {
            assert!(!policy.is_policy_context(context), "{context}");
        }
        let colon = Policies::parse("policy_bot.context_prefix = 'policy-bot:'").unwrap();
        assert!(colon.base().is_policy_context("policy-bot:main") && !colon.base().is_policy_context("policy-bot"));
    }
}
