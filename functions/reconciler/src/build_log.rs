//! Why a build failed, by its own log. Jenkins' status says `error` for a lost agent as for a broken test, which proves
//! nothing (R-TRANSIENT-4): before a person is called, the log is read. What it excuses is noted on the check like any
//! report.

use domain::diagnosis::{Classification, Diagnosis, MAX_SKIPS};
use domain::event::{Happened, cut};
use domain::policy::Policy;
use domain::pull_request::Record;
use domain::signals::{Check, Failure};
use domain::state::{State, Substatus};
use domain::transient::{FailureClass, FailureSignals, classify};

use crate::context::SweepContext;
use crate::execution::ApplyError;
use platform::http::CallError;
use platform::jenkins::{Found, Jenkins, Looking, job_of, since_head};
use platform::outlets::Outlets;
use platform::store::Store;

/// How much of a log's end is read.
const TAIL_BYTES: usize = 64 * 1024;
/// Longest line that is kept of it, in characters.
const MAX_LINE: usize = 200;

/// What came of asking.
pub(crate) struct Explained {
    pub(crate) record: Record,
    pub(crate) unanswered: bool,
}

/// Whether a check is Jenkins' own: the log of a build says nothing about what others found.
fn is_jenkins(check: &Check) -> bool {
    check.name.to_ascii_lowercase().contains("jenkins")
}

/// Reads the log of a build that failed for no known reason.
pub(crate) async fn explain(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    record: Record,
    policy: &Policy,
) -> Result<Explained, ApplyError> {
    let unexplained = record.state == State::ChecksFailed && record.substatus != Some(Substatus::Transient);
    let Some(jenkins) = cx.jenkins.filter(|_| unexplained && record.active_run.is_none()) else {
        return Ok(Explained { record, unanswered: false });
    };
    let red: Vec<Check> =
        record.signals.failed_checks(record.required(policy)).filter(|check| is_jenkins(check)).cloned().collect();
    if red.is_empty() {
        return Ok(Explained { record, unanswered: false });
    }
    match log_of(jenkins, &record, policy).await {
        Ok(Some(log)) => excuse(cx, record, &red, &log, policy).await,
        Ok(None) => Ok(Explained { record, unanswered: false }),
        Err(_) => Ok(Explained { record, unanswered: true }),
    }
}

/// The end of the log of the head's newest build, and what Jenkins itself found in it.
async fn log_of(jenkins: &Jenkins, record: &Record, policy: &Policy) -> Result<Option<String>, CallError> {
    let job = job_of(record, policy);
    let commit = (!policy.rebuild.sha_parameter.is_empty()).then_some(&record.head_sha);
    let looking = Looking { job: &job, commit, since: since_head(record) };
    let Some(Found::Build(build)) = jenkins.find(&looking).await? else { return Ok(None) };
    if build.building || build.result.as_deref() == Some("SUCCESS") {
        return Ok(None);
    }
    let tail = jenkins.log_tail(&build.build, TAIL_BYTES).await?;
    Ok(Some(format!("{}\n{tail}", build.failure_causes.join("\n"))))
}

/// Writes to the record which of its failed checks the log shows to be transient.
async fn excuse(
    cx: &SweepContext<'_, impl Store, impl Outlets>,
    mut record: Record,
    red: &[Check],
    log: &str,
    policy: &Policy,
) -> Result<Explained, ApplyError> {
    for (place, check) in red.iter().enumerate() {
        let class = |text| classify(policy, &FailureSignals { conclusion: "error", source: &check.name, text });
        let FailureClass::Transient { rule } = class(log) else { continue };
        // The line that says it, for whoever reads the evidence.
        let telling = log.lines().find(|line| matches!(class(line), FailureClass::Transient { .. }));
        let failure = Failure { transient_rule: Some(rule), text: cut(telling.unwrap_or("").trim(), MAX_LINE) };
        let check = Check { failure: Some(failure), ..check.clone() };
        let head = record.head_sha.clone();
        let fact = cx.fact(&record.id, &format!("log-{place}"), Happened::Check { head, check });
        let before = record.clone();
        record = match cx.apply(record, &fact).await?.record {
            Some(record) => record,
            // Another sweep has written it meanwhile: the record as it is now counts, not as it was read before. A failure that is
            // excused by then would go to a person otherwise.
            None => cx.reload(before).await?,
        };
    }
    Ok(Explained { record, unanswered: false })
}

/// A person is not called for a failure whose log could not be read, unless that goes on (R-TRANSIENT-4).
pub(crate) fn doubt(diagnosis: &mut Diagnosis, record: &Record) {
    if diagnosis.classification == Classification::NeedsIntervention
        && diagnosis.state == State::ChecksFailed
        && diagnosis.overridden.is_none()
        && record.unanswered < MAX_SKIPS
    {
        diagnosis.classification = Classification::NoAction;
        diagnosis.inconclusive = true;
        diagnosis.evidence.push("Jenkins could not be asked why".to_owned());
    }
}
