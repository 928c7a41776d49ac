//! What issues and pull requests are told by what a sweep does beyond single ones: the status issue, the issue about an outage,
//! the backlog's comments.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::time;
use crate::coordination::backlog::Why;
use crate::coordination::sentinel::Outage;
use crate::coordination::status::{Issues, Lane, Numbers, Repo, Today, Waiting};
use crate::event::cut;

/// Longest issue, in characters; GitHub takes 65,536.
const MAX_ISSUE: usize = 60_000;
/// Longest text of somebody else in an issue.
const MAX_SAID: usize = 300;
/// Pull requests and repositories that the status issue lists.
const MOST_LISTED: usize = 20;
const MOST_REPOS: usize = 200;

/// What the log says about a merge after which all was well.
pub fn verified_event(watched_minutes: u32) -> String {
    format!("healthy for {watched_minutes} min after the merge")
}

/// The same, on the pull request (R-COORD-2).
pub fn verified_comment(watched_minutes: u32) -> String {
    format!("✅ post-merge verified: {}.", verified_event(watched_minutes))
}

/// The title of the issue about an outage.
pub fn outage_title(outage: &Outage) -> String {
    format!("P0: down since {} after a merge", time(outage.since))
}

/// The issue about an outage: what was seen, which merges may be why, what to do.
pub fn outage_body(outage: &Outage) -> String {
    let mut body = format!(
        "Suture asks the configured health addresses after each merge. Since {} one of them is not well:\n\n> {}\n\n### Likely merges\n\n",
        time(outage.since),
        inert(&outage.what),
    );
    if outage.suspects.is_empty() {
        body.push_str("None was being watched when it began.\n");
    }
    for (n, merge) in outage.suspects.iter().enumerate() {
        let likely = if n == 0 { ", the newest and so the likeliest" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(body, "- {} (merged {}{likely})", merge.pr, time(merge.at));
    }
    body.push_str(
        "\n### What to do\n\n\
         - Look at the address yourself first; Suture only knows that it did not answer 200.\n\
         - If a merge above is the cause, revert it on GitHub.\n\
         - Suture goes on asking, says here when it is well again, and leaves closing this issue to you.\n",
    );
    cut(&body, MAX_ISSUE)
}

/// Below that issue, when it is over.
pub fn outage_over(outage: &Outage, over_at: Timestamp) -> String {
    let lasted = super::duration(over_at.duration_since(outage.since));
    format!("Well again since {}; it lasted about {lasted}. Close this issue when you know why.", time(over_at))
}

pub fn rejected(hours: u32) -> String {
    format!(
        "Nobody approved this within {hours} h, so it is closed. Reopen it and label it as approved if it should be done; \
         with `source/human` it is never closed for its age."
    )
}

/// Why an issue is closed as done.
pub fn done(number: u64) -> String {
    format!("#{number} is merged.")
}

pub fn requeued(why: Why) -> String {
    match why {
        Why::NoPull => "CodeGenie was asked and has not opened a pull request in time. It is asked again.".to_owned(),
        Why::PullClosed(number) => format!("#{number} was closed without a merge. CodeGenie is asked again."),
        Why::NotApproved(_) | Why::AskedEnough(_) => "CodeGenie is asked again.".to_owned(),
    }
}

/// Why a person should look at an issue.
pub fn urgent(why: Why) -> String {
    match why {
        Why::NotApproved(number) => format!("#{number} waits for its approval for too long: a person should look."),
        Why::AskedEnough(requests) => format!(
            "CodeGenie was asked {requests} times and no pull request was merged. Suture asks no more: a person should look. \
             Once its label has been off for a while, it begins anew."
        ),
        Why::NoPull => "No pull request came in time: a person should look.".to_owned(),
        Why::PullClosed(number) => format!("#{number} was closed: a person should look."),
    }
}

/// What a pull request is told that is given up for its issue.
pub fn given_up(issue: u64, hours: u32) -> String {
    format!(
        "Its review failed and nobody fixed it within {hours} h. Closing it; CodeGenie is asked again for #{issue}."
    )
}

pub fn status_title(of: &str) -> String {
    format!("Suture: how things stand in {of}")
}

/// The status issue. Times are absolute, so that it changes only when something has changed.
pub fn status_body(numbers: &Numbers) -> String {
    let mut body = String::from(
        "Suture keeps this issue up to date by editing it; the same numbers are at `GET /api/overview`. \
         Nothing written into it stays.\n\n",
    );
    headlines(&mut body, numbers);
    body.push_str("\n| state | pull requests | stale |\n|---|---:|---:|\n");
    for Lane { state, count, stale } in &numbers.states {
        let _ = writeln!(body, "| {state} | {count} | {stale} |");
    }
    let Today { opened, merged, healed, remedies, escalated } = numbers.today;
    let _ = writeln!(
        body,
        "\n| today | opened | merged | healed | remedies | escalated |\n|---|---:|---:|---:|---:|---:|\n| UTC | {opened} | {merged} | {healed} | {remedies} | {escalated} |"
    );
    if let Some(Issues { discovered, approved, in_progress, pr_open, wip_limit }) = numbers.backlog {
        let _ = writeln!(
            body,
            "\n| backlog | discovered | approved | in progress | pull request open |\n|---|---:|---:|---:|---:|\n| issues | {discovered} | {approved} | {in_progress} of {wip_limit} | {pr_open} |"
        );
    }
    if !numbers.needs_person.is_empty() {
        body.push_str("\n### Waiting for a person\n\n");
    }
    for Waiting { pr, since, why } in numbers.needs_person.iter().take(MOST_LISTED) {
        // GitHub makes a link of the pull request by itself.
        let _ = writeln!(body, "- {pr} since {}: {}", time(*since), inert(why));
    }
    more(&mut body, numbers.needs_person.len(), MOST_LISTED);
    body.push_str("\n| repository | open | with a person | stale |\n|---|---:|---:|---:|\n");
    for Repo { repo, open, needs_person, stale } in numbers.repos.iter().take(MOST_REPOS) {
        let _ = writeln!(body, "| {repo} | {open} | {needs_person} | {stale} |");
    }
    more(&mut body, numbers.repos.len(), MOST_REPOS);
    cut(&body, MAX_ISSUE)
}

fn headlines(body: &mut String, numbers: &Numbers) {
    if let Some(by) = &numbers.paused {
        let _ = writeln!(body, "- **Paused** by {}: nothing is done until somebody lets it go on.", inert(by));
    }
    match numbers.breaker.as_str() {
        "open" | "half_open" => body.push_str("- **The circuit breaker is open**: remedies mostly failed, and wait.\n"),
        "closed" => body.push_str("- The circuit breaker is closed: remedies work.\n"),
        _ => {}
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

/// What somebody else said, in one line that mentions nobody, links nothing and closes no comment of ours.
fn inert(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&line, MAX_SAID).replace('@', "@\u{200b}").replace('#', "#\u{200b}").replace('<', "&lt;").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::sentinel::Merge;
    use crate::id::PrId;
    use crate::state::State;
    use crate::tests::world::{minutes, pr, start};

    fn outage() -> Outage {
        Outage {
            key: "outage-x-1".to_owned(),
            since: start(),
            what: "https://shop.example answered 500 <!-- @maria".to_owned(),
            issue_repo: "acme/ops".parse().unwrap(),
            suspects: vec![
                Merge { at: start() - minutes(2), pr: pr() },
                Merge { at: start() - minutes(9), pr: PrId::new("acme/other".parse().unwrap(), 7) },
            ],
            asked_at: None,
            over_at: None,
        }
    }

    #[test]
    fn an_outage_names_the_likely_merges_the_newest_first() {
        let (title, body) = (outage_title(&outage()), outage_body(&outage()));
        assert_eq!(title, "P0: down since 2026-03-02 09:00 UTC after a merge");
        let first = body.find(&format!("- {} (merged 2026-03-02 08:58 UTC, the newest", pr())).unwrap();
        assert!(first < body.find("- acme/other#7 (merged 2026-03-02 08:51 UTC)").unwrap(), "{body}");
        assert!(!body.contains("@maria") && !body.contains("<!--"), "{body}");
        let over = outage_over(&outage(), start() + minutes(20));
        assert!(over.starts_with("Well again since 2026-03-02 09:20 UTC; it lasted about 20 min."), "{over}");
    }

    #[test]
    fn the_status_shows_the_numbers_and_stays_within_an_issue() {
        let mut numbers = Numbers {
            states: vec![Lane { state: State::Approved, count: 7, stale: 2 }],
            repos: vec![Repo { repo: "acme/shop".parse().unwrap(), open: 7, needs_person: 1, stale: 2 }],
            needs_person: vec![Waiting { pr: pr(), since: start(), why: "it | @hangs".to_owned() }],
            today: Today { opened: 5, merged: 4, healed: 3, remedies: 2, escalated: 1 },
            breaker: "open".to_owned(),
            paused: Some("ops".to_owned()),
            backlog: Some(Issues { discovered: 1, approved: 2, in_progress: 3, pr_open: 4, wip_limit: 10 }),
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
