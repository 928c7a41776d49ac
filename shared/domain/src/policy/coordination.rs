//! The tables for what a sweep does beyond single pull requests (R-COORD-1 to R-COORD-9): what is under way at a time, the sentinel, the
//! status issue, the backlog. What writes to GitHub is off until it is configured.

use serde::{Deserialize, Serialize};

use super::sections::{table, texts};

table! {
    /// What goes first, and how much is under way at a time.
    Coordination {
        /// Issues of the backlog that CodeGenie may be at work on at a time, over all repositories.
        wip_limit: u32 = 10,
        /// Approved pull requests that are taken to their merge in one sweep, whatever `limits.remedies_in_flight` says: what
        /// is nearly done makes room by being merged.
        merge_batch: u32 = 50,
    }
}

table! {
    /// After a merge, is everything still up?
    Sentinel {
        /// What is asked after a merge, as `https://…`; each must answer 200 itself, redirects are not followed. Empty: off.
        urls: Vec<String> = Vec::new(),
        /// Where the issue about an outage is written, as `owner/name`. Empty: where the likeliest merge was.
        issue_repo: String = String::new(),
        /// How long after a merge they are asked, by every sweep.
        watch_minutes: u32 = 30,
        /// So many sweeps in a row in which one of them is not well are an outage; as many that are well end it.
        failures_in_a_row: u32 = 2,
        /// How long an answer is waited for.
        timeout_secs: u32 = 5,
        /// Whether a pull request is told that all was well after its merge.
        comment: bool = false,
        /// Labels of the issue, besides `suture/sentinel`.
        labels: Vec<String> = texts(&["P0"]),
    }
}

table! {
    /// One issue that shows how things stand.
    Status {
        /// Where it is kept, as `owner/name`. It shows all repositories of that owner; given for one repository under `repos`,
        /// that repository alone. Empty: off.
        repo: String = String::new(),
        /// It is changed at most this often, and only when something else is to be said.
        every_minutes: u32 = 5,
        /// Whether it is pinned when it is written.
        pin: bool = true,
    }
}

table! {
    /// Issues that become pull requests: `discovered`, `approved`, `in-progress`, `pr-open`.
    Backlog {
        /// Whether CodeGenie is asked for pull requests of approved issues, and issues that lie around are tended to.
        enabled: bool = false,
        /// What the labels of the pipeline begin with.
        label_prefix: String = "pipeline/".to_owned(),
        /// The branch that CodeGenie opens its pull requests against.
        base_branch: String = "main".to_owned(),
        /// How often the issues are listed.
        every_minutes: u32 = 5,
        /// A discovered issue that nobody approves is rejected after this long.
        discovered_hours: u32 = 24,
        /// Without a pull request for this long, an issue in progress is approved again, and so asked for again.
        in_progress_hours: u32 = 2,
        /// A pull request without approval for this long makes its issue urgent.
        pr_open_hours: u32 = 4,
        /// A failed review without a fix for this long closes the pull request, and the issue is approved again.
        review_failed_hours: u32 = 4,
        /// CodeGenie is asked so often for one issue; then it is a person's.
        max_requests: u32 = 3,
    }
}
