//! Checks the values of a policy that has the right types: numbers that would make Suture act at once, never or for ever,
//! and names that match nothing or everything. Each upper bound is far above any useful value and low enough that sums
//! cannot overflow.

use super::Policy;
use super::coordination::{Backlog, Coordination, PostMergeHealth, StatusIssue};
use super::sections::{
    Backoff, BotRetrigger, Breaker, Budgets, Limits, ManagedSelector, Retention, Retrigger, RetriggerVia, Sweep,
    Thresholds, Triggers, WebhookSilence,
};
use super::url::is_secure_url;
use crate::coordination::is_control_label;
use crate::id::RepoName;
use crate::state::Strategy;
use crate::transient::TransientRule;

/// 30 days.
const MAX_MINUTES: u32 = 43_200;
/// A day.
const MAX_SECS: u32 = 86_400;
/// Ten years.
const MAX_DAYS: u32 = 3_650;

/// The path of a field, and the rest of the sentence that starts with it.
pub(super) type ConfigFinding = (String, String);

/// Every problem of a policy.
pub(super) fn validate(policy: &Policy) -> Vec<ConfigFinding> {
    let mut findings = ConfigFindings(Vec::new());
    findings.managed(&policy.managed);
    findings.names("checks.required", &policy.checks.required, "a check name cannot be empty");
    for (n, name) in policy.checks.required.iter().enumerate() {
        if policy.is_policy_context(name) {
            let sentence =
                "must not be Policy Bot's context: it is never a check, so Suture would wait for it for ever";
            findings.add(format!("checks.required[{n}]"), sentence);
        }
        if policy.is_own_check(name) {
            let sentence = "must not be Suture's own check run: Suture would wait for itself for ever";
            findings.add(format!("checks.required[{n}]"), sentence);
        }
    }
    if policy.policy_bot.context_prefix.trim().is_empty() {
        findings.add("policy_bot.context_prefix", "must not be empty: every status would count as Policy Bot's");
    }
    if policy.policy_bot.logins.is_empty() && policy.policy_bot.app_ids.is_empty() {
        let sentence = "must name at least one login, or policy_bot.app_ids one id: no policy result would ever count";
        findings.add("policy_bot.logins", sentence);
    }
    findings.names("policy_bot.logins", &policy.policy_bot.logins, "a login cannot be empty");
    if policy.approver_bot.logins.is_empty() {
        findings.add("approver_bot.logins", "must name at least one login: no approval would ever be recognised");
    }
    findings.names("approver_bot.logins", &policy.approver_bot.logins, "a login cannot be empty");
    findings.names("automerge_bot.logins", &policy.automerge_bot.logins, "a login cannot be empty");
    if policy.rebuild.job.trim().is_empty() {
        findings.add("rebuild.job", "must not be empty: no build could be started or found");
    }
    findings.retrigger(&policy.retrigger);
    findings.thresholds(&policy.thresholds_minutes);
    findings.budgets(policy, &policy.budgets);
    findings.backoff(&policy.backoff);
    findings.breaker(&policy.breaker);
    findings.limits(&policy.limits);
    findings.sweep(&policy.sweep);
    findings.webhook_silence(&policy.webhook_silence);
    findings.triggers(&policy.triggers);
    findings.retention(&policy.retention);
    findings.coordination(&policy.coordination);
    findings.post_merge_health(&policy.post_merge_health, &policy.retention);
    findings.status_issue(&policy.status_issue);
    findings.backlog(&policy.backlog);
    for (name, rule) in &policy.never_transient.0 {
        findings.rule("never_transient", name, rule);
    }
    for (name, rule) in &policy.transient.0 {
        findings.rule("transient", name, rule);
    }
    findings.0
}

struct ConfigFindings(Vec<ConfigFinding>);

impl ConfigFindings {
    fn add(&mut self, field: impl Into<String>, sentence: impl Into<String>) {
        self.0.push((field.into(), sentence.into()));
    }

    /// `why` says what would happen below the minimum.
    fn number(&mut self, field: &str, value: u32, min: u32, max: u32, why: &str) {
        if value < min {
            self.add(field, format!("must be at least {min} (it is {value}): {why}"));
        }
        if value > max {
            self.add(field, format!("must be at most {max} (it is {value})"));
        }
    }

    fn names(&mut self, field: &str, names: &[String], why: &str) {
        for (n, name) in names.iter().enumerate() {
            if name.trim().is_empty() {
                self.add(format!("{field}[{n}]"), format!("must not be empty: {why}"));
            }
        }
    }

    fn managed(&mut self, managed: &ManagedSelector) {
        let ManagedSelector { authors, branch_prefixes, labels, vulnerability_patterns: _ } = managed;
        if authors.is_empty() && branch_prefixes.is_empty() && labels.is_empty() {
            self.add(
                "managed",
                "must name at least one author, branch prefix or label: otherwise Suture manages no pull request",
            );
        }
        self.names("managed.authors", authors, "a login cannot be empty");
        self.names("managed.branch_prefixes", branch_prefixes, "Suture would manage every pull request");
        self.names("managed.labels", labels, "a label cannot be empty");
    }

    fn thresholds(&mut self, thresholds: &Thresholds) {
        let at_once = "a pull request would be stale as soon as it enters the state";
        let opened = "a pull request would be stale as soon as it is opened";
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
            self.number(&format!("thresholds_minutes.{state}"), minutes, 1, MAX_MINUTES, why);
        }
    }

    /// A budget of 0 is valid: the remedy never runs automatically.
    fn budgets(&mut self, policy: &Policy, budgets: &Budgets) {
        let mut largest = (0, Strategy::Rebuild);
        for strategy in Strategy::ALL {
            let budget = policy.budget(strategy);
            self.number(&format!("budgets.{strategy}"), budget, 0, 100, "");
            if budget > largest.0 {
                largest = (budget, strategy);
            }
        }
        let (min, strategy) = largest;
        let why = format!("budgets.{strategy} alone allows {min}, and could never be used up");
        self.number("budgets.lifetime", budgets.lifetime, min, 1_000, &why);
    }

    fn backoff(&mut self, backoff: &Backoff) {
        let Backoff { base_secs, max_secs, cooldown_secs } = *backoff;
        self.number("backoff.base_secs", base_secs, 1, MAX_SECS, "twice 0 is still 0, so there would be no wait");
        self.number("backoff.max_secs", max_secs, 1, MAX_SECS, "there would be no wait");
        self.number("backoff.cooldown_secs", cooldown_secs, 0, MAX_SECS, "");
        if base_secs > max_secs {
            self.add(
                "backoff.base_secs",
                format!(
                    "must not be greater than backoff.max_secs (it is {base_secs}, backoff.max_secs is {max_secs})"
                ),
            );
        }
    }

    fn breaker(&mut self, breaker: &Breaker) {
        let Breaker { window_minutes, failure_threshold, minimum_actions, cooldown_minutes } = *breaker;
        self.number("breaker.window_minutes", window_minutes, 1, 1_440, "no failure would ever be counted");
        self.number("breaker.minimum_actions", minimum_actions, 1, 10_000, "a single failure would stop all remedies");
        self.number("breaker.cooldown_minutes", cooldown_minutes, 1, 1_440, "it would close as soon as it opens");
        // Written so that NaN is refused too, because every comparison with NaN is false.
        if !(failure_threshold > 0.0 && failure_threshold <= 1.0) {
            self.add(
                "breaker.failure_threshold",
                format!(
                    "must be greater than 0 and at most 1 (it is {failure_threshold}): it is the share of remedies that failed"
                ),
            );
        }
    }

    fn limits(&mut self, limits: &Limits) {
        let deferred = "every webhook would be deferred for ever";
        let no_rebuilds = "to forbid rebuilds, set budgets.rebuild = 0";
        let no_commands = "every command would be refused";
        let no_checks = "no check would be stored";
        let no_remedies = "no remedy could run; to only observe, set mode = \"observe\"";
        let no_api = "every API request would be refused; to block one key, remove it from SUTURE_ADMIN_KEYS";
        for (limit, value, max, why) in [
            ("webhooks_per_minute_per_repo", limits.webhooks_per_minute_per_repo, 100_000, deferred),
            ("rebuilds_in_flight_per_repo", limits.rebuilds_in_flight_per_repo, 1_000, no_rebuilds),
            ("commands_per_person_per_hour", limits.commands_per_person_per_hour, 10_000, no_commands),
            ("checks_per_head", limits.checks_per_head, 300, no_checks),
            ("remedies_in_flight", limits.remedies_in_flight, 1_000, no_remedies),
            ("api_requests_per_minute_per_key", limits.api_requests_per_minute_per_key, 100_000, no_api),
        ] {
            self.number(&format!("limits.{limit}"), value, 1, max, why);
        }
    }

    fn sweep(&mut self, sweep: &Sweep) {
        let Sweep { every_minutes, concurrency, max_prs, inventory_every } = *sweep;
        self.number("sweep.every_minutes", every_minutes, 1, 1_440, "a schedule needs an interval");
        // GitHub allows 100 concurrent requests.
        self.number("sweep.concurrency", concurrency, 1, 100, "no pull request would be processed");
        self.number("sweep.max_prs", max_prs, 1, 100_000, "no pull request would be processed");
        let never_found = "a pull request whose webhook was lost would never be found";
        self.number("sweep.inventory_every", inventory_every, 1, 100_000, never_found);
    }

    fn webhook_silence(&mut self, silence: &WebhookSilence) {
        self.number("webhook_silence.minutes", silence.minutes, 0, 1_440, "");
        self.number("webhook_silence.from_hour", silence.from_hour, 0, 23, "");
        self.number("webhook_silence.to_hour", silence.to_hour, 0, 24, "");
    }

    fn triggers(&mut self, triggers: &Triggers) {
        let none = "every request would be refused";
        let Triggers { debounce_secs, max_debounce_secs, max_concurrent, retries, timeout_minutes, max_prs, .. } =
            *triggers;
        self.number("triggers.debounce_secs", debounce_secs, 0, MAX_SECS, "");
        self.number(
            "triggers.max_debounce_secs",
            max_debounce_secs,
            debounce_secs,
            MAX_SECS,
            "it must not be less than triggers.debounce_secs",
        );
        self.number("triggers.per_repo_per_day", triggers.per_repo_per_day, 1, 1_000_000, none);
        self.number("triggers.per_org_per_day", triggers.per_org_per_day, 1, 1_000_000, none);
        self.number("triggers.max_concurrent", max_concurrent, 1, 100, "no request would start");
        self.number("triggers.retries", retries, 0, 100, "");
        let last_minute = "nothing is read from GitHub in the last minute of a request";
        self.number("triggers.timeout_minutes", timeout_minutes, 2, 1_440, last_minute);
        self.number("triggers.max_prs", max_prs, 1, 10_000, "no pull request would be processed");
    }

    fn retention(&mut self, retention: &Retention) {
        let Retention { terminal_hours, events_days, runs_days } = *retention;
        let late = "a late webhook would reopen the record of a merged pull request";
        self.number("retention.terminal_hours", terminal_hours, 1, MAX_DAYS * 24, late);
        let duplicates = "GitHub redelivers webhooks for 3 days, and the event log detects the duplicates";
        self.number("retention.events_days", events_days, 3, MAX_DAYS, duplicates);
        self.number("retention.runs_days", runs_days, 1, MAX_DAYS, "an escalation mail could not list the remedies");
    }

    fn retrigger(&mut self, retrigger: &Retrigger) {
        for (bot, BotRetrigger { via, target }) in [
            ("policy_bot", &retrigger.policy_bot),
            ("sod_validator", &retrigger.sod_validator),
            ("approver_bot", &retrigger.approver_bot),
            ("automerge_bot", &retrigger.automerge_bot),
            ("codegenie", &retrigger.codegenie),
        ] {
            let field = format!("retrigger.{bot}.target");
            if *via != RetriggerVia::Bus && target.trim().is_empty() {
                self.add(&field, "must be the label, the comment or the URL that retriggers the bot");
            }
            if *via == RetriggerVia::Http && !target.trim().is_empty() && !is_secure_url(target) {
                let sentence = "must be an https:// URL (http:// only for a server on the same machine): on the way, \
                                others could read and change the request";
                self.add(&field, sentence);
            }
            // Suture removes and adds the label again, which it must never do with people's control labels.
            if *via == RetriggerVia::Label && is_control_label(target) {
                self.add(&field, "must not be a label with which people control Suture: Suture would remove it");
            }
        }
    }

    fn coordination(&mut self, coordination: &Coordination) {
        let Coordination { wip_limit, merge_batch } = *coordination;
        let instead = "no pull request would be requested; to turn the backlog off, set backlog.enabled = false";
        self.number("coordination.wip_limit", wip_limit, 1, 1_000, instead);
        self.number("coordination.merge_batch", merge_batch, 0, 1_000, "");
    }

    fn post_merge_health(&mut self, post_merge_health: &PostMergeHealth, retention: &Retention) {
        for (n, url) in post_merge_health.urls.iter().enumerate() {
            let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            let host = host.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
            if host.is_empty() || url.contains(char::is_whitespace) {
                self.add(format!("post_merge_health.urls[{n}]"), "must be a URL like https://example.org/health");
            }
        }
        self.repo("post_merge_health.issue_repo", &post_merge_health.issue_repo);
        self.names("post_merge_health.labels", &post_merge_health.labels, "a label cannot be empty");
        let (watch, kept) = (post_merge_health.watch_minutes, retention.terminal_hours.saturating_mul(60));
        self.number("post_merge_health.watch_minutes", watch, 1, 1_440, "no URL would be requested");
        if kept > 0 && watch > kept.saturating_sub(10) {
            let sentence = format!(
                "must be at least ten minutes less than retention.terminal_hours, which is {kept} minutes (it is {watch}): the record of a merge would expire before its watch ends"
            );
            self.add("post_merge_health.watch_minutes", sentence);
        }
        let no_failure = "an outage needs at least one failed check";
        self.number("post_merge_health.failures_in_a_row", post_merge_health.failures_in_a_row, 1, 10, no_failure);
        self.number(
            "post_merge_health.timeout_secs",
            post_merge_health.timeout_secs,
            1,
            8,
            "every request would time out",
        );
    }

    fn status_issue(&mut self, status_issue: &StatusIssue) {
        self.repo("status_issue.repo", &status_issue.repo);
        self.number(
            "status_issue.every_minutes",
            status_issue.every_minutes,
            1,
            1_440,
            "every sweep would update the issue",
        );
    }

    fn backlog(&mut self, backlog: &Backlog) {
        if backlog.label_prefix.trim().is_empty() {
            self.add(
                "backlog.label_prefix",
                "must not be empty: every label named `approved` would count as a pipeline label",
            );
        } else if is_control_label(&format!("{}hold", backlog.label_prefix)) {
            self.add("backlog.label_prefix", "must not be `suture/`: people control Suture with those labels");
        }
        if backlog.base_branch.trim().is_empty() {
            self.add("backlog.base_branch", "must not be empty: CodeGenie needs a base branch for its pull requests");
        }
        self.number("backlog.every_minutes", backlog.every_minutes, 1, 1_440, "every sweep would list all issues");
        for (stage, hours) in [
            ("discovered_hours", backlog.discovered_hours),
            ("in_progress_hours", backlog.in_progress_hours),
            ("pr_open_hours", backlog.pr_open_hours),
            ("review_failed_hours", backlog.review_failed_hours),
        ] {
            let late = "an issue would be late as soon as it enters the stage";
            self.number(&format!("backlog.{stage}"), hours, 1, 8_760, late);
        }
        self.number("backlog.max_requests", backlog.max_requests, 1, 100, "no pull request would be requested");
    }

    fn repo(&mut self, field: &str, name: &str) {
        if !name.is_empty()
            && let Err(bad) = name.parse::<RepoName>()
        {
            self.add(field, format!("is invalid: {bad}"));
        }
    }

    fn rule(&mut self, list: &str, name: &str, rule: &TransientRule) {
        let field = format!("{list}.{}", super::load::quoted(name));
        if rule.enabled && rule.is_empty() {
            self.add(&field, "needs conclusions or patterns: without them it matches nothing");
        }
        self.names(&format!("{field}.conclusions"), &rule.conclusions, "a conclusion cannot be empty");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policies;

    /// The problems of a file, without line numbers.
    fn messages(line: &str) -> Vec<String> {
        match Policies::parse(line) {
            Ok(_) => Vec::new(),
            Err(error) => error.problems.into_iter().map(|problem| problem.message).collect(),
        }
    }

    #[test]
    fn defaults_are_valid() {
        assert_eq!(validate(&Policy::default()), []);
    }

    #[test]
    fn every_number_has_a_minimum_and_a_maximum() {
        for (field, min, max) in [
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
            ("webhook_silence.minutes", 0, 1_440),
            ("webhook_silence.from_hour", 0, 23),
            ("webhook_silence.to_hour", 0, 24),
            ("triggers.max_debounce_secs", 10, 86_400),
            ("triggers.per_repo_per_day", 1, 1_000_000),
            ("triggers.per_org_per_day", 1, 1_000_000),
            ("triggers.max_concurrent", 1, 100),
            ("triggers.retries", 0, 100),
            ("triggers.timeout_minutes", 2, 1_440),
            ("triggers.max_prs", 1, 10_000),
            ("retention.terminal_hours", 1, 87_600),
            ("retention.events_days", 3, 3_650),
            ("retention.runs_days", 1, 3_650),
            ("coordination.wip_limit", 1, 1_000),
            ("coordination.merge_batch", 0, 1_000),
            ("post_merge_health.failures_in_a_row", 1, 10),
            ("post_merge_health.timeout_secs", 1, 8),
            ("status_issue.every_minutes", 1, 1_440),
            ("backlog.every_minutes", 1, 1_440),
            ("backlog.discovered_hours", 1, 8_760),
            ("backlog.in_progress_hours", 1, 8_760),
            ("backlog.pr_open_hours", 1, 8_760),
            ("backlog.review_failed_hours", 1, 8_760),
            ("backlog.max_requests", 1, 100),
        ] {
            for valid in [min, max] {
                assert_eq!(messages(&format!("{field} = {valid}")), Vec::<String>::new());
            }
            let above = max + 1;
            assert_eq!(
                messages(&format!("{field} = {above}")),
                [format!("{field} must be at most {max} (it is {above})")]
            );
            if min > 0 {
                let below = min - 1;
                let found = messages(&format!("{field} = {below}"));
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(
                    found[0].starts_with(&format!("{field} must be at least {min} (it is {below}): ")),
                    "{found:?}"
                );
            }
        }
    }

    #[test]
    fn longest_wait_is_at_least_the_quiet_time() {
        assert_eq!(messages("triggers.debounce_secs = 0\ntriggers.max_debounce_secs = 0"), Vec::<String>::new());
        assert_eq!(messages("triggers.debounce_secs = 120"), Vec::<String>::new());
        let message = "triggers.max_debounce_secs must be at least 121 (it is 120): it must not be less than triggers.debounce_secs";
        assert_eq!(messages("triggers.debounce_secs = 121"), [message]);
    }

    #[test]
    fn urls_repositories_labels_and_branches_must_be_valid() {
        for (line, expected) in [
            (
                "post_merge_health.urls = ['example.org']",
                "post_merge_health.urls[0] must be a URL like https://example.org/health",
            ),
            (
                "post_merge_health.urls = ['https://']",
                "post_merge_health.urls[0] must be a URL like https://example.org/health",
            ),
            (
                "post_merge_health.urls = ['https://a b']",
                "post_merge_health.urls[0] must be a URL like https://example.org/health",
            ),
            (
                "post_merge_health.issue_repo = 'ops'",
                "post_merge_health.issue_repo is invalid: `ops` is not a repository: expected `owner/name`",
            ),
            (
                "status_issue.repo = 'a/b/c'",
                "status_issue.repo is invalid: `a/b/c` is not a repository: expected `owner/name`",
            ),
            (
                "post_merge_health.labels = ['']",
                "post_merge_health.labels[0] must not be empty: a label cannot be empty",
            ),
            (
                "backlog.label_prefix = ''",
                "backlog.label_prefix must not be empty: every label named `approved` would count as a pipeline label",
            ),
            (
                "backlog.label_prefix = 'Suture/'",
                "backlog.label_prefix must not be `suture/`: people control Suture with those labels",
            ),
            (
                "backlog.base_branch = ''",
                "backlog.base_branch must not be empty: CodeGenie needs a base branch for its pull requests",
            ),
            (
                "retrigger.policy_bot = { via = 'label', target = 'suture/Hold' }",
                "retrigger.policy_bot.target must not be a label with which people control Suture: Suture would remove it",
            ),
            (
                "retrigger.codegenie.via = 'http'",
                "retrigger.codegenie.target must be the label, the comment or the URL that retriggers the bot",
            ),
            (
                "retrigger.approver_bot = { via = 'http', target = 'http://approver.example/' }",
                "retrigger.approver_bot.target must be an https:// URL (http:// only for a server on the same machine): on the way, others could read and change the request",
            ),
            (
                "post_merge_health.watch_minutes = 51\nretention.terminal_hours = 1",
                "post_merge_health.watch_minutes must be at least ten minutes less than retention.terminal_hours, which is 60 minutes (it is 51): the record of a merge would expire before its watch ends",
            ),
        ] {
            assert_eq!(messages(line), [expected], "{line}");
        }
        for valid in [
            "post_merge_health = { urls = ['https://shop.example/health?deep=1', 'http://10.0.0.1:8080'], issue_repo = 'acme/ops' }",
            "status_issue.repo = 'acme/ops'\nbacklog.enabled = true",
            "retrigger.policy_bot = { via = 'comment', target = 'suture/hold' }",
            "retrigger.policy_bot = { via = 'http', target = 'http://127.0.0.1:8080/policy' }",
            "retrigger.policy_bot = { via = 'http', target = 'https://policy.example/' }",
            "post_merge_health.watch_minutes = 50\nretention.terminal_hours = 1",
        ] {
            assert_eq!(messages(valid), Vec::<String>::new(), "{valid}");
        }
    }

    #[test]
    fn budget_may_be_zero_but_not_exceed_the_lifetime_cap() {
        for strategy in Strategy::ALL {
            assert_eq!(messages(&format!("budgets.{strategy} = 0")), Vec::<String>::new());
            assert_eq!(messages(&format!("budgets.{strategy} = 100\nbudgets.lifetime = 100")), Vec::<String>::new());
            assert_eq!(
                messages(&format!("budgets.{strategy} = 101\nbudgets.lifetime = 101")),
                [format!("budgets.{strategy} must be at most 100 (it is 101)")]
            );
            assert_eq!(
                messages(&format!("budgets.{strategy} = 13")),
                [format!(
                    "budgets.lifetime must be at least 13 (it is 12): budgets.{strategy} alone allows 13, and could never be used up"
                )]
            );
        }
        // Of two equally large budgets, the first is named.
        assert!(messages("budgets.branch_update = 13\nbudgets.rebuild = 13")[0].contains("budgets.rebuild alone"));
        let none: String = Strategy::ALL.map(|strategy| format!("{strategy} = 0\n")).concat();
        assert_eq!(messages(&format!("[budgets]\nlifetime = 0\n{none}")), Vec::<String>::new());
    }

    #[test]
    fn messages_say_why() {
        for (line, expected) in [
            (
                "thresholds_minutes.created = 0",
                "thresholds_minutes.created must be at least 1 (it is 0): a pull request would be stale as soon as it is opened",
            ),
            (
                "thresholds_minutes.merging = 0",
                "thresholds_minutes.merging must be at least 1 (it is 0): a pull request would be stale as soon as it enters the state",
            ),
            (
                "retention.events_days = 2",
                "retention.events_days must be at least 3 (it is 2): GitHub redelivers webhooks for 3 days, and the event log detects the duplicates",
            ),
            (
                "limits.rebuilds_in_flight_per_repo = 0",
                "limits.rebuilds_in_flight_per_repo must be at least 1 (it is 0): to forbid rebuilds, set budgets.rebuild = 0",
            ),
            (
                "checks.required = ['build', 'policy-bot: main']",
                "checks.required[1] must not be Policy Bot's context: it is never a check, so Suture would wait for it for ever",
            ),
            (
                "policy_bot.context_prefix = ' '",
                "policy_bot.context_prefix must not be empty: every status would count as Policy Bot's",
            ),
            (
                "policy_bot.logins = []",
                "policy_bot.logins must name at least one login, or policy_bot.app_ids one id: no policy result would ever count",
            ),
            ("policy_bot.logins = ['']", "policy_bot.logins[0] must not be empty: a login cannot be empty"),
            (
                "approver_bot.logins = []",
                "approver_bot.logins must name at least one login: no approval would ever be recognised",
            ),
            ("approver_bot.logins = ['a', '']", "approver_bot.logins[1] must not be empty: a login cannot be empty"),
            ("automerge_bot.logins = ['']", "automerge_bot.logins[0] must not be empty: a login cannot be empty"),
            ("managed.authors = ['']", "managed.authors[0] must not be empty: a login cannot be empty"),
            (
                "managed.branch_prefixes = ['']",
                "managed.branch_prefixes[0] must not be empty: Suture would manage every pull request",
            ),
            ("managed.labels = ['']", "managed.labels[0] must not be empty: a label cannot be empty"),
            ("checks.required = ['']", "checks.required[0] must not be empty: a check name cannot be empty"),
            (
                "managed = { authors = [], branch_prefixes = [], labels = [] }",
                "managed must name at least one author, branch prefix or label: otherwise Suture manages no pull request",
            ),
            (
                "transient.x.sources = ['ci']",
                "transient.x needs conclusions or patterns: without them it matches nothing",
            ),
            (
                "never_transient.\"x y\" = {}",
                "never_transient.\"x y\" needs conclusions or patterns: without them it matches nothing",
            ),
            (
                "transient.x.conclusions = ['']",
                "transient.x.conclusions[0] must not be empty: a conclusion cannot be empty",
            ),
        ] {
            assert_eq!(messages(line), [expected], "{line}");
        }
    }

    #[test]
    fn one_selector_is_enough() {
        for kept in ["authors", "branch_prefixes", "labels"] {
            let emptied = ["authors", "branch_prefixes", "labels"].into_iter().filter(|&list| list != kept);
            let text: String = emptied.map(|list| format!("managed.{list} = []\n")).collect();
            assert_eq!(messages(&text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(messages("policy_bot = { logins = [], app_ids = [4711] }"), Vec::<String>::new());
        assert_eq!(messages("automerge_bot.logins = []\nmanaged.vulnerability_patterns = []"), Vec::<String>::new());
    }

    #[test]
    fn disabled_rule_needs_no_criteria() {
        assert_eq!(messages("transient.x.enabled = false"), Vec::<String>::new());
        assert_eq!(messages("transient.x.conclusions = ['stale']"), Vec::<String>::new());
        assert_eq!(messages("transient.x.patterns = ['stale']"), Vec::<String>::new());
    }

    #[test]
    fn base_secs_is_not_greater_than_max_secs() {
        assert_eq!(messages("backoff = { base_secs = 86400, max_secs = 86400 }"), Vec::<String>::new());
        assert_eq!(messages("backoff = { base_secs = 1, max_secs = 1 }"), Vec::<String>::new());
        assert_eq!(
            messages("backoff = { base_secs = 601, max_secs = 600 }"),
            ["backoff.base_secs must not be greater than backoff.max_secs (it is 601, backoff.max_secs is 600)"]
        );
        assert_eq!(
            messages("backoff = { base_secs = 0, max_secs = 0 }"),
            [
                "backoff.base_secs must be at least 1 (it is 0): twice 0 is still 0, so there would be no wait",
                "backoff.max_secs must be at least 1 (it is 0): there would be no wait",
            ]
        );
        assert_eq!(
            messages("backoff = { base_secs = 86401, max_secs = 86401 }"),
            [
                "backoff.base_secs must be at most 86400 (it is 86401)",
                "backoff.max_secs must be at most 86400 (it is 86401)",
            ]
        );
    }

    #[test]
    fn failure_threshold_is_between_0_and_1() {
        for valid in ["0.001", "1.0", "1"] {
            assert_eq!(messages(&format!("breaker.failure_threshold = {valid}")), Vec::<String>::new());
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
                messages(&format!("breaker.failure_threshold = {written}")),
                [format!(
                    "breaker.failure_threshold must be greater than 0 and at most 1 (it is {shown}): it is the share of remedies that failed"
                )]
            );
        }
    }
}
