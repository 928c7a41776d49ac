//! Trust but verify: what GitHub itself says about many pull requests at once. One static query for up to 25 of them; half
//! as many when GitHub cannot answer; contexts beyond the first hundred, mergeability that is not worked out yet and
//! comparisons only where they are needed. One pull request that cannot be read never costs the others.

mod builder;
mod raw;

use std::collections::BTreeMap;

use domain::id::{PrId, RepoName, Sha};
use domain::policy::Policies;
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
pub(super) use builder::top_of;
use builder::{SnapshotBuilder, partial};
pub(super) use raw::{Actor, Label, List};
use raw::{FurtherContexts, MergeabilityFields, Node, Nodes, PullNode};

/// Contexts are read this far, 100 to a page.
const MOST_CONTEXT_PAGES: usize = 20;
/// Failed queries per batch before the rest of it is left for the next sweep: enough to corner one pull request that
/// breaks the query, and not many when GitHub is down.
const MOST_FAILURES: usize = 8;
/// Pull requests per verification query.
const BATCH: usize = 25;
/// `nodes(ids:)` takes this many.
const MOST_NODES: usize = 100;
/// Parts of a pull request that GitHub may keep to itself without the rest being wrong.
const MAY_BE_HIDDEN: [&str; 3] = ["branchProtectionRule", "refUpdateRule", "rules"];

/// Why a pull request could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// GitHub knows no such pull request, or does not show it to us.
    #[error("GitHub does not know it, or does not show it to us")]
    Gone,
    /// It has another name by now.
    #[error("GitHub calls it `{now}` now")]
    Renamed { now: String },
    /// Only a part of it came, and nothing is concluded from half a reading.
    #[error("GitHub's answer was incomplete: {why}")]
    Partial { why: String },
    /// GitHub could not be asked.
    #[error("GitHub could not be asked: {0}")]
    Failed(ApiError),
}

impl SnapshotError {
    /// When it may be asked again, if GitHub said so.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Failed(error) => error.until(),
            Self::Gone | Self::Renamed { .. } | Self::Partial { .. } => None,
        }
    }
}

/// One pull request on its way to being read: where it is in the caller's list, and GitHub's id of it.
#[derive(Debug, Clone, Copy)]
struct PendingSnapshot<'a> {
    place: usize,
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
    /// What GitHub says about these pull requests now, in the order they were asked about. Never fails as a whole.
    pub async fn snapshots(
        &self,
        prs: &[(PrId, String)],
        policies: &Policies,
    ) -> Vec<(PrId, Result<Snapshot, SnapshotError>)> {
        let mut readings: Vec<Option<SnapshotResult>> = prs.iter().map(|_| None).collect();
        for (place, reading) in
            join_all(batches(prs, BATCH).into_iter().map(|b| self.read_batch(b))).await.into_iter().flatten()
        {
            readings[place] = Some(reading);
        }
        let mut readings: Vec<SnapshotResult> =
            readings.into_iter().map(|one| one.unwrap_or_else(|| Err(partial("it was left out".to_owned())))).collect();
        join_all(prs.iter().zip(&mut readings).map(|((pr, _), reading)| self.read_further(pr, reading))).await;
        self.settle_mergeability(prs, &mut readings).await;
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

    /// Reads one batch; where GitHub cannot answer, its halves.
    async fn read_batch(&self, batch: Vec<PendingSnapshot<'_>>) -> Vec<(usize, SnapshotResult)> {
        let mut done = Vec::with_capacity(batch.len());
        let mut failures = 0;
        let mut waiting = vec![batch];
        while let Some(mut part) = waiting.pop() {
            let error = match self.read_at_once(&part).await {
                Ok(readings) => {
                    done.extend(part.iter().map(|wanted| wanted.place).zip(readings));
                    continue;
                }
                Err(error) => error,
            };
            failures += 1;
            if error.is_transient() && part.len() > 1 && failures < MOST_FAILURES {
                let rest = part.split_off(part.len() / 2);
                waiting.extend([rest, part]);
                continue;
            }
            // Alone and unreadable: the others go on. Refused, limited or down: none of them will fare better.
            let alone = error.is_transient() && part.len() == 1 && failures < MOST_FAILURES;
            let given_up = if alone { Vec::new() } else { std::mem::take(&mut waiting) };
            let lost = part.iter().chain(given_up.iter().flatten());
            done.extend(lost.map(|wanted| (wanted.place, Err(SnapshotError::Failed(error.clone())))));
        }
        done
    }

    async fn read_at_once(&self, batch: &[PendingSnapshot<'_>]) -> Result<Vec<SnapshotResult>, ApiError> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let who = Identity::Installation(first.pr.repo.owner());
        let read_at = self.limiter.clock.now();
        let ids = NodeIdVariables { ids: batch.iter().map(|wanted| wanted.node_id).collect() };
        let graph: GraphqlResponse<Nodes> = self.query(who, PULL_REQUESTS, ids, false).await?;
        let nodes = graph.data.map(|data| data.nodes).unwrap_or_default();
        // An error about nothing in particular may be about anything.
        let everywhere = graph.errors.iter().find(|error| error.path.is_empty());
        if nodes.len() != batch.len() {
            let why = "GitHub did not answer for every pull request".to_owned();
            return Ok(batch.iter().map(|_| Err(partial(why.clone()))).collect());
        }
        let readings = nodes.into_iter().enumerate().map(|(place, node)| {
            let errors: Vec<&GraphqlError> =
                graph.errors.iter().filter(|error| place_of(error) == Some(place)).chain(everywhere).collect();
            read_node(read_at, node, &errors)
        });
        Ok(readings.collect())
    }

    /// The contexts beyond the first page; and all of them again where the base's rules are hidden, since then only the
    /// contexts themselves say whether they are required.
    async fn read_further(&self, pr: &PrId, reading: &mut SnapshotResult) {
        let Ok(known) = reading else { return };
        let ask_whether_required = known.is_open() && known.rules_hidden && known.demands().contexts.is_none();
        let mut after = known.more_contexts_after();
        if ask_whether_required {
            known.contexts.clear();
            after = None;
        } else if after.is_none() {
            return;
        }
        for _ in 0..MOST_CONTEXT_PAGES {
            match self.further_page(pr, known, after.as_deref()).await {
                Ok(Some(next)) => after = Some(next),
                Ok(None) => return,
                Err(unread) => {
                    *reading = Err(unread);
                    return;
                }
            }
        }
        *reading = Err(partial(format!("more than {} checks", MOST_CONTEXT_PAGES * 100)));
    }

    /// Reads one page of contexts and answers where the next begins.
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
        let head = head.ok_or_else(|| partial("its head moved while it was read".to_owned()))?;
        let Some(rollup) = &head.status_check_rollup else { return Ok(None) };
        if rollup.contexts.nodes.iter().any(Option::is_none) {
            return Err(partial("its checks are incomplete".to_owned()));
        }
        reading.contexts.extend(rollup.contexts.iter().cloned());
        let page = &rollup.contexts.page_info;
        Ok(page.end_cursor.clone().filter(|_| page.has_next_page))
    }

    /// GitHub works out whether a head can be merged when it is first asked: asks again, after 5, 10 and 15 seconds. What is
    /// unknown then stays unknown.
    async fn settle_mergeability(&self, prs: &[(PrId, String)], readings: &mut [SnapshotResult]) {
        for pause in self.limiter.settings.mergeable_pauses.clone() {
            let unknown: Vec<usize> = (0..readings.len())
                .filter(|&place| {
                    let reading = readings[place].as_ref().ok().filter(|reading| reading.is_open());
                    reading.is_some_and(|reading| reading.pull.mergeable == "UNKNOWN")
                })
                .collect();
            if unknown.is_empty() {
                return;
            }
            self.limiter.clock.sleep(pause).await;
            for batch in by_owner(unknown, MOST_NODES, |place| prs[*place].0.repo.owner()) {
                let who = Identity::Installation(prs[batch[0]].0.repo.owner());
                let ids = NodeIdVariables { ids: batch.iter().map(|place| prs[*place].1.as_str()).collect() };
                let Ok(graph) = self.query::<Nodes>(who, MERGEABLE, ids, true).await else { return };
                let nodes = graph.data.map(|data| data.nodes).unwrap_or_default();
                for (place, node) in batch.iter().zip(nodes) {
                    learn(&mut readings[*place], node);
                }
            }
        }
    }

    /// How far heads lag behind, where that matters and nothing read so far says it: those of one base together, and by themselves
    /// what that leaves open, such as a head in a fork.
    async fn compare(&self, prs: &[(PrId, String)], readings: &mut [SnapshotResult], policies: &Policies) {
        let mut bases: BTreeMap<(&RepoName, String), Vec<(usize, Sha)>> = BTreeMap::new();
        for (place, ((pr, _), reading)) in prs.iter().zip(readings.iter()).enumerate() {
            let known = reading.as_ref().ok().filter(|known| known.needs_comparison(policies.for_repo(&pr.repo)));
            let Some(known) = known else { continue };
            let Ok(head) = known.pull.head_ref_oid.parse::<Sha>() else { continue };
            bases.entry((&pr.repo, known.pull.base_ref_name.clone())).or_default().push((place, head));
        }
        let groups = bases.iter().flat_map(|(base, heads)| heads.chunks(BATCH).map(move |it| (base, it)));
        let compared = join_all(groups.map(|((repo, base), heads)| self.compare_group(repo, base, heads))).await;
        for (place, behind_by) in compared.into_iter().flatten() {
            match (behind_by, &mut readings[place]) {
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
            // Whoever may not be asked now is not asked for each of them either.
            Err(error) if error.until().is_some() => {
                return heads.iter().map(|(place, _)| (*place, Err(SnapshotError::Failed(error.clone())))).collect();
            }
            Err(_) => vec![None; heads.len()],
        };
        join_all(heads.iter().zip(together).map(|((place, head), known)| async move {
            let behind_by = match known {
                Some(behind_by) => Ok(behind_by),
                None => match self.behind_by(repo, base, head).await {
                    Ok(behind_by) => Ok(behind_by),
                    Err(ApiError::NotFound { message }) => Err(partial(format!("nothing to compare: {message}"))),
                    Err(error) => Err(SnapshotError::Failed(error)),
                },
            };
            (*place, behind_by)
        }))
        .await
    }
}

/// The list, by owner (an App has one token for each) and in parts of this size.
fn batches(prs: &[(PrId, String)], size: usize) -> Vec<Vec<PendingSnapshot<'_>>> {
    let all = prs.iter().enumerate().map(|(place, (pr, node_id))| PendingSnapshot { place, pr, node_id }).collect();
    by_owner(all, size, |wanted| wanted.pr.repo.owner())
}

fn by_owner<'a, T: Clone>(all: Vec<T>, size: usize, owner: impl Fn(&T) -> &'a str) -> Vec<Vec<T>> {
    let mut owners: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for one in all {
        owners.entry(owner(&one).to_ascii_lowercase()).or_default().push(one);
    }
    owners.values().flat_map(|list| list.chunks(size.clamp(1, MOST_NODES))).map(<[T]>::to_vec).collect()
}

/// Which node an error is about.
fn place_of(error: &GraphqlError) -> Option<usize> {
    match error.path.as_slice() {
        [Value::String(list), Value::Number(place), ..] if list == "nodes" => usize::try_from(place.as_u64()?).ok(),
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

/// Takes over what GitHub says now about mergeability, if it still speaks of the same head.
fn learn(reading: &mut SnapshotResult, node: Option<Value>) {
    let Ok(known) = reading else { return };
    let Some(news) = node.and_then(|node| serde_json::from_value::<MergeabilityFields>(node).ok()) else { return };
    if news.id != known.pull.id {
        return;
    }
    if news.state != known.pull.state || !news.head_ref_oid.eq_ignore_ascii_case(&known.pull.head_ref_oid) {
        *reading = Err(partial("it changed while it was read".to_owned()));
        return;
    }
    known.pull.mergeable = news.mergeable;
    known.pull.merge_state_status = news.merge_state_status;
}
