//! What happened: the facts that come in (from outside, and Suture's own deeds), and the events the log keeps of them.
//! What follows from a fact is decided in `decide`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::backoff::Failure;
use crate::command::{Command, CommandSource};
use crate::decide::RunEnd;
use crate::diagnosis::Diagnosis;
use crate::id::{EventId, PrId, RunId, Sha};
use crate::remedy;
use crate::signals::{Approval, Check, MergeReport, PolicyReport};
use crate::snapshot::Snapshot;
use crate::state::{State, Strategy};

/// One thing that happened to one pull request. Its id is what makes it apply once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// The delivery id, the command id, or run id + step.
    pub id: EventId,
    pub pr: PrId,
    /// When, by the payload: never the clock of whoever received it.
    pub occurred_at: Timestamp,
    pub actor: Actor,
    pub what: Happened,
}

/// Everything `decide` listens to. What was heard outside can wait on the queue; Suture's own deeds are decided where they are
/// done, and never travel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// The pull request was opened (or found open by the inventory).
    Opened(Described),
    /// A closed pull request was opened again.
    Reopened(Described),
    HeadMoved {
        /// The pull request as it is now.
        described: Described,
        /// The head it had before, if the payload says.
        before: Option<Sha>,
        /// Whether Suture itself pushed (its update-branch merge commit).
        ours: bool,
    },
    Edited(Described),
    /// Closed without a merge.
    Closed {
        by: Option<String>,
        /// Why, if Suture did it.
        why: Option<ClosedBecause>,
    },
    Merged {
        by: Option<String>,
        /// Whether that was the automerge bot.
        by_automerge_bot: bool,
    },
    /// Check runs were asked for on this commit (`check_suite.requested`); none has a name yet.
    ChecksRequested {
        head: Sha,
    },
    Check {
        head: Sha,
        check: Check,
    },
    Policy {
        head: Sha,
        report: PolicyReport,
    },
    /// An approver bot approved, or its approval was dismissed.
    Approval {
        head: Sha,
        /// Whose, and which way.
        approval: Approval,
    },
    Merge {
        head: Sha,
        report: MergeReport,
    },
    /// The base branch got new commits: the pull request may be behind or in conflict now.
    BaseMoved {
        base: String,
    },
    /// GitHub was asked and this is the whole answer.
    #[serde(skip)]
    Verified(Box<Snapshot>),
    /// The sweep could not find out, or may not act; it comes back later.
    #[serde(skip)]
    Skipped {
        why: String,
        /// When, if that is known (the breaker's cooldown, GitHub's limit); otherwise after a growing pause.
        until: Option<Timestamp>,
    },
    /// For so long after its merge all was well.
    #[serde(skip)]
    PostMergeVerified {
        /// How long it was watched.
        watched_minutes: u32,
    },
    /// Close-and-reopen has brought about another pull request.
    #[serde(skip)]
    Linked(Link),
    #[serde(skip)]
    Diagnosed(Box<Diagnosed>),
    #[serde(skip)]
    Remedy {
        run: RunId,
        news: RemedyNews,
    },
    #[serde(skip)]
    Commanded(Box<Commanded>),
}

/// An *open* pull request as GitHub describes it in every `pull_request` event: complete, as of the event's time. What is
/// said about a closed one (a label, say) must not be told this way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// GitHub's node id, for GraphQL.
    pub node_id: Option<String>,
    pub branch: String,
    pub base_branch: String,
    pub head: Sha,
    /// Labels that mean something to Suture.
    pub labels: Vec<String>,
    pub draft: bool,
    /// The vulnerability it fixes, if its text names one.
    pub vulnerability_id: Option<String>,
    pub created_at: Timestamp,
    /// Changed lines, if known.
    pub size: Option<u64>,
    /// The contexts its base requires, if whoever tells this knows them; otherwise GitHub is asked.
    pub required_checks: Option<Vec<String>>,
}

/// Why Suture closed a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBecause {
    /// A person said `/cancel`.
    Abandoned,
    Replaced,
}

/// How two pull requests for one vulnerability belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The other one takes this one's place.
    ReplacedBy(u64),
    /// This one takes the other one's place.
    Replaces(u64),
}

/// A diagnosis on its way to becoming a claim, an escalation, or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosed {
    pub diagnosis: Diagnosis,
    /// The id the remedy's run will have, if there is one.
    pub run: RunId,
    /// The vulnerability's row, if the pull request names one (for the duplicate guard and the budget that never resets).
    pub vulnerability: Option<crate::pull_request::Vulnerability>,
    /// What was tried and what happened, for the notice to a person.
    pub story: crate::comment::Story,
}

/// What became of a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemedyNews {
    /// The target took it; now its effect must show.
    Accepted,
    /// It was never done: the head moved, a guard said no, there was nothing to do, the breaker opened.
    Dropped { why: String },
    /// It was tried and did not work.
    Failed {
        error: String,
        /// Whether it may be tried again: a definitive refusal may not.
        failure: Failure,
    },
    /// Its proof has not come by the deadline.
    Overdue,
}

/// A command of a person, with what the shell found out about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commanded {
    pub command: Command,
    pub source: CommandSource,
    pub by: String,
    /// Whether they may; the sentence says why not.
    pub permission: Result<(), String>,
    /// The id its run will have, if it needs one.
    pub run: RunId,
    /// What else they said, such as a reason.
    pub args: String,
    /// The comment it stood in, if it stood in one.
    pub comment: Option<String>,
}

/// Who caused it: the `source` of an event (R-EVENT-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// A webhook of no particular actor: a person, or GitHub itself.
    GithubWebhook,
    Codegenie,
    Jenkins,
    PolicyBot,
    ApproverBot,
    AutomergeBot,
    Reconciler,
    /// The Car Bridge, working on the command queue.
    CommandQueue,
    AdminApi,
}

named! {
    /// The kinds of events in the log (R-EVENT-2).
    pub enum EventKind {
        PrOpened = "PR_OPENED",
        /// Closed without a merge.
        PrClosed = "PR_CLOSED",
        /// Merged by anybody but the automerge bot.
        PrMerged = "PR_MERGED",
        /// Opened again: a new generation.
        PrReopened = "PR_REOPENED",
        PrEdited = "PR_EDITED",
        BranchUpdated = "BRANCH_UPDATED",
        BaseMoved = "BASE_MOVED",
        /// It takes another one's place, or the other way round.
        PrLinked = "PR_LINKED",
        ChecksStarted = "CHECKS_STARTED",
        /// One of several checks reported; the state did not change.
        CheckReported = "CHECK_REPORTED",
        /// All required checks are green.
        ChecksPassed = "CHECKS_PASSED",
        ChecksFailed = "CHECKS_FAILED",
        PolicyStarted = "POLICY_STARTED",
        PolicyPassed = "POLICY_PASSED",
        PolicyFailed = "POLICY_FAILED",
        ApprovalGranted = "APPROVAL_GRANTED",
        /// An approval was taken back.
        ApprovalDismissed = "APPROVAL_DISMISSED",
        MergeAttempted = "MERGE_ATTEMPTED",
        MergeSucceeded = "MERGE_SUCCEEDED",
        MergeFailed = "MERGE_FAILED",
        RemediationBranchUpdate = "REMEDIATION_BRANCH_UPDATE",
        RemediationRebuild = "REMEDIATION_REBUILD",
        RemediationRetriggerPolicy = "REMEDIATION_RETRIGGER_POLICY",
        /// Claimed: ask the SOD validator again.
        RemediationRetriggerSod = "REMEDIATION_RETRIGGER_SOD",
        RemediationRetriggerApprover = "REMEDIATION_RETRIGGER_APPROVER",
        RemediationRetriggerMerge = "REMEDIATION_RETRIGGER_MERGE",
        /// Claimed: close, and ask for a fresh one.
        RemediationCloseAndReopen = "REMEDIATION_CLOSE_AND_REOPEN",
        RemediationAccepted = "REMEDIATION_ACCEPTED",
        /// A remedy is over: proven, dropped or failed.
        RemediationEnded = "REMEDIATION_ENDED",
        EscalatedNeedsIntervention = "ESCALATED_NEEDS_INTERVENTION",
        /// A person asked for something; the payload says whether it was granted.
        CommandReceived = "COMMAND_RECEIVED",
        /// The record was wrong and GitHub right.
        StateDriftCorrected = "STATE_DRIFT_CORRECTED",
        /// Observe mode: this would have been done.
        WouldRemedy = "WOULD_REMEDY",
        /// Observe mode: a person would have been called.
        WouldEscalate = "WOULD_ESCALATE",
        /// All was well for a while after its merge.
        PostMergeVerified = "POST_MERGE_VERIFIED",
        /// Something was heard that could not be recorded with its consequences; the payload says why.
        Anomaly = "ANOMALY",
    }
}

impl EventKind {
    /// Whether it tells a part of the story even where the state stays: what people want to read the next morning. What
    /// only fills in the picture (one check of many, an edited label) is left to the log of its pull request.
    pub fn is_notable(self) -> bool {
        match self {
            Self::PrOpened
            | Self::PrClosed
            | Self::PrMerged
            | Self::PrReopened
            | Self::MergeSucceeded
            | Self::RemediationBranchUpdate
            | Self::RemediationRebuild
            | Self::RemediationRetriggerPolicy
            | Self::RemediationRetriggerSod
            | Self::RemediationRetriggerApprover
            | Self::RemediationRetriggerMerge
            | Self::RemediationCloseAndReopen
            | Self::RemediationEnded
            | Self::EscalatedNeedsIntervention
            | Self::CommandReceived
            | Self::StateDriftCorrected
            | Self::WouldRemedy
            | Self::WouldEscalate
            | Self::PostMergeVerified
            | Self::Anomaly => true,
            Self::PrEdited
            | Self::BranchUpdated
            | Self::BaseMoved
            | Self::PrLinked
            | Self::ChecksStarted
            | Self::CheckReported
            | Self::ChecksPassed
            | Self::ChecksFailed
            | Self::PolicyStarted
            | Self::PolicyPassed
            | Self::PolicyFailed
            | Self::ApprovalGranted
            | Self::ApprovalDismissed
            | Self::MergeAttempted
            | Self::MergeFailed
            | Self::RemediationAccepted => false,
        }
    }

    /// The strategy whose claim it is, if it is one.
    pub fn claims(self) -> Option<Strategy> {
        Strategy::ALL.into_iter().find(|strategy| remedy::of(*strategy).event == self)
    }
}

/// One row of the log. Written once, never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub pr: PrId,
    pub occurred_at: Timestamp,
    pub id: EventId,
    /// 0 for the fact itself; 1, 2, … for the further hops it led to.
    pub hop: u8,
    pub kind: EventKind,
    pub source: Actor,
    /// The state left, if the state changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<State>,
    /// The state reached, if the state changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<State>,
    /// A small extract, never the raw webhook.
    #[serde(default)]
    pub payload: Payload,
    pub ttl: Timestamp,
}

impl Event {
    /// The sort key: `<occurred_at, RFC 3339, exactly 3 decimals>#<event id>#<hop>`.
    pub fn sort_key(&self) -> String {
        format!("{:.3}#{}#{}", self.occurred_at, self.id, self.hop)
    }

    /// Whether the story of its day has it: it changed the state, or is notable all the same.
    pub fn is_of_the_day(&self) -> bool {
        self.to.is_some() || self.kind.is_notable()
    }

    /// Whether it is the end of a remedy that helped: proven by the event it expected, and not by the failure it was to cure.
    pub fn is_healed(&self) -> bool {
        self.kind == EventKind::RemediationEnded
            && self.payload.name.as_deref() == Some(RunEnd::Completed.name())
            && remedy::helped(&self.payload.text)
    }
}

/// What an event says beyond its kind. Every text is cut to `Payload::MAX_TEXT` characters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Payload {
    /// One or two sentences: the reason, the failure text, what was missed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Sha>,
    /// The check, the rule or the command it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Why this event did not change the state although it should have (R-STATE-5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<String>,
    /// The transient rules that excused the red checks when a remedy was claimed, or a person called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// A digest of what the red checks said then, numbers aside: the same once more is no accident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Payload {
    /// Longest text kept, in characters.
    pub const MAX_TEXT: usize = 300;

    /// A payload of one text, cut to size.
    pub fn text(text: &str) -> Self {
        Self { text: cut(text, Self::MAX_TEXT), ..Self::default() }
    }
}

/// The first `max` characters, with an ellipsis if something is missing.
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::*;

    fn event(occurred_at: &str) -> Event {
        Event {
            pr: "acme/my-app#42".parse().unwrap(),
            occurred_at: occurred_at.parse().unwrap(),
            id: EventId::new("72d3162e"),
            hop: 0,
            kind: EventKind::ChecksStarted,
            source: Actor::GithubWebhook,
            from: None,
            to: None,
            payload: Payload::default(),
            ttl: "2026-05-31T09:00:00Z".parse().unwrap(),
        }
    }

    /// The names serde knows for an enum, as it lists them when it is given another one.
    fn names_in_json<T: DeserializeOwned + Debug>() -> Vec<String> {
        let error = serde_json::from_str::<T>("\"nobody\"").unwrap_err().to_string();
        let (_, names) = error.split_once("expected one of ").unwrap();
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn a_text_is_cut_to_its_first_characters_with_an_ellipsis() {
        for (text, max, expected) in [
            ("", 0, ""),
            ("", 1, ""),
            ("abc", 4, "abc"),
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("abcdefgh", 3, "ab…"),
            ("ab", 1, "…"),
            ("a", 1, "a"),
            // Characters are counted, not bytes, and none is cut in two.
            ("äöü", 3, "äöü"),
            ("äöüß", 3, "äö…"),
            ("🦀🦀🦀", 2, "🦀…"),
            ("…", 1, "…"),
        ] {
            assert_eq!(cut(text, max), expected, "{text:?} to {max}");
        }
        // There is no room for nothing: what is missing is always shown.
        assert_eq!(cut("a", 0), "…");
    }

    #[test]
    fn a_payloads_text_has_at_most_300_characters() {
        assert_eq!(Payload::text("timeout"), Payload { text: "timeout".to_owned(), ..Payload::default() });
        let fits = "ä".repeat(300);
        assert_eq!(Payload::text(&fits).text, fits);
        let cut_off = Payload::text(&"ä".repeat(301)).text;
        assert_eq!(cut_off, format!("{}…", "ä".repeat(299)));
        assert_eq!(cut_off.chars().count(), Payload::MAX_TEXT);
    }

    #[test]
    fn the_sort_key_has_exactly_three_decimals_so_that_text_sorts_as_time() {
        for (at, expected) in [
            ("2026-03-02T09:01:00Z", "2026-03-02T09:01:00.000Z#72d3162e#0"),
            ("2026-03-02T09:01:00.5Z", "2026-03-02T09:01:00.500Z#72d3162e#0"),
            ("2026-03-02T09:01:00.123Z", "2026-03-02T09:01:00.123Z#72d3162e#0"),
            // What is smaller than a millisecond is dropped, never rounded up into the future.
            ("2026-03-02T09:01:00.1239Z", "2026-03-02T09:01:00.123Z#72d3162e#0"),
            ("2026-03-02T09:01:59.999999999Z", "2026-03-02T09:01:59.999Z#72d3162e#0"),
            ("2026-03-02T10:01:00+01:00", "2026-03-02T09:01:00.000Z#72d3162e#0"),
        ] {
            assert_eq!(event(at).sort_key(), expected);
        }
        let hop = Event { hop: 3, ..event("2026-03-02T09:01:00Z") };
        assert_eq!(hop.sort_key(), "2026-03-02T09:01:00.000Z#72d3162e#3");
        let keys = ["2026-03-02T09:01:00Z", "2026-03-02T09:01:00.001Z", "2026-03-02T09:01:01Z"];
        assert!(keys.map(|at| event(at).sort_key()).is_sorted());
    }

    #[test]
    fn a_kind_has_one_name_in_the_log_in_json_and_in_displays() {
        let required = [
            "PR_OPENED",
            "PR_CLOSED",
            "PR_MERGED",
            "CHECKS_STARTED",
            "CHECKS_PASSED",
            "CHECKS_FAILED",
            "POLICY_STARTED",
            "POLICY_PASSED",
            "POLICY_FAILED",
            "APPROVAL_GRANTED",
            "MERGE_ATTEMPTED",
            "MERGE_SUCCEEDED",
            "MERGE_FAILED",
            "REMEDIATION_BRANCH_UPDATE",
            "REMEDIATION_REBUILD",
            "REMEDIATION_RETRIGGER_POLICY",
            "REMEDIATION_RETRIGGER_APPROVER",
            "REMEDIATION_RETRIGGER_MERGE",
            "REMEDIATION_CLOSE_AND_REOPEN",
            "ESCALATED_NEEDS_INTERVENTION",
            "COMMAND_RECEIVED",
            "STATE_DRIFT_CORRECTED",
        ];
        let names = names_in_json::<EventKind>();
        assert_eq!(names.len(), 36);
        for name in &names {
            let kind: EventKind = serde_json::from_str(&format!("\"{name}\"")).unwrap();
            assert_eq!((kind.name(), kind.to_string()), (name.as_str(), name.clone()));
        }
        for name in required {
            assert!(names.iter().any(|known| known == name), "{name} is missing");
        }
    }

    #[test]
    fn actors_have_fixed_names() {
        assert_eq!(
            names_in_json::<Actor>(),
            [
                "github-webhook",
                "codegenie",
                "jenkins",
                "policy-bot",
                "approver-bot",
                "automerge-bot",
                "reconciler",
                "command-queue",
                "admin-api",
            ]
        );
        assert_eq!(serde_json::to_string(&Actor::GithubWebhook).unwrap(), "\"github-webhook\"");
        assert_eq!(serde_json::to_string(&Actor::Codegenie).unwrap(), "\"codegenie\"");
    }

    #[test]
    fn an_event_that_says_nothing_more_is_small() {
        let event = event("2026-03-02T09:01:00Z");
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(
            json,
            r#"{"pr":"acme/my-app#42","occurred_at":"2026-03-02T09:01:00Z","id":"72d3162e","hop":0,"kind":"CHECKS_STARTED","source":"github-webhook","payload":{},"ttl":"2026-05-31T09:00:00Z"}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
    }

    #[test]
    fn an_event_that_says_everything_is_read_back_as_it_was() {
        let full = Event {
            hop: 2,
            kind: EventKind::ChecksFailed,
            source: Actor::CommandQueue,
            from: Some(State::ChecksRunning),
            to: Some(State::ChecksFailed),
            payload: Payload {
                text: "`build` failed: 3 tests".to_owned(),
                head: Some("a".repeat(40).parse().unwrap()),
                name: Some("build".to_owned()),
                by: Some("danny".to_owned()),
                run: Some(RunId::new("run-1")),
                anomaly: Some("why".to_owned()),
                rules: vec!["network".to_owned()],
                failure: Some("00ff".to_owned()),
            },
            ..event("2026-03-02T09:01:00.123456789Z")
        };
        let json = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), full);
        // Rows written before a payload existed are still readable.
        let bare = json.replace(&serde_json::to_string(&full.payload).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Event>(&bare).unwrap().payload, Payload::default());
    }
}
