//! Lists the open pull requests of a repository, so that the sweep finds those whose `opened` webhook was lost, and the
//! recently closed ones, so that it finds a replacement that was merged before it was listed as open.

use domain::event::PullRequestDetails;
use domain::id::{PrId, RepoName};
use domain::policy::{Policy, PullRequestOrigin};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::client::GitHub;
use super::graphql::{CLOSED_PULL_REQUESTS, GraphqlResponse, OPEN_PULL_REQUESTS};
use super::mapping;
use super::pulls::owner;
use super::snapshots::{Actor, Label, List};
use crate::transport::ApiError;

/// Pages of 100 pull requests; further ones are not listed.
const MAX_PAGES: usize = 50;
/// The same for closed pull requests, of which only those since a given time are wanted.
const MAX_CLOSED_PAGES: usize = 10;

/// A pull request in a list, with the fields needed to adopt it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPullRequest {
    pub id: PrId,
    pub author: String,
    /// Whether its head is in another repository.
    pub fork: bool,
    pub updated_at: Timestamp,
    /// All labels; `described` has only those that Suture uses.
    pub labels: Vec<String>,
    pub described: PullRequestDetails,
}

impl ListedPullRequest {
    pub fn is_managed(&self, policy: &Policy) -> bool {
        let origin = PullRequestOrigin { author: &self.author, branch: &self.described.branch, fork: self.fork };
        policy.managed.matches(&origin, self.labels.iter().map(String::as_str))
    }
}

#[derive(Deserialize)]
struct InventoryResponse {
    repository: Option<InventoryRepository>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InventoryRepository {
    pull_requests: List<InventoryPull>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InventoryPull {
    id: String,
    number: u64,
    url: Option<String>,
    title: String,
    body: String,
    is_draft: bool,
    is_cross_repository: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    additions: u64,
    deletions: u64,
    head_ref_name: String,
    head_ref_oid: String,
    base_ref_name: String,
    author: Option<Actor>,
    labels: Option<List<Label>>,
}

#[derive(Serialize)]
struct InventoryPage<'a> {
    owner: &'a str,
    name: &'a str,
    after: Option<&'a str>,
}

impl GitHub {
    /// The open pull requests of a repository, oldest first. Undecodable ones are skipped; the next inventory retries them.
    pub async fn open_pulls(&self, repo: &RepoName, policy: &Policy) -> Result<Vec<ListedPullRequest>, ApiError> {
        let mut listed = Vec::new();
        let mut after: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let pulls = self.pulls_page(repo, OPEN_PULL_REQUESTS, after.as_deref()).await?;
            listed.extend(pulls.iter().filter_map(|pull| list(repo, pull, policy)));
            after = pulls.page_info.end_cursor.filter(|_| pulls.page_info.has_next_page);
            if after.is_none() {
                return Ok(listed);
            }
        }
        warn!(%repo, pages = MAX_PAGES, "repository has more open pull requests than are listed");
        Ok(listed)
    }

    /// The closed and merged pull requests of a repository that were created since this time, newest first.
    pub async fn closed_pulls(
        &self,
        repo: &RepoName,
        policy: &Policy,
        since: Timestamp,
    ) -> Result<Vec<ListedPullRequest>, ApiError> {
        let mut listed = Vec::new();
        let mut after: Option<String> = None;
        for _ in 0..MAX_CLOSED_PAGES {
            let pulls = self.pulls_page(repo, CLOSED_PULL_REQUESTS, after.as_deref()).await?;
            let recent = pulls.iter().take_while(|pull| pull.created_at >= since);
            listed.extend(recent.filter_map(|pull| list(repo, pull, policy)));
            let older = pulls.iter().any(|pull| pull.created_at < since);
            after = pulls.page_info.end_cursor.filter(|_| pulls.page_info.has_next_page && !older);
            if after.is_none() {
                break;
            }
        }
        Ok(listed)
    }

    async fn pulls_page(
        &self,
        repo: &RepoName,
        document: &str,
        after: Option<&str>,
    ) -> Result<List<InventoryPull>, ApiError> {
        let page = InventoryPage { owner: repo.owner(), name: repo.name(), after };
        let graph: GraphqlResponse<InventoryResponse> = self.query(owner(repo), document, page, true).await?;
        let not_found = || ApiError::NotFound { message: format!("repository `{repo}`") };
        Ok(graph.data.and_then(|data| data.repository).ok_or_else(not_found)?.pull_requests)
    }
}

fn list(repo: &RepoName, pull: &InventoryPull, policy: &Policy) -> Option<ListedPullRequest> {
    let labels: Vec<String> = pull.labels.iter().flat_map(List::iter).map(|label| label.name.clone()).collect();
    let author = pull.author.as_ref().map(Actor::login).unwrap_or_default();
    let origin = PullRequestOrigin { author: &author, branch: &pull.head_ref_name, fork: pull.is_cross_repository };
    let vulnerability_id = mapping::vulnerability_id(policy, &origin, &pull.title, &pull.body);
    Some(ListedPullRequest {
        id: PrId::new(repo.clone(), pull.number),
        author,
        fork: pull.is_cross_repository,
        updated_at: pull.updated_at,
        described: PullRequestDetails {
            node_id: Some(pull.id.clone()),
            html_url: pull.url.as_deref().and_then(mapping::page_url),
            branch: pull.head_ref_name.clone(),
            base_branch: pull.base_ref_name.clone(),
            head: pull.head_ref_oid.parse().ok()?,
            labels: mapping::labels(policy, labels.iter().map(String::as_str)),
            draft: pull.is_draft,
            vulnerability_id,
            created_at: pull.created_at,
            size: Some(pull.additions.saturating_add(pull.deletions)),
            required_checks: None,
        },
        labels,
    })
}
