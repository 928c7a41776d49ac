//! Facts that come in (from outside and from Suture's own actions), and the events that the log keeps. `decide` turns a
//! fact into a decision.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::admission::GateEpoch;
use crate::backoff::AttemptFailure;
use crate::command::{Command, CommandSource};
use crate::diagnosis::Diagnosis;
use crate::id::{EventId, PrId, RunId, Sha};
use crate::remedy;
use crate::run::RunEnd;
use crate::signals::{ApprovalReport, CheckReport, MergeReport, PolicyReport};
use crate::snapshot::Snapshot;
use crate::state::{State, Strategy};

/// Something that happened to a pull request. Its id ensures that it is applied only once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// The delivery id, the command id, or run id + step.
    pub id: EventId,
    pub pr: PrId,
    /// Time of the payload, never the clock of the receiver.
    pub occurred_at: Timestamp,
    pub actor: Actor,
    pub kind: FactKind,
    /// The pull request as the payload describes it, if it does and the pull request is managed: a fact that arrives
    /// before `opened` then creates the record, and a close or a merge has the final head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub described: Option<Box<PullRequestDetails>>,
}

/// The kinds of facts. Those from outside are serialised, because they can be deferred to the queue. Suture's own
/// actions are decided where they happen, so they are not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    /// Opened, or found open by the inventory.
    Opened(PullRequestDetails),
    /// A closed pull request was reopened.
    Reopened(PullRequestDetails),
    HeadMoved {
        /// The pull request as it is now.
        described: PullRequestDetails,
        /// The previous head, if the payload has it.
        before: Option<Sha>,
        /// Whether Suture pushed it (the merge commit of a branch update).
        by_suture: bool,
    },
    Edited(PullRequestDetails),
    /// Closed without a merge.
    Closed {
        by: Option<String>,
        /// Why, if Suture closed it.
        why: Option<CloseReason>,
    },
    Merged {
        by: Option<String>,
        /// Whether Automerge Bot merged it.
        by_automerge_bot: bool,
    },
    /// GitHub requested check runs on this commit (`check_suite.requested`); their names are not known yet.
    ChecksRequested {
        head: Sha,
    },
    Check {
        head: Sha,
        check: CheckReport,
    },
    Policy {
        head: Sha,
        report: PolicyReport,
    },
    /// An approver bot approved, or its approval was dismissed.
    Approval {
        head: Sha,
        approval: ApprovalReport,
    },
    Merge {
        head: Sha,
        report: MergeReport,
    },
    /// The base branch has new commits: the pull request may be behind or in conflict now.
    BaseMoved {
        base: String,
    },
    /// The sweep read this snapshot from GitHub.
    #[serde(skip)]
    Verified(Box<Snapshot>),
    /// The sweep could not read GitHub, or may not act now; the pull request is due again later.
    #[serde(skip)]
    Skipped {
        why: String,
        /// When, if known (the breaker's cooldown, GitHub's rate limit); otherwise after a growing backoff.
        until: Option<Timestamp>,
        /// The gate that put it off, if that is the cause.
        gate: Option<GateEpoch>,
    },
    /// The health checks after its merge passed.
    #[serde(skip)]
    PostMergeVerified {
        /// How long the checks ran.
        watched_minutes: u32,
    },
    /// Close-and-reopen led to another pull request.
    #[serde(skip)]
    Linked(ReplacementLink),
    #[serde(skip)]
    Diagnosed(Box<DiagnosisFact>),
    #[serde(skip)]
    Remedy {
        run: RunId,
        update: RemedyUpdate,
    },
    #[serde(skip)]
    CommandRequested(Box<CommandRequest>),
}

/// The details of a pull request that every `pull_request` event has, as of the event's time. Facts about an *open* pull
/// request must not take them from a closed one (a label, for example), because they would reopen the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestDetails {
    /// GitHub's node id, for GraphQL.
    pub node_id: Option<String>,
    /// Its page on GitHub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html_url: Option<String>,
    pub branch: String,
    pub base_branch: String,
    pub head: Sha,
    /// Labels that Suture uses.
    pub labels: Vec<String>,
    pub draft: bool,
    /// The vulnerability that it fixes, if its title, branch or text has an id.
    pub vulnerability_id: Option<String>,
    pub created_at: Timestamp,
    /// Changed lines, if known.
    pub size: Option<u64>,
    /// The contexts that the base requires; `None` if unknown, then they are read from GitHub.
    pub required_checks: Option<Vec<String>>,
}

/// Why Suture closed a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// By a person's `/cancel`.
    Abandoned,
    Replaced,
}

/// How two pull requests for one vulnerability are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacementLink {
    /// The other one replaces this one.
    ReplacedBy(u64),
    /// This one replaces the other one.
    Replaces(u64),
}

/// A diagnosis, from which `decide` claims a remedy, escalates, or takes no action.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagnosisFact {
    pub diagnosis: Diagnosis,
    /// The id for the remedy's run, if one is claimed.
    pub run: RunId,
    /// The row of the vulnerability, if it is known (for the duplicate guard and the budget that never resets).
    pub vulnerability: Option<crate::pull_request::Vulnerability>,
    /// History for the escalation mail.
    pub history: crate::text::EscalationHistory,
}

/// Progress of a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemedyUpdate {
    /// Close-and-reopen is about to announce and close: from here it is finished, whatever happens to the pull request.
    Closing,
    /// The target accepted the request; the expected event must follow.
    Accepted,
    /// Never executed: the head moved, a guard refused it, there was nothing to do, or the breaker opened.
    Dropped { why: String },
    /// Executed without success.
    Failed {
        error: String,
        /// Decides whether it may be retried.
        failure: AttemptFailure,
    },
    /// The expected event did not arrive by the deadline.
    Overdue,
}

/// A command of a person, with the permission that the caller looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRequest {
    pub command: Command,
    pub source: CommandSource,
    pub by: String,
    /// Whether the person may give the command; the error says why not.
    pub permission: Result<(), String>,
    /// The id for its run, if it opens one.
    pub run: RunId,
    /// The text after the command, such as a reason.
    pub args: String,
    /// The comment that has the command, if it came by a comment.
    pub comment: Option<String>,
}

named! {
    /// The `source` of an event (R-EVENT-2).
    pub enum Actor {
        /// A webhook without a specific actor: a person, or GitHub itself.
        GithubWebhook = "github-webhook",
        Codegenie = "codegenie",
        Jenkins = "jenkins",
        PolicyBot = "policy-bot",
        ApproverBot = "approver-bot",
        AutomergeBot = "automerge-bot",
        Reconciler = "reconciler",
        /// The Car Bridge, which works on the command queue.
        CommandQueue = "command-queue",
        AdminApi = "admin-api",
    }
}

named! {
    /// The kinds of events in the log (R-EVENT-2).
    pub enum EventKind {
        PrOpened = "PR_OPENED",
        /// Closed without a merge.
        PrClosed = "PR_CLOSED",
        /// Merged by anybody but Automerge Bot.
        PrMerged = "PR_MERGED",
        /// Reopened: a new generation.
        PrReopened = "PR_REOPENED",
        PrEdited = "PR_EDITED",
        BranchUpdated = "BRANCH_UPDATED",
        BaseMoved = "BASE_MOVED",
        /// It replaces another pull request, or is replaced by one.
        PrLinked = "PR_LINKED",
        ChecksStarted = "CHECKS_STARTED",
        /// A check reported, and the state did not change.
        CheckReported = "CHECK_REPORTED",
        /// All required checks are green.
        ChecksPassed = "CHECKS_PASSED",
        ChecksFailed = "CHECKS_FAILED",
        PolicyStarted = "POLICY_STARTED",
        PolicyPassed = "POLICY_PASSED",
        PolicyFailed = "POLICY_FAILED",
        ApprovalGranted = "APPROVAL_GRANTED",
        /// An approval was dismissed.
        ApprovalDismissed = "APPROVAL_DISMISSED",
        MergeAttempted = "MERGE_ATTEMPTED",
        MergeSucceeded = "MERGE_SUCCEEDED",
        MergeFailed = "MERGE_FAILED",
        RemediationBranchUpdate = "REMEDIATION_BRANCH_UPDATE",
        RemediationRebuild = "REMEDIATION_REBUILD",
        RemediationRetriggerPolicy = "REMEDIATION_RETRIGGER_POLICY",
        /// Claimed: run the SOD validator again.
        RemediationRetriggerSod = "REMEDIATION_RETRIGGER_SOD",
        RemediationRetriggerApprover = "REMEDIATION_RETRIGGER_APPROVER",
        RemediationRetriggerMerge = "REMEDIATION_RETRIGGER_MERGE",
        /// Claimed: close, and request a replacement.
        RemediationCloseAndReopen = "REMEDIATION_CLOSE_AND_REOPEN",
        /// Close-and-reopen begins to close the pull request, and is not cancelled any more.
        RemediationClosing = "REMEDIATION_CLOSING",
        RemediationAccepted = "REMEDIATION_ACCEPTED",
        /// A remedy ended: proven, dropped or failed.
        RemediationEnded = "REMEDIATION_ENDED",
        /// Close-and-reopen was not claimed, because another pull request is open for the same vulnerability.
        DuplicateExists = "DUPLICATE_PR_EXISTS",
        EscalatedNeedsIntervention = "ESCALATED_NEEDS_INTERVENTION",
        /// A person gave a command; the payload says whether it was accepted.
        CommandReceived = "COMMAND_RECEIVED",
        /// The record differed from GitHub and was corrected.
        StateDriftCorrected = "STATE_DRIFT_CORRECTED",
        /// Observe mode: a remedy would have been claimed.
        WouldRemedy = "WOULD_REMEDY",
        /// Observe mode: it would have been escalated.
        WouldEscalate = "WOULD_ESCALATE",
        /// The health checks after its merge passed.
        PostMergeVerified = "POST_MERGE_VERIFIED",
        /// A decision was too large to store, or somebody else reported under Policy Bot's name; the payload says which.
        Anomaly = "ANOMALY",
    }
}

impl EventKind {
    /// Whether it belongs into the daily activity even if the state did not change. Minor events (one check of many, an
    /// edited label) are only in the log of their pull request.
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
            | Self::DuplicateExists
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
            | Self::RemediationClosing
            | Self::RemediationAccepted => false,
        }
    }

    /// The strategy that this event claims, if it is a claim.
    pub fn claimed_strategy(self) -> Option<Strategy> {
        Strategy::ALL.into_iter().find(|strategy| remedy::of(*strategy).event == self)
    }
}

/// One entry of the event log. Written once, never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub pr: PrId,
    pub occurred_at: Timestamp,
    pub id: EventId,
    /// 0 for the fact itself; 1, 2, … for further hops.
    pub hop: u8,
    pub kind: EventKind,
    pub source: Actor,
    /// The old state, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<State>,
    /// The new state, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<State>,
    /// A small extract, never the raw webhook.
    #[serde(default)]
    pub payload: EventPayload,
    pub ttl: Timestamp,
}

impl Event {
    /// The sort key: `<occurred_at, RFC 3339, exactly 3 decimals>#<event id>#<hop>`.
    pub fn sort_key(&self) -> String {
        Self::sort_key_of(self.occurred_at, &self.id, self.hop)
    }

    /// The sort key of an event that may exist.
    pub fn sort_key_of(occurred_at: Timestamp, id: &EventId, hop: u8) -> String {
        format!("{occurred_at:.3}#{id}#{hop}")
    }

    /// Whether the daily activity lists it: it changed the state, or its kind is notable.
    pub fn is_daily_activity(&self) -> bool {
        self.to.is_some() || self.kind.is_notable()
    }

    /// Whether it corrects a state that Suture assumed for a remedy: no event was missed.
    pub fn withdraws_assumption(&self) -> bool {
        self.kind == EventKind::StateDriftCorrected && self.payload.run.is_some()
    }

    /// Whether it is the end of a remedy that helped: the expected event arrived, and was not the same failure again.
    pub fn is_healed(&self) -> bool {
        self.kind == EventKind::RemediationEnded && self.payload.run_end == Some(RunEnd::Completed)
    }
}

/// Details of an event. Every text has at most `Payload::MAX_TEXT` characters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventPayload {
    /// One or two sentences: the reason, the failure text, the missed events.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Sha>,
    /// The check, the rule or the command it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Where the command came from, in COMMAND_RECEIVED.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<CommandSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How the run ended, in REMEDIATION_ENDED.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_end: Option<RunEnd>,
    /// The command was refused; the text says why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// Why this event did not change the state (R-STATE-5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<String>,
    /// The transient rules that matched the failed checks when a remedy was claimed or escalated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// A digest of the failure texts at that time, without numbers, to recognise the same failure again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The start of the text of a refused command.
const REFUSED: &str = "refused: ";

impl EventPayload {
    /// Longest text kept, in characters.
    pub const MAX_TEXT: usize = 300;

    /// The payload of a refused command.
    pub fn refused(why: &str) -> Self {
        Self { refused: true, ..Self::text(&format!("{REFUSED}{why}")) }
    }

    /// Why a command was refused, if it was.
    pub fn refusal(&self) -> Option<&str> {
        self.refused.then(|| self.text.strip_prefix(REFUSED).unwrap_or(&self.text))
    }

    /// A payload that has only a text, truncated to `MAX_TEXT`.
    pub fn text(text: &str) -> Self {
        Self { text: truncate(text, Self::MAX_TEXT), ..Self::default() }
    }
}

/// The first `max` characters; an ellipsis replaces the rest.
pub fn truncate(text: &str, max: usize) -> String {
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
            payload: EventPayload::default(),
            ttl: "2026-05-31T09:00:00Z".parse().unwrap(),
        }
    }

    /// The variant names that serde lists in its error for an unknown one.
    fn names_in_json<T: DeserializeOwned + Debug>() -> Vec<String> {
        let error = serde_json::from_str::<T>("\"nobody\"").unwrap_err().to_string();
        let (_, names) = error.split_once("expected one of ").unwrap();
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn cut_keeps_the_first_characters_and_adds_an_ellipsis() {
        for (text, max, expected) in [
            ("", 0, ""),
            ("", 1, ""),
            ("abc", 4, "abc"),
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("abcdefgh", 3, "ab…"),
            ("ab", 1, "…"),
            ("a", 1, "a"),
            // Characters are counted, not bytes.
            ("äöü", 3, "äöü"),
            ("äöüß", 3, "äö…"),
            ("🦀🦀🦀", 2, "🦀…"),
            ("…", 1, "…"),
        ] {
            assert_eq!(truncate(text, max), expected, "{text:?} to {max}");
        }
        // The ellipsis is always shown, even if the limit is zero.
        assert_eq!(truncate("a", 0), "…");
    }

    #[test]
    fn payload_text_has_at_most_300_characters() {
        assert_eq!(
            EventPayload::text("timeout"),
            EventPayload { text: "timeout".to_owned(), ..EventPayload::default() }
        );
        let fits = "ä".repeat(300);
        assert_eq!(EventPayload::text(&fits).text, fits);
        let cut_off = EventPayload::text(&"ä".repeat(301)).text;
        assert_eq!(cut_off, format!("{}…", "ä".repeat(299)));
        assert_eq!(cut_off.chars().count(), EventPayload::MAX_TEXT);
    }

    #[test]
    fn sort_key_has_exactly_three_decimals() {
        for (at, expected) in [
            ("2026-03-02T09:01:00Z", "2026-03-02T09:01:00.000Z#72d3162e#0"),
            ("2026-03-02T09:01:00.5Z", "2026-03-02T09:01:00.500Z#72d3162e#0"),
            ("2026-03-02T09:01:00.123Z", "2026-03-02T09:01:00.123Z#72d3162e#0"),
            // Fractions of a millisecond are dropped, never rounded up.
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
    fn event_kind_has_the_same_name_in_json_and_display() {
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
        assert_eq!(names.len(), 38);
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
    fn minimal_event_has_no_optional_fields() {
        let event = event("2026-03-02T09:01:00Z");
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(
            json,
            r#"{"pr":"acme/my-app#42","occurred_at":"2026-03-02T09:01:00Z","id":"72d3162e","hop":0,"kind":"CHECKS_STARTED","source":"github-webhook","payload":{},"ttl":"2026-05-31T09:00:00Z"}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
    }

    #[test]
    fn full_event_survives_a_json_round_trip() {
        let full = Event {
            hop: 2,
            kind: EventKind::ChecksFailed,
            source: Actor::CommandQueue,
            from: Some(State::ChecksRunning),
            to: Some(State::ChecksFailed),
            payload: EventPayload {
                run_end: Some(RunEnd::NoEffect),
                refused: true,
                text: "`build` failed: 3 tests".to_owned(),
                head: Some("a".repeat(40).parse().unwrap()),
                name: Some("build".to_owned()),
                by: Some("danny".to_owned()),
                via: Some(CommandSource::CheckRun),
                run: Some(RunId::new("run-1")),
                anomaly: Some("why".to_owned()),
                rules: vec!["network".to_owned()],
                failure: Some("00ff".to_owned()),
            },
            ..event("2026-03-02T09:01:00.123456789Z")
        };
        let json = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), full);
        // Entries without payload are readable.
        let bare = json.replace(&serde_json::to_string(&full.payload).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Event>(&bare).unwrap().payload, EventPayload::default());
    }
}
