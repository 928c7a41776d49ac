//! Builds the domain's snapshot from GitHub's response, with the same mapping as webhooks. Incomplete or unknown data is an error; nothing
//! is guessed (R-CLIENT-5).

use std::collections::BTreeSet;

use domain::event::PullRequestDetails;
use domain::id::{PrId, Sha};
use domain::policy::{BehindRule, Policy, PullRequestOrigin, ReportAuthor};
use domain::signals::{ApprovalReport, CheckKind, CheckVerdict, MergeReport, RenewalMark, Signals};
use domain::snapshot::{LiveStatus, Mergeability, PullRequestState, Snapshot};
use jiff::Timestamp;

use super::SnapshotError;
use super::raw::{
    Actor, AppNode, BaseRefNode, CheckRunNode, List, PullNode, RollupContext, StatusCheckParameters, StatusContextNode,
};
use crate::github::mapping::{self, MappedReport};

/// A pull request while it is being read.
#[derive(Debug)]
pub(super) struct SnapshotBuilder {
    pub(super) read_at: Timestamp,
    pub(super) pull: PullNode,
    /// All contexts of the head, from all pages read so far.
    pub(super) contexts: Vec<RollupContext>,
    /// Whether Suture may not read the base's protection or rules.
    pub(super) rules_hidden: bool,
    pub(super) behind_by: Option<u32>,
}

/// The requirements of the base branch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BaseRules {
    /// `None` if unknown.
    pub(super) contexts: Option<BTreeSet<String>>,
    pub(super) strict: bool,
}

impl SnapshotBuilder {
    pub(super) fn new(read_at: Timestamp, pull: PullNode, rules_hidden: bool) -> Self {
        let head = pull.commits.iter().next();
        let rollup = head.and_then(|head| head.commit.status_check_rollup.as_ref());
        let contexts = rollup.map(|rollup| rollup.contexts.iter().cloned().collect()).unwrap_or_default();
        Self { read_at, pull, contexts, rules_hidden, behind_by: None }
    }

    pub(super) fn is_open(&self) -> bool {
        self.pull.state == "OPEN"
    }

    /// The first missing part that the snapshot needs.
    pub(super) fn missing_part(&self) -> Option<String> {
        if !self.is_open() {
            return None;
        }
        let pull = &self.pull;
        let complete = |list: Option<bool>| list.unwrap_or(false);
        if !complete(pull.labels.as_ref().map(List::is_complete)) {
            return Some("labels are incomplete".to_owned());
        }
        if !complete(pull.latest_opinionated_reviews.as_ref().map(List::is_complete)) {
            return Some("reviews are incomplete".to_owned());
        }
        let rules = pull.base_ref.as_ref().and_then(|base| base.rules.as_ref());
        if rules.is_some_and(|rules| rules.page_info.has_next_page) {
            return Some("the base has too many rules".to_owned());
        }
        let Some(head) = pull.commits.iter().next() else {
            return Some("no commit".to_owned());
        };
        if !head.commit.oid.eq_ignore_ascii_case(&pull.head_ref_oid) {
            return Some("the head changed while it was read".to_owned());
        }
        let rollup = head.commit.status_check_rollup.as_ref();
        let gaps = rollup.is_some_and(|rollup| rollup.contexts.nodes.iter().any(Option::is_none));
        gaps.then(|| "checks are incomplete".to_owned())
    }

    /// The cursor of the next page of contexts.
    pub(super) fn next_contexts_cursor(&self) -> Option<String> {
        let head = self.pull.commits.iter().next().filter(|_| self.is_open())?;
        let page = &head.commit.status_check_rollup.as_ref()?.contexts.page_info;
        page.end_cursor.clone().filter(|_| page.has_next_page)
    }

    /// The requirements of the base from its protection, from the part of it that non-administrators may read, and from rulesets.
    pub(super) fn base_rules(&self) -> BaseRules {
        let mut contexts = BTreeSet::new();
        // GitHub reports BEHIND only for strict bases, so it proves strictness even if the protection is hidden.
        let mut strict = self.pull.merge_state_status == "BEHIND";
        let mut visible = !self.rules_hidden;
        if let Some(BaseRefNode { branch_protection_rule, ref_update_rule, rules }) = &self.pull.base_ref {
            if let Some(rule) = branch_protection_rule {
                visible = true;
                strict |= rule.requires_strict_status_checks;
                contexts.extend(rule.required_status_check_contexts.iter().flatten().flatten().cloned());
            }
            if let Some(rule) = ref_update_rule {
                visible = true;
                contexts.extend(rule.required_status_check_contexts.iter().flatten().flatten().cloned());
            }
            for rule in rules.iter().flat_map(List::iter) {
                let Some(StatusCheckParameters { strict_required_status_checks_policy, required_status_checks }) =
                    rule.parameters.as_ref().filter(|_| rule.kind == "REQUIRED_STATUS_CHECKS")
                else {
                    continue;
                };
                visible = true;
                strict |= strict_required_status_checks_policy;
                contexts.extend(required_status_checks.iter().map(|check| check.context.clone()));
            }
        } else {
            visible = false;
        }
        let reported = self.contexts.iter().filter(|context| context.is_required());
        contexts.extend(reported.map(|context| context.name().to_owned()));
        BaseRules { contexts: (visible || !contexts.is_empty()).then_some(contexts), strict }
    }

    /// Whether a comparison is needed to find how far the head is behind. On a strict base a head that can be merged now is up to date;
    /// BLOCKED can hide BEHIND.
    pub(super) fn needs_comparison(&self, policy: &Policy) -> bool {
        let strict = self.base_rules().strict;
        let matters = strict || policy.checks.behind == BehindRule::Always;
        let up_to_date = strict && self.is_up_to_date();
        self.is_open() && self.pull.mergeable == "MERGEABLE" && matters && !up_to_date
    }

    fn is_up_to_date(&self) -> bool {
        matches!(self.pull.merge_state_status.as_str(), "CLEAN" | "UNSTABLE" | "HAS_HOOKS")
    }

    pub(super) fn finish(self, pr: &PrId, policy: &Policy, own_app: Option<u64>) -> Result<Snapshot, SnapshotError> {
        let name = &self.pull.repository.name_with_owner;
        if !name.eq_ignore_ascii_case(pr.repo.as_str()) || self.pull.number != pr.number {
            return Err(SnapshotError::Renamed { now: format!("{name}#{}", self.pull.number) });
        }
        let head: Sha = self.pull.head_ref_oid.parse().map_err(|error| partial(format!("{error}")))?;
        let rules = self.base_rules();
        let required_checks: Option<Vec<String>> = rules
            .contexts
            .as_ref()
            .map(|contexts| contexts.iter().filter(|name| !policy.is_policy_context(name)).cloned().collect());
        let details = self.details(policy, head, required_checks.clone());
        let state = self.state(policy)?;
        let (signals, live) = match state {
            PullRequestState::Open => (self.signals(policy, own_app)?, self.live(&rules)?),
            PullRequestState::Closed { .. } | PullRequestState::Merged { .. } => {
                (Signals::default(), LiveStatus::default())
            }
        };
        Ok(Snapshot { read_at: self.read_at, details, state, signals, required_checks, live })
    }

    fn details(&self, policy: &Policy, head: Sha, required_checks: Option<Vec<String>>) -> PullRequestDetails {
        let pull = &self.pull;
        let labels = pull.labels.iter().flat_map(List::iter).map(|label| label.name.as_str());
        let author = pull.author.as_ref().map(Actor::login).unwrap_or_default();
        let origin = PullRequestOrigin { author: &author, branch: &pull.head_ref_name, fork: pull.is_cross_repository };
        PullRequestDetails {
            node_id: Some(pull.id.clone()),
            html_url: pull.url.as_deref().and_then(mapping::page_url),
            branch: pull.head_ref_name.clone(),
            base_branch: pull.base_ref_name.clone(),
            head,
            labels: mapping::labels(policy, labels),
            draft: pull.is_draft,
            vulnerability_id: mapping::vulnerability_id(policy, &origin, &pull.title, &pull.body),
            created_at: pull.created_at,
            size: Some(pull.additions.saturating_add(pull.deletions)),
            required_checks,
        }
    }

    fn state(&self, policy: &Policy) -> Result<PullRequestState, SnapshotError> {
        let pull = &self.pull;
        match (pull.state.as_str(), pull.merged_at, pull.closed_at) {
            ("OPEN", _, _) => Ok(PullRequestState::Open),
            ("MERGED", Some(at), _) => {
                let by = pull.merged_by.as_ref().map(Actor::login);
                let by_automerge_bot = by.as_deref().is_some_and(|login| policy.automerge_bot.is(login));
                Ok(PullRequestState::Merged { at, by, by_automerge_bot })
            }
            ("CLOSED", _, Some(at)) => Ok(PullRequestState::Closed { at }),
            (state, _, _) => Err(partial(format!("state `{state}` is unknown or has no timestamp"))),
        }
    }

    fn live(&self, rules: &BaseRules) -> Result<LiveStatus, SnapshotError> {
        let mergeable = match self.pull.mergeable.as_str() {
            "MERGEABLE" => Mergeability::Clean,
            "CONFLICTING" => Mergeability::Conflicting,
            "UNKNOWN" => Mergeability::Unknown,
            other => return Err(partial(format!("unknown mergeability `{other}`"))),
        };
        let up_to_date = || (rules.strict && self.is_up_to_date()).then_some(0);
        Ok(LiveStatus { mergeable, behind_by: self.behind_by.or_else(up_to_date), strict: rules.strict, build: None })
    }

    /// Who posted under Policy Bot's context on the head, and whether that is Policy Bot.
    pub(super) fn policy_authors(&self, policy: &Policy) -> Vec<(String, bool)> {
        let contexts = self.contexts.iter().filter(|context| policy.is_policy_context(context.name()));
        let judge = |author: ReportAuthor<'_>| (author.to_string(), policy.policy_bot.is(author));
        let authors = contexts.map(|context| match context {
            RollupContext::CheckRun(run) => judge(run.author()),
            RollupContext::StatusContext(status) => judge(ReportAuthor::Account(&status.creator())),
        });
        authors.collect()
    }

    fn signals(&self, policy: &Policy, own_app: Option<u64>) -> Result<Signals, SnapshotError> {
        let mut signals = Signals::default();
        for context in &self.contexts {
            match context {
                RollupContext::CheckRun(run)
                    if mapping::is_own_check_run(own_app, run.app().and_then(|app| app.database_id), &run.name, "") => {
                }
                RollupContext::CheckRun(run) => note_run(&mut signals, policy, run, self.read_at)?,
                RollupContext::StatusContext(status) => note_status(&mut signals, policy, status)?,
            }
        }
        self.note_approvals(&mut signals, policy);
        self.note_merge(&mut signals, policy);
        Ok(signals)
    }

    /// Reviews of the approver bot on this head. A dismissed review keeps its submission time.
    fn note_approvals(&self, signals: &mut Signals, policy: &Policy) {
        for review in self.pull.latest_opinionated_reviews.iter().flat_map(List::iter) {
            let by = review.author.as_ref().map(Actor::login).unwrap_or_default().to_ascii_lowercase();
            let on_head =
                review.commit.as_ref().is_some_and(|commit| commit.oid.eq_ignore_ascii_case(&self.pull.head_ref_oid));
            let Some(at) = review.submitted_at.filter(|_| on_head && policy.approver_bot.is(&by)) else { continue };
            signals.note_approval(&ApprovalReport { by, granted: review.state == "APPROVED", at });
        }
    }

    /// Automerge Bot's attempt, if it is visible on GitHub: an entry in the merge queue, or auto-merge.
    fn note_merge(&self, signals: &mut Signals, policy: &Policy) {
        let by_automerge_bot =
            |actor: &Option<Actor>| actor.as_ref().is_some_and(|actor| policy.automerge_bot.is(&actor.login()));
        let attempt = |at, failed| {
            let text = if failed { "the merge queue cannot merge it".to_owned() } else { String::new() };
            MergeReport { failed, at, text, renewal: RenewalMark::None }
        };
        if let Some(entry) = self.pull.merge_queue_entry.as_ref().filter(|entry| by_automerge_bot(&entry.enqueuer)) {
            signals.note_merge(&attempt(entry.enqueued_at, entry.state == "UNMERGEABLE"));
        }
        let auto = self.pull.auto_merge_request.as_ref().filter(|auto| by_automerge_bot(&auto.enabled_by));
        if let Some(at) = auto.and_then(|auto| auto.enabled_at) {
            signals.note_merge(&attempt(at, false));
        }
    }
}

impl RollupContext {
    pub(super) fn is_required(&self) -> bool {
        match self {
            Self::CheckRun(run) => run.is_required,
            Self::StatusContext(status) => status.is_required,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::CheckRun(run) => &run.name,
            Self::StatusContext(status) => &status.context,
        }
    }
}

impl CheckRunNode {
    fn app(&self) -> Option<&AppNode> {
        self.check_suite.as_ref()?.app.as_ref()
    }

    fn author(&self) -> ReportAuthor<'_> {
        let app = self.app();
        ReportAuthor::App { id: app.and_then(|app| app.database_id), slug: app.map_or("", |app| app.slug.as_str()) }
    }
}

impl StatusContextNode {
    fn creator(&self) -> String {
        self.creator.as_ref().map(Actor::login).unwrap_or_default()
    }
}

fn note_run(
    signals: &mut Signals,
    policy: &Policy,
    run: &CheckRunNode,
    read_at: Timestamp,
) -> Result<(), SnapshotError> {
    let conclusion = run.conclusion.as_deref().unwrap_or_default().to_ascii_lowercase();
    let Some(verdict) = mapping::run_verdict(&run.status, &conclusion) else {
        return Err(partial(format!("unknown check state `{} {conclusion}`", run.status)));
    };
    let suite = run.check_suite.as_ref();
    let at = run
        .completed_at
        .filter(|_| matches!(verdict, CheckVerdict::Passed | CheckVerdict::Failed))
        .or(run.started_at)
        .or_else(|| suite.and_then(|suite| suite.updated_at.or(suite.created_at)))
        .unwrap_or(read_at);
    let parts = [&run.title, &run.summary, &run.text];
    let text = parts.into_iter().flatten().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("\n");
    let reported = mapping::CheckReportSource {
        name: &run.name,
        kind: CheckKind::Run,
        verdict,
        conclusion: &conclusion,
        id: run.id(),
        started_at: run.started_at,
        at,
        text: &text,
        author: run.author(),
    };
    note(signals, mapping::report(policy, &reported));
    Ok(())
}

fn note_status(signals: &mut Signals, policy: &Policy, status: &StatusContextNode) -> Result<(), SnapshotError> {
    let text = status.description.as_deref().unwrap_or_default();
    let state = status.state.to_ascii_lowercase();
    let creator = status.creator();
    let Some(verdict) = mapping::status_verdict(&state) else {
        return Err(partial(format!("unknown status state `{state}`")));
    };
    let reported = mapping::CheckReportSource {
        name: &status.context,
        kind: CheckKind::Status,
        verdict,
        conclusion: &state,
        id: None,
        started_at: None,
        at: status.created_at,
        text,
        author: ReportAuthor::Account(&creator),
    };
    note(signals, mapping::report(policy, &reported));
    Ok(())
}

fn note(signals: &mut Signals, report: MappedReport) {
    match report {
        MappedReport::Policy(report) => signals.note_policy(&report),
        MappedReport::Check(check) => signals.note_check(&check, usize::MAX),
    };
}

pub(super) fn partial(why: String) -> SnapshotError {
    SnapshotError::Partial { why }
}
