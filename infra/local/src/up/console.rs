//! What the terminal shows: one line for each event that a person wants to see, aligned, in colour only on a terminal. The
//! time is when Suture noted it, which for what it missed is later than it happened.

use std::io::Write as _;

use domain::comment;
use domain::event::{Event, EventKind, cut};
use domain::remedy;
use domain::run::{Run, RunKind, RunState};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The width of the columns before the text, in characters.
const NAME: usize = 18;
const WORD: usize = 9;
/// Longest text shown, in characters.
const TEXT: usize = 110;

/// Something that may be worth a line.
#[derive(Debug)]
pub(super) enum ConsoleEvent {
    /// An entry of the log.
    Event { at: Timestamp, event: Box<Event> },
    /// A run, as it was written.
    Run { at: Timestamp, run: Box<Run> },
    /// A mail went out.
    Mail { at: Timestamp, subject: String },
    /// Something about this process itself.
    Note { at: Timestamp, text: String },
}

/// The way to the terminal.
#[derive(Debug, Clone)]
pub(super) struct Console(UnboundedSender<ConsoleEvent>);

impl Console {
    /// A way, and its end.
    pub(super) fn open() -> (Self, UnboundedReceiver<ConsoleEvent>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Tells something. If nobody prints any more, nobody reads.
    pub(super) fn tell(&self, news: ConsoleEvent) {
        let _ = self.0.send(news);
    }
}

/// Prints what is told, until nobody can tell anything any more.
pub(super) async fn print(mut told: UnboundedReceiver<ConsoleEvent>, colour: bool) {
    while let Some(news) = told.recv().await {
        for line in lines_of(&news) {
            // A reader who has seen enough is no reason to stop healing.
            let _ = writeln!(std::io::stdout(), "{}", line.shown(colour));
        }
    }
}

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Plain,
    Trouble,
    Work,
    Good,
    Alarm,
}

impl Tone {
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

struct Line {
    at: Timestamp,
    name: String,
    word: &'static str,
    tone: Tone,
    text: String,
}

impl Line {
    fn shown(&self, colour: bool) -> String {
        let clock = self.at.to_string();
        let clock = clock.get(11..19).unwrap_or(&clock);
        let (name, word, text) = (&self.name, self.word, cut(&one_line(&self.text), TEXT));
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

fn lines_of(news: &ConsoleEvent) -> Vec<Line> {
    match news {
        ConsoleEvent::Event { at, event } => event_lines(*at, event),
        ConsoleEvent::Run { at, run } => healed(*at, run).into_iter().collect(),
        ConsoleEvent::Mail { at, subject } => {
            vec![Line { at: *at, name: String::new(), word: "mail", tone: Tone::Alarm, text: subject.clone() }]
        }
        ConsoleEvent::Note { at, text } => {
            vec![Line { at: *at, name: String::new(), word: "note", tone: Tone::Plain, text: text.clone() }]
        }
    }
}

fn short(pr: &domain::id::PrId) -> String {
    format!("{}#{}", pr.repo.name(), pr.number)
}

fn event_lines(at: Timestamp, event: &Event) -> Vec<Line> {
    let payload = &event.payload;
    let by = payload.by.as_deref().map_or_else(String::new, |by| format!("by {by}"));
    let line = |word, tone, text: String| Line { at, name: short(&event.pr), word, tone, text };
    if let Some(strategy) = event.kind.claims() {
        return vec![
            line("stuck", Tone::Trouble, payload.text.clone()),
            line("remedy", Tone::Work, format!("Suture will {}", comment::desk::doing(strategy))),
        ];
    }
    let with = |text: &str| [by.as_str(), text].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ");
    let one = match event.kind {
        EventKind::PrOpened => {
            line("opened", Tone::Plain, payload.name.clone().unwrap_or_else(|| payload.text.clone()))
        }
        EventKind::PrReopened => line("reopened", Tone::Plain, with(&payload.text)),
        EventKind::MergeSucceeded | EventKind::PrMerged => line("merged", Tone::Good, with(&payload.text)),
        EventKind::PrClosed => line("closed", Tone::Plain, with(&payload.text)),
        EventKind::PrLinked => line("linked", Tone::Plain, payload.text.clone()),
        // Told when its run is written.
        EventKind::RemediationEnded if event.is_healed() => return Vec::new(),
        EventKind::RemediationEnded => line("no use", Tone::Trouble, payload.text.clone()),
        EventKind::EscalatedNeedsIntervention => line("escalated", Tone::Alarm, payload.text.clone()),
        EventKind::CommandReceived => {
            let command = payload.name.as_deref().unwrap_or("a command");
            line("command", Tone::Work, format!("{command} {}", with(&payload.text)))
        }
        EventKind::StateDriftCorrected => line("missed", Tone::Trouble, payload.text.clone()),
        EventKind::WouldRemedy | EventKind::WouldEscalate => line("observed", Tone::Trouble, payload.text.clone()),
        EventKind::PostMergeVerified => line("verified", Tone::Good, payload.text.clone()),
        EventKind::Anomaly => line("anomaly", Tone::Alarm, payload.anomaly.clone().unwrap_or_default()),
        EventKind::PrEdited
        | EventKind::BranchUpdated
        | EventKind::BaseMoved
        | EventKind::ChecksStarted
        | EventKind::CheckReported
        | EventKind::ChecksPassed
        | EventKind::ChecksFailed
        | EventKind::PolicyStarted
        | EventKind::PolicyPassed
        | EventKind::PolicyFailed
        | EventKind::ApprovalGranted
        | EventKind::ApprovalDismissed
        | EventKind::MergeAttempted
        | EventKind::MergeFailed
        | EventKind::RemediationAccepted
        | EventKind::RemediationBranchUpdate
        | EventKind::RemediationRebuild
        | EventKind::RemediationRetriggerPolicy
        | EventKind::RemediationRetriggerSod
        | EventKind::RemediationRetriggerApprover
        | EventKind::RemediationRetriggerMerge
        | EventKind::RemediationCloseAndReopen => return Vec::new(),
    };
    vec![one]
}

/// A remedy that was proven by the event it expected.
fn healed(at: Timestamp, run: &Run) -> Option<Line> {
    let (RunKind::Remedy(strategy), RunState::Completed, Some(pr)) = (run.kind, run.state, &run.pr) else {
        return None;
    };
    // What was answered by the failure it was to cure is told as `no use`, by its event.
    run.outcome.as_deref().is_none_or(remedy::helped).then_some(())?;
    let took = SignedDuration::from_millis(i64::try_from(run.duration_ms?).unwrap_or(0));
    let proof = run.expects.as_deref().map_or_else(String::new, |expects| format!(": {expects} came"));
    let text = format!("{strategy} worked within {}{proof}", comment::duration(took));
    Some(Line { at, name: short(pr), word: "healed", tone: Tone::Good, text })
}

#[cfg(test)]
mod tests {
    use domain::decide::RunEnd;
    use domain::event::{Actor, Payload};
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

    fn event(kind: EventKind, payload: Payload) -> ConsoleEvent {
        let pr: PrId = "acme/shop#7".parse().unwrap();
        let (id, source) = (EventId::new("e"), Actor::Reconciler);
        let event = Event { pr, occurred_at: at(), id, hop: 0, kind, source, from: None, to: None, payload, ttl: at() };
        ConsoleEvent::Event { at: at(), event: Box::new(event) }
    }

    #[test]
    fn columns_are_aligned_whatever_they_say() {
        let opened = event(EventKind::PrOpened, Payload { name: Some("CVE-2026-1".to_owned()), ..Payload::default() });
        assert_eq!(shown(&opened), ["09:41:07  shop#7              opened     CVE-2026-1"]);
        let stuck = event(EventKind::RemediationRebuild, Payload::text("Rule 3:\n  the agent died"));
        assert_eq!(
            shown(&stuck),
            [
                "09:41:07  shop#7              stuck      Rule 3: the agent died",
                "09:41:07  shop#7              remedy     Suture will run the checks again",
            ]
        );
        let mail = ConsoleEvent::Mail { at: at(), subject: "#7 needs a person".to_owned() };
        assert_eq!(shown(&mail), ["09:41:07                      mail       #7 needs a person"]);
        let merged = Payload { by: Some("danny".to_owned()), ..Payload::text("out of band") };
        assert_eq!(
            shown(&event(EventKind::PrMerged, merged)),
            ["09:41:07  shop#7              merged     by danny, out of band"]
        );
        assert!(shown(&event(EventKind::CheckReported, Payload::default())).is_empty(), "not worth a line");
    }

    #[test]
    fn a_remedy_is_healed_once_and_useless_otherwise() {
        let named = |name: &str| Payload { name: Some(name.to_owned()), ..Payload::text("the build is gone") };
        assert!(shown(&event(EventKind::RemediationEnded, named(RunEnd::Completed.name()))).is_empty());
        assert_eq!(shown(&event(EventKind::RemediationEnded, named(RunEnd::Failed.name()))).len(), 1);
        let again = Payload { name: named(RunEnd::Completed.name()).name, ..Payload::text(remedy::FAILED_AGAIN) };
        assert_eq!(shown(&event(EventKind::RemediationEnded, again)).len(), 1, "done, and of no use");
        let pr: PrId = "acme/shop#7".parse().unwrap();
        let kind = RunKind::Remedy(Strategy::Rebuild);
        let mut run = Run::on(RunId::new("r"), pr, None, kind, RunTrigger::Reconciler, at());
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
    fn colours_are_only_for_terminals() {
        let news = event(EventKind::PrClosed, Payload::default());
        let line = &lines_of(&news)[0];
        assert!(line.shown(true).contains("\x1b[2mclosed"));
        assert_eq!(line.shown(false), "09:41:07  shop#7              closed");
    }
}
