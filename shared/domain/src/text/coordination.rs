//! Texts of cross-repository coordination: the status issue, the outage issue, comments on backlog issues and on merged
//! pull requests.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::time;
use crate::breaker::BreakerStatus;
use crate::coordination::backlog::BacklogReason;
use crate::coordination::post_merge_health::HealthOutage;
use crate::coordination::status_issue::{
    BacklogCounts, RepoRow, StateRow, StatusReport, TodayCounts, WaitingPullRequest,
};
use crate::event::truncate;

/// Longest issue body, in characters; GitHub's limit is 65,536.
const MAX_ISSUE: usize = 60_000;
/// Longest quoted text from outside in an issue, in characters.
const MAX_QUOTE: usize = 300;
/// Pull requests and repositories that the status issue lists.
const MAX_LISTED: usize = 20;
const MAX_REPOS: usize = 200;

/// Log text for a merge whose health checks passed.
pub fn verified_event(watched_minutes: u32) -> String {
    format!("healthy for {watched_minutes} min after the merge")
}

/// The same as a comment on the pull request (R-COORD-2).
pub fn verified_comment(watched_minutes: u32) -> String {
    format!("✅ post-merge verified: {}.", verified_event(watched_minutes))
}

/// The title of an outage issue.
pub fn outage_title(outage: &HealthOutage) -> String {
    format!("P0: down since {} after a merge", time(outage.since))
}

/// The body of an outage issue: the failing check, the merges that may have caused it, what to do.
pub fn outage_body(outage: &HealthOutage) -> String {
    let mut body = format!(
        "Suture requests the configured health URLs after each merge. At least one has been failing since {}:\n\n> {}\n\n### Likely merges\n\n",
        time(outage.since),
        inert(&outage.what),
    );
    if outage.suspects.is_empty() {
        body.push_str("No merge was being watched when the outage began.\n");
    }
    for (n, merge) in outage.suspects.iter().enumerate() {
        let likely = if n == 0 { ", newest and most likely" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(body, "- {} (merged {}{likely})", merge.pr, time(merge.at));
    }
    body.push_str(
        "\n### What to do\n\n\
         - Request the URL yourself first: Suture only knows that it did not return 200.\n\
         - If a merge above is the cause, revert it on GitHub.\n\
         - Suture keeps checking and comments here once the URL is healthy again. It does not close this issue; please do.\n",
    );
    truncate(&body, MAX_ISSUE)
}

/// The comment on the outage issue when the outage is over.
pub fn outage_over(outage: &HealthOutage, over_at: Timestamp) -> String {
    let lasted = super::duration(over_at.duration_since(outage.since));
    let since = time(over_at);
    format!("Healthy again since {since}; the outage lasted about {lasted}. Close this issue once you know the cause.")
}

pub fn issue_rejected(hours: u32) -> String {
    format!(
        "Closed because it was not approved within {hours} h. If it should be done, reopen it and add the `approved` label. \
         Suture never closes an issue labelled `source/human` for its age."
    )
}

/// The comment on an issue that is closed because its pull request was merged.
pub fn issue_done(number: u64) -> String {
    format!("#{number} is merged.")
}

pub fn issue_requeued(why: BacklogReason) -> String {
    match why {
        BacklogReason::NoPullRequest => {
            "CodeGenie did not open a pull request in time. Suture will ask it again.".to_owned()
        }
        BacklogReason::PullRequestClosed(number) => {
            format!("#{number} was closed without a merge. Suture will ask CodeGenie again.")
        }
        BacklogReason::NotApproved(_) | BacklogReason::RequestsExhausted(_) => {
            "Suture will ask CodeGenie again.".to_owned()
        }
    }
}

/// The comment on an issue that needs a person.
pub fn issue_urgent(why: BacklogReason) -> String {
    match why {
        BacklogReason::NotApproved(number) => {
            format!("#{number} has waited too long for approval. A person should look at it.")
        }
        BacklogReason::RequestsExhausted(requests) => format!(
            "CodeGenie was asked {requests} times, but no pull request was merged. Suture stops asking; a person should \
             look at it. To start over, remove the pipeline label, wait a while and add it again."
        ),
        BacklogReason::NoPullRequest => "No pull request was opened in time. A person should look at it.".to_owned(),
        BacklogReason::PullRequestClosed(number) => format!("#{number} was closed. A person should look at it."),
    }
}

/// The comment on a pull request that is closed because its failed review was never fixed.
pub fn pull_request_given_up(issue: u64, hours: u32) -> String {
    format!(
        "Closing this pull request: its review failed and was not fixed within {hours} h. Suture will ask CodeGenie for a \
         new one for #{issue}."
    )
}

pub fn status_title(of: &str) -> String {
    format!("Suture status: {of}")
}

/// The body of the status issue. Times are absolute, so that the body changes only when the facts do.
pub fn status_body(numbers: &StatusReport) -> String {
    let mut body = String::from(
        "Suture keeps this issue up to date and overwrites manual edits. The same numbers are at `GET /api/overview`.\n\n",
    );
    headlines(&mut body, numbers);
    body.push_str("\n| state | pull requests | stale |\n|---|---:|---:|\n");
    for StateRow { state, count, stale } in &numbers.states {
        let _ = writeln!(body, "| {state} | {count} | {stale} |");
    }
    let TodayCounts { opened, merged, healed, remedies, escalated } = numbers.today;
    let _ = writeln!(
        body,
        "\n| today | opened | merged | healed | remedies | escalated |\n|---|---:|---:|---:|---:|---:|\n| UTC | {opened} | {merged} | {healed} | {remedies} | {escalated} |"
    );
    if let Some(BacklogCounts { discovered, approved, in_progress, pr_open, wip_limit }) = numbers.backlog {
        let _ = writeln!(
            body,
            "\n| backlog | discovered | approved | in progress | pull request open |\n|---|---:|---:|---:|---:|\n| issues | {discovered} | {approved} | {in_progress} of {wip_limit} | {pr_open} |"
        );
    }
    if !numbers.needs_person.is_empty() {
        body.push_str("\n### Waiting for a person\n\n");
    }
    for WaitingPullRequest { pr, since, why } in numbers.needs_person.iter().take(MAX_LISTED) {
        // GitHub turns the reference into a link.
        let _ = writeln!(body, "- {pr} since {}: {}", time(*since), inert(why));
    }
    more(&mut body, numbers.needs_person.len(), MAX_LISTED);
    body.push_str("\n| repository | open | needs a person | stale |\n|---|---:|---:|---:|\n");
    for RepoRow { repo, open, needs_person, stale } in numbers.repos.iter().take(MAX_REPOS) {
        let _ = writeln!(body, "| {repo} | {open} | {needs_person} | {stale} |");
    }
    more(&mut body, numbers.repos.len(), MAX_REPOS);
    truncate(&body, MAX_ISSUE)
}

fn headlines(body: &mut String, numbers: &StatusReport) {
    if let Some(by) = &numbers.paused {
        let _ = writeln!(body, "- **Paused** by {}: no remedies start until Suture is unpaused.", inert(by));
    }
    match numbers.breaker {
        Some(BreakerStatus::Open | BreakerStatus::HalfOpen) => {
            body.push_str(
                "- **The circuit breaker is open**: too many remedies failed, so none start until it closes.\n",
            );
        }
        Some(BreakerStatus::Closed) => body.push_str("- The circuit breaker is closed: remedies run normally.\n"),
        None => {}
    }
    for (since, what) in &numbers.outages {
        let _ = writeln!(body, "- **Down since {}**: {}", time(*since), inert(what));
    }
}

fn more(body: &mut String, all: usize, shown: usize) {
    if all > shown {
        let _ = writeln!(body, "\n… and {} more.", all - shown);
    }
}

/// Makes outside text safe to quote: one line, without mentions, links, HTML or table separators.
fn inert(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    truncate(&line, MAX_QUOTE)
        .replace('@', "@\u{200b}")
        .replace('#', "#\u{200b}")
        .replace('<', "&lt;")
        .replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::post_merge_health::WatchedMerge;
    use crate::id::PrId;
    use crate::state::State;
    use crate::tests::fixture::{minutes, pr, start};

    fn outage() -> HealthOutage {
        HealthOutage {
            key: "outage-x-1".to_owned(),
            since: start(),
            what: "https://shop.example answered 500 <!-- @maria".to_owned(),
            issue_repo: "acme/ops".parse().unwrap(),
            suspects: vec![
                WatchedMerge { at: start() - minutes(2), pr: pr() },
                WatchedMerge { at: start() - minutes(9), pr: PrId::new("acme/other".parse().unwrap(), 7) },
            ],
            requested_at: None,
            over_at: None,
        }
    }

    #[test]
    fn outage_issue_lists_likely_merges_newest_first() {
        let (title, body) = (outage_title(&outage()), outage_body(&outage()));
        assert_eq!(title, "P0: down since 2026-03-02 09:00 UTC after a merge");
        let first = body.find(&format!("- {} (merged 2026-03-02 08:58 UTC, newest and most likely", pr())).unwrap();
        assert!(first < body.find("- acme/other#7 (merged 2026-03-02 08:51 UTC)").unwrap(), "{body}");
        assert!(!body.contains("@maria") && !body.contains("<!--"), "{body}");
        let over = outage_over(&outage(), start() + minutes(20));
        let expected = "Healthy again since 2026-03-02 09:20 UTC; the outage lasted about 20 min.";
        assert!(over.starts_with(expected), "{over}");
    }

    #[test]
    fn status_issue_shows_counts_within_the_size_limit() {
        let mut numbers = StatusReport {
            states: vec![StateRow { state: State::Approved, count: 7, stale: 2 }],
            repos: vec![RepoRow { repo: "acme/shop".parse().unwrap(), open: 7, needs_person: 1, stale: 2 }],
            needs_person: vec![WaitingPullRequest { pr: pr(), since: start(), why: "it | @hangs".to_owned() }],
            today: TodayCounts { opened: 5, merged: 4, healed: 3, remedies: 2, escalated: 1 },
            breaker: Some(BreakerStatus::Open),
            paused: Some("ops".to_owned()),
            backlog: Some(BacklogCounts { discovered: 1, approved: 2, in_progress: 3, pr_open: 4, wip_limit: 10 }),
            outages: vec![(start(), "shop answered 500".to_owned())],
        };
        let body = status_body(&numbers);
        for line in [
            "| APPROVED | 7 | 2 |",
            "| acme/shop | 7 | 1 | 2 |",
            "| UTC | 5 | 4 | 3 | 2 | 1 |",
            "| issues | 1 | 2 | 3 of 10 | 4 |",
            "- **Paused** by ops",
            "- **The circuit breaker is open**",
            "- **Down since 2026-03-02 09:00 UTC**: shop answered 500",
        ] {
            assert!(body.contains(line), "{line}\n{body}");
        }
        assert!(body.contains(&format!("- {} since 2026-03-02 09:00 UTC: it \\| @\u{200b}hangs", pr())), "{body}");
        numbers.repos = vec![numbers.repos[0].clone(); 5_000];
        numbers.needs_person = vec![numbers.needs_person[0].clone(); 5_000];
        let body = status_body(&numbers);
        assert!(body.chars().count() <= MAX_ISSUE && body.contains("… and 4980 more."));
    }
}
