//! The console: one aligned line for each event that a person wants to see, in colour only on a terminal. The time is when
//! Suture noted the event, which for a missed one is later than it happened.

use std::io::Write as _;

use domain::event::{Event, EventKind, truncate};
use domain::remedy;
use domain::run::{Run, RunKind, RunState};
use domain::text;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The width of the columns before the text, in characters.
const NAME: usize = 18;
const WORD: usize = 9;
/// Longest text shown, in characters.
const TEXT: usize = 110;

/// What may be worth a line.
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
    /// About this process itself.
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
pub(super) async fn print(mut events: UnboundedReceiver<ConsoleEvent>, colour: bool) {
    while let Some(event) = events.recv().await {
        for line in lines_of(&event) {
            // A closed pipe is no reason to stop.
            let _ = writeln!(std::io::stdout(), "{}", line.shown(colour));
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
    tone: LineColor,
    text: String,
}

impl ConsoleLine {
    fn new(at: Timestamp, word: &'static str, tone: LineColor, text: String) -> Self {
        Self { at, name: String::new(), word, tone, text }
    }

    fn shown(&self, colour: bool) -> String {
        let clock = self.at.to_string();
        let clock = clock.get(11..19).unwrap_or(&clock);
        let (name, word, text) = (&self.name, self.word, truncate(&one_line(&self.text), TEXT));
        let line = if colour {
            format!("{clock}  {name:<NAME$}  \x1b[{}m{word:<WORD$}\x1b[0m  {text}", self.tone.code())
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
        ConsoleEvent::Note { at, text } => vec![ConsoleLine::new(*at, "note", LineColor::Plain, text.clone())],
    }
}

fn short(pr: &domain::id::PrId) -> String {
    format!("{}#{}", pr.repo.name(), pr.number)
}

/// The events that get a line, besides claims.
const SHOWN: [(EventKind, &str, LineColor); 14] = [
    (EventKind::PrOpened, "opened", LineColor::Plain),
    (EventKind::PrReopened, "reopened", LineColor::Plain),
    (EventKind::PrLinked, "linked", LineColor::Plain),
    (EventKind::PrClosed, "closed", LineColor::Plain),
    (EventKind::MergeSucceeded, "merged", LineColor::Good),
    (EventKind::PrMerged, "merged", LineColor::Good),
    (EventKind::PostMergeVerified, "verified", LineColor::Good),
    (EventKind::RemediationEnded, "no use", LineColor::Trouble),
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
        |word, tone, text: String| ConsoleLine { name: short(&event.pr), ..ConsoleLine::new(at, word, tone, text) };
    if let Some(strategy) = event.kind.claimed_strategy() {
        return vec![
            line("stuck", LineColor::Trouble, payload.text.clone()),
            line("remedy", LineColor::Work, format!("Suture will {}", text::pull_request::strategy_phrase(strategy))),
        ];
    }
    let Some((kind, word, tone)) = SHOWN.into_iter().find(|(kind, ..)| *kind == event.kind) else { return Vec::new() };
    // A remedy that helped is shown when its run is written.
    if event.is_healed() {
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
    vec![line(word, tone, text)]
}

/// A remedy that completed by the event it expected.
fn healed(at: Timestamp, run: &Run) -> Option<ConsoleLine> {
    let (RunKind::Remedy(strategy), RunState::Completed, Some(pr)) = (run.kind, run.state, &run.pr) else {
        return None;
    };
    // One that ended in the failure it was to cure is shown as `no use`, by its event.
    run.outcome.as_deref().is_none_or(remedy::was_effective).then_some(())?;
    let took = SignedDuration::from_millis(i64::try_from(run.duration_ms?).unwrap_or(0));
    let proof = run.expects.as_deref().map_or_else(String::new, |expects| format!(": {expects} came"));
    let text = format!("{strategy} worked within {}{proof}", text::duration(took));
    Some(ConsoleLine { name: short(pr), ..ConsoleLine::new(at, "healed", LineColor::Good, text) })
}

#[cfg(test)]
mod tests {
    use domain::decide::RunEnd;
    use domain::event::{Actor, EventPayload};
    use domain::id::{EventId, PrId, RunId};
    use domain::run::RunTrigger;
    use domain::state::Strategy;

    use super::*;

    fn at() -> Timestamp {
        "2036-03-03T09:41:07.25Z".parse().unwrap()
    }

    fn shown(news: &ConsoleEvent) -> Vec<String> {
        lines_of(news).iter().map(|line| line.shown(false)).collect()
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
        assert!(shown(&event(EventKind::CheckReported, EventPayload::default())).is_empty(), "not worth a line");
    }

    #[test]
    fn remedy_is_shown_once_as_healed_or_as_no_use() {
        let named =
            |name: &str| EventPayload { name: Some(name.to_owned()), ..EventPayload::text("the build is gone") };
        assert!(shown(&event(EventKind::RemediationEnded, named(RunEnd::Completed.name()))).is_empty());
        assert_eq!(shown(&event(EventKind::RemediationEnded, named(RunEnd::Failed.name()))).len(), 1);
        let again =
            EventPayload { name: named(RunEnd::Completed.name()).name, ..EventPayload::text(remedy::FAILED_AGAIN) };
        assert_eq!(shown(&event(EventKind::RemediationEnded, again)).len(), 1, "done, and of no use");
        let pr: PrId = "acme/shop#7".parse().unwrap();
        let kind = RunKind::Remedy(Strategy::Rebuild);
        let mut run = Run::for_pull_request(RunId::new("r"), pr, None, kind, RunTrigger::Reconciler, at());
        assert!(shown(&ConsoleEvent::Run { at: at(), run: Box::new(run.clone()) }).is_empty(), "it has only begun");
        run.state = RunState::Completed;
        run.duration_ms = Some(360_000);
        run.expects = Some("new results of the checks".to_owned());
        let useless = Run { outcome: Some(remedy::FAILED_AGAIN.to_owned()), ..run.clone() };
        assert!(shown(&ConsoleEvent::Run { at: at(), run: Box::new(useless) }).is_empty());
        assert_eq!(
            shown(&ConsoleEvent::Run { at: at(), run: Box::new(run) }),
            ["09:41:07  shop#7              healed     rebuild worked within 6 min: new results of the checks came"]
        );
    }

    #[test]
    fn colours_are_for_terminals_only() {
        let news = event(EventKind::PrClosed, EventPayload::default());
        let line = &lines_of(&news)[0];
        assert!(line.shown(true).contains("\x1b[2mclosed"));
        assert_eq!(line.shown(false), "09:41:07  shop#7              closed");
    }
}
