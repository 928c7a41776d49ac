//! The fields of the verification query's response, uninterpreted.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(super) struct Nodes {
    /// `null` for nodes that do not exist or could not be read.
    pub(super) nodes: Vec<Option<Value>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Node {
    pub(super) node: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PullNode {
    pub(super) id: String,
    pub(super) number: u64,
    pub(super) url: Option<String>,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) state: String,
    pub(super) is_draft: bool,
    pub(super) is_cross_repository: bool,
    pub(super) author: Option<Actor>,
    pub(super) created_at: Timestamp,
    pub(super) closed_at: Option<Timestamp>,
    pub(super) merged_at: Option<Timestamp>,
    pub(super) additions: u64,
    pub(super) deletions: u64,
    pub(super) head_ref_name: String,
    pub(super) head_ref_oid: String,
    pub(super) base_ref_name: String,
    pub(super) mergeable: String,
    pub(super) merge_state_status: String,
    pub(super) repository: RepositoryNode,
    pub(super) merged_by: Option<Actor>,
    pub(super) merge_queue_entry: Option<MergeQueueEntryNode>,
    pub(super) auto_merge_request: Option<AutoMergeNode>,
    pub(super) labels: Option<List<Label>>,
    pub(super) latest_opinionated_reviews: Option<List<ReviewNode>>,
    pub(super) base_ref: Option<BaseRefNode>,
    pub(super) commits: List<PullCommitNode>,
}

/// The fields that are polled while GitHub computes the mergeability.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MergeabilityFields {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) head_ref_oid: String,
    pub(super) mergeable: String,
    pub(super) merge_state_status: String,
}

/// The head of one pull request, with further contexts.
#[derive(Debug, Deserialize)]
pub(super) struct FurtherContexts {
    pub(super) commits: List<PullCommitNode>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RepositoryNode {
    pub(super) name_with_owner: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(in crate::github) struct Actor {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
}

impl Actor {
    /// The login as in webhooks and REST; GraphQL omits the `[bot]` of Apps.
    pub(in crate::github) fn login(&self) -> String {
        if self.kind == "Bot" && !self.login.ends_with("[bot]") {
            format!("{}[bot]", self.login)
        } else {
            self.login.clone()
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MergeQueueEntryNode {
    pub(super) state: String,
    pub(super) enqueued_at: Timestamp,
    pub(super) enqueuer: Option<Actor>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AutoMergeNode {
    pub(super) enabled_at: Option<Timestamp>,
    pub(super) enabled_by: Option<Actor>,
}

/// A page of a list. Entries may be `null`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::github) struct List<T> {
    #[serde(default)]
    pub(in crate::github) page_info: PageInfo,
    pub(in crate::github) nodes: Vec<Option<T>>,
}

impl<T> List<T> {
    pub(super) fn is_complete(&self) -> bool {
        !self.page_info.has_next_page && self.nodes.iter().all(Option::is_some)
    }

    pub(in crate::github) fn iter(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().flatten()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::github) struct PageInfo {
    pub(in crate::github) has_next_page: bool,
    pub(in crate::github) end_cursor: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(in crate::github) struct Label {
    pub(in crate::github) name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReviewNode {
    pub(super) state: String,
    pub(super) submitted_at: Option<Timestamp>,
    pub(super) author: Option<Actor>,
    pub(super) commit: Option<CommitOid>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CommitOid {
    pub(super) oid: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BaseRefNode {
    pub(super) branch_protection_rule: Option<BranchProtectionNode>,
    pub(super) ref_update_rule: Option<RefUpdateRuleNode>,
    pub(super) rules: Option<List<RulesetRuleNode>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BranchProtectionNode {
    pub(super) required_status_check_contexts: Option<Vec<Option<String>>>,
    pub(super) requires_strict_status_checks: bool,
}

/// The part of a protection that non-administrators may read.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RefUpdateRuleNode {
    pub(super) required_status_check_contexts: Option<Vec<Option<String>>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RulesetRuleNode {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) parameters: Option<StatusCheckParameters>,
}

/// Empty for rules of other types.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StatusCheckParameters {
    pub(super) strict_required_status_checks_policy: bool,
    pub(super) required_status_checks: Vec<RequiredContextNode>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RequiredContextNode {
    pub(super) context: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct PullCommitNode {
    pub(super) commit: CommitNode,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitNode {
    pub(super) oid: String,
    /// `null` until the first report.
    pub(super) status_check_rollup: Option<StatusRollupNode>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct StatusRollupNode {
    pub(super) contexts: List<RollupContext>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "__typename")]
pub(super) enum RollupContext {
    CheckRun(Box<CheckRunNode>),
    StatusContext(StatusContextNode),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckRunNode {
    /// May be missing: GitHub's ids exceed the 32 bits of GraphQL's `Int`.
    pub(super) database_id: Option<u64>,
    /// Ends with the id.
    pub(super) resource_path: Option<String>,
    pub(super) name: String,
    pub(super) status: String,
    pub(super) conclusion: Option<String>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) completed_at: Option<Timestamp>,
    pub(super) title: Option<String>,
    pub(super) summary: Option<String>,
    pub(super) text: Option<String>,
    pub(super) check_suite: Option<CheckSuiteNode>,
    #[serde(default)]
    pub(super) is_required: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckSuiteNode {
    pub(super) created_at: Option<Timestamp>,
    pub(super) updated_at: Option<Timestamp>,
    pub(super) app: Option<AppNode>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppNode {
    pub(super) database_id: Option<u64>,
    pub(super) slug: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusContextNode {
    pub(super) context: String,
    pub(super) state: String,
    pub(super) description: Option<String>,
    pub(super) created_at: Timestamp,
    /// `null` for a deleted account.
    pub(super) creator: Option<Actor>,
    #[serde(default)]
    pub(super) is_required: bool,
}

impl CheckRunNode {
    /// The id; newer runs of a check have higher ids.
    pub(super) fn id(&self) -> Option<u64> {
        let in_path = || self.resource_path.as_deref()?.rsplit(['/', '=']).next()?.parse().ok();
        self.database_id.or_else(in_path)
    }
}
