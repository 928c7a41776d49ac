//! The stages of one sweep, in the order they run. Each stage has its own file, takes only the inputs it needs, and
//! returns the inputs of later stages. A failed stage does not prevent the next one from running.

use std::collections::BTreeSet;

use domain::id::PrId;
use domain::run::{Run, RunStep, RunTrigger};
use domain::webhook_silence::is_silent;
use jiff::Timestamp;
use platform::publish::Publisher;
use platform::store::{Store, StoreError, Usage};
use platform::sweep_summary::SweepSummary;

use crate::context::SweepContext;
use crate::due::{self, DueWork};
use crate::execution::Execution;
use crate::limits::gates::{self, SweepRows};
use crate::limits::rate_budget;
use crate::reconciler::Reconciler;
use crate::trigger::{ReconcileScope, SweepTrigger};
use crate::visit::{self, VisitCounts};
use crate::{coordination, inventory, observe_report, outbox, run_recovery};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SweepStage {
    /// Reads pause, breaker and rate limit, then the due items: effects, runs, requests and pull requests.
    Due,
    /// Sends messages that have waited, and delivers effects that are still in the outbox.
    Outbox,
    /// Resends or ends runs past their lease or deadline.
    RunRecovery,
    /// Sweeps the due reconcile requests, each with its own stages.
    OnDemand,
    /// Evaluates the circuit breaker before remedies are dispatched, and mails a trip.
    Breaker,
    /// Verifies pull requests with GitHub, and remediates those that are stale.
    PullRequests,
    /// Records that everything which an opened gate had put off was visited.
    Released,
    /// Ends runs whose proof is missing on GitHub too.
    OverdueRuns,
    /// Finds pull requests whose webhooks were missed.
    Inventory,
    /// Checks health after merges, and updates the backlog and the status issue.
    Coordination,
    /// Sends the mails that were held for a digest.
    Mails,
    /// Stores our GitHub rate-limit pause for the other functions.
    StoreRateLimit,
    /// Stores when GitHub was last read, or since when it cannot be read.
    GithubContact,
    /// Writes which remedies observe mode would have applied this week.
    ObserveReport,
}

/// Which sweeps run a stage.
#[derive(Clone, Copy)]
enum StageScope {
    /// All sweeps, including dry runs.
    Every,
    /// All sweeps except dry runs.
    Commit,
    /// Scheduled sweeps and requests for everything, except dry runs.
    Everything,
    Scheduled,
}

impl StageScope {
    fn includes(self, trigger: &SweepTrigger) -> bool {
        let commits = Execution::from(trigger) == Execution::Commit;
        let everything = commits && trigger.scope == ReconcileScope::All;
        match self {
            Self::Every => true,
            Self::Commit => commits,
            Self::Everything => everything,
            Self::Scheduled => everything && trigger.kind == RunTrigger::Schedule,
        }
    }
}

/// When a stage starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StageStart {
    Always,
    /// Unless an earlier check has stopped the sweep. The stage checks again only if it has work: a check costs a read.
    UnlessStopped,
    /// If it has work, after a check: the sweep stops if its deadline is near or it is cancelled.
    AfterCheck,
}

/// The stages in the order they run, each with the name it has in the errors of the summary.
#[rustfmt::skip]
const STAGES: [(SweepStage, StageScope, StageStart, &str); 14] = [
    (SweepStage::Due,            StageScope::Every,      StageStart::Always,        "due"),
    (SweepStage::Outbox,         StageScope::Everything, StageStart::AfterCheck,    "effects"),
    (SweepStage::RunRecovery,    StageScope::Everything, StageStart::AfterCheck,    "runs"),
    (SweepStage::OnDemand,       StageScope::Scheduled,  StageStart::UnlessStopped, "requests"),
    (SweepStage::Breaker,        StageScope::Every,      StageStart::UnlessStopped, "breaker"),
    (SweepStage::PullRequests,   StageScope::Every,      StageStart::AfterCheck,    "pull requests"),
    (SweepStage::Released,       StageScope::Everything, StageStart::UnlessStopped, "released"),
    (SweepStage::OverdueRuns,    StageScope::Everything, StageStart::UnlessStopped, "overdue runs"),
    (SweepStage::Inventory,      StageScope::Everything, StageStart::UnlessStopped, "inventory"),
    (SweepStage::Coordination,   StageScope::Scheduled,  StageStart::Always,        "coordination"),
    (SweepStage::Mails,          StageScope::Commit,     StageStart::Always,        "mails"),
    (SweepStage::StoreRateLimit, StageScope::Every,      StageStart::Always,        "github"),
    (SweepStage::GithubContact,  StageScope::Commit,     StageStart::Always,        "github contact"),
    (SweepStage::ObserveReport,  StageScope::Commit,     StageStart::Always,        "observed"),
];

/// The result of a sweep.
pub(crate) struct SweepReport {
    pub(crate) summary: SweepSummary,
    /// The first stage that failed, and why.
    pub(crate) first_failure: Option<String>,
    /// Pull requests that were compared with GitHub.
    pub(crate) compared: BTreeSet<PrId>,
}

/// What a sweep knows before its first stage.
pub(crate) struct SweepStart {
    /// An error if they could not be read: then no remedy is dispatched.
    rows: Result<SweepRows, StoreError>,
    due: Result<DueWork, StoreError>,
    summary: SweepSummary,
    spent: Usage,
}

impl SweepStart {
    /// Reads pause, breaker and rate limit, then what is due.
    pub(crate) async fn read<S: Store, O: Publisher>(cx: &SweepContext<'_, S, O>) -> Self {
        let spent = cx.store().usage().usage();
        let mut summary = SweepSummary { dry_run: cx.trigger.dry_run, ..SweepSummary::default() };
        let rows = gates::load(cx.store(), cx.now()).await;
        let unknown = SweepRows::default();
        let due = due::find(cx, rows.as_ref().unwrap_or(&unknown), &mut summary).await;
        summary.breaker = rows.as_ref().ok().map(|rows| rows.gates().breaker.state.status());
        // An unreadable row is a failed stage, not silence.
        let silence = &cx.policies().base().webhook_silence;
        summary.webhooks_silent = rows.as_ref().is_ok_and(|rows| is_silent(silence, rows.last_webhook, cx.now()));
        Self { rows, due, summary, spent }
    }

    /// The summary of a scheduled sweep that has nothing to do.
    pub(crate) fn idle_summary<S: Store, O: Publisher>(&self, cx: &SweepContext<'_, S, O>) -> Option<SweepSummary> {
        let (Ok(rows), Ok(due)) = (&self.rows, &self.due) else { return None };
        if !due.is_empty() || !rows.are_idle() || coordination::is_configured(cx.policies()) {
            return None;
        }
        let mut summary = self.summary.clone();
        // Its run is still to be written.
        summary.spent(self.spent, cx.store().usage().usage());
        summary.store_requests += 1;
        Some(summary)
    }
}

/// Runs the stages that apply to the trigger.
pub(crate) async fn run<S: Store, O: Publisher>(
    reconciler: &Reconciler<S, O>,
    cx: &SweepContext<'_, S, O>,
    start: SweepStart,
) -> SweepReport {
    let rates = cx.github.rate_limits();
    let SweepStart { rows, due: found, mut summary, spent } = start;
    let (mut due, mut found) = (DueWork::default(), Some(found));
    let (mut rows, mut unread) = match rows {
        Ok(rows) => (Some(rows), None),
        Err(error) => (None, Some(error)),
    };
    if let Some(until) = rows.as_ref().and_then(|rows| rows.github_not_before) {
        // Another function has stored it.
        cx.github.set_not_before(until);
    }
    let (mut visits, mut stopped, mut first_failure) = (VisitCounts::default(), false, None);
    let (mut overdue, mut compared_on_demand) = (Vec::new(), BTreeSet::new());
    for (stage, _, start, name) in STAGES.into_iter().filter(|(_, sweeps, ..)| sweeps.includes(cx.trigger)) {
        let summary = &mut summary;
        if start == StageStart::AfterCheck && !stopped {
            if !has_work(stage, &due) {
                continue;
            }
            stopped = !cx.should_continue(summary).await;
        }
        if stopped && start != StageStart::Always {
            continue;
        }
        let done = match stage {
            SweepStage::Due => found.take().unwrap_or_else(|| Ok(DueWork::default())).map(|found| due = found),
            SweepStage::Outbox => {
                let sent = outbox::send_waiting(cx, &due.messages, summary).await;
                outbox::redeliver(cx, &due.effects, summary).await.and(sent)
            }
            SweepStage::RunRecovery => run_recovery::recover(cx, &due.runs, summary).await.map(|found| {
                // Their pull requests are compared with GitHub before a run is ended.
                let prs: BTreeSet<PrId> = found.iter().map(|run| run.pr.clone()).collect();
                due.prs.extend(prs.into_iter().filter(|pr| !due.prs.contains(pr)).collect::<Vec<_>>());
                overdue = found;
            }),
            SweepStage::OnDemand => {
                let compared = Box::pin(reconciler.sweep_due(cx, &due.requests, summary)).await;
                due.prs.retain(|pr| !compared.contains(pr));
                compared_on_demand = compared;
                Ok(())
            }
            SweepStage::Breaker => match rows.as_mut() {
                Some(rows) => gates::evaluate(cx, rows, !due.prs.is_empty(), summary).await,
                None => unread.take().map_or(Ok(()), Err),
            },
            SweepStage::PullRequests => {
                let gates = rows.as_ref().map(SweepRows::gates);
                Box::pin(visit::visit(cx, &due.prs, gates, &mut visits, summary)).await
            }
            SweepStage::Released => match rows.as_ref().filter(|_| first_failure.is_none()) {
                Some(rows) => gates::mark_released(cx, rows, summary).await,
                None => Ok(()),
            },
            SweepStage::OverdueRuns => {
                let compared = &visits.compared | &compared_on_demand;
                run_recovery::end_overdue(cx, &overdue, &compared, summary).await
            }
            SweepStage::Inventory => Box::pin(inventory::run(cx, &reconciler.owners, rows.as_ref(), summary)).await,
            SweepStage::Coordination => {
                let gates = rows.as_ref().map(SweepRows::gates);
                Box::pin(coordination::run(cx, reconciler.http.as_ref(), gates, summary)).await;
                Ok(())
            }
            SweepStage::Mails => outbox::send_mails(cx, summary).await,
            SweepStage::StoreRateLimit => rate_budget::store_rate_limit(cx).await,
            SweepStage::GithubContact => rate_budget::store_contact(cx, rows.as_ref(), summary).await,
            SweepStage::ObserveReport => observe_report::write(cx, &visits.week, summary).await,
        };
        if let Err(error) = done {
            cx.stage_failed(name, &error, summary);
            first_failure.get_or_insert_with(|| format!("{name}: {error}"));
            // Without the due items there is no work; without a breaker that could be evaluated nothing is dispatched.
            stopped |= stage == SweepStage::Due;
            if stage == SweepStage::Breaker {
                rows = None;
            }
        }
    }
    summary.cancelled |= cx.was_cancelled();
    summary.github_points = rate_budget::points(&rates, &cx.github.rate_limits());
    summary.spent(spent, cx.store().usage().usage());
    SweepReport { summary, first_failure, compared: visits.compared }
}

/// Whether one of the stages that start after a check has something to do.
fn has_work(stage: SweepStage, due: &DueWork) -> bool {
    match stage {
        SweepStage::Outbox => !due.effects.is_empty() || !due.messages.is_empty(),
        SweepStage::RunRecovery => !due.runs.is_empty(),
        SweepStage::PullRequests => !due.prs.is_empty(),
        SweepStage::Due
        | SweepStage::OnDemand
        | SweepStage::Breaker
        | SweepStage::Released
        | SweepStage::OverdueRuns
        | SweepStage::Inventory
        | SweepStage::Coordination
        | SweepStage::Mails
        | SweepStage::StoreRateLimit
        | SweepStage::GithubContact
        | SweepStage::ObserveReport => true,
    }
}

/// The step of the sweep's run that stores the summary.
pub(crate) fn summary_step(summary: &SweepSummary, run: &Run, now: Timestamp) -> RunStep {
    let json = serde_json::to_string(summary).unwrap_or_default();
    RunStep::started("summary", run.created_at).done(Some(json), now)
}

#[cfg(test)]
mod tests {
    use domain::id::RunId;

    use super::*;

    fn stages_of(trigger: &SweepTrigger) -> Vec<SweepStage> {
        STAGES.into_iter().filter(|(_, sweeps, ..)| sweeps.includes(trigger)).map(|(stage, ..)| stage).collect()
    }

    #[test]
    fn stages_depend_on_the_trigger() {
        use SweepStage::*;
        let request = |scope: ReconcileScope, dry_run| {
            stages_of(&SweepTrigger::requested(RunId::new("r"), scope, dry_run, "holder"))
        };
        let all: Vec<SweepStage> = STAGES.into_iter().map(|(stage, ..)| stage).collect();
        assert_eq!(stages_of(&SweepTrigger::scheduled("sweep", Timestamp::UNIX_EPOCH, "holder")), all);
        let without =
            |omitted: &[SweepStage]| all.iter().copied().filter(|stage| !omitted.contains(stage)).collect::<Vec<_>>();
        assert_eq!(request(ReconcileScope::All, false), without(&[OnDemand, Coordination]));
        let repo = ReconcileScope::Repo("acme/shop".parse().unwrap());
        assert_eq!(
            request(repo, false),
            without(&[Outbox, RunRecovery, OnDemand, Released, OverdueRuns, Inventory, Coordination])
        );
        assert_eq!(request(ReconcileScope::All, true), [Due, Breaker, PullRequests, StoreRateLimit]);
    }
}
