//! Classifies a failed Jenkins build by its log. The commit status is `error` for a lost agent and for a broken test
//! alike, so it does not tell them apart (R-TRANSIENT-4): the log is read before the pull request is escalated. A
//! transient failure found in the log is recorded on the check like any other report.

use domain::diagnosis::{Classification, Diagnosis, InconclusiveCause, MAX_SKIPS};
use domain::event::{FactKind, truncate};
use domain::policy::Policy;
use domain::pull_request::PullRequest;
use domain::signals::{CheckFailure, CheckReport};
use domain::state::{State, Substatus};
use domain::transient::{FailureClass, FailureSignals, classify};

use crate::context::SweepContext;
use crate::execution::ApplyError;
use platform::jenkins::{BuildMatch, BuildQuery, Jenkins, job_of, since_head};
use platform::publish::Publisher;
use platform::store::Store;
use platform::transport::ApiError;

/// How much of the end of a log is read.
const TAIL_BYTES: usize = 64 * 1024;
/// Longest log line that is stored, in characters.
const MAX_LINE: usize = 200;

/// The record after its build log was read.
pub(crate) struct BuildLogFindings {
    pub(crate) record: PullRequest,
    /// Jenkins did not answer, so the cause of the failure is unknown.
    pub(crate) jenkins_unavailable: bool,
}

/// Reads the log of a build whose failure is not classified as transient yet.
pub(crate) async fn classify_by_log(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    record: PullRequest,
    policy: &Policy,
) -> Result<BuildLogFindings, ApplyError> {
    let unexplained = record.state == State::ChecksFailed && record.substatus != Some(Substatus::Transient);
    let Some(jenkins) = cx.jenkins.filter(|_| unexplained && record.active_run.is_none()) else {
        return Ok(BuildLogFindings { record, jenkins_unavailable: false });
    };
    // A build log does not explain the checks of other tools.
    let failed: Vec<CheckReport> = record
        .signals
        .failed_checks(record.required(policy))
        .filter(|check| policy.checks.is_jenkins(&check.name))
        .cloned()
        .collect();
    if failed.is_empty() {
        return Ok(BuildLogFindings { record, jenkins_unavailable: false });
    }
    match log_of(jenkins, &record, policy).await {
        Ok(Some(log)) => find_transient_rule(cx, record, &failed, &log, policy).await,
        Ok(None) => Ok(BuildLogFindings { record, jenkins_unavailable: false }),
        Err(_) => Ok(BuildLogFindings { record, jenkins_unavailable: true }),
    }
}

/// The end of the log of the newest build of the head, after the failure causes that Jenkins found in it.
async fn log_of(jenkins: &Jenkins, record: &PullRequest, policy: &Policy) -> Result<Option<String>, ApiError> {
    let job = job_of(record, policy);
    let commit = (!policy.rebuild.sha_parameter.is_empty()).then_some(&record.head_sha);
    let looking = BuildQuery { job: &job, commit, since: since_head(record) };
    let Some(BuildMatch::Build(build)) = jenkins.find_build(&looking).await? else { return Ok(None) };
    if build.building || build.result.as_deref() == Some("SUCCESS") {
        return Ok(None);
    }
    let tail = jenkins.log_tail(&build.build, TAIL_BYTES).await?;
    Ok(Some(format!("{}\n{tail}", build.failure_causes.join("\n"))))
}

/// Records a transient rule on every failed check that the log explains.
async fn find_transient_rule(
    cx: &SweepContext<'_, impl Store, impl Publisher>,
    mut record: PullRequest,
    failed: &[CheckReport],
    log: &str,
    policy: &Policy,
) -> Result<BuildLogFindings, ApplyError> {
    for (index, check) in failed.iter().enumerate() {
        let class = |text| classify(policy, &FailureSignals { conclusion: "error", source: &check.name, text });
        let FailureClass::Transient { rule } = class(log) else { continue };
        // The matching line, as evidence.
        let matching = log.lines().find(|line| matches!(class(line), FailureClass::Transient { .. }));
        let failure =
            CheckFailure { transient_rule: Some(rule), text: truncate(matching.unwrap_or("").trim(), MAX_LINE) };
        let check = CheckReport { failure: Some(failure), ..check.clone() };
        let head = record.head_sha.clone();
        let fact = cx.fact(&record.id, &format!("log-{index}"), FactKind::Check { head, check });
        let before = record.clone();
        record = match cx.apply(record, &fact).await?.record {
            Some(record) => record,
            // Another sweep has written the record meanwhile, so the current version counts: it may already have the
            // transient rule, and escalating by the old version would be wrong.
            None => cx.reload(before).await?,
        };
    }
    Ok(BuildLogFindings { record, jenkins_unavailable: false })
}

/// Postpones an escalation whose build log could not be read, up to `MAX_SKIPS` visits (R-TRANSIENT-4).
pub(crate) fn log_unavailable(diagnosis: &mut Diagnosis, record: &PullRequest) {
    if diagnosis.classification == Classification::NeedsIntervention
        && diagnosis.state == State::ChecksFailed
        && diagnosis.overridden.is_none()
        && record.inconclusive_visits < MAX_SKIPS
    {
        diagnosis.classification = Classification::NoAction;
        diagnosis.inconclusive = Some(InconclusiveCause::Jenkins);
        diagnosis.evidence.push("Jenkins did not answer, so its build log could not be read".to_owned());
    }
}
