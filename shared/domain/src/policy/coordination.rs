//! The tables for coordination across pull requests (R-COORD-1 to R-COORD-9): work-in-progress limits, post-merge health
//! checks, the status issue, the backlog. Everything that writes to GitHub is off until it is configured.

use serde::{Deserialize, Serialize};

use super::sections::{table, texts};

table! {
    /// Limits on work in progress across repositories.
    Coordination {
        /// Backlog issues that CodeGenie may work on at the same time, over all repositories.
        wip_limit: u32 = 10,
        /// Approved pull requests that one sweep may push to their merge even when `limits.remedies_in_flight` is reached:
        /// merging them frees capacity.
        merge_batch: u32 = 50,
    }
}

table! {
    /// Health checks after merges.
    PostMergeHealth {
        /// URLs requested after a merge, as `https://…`; each must return 200, redirects are not followed. Empty: off.
        urls: Vec<String> = Vec::new(),
        /// The repository of the outage issue, as `owner/name`. Empty: the repository of the most likely merge.
        issue_repo: String = String::new(),
        /// How long after a merge every sweep requests them.
        watch_minutes: u32 = 30,
        /// An outage begins after this many sweeps in a row with a failed check, and ends after as many without.
        failures_in_a_row: u32 = 2,
        /// The timeout of one request.
        timeout_secs: u32 = 5,
        /// Whether to comment on a pull request when the checks after its merge passed.
        comment: bool = false,
        /// Labels of the outage issue, besides `suture/outage`.
        labels: Vec<String> = texts(&["P0"]),
    }
}

table! {
    /// An issue that shows the current status.
    StatusIssue {
        /// The repository of the issue, as `owner/name`. It covers all repositories of that owner; if set for one
        /// repository under `repos`, only that one. Empty: off.
        repo: String = String::new(),
        /// The least time between two updates; it is updated only when its content changes.
        every_minutes: u32 = 5,
        /// Whether to pin the issue when it is created.
        pin: bool = true,
    }
}

table! {
    /// Issues that become pull requests: `discovered`, `approved`, `in-progress`, `pr-open`.
    Backlog {
        /// Whether Suture asks CodeGenie for pull requests for approved issues, and follows up on issues that are late.
        enabled: bool = false,
        /// The prefix of the pipeline labels.
        label_prefix: String = "pipeline/".to_owned(),
        /// The base branch of CodeGenie's pull requests.
        base_branch: String = "main".to_owned(),
        /// How often the issues are listed.
        every_minutes: u32 = 5,
        /// A discovered issue that is not approved within this time is closed.
        discovered_hours: u32 = 24,
        /// An issue in progress without a pull request after this time is approved again, so that it is requested again.
        in_progress_hours: u32 = 2,
        /// A pull request that is not approved within this time makes its issue urgent.
        pr_open_hours: u32 = 4,
        /// A pull request whose failed review is not fixed within this time is closed, and its issue is approved again.
        review_failed_hours: u32 = 4,
        /// How often CodeGenie is asked for one issue before a person has to look at it.
        max_requests: u32 = 3,
    }
}
