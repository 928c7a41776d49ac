//! What sweeps say to people: what was tried and what happened, for the mail about one pull request; one mail instead of
//! many; the breaker; and what would have been done, where Suture only watches.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{MAX_BODY, Notice, duration, subject, time};
use crate::event::{Event, cut};
use crate::id::RunId;
use crate::run::{Run, RunKind};

/// Longest line of a mail's history, in characters.
const MAX_LINE: usize = 240;

/// One remedy that was tried: when, what, for whom, and how it ended. Sweeps are nobody's remedy.
pub fn remedy_line(run: &Run) -> Option<String> {
    let what = match run.kind {
        RunKind::Remedy(strategy) => strategy.to_string(),
        RunKind::Abandon => "closing it for good".to_owned(),
        RunKind::Sweep => return None,
    };
    let whom = run.requested_by.as_deref().map(|who| format!(" for {who}")).unwrap_or_default();
    let ended = run.outcome.as_deref().unwrap_or_else(|| run.state.name());
    let took = run.completed_at.map(|at| format!(", after {}", duration(at.duration_since(run.created_at))));
    let line = format!("{}: {what}{whom}: {ended}{}", time(run.created_at), took.unwrap_or_default());
    Some(cut(&line, MAX_LINE))
}

pub fn event_line(event: &Event) -> String {
    let change = event.from.zip(event.to).map(|(from, to)| format!(" ({from} to {to})")).unwrap_or_default();
    let said = event.payload.text.trim();
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    cut(&format!("{} {}{change}{said}", time(event.occurred_at), event.kind), MAX_LINE)
}

/// A request that something newer has taken the place of.
pub fn superseded(by: &RunId) -> String {
    format!("superseded by `{by}`")
}

/// More requests than a day has room for.
pub fn too_many_requests(whose: &str, limit: u32) -> String {
    format!(
        "{limit} requests for {whose} were taken today: this one is left to the schedule, which looks at what is due every minute"
    )
}

/// One mail instead of many: what is wrong with each, without its history.
pub fn digest(notices: &[&Notice]) -> Notice {
    let count = notices.len();
    let mut body = format!("{count} pull requests need a person. So many at once often have one cause.\n\n");
    for notice in notices {
        // A mail begins with what it is about and what is wrong with it; what follows is for one pull request alone.
        let told: Vec<&str> = notice.body.split("\n\n").take(2).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(body, "{}\n", cut(&told.join("\n"), MAX_BODY / 40));
    }
    body.push_str(
        "What you can do\n\
         \x20 - Look for what they have in common first: Jenkins, a policy, the base branch.\n\
         \x20 - Comment /explain on one of them for what was tried, /resume to let Suture try again.\n\
         \x20 - Push, merge or close: Suture notices.\n\
         Until then Suture only watches them.\n",
    );
    Notice { subject: subject(&format!("Suture: {count} pull requests need a person")), body: cut(&body, MAX_BODY) }
}

/// The breaker has tripped (R-BREAKER-3, whose sentence stands first).
pub fn breaker_tripped(failure_rate_percent: u32, since: Timestamp, cooldown_until: Timestamp) -> Notice {
    let body = format!(
        "Circuit breaker tripped — {failure_rate_percent}% failure rate\n\n\
         What is wrong\n\
         \x20 Since {} more remedies fail than work. Something they all need is probably down: Jenkins, GitHub, a bot.\n\
         \x20 Suture goes on watching, but starts nothing.\n\n\
         What happens next\n\
         \x20 At {} Suture lets one remedy through. If it works, Suture goes on; if not, it waits again.\n\n\
         What you can do\n\
         \x20 - Repair what is down. Nothing is lost meanwhile.\n\
         \x20 - If it is repaired, reset the breaker: POST /api/circuit-breaker/reset.\n",
        time(since),
        time(cooldown_until),
    );
    let headline = format!("Suture: circuit breaker tripped, {failure_rate_percent}% failure rate");
    Notice { subject: subject(&headline), body }
}

/// What would have been done, where Suture only watches.
pub fn observed(remedied: usize, escalated: usize, since: Timestamp) -> String {
    format!("would have healed {remedied}, escalated {escalated} since {}", time(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Actor, EventKind, Payload};
    use crate::id::{EventId, RunId};
    use crate::run::{Initiator, RunState, RunTrigger, TransitionContext};
    use crate::state::{State, Strategy};
    use crate::tests::world::{minutes, pr, sha, start};

    #[test]
    fn a_remedy_is_told_with_its_end() {
        let by = |at| TransitionContext::new(Initiator::System, at);
        let run =
            Run::remedy(RunId::new("r"), pr(), Some(sha('a')), Strategy::Rebuild, RunTrigger::Reconciler, start());
        assert_eq!(remedy_line(&run).unwrap(), "2026-03-02 09:00 UTC: rebuild: pending");
        let at = start() + minutes(12);
        let run = run.advance(RunState::Running, by(start())).unwrap();
        let mut run = run.complete("the checks failed again", by(at)).unwrap();
        run.requested_by = Some("danny".to_owned());
        let line = "2026-03-02 09:00 UTC: rebuild for danny: the checks failed again, after 12 min";
        assert_eq!(remedy_line(&run).unwrap(), line);
        assert_eq!(remedy_line(&Run::sweep(RunId::new("s"), RunTrigger::Schedule, start())), None);
    }

    #[test]
    fn an_event_is_one_line() {
        let mut event = Event {
            pr: pr(),
            occurred_at: start(),
            id: EventId::new("d1"),
            hop: 0,
            kind: EventKind::ChecksFailed,
            source: Actor::GithubWebhook,
            from: Some(State::ChecksRunning),
            to: Some(State::ChecksFailed),
            payload: Payload::text("timeout"),
            ttl: start(),
        };
        let line = "2026-03-02 09:00 UTC CHECKS_FAILED (CHECKS_RUNNING to CHECKS_FAILED): timeout";
        assert_eq!(event_line(&event), line);
        (event.from, event.to, event.payload) = (None, None, Payload::default());
        assert_eq!(event_line(&event), "2026-03-02 09:00 UTC CHECKS_FAILED");
    }

    #[test]
    fn a_digest_says_what_is_wrong_with_each_and_stays_readable() {
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
        assert_eq!(observed(3, 1, start()), "would have healed 3, escalated 1 since 2026-03-02 09:00 UTC");
    }
}
