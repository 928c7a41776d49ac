//! CodeGenie: opens pull requests that repair vulnerabilities, on its own or on request. Also other users' pushes to
//! the base.

use serde_json::{Value, json};

use crate::clock::TimedEvent;
use crate::fakes::Fakes;
use crate::faults::Fault;
use crate::github::changes::NewPullDetails;
use crate::github::model::{PrIx, PullState, RepoIx};
use crate::scenario::NewPullRequest;

pub(crate) const LOGIN: &str = "codegenie[bot]";

/// A request to CodeGenie for a pull request.
#[derive(Debug, Clone)]
pub(crate) struct CodegenieRequest {
    repo: RepoIx,
    vulnerability: String,
    replaces: Option<u64>,
}

impl Fakes {
    pub(crate) fn genie_requested(&mut self, detail: &Value, old: Option<PrIx>) -> bool {
        let (Some(repo), Some(id)) =
            (self.repo_ix(detail["repo"].as_str().unwrap_or_default()), detail["vulnerability_id"].as_str())
        else {
            return false;
        };
        if old.is_some_and(|ix| self.strikes(ix, Fault::GenieAsleep)) {
            return true;
        }
        self.genie_requests.push(CodegenieRequest {
            repo,
            vulnerability: id.to_owned(),
            replaces: detail["pr_number"].as_u64(),
        });
        let ms = self.genie_rng.between(self.settings.timing.genie_ms);
        self.clock.after_ms(ms, TimedEvent::GenieOpens(self.genie_requests.len() - 1));
        true
    }

    /// Somebody asks CodeGenie on a pull request for its replacement.
    pub(crate) fn genie_asked_on(&mut self, ix: PrIx) {
        let pull = self.github.pull(ix);
        let repo = &self.github.repo(pull.repo).settings.name;
        let detail = json!({"repo": repo, "pr_number": pull.number, "vulnerability_id": pull.vulnerability});
        self.genie_requested(&detail, Some(ix));
    }

    /// Opens the requested pull request, unless one for the vulnerability is already open or merged. A repeated request
    /// is harmless.
    pub(crate) fn genie_opens(&mut self, place: usize) {
        let CodegenieRequest { repo, vulnerability, replaces } = self.genie_requests[place].clone();
        let known = |ix: &PrIx| self.github.pull(*ix).vulnerability.as_deref() == Some(&vulnerability);
        let merged = |ix: &PrIx| self.github.pull(*ix).state == PullState::Merged && known(ix);
        if self.open_pulls[repo.0].iter().any(known) || self.github.pulls_of(repo).any(|ix| merged(&ix)) {
            return;
        }
        let ix = self.genie_pull(repo, &vulnerability, replaces, NewPullRequest::default());
        let plan = &mut self.fault_plans[ix.0];
        // A replacement has no random conflicts: a second conflict of a vulnerability is the fault that needs a person.
        plan.planned.retain(|fault| !matches!(fault, Fault::Conflict | Fault::ConflictAgain));
        if self.conflicts_again.contains(&vulnerability) {
            self.fault_plans[ix.0].planned.push(Fault::ConflictAgain);
            self.plan_base(ix);
        }
    }

    /// CodeGenie finds a new vulnerability.
    pub(crate) fn genie_finds(&mut self, repo: RepoIx) {
        let id = self.next_vulnerability();
        self.genie_pull(repo, &id, None, NewPullRequest::default());
    }

    pub(crate) fn next_vulnerability(&mut self) -> String {
        self.genie_found += 1;
        format!("CVE-2026-{}", 10_000 + self.genie_found)
    }

    pub(crate) fn genie_pull(&mut self, repo: RepoIx, id: &str, replaces: Option<u64>, new: NewPullRequest) -> PrIx {
        let try_number =
            self.github.pulls_of(repo).filter(|ix| self.github.pull(*ix).vulnerability.as_deref() == Some(id)).count()
                + 1;
        let suffix = if try_number > 1 { format!("-{try_number}") } else { String::new() };
        let replaced = replaces.map_or_else(String::new, |number| format!("\n\nReplaces #{number}."));
        let mut labels = vec!["codegenie".to_owned()];
        labels.extend(new.labels);
        self.open(NewPullDetails {
            repo,
            author: if new.author.is_empty() { LOGIN.to_owned() } else { new.author },
            title: format!("Repair {id}"),
            body: format!("Updates a dependency that is vulnerable to {id}.{replaced}"),
            head_ref: format!("codegenie/{}{suffix}", id.to_ascii_lowercase()),
            labels,
            draft: new.draft,
            fork: new.fork,
            vulnerability: Some(id.to_owned()),
        })
    }

    /// Schedules the push to the base if one of the planned faults needs it.
    pub(crate) fn plan_base(&mut self, ix: PrIx) {
        for fault in self.fault_plans[ix.0].planned.clone() {
            if matches!(fault, Fault::BaseMoves | Fault::Conflict | Fault::ConflictAgain) {
                let ms = self.delay(ix, self.settings.timing.base_moves_ms);
                self.clock.after_ms(ms, TimedEvent::BaseMoves(ix, fault != Fault::BaseMoves));
            }
        }
    }

    pub(crate) fn base_moves(&mut self, ix: PrIx, conflicting: bool) {
        if !self.github.pull(ix).is_open() {
            return;
        }
        let repo = self.github.pull(ix).repo;
        if !conflicting {
            if self.strikes(ix, Fault::BaseMoves) {
                self.push_to_base(repo, "maria");
            }
            return;
        }
        let again = self.strikes(ix, Fault::ConflictAgain);
        if again && let Some(id) = self.github.pull(ix).vulnerability.clone() {
            self.conflicts_again.insert(id);
        }
        if again || self.strikes(ix, Fault::Conflict) {
            self.conflict_with(ix);
        }
    }

    /// Pushes a conflicting commit to the base.
    pub(crate) fn conflict_with(&mut self, ix: PrIx) {
        self.push_to_base(self.github.pull(ix).repo, "maria");
        self.github.pulls[ix.0].conflicts = true;
        self.forget_mergeability(ix);
    }
}
