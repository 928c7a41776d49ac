//! What happened: the facts that come in (from outside, and Suture's own deeds), and the events the log keeps of them.
//! What follows from a fact is decided in `decide`.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::command::{Command, CommandSource};
use crate::diagnosis::Diagnosis;
use crate::id::{EventId, PrId, RunId, Sha};
use crate::signals::{Approval, Check, MergeReport, PolicyReport};
use crate::snapshot::Snapshot;
use crate::state::State;

/// One thing that happened to one pull request. Its id is what makes it apply once.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// The delivery id, the command id, or run id + step.
    pub id: EventId,
    /// To which pull request.
    pub pr: PrId,
    /// When, by the payload: never the clock of whoever received it.
    pub occurred_at: Timestamp,
    /// Who did it.
    pub actor: Actor,
    /// What it was.
    pub what: Happened,
}

/// Everything `decide` listens to.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// The pull request was opened (or found open by the inventory).
    Opened(Described),
    /// A closed pull request was opened again.
    Reopened(Described),
    /// New commits on the head.
    HeadMoved {
        /// The pull request as it is now.
        described: Described,
        /// The head it had before, if the payload says.
        before: Option<Sha>,
        /// Whether Suture itself pushed (its update-branch merge commit).
        ours: bool,
    },
    /// Labels, draft, base or text changed.
    Edited(Described),
    /// Closed without a merge.
    Closed {
        /// Who closed it.
        by: Option<String>,
        /// Why, if Suture did it.
        why: Option<ClosedBecause>,
    },
    /// Merged.
    Merged {
        /// Who merged it.
        by: Option<String>,
        /// Whether that was the automerge bot.
        by_automerge_bot: bool,
    },
    /// Check runs were asked for on this commit (`check_suite.requested`); none has a name yet.
    ChecksRequested {
        /// On which commit.
        head: Sha,
    },
    /// One check or commit status reported.
    Check {
        /// On which commit.
        head: Sha,
        /// What it says.
        check: Check,
    },
    /// Policy Bot reported.
    Policy {
        /// On which commit.
        head: Sha,
        /// What it says.
        report: PolicyReport,
    },
    /// An approver bot approved, or its approval was dismissed.
    Approval {
        /// On which commit.
        head: Sha,
        /// Whose, and which way.
        approval: Approval,
    },
    /// Automerge Bot tried, or failed.
    Merge {
        /// On which commit.
        head: Sha,
        /// What it says.
        report: MergeReport,
    },
    /// The base branch got new commits: the pull request may be behind or in conflict now.
    BaseMoved {
        /// Which branch moved.
        base: String,
    },
    /// GitHub was asked and this is the whole answer.
    Verified(Box<Snapshot>),
    /// The sweep could not find out; it comes back later.
    Skipped {
        /// Why.
        why: String,
    },
    /// The classifier has spoken.
    Diagnosed(Box<Diagnosed>),
    /// A remedy's target has answered.
    Remedy {
        /// Which run.
        run: RunId,
        /// What became of it.
        news: RemedyNews,
    },
    /// A person asked for something.
    Commanded(Box<Commanded>),
}

/// A pull request as GitHub describes it in every `pull_request` event: complete, as of the event's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// GitHub's node id, for GraphQL.
    pub node_id: Option<String>,
    /// Head branch.
    pub branch: String,
    /// Target branch.
    pub base_branch: String,
    /// Head commit.
    pub head: Sha,
    /// Labels that mean something to Suture.
    pub labels: Vec<String>,
    /// Draft?
    pub draft: bool,
    /// The vulnerability it fixes, if its text names one.
    pub vulnerability_id: Option<String>,
    /// When it was opened.
    pub created_at: Timestamp,
    /// Changed lines, if known.
    pub size: Option<u64>,
}

/// Why Suture closed a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBecause {
    /// A person said `/cancel`.
    Abandoned,
    /// Close-and-reopen.
    Replaced,
}

/// A diagnosis on its way to becoming a claim, an escalation, or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosed {
    /// What the classifier said.
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
    Dropped {
        /// Which of these.
        why: String,
    },
    /// It was tried and did not work, or its effect never showed.
    Failed {
        /// What went wrong.
        error: String,
    },
}

/// A command of a person, with what the shell found out about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commanded {
    /// What.
    pub command: Command,
    /// Where it came from.
    pub source: CommandSource,
    /// Who.
    pub by: String,
    /// Whether they may; the sentence says why not.
    pub permission: Result<(), String>,
    /// The id its run will have, if it needs one.
    pub run: RunId,
}

/// Who did it (seed §5 `source`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// A webhook of no particular actor: a person, or GitHub itself.
    GithubWebhook,
    /// CodeGenie.
    Codegenie,
    /// Jenkins, reporting directly.
    Jenkins,
    /// Policy Bot.
    PolicyBot,
    /// Approver Bot.
    ApproverBot,
    /// Automerge Bot.
    AutomergeBot,
    /// A sweep.
    Reconciler,
    /// The Car Bridge, working on the command queue.
    CommandQueue,
    /// The admin API.
    AdminApi,
}

/// The kinds of events in the log: seed §5, and what the rules of the design need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventKind {
    /// Opened, or adopted.
    PrOpened,
    /// Closed without a merge.
    PrClosed,
    /// Merged by anybody but the automerge bot.
    PrMerged,
    /// Opened again: a new generation.
    PrReopened,
    /// Labels, draft, base or text changed.
    PrEdited,
    /// New commits on the head.
    BranchUpdated,
    /// The base branch moved.
    BaseMoved,
    /// Checks began.
    ChecksStarted,
    /// One of several checks reported; the state did not change.
    CheckReported,
    /// All required checks are green.
    ChecksPassed,
    /// A required check failed.
    ChecksFailed,
    /// Policy Bot began.
    PolicyStarted,
    /// Policy Bot said yes.
    PolicyPassed,
    /// Policy Bot said no.
    PolicyFailed,
    /// An approver bot approved.
    ApprovalGranted,
    /// An approval was taken back.
    ApprovalDismissed,
    /// Automerge Bot tried.
    MergeAttempted,
    /// Automerge Bot merged.
    MergeSucceeded,
    /// Automerge Bot could not.
    MergeFailed,
    /// Claimed: update the branch.
    RemediationBranchUpdate,
    /// Claimed: run checks again.
    RemediationRebuild,
    /// Claimed: wake Policy Bot.
    RemediationRetriggerPolicy,
    /// Claimed: ask the SOD validator again.
    RemediationRetriggerSod,
    /// Claimed: wake Approver Bot.
    RemediationRetriggerApprover,
    /// Claimed: wake Automerge Bot.
    RemediationRetriggerMerge,
    /// Claimed: close, and ask for a fresh one.
    RemediationCloseAndReopen,
    /// A remedy's target took it.
    RemediationAccepted,
    /// A remedy is over: proven, dropped or failed.
    RemediationEnded,
    /// Handed to a person.
    EscalatedNeedsIntervention,
    /// A person asked for something; the payload says whether it was granted.
    CommandReceived,
    /// The record was wrong and GitHub right.
    StateDriftCorrected,
    /// Observe mode: this would have been done.
    WouldRemedy,
    /// Observe mode: a person would have been called.
    WouldEscalate,
}

impl EventKind {
    /// The name in the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PrOpened => "PR_OPENED",
            Self::PrClosed => "PR_CLOSED",
            Self::PrMerged => "PR_MERGED",
            Self::PrReopened => "PR_REOPENED",
            Self::PrEdited => "PR_EDITED",
            Self::BranchUpdated => "BRANCH_UPDATED",
            Self::BaseMoved => "BASE_MOVED",
            Self::ChecksStarted => "CHECKS_STARTED",
            Self::CheckReported => "CHECK_REPORTED",
            Self::ChecksPassed => "CHECKS_PASSED",
            Self::ChecksFailed => "CHECKS_FAILED",
            Self::PolicyStarted => "POLICY_STARTED",
            Self::PolicyPassed => "POLICY_PASSED",
            Self::PolicyFailed => "POLICY_FAILED",
            Self::ApprovalGranted => "APPROVAL_GRANTED",
            Self::ApprovalDismissed => "APPROVAL_DISMISSED",
            Self::MergeAttempted => "MERGE_ATTEMPTED",
            Self::MergeSucceeded => "MERGE_SUCCEEDED",
            Self::MergeFailed => "MERGE_FAILED",
            Self::RemediationBranchUpdate => "REMEDIATION_BRANCH_UPDATE",
            Self::RemediationRebuild => "REMEDIATION_REBUILD",
            Self::RemediationRetriggerPolicy => "REMEDIATION_RETRIGGER_POLICY",
            Self::RemediationRetriggerSod => "REMEDIATION_RETRIGGER_SOD",
            Self::RemediationRetriggerApprover => "REMEDIATION_RETRIGGER_APPROVER",
            Self::RemediationRetriggerMerge => "REMEDIATION_RETRIGGER_MERGE",
            Self::RemediationCloseAndReopen => "REMEDIATION_CLOSE_AND_REOPEN",
            Self::RemediationAccepted => "REMEDIATION_ACCEPTED",
            Self::RemediationEnded => "REMEDIATION_ENDED",
            Self::EscalatedNeedsIntervention => "ESCALATED_NEEDS_INTERVENTION",
            Self::CommandReceived => "COMMAND_RECEIVED",
            Self::StateDriftCorrected => "STATE_DRIFT_CORRECTED",
            Self::WouldRemedy => "WOULD_REMEDY",
            Self::WouldEscalate => "WOULD_ESCALATE",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One row of the log. Written once, never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Whose.
    pub pr: PrId,
    /// The fact's time.
    pub occurred_at: Timestamp,
    /// The fact's id.
    pub id: EventId,
    /// 0 for the fact itself; 1, 2, … for the further hops it led to.
    pub hop: u8,
    /// What kind.
    pub kind: EventKind,
    /// Who did it.
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
    /// When the log may forget it.
    pub ttl: Timestamp,
}

impl Event {
    /// The sort key: `<occurred_at, RFC 3339, exactly 3 decimals>#<event id>#<hop>`.
    #[must_use]
    pub fn sort_key(&self) -> String {
        format!("{:.3}#{}#{}", self.occurred_at, self.id, self.hop)
    }
}

/// What an event says beyond its kind. Every text is cut to `Payload::MAX_TEXT` characters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Payload {
    /// One or two sentences: the reason, the failure text, what was missed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The commit it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Sha>,
    /// The check, the rule or the command it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The person or bot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The run it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Why this event did not change the state although it should have (seed §13 step 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<String>,
}

impl Payload {
    /// Longest text kept, in characters.
    pub const MAX_TEXT: usize = 300;

    /// A payload of one text, cut to size.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { text: cut(text, Self::MAX_TEXT), ..Self::default() }
    }
}

/// The first `max` characters, with an ellipsis if something is missing.
#[must_use]
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max.saturating_sub(1)).chain(['…']).collect(),
    }
}
