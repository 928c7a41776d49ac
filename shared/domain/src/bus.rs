//! Who carries out each remedy, and what a request on the event bus looks like. Only names and shapes: the Car Bridge does the
//! sending.

use serde::{Deserialize, Serialize};

use crate::id::{EffectId, RepoName, RunId, Sha};
use crate::state::Strategy;

/// The `source` of every event Suture puts on the bus.
pub const BUS_SOURCE: &str = "suture";

named! {
    /// Who carries out a remedy.
    pub enum Target {
        Jenkins = "jenkins",
        /// Policy Bot, over the bus.
        PolicyBot = "policy-bot",
        /// The separation-of-duties validator, over the bus.
        SodValidator = "sod-validator",
        /// Approver Bot, over the bus.
        ApproverBot = "approver-bot",
        /// Automerge Bot, over the bus.
        AutomergeBot = "automerge-bot",
        GitHub = "github",
        /// CodeGenie, which opens pull requests, over the bus.
        CodeGenie = "codegenie",
    }
}

impl Target {
    /// Who carries out this strategy. For close-and-reopen: who is asked for the fresh pull request, once GitHub has closed the
    /// old one.
    pub fn of(strategy: Strategy) -> Self {
        match strategy {
            Strategy::RetriggerPolicyBot => Self::PolicyBot,
            Strategy::RetriggerSodCheck => Self::SodValidator,
            Strategy::RetriggerApproverBot => Self::ApproverBot,
            Strategy::RetriggerAutomergeBot => Self::AutomergeBot,
            Strategy::Rebuild => Self::Jenkins,
            Strategy::BranchUpdate => Self::GitHub,
            Strategy::CloseAndReopen => Self::CodeGenie,
        }
    }

    /// What is put on the bus for it; nothing for those we call directly.
    pub fn detail_type(self) -> Option<DetailType> {
        match self {
            Self::PolicyBot => Some(DetailType::PolicyEvaluationRequested),
            Self::SodValidator => Some(DetailType::SodCheckRequested),
            Self::ApproverBot => Some(DetailType::ApprovalRequested),
            Self::AutomergeBot => Some(DetailType::MergeRequested),
            Self::CodeGenie => Some(DetailType::PullRequestRequested),
            Self::Jenkins | Self::GitHub => None,
        }
    }
}

named! {
    /// What an event on the bus asks for: its `detail-type`. Bots match their rules on these names.
    pub enum DetailType {
        PolicyEvaluationRequested = "PolicyEvaluationRequested",
        /// The SOD validator: check.
        SodCheckRequested = "SodCheckRequested",
        /// Approver Bot: look, and approve if you may.
        ApprovalRequested = "ApprovalRequested",
        /// Automerge Bot: merge if you may.
        MergeRequested = "MergeRequested",
        /// CodeGenie: open a fresh pull request for this vulnerability.
        PullRequestRequested = "PullRequestRequested",
        /// Our own reconciler: look at this pull request now. No command leads here; the engine sends it.
        ReconcileRequested = "ReconcileRequested",
    }
}

/// The `detail` of an event on the bus. Every key is always there, null if unknown: other people's rules and templates
/// read it, and a missing key breaks those more easily than a null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusDetail {
    pub repo: RepoName,
    /// Which pull request there; for CodeGenie, the one to be replaced.
    pub pr_number: u64,
    /// The commit the request was decided on; for another head it is void.
    pub head_sha: Sha,
    /// What the pull request fixes, if it says so.
    pub vulnerability_id: Option<String>,
    /// The run this is a step of.
    pub run_id: Option<RunId>,
    /// The same in every repetition: the bus delivers at least once, and a bot may drop what it has seen.
    pub effect_id: EffectId,
}

/// The `detail` of a request to CodeGenie for an issue that has no pull request yet: the same keys, null where there is nothing
/// to name, and the issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestAsk {
    pub repo: RepoName,
    pub pr_number: Option<u64>,
    /// Nor a commit it was decided on.
    pub head_sha: Option<Sha>,
    /// What the pull request is to fix.
    pub vulnerability_id: Option<String>,
    /// It is no step of a run.
    pub run_id: Option<RunId>,
    /// The same in every repetition.
    pub effect_id: EffectId,
    pub issue_number: u64,
}

impl PullRequestAsk {
    pub fn of_issue(repo: &RepoName, issue: u64, vulnerability: &str, effect: &EffectId) -> Self {
        Self {
            repo: repo.clone(),
            pr_number: None,
            head_sha: None,
            vulnerability_id: Some(vulnerability.to_owned()),
            run_id: None,
            effect_id: effect.clone(),
            issue_number: issue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_has_its_target() {
        let line = |strategy: Strategy| {
            let target = Target::of(strategy);
            let event = target.detail_type().map_or_else(String::new, |event| format!(" [{event}]"));
            format!("{strategy:<24}{target}{event}\n")
        };
        let rendered: String = Strategy::ALL.into_iter().map(line).collect();
        insta::assert_snapshot!(rendered, @"
        rebuildjenkins
        branch_updategithub
        retrigger_policy_botpolicy-bot [PolicyEvaluationRequested]
        retrigger_approver_botapprover-bot [ApprovalRequested]
        retrigger_automerge_botautomerge-bot [MergeRequested]
        retrigger_sod_checksod-validator [SodCheckRequested]
        close_and_reopencodegenie [PullRequestRequested]
        ");
    }

    #[test]
    fn names_are_what_json_shows() {
        for target in Target::ALL {
            assert_eq!(serde_json::to_string(&target).unwrap(), format!("\"{target}\""));
        }
        for detail_type in DetailType::ALL {
            assert_eq!(serde_json::to_string(&detail_type).unwrap(), format!("\"{detail_type}\""));
        }
        assert_eq!(BUS_SOURCE, "suture");
    }

    #[test]
    fn each_detail_type_but_the_reconcilers_belongs_to_one_target() {
        for detail_type in DetailType::ALL {
            let owners = Target::ALL.into_iter().filter(|t| t.detail_type() == Some(detail_type)).count();
            assert_eq!(owners, usize::from(detail_type != DetailType::ReconcileRequested), "{detail_type}");
        }
    }

    #[test]
    fn a_detail_shows_all_six_keys_and_comes_back() {
        let sha = "b".repeat(40);
        let detail = BusDetail {
            repo: "acme/my-app".parse().unwrap(),
            pr_number: 42,
            head_sha: sha.parse().unwrap(),
            vulnerability_id: Some("CVE-2026-0001".to_owned()),
            run_id: Some(RunId::new("run-1")),
            effect_id: EffectId::new("acme/my-app#42#e1#0"),
        };
        let json = serde_json::to_string(&detail).unwrap();
        assert_eq!(
            json,
            format!(
                r#"{{"repo":"acme/my-app","pr_number":42,"head_sha":"{sha}","vulnerability_id":"CVE-2026-0001","run_id":"run-1","effect_id":"acme/my-app#42#e1#0"}}"#
            )
        );
        assert_eq!(serde_json::from_str::<BusDetail>(&json).unwrap(), detail);
        let repo = "acme/my-app".parse().unwrap();
        let ask = PullRequestAsk::of_issue(&repo, 7, "CVE-2026-0001", &EffectId::new("backlog:acme/my-app#7:1"));
        assert_eq!(
            serde_json::to_string(&ask).unwrap(),
            r#"{"repo":"acme/my-app","pr_number":null,"head_sha":null,"vulnerability_id":"CVE-2026-0001","run_id":null,"effect_id":"backlog:acme/my-app#7:1","issue_number":7}"#
        );
        let bare = BusDetail { vulnerability_id: None, run_id: None, ..detail };
        let json = serde_json::to_string(&bare).unwrap();
        assert!(json.contains(r#""vulnerability_id":null,"run_id":null"#), "{json}");
    }
}
