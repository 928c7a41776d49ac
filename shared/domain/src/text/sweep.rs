//! Texts of sweeps: the history lines of an escalation mail, the digest of several escalations, the circuit breaker mail,
//! and the observe-mode report.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;

use super::{EscalationSummary, MAX_BODY, Notice, duration, subject, time};
use crate::event::{Event, truncate};
use crate::id::RunId;
use crate::run::{Run, RunKind};

/// Longest history line of a mail, in characters.
const MAX_LINE: usize = 240;

/// One remedy: start time, strategy, requester and outcome. Sweeps have no such line.
pub fn remedy_line(run: &Run) -> Option<String> {
    let what = match run.kind {
        RunKind::Remedy(strategy) => strategy.to_string(),
        RunKind::Abandon => "close permanently".to_owned(),
        RunKind::Sweep => return None,
    };
    let requester = run.requested_by.as_deref().map(|by| format!(" requested by {by}")).unwrap_or_default();
    let outcome = run.outcome.as_deref().unwrap_or_else(|| run.state.name());
    let took = run.completed_at.map(|at| format!(", after {}", duration(at.duration_since(run.created_at))));
    let line = format!("{}: {what}{requester}: {outcome}{}", time(run.created_at), took.unwrap_or_default());
    Some(truncate(&line, MAX_LINE))
}

pub fn event_line(event: &Event) -> String {
    let change = event.from.zip(event.to).map(|(from, to)| format!(" ({from} to {to})")).unwrap_or_default();
    let text = event.payload.text.trim();
    let details = if text.is_empty() { String::new() } else { format!(": {text}") };
    truncate(&format!("{} {}{change}{details}", time(event.occurred_at), event.kind), MAX_LINE)
}

/// The outcome of a reconcile request that a newer one replaced.
pub fn superseded(by: &RunId) -> String {
    format!("superseded by `{by}`")
}

/// The answer to a reconcile request over the daily limit.
pub fn too_many_requests(whose: &str, limit: u32) -> String {
    format!("daily limit reached: {limit} requests for {whose}; this one is left to the scheduled sweep")
}

/// Longest body of a digest, in characters. SNS takes 256 KB.
const MAX_DIGEST: usize = 100_000;
/// Newest events of each pull request in a digest.
const DIGEST_EVENTS: usize = 8;

/// One mail instead of many, grouped by cause: for each pull request its link, vulnerability, cause, remedies and newest
/// events. If the mail becomes too long, the last ones are listed with link and vulnerability only.
pub fn digest(notices: &[&Notice]) -> Notice {
    let count = notices.len();
    let mut groups: BTreeMap<&str, Vec<&EscalationSummary>> = BTreeMap::new();
    for summary in notices.iter().filter_map(|notice| notice.escalation.as_deref()) {
        groups.entry(summary.rule.as_str()).or_default().push(summary);
    }
    let mut groups: Vec<(&str, Vec<&EscalationSummary>)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, members)| Reverse(members.len()));
    let mut body = format!("{count} pull requests need a person. So many at once often share one cause.\n\n");
    for (rule, members) in &groups {
        // Writing to a string cannot fail.
        let _ =
            writeln!(body, "{rule}: {}", if members.len() == 1 { "one".to_owned() } else { members.len().to_string() });
    }
    body.push_str(
        "\nWhat you can do\n\
         \x20 - First look for a common cause: Jenkins, a policy, the base branch.\n\
         \x20 - Comment /explain on one of them to see the whole diagnosis, or /resume to let Suture try again.\n\
         \x20 - Or push a fix, merge or close each yourself.\n\
         Until then Suture takes no action on them.\n",
    );
    let mut length = body.chars().count();
    // The least that the others still need.
    let mut rest: usize =
        groups.iter().flat_map(|(_, members)| members).map(|one| short_entry(one).chars().count()).sum();
    for (rule, members) in groups {
        let heading = format!("\n== {rule} ==\n");
        length += heading.chars().count();
        body.push_str(&heading);
        for summary in members {
            let (short, whole) = (short_entry(summary), digest_entry(summary));
            rest -= short.chars().count();
            let fits = length + whole.chars().count() + rest <= MAX_DIGEST;
            let entry = if fits { whole } else { short };
            length += entry.chars().count();
            body.push_str(&entry);
        }
    }
    let others = notices.iter().filter(|notice| notice.escalation.is_none());
    for notice in others {
        let _ = write!(body, "\n== {} ==\n{}\n", notice.subject, truncate(&notice.body, MAX_BODY));
    }
    let headline = format!("Suture: {count} pull requests need a person");
    Notice::new(subject(&headline), truncate(&body, MAX_DIGEST))
}

fn digest_entry(summary: &EscalationSummary) -> String {
    let mut entry = short_entry(summary);
    let _ = writeln!(entry, "  {}", summary.position);
    let newest = summary.events.len().saturating_sub(DIGEST_EVENTS);
    let parts = [("What is wrong", &summary.cause[..]), ("What Suture tried", &summary.remedies[..])];
    for (title, lines) in parts.into_iter().chain([("What happened last", &summary.events[newest..])]) {
        let _ = writeln!(entry, "  {title}");
        for line in lines {
            let _ = writeln!(entry, "    - {line}");
        }
        if lines.is_empty() {
            entry.push_str("    - nothing\n");
        }
    }
    entry
}

fn short_entry(summary: &EscalationSummary) -> String {
    format!("\n{}: {}\n  {}\n", summary.pr, summary.vulnerability, summary.link)
}

/// The mail when the circuit breaker trips; its first line is required by R-BREAKER-3.
pub fn breaker_tripped(failure_rate_percent: u32, since: Timestamp, cooldown_until: Timestamp) -> Notice {
    let body = format!(
        "Circuit breaker tripped — {failure_rate_percent}% failure rate\n\n\
         What is wrong\n\
         \x20 Too many remedies have failed since {}. Something they all need is probably down: Jenkins, GitHub or a bot.\n\
         \x20 Suture keeps recording events but starts no remedies.\n\n\
         What happens next\n\
         \x20 At {} Suture starts one remedy as a probe. If it works, the breaker closes; if not, it stays open longer.\n\n\
         What you can do\n\
         \x20 - Repair what is down. No event is lost in the meantime.\n\
         \x20 - Once it is repaired, you can reset the breaker: POST /api/circuit-breaker/reset.\n",
        time(since),
        time(cooldown_until),
    );
    let headline = format!("Suture: circuit breaker tripped, {failure_rate_percent}% failure rate");
    Notice::new(subject(&headline), body)
}

/// The observe-mode report: what Suture would have done.
pub fn observe_report(remedied: usize, escalated: usize, since: Timestamp) -> String {
    format!("would have healed {remedied}, escalated {escalated} since {}", time(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Actor, EventKind, EventPayload};
    use crate::id::{EventId, PrId, RunId};
    use crate::run::{Initiator, RunState, RunTrigger, TransitionContext};
    use crate::state::{State, Strategy};
    use crate::tests::fixture::{minutes, pr, sha, start};

    #[test]
    fn remedy_line_shows_the_outcome() {
        let by = |at| TransitionContext::new(Initiator::System, at);
        let run =
            Run::remedy(RunId::new("r"), pr(), Some(sha('a')), Strategy::Rebuild, RunTrigger::Reconciler, start());
        assert_eq!(remedy_line(&run).unwrap(), "2026-03-02 09:00 UTC: rebuild: pending");
        let at = start() + minutes(12);
        let run = run.advance(RunState::Running, by(start())).unwrap();
        let mut run = run.complete("the checks failed again", by(at)).unwrap();
        run.requested_by = Some("danny".to_owned());
        let line = "2026-03-02 09:00 UTC: rebuild requested by danny: the checks failed again, after 12 min";
        assert_eq!(remedy_line(&run).unwrap(), line);
        assert_eq!(remedy_line(&Run::sweep(RunId::new("s"), RunTrigger::Schedule, start())), None);
    }

    #[test]
    fn event_line_is_one_line() {
        let mut event = Event {
            pr: pr(),
            occurred_at: start(),
            id: EventId::new("d1"),
            hop: 0,
            kind: EventKind::ChecksFailed,
            source: Actor::GithubWebhook,
            from: Some(State::ChecksRunning),
            to: Some(State::ChecksFailed),
            payload: EventPayload::text("timeout"),
            ttl: start(),
        };
        let line = "2026-03-02 09:00 UTC CHECKS_FAILED (CHECKS_RUNNING to CHECKS_FAILED): timeout";
        assert_eq!(event_line(&event), line);
        (event.from, event.to, event.payload) = (None, None, EventPayload::default());
        assert_eq!(event_line(&event), "2026-03-02 09:00 UTC CHECKS_FAILED");
    }

    #[test]
    fn digest_left_out_vulnerability_history_and_attempts() {
        let one = |n: u64, rule: &str| Notice {
            escalation: Some(Box::new(EscalationSummary {
                pr: PrId::new("acme/app".parse().unwrap(), n),
                link: format!("https://github.com/acme/app/pull/{n}"),
                rule: rule.to_owned(),
                cause: vec!["The build fails.".to_owned()],
                vulnerability: format!("CVE-2026-{n:04}"),
                position: "CHECKS_FAILED since 2026-03-02 09:00 UTC".to_owned(),
                remedies: vec![format!("rebuild {n}: failed")],
                events: (0..20).map(|event| format!("event {event} of {n}")).collect(),
            })),
            ..Notice::new(format!("Suture: #{n} needs a person"), "the mail of one".to_owned())
        };
        let rules = ["MERGE CONFLICT DETECTED", "CHECKS FAILED - PERSISTENT"];
        let notices: Vec<Notice> = (1..=400).map(|n| one(n, rules[usize::from(n % 3 > 0)])).collect();
        let few = digest(&notices[..6].iter().collect::<Vec<_>>());
        assert_eq!(few.subject, "Suture: 6 pull requests need a person");
        for n in 1..=6 {
            for text in [format!("/pull/{n}\n"), format!("CVE-2026-{n:04}"), format!("rebuild {n}: failed")] {
                assert!(few.body.contains(&text), "{text}: {}", few.body);
            }
            assert!(
                few.body.contains(&format!("event 19 of {n}\n")) && !few.body.contains(&format!("event 0 of {n}\n"))
            );
        }
        assert!(few.body.contains("CHECKS FAILED - PERSISTENT: 4\nMERGE CONFLICT DETECTED: 2\n"), "{}", few.body);
        let heading = |rule: &str| few.body.find(&format!("== {rule} ==")).unwrap();
        assert!(heading("CHECKS FAILED - PERSISTENT") < heading("MERGE CONFLICT DETECTED"), "the largest group first");
        let many = digest(&notices.iter().collect::<Vec<_>>());
        assert!(many.body.chars().count() <= MAX_DIGEST && many.subject.is_ascii());
        assert!((1..=400).all(|n| many.body.contains(&format!("CVE-2026-{n:04}"))), "none is left out");
    }

    #[test]
    fn breaker_mail_begins_with_the_failure_rate() {
        let notice = breaker_tripped(67, start(), start() + minutes(10));
        assert!(notice.body.starts_with("Circuit breaker tripped — 67% failure rate\n"));
        assert!(notice.body.contains("At 2026-03-02 09:10 UTC") && notice.subject.is_ascii());
        assert_eq!(observe_report(3, 1, start()), "would have healed 3, escalated 1 since 2026-03-02 09:00 UTC");
    }
}
