//! A morning of pull requests, played through the real core in virtual time: what happens at GitHub, which webhooks get
//! lost, what Suture sees, decides and does. The outside is a script of a few lines for each pull request; every decision
//! is `domain`'s own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use domain::command::Command;
use domain::comment::Story;
use domain::decide::{Decision, EffectKind, VulnerabilityNews, decide};
use domain::diagnosis::{Case, classify};
use domain::event::{Actor, ClosedBecause, Described, Diagnosed, Event, Fact, Happened, RemedyNews, cut};
use domain::id::{EventId, PrId, RepoName, RunId, Sha};
use domain::policy::{Mode, Policies, Policy};
use domain::pull_request::{Record, Vulnerability};
use domain::signals::{Approval, Check, CheckKind, Failure, PolicyReport, PolicyVerdict, Renewal, Signals, Verdict};
use domain::snapshot::{Build, Life, Live, Mergeable, Snapshot};
use domain::state::{State, Substatus};
use domain::transient::{self, FailureClass, FailureSignals};
use jiff::{SignedDuration, Timestamp};

/// Longest line shown, in characters.
const WIDTH: usize = 130;
/// 2026-03-02T08:00:00Z: a Monday morning.
const BEGINNING: SignedDuration = SignedDuration::from_secs(1_772_438_400);
/// The story's morning, in minutes.
const LENGTH: i64 = 240;

/// The defaults, but acting: nobody wants to watch somebody only watch.
#[must_use]
pub fn acting_defaults() -> Policy {
    let mut policy = Policies::default().base().clone();
    policy.mode = Mode::Act;
    policy
}

/// What goes on outside.
#[derive(Clone, Copy)]
enum Act {
    Opened,
    BuildStarts,
    BuildPasses,
    BuildFails(&'static str),
    PolicyPasses,
    Approves,
    Merges,
    Closes,
    Conflicts,
}

/// One pull request of the morning: what happens when, whether Suture is told, and how the outside answers a remedy.
struct Play {
    number: u64,
    title: &'static str,
    /// (minute, what, whether the webhook arrives).
    script: &'static [(i64, Act, bool)],
    /// What follows a remedy, some minutes later.
    answers: &'static [(Command, &'static [(i64, Act)])],
}

const TOLD: bool = true;
const LOST: bool = false;
/// The rest of a healthy life after a green build.
const ONWARD: &[(i64, Act)] = &[(6, Act::BuildPasses), (8, Act::PolicyPasses), (9, Act::Approves), (10, Act::Merges)];

const MORNING: [Play; 6] = [
    Play {
        number: 101,
        title: "everything works",
        script: &[
            (0, Act::Opened, TOLD),
            (1, Act::BuildStarts, TOLD),
            (9, Act::BuildPasses, TOLD),
            (10, Act::PolicyPasses, TOLD),
            (12, Act::Approves, TOLD),
            (13, Act::Merges, TOLD),
        ],
        answers: &[],
    },
    Play {
        number: 102,
        title: "a build agent dies",
        script: &[
            (2, Act::Opened, TOLD),
            (3, Act::BuildStarts, TOLD),
            (11, Act::BuildFails("java.nio.channels.ClosedChannelException: agent ci-7"), TOLD),
        ],
        answers: &[(Command::Rebuild, ONWARD)],
    },
    Play {
        number: 103,
        title: "the result of a build is lost, and Policy Bot never hears of it",
        script: &[(4, Act::Opened, TOLD), (5, Act::BuildStarts, TOLD), (14, Act::BuildPasses, LOST)],
        answers: &[(Command::RecheckPolicy, &[(1, Act::PolicyPasses), (2, Act::Approves), (3, Act::Merges)])],
    },
    Play {
        number: 104,
        title: "the approver bot sleeps",
        script: &[
            (6, Act::Opened, TOLD),
            (7, Act::BuildStarts, TOLD),
            (15, Act::BuildPasses, TOLD),
            (16, Act::PolicyPasses, TOLD),
        ],
        answers: &[(Command::RecheckApproval, &[(1, Act::Approves), (2, Act::Merges)])],
    },
    Play {
        number: 105,
        title: "the base moves, and there is a conflict",
        script: &[
            (8, Act::Opened, TOLD),
            (9, Act::BuildStarts, TOLD),
            (17, Act::BuildPasses, TOLD),
            (18, Act::PolicyPasses, TOLD),
            (19, Act::Approves, TOLD),
            (20, Act::Conflicts, LOST),
        ],
        answers: &[(Command::CloseAndReopen, &[(1, Act::Closes)])],
    },
    Play {
        number: 106,
        title: "the fix breaks a test: this one needs a person",
        script: &[
            (10, Act::Opened, TOLD),
            (11, Act::BuildStarts, TOLD),
            (19, Act::BuildFails("Tests run: 214, Failures: 1, Errors: 0: LoginTest.expires"), TOLD),
        ],
        answers: &[],
    },
];

/// The outside's own truth about one pull request, and Suture's record of it.
struct Player {
    play: &'static Play,
    script: Vec<(i64, Act, bool)>,
    truth: Signals,
    life: Life,
    conflict: bool,
    opened_at: Timestamp,
    record: Option<Record>,
    vulnerability: Vulnerability,
    history: Vec<String>,
    remedies: Vec<String>,
}

struct Stage<'a> {
    policy: &'a Policy,
    start: Timestamp,
    minute: i64,
    facts: u32,
    out: String,
    mail: String,
}

/// Plays the morning, and answers its transcript.
#[must_use]
pub fn play(policy: &Policy) -> String {
    let mut stage = Stage {
        policy,
        start: Timestamp::UNIX_EPOCH + BEGINNING,
        minute: 0,
        facts: 0,
        out: String::new(),
        mail: String::new(),
    };
    stage.say_opening();
    let mut actors: BTreeMap<u64, Player> =
        MORNING.iter().map(|play| (play.number, Player::new(play, stage.start))).collect();
    for minute in 0..=LENGTH {
        stage.minute = minute;
        for actor in actors.values_mut() {
            stage.outside(actor);
            stage.sweep(actor);
        }
    }
    stage.say_end(&actors);
    stage.out
}

impl Player {
    fn new(play: &'static Play, start: Timestamp) -> Self {
        Self {
            play,
            script: play.script.to_vec(),
            truth: Signals::default(),
            life: Life::Open,
            conflict: false,
            opened_at: start,
            record: None,
            vulnerability: Vulnerability::default(),
            history: Vec::new(),
            remedies: Vec::new(),
        }
    }

    fn described(&self) -> Option<Described> {
        let number = self.play.number;
        Some(Described {
            node_id: None,
            branch: format!("codegenie/cve-2026-{number:04}"),
            base_branch: "main".to_owned(),
            head: head(number)?,
            labels: Vec::new(),
            draft: false,
            vulnerability_id: Some(format!("CVE-2026-{number:04}")),
            created_at: self.opened_at,
            size: Some(number % 40),
            required_checks: Some(Vec::new()),
        })
    }
}

fn head(number: u64) -> Option<Sha> {
    format!("{:0<40x}", u128::from(number) * 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced).parse().ok()
}

fn pr(number: u64) -> Option<PrId> {
    "acme/shop".parse::<RepoName>().ok().map(|repo| PrId::new(repo, number))
}

impl Stage<'_> {
    fn now(&self) -> Timestamp {
        self.start + SignedDuration::from_mins(self.minute)
    }

    fn clock(&self) -> String {
        format!("{:02}:{:02}", 8 + self.minute / 60, self.minute % 60)
    }

    fn line(&mut self, number: u64, mark: &str, text: &str) {
        let clock = self.clock();
        let _ = writeln!(self.out, "{clock}  #{number}  {mark}  {}", cut(text, WIDTH));
    }

    /// Whatever the script says happens now; Suture hears of it if the webhook arrives.
    fn outside(&mut self, actor: &mut Player) {
        let due: Vec<(i64, Act, bool)> = actor.script.extract_if(.., |(minute, ..)| *minute == self.minute).collect();
        for (_, act, told) in due {
            let Some(what) = self.happens(actor, act) else { continue };
            if told {
                self.hear(actor, Actor::GithubWebhook, what);
            } else {
                self.line(actor.play.number, "✗", "(something happens at GitHub, and Suture is not told)");
            }
        }
    }

    /// Changes the outside's truth, and says how a webhook would tell it.
    fn happens(&mut self, actor: &mut Player, act: Act) -> Option<Happened> {
        let head = head(actor.play.number)?;
        let at = self.now();
        let check = |verdict, failure| Check {
            name: "continuous-integration/jenkins/pr-merge".to_owned(),
            kind: CheckKind::Status,
            verdict,
            id: None,
            started_at: None,
            at,
            failure,
            renewal: Renewal::None,
        };
        let what = match act {
            Act::Opened => {
                actor.opened_at = at;
                Happened::Opened(actor.described()?)
            }
            Act::BuildStarts => Happened::Check { head, check: check(Verdict::Running, None) },
            Act::BuildPasses => Happened::Check { head, check: check(Verdict::Passed, None) },
            Act::BuildFails(text) => Happened::Check { head, check: check(Verdict::Failed, Some(self.failure(text))) },
            Act::PolicyPasses => {
                let text = "All policies met".to_owned();
                let report = PolicyReport { verdict: PolicyVerdict::Passed, at, text, renewal: Renewal::None };
                Happened::Policy { head, report }
            }
            Act::Approves => Happened::Approval {
                head,
                approval: Approval { by: "approver-bot[bot]".to_owned(), granted: true, at },
            },
            Act::Merges => {
                actor.life = Life::Merged { at, by: Some("automerge-bot[bot]".to_owned()), by_automerge_bot: true };
                Happened::Merged { by: Some("automerge-bot[bot]".to_owned()), by_automerge_bot: true }
            }
            Act::Closes => {
                actor.life = Life::Closed { at };
                Happened::Closed { by: Some("suture[bot]".to_owned()), why: Some(ClosedBecause::Replaced) }
            }
            Act::Conflicts => {
                actor.conflict = true;
                Happened::BaseMoved { base: "main".to_owned() }
            }
        };
        if let Happened::Check { check, .. } = &what {
            actor.truth.note_check(check, usize::MAX);
        } else if let Happened::Policy { report, .. } = &what {
            actor.truth.note_policy(report);
        } else if let Happened::Approval { approval, .. } = &what {
            actor.truth.note_approval(approval);
        }
        Some(what)
    }

    fn failure(&self, text: &str) -> Failure {
        let signals = FailureSignals { conclusion: "error", source: "continuous-integration/jenkins/pr-merge", text };
        let transient_rule = match transient::classify(self.policy, &signals) {
            FailureClass::Transient { rule } => Some(rule),
            FailureClass::Persistent { .. } => None,
        };
        Failure { transient_rule, text: text.to_owned() }
    }

    /// The engine, without a table: decide, keep, show, do.
    fn hear(&mut self, actor: &mut Player, who: Actor, what: Happened) {
        let Some(pr) = pr(actor.play.number) else { return };
        self.facts += 1;
        let fact =
            Fact { id: EventId::new(format!("story-{}", self.facts)), pr, occurred_at: self.now(), actor: who, what };
        let decision = decide(self.policy, actor.record.clone(), &fact, self.now());
        self.show(actor, &decision);
        for event in &decision.events {
            let line = format!("{}  {}  {}", self.clock(), event.kind, event.payload.text);
            actor.history.push(line.trim_end().to_owned());
        }
        for change in &decision.vulnerabilities {
            match change.news {
                VulnerabilityNews::Opened => _ = actor.vulnerability.open.insert(actor.play.number),
                VulnerabilityNews::CountReopen => actor.vulnerability.close_and_reopen += 1,
                VulnerabilityNews::GiveBackReopen => actor.vulnerability.close_and_reopen -= 1,
                VulnerabilityNews::Abandoned => actor.vulnerability.abandoned = true,
                VulnerabilityNews::NoLongerOpen => actor.vulnerability.open.clear(),
            }
        }
        actor.record = decision.record.or(actor.record.take());
        for effect in decision.effects {
            match effect.what {
                EffectKind::Command(message) => {
                    actor.remedies.push(format!("{}  {}", self.clock(), message.command));
                    self.car_bridge(actor, message.command, message.run_id);
                }
                // The story is told without it: its policy has none.
                EffectKind::CheckRun { .. } => {}
                EffectKind::Notice(notice) => self.mail = format!("Subject: {}\n\n{}", notice.subject, notice.body),
            }
        }
    }

    /// One line for each change of state and each deed.
    fn show(&mut self, actor: &Player, decision: &Decision) {
        let number = actor.play.number;
        for event in &decision.events {
            let (mark, text) = match (event.from, event.to) {
                (Some(from), Some(to)) => ("→", format!("{from} → {to}{}", detail(event))),
                _ if event.kind.name().starts_with("REMEDIATION") => ("✚", format!("{}{}", event.kind, detail(event))),
                _ if event.kind.name().starts_with("WOULD") => ("·", event.payload.text.clone()),
                _ if event.kind.name() == "PR_OPENED" => ("→", format!("opened: {}", actor.play.title)),
                _ => continue,
            };
            self.line(number, mark, &text);
        }
    }

    /// The Car Bridge's part: the target accepts at once, and the outside answers in its own time.
    fn car_bridge(&mut self, actor: &mut Player, command: Command, run: Option<RunId>) {
        let Some(run) = run else { return };
        let answers = actor.play.answers.iter().filter(|(to, _)| *to == command).flat_map(|(_, acts)| acts.iter());
        actor.script.extend(answers.map(|(minutes, act)| (self.minute + minutes, *act, TOLD)));
        self.hear(actor, Actor::CommandQueue, Happened::Remedy { run, news: RemedyNews::Accepted });
    }

    /// One visit of the reconciler, if the pull request is due: ask GitHub, correct, and act if it is stale.
    fn sweep(&mut self, actor: &mut Player) {
        let now = self.now();
        let due = |record: &Record| record.due_at.is_some_and(|at| at <= now);
        if !actor.record.as_ref().is_some_and(due) {
            return;
        }
        let Some(described) = actor.described() else { return };
        let mergeable = if actor.conflict { Mergeable::Conflicting } else { Mergeable::Clean };
        let live = Live { mergeable, behind_by: Some(0), strict: true, build: Some(Build::Gone) };
        let (signals, life) = (actor.truth.clone(), actor.life.clone());
        let snapshot = Snapshot { read_at: now, described, life, signals, required_checks: None, live };
        self.hear(actor, Actor::Reconciler, Happened::Verified(Box::new(snapshot)));
        let Some(record) = actor.record.as_ref().filter(|record| record.is_stale(self.policy, now)) else { return };
        let case =
            Case { record, live: Some(&live), vulnerability: Some(&actor.vulnerability), policy: self.policy, now };
        let found = Diagnosed {
            diagnosis: classify(&case),
            run: RunId::new(format!("run-{}", self.facts)),
            vulnerability: Some(actor.vulnerability.clone()),
            story: Story { remedies: actor.remedies.clone(), history: actor.history.clone() },
        };
        self.hear(actor, Actor::Reconciler, Happened::Diagnosed(Box::new(found)));
    }

    fn say_opening(&mut self) {
        self.out.push_str(
            "A morning of six pull requests, played through Suture's core in virtual time.\n\
             →  a state changes    ✚  Suture acts    ✗  a webhook is lost\n\n",
        );
    }

    fn say_end(&mut self, actors: &BTreeMap<u64, Player>) {
        self.out.push_str("\nHow they ended\n");
        for (number, actor) in actors {
            let Some(record) = &actor.record else { continue };
            let detail = match (record.state, record.substatus) {
                (State::Closed, Some(Substatus::Replaced)) => ", a fresh one was asked for".to_owned(),
                (State::NeedsIntervention, _) => {
                    format!(": {}", record.blocked.as_ref().map_or("", |blocked| blocked.reason.as_str()))
                }
                _ => String::new(),
            };
            let remedies = match record.lifetime_remedies {
                0 => "without help".to_owned(),
                1 => "after 1 remedy".to_owned(),
                more => format!("after {more} remedies"),
            };
            let _ = writeln!(self.out, "  #{number}  {} {remedies}{detail}", record.state);
        }
        if !self.mail.is_empty() {
            let _ = write!(self.out, "\nThe mail a person got\n\n{}", indent(&self.mail));
        }
        self.out.push_str("\nTry your own numbers: cargo run -p local -- story --config suture.toml");
    }
}

fn detail(event: &Event) -> String {
    let text = &event.payload.text;
    if text.is_empty() || text.starts_with("implied") { String::new() } else { format!("  {text}") }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_morning_ends_as_it_should() {
        let told = play(&acting_defaults());
        for line in [
            "#101  MERGED without help",
            "#102  MERGED after 1 remedy",
            "#103  MERGED after 1 remedy",
            "#104  MERGED after 1 remedy",
            "#105  CLOSED after 1 remedy, a fresh one was asked for",
            "#106  NEEDS_INTERVENTION without help: ",
            "Subject: Suture: #106 needs a person: CHECKS FAILED - PERSISTENT (acme/shop)",
            "State drift detected for PR #103: table=CHECKS_RUNNING, actual=CHECKS_PASSED",
        ] {
            assert!(told.contains(line), "{line} is missing in:\n{told}");
        }
    }

    #[test]
    fn observing_says_what_it_would_do_and_does_nothing() {
        let told = play(&Policy::default());
        assert!(told.contains("would run the checks again"), "{told}");
        assert!(!told.contains("REMEDIATION"), "{told}");
        assert!(!told.contains("The mail a person got"), "{told}");
    }
}
