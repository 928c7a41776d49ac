//! What a policy may not say although it can be read: numbers that would make Suture act at once, never, or for ever,
//! and names that match nothing or everything. Each upper bound is far beyond use and far below where sums of times and
//! counts could overflow.

use super::Policy;
use super::coordination::{Backlog, Coordination, Sentinel, Status};
use super::sections::{Backoff, Breaker, Budgets, Limits, Ours, Retention, Sweep, Thresholds, Triggers, Wake, WakeUp};
use crate::coordination::is_peoples;
use crate::id::RepoName;
use crate::state::Strategy;
use crate::transient::TransientRule;

/// 30 days: whatever waits longer is forgotten, not waited for.
const MOST_MINUTES: u32 = 43_200;
/// A day.
const MOST_SECS: u32 = 86_400;
/// Ten years.
const MOST_DAYS: u32 = 3_650;

/// A field's path, and the rest of the sentence that begins with it.
pub(super) type Finding = (String, String);

/// Everything that is wrong with a policy.
pub(super) fn validate(policy: &Policy) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    findings.ours(&policy.ours);
    findings.names("checks.required", &policy.checks.required, "no check has an empty name");
    for (n, name) in policy.checks.required.iter().enumerate() {
        if policy.is_policy_context(name) {
            let sentence =
                "must not be Policy Bot's own context: that is a policy, never a check, and would be awaited for ever";
            findings.add(format!("checks.required[{n}]"), sentence);
        }
        if policy.is_own_check(name) {
            let sentence = "must not be Suture's own check run: Suture would wait for itself for ever";
            findings.add(format!("checks.required[{n}]"), sentence);
        }
    }
    if policy.policy_bot.context_prefix.trim().is_empty() {
        findings.add("policy_bot.context_prefix", "must not be empty: every status would be taken for Policy Bot's");
    }
    if policy.approver_bot.logins.is_empty() {
        findings.add("approver_bot.logins", "must name at least one login: no approval would ever be recognised");
    }
    findings.names("approver_bot.logins", &policy.approver_bot.logins, "nobody has an empty login");
    findings.names("automerge_bot.logins", &policy.automerge_bot.logins, "nobody has an empty login");
    if policy.rebuild.job.trim().is_empty() {
        findings.add("rebuild.job", "must not be empty: no build could be started or found");
    }
    findings.wake(&policy.wake);
    findings.thresholds(&policy.thresholds_minutes);
    findings.budgets(policy, &policy.budgets);
    findings.backoff(&policy.backoff);
    findings.breaker(&policy.breaker);
    findings.limits(&policy.limits);
    findings.sweep(&policy.sweep);
    findings.triggers(&policy.triggers);
    findings.retention(&policy.retention);
    findings.coordination(&policy.coordination);
    findings.sentinel(&policy.sentinel, &policy.retention);
    findings.status(&policy.status);
    findings.backlog(&policy.backlog);
    for (name, rule) in &policy.never_transient.0 {
        findings.rule("never_transient", name, rule);
    }
    for (name, rule) in &policy.transient.0 {
        findings.rule("transient", name, rule);
    }
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, sentence: impl Into<String>) {
        self.0.push((field.into(), sentence.into()));
    }

    /// `why` says what would happen below the least value.
    fn number(&mut self, field: &str, value: u32, least: u32, most: u32, why: &str) {
        if value < least {
            self.add(field, format!("must be at least {least} (it is {value}): {why}"));
        }
        if value > most {
            self.add(field, format!("must be at most {most} (it is {value})"));
        }
    }

    fn names(&mut self, field: &str, names: &[String], why: &str) {
        for (n, name) in names.iter().enumerate() {
            if name.trim().is_empty() {
                self.add(format!("{field}[{n}]"), format!("must not be empty: {why}"));
            }
        }
    }

    fn ours(&mut self, ours: &Ours) {
        let Ours { authors, branch_prefixes, labels, vulnerability_patterns: _ } = ours;
        if authors.is_empty() && branch_prefixes.is_empty() && labels.is_empty() {
            self.add(
                "ours",
                "must name at least one author, branch prefix or label: no pull request would ever be ours",
            );
        }
        self.names("ours.authors", authors, "nobody has an empty login");
        self.names("ours.branch_prefixes", branch_prefixes, "every pull request would be ours");
        self.names("ours.labels", labels, "no label has an empty name");
    }

    fn thresholds(&mut self, thresholds: &Thresholds) {
        let at_once = "a pull request would be stale the moment it gets there";
        let opened = "a pull request would be stale the moment it is opened";
        for (state, minutes, why) in [
            ("created", thresholds.created, opened),
            ("checks_running", thresholds.checks_running, at_once),
            ("checks_failed", thresholds.checks_failed, at_once),
            ("checks_passed", thresholds.checks_passed, at_once),
            ("policy_evaluating", thresholds.policy_evaluating, at_once),
            ("policy_failed", thresholds.policy_failed, at_once),
            ("policy_passed", thresholds.policy_passed, at_once),
            ("approved", thresholds.approved, at_once),
            ("merging", thresholds.merging, at_once),
        ] {
            self.number(&format!("thresholds_minutes.{state}"), minutes, 1, MOST_MINUTES, why);
        }
    }

    /// A budget of 0 is legal: never automatically.
    fn budgets(&mut self, policy: &Policy, budgets: &Budgets) {
        let mut largest = (0, Strategy::Rebuild);
        for strategy in Strategy::ALL {
            let budget = policy.budget(strategy);
            self.number(&format!("budgets.{strategy}"), budget, 0, 100, "");
            if budget > largest.0 {
                largest = (budget, strategy);
            }
        }
        let (least, strategy) = largest;
        let why = format!("budgets.{strategy} alone allows {least}, so the rest of it could never be used");
        self.number("budgets.lifetime", budgets.lifetime, least, 1_000, &why);
    }

    fn backoff(&mut self, backoff: &Backoff) {
        let Backoff { base_secs, max_secs, cooldown_secs } = *backoff;
        self.number("backoff.base_secs", base_secs, 1, MOST_SECS, "twice nothing is still nothing");
        self.number("backoff.max_secs", max_secs, 1, MOST_SECS, "there would be no wait at all");
        self.number("backoff.cooldown_secs", cooldown_secs, 0, MOST_SECS, "");
        if base_secs > max_secs {
            self.add(
                "backoff.base_secs",
                format!("must not be greater than backoff.max_secs (it is {base_secs}, the other is {max_secs})"),
            );
        }
    }

    fn breaker(&mut self, breaker: &Breaker) {
        let Breaker { window_minutes, failure_threshold, minimum_actions, cooldown_minutes } = *breaker;
        self.number("breaker.window_minutes", window_minutes, 1, 1_440, "no failure would ever be counted");
        self.number("breaker.minimum_actions", minimum_actions, 1, 10_000, "a single failure would stop everything");
        self.number("breaker.cooldown_minutes", cooldown_minutes, 1, 1_440, "it would close the moment it opens");
        // Written so that NaN, which is neither greater nor less than anything, is refused too.
        if !(failure_threshold > 0.0 && failure_threshold <= 1.0) {
            self.add(
                "breaker.failure_threshold",
                format!(
                    "must be greater than 0 and at most 1 (it is {failure_threshold}): it is a share of all remedies"
                ),
            );
        }
    }

    fn limits(&mut self, limits: &Limits) {
        let put_off = "every webhook would be put off for ever";
        let no_rebuilds = "to forbid rebuilds, set budgets.rebuild = 0";
        let no_commands = "nobody could ask for anything";
        let no_checks = "no check would ever be remembered";
        let no_remedies = "nothing would ever be remedied; that is mode = \"observe\"";
        let no_api = "nobody could use the API; to lock a key out, take it off SUTURE_ADMIN_KEYS";
        for (limit, value, most, why) in [
            ("webhooks_per_minute_per_repo", limits.webhooks_per_minute_per_repo, 100_000, put_off),
            ("rebuilds_in_flight_per_repo", limits.rebuilds_in_flight_per_repo, 1_000, no_rebuilds),
            ("commands_per_person_per_hour", limits.commands_per_person_per_hour, 10_000, no_commands),
            ("checks_per_head", limits.checks_per_head, 300, no_checks),
            ("remedies_in_flight", limits.remedies_in_flight, 1_000, no_remedies),
            ("api_requests_per_minute_per_key", limits.api_requests_per_minute_per_key, 100_000, no_api),
        ] {
            self.number(&format!("limits.{limit}"), value, 1, most, why);
        }
    }

    fn sweep(&mut self, sweep: &Sweep) {
        let Sweep { every_minutes, concurrency, max_prs, inventory_every } = *sweep;
        self.number("sweep.every_minutes", every_minutes, 1, 1_440, "a schedule needs an interval");
        // GitHub allows 100 requests at a time.
        self.number("sweep.concurrency", concurrency, 1, 100, "no pull request would ever be looked at");
        self.number("sweep.max_prs", max_prs, 1, 100_000, "no pull request would ever be looked at");
        let unheard = "a pull request never heard of would stay so";
        self.number("sweep.inventory_every", inventory_every, 1, 100_000, unheard);
    }

    fn triggers(&mut self, triggers: &Triggers) {
        let none = "no request would ever be taken";
        let Triggers { quiet_secs, longest_wait_secs, at_once, retries, timeout_minutes, max_prs, .. } = *triggers;
        self.number("triggers.quiet_secs", quiet_secs, 0, MOST_SECS, "");
        self.number("triggers.longest_wait_secs", longest_wait_secs, quiet_secs, MOST_SECS, "it would never be quiet");
        self.number("triggers.per_repo_per_day", triggers.per_repo_per_day, 1, 1_000_000, none);
        self.number("triggers.per_org_per_day", triggers.per_org_per_day, 1, 1_000_000, none);
        self.number("triggers.at_once", at_once, 1, 100, "no request would ever begin");
        self.number("triggers.retries", retries, 0, 100, "");
        let unread = "in its last minute nothing is read from GitHub";
        self.number("triggers.timeout_minutes", timeout_minutes, 2, 1_440, unread);
        self.number("triggers.max_prs", max_prs, 1, 10_000, "no pull request would ever be looked at");
    }

    fn retention(&mut self, retention: &Retention) {
        let Retention { terminal_hours, events_days, runs_days } = *retention;
        let late = "a late webhook would open a merged pull request anew";
        self.number("retention.terminal_hours", terminal_hours, 1, MOST_DAYS * 24, late);
        let duplicates = "GitHub redelivers webhooks for 3 days, and the event log is what tells a duplicate";
        self.number("retention.events_days", events_days, 3, MOST_DAYS, duplicates);
        self.number("retention.runs_days", runs_days, 1, MOST_DAYS, "an escalation could not say what was tried");
    }

    fn wake(&mut self, wake: &WakeUp) {
        for (bot, how, with) in [
            ("policy_bot", wake.policy_bot, &wake.policy_bot_with),
            ("sod_validator", wake.sod_validator, &wake.sod_validator_with),
            ("approver_bot", wake.approver_bot, &wake.approver_bot_with),
            ("automerge_bot", wake.automerge_bot, &wake.automerge_bot_with),
        ] {
            let field = format!("wake.{bot}_with");
            if how != Wake::Bus && with.trim().is_empty() {
                self.add(&field, "must say the label, the comment or the address to wake it with");
            }
            // A label that wakes a bot is taken off and put on again; people's labels are theirs alone.
            if how == Wake::Label && is_peoples(with) {
                self.add(&field, "must not be a label by which people tell Suture what to do: it would be taken off");
            }
        }
    }

    fn coordination(&mut self, coordination: &Coordination) {
        let Coordination { wip_limit, merge_batch } = *coordination;
        let instead = "nothing would ever be asked for; that is backlog.enabled = false";
        self.number("coordination.wip_limit", wip_limit, 1, 1_000, instead);
        self.number("coordination.merge_batch", merge_batch, 0, 1_000, "");
    }

    fn sentinel(&mut self, sentinel: &Sentinel, retention: &Retention) {
        for (n, url) in sentinel.urls.iter().enumerate() {
            let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            let host = host.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
            if host.is_empty() || url.contains(char::is_whitespace) {
                self.add(format!("sentinel.urls[{n}]"), "must be an address like https://example.org/health");
            }
        }
        self.repo("sentinel.issue_repo", &sentinel.issue_repo);
        self.names("sentinel.labels", &sentinel.labels, "no label has an empty name");
        let (watch, kept) = (sentinel.watch_minutes, retention.terminal_hours.saturating_mul(60));
        self.number("sentinel.watch_minutes", watch, 1, 1_440, "nothing would ever be asked");
        if kept > 0 && watch > kept.saturating_sub(10) {
            let sentence = format!(
                "must be at least ten minutes less than retention.terminal_hours, which is {kept} minutes (it is {watch}): a merge would be forgotten before it is judged"
            );
            self.add("sentinel.watch_minutes", sentence);
        }
        let blip = "a single answer that is late would be an outage, or none ever";
        self.number("sentinel.failures_in_a_row", sentinel.failures_in_a_row, 1, 10, blip);
        self.number("sentinel.timeout_secs", sentinel.timeout_secs, 1, 8, "no answer is that quick");
    }

    fn status(&mut self, status: &Status) {
        self.repo("status.repo", &status.repo);
        self.number("status.every_minutes", status.every_minutes, 1, 1_440, "every sweep would change it");
    }

    fn backlog(&mut self, backlog: &Backlog) {
        if backlog.label_prefix.trim().is_empty() {
            self.add(
                "backlog.label_prefix",
                "must not be empty: every label called `approved` would be taken for ours",
            );
        } else if is_peoples(&format!("{}hold", backlog.label_prefix)) {
            self.add("backlog.label_prefix", "must not be `suture/`: those labels are people's");
        }
        if backlog.base_branch.trim().is_empty() {
            self.add("backlog.base_branch", "must name a branch: no pull request could be told from another");
        }
        self.number("backlog.every_minutes", backlog.every_minutes, 1, 1_440, "every sweep would list all issues");
        for (stage, hours) in [
            ("discovered_hours", backlog.discovered_hours),
            ("in_progress_hours", backlog.in_progress_hours),
            ("pr_open_hours", backlog.pr_open_hours),
            ("review_failed_hours", backlog.review_failed_hours),
        ] {
            let late = "an issue would be late the moment it gets there";
            self.number(&format!("backlog.{stage}"), hours, 1, 8_760, late);
        }
        self.number("backlog.max_requests", backlog.max_requests, 1, 100, "nothing would ever be asked for");
    }

    fn repo(&mut self, field: &str, name: &str) {
        if !name.is_empty()
            && let Err(bad) = name.parse::<RepoName>()
        {
            self.add(field, format!("cannot be: {bad}"));
        }
    }

    fn rule(&mut self, list: &str, name: &str, rule: &TransientRule) {
        let field = format!("{list}.{}", super::load::quoted(name));
        if rule.enabled && rule.is_empty() {
            self.add(&field, "needs conclusions or patterns: without them it would match nothing");
        }
        self.names(&format!("{field}.conclusions"), &rule.conclusions, "no check concludes with nothing");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policies;

    /// The sentences about one line of a file, without its line number.
    fn said(line: &str) -> Vec<String> {
        match Policies::parse(line) {
            Ok(_) => Vec::new(),
            Err(error) => error.problems.into_iter().map(|problem| problem.message).collect(),
        }
    }

    #[test]
    fn the_defaults_are_legal() {
        assert_eq!(validate(&Policy::default()), []);
    }

    #[test]
    fn every_number_has_a_least_and_a_greatest_value() {
        for (field, least, most) in [
            ("thresholds_minutes.created", 1, 43_200),
            ("thresholds_minutes.checks_running", 1, 43_200),
            ("thresholds_minutes.checks_failed", 1, 43_200),
            ("thresholds_minutes.checks_passed", 1, 43_200),
            ("thresholds_minutes.policy_evaluating", 1, 43_200),
            ("thresholds_minutes.policy_failed", 1, 43_200),
            ("thresholds_minutes.policy_passed", 1, 43_200),
            ("thresholds_minutes.approved", 1, 43_200),
            ("thresholds_minutes.merging", 1, 43_200),
            ("budgets.lifetime", 3, 1_000),
            ("backoff.cooldown_secs", 0, 86_400),
            ("breaker.window_minutes", 1, 1_440),
            ("breaker.minimum_actions", 1, 10_000),
            ("breaker.cooldown_minutes", 1, 1_440),
            ("limits.webhooks_per_minute_per_repo", 1, 100_000),
            ("limits.rebuilds_in_flight_per_repo", 1, 1_000),
            ("limits.commands_per_person_per_hour", 1, 10_000),
            ("limits.checks_per_head", 1, 300),
            ("limits.remedies_in_flight", 1, 1_000),
            ("limits.api_requests_per_minute_per_key", 1, 100_000),
            ("sweep.every_minutes", 1, 1_440),
            ("sweep.concurrency", 1, 100),
            ("sweep.max_prs", 1, 100_000),
            ("sweep.inventory_every", 1, 100_000),
            ("triggers.longest_wait_secs", 10, 86_400),
            ("triggers.per_repo_per_day", 1, 1_000_000),
            ("triggers.per_org_per_day", 1, 1_000_000),
            ("triggers.at_once", 1, 100),
            ("triggers.retries", 0, 100),
            ("triggers.timeout_minutes", 2, 1_440),
            ("triggers.max_prs", 1, 10_000),
            ("retention.terminal_hours", 1, 87_600),
            ("retention.events_days", 3, 3_650),
            ("retention.runs_days", 1, 3_650),
            ("coordination.wip_limit", 1, 1_000),
            ("coordination.merge_batch", 0, 1_000),
            ("sentinel.failures_in_a_row", 1, 10),
            ("sentinel.timeout_secs", 1, 8),
            ("status.every_minutes", 1, 1_440),
            ("backlog.every_minutes", 1, 1_440),
            ("backlog.discovered_hours", 1, 8_760),
            ("backlog.in_progress_hours", 1, 8_760),
            ("backlog.pr_open_hours", 1, 8_760),
            ("backlog.review_failed_hours", 1, 8_760),
            ("backlog.max_requests", 1, 100),
        ] {
            for legal in [least, most] {
                assert_eq!(said(&format!("{field} = {legal}")), Vec::<String>::new());
            }
            let above = most + 1;
            assert_eq!(
                said(&format!("{field} = {above}")),
                [format!("{field} must be at most {most} (it is {above})")]
            );
            if least > 0 {
                let below = least - 1;
                let said = said(&format!("{field} = {below}"));
                assert_eq!(said.len(), 1, "{said:?}");
                assert!(
                    said[0].starts_with(&format!("{field} must be at least {least} (it is {below}): ")),
                    "{said:?}"
                );
            }
        }
    }

    #[test]
    fn a_request_waits_at_least_as_long_as_it_has_to_be_quiet() {
        assert_eq!(said("triggers.quiet_secs = 0\ntriggers.longest_wait_secs = 0"), Vec::<String>::new());
        assert_eq!(said("triggers.quiet_secs = 120"), Vec::<String>::new());
        let message = "triggers.longest_wait_secs must be at least 121 (it is 120): it would never be quiet";
        assert_eq!(said("triggers.quiet_secs = 121"), [message]);
    }

    #[test]
    fn what_is_written_about_names_places_that_can_be() {
        for (line, expected) in [
            ("sentinel.urls = ['example.org']", "sentinel.urls[0] must be an address like https://example.org/health"),
            ("sentinel.urls = ['https://']", "sentinel.urls[0] must be an address like https://example.org/health"),
            ("sentinel.urls = ['https://a b']", "sentinel.urls[0] must be an address like https://example.org/health"),
            (
                "sentinel.issue_repo = 'ops'",
                "sentinel.issue_repo cannot be: `ops` is not a repository: expected `owner/name`",
            ),
            ("status.repo = 'a/b/c'", "status.repo cannot be: `a/b/c` is not a repository: expected `owner/name`"),
            ("sentinel.labels = ['']", "sentinel.labels[0] must not be empty: no label has an empty name"),
            (
                "backlog.label_prefix = ''",
                "backlog.label_prefix must not be empty: every label called `approved` would be taken for ours",
            ),
            (
                "backlog.label_prefix = 'Suture/'",
                "backlog.label_prefix must not be `suture/`: those labels are people's",
            ),
            (
                "backlog.base_branch = ''",
                "backlog.base_branch must name a branch: no pull request could be told from another",
            ),
            (
                "wake = { policy_bot = 'label', policy_bot_with = 'suture/Hold' }",
                "wake.policy_bot_with must not be a label by which people tell Suture what to do: it would be taken off",
            ),
            (
                "sentinel.watch_minutes = 51\nretention.terminal_hours = 1",
                "sentinel.watch_minutes must be at least ten minutes less than retention.terminal_hours, which is 60 minutes (it is 51): a merge would be forgotten before it is judged",
            ),
        ] {
            assert_eq!(said(line), [expected], "{line}");
        }
        for legal in [
            "sentinel = { urls = ['https://shop.example/health?deep=1', 'http://10.0.0.1:8080'], issue_repo = 'acme/ops' }",
            "status.repo = 'acme/ops'\nbacklog.enabled = true",
            "wake = { policy_bot = 'comment', policy_bot_with = 'suture/hold' }",
            "sentinel.watch_minutes = 50\nretention.terminal_hours = 1",
        ] {
            assert_eq!(said(legal), Vec::<String>::new(), "{legal}");
        }
    }

    #[test]
    fn a_remedy_may_be_forbidden_but_not_be_endless() {
        for strategy in Strategy::ALL {
            assert_eq!(said(&format!("budgets.{strategy} = 0")), Vec::<String>::new());
            assert_eq!(said(&format!("budgets.{strategy} = 100\nbudgets.lifetime = 100")), Vec::<String>::new());
            assert_eq!(
                said(&format!("budgets.{strategy} = 101\nbudgets.lifetime = 101")),
                [format!("budgets.{strategy} must be at most 100 (it is 101)")]
            );
            assert_eq!(
                said(&format!("budgets.{strategy} = 13")),
                [format!(
                    "budgets.lifetime must be at least 13 (it is 12): budgets.{strategy} alone allows 13, so the rest of it could never be used"
                )]
            );
        }
        // Of two that are as large, the first is named.
        assert!(said("budgets.branch_update = 13\nbudgets.rebuild = 13")[0].contains("budgets.rebuild alone"));
        let none: String = Strategy::ALL.map(|strategy| format!("{strategy} = 0\n")).concat();
        assert_eq!(said(&format!("[budgets]\nlifetime = 0\n{none}")), Vec::<String>::new());
    }

    #[test]
    fn the_sentences_say_why() {
        for (line, expected) in [
            (
                "thresholds_minutes.created = 0",
                "thresholds_minutes.created must be at least 1 (it is 0): a pull request would be stale the moment it is opened",
            ),
            (
                "thresholds_minutes.merging = 0",
                "thresholds_minutes.merging must be at least 1 (it is 0): a pull request would be stale the moment it gets there",
            ),
            (
                "retention.events_days = 2",
                "retention.events_days must be at least 3 (it is 2): GitHub redelivers webhooks for 3 days, and the event log is what tells a duplicate",
            ),
            (
                "limits.rebuilds_in_flight_per_repo = 0",
                "limits.rebuilds_in_flight_per_repo must be at least 1 (it is 0): to forbid rebuilds, set budgets.rebuild = 0",
            ),
            (
                "checks.required = ['build', 'policy-bot: main']",
                "checks.required[1] must not be Policy Bot's own context: that is a policy, never a check, and would be awaited for ever",
            ),
            (
                "policy_bot.context_prefix = ' '",
                "policy_bot.context_prefix must not be empty: every status would be taken for Policy Bot's",
            ),
            (
                "approver_bot.logins = []",
                "approver_bot.logins must name at least one login: no approval would ever be recognised",
            ),
            ("approver_bot.logins = ['a', '']", "approver_bot.logins[1] must not be empty: nobody has an empty login"),
            ("automerge_bot.logins = ['']", "automerge_bot.logins[0] must not be empty: nobody has an empty login"),
            ("ours.authors = ['']", "ours.authors[0] must not be empty: nobody has an empty login"),
            (
                "ours.branch_prefixes = ['']",
                "ours.branch_prefixes[0] must not be empty: every pull request would be ours",
            ),
            ("ours.labels = ['']", "ours.labels[0] must not be empty: no label has an empty name"),
            ("checks.required = ['']", "checks.required[0] must not be empty: no check has an empty name"),
            (
                "ours = { authors = [], branch_prefixes = [], labels = [] }",
                "ours must name at least one author, branch prefix or label: no pull request would ever be ours",
            ),
            (
                "transient.x.sources = ['ci']",
                "transient.x needs conclusions or patterns: without them it would match nothing",
            ),
            (
                "never_transient.\"x y\" = {}",
                "never_transient.\"x y\" needs conclusions or patterns: without them it would match nothing",
            ),
            (
                "transient.x.conclusions = ['']",
                "transient.x.conclusions[0] must not be empty: no check concludes with nothing",
            ),
        ] {
            assert_eq!(said(line), [expected], "{line}");
        }
    }

    #[test]
    fn one_way_to_know_ours_is_enough() {
        for kept in ["authors", "branch_prefixes", "labels"] {
            let emptied = ["authors", "branch_prefixes", "labels"].into_iter().filter(|&list| list != kept);
            let text: String = emptied.map(|list| format!("ours.{list} = []\n")).collect();
            assert_eq!(said(&text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(said("automerge_bot.logins = []\nours.vulnerability_patterns = []"), Vec::<String>::new());
    }

    #[test]
    fn a_rule_that_is_off_needs_nothing() {
        assert_eq!(said("transient.x.enabled = false"), Vec::<String>::new());
        assert_eq!(said("transient.x.conclusions = ['stale']"), Vec::<String>::new());
        assert_eq!(said("transient.x.patterns = ['stale']"), Vec::<String>::new());
    }

    #[test]
    fn the_first_wait_is_not_longer_than_the_longest() {
        assert_eq!(said("backoff = { base_secs = 86400, max_secs = 86400 }"), Vec::<String>::new());
        assert_eq!(said("backoff = { base_secs = 1, max_secs = 1 }"), Vec::<String>::new());
        assert_eq!(
            said("backoff = { base_secs = 601, max_secs = 600 }"),
            ["backoff.base_secs must not be greater than backoff.max_secs (it is 601, the other is 600)"]
        );
        assert_eq!(
            said("backoff = { base_secs = 0, max_secs = 0 }"),
            [
                "backoff.base_secs must be at least 1 (it is 0): twice nothing is still nothing",
                "backoff.max_secs must be at least 1 (it is 0): there would be no wait at all",
            ]
        );
        assert_eq!(
            said("backoff = { base_secs = 86401, max_secs = 86401 }"),
            [
                "backoff.base_secs must be at most 86400 (it is 86401)",
                "backoff.max_secs must be at most 86400 (it is 86401)",
            ]
        );
    }

    #[test]
    fn the_breakers_share_is_a_share() {
        for legal in ["0.001", "1.0", "1"] {
            assert_eq!(said(&format!("breaker.failure_threshold = {legal}")), Vec::<String>::new());
        }
        for (written, shown) in [
            ("0.0", "0"),
            ("0", "0"),
            ("-0.5", "-0.5"),
            ("1.001", "1.001"),
            ("nan", "NaN"),
            ("inf", "inf"),
            ("-inf", "-inf"),
        ] {
            assert_eq!(
                said(&format!("breaker.failure_threshold = {written}")),
                [format!(
                    "breaker.failure_threshold must be greater than 0 and at most 1 (it is {shown}): it is a share of all remedies"
                )]
            );
        }
    }
}
