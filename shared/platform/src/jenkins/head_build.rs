//! The build of a pull request's head: which job builds it, since when, and what Jenkins says about it.

use domain::policy::Policy;
use domain::pull_request::Record;
use domain::snapshot::Build;
use jiff::{SignedDuration, Timestamp};

use super::{Jenkins, Job, Looking};

/// Jenkins' clock and GitHub's may differ by this much.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// What Jenkins says about the build of a head.
pub async fn build_of(jenkins: &Jenkins, record: &Record, policy: &Policy) -> Build {
    let job = job_of(record, policy);
    let commit = (!policy.rebuild.sha_parameter.is_empty()).then_some(&record.head_sha);
    jenkins.build_of(&Looking { job: &job, commit, since: since_head(record) }).await
}

/// The Jenkins job that builds a pull request. A branch's slash is part of a job's name, not a folder.
pub fn job_of(record: &Record, policy: &Policy) -> Job {
    let pr = &record.id;
    let path = policy.rebuild.job.replace("{owner}", pr.repo.owner()).replace("{repo}", pr.repo.name());
    Job::new(&path.replace("{number}", &pr.number.to_string()).replace("{branch}", &record.branch.replace('/', "%2F")))
}

/// Since when a build may be one of this head.
pub fn since_head(record: &Record) -> Timestamp {
    record.head_at.saturating_sub(CLOCK_SKEW).unwrap_or(record.head_at)
}
