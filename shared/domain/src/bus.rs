//! The target of each remedy, and the format of requests on the event bus. The Car Bridge sends them.

use serde::{Deserialize, Serialize};

use crate::id::{EffectId, RepoName, RunId, Sha};
use crate::state::Strategy;

/// The `source` of every event Suture puts on the bus.
pub const BUS_SOURCE: &str = "suture";

named! {
    /// The system that carries out a remedy.
    pub enum RemedyTarget {
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

impl RemedyTarget {
    /// The target of this strategy. For close-and-reopen: CodeGenie, which opens the new pull request after Suture has
    /// closed the old one on GitHub.
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

    /// The event on the bus for this target; `None` for targets that are called directly.
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
    /// The `detail-type` of an event on the bus. Bots match their rules on these names.
    pub enum DetailType {
        PolicyEvaluationRequested = "PolicyEvaluationRequested",
        /// To the SOD validator: check again.
        SodCheckRequested = "SodCheckRequested",
        /// To Approver Bot: review, and approve if allowed.
        ApprovalRequested = "ApprovalRequested",
        /// To Automerge Bot: merge if allowed.
        MergeRequested = "MergeRequested",
        /// To CodeGenie: open a new pull request for this vulnerability.
        PullRequestRequested = "PullRequestRequested",
        /// To Suture's reconciler: visit this pull request now. Sent by the engine, not by a command.
        ReconcileRequested = "ReconcileRequested",
    }
}

/// The `detail` of an event on the bus. Every key is always present, null if unknown, because a missing key breaks rules and
/// templates of other teams more easily than a null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusDetail {
    pub repo: RepoName,
    /// The pull request; for CodeGenie, the one to replace.
    pub pr_number: u64,
    /// The commit the request was decided on; it is void for any other head.
    pub head_sha: Sha,
    /// The branch that the pull request is to be merged into; for CodeGenie, the base of the new one.
    pub base_branch: String,
    /// The vulnerability that the pull request fixes, if known.
    pub vulnerability_id: Option<String>,
    /// The run to which this request belongs.
    pub run_id: Option<RunId>,
    /// The idempotency key: the bus delivers at least once, and a bot may drop an event with a known key.
    pub effect_id: EffectId,
}

/// The `detail` of a request to CodeGenie for an issue without a pull request: the same keys, null where unknown, plus the
/// issue number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestRequestDetail {
    pub repo: RepoName,
    /// Always null: there is no pull request yet.
    pub pr_number: Option<u64>,
    /// Always null: there is no commit yet.
    pub head_sha: Option<Sha>,
    /// Always null: an issue names no branch, so CodeGenie chooses its usual one.
    pub base_branch: Option<String>,
    /// The vulnerability to fix.
    pub vulnerability_id: Option<String>,
    /// Always null: the request belongs to no run.
    pub run_id: Option<RunId>,
    /// The idempotency key.
    pub effect_id: EffectId,
    pub issue_number: u64,
}

impl PullRequestRequestDetail {
    pub fn for_issue(repo: &RepoName, issue: u64, vulnerability: &str, effect: &EffectId) -> Self {
        Self {
            repo: repo.clone(),
            pr_number: None,
            head_sha: None,
            base_branch: None,
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
    fn every_strategy_has_a_target() {
        let line = |strategy: Strategy| {
            let target = RemedyTarget::of(strategy);
            let event = target.detail_type().map_or_else(String::new, |event| format!(" [{event}]"));
            format!("{strategy:<24}{target}{event}\n")
        };
        let rendered: String = Strategy::ALL.into_iter().map(line).collect();
        insta::assert_snapshot!(rendered, @"
        rebuild                 jenkins
        branch_update           github
        retrigger_policy_bot    policy-bot [PolicyEvaluationRequested]
        retrigger_approver_bot  approver-bot [ApprovalRequested]
        retrigger_automerge_bot automerge-bot [MergeRequested]
        retrigger_sod_check     sod-validator [SodCheckRequested]
        close_and_reopen        codegenie [PullRequestRequested]
        ");
    }

    #[test]
    fn names_are_equal_in_json_and_display() {
        for target in RemedyTarget::ALL {
            assert_eq!(serde_json::to_string(&target).unwrap(), format!("\"{target}\""));
        }
        for detail_type in DetailType::ALL {
            assert_eq!(serde_json::to_string(&detail_type).unwrap(), format!("\"{detail_type}\""));
        }
        assert_eq!(BUS_SOURCE, "suture");
    }

    #[test]
    fn each_detail_type_except_reconcile_has_one_target() {
        for detail_type in DetailType::ALL {
            let owners = RemedyTarget::ALL.into_iter().filter(|t| t.detail_type() == Some(detail_type)).count();
            assert_eq!(owners, usize::from(detail_type != DetailType::ReconcileRequested), "{detail_type}");
        }
    }

    #[test]
    fn detail_has_all_seven_keys_and_round_trips() {
        let sha = "b".repeat(40);
        let detail = BusDetail {
            repo: "acme/my-app".parse().unwrap(),
            pr_number: 42,
            head_sha: sha.parse().unwrap(),
            base_branch: "main".to_owned(),
            vulnerability_id: Some("CVE-2026-0001".to_owned()),
            run_id: Some(RunId::new("run-1")),
            effect_id: EffectId::new("acme/my-app#42#e1#0"),
        };
        let json = serde_json::to_string(&detail).unwrap();
        assert_eq!(
            json,
            format!(
                r#"{{"repo":"acme/my-app","pr_number":42,"head_sha":"{sha}","base_branch":"main","vulnerability_id":"CVE-2026-0001","run_id":"run-1","effect_id":"acme/my-app#42#e1#0"}}"#
            )
        );
        assert_eq!(serde_json::from_str::<BusDetail>(&json).unwrap(), detail);
        let repo = "acme/my-app".parse().unwrap();
        let ask =
            PullRequestRequestDetail::for_issue(&repo, 7, "CVE-2026-0001", &EffectId::new("backlog:acme/my-app#7:1"));
        assert_eq!(
            serde_json::to_string(&ask).unwrap(),
            r#"{"repo":"acme/my-app","pr_number":null,"head_sha":null,"base_branch":null,"vulnerability_id":"CVE-2026-0001","run_id":null,"effect_id":"backlog:acme/my-app#7:1","issue_number":7}"#
        );
        let bare = BusDetail { vulnerability_id: None, run_id: None, ..detail };
        let json = serde_json::to_string(&bare).unwrap();
        assert!(json.contains(r#""vulnerability_id":null,"run_id":null"#), "{json}");
    }
}
