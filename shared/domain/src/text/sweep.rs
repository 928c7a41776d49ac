//! Texts of sweeps: the history lines of an escalation mail, the digest of several escalations, the circuit breaker mail,
//! and the observe-mode report.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{MAX_BODY, Notice, duration, subject, time};
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

/// One mail instead of many: the cause of each escalation, without its history.
pub fn digest(notices: &[&Notice]) -> Notice {
    let count = notices.len();
    let mut body = format!("{count} pull requests need a person. So many at once often share one cause.\n\n");
    for notice in notices {
        // The first two paragraphs of an escalation mail name the pull request and the cause.
        let paragraphs: Vec<&str> = notice.body.split("\n\n").take(2).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(body, "{}\n", truncate(&paragraphs.join("\n"), MAX_BODY / 40));
    }
    body.push_str(
        "What you can do\n\
         \x20 - First look for a common cause: Jenkins, a policy, the base branch.\n\
         \x20 - Comment /explain on one of them to see the diagnosis, or /resume to let Suture try again.\n\
         \x20 - Or push a fix, merge or close each yourself.\n\
         Until then Suture takes no action on them.\n",
    );
    Notice {
        subject: subject(&format!("Suture: {count} pull requests need a person")),
        body: truncate(&body, MAX_BODY),
    }
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
    Notice { subject: subject(&headline), body }
}

/// The observe-mode report: what Suture would have done.
pub fn observe_report(remedied: usize, escalated: usize, since: Timestamp) -> String {
    format!("would have healed {remedied}, escalated {escalated} since {}", time(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Actor, EventKind, EventPayload};
    use crate::id::{EventId, RunId};
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
    fn digest_lists_each_cause_within_the_size_limit() {
        let one = |n: u32| Notice {
            subject: format!("Suture: #{n} needs a person"),
            body: format!(
                "acme/app#{n} needs a person.\nhttps://github.com/acme/app/pull/{n}\n\nWhat is wrong\n  It hangs.\n\nWhat happened\n  - much"
            ),
        };
        let notices: Vec<Notice> = (1..=400).map(one).collect();
        let few = digest(&notices[..6].iter().collect::<Vec<_>>());
        assert_eq!(few.subject, "Suture: 6 pull requests need a person");
        assert_eq!(few.body.matches("It hangs.").count(), 6);
        assert!(few.body.contains("https://github.com/acme/app/pull/6") && !few.body.contains("much"));
        let many = digest(&notices.iter().collect::<Vec<_>>());
        assert!(many.body.chars().count() <= MAX_BODY && many.subject.is_ascii());
    }

    #[test]
    fn breaker_mail_begins_with_the_failure_rate() {
        let notice = breaker_tripped(67, start(), start() + minutes(10));
        assert!(notice.body.starts_with("Circuit breaker tripped — 67% failure rate\n"));
        assert!(notice.body.contains("At 2026-03-02 09:10 UTC") && notice.subject.is_ascii());
        assert_eq!(observe_report(3, 1, start()), "would have healed 3, escalated 1 since 2026-03-02 09:00 UTC");
    }
}
