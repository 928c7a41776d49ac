//! Health checks after merges: requests the configured URLs and stores the results. An outage is stored before its
//! issue is opened, so that overlapping or crashed sweeps see the same outage; the issue is requested until it exists.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use domain::coordination::post_merge_health::{
    HealthDecision, HealthResult, HealthWatch, MAX_MERGE_AGE, WatchedMerge, watched_until,
};
use domain::event::{Actor, Fact, FactKind};
use domain::id::{EventId, PrId, RepoName};
use domain::policy::PostMergeHealth;
use domain::state::State;
use domain::text::coordination as coordination_text;
use futures_util::future::{join_all, try_join_all};
use http::{Method, Request, StatusCode, header};
use jiff::SignedDuration;
use tracing::{info, warn};

use platform::sweep_summary::CoordinationSummary;

use super::{CoordinationError, Coordinator};
use crate::context::saturating_after;
use platform::hash::stable_id;
use platform::publish::Publisher;
use platform::publish::queue_message::{ManagedIssue, Task};
use platform::store::managed_issue;
use platform::store::queries;
use platform::store::versioned::{self, Versioned};
use platform::store::{Key, Store};
use platform::transport::{BodyLimit, Transport};

const LABEL: &str = "suture/outage";
/// Repositories whose merges are listed concurrently.
const CONCURRENCY: usize = 8;
/// How many of the newest merges of one repository are read.
const MAX_MERGES: u32 = 200;
/// Results are kept this long after the last check.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 14);

/// Repositories with the same health URLs and the same issue repository.
pub(super) struct HealthTarget<'p> {
    /// A hash of the URLs and the issue repository, for the key.
    pub(super) name: String,
    pub(super) settings: &'p PostMergeHealth,
    pub(super) repos: Vec<RepoName>,
}

impl HealthTarget<'_> {
    pub(super) fn key(&self) -> Key {
        Key::state(format!("HEALTH#{}", self.name))
    }
}

impl<S: Store, O: Publisher> Coordinator<'_, S, O> {
    pub(super) async fn check_post_merge_health(
        &self,
        acts: bool,
        summary: &mut CoordinationSummary,
    ) -> Result<(), CoordinationError> {
        let mut last = Ok(());
        for target in self.targets().await? {
            // A failed target does not prevent the others.
            if let Err(error) = self.check_and_store(&target, acts, summary).await {
                last = Err(error);
            }
        }
        last
    }

    /// The configured targets, grouped by URLs and issue repository.
    pub(super) async fn targets(&self) -> Result<Vec<HealthTarget<'_>>, CoordinationError> {
        let policies = self.cx.policies();
        let all = std::iter::once(policies.base()).chain(policies.overrides().map(|(_, policy)| policy));
        if all.into_iter().all(|policy| policy.post_merge_health.urls.is_empty()) {
            return Ok(Vec::new());
        }
        let mut targets: BTreeMap<String, HealthTarget<'_>> = BTreeMap::new();
        for repo in queries::repos(self.cx.store(), self.cx.now()).await? {
            let settings = &policies.for_repo(&repo).post_merge_health;
            if settings.urls.is_empty() {
                continue;
            }
            let mut parts: Vec<&str> = settings.urls.iter().map(String::as_str).collect();
            parts.sort_unstable();
            parts.push(&settings.issue_repo);
            let name = stable_id(&parts)[..16].to_owned();
            let new_target = || HealthTarget { name: name.clone(), settings, repos: Vec::new() };
            targets.entry(name.clone()).or_insert_with(new_target).repos.push(repo);
        }
        Ok(targets.into_values().collect())
    }

    async fn check_and_store(
        &self,
        target: &HealthTarget<'_>,
        acts: bool,
        summary: &mut CoordinationSummary,
    ) -> Result<(), CoordinationError> {
        let now = self.cx.now();
        let merges = self.merges(&target.repos).await?;
        let known: Option<Versioned<HealthWatch>> = versioned::load(self.cx.store(), &target.key(), now).await?;
        let version = known.as_ref().map(|known| known.version);
        let watch = known.map(|known| known.value).unwrap_or_default();
        if !watch.needs_check(&merges, now) {
            return Ok(());
        }
        let http = self.http.ok_or(CoordinationError::Missing("no HTTP transport for health URLs"))?;
        let look = check_target(http, target.settings).await;
        if let HealthResult::Unhealthy(what) = &look {
            warn!(run = %self.cx.trigger.run, target = target.name, what, "health check failed");
        }
        let HealthDecision { mut watch, verified, outage_began: begun, outage_ended: ended } =
            watch.apply_check(&target.name, &look, &merges, target.settings, now);
        for merge in &verified {
            self.report_verified(target.settings, merge, acts).await?;
        }
        if ended && acts {
            self.report_recovery(&watch).await?;
        }
        let issue = self.outage_issue(&mut watch, target.settings, acts).await?;
        let ttl = saturating_after(now, RETENTION);
        if !versioned::save(self.cx.store(), &target.key(), &watch, version, Some(ttl), now).await? {
            // Another sweep has stored a newer result, which counts.
            return Ok(());
        }
        summary.verified += u32::try_from(verified.len()).unwrap_or(u32::MAX);
        summary.outages_begun += u32::from(begun);
        summary.outages_ended += u32::from(ended);
        match issue {
            Some((id, task)) => self.send(id, task).await,
            None => Ok(()),
        }
    }

    /// Merges of the last day.
    async fn merges(&self, repos: &[RepoName]) -> Result<Vec<WatchedMerge>, CoordinationError> {
        let (store, now) = (self.cx.store(), self.cx.now());
        let mut merges = Vec::new();
        for group in repos.chunks(CONCURRENCY) {
            let lists = group.iter().map(|repo| queries::newest_in_state(store, repo, State::Merged, MAX_MERGES, now));
            for listed in try_join_all(lists).await?.into_iter().flatten() {
                merges.push(WatchedMerge { at: listed.since, pr: listed.pr });
            }
        }
        merges.retain(|merge| saturating_after(merge.at, MAX_MERGE_AGE) > now);
        Ok(merges)
    }

    /// Records that the health checks after this merge passed, and comments on the pull request if configured. Both are
    /// idempotent.
    async fn report_verified(
        &self,
        settings: &PostMergeHealth,
        merge: &WatchedMerge,
        acts: bool,
    ) -> Result<(), CoordinationError> {
        let watched_minutes = settings.watch_minutes;
        let fact = Fact {
            id: EventId::new("post-merge-verified"),
            pr: merge.pr.clone(),
            occurred_at: watched_until(merge, settings),
            actor: Actor::Reconciler,
            kind: FactKind::PostMergeVerified { watched_minutes },
            described: None,
        };
        let applied = self.cx.engine.apply(&fact, self.cx.now()).await?;
        info!(pr = %merge.pr, outcome = ?applied.outcome, "post-merge health verified");
        if !settings.comment || !acts || !self.acts_in(&merge.pr.repo) {
            return Ok(());
        }
        let (marker, text) =
            ("suture:post-merge-verified".to_owned(), coordination_text::verified_comment(watched_minutes));
        let task = Task::Comment { pr: merge.pr.clone(), marker, text, since: merge.at };
        self.send(format!("post-merge-verified-{}", merge.pr), task).await
    }

    /// The issue of an ongoing outage, if it does not exist and was not requested just now.
    async fn outage_issue(
        &self,
        watch: &mut HealthWatch,
        settings: &PostMergeHealth,
        acts: bool,
    ) -> Result<Option<(String, Task)>, CoordinationError> {
        let now = self.cx.now();
        let Some(outage) = watch.outage.as_mut().filter(|outage| outage.over_at.is_none()) else { return Ok(None) };
        let repo = outage.issue_repo.clone();
        if !acts || !self.acts_in(&repo) || !outage.needs_issue(now) {
            return Ok(None);
        }
        if managed_issue::load(self.cx.store(), &repo, &outage.key, now).await?.is_some() {
            return Ok(None);
        }
        outage.requested_at = Some(now);
        let issue = ManagedIssue {
            key: outage.key.clone(),
            label: LABEL.to_owned(),
            labels: settings.labels.clone(),
            title: coordination_text::outage_title(outage),
            body: coordination_text::outage_body(outage),
            as_of: outage.since,
            keep_updated: false,
            pin: false,
        };
        Ok(Some((outage.key.clone(), Task::Issue { repo, issue: Box::new(issue) })))
    }

    /// Comments on the issue of an outage that has ended; a person closes the issue.
    async fn report_recovery(&self, watch: &HealthWatch) -> Result<(), CoordinationError> {
        let Some((outage, over_at)) = watch.outage.as_ref().and_then(|outage| Some((outage, outage.over_at?))) else {
            return Ok(());
        };
        let repo = &outage.issue_repo;
        let Some(written) = managed_issue::load(self.cx.store(), repo, &outage.key, self.cx.now()).await? else {
            return Ok(());
        };
        let (pr, marker) = (PrId::new(repo.clone(), written.number), format!("suture:{}-over", outage.key));
        let task =
            Task::Comment { pr, marker, text: coordination_text::outage_over(outage, over_at), since: outage.since };
        self.send(format!("{}-over", outage.key), task).await
    }
}

/// Requests all URLs concurrently.
async fn check_target(http: &Transport, settings: &PostMergeHealth) -> HealthResult {
    let limit = Duration::from_secs(settings.timeout_secs.into());
    let errors = join_all(settings.urls.iter().map(|url| request_url(http, url, limit))).await;
    let errors: Vec<String> = errors.into_iter().flatten().collect();
    if errors.is_empty() { HealthResult::Healthy } else { HealthResult::Unhealthy(errors.join("; ")) }
}

/// The error of a health URL; `None` if it answered 200.
async fn request_url(http: &Transport, url: &str, limit: Duration) -> Option<String> {
    let request = Request::builder().method(Method::GET).uri(url).header(header::USER_AGENT, "suture-health-check");
    let mut request = match request.body(Bytes::new()) {
        Ok(request) => request,
        Err(error) => return Some(format!("{url} is not a valid URL: {error}")),
    };
    // Only the status counts, so the body is not read.
    request.extensions_mut().insert(BodyLimit(1));
    match http.send(request, limit).await {
        Ok(response) if response.status() == StatusCode::OK => None,
        Ok(response) => Some(format!("{url} answered {}", response.status().as_u16())),
        Err(error) => Some(format!("{url}: {error}")),
    }
}
