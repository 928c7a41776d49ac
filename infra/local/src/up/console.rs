//! Console output: one aligned line for each event worth showing, in colour only on a terminal. The time is when Suture
//! recorded the event, which is later than the event itself if its webhook was lost.

use std::io::Write as _;

use domain::event::{Event, EventKind, truncate};
use domain::github_contact::{ContactStatus, GithubContact};
use domain::run::{Run, RunEnd, RunKind, RunState};
use domain::text;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Widths of the columns before the text, in characters.
const NAME: usize = 18;
const WORD: usize = 9;
/// Maximum length of the text, in characters.
const TEXT: usize = 110;

/// An event that may produce console lines.
#[derive(Debug)]
pub(super) enum ConsoleEvent {
    Event {
        at: Timestamp,
        event: Box<Event>,
    },
    Run {
        at: Timestamp,
        run: Box<Run>,
    },
    Mail {
        at: Timestamp,
        subject: String,
    },
    /// Whether GitHub could be read.
    Contact {
        at: Timestamp,
        contact: GithubContact,
    },
    /// A message about this process itself.
    Note {
        at: Timestamp,
        text: String,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Console(UnboundedSender<ConsoleEvent>);

impl Console {
    pub(super) fn open() -> (Self, UnboundedReceiver<ConsoleEvent>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    pub(super) fn show(&self, event: ConsoleEvent) {
        let _ = self.0.send(event);
    }
}

/// Prints until all senders are gone.
pub(super) async fn print(mut events: UnboundedReceiver<ConsoleEvent>, colored: bool) {
    let mut was_failing = false;
    while let Some(event) = events.recv().await {
        if let ConsoleEvent::Contact { contact, .. } = &event {
            // Only changes are worth a line.
            let failing = contact.failing_since.is_some();
            if std::mem::replace(&mut was_failing, failing) == failing {
                continue;
            }
        }
        for line in lines_of(&event) {
            // A closed pipe must not stop the system.
            let _ = writeln!(std::io::stdout(), "{}", line.render(colored));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineColor {
    Plain,
    Trouble,
    Work,
    Good,
    Alarm,
}

impl LineColor {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "2",
            Self::Trouble => "33",
            Self::Work => "36",
            Self::Good => "32",
            Self::Alarm => "1;31",
        }
    }
}

struct ConsoleLine {
    at: Timestamp,
    name: String,
    word: &'static str,
    color: LineColor,
    text: String,
}

impl ConsoleLine {
    fn new(at: Timestamp, word: &'static str, color: LineColor, text: String) -> Self {
        Self { at, name: String::new(), word, color, text }
    }

    fn render(&self, colored: bool) -> String {
        let clock = self.at.to_string();
        let clock = clock.get(11..19).unwrap_or(&clock);
        let (name, word, text) = (&self.name, self.word, truncate(&one_line(&self.text), TEXT));
        let line = if colored {
            format!("{clock}  {name:<NAME$}  \x1b[{}m{word:<WORD$}\x1b[0m  {text}", self.color.code())
        } else {
            format!("{clock}  {name:<NAME$}  {word:<WORD$}  {text}")
        };
        line.trim_end().to_owned()
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lines_of(event: &ConsoleEvent) -> Vec<ConsoleLine> {
    match event {
        ConsoleEvent::Event { at, event } => event_lines(*at, event),
        ConsoleEvent::Run { at, run } => healed(*at, run).into_iter().collect(),
        ConsoleEvent::Mail { at, subject } => vec![ConsoleLine::new(*at, "mail", LineColor::Alarm, subject.clone())],
        ConsoleEvent::Contact { at, contact } => vec![contact_line(*at, contact)],
        ConsoleEvent::Note { at, text } => vec![ConsoleLine::new(*at, "note", LineColor::Plain, text.clone())],
    }
}

fn contact_line(at: Timestamp, contact: &GithubContact) -> ConsoleLine {
    let (status, color) = match contact.failing_since {
        Some(_) => (ContactStatus::Failing, LineColor::Alarm),
        None => (ContactStatus::Ok, LineColor::Good),
    };
    ConsoleLine::new(at, "github", color, contact.sentence(status))
}

fn short(pr: &domain::id::PrId) -> String {
    format!("{}#{}", pr.repo.name(), pr.number)
}

/// Event kinds that produce a line. Claims are handled separately: they produce two.
const SHOWN: [(EventKind, &str, LineColor); 15] = [
    (EventKind::PrOpened, "opened", LineColor::Plain),
    (EventKind::PrReopened, "reopened", LineColor::Plain),
    (EventKind::PrLinked, "linked", LineColor::Plain),
    (EventKind::PrClosed, "closed", LineColor::Plain),
    (EventKind::MergeSucceeded, "merged", LineColor::Good),
    (EventKind::PrMerged, "merged", LineColor::Good),
    (EventKind::PostMergeVerified, "verified", LineColor::Good),
    (EventKind::RemediationEnded, "no use", LineColor::Trouble),
    (EventKind::DuplicateExists, "blocked", LineColor::Trouble),
    (EventKind::StateDriftCorrected, "missed", LineColor::Trouble),
    (EventKind::WouldRemedy, "observed", LineColor::Trouble),
    (EventKind::WouldEscalate, "observed", LineColor::Trouble),
    (EventKind::CommandReceived, "command", LineColor::Work),
    (EventKind::EscalatedNeedsIntervention, "escalated", LineColor::Alarm),
    (EventKind::Anomaly, "anomaly", LineColor::Alarm),
];

fn event_lines(at: Timestamp, event: &Event) -> Vec<ConsoleLine> {
    let payload = &event.payload;
    let line =
        |word, color, text: String| ConsoleLine { name: short(&event.pr), ..ConsoleLine::new(at, word, color, text) };
    if let Some(strategy) = event.kind.claimed_strategy() {
        return vec![
            line("stuck", LineColor::Trouble, payload.text.clone()),
            line("remedy", LineColor::Work, format!("Suture will {}", text::pull_request::strategy_phrase(strategy))),
        ];
    }
    let Some((kind, word, color)) = SHOWN.into_iter().find(|(kind, ..)| *kind == event.kind) else { return Vec::new() };
    // An effective remedy is shown as `healed` when its run is written. The end of another one has a line already.
    if event.is_healed() || event.withdraws_assumption() {
        return Vec::new();
    }
    let by = payload.by.as_deref().map_or_else(String::new, |by| format!("by {by}"));
    let mut text = [by.as_str(), &payload.text].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ");
    if kind == EventKind::PrOpened {
        text = payload.name.clone().unwrap_or(text);
    } else if kind == EventKind::CommandReceived {
        text = format!("{} {text}", payload.name.as_deref().unwrap_or("a command"));
    } else if kind == EventKind::Anomaly {
        text = payload.anomaly.clone().unwrap_or_default();
    }
    vec![line(word, color, text)]
}

/// The line for a remedy that completed because its expected event arrived.
fn healed(at: Timestamp, run: &Run) -> Option<ConsoleLine> {
    let (RunKind::Remedy(strategy), RunState::Completed, Some(pr)) = (run.kind, run.state, &run.pr) else {
        return None;
    };
    // A remedy that ended in the same failure is shown as `no use`, from its event.
    (run.end != Some(RunEnd::NoEffect)).then_some(())?;
    let took = SignedDuration::from_millis(i64::try_from(run.duration_ms?).unwrap_or(0));
    let proof = run.expects.as_deref().map_or_else(String::new, |expects| format!(": {expects} arrived"));
    let text = format!("{strategy} worked within {}{proof}", text::duration(took));
    Some(ConsoleLine { name: short(pr), ..ConsoleLine::new(at, "healed", LineColor::Good, text) })
}

#[cfg(test)]
mod tests {
    use domain::event::{Actor, EventPayload};
    use domain::id::{EventId, PrId, RunId};
    use domain::run::RunTrigger;
    use domain::state::Strategy;

    use super::*;

    fn at() -> Timestamp {
        "2036-03-03T09:41:07.25Z".parse().unwrap()
    }

    fn shown(event: &ConsoleEvent) -> Vec<String> {
        lines_of(event).iter().map(|line| line.render(false)).collect()
    }

    fn event(kind: EventKind, payload: EventPayload) -> ConsoleEvent {
        let pr: PrId = "acme/shop#7".parse().unwrap();
        let (id, source) = (EventId::new("e"), Actor::Reconciler);
        let event = Event { pr, occurred_at: at(), id, hop: 0, kind, source, from: None, to: None, payload, ttl: at() };
        ConsoleEvent::Event { at: at(), event: Box::new(event) }
    }

    #[test]
    fn columns_are_aligned() {
        let opened =
            event(EventKind::PrOpened, EventPayload { name: Some("CVE-2026-1".to_owned()), ..EventPayload::default() });
        assert_eq!(shown(&opened), ["09:41:07  shop#7              opened     CVE-2026-1"]);
        let stuck = event(EventKind::RemediationRebuild, EventPayload::text("Rule 3:\n  the agent died"));
        assert_eq!(
            shown(&stuck),
            [
                "09:41:07  shop#7              stuck      Rule 3: the agent died",
                "09:41:07  shop#7              remedy     Suture will run the checks again",
            ]
        );
        let mail = ConsoleEvent::Mail { at: at(), subject: "#7 needs a person".to_owned() };
        assert_eq!(shown(&mail), ["09:41:07                      mail       #7 needs a person"]);
        let merged = EventPayload { by: Some("danny".to_owned()), ..EventPayload::text("out of band") };
        assert_eq!(
            shown(&event(EventKind::PrMerged, merged)),
            ["09:41:07  shop#7              merged     by danny, out of band"]
        );
        assert!(
            shown(&event(EventKind::CheckReported, EventPayload::default())).is_empty(),
            "routine events have no line"
        );
    }

    #[test]
    fn remedy_is_shown_once_as_healed_or_as_no_use() {
        let lines = |end| {
            let payload = EventPayload { run_end: Some(end), ..EventPayload::text("the build is gone") };
            shown(&event(EventKind::RemediationEnded, payload)).len()
        };
        assert_eq!((lines(RunEnd::Completed), lines(RunEnd::NoEffect), lines(RunEnd::Failed)), (0, 1, 1));
        let pr: PrId = "acme/shop#7".parse().unwrap();
        let kind = RunKind::Remedy(Strategy::Rebuild);
        let mut run = Run::for_pull_request(RunId::new("r"), pr, None, kind, RunTrigger::Reconciler, at());
        assert!(
            shown(&ConsoleEvent::Run { at: at(), run: Box::new(run.clone()) }).is_empty(),
            "a running remedy has no line"
        );
        run.state = RunState::Completed;
        run.duration_ms = Some(360_000);
        run.expects = Some("new results of the checks".to_owned());
        let useless = Run { end: Some(RunEnd::NoEffect), ..run.clone() };
        assert!(shown(&ConsoleEvent::Run { at: at(), run: Box::new(useless) }).is_empty());
        assert_eq!(
            shown(&ConsoleEvent::Run { at: at(), run: Box::new(run) }),
            ["09:41:07  shop#7              healed     rebuild worked within 6 min: new results of the checks arrived"]
        );
    }

    #[test]
    fn colors_are_used_on_terminals_only() {
        let closed = event(EventKind::PrClosed, EventPayload::default());
        let line = &lines_of(&closed)[0];
        assert!(line.render(true).contains("\x1b[2mclosed"));
        assert_eq!(line.render(false), "09:41:07  shop#7              closed");
    }
}
