//! Verification: reads the current state of many pull requests from GitHub, up to 25 per query; a failing batch is split in half. Further
//! contexts, unknown mergeability and comparisons are requested only where needed. A pull request that cannot be read does not affect the
//! others.

mod builder;
mod raw;

use std::collections::BTreeMap;

use domain::id::{PrId, RepoName, Sha};
use domain::policy::{Policies, Policy};
use domain::snapshot::Snapshot;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use super::auth::Identity;
use super::client::GitHub;
use super::graphql::{CONTEXTS, GraphqlError, GraphqlResponse, MERGEABLE, PULL_REQUESTS};
use crate::transport::ApiError;
use builder::{SnapshotBuilder, partial};
pub(super) use raw::{Actor, Label, List};
use raw::{FurtherContexts, MergeabilityFields, Node, Nodes, PullNode};

/// Pages of 100 contexts, per pull request.
const MAX_CONTEXT_PAGES: usize = 20;
/// Failed queries per batch before the rest is left to the next sweep: enough to isolate one pull request that fails the query, and few if
/// GitHub is down.
const MAX_FAILURES: usize = 8;
/// Pull requests per verification query.
const BATCH: usize = 25;
/// GitHub's limit for `nodes(ids:)`.
const MAX_NODES: usize = 100;
/// Fields that Suture may lack permission to read; the rest of the response is valid without them.
const MAY_BE_HIDDEN: [&str; 3] = ["branchProtectionRule", "refUpdateRule", "rules"];

/// Why a pull request could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SnapshotError {
    #[error("not found on GitHub, or not visible to Suture")]
    Gone,
    #[error("renamed to `{now}`")]
    Renamed { now: String },
    /// A part is missing or unknown, so there is no snapshot.
    #[error("incomplete response from GitHub: {why}")]
    Partial { why: String },
    #[error("GitHub request failed: {0}")]
    Failed(ApiError),
}

impl SnapshotError {
    /// The end of the rate limit.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Failed(error) => error.until(),
            Self::Gone | Self::Renamed { .. } | Self::Partial { .. } => None,
        }
    }
}

/// A pull request to read, with its index in the caller's list.
#[derive(Debug, Clone, Copy)]
struct PendingSnapshot<'a> {
    index: usize,
    pr: &'a PrId,
    node_id: &'a str,
}

type SnapshotResult = Result<SnapshotBuilder, SnapshotError>;

#[derive(Serialize)]
struct NodeIdVariables<'a> {
    ids: Vec<&'a str>,
}

#[derive(Serialize)]
struct ContextPageVariables<'a> {
    id: &'a str,
    after: Option<&'a str>,
}

impl GitHub {
    /// Reads the current state of pull requests, in the given order. Never fails as a whole.
    pub async fn snapshots(
        &self,
        prs: &[(PrId, String)],
        policies: &Policies,
    ) -> Vec<(PrId, Result<Snapshot, SnapshotError>)> {
        let mut readings: Vec<Option<SnapshotResult>> = prs.iter().map(|_| None).collect();
        for (index, reading) in
            join_all(batches(prs, BATCH).into_iter().map(|b| self.read_batch(b))).await.into_iter().flatten()
        {
            readings[index] = Some(reading);
        }
        let mut readings: Vec<SnapshotResult> = readings
            .into_iter()
            .map(|one| one.unwrap_or_else(|| Err(partial("missing from the response".to_owned()))))
            .collect();
        join_all(prs.iter().zip(&mut readings).map(|((pr, _), reading)| self.read_further(pr, reading))).await;
        self.poll_mergeability(prs, &mut readings).await;
        self.compare(prs, &mut readings, policies).await;
        let own_app = self.session().app.as_ref().map(|app| app.app_id.0);
        prs.iter()
            .zip(readings)
            .map(|((pr, _), reading)| {
                let snapshot = reading.and_then(|reading| reading.finish(pr, policies.for_repo(&pr.repo), own_app));
                (pr.clone(), snapshot)
            })
            .collect()
    }

    /// Who posted under Policy Bot's context on the heads of these pull requests, and whether that is Policy Bot. For `doctor`;
    /// unreadable pull requests are left out.
    pub async fn policy_authors(&self, prs: &[(PrId, String)], policy: &Policy) -> BTreeMap<String, bool> {
        let batches = join_all(batches(prs, BATCH).into_iter().map(|batch| self.read_batch(batch))).await;
        let readings = batches.into_iter().flatten().filter_map(|(_, reading)| reading.ok());
        readings.flat_map(|reading| reading.policy_authors(policy)).collect()
    }

    /// Reads one batch; after a transient error, its halves.
    async fn read_batch(&self, batch: Vec<PendingSnapshot<'_>>) -> Vec<(usize, SnapshotResult)> {
        let mut done = Vec::with_capacity(batch.len());
        let mut failures = 0;
        let mut waiting = vec![batch];
        while let Some(mut part) = waiting.pop() {
            let error = match self.read_part(&part).await {
                Ok(readings) => {
                    done.extend(part.iter().map(|wanted| wanted.index).zip(readings));
                    continue;
                }
                Err(error) => error,
            };
            failures += 1;
            if error.is_transient() && part.len() > 1 && failures < MAX_FAILURES {
                let rest = part.split_off(part.len() / 2);
                waiting.extend([rest, part]);
                continue;
            }
            // A single unreadable pull request: continue with the others. Any other error would fail them, too.
            let single = error.is_transient() && part.len() == 1 && failures < MAX_FAILURES;
            let abandoned = if single { Vec::new() } else { std::mem::take(&mut waiting) };
            let failed = part.iter().chain(abandoned.iter().flatten());
            done.extend(failed.map(|wanted| (wanted.index, Err(SnapshotError::Failed(error.clone())))));
        }
        done
    }

    async fn read_part(&self, batch: &[PendingSnapshot<'_>]) -> Result<Vec<SnapshotResult>, ApiError> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let who = Identity::Installation(first.pr.repo.owner());
        let read_at = self.limiter.clock.now();
        let ids = NodeIdVariables { ids: batch.iter().map(|wanted| wanted.node_id).collect() };
        let graph: GraphqlResponse<Nodes> = self.query(who, PULL_REQUESTS, ids, false).await?;
        let nodes = graph.data.map(|data| data.nodes).unwrap_or_default();
        // An error without a path may concern any of the pull requests.
        let without_path = graph.errors.iter().find(|error| error.path.is_empty());
        if nodes.len() != batch.len() {
            let why = "missing from the response".to_owned();
            return Ok(batch.iter().map(|_| Err(partial(why.clone()))).collect());
        }
        let readings = nodes.into_iter().enumerate().map(|(index, node)| {
            let errors: Vec<&GraphqlError> =
                graph.errors.iter().filter(|error| index_of(error) == Some(index)).chain(without_path).collect();
            read_node(read_at, node, &errors)
        });
        Ok(readings.collect())
    }

    /// Reads the contexts after the first page. If the base's rules are hidden, reads all of them again with `isRequired`.
    async fn read_further(&self, pr: &PrId, reading: &mut SnapshotResult) {
        let Ok(known) = reading else { return };
        let rules_unknown = known.is_open() && known.rules_hidden && known.base_rules().contexts.is_none();
        let mut after = known.next_contexts_cursor();
        if rules_unknown {
            known.contexts.clear();
            after = None;
        } else if after.is_none() {
            return;
        }
        for _ in 0..MAX_CONTEXT_PAGES {
            match self.further_page(pr, known, after.as_deref()).await {
                Ok(Some(next)) => after = Some(next),
                Ok(None) => return,
                Err(unread) => {
                    *reading = Err(unread);
                    return;
                }
            }
        }
        *reading = Err(partial(format!("more than {} checks", MAX_CONTEXT_PAGES * 100)));
    }

    /// Reads one page of contexts and returns the cursor of the next one.
    async fn further_page(
        &self,
        pr: &PrId,
        reading: &mut SnapshotBuilder,
        after: Option<&str>,
    ) -> Result<Option<String>, SnapshotError> {
        let page = ContextPageVariables { id: &reading.pull.id, after };
        let who = Identity::Installation(pr.repo.owner());
        let graph: GraphqlResponse<Node> =
            self.query(who, CONTEXTS, page, true).await.map_err(SnapshotError::Failed)?;
        if let Some(error) = graph.errors.first() {
            return Err(partial(error.message.clone()));
        }
        let node = graph.data.and_then(|data| data.node).ok_or(SnapshotError::Gone)?;
        let further: FurtherContexts = serde_json::from_value(node).map_err(|error| partial(error.to_string()))?;
        let head = further.commits.iter().next().map(|head| &head.commit);
        let head = head.filter(|head| head.oid.eq_ignore_ascii_case(&reading.pull.head_ref_oid));
        let head = head.ok_or_else(|| partial("the head changed while it was read".to_owned()))?;
        let Some(rollup) = &head.status_check_rollup else { return Ok(None) };
        if rollup.contexts.nodes.iter().any(Option::is_none) {
            return Err(partial("checks are incomplete".to_owned()));
        }
        reading.contexts.extend(rollup.contexts.iter().cloned());
        let page = &rollup.contexts.page_info;
        Ok(page.end_cursor.clone().filter(|_| page.has_next_page))
    }

    /// Polls unknown mergeability, which GitHub computes asynchronously. After the last poll it stays unknown.
    async fn poll_mergeability(&self, prs: &[(PrId, String)], readings: &mut [SnapshotResult]) {
        for pause in self.limiter.settings.mergeable_pauses.clone() {
            let unknown: Vec<usize> = (0..readings.len())
                .filter(|&index| {
                    let reading = readings[index].as_ref().ok().filter(|reading| reading.is_open());
                    reading.is_some_and(|reading| reading.pull.mergeable == "UNKNOWN")
                })
                .collect();
            if unknown.is_empty() {
                return;
            }
            self.limiter.clock.sleep(pause).await;
            for batch in by_owner(unknown, MAX_NODES, |index| prs[*index].0.repo.owner()) {
                let who = Identity::Installation(prs[batch[0]].0.repo.owner());
                let ids = NodeIdVariables { ids: batch.iter().map(|index| prs[*index].1.as_str()).collect() };
                let Ok(graph) = self.query::<Nodes>(who, MERGEABLE, ids, true).await else { return };
                let nodes = graph.data.map(|data| data.nodes).unwrap_or_default();
                for (index, node) in batch.iter().zip(nodes) {
                    update_mergeability(&mut readings[*index], node);
                }
            }
        }
    }

    /// Finds how far heads are behind, where that is needed and unknown: one query per base, then single requests for the rest, such as
    /// heads in forks.
    async fn compare(&self, prs: &[(PrId, String)], readings: &mut [SnapshotResult], policies: &Policies) {
        let mut bases: BTreeMap<(&RepoName, String), Vec<(usize, Sha)>> = BTreeMap::new();
        for (index, ((pr, _), reading)) in prs.iter().zip(readings.iter()).enumerate() {
            let known = reading.as_ref().ok().filter(|known| known.needs_comparison(policies.for_repo(&pr.repo)));
            let Some(known) = known else { continue };
            let Ok(head) = known.pull.head_ref_oid.parse::<Sha>() else { continue };
            bases.entry((&pr.repo, known.pull.base_ref_name.clone())).or_default().push((index, head));
        }
        let groups = bases.iter().flat_map(|(base, heads)| heads.chunks(BATCH).map(move |it| (base, it)));
        let compared = join_all(groups.map(|((repo, base), heads)| self.compare_group(repo, base, heads))).await;
        for (index, behind_by) in compared.into_iter().flatten() {
            match (behind_by, &mut readings[index]) {
                (Ok(behind_by), Ok(known)) => known.behind_by = Some(behind_by),
                (Err(unread), reading) => *reading = Err(unread),
                (Ok(_), Err(_)) => {}
            }
        }
    }

    async fn compare_group(
        &self,
        repo: &RepoName,
        base: &str,
        heads: &[(usize, Sha)],
    ) -> Vec<(usize, Result<u32, SnapshotError>)> {
        let together = match heads {
            [_] => Ok(vec![None]),
            several => self.all_behind_by(repo, base, &several.iter().map(|(_, head)| head).collect::<Vec<_>>()).await,
        };
        let together = match together {
            Ok(together) => together,
            // Single requests would fail with the same rate limit.
            Err(error) if error.until().is_some() => {
                return heads.iter().map(|(index, _)| (*index, Err(SnapshotError::Failed(error.clone())))).collect();
            }
            Err(_) => vec![None; heads.len()],
        };
        join_all(heads.iter().zip(together).map(|((index, head), known)| async move {
            let behind_by = match known {
                Some(behind_by) => Ok(behind_by),
                None => match self.behind_by(repo, base, head).await {
                    Ok(behind_by) => Ok(behind_by),
                    Err(ApiError::NotFound { message }) => Err(partial(format!("no comparison: {message}"))),
                    Err(error) => Err(SnapshotError::Failed(error)),
                },
            };
            (*index, behind_by)
        }))
        .await
    }
}

/// Groups the list by owner, because an App has one token per owner, and splits it into batches.
fn batches(prs: &[(PrId, String)], size: usize) -> Vec<Vec<PendingSnapshot<'_>>> {
    let all = prs.iter().enumerate().map(|(index, (pr, node_id))| PendingSnapshot { index, pr, node_id }).collect();
    by_owner(all, size, |wanted| wanted.pr.repo.owner())
}

fn by_owner<'a, T: Clone>(all: Vec<T>, size: usize, owner: impl Fn(&T) -> &'a str) -> Vec<Vec<T>> {
    let mut owners: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for one in all {
        owners.entry(owner(&one).to_ascii_lowercase()).or_default().push(one);
    }
    owners.values().flat_map(|list| list.chunks(size.clamp(1, MAX_NODES))).map(<[T]>::to_vec).collect()
}

/// The index of the node that an error concerns.
fn index_of(error: &GraphqlError) -> Option<usize> {
    match error.path.as_slice() {
        [Value::String(list), Value::Number(index), ..] if list == "nodes" => usize::try_from(index.as_u64()?).ok(),
        _ => None,
    }
}

fn is_hidden_part(error: &GraphqlError) -> bool {
    error.path.iter().filter_map(Value::as_str).any(|step| MAY_BE_HIDDEN.contains(&step))
}

fn read_node(read_at: Timestamp, node: Option<Value>, errors: &[&GraphqlError]) -> SnapshotResult {
    let Some(node) = node else {
        return Err(match errors.iter().find(|error| error.kind.as_deref() != Some("NOT_FOUND")) {
            Some(error) => partial(error.message.clone()),
            None => SnapshotError::Gone,
        });
    };
    if let Some(error) = errors.iter().find(|error| !is_hidden_part(error)) {
        return Err(partial(error.message.clone()));
    }
    if node.get("__typename").and_then(Value::as_str) != Some("PullRequest") {
        return Err(SnapshotError::Gone);
    }
    let pull: PullNode = serde_json::from_value(node).map_err(|error| partial(error.to_string()))?;
    let reading = SnapshotBuilder::new(read_at, pull, !errors.is_empty());
    match reading.missing_part() {
        Some(why) => Err(partial(why)),
        None => Ok(reading),
    }
}

/// Stores the polled mergeability, if the head is still the same.
fn update_mergeability(reading: &mut SnapshotResult, node: Option<Value>) {
    let Ok(known) = reading else { return };
    let Some(polled) = node.and_then(|node| serde_json::from_value::<MergeabilityFields>(node).ok()) else { return };
    if polled.id != known.pull.id {
        return;
    }
    if polled.state != known.pull.state || !polled.head_ref_oid.eq_ignore_ascii_case(&known.pull.head_ref_oid) {
        *reading = Err(partial("the pull request changed while it was read".to_owned()));
        return;
    }
    known.pull.mergeable = polled.mergeable;
    known.pull.merge_state_status = polled.merge_state_status;
}
