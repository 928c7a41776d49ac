//! Finds the Jenkins job and build of a pull request's head.

use domain::policy::Policy;
use domain::pull_request::PullRequest;
use domain::snapshot::BuildStatus;
use jiff::{SignedDuration, Timestamp};

use super::{BuildQuery, Jenkins, JenkinsJob};

/// Clock skew allowed between Jenkins and GitHub.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// The status of the head's build.
pub async fn build_of(jenkins: &Jenkins, record: &PullRequest, policy: &Policy) -> BuildStatus {
    let job = job_of(record, policy);
    let commit = (!policy.rebuild.sha_parameter.is_empty()).then_some(&record.head_sha);
    jenkins.build_of(&BuildQuery { job: &job, commit, since: since_head(record) }).await
}

/// The Jenkins job of a pull request. Slashes in branch names are encoded, because they do not denote folders.
pub fn job_of(record: &PullRequest, policy: &Policy) -> JenkinsJob {
    let pr = &record.id;
    let path = policy.rebuild.job.replace("{owner}", pr.repo.owner()).replace("{repo}", pr.repo.name());
    JenkinsJob::new(
        &path.replace("{number}", &pr.number.to_string()).replace("{branch}", &record.branch.replace('/', "%2F")),
    )
}

/// The earliest start time of a build of this head.
pub fn since_head(record: &PullRequest) -> Timestamp {
    record.head_at.saturating_sub(CLOCK_SKEW).unwrap_or(record.head_at)
}
