//! Whether a command is allowed in this state for this requester: the matrix of R-CMD-3 as a function. The requirements
//! of each command are in the list in `command`. Pending approvals, rate limits and observe mode are checked elsewhere.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{Command, code_list};
use crate::policy::Policy;
use crate::pull_request::PullRequest;
use crate::state::State;

/// The states in which a command is valid.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValidStates {
    /// Any state of an open pull request.
    AnyOpen,
    Only(&'static [StateCondition]),
}

/// One state in which a command is valid.
#[derive(Debug, Clone, Copy)]
pub(super) enum StateCondition {
    In(State),
    /// In this state, unless a check is queued or running: a second build would be useless.
    IdleIn(State),
}

impl StateCondition {
    fn state(self) -> State {
        match self {
            Self::In(state) | Self::IdleIn(state) => state,
        }
    }
}

impl fmt::Display for StateCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(state) => write!(f, "{state}"),
            Self::IdleIn(state) => write!(f, "{state} with nothing running"),
        }
    }
}

impl fmt::Display for ValidStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnyOpen => f.write_str("open"),
            Self::Only(whens) => {
                for (n, when) in whens.iter().enumerate() {
                    let between = match n {
                        0 => "",
                        _ if n + 1 == whens.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{between}{when}")?;
                }
                Ok(())
            }
        }
    }
}

/// The permission a command needs. Two levels, each with a name on GitHub and one in the API.
#[derive(Debug, Clone, Copy)]
pub(super) enum RequiredPermission {
    Write,
    /// For commands that close a pull request or approve a remedy.
    Maintain,
}

impl RequiredPermission {
    pub(super) fn permission(self) -> RepoPermission {
        match self {
            Self::Write => RepoPermission::Write,
            Self::Maintain => RepoPermission::Maintain,
        }
    }

    pub(super) fn role(self) -> ApiRole {
        match self {
            Self::Write => ApiRole::Operator,
            Self::Maintain => ApiRole::Admin,
        }
    }
}

named! {
    /// The permission of a user on a repository, weakest first, in GitHub's words.
    pub enum RepoPermission {
        Read = "read",
        /// Manage issues and pull requests, without write access.
        Triage = "triage",
        Write = "write",
        /// Manage the repository, except for dangerous settings.
        Maintain = "maintain",
        Admin = "admin",
    }
}

impl RepoPermission {
    /// Reads GitHub's collaborator response: the `role_name`, which alone distinguishes maintain from write, or for a
    /// custom role of an organisation the `permission` it is based on. `none` and unknown values give no permission.
    pub fn from_github(role_name: &str, permission: &str) -> Option<Self> {
        match role_name {
            // `none` is not a custom role, so `permission` must not override it.
            "none" => None,
            _ => role_name.parse().or_else(|_| permission.parse()).ok(),
        }
    }
}

/// A word that is not a GitHub permission.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a permission: expected read, triage, write, maintain or admin")]
pub struct UnknownPermission(pub String);

impl FromStr for RepoPermission {
    type Err = UnknownPermission;

    fn from_str(text: &str) -> Result<Self, UnknownPermission> {
        let found = Self::ALL.into_iter().find(|permission| permission.name() == text);
        found.ok_or_else(|| UnknownPermission(text.to_owned()))
    }
}

named! {
    /// The role of an API key, weakest first; each includes the ones before it.
    pub enum ApiRole {
        Viewer = "viewer",
        Operator = "operator",
        /// Send every command, pause and unpause Suture.
        Admin = "admin",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a role: expected viewer, operator or admin")]
pub struct UnknownRole(pub String);

impl FromStr for ApiRole {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

/// The requester of a command, as far as it matters for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandRequester {
    /// A GitHub user with this permission on the repository, or none.
    GitHub(Option<RepoPermission>),
    /// An API caller with a key of this role.
    Api(ApiRole),
    /// Suture's reconciler, which sends only commands with a remedy.
    Reconciler,
}

/// The facts about a pull request that decide which commands are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidityContext {
    pub state: State,
    /// The state that the head's signals imply; used in NEEDS_INTERVENTION, which does not tell how far the pull
    /// request got in the pipeline.
    pub implied: State,
    /// Whether a check of this head is queued or running; CHECKS_RUNNING may outlast its build.
    pub checks_running: bool,
}

impl ValidityContext {
    pub fn of(record: &PullRequest, policy: &Policy) -> Self {
        Self {
            state: record.state,
            implied: record.implied(policy).state,
            checks_running: record.signals.has_running_check(),
        }
    }

    /// The state that commands are measured against.
    pub fn effective(&self) -> State {
        if self.state == State::NeedsIntervention { self.implied } else { self.state }
    }

    /// The commands that are valid now, in list order.
    pub fn valid_now(&self) -> Vec<Command> {
        Command::ALL.into_iter().filter(|command| command.is_valid_in(self).is_ok()).collect()
    }

    /// The state as shown in a refusal.
    fn described_state(&self) -> String {
        match self.effective() == self.state {
            true => self.state.to_string(),
            false => format!("{} (its checks and reviews imply {})", self.state, self.implied),
        }
    }

    /// The commands that a refusal offers instead: those with a remedy, except destructive ones.
    fn alternatives(&self) -> String {
        let is_offered = |command: &Command| command.strategy().is_some() && !command.is_destructive();
        code_list(&self.valid_now().into_iter().filter(is_offered).collect::<Vec<_>>())
    }
}

/// Why a command is refused; the person reads its message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandRefusal {
    #[error("`{command}` needs an open pull request, but this one is merged.")]
    Merged { command: Command },
    #[error("`{command}` needs an open pull request, but this one is closed. Reopen it first.")]
    Closed { command: Command },
    /// The command is not valid in this state.
    #[error(
        "`{command}` is valid in {}, but this pull request is in {}. Valid now: {}.",
        .command.spec().valid_in, .situation.described_state(), .situation.alternatives()
    )]
    WrongState { command: Command, situation: ValidityContext },
    /// The command would start checks that are already running.
    #[error(
        "`{command}` is not possible while checks of this commit are queued or running. Valid now: {}.",
        .situation.alternatives()
    )]
    StillRunning { command: Command, situation: ValidityContext },
    /// The requester lacks the permission.
    #[error("`{command}` needs {}.", needs_and_has(*.command, *.requester))]
    NotPermitted { command: Command, requester: CommandRequester },
}

/// Completes "`/cancel` needs …", in the terms of GitHub or of the API.
fn needs_and_has(command: Command, requester: CommandRequester) -> String {
    match requester {
        CommandRequester::GitHub(has) => {
            let has = has.map_or("none", RepoPermission::name);
            format!(
                "{} permission on this repository, but yours is {has}: ask someone who has it",
                command.permission()
            )
        }
        CommandRequester::Api(role) => {
            format!("an API key with the role {}, but yours is {role}: ask someone who has one", command.role())
        }
        CommandRequester::Reconciler => "a person: the reconciler may only apply remedies".to_owned(),
    }
}

impl Command {
    pub fn permission(self) -> RepoPermission {
        self.spec().needs.permission()
    }

    pub fn role(self) -> ApiRole {
        self.spec().needs.role()
    }

    pub fn allows(self, requester: CommandRequester) -> Result<(), CommandRefusal> {
        let allowed = match requester {
            CommandRequester::GitHub(has) => has.is_some_and(|has| has >= self.permission()),
            CommandRequester::Api(role) => role >= self.role(),
            CommandRequester::Reconciler => self.strategy().is_some(),
        };
        if allowed { Ok(()) } else { Err(CommandRefusal::NotPermitted { command: self, requester }) }
    }

    /// Whether the command is valid in this situation (R-CMD-3).
    ///
    /// The [`CommandRefusal`] gives the reason and the alternatives.
    pub fn is_valid_in(self, situation: &ValidityContext) -> Result<(), CommandRefusal> {
        let (command, situation) = (self, *situation);
        let state = situation.effective();
        if state == State::Merged {
            return Err(CommandRefusal::Merged { command });
        }
        if state == State::Closed {
            return Err(CommandRefusal::Closed { command });
        }
        let ValidStates::Only(whens) = self.spec().valid_in else { return Ok(()) };
        match whens.iter().find(|when| when.state() == state) {
            Some(StateCondition::In(_)) => Ok(()),
            Some(StateCondition::IdleIn(_)) if !situation.checks_running => Ok(()),
            Some(StateCondition::IdleIn(_)) => Err(CommandRefusal::StillRunning { command, situation }),
            None => Err(CommandRefusal::WrongState { command, situation }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(state: State) -> ValidityContext {
        ValidityContext { state, implied: State::Created, checks_running: false }
    }

    #[test]
    fn validity_matrix() {
        // One line per command with the states it is valid in.
        let mut rendered = String::new();
        for command in Command::ALL {
            rendered += command.name();
            for state in State::ALL {
                // NEEDS_INTERVENTION has its own test: here its signals imply nothing.
                let idle = ValidityContext { state, implied: State::NeedsIntervention, checks_running: false };
                let busy = ValidityContext { checks_running: true, ..idle };
                rendered += &match (command.is_valid_in(&idle).is_ok(), command.is_valid_in(&busy).is_ok()) {
                    (true, true) => format!(" {state}"),
                    (true, false) => format!(" {state}/idle"),
                    (false, true) => format!(" {state}/busy"),
                    (false, false) => String::new(),
                };
            }
            rendered += "\n";
        }
        insta::assert_snapshot!(rendered, @"
        /rebuild CREATED CHECKS_RUNNING/idle CHECKS_FAILED
        /recheck-policy CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED
        /recheck-sod POLICY_FAILED
        /recheck-approval POLICY_PASSED
        /merge APPROVED MERGING
        /update-branch CREATED CHECKS_RUNNING CHECKS_FAILED CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED APPROVED MERGING NEEDS_INTERVENTION
        /close-and-reopen CREATED CHECKS_RUNNING CHECKS_FAILED CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED APPROVED MERGING NEEDS_INTERVENTION
        /cancel CREATED CHECKS_RUNNING CHECKS_FAILED CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED APPROVED MERGING NEEDS_INTERVENTION
        /status CREATED CHECKS_RUNNING CHECKS_FAILED CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED APPROVED MERGING NEEDS_INTERVENTION
        /explain CREATED CHECKS_RUNNING CHECKS_FAILED CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED APPROVED MERGING NEEDS_INTERVENTION
        /hold CREATED CHECKS_RUNNING CHECKS_FAILED CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED APPROVED MERGING NEEDS_INTERVENTION
        /resume CREATED CHECKS_RUNNING CHECKS_FAILED CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED APPROVED MERGING NEEDS_INTERVENTION
        /approve CREATED CHECKS_RUNNING CHECKS_FAILED CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED APPROVED MERGING NEEDS_INTERVENTION
        ");
    }

    #[test]
    fn in_needs_intervention_the_implied_state_decides() {
        for command in Command::ALL {
            for implied in State::ALL {
                for checks_running in [false, true] {
                    let stuck = ValidityContext { state: State::NeedsIntervention, implied, checks_running };
                    let there = ValidityContext { state: implied, implied, checks_running };
                    assert_eq!(
                        command.is_valid_in(&stuck).is_ok(),
                        command.is_valid_in(&there).is_ok(),
                        "{command} {implied}"
                    );
                    // In any other state the implied state does not matter.
                    let created = ValidityContext { state: State::Created, implied, checks_running };
                    assert_eq!(
                        command.is_valid_in(&created).is_ok(),
                        command.is_valid_in(&at(State::Created)).is_ok(),
                        "{command} {implied}"
                    );
                }
            }
        }
    }

    #[test]
    fn valid_now_lists_valid_commands() {
        let names = |situation: ValidityContext| code_list(&situation.valid_now());
        insta::assert_snapshot!(names(at(State::ChecksFailed)), @"`/rebuild`, `/update-branch`, `/close-and-reopen`, `/cancel`, `/status`, `/explain`, `/hold`, `/resume`, `/approve`");
        insta::assert_snapshot!(names(at(State::Merging)), @"`/merge`, `/update-branch`, `/close-and-reopen`, `/cancel`, `/status`, `/explain`, `/hold`, `/resume`, `/approve`");
        assert_eq!(at(State::Merged).valid_now(), []);
        assert_eq!(at(State::Closed).valid_now(), []);
    }

    #[test]
    fn refusal_has_reason_and_alternatives() {
        let refused =
            |command: Command, situation: ValidityContext| command.is_valid_in(&situation).unwrap_err().to_string();
        insta::assert_snapshot!(refused(Command::Merge, at(State::ChecksFailed)), @"`/merge` is valid in APPROVED or MERGING, but this pull request is in CHECKS_FAILED. Valid now: `/rebuild`, `/update-branch`.");
        insta::assert_snapshot!(refused(Command::Rebuild, at(State::PolicyFailed)), @"`/rebuild` is valid in CREATED, CHECKS_FAILED or CHECKS_RUNNING with nothing running, but this pull request is in POLICY_FAILED. Valid now: `/recheck-policy`, `/recheck-sod`, `/update-branch`.");
        insta::assert_snapshot!(refused(Command::RecheckSod, at(State::Approved)), @"`/recheck-sod` is valid in POLICY_FAILED, but this pull request is in APPROVED. Valid now: `/merge`, `/update-branch`.");
        let busy = ValidityContext { checks_running: true, ..at(State::ChecksRunning) };
        insta::assert_snapshot!(refused(Command::Rebuild, busy), @"`/rebuild` is not possible while checks of this commit are queued or running. Valid now: `/update-branch`.");
        let stuck = ValidityContext { implied: State::ChecksFailed, ..at(State::NeedsIntervention) };
        insta::assert_snapshot!(refused(Command::Merge, stuck), @"`/merge` is valid in APPROVED or MERGING, but this pull request is in NEEDS_INTERVENTION (its checks and reviews imply CHECKS_FAILED). Valid now: `/rebuild`, `/update-branch`.");
        insta::assert_snapshot!(refused(Command::Merge, at(State::Merged)), @"`/merge` needs an open pull request, but this one is merged.");
        insta::assert_snapshot!(refused(Command::Status, at(State::Closed)), @"`/status` needs an open pull request, but this one is closed. Reopen it first.");
    }

    #[test]
    fn every_refusal_in_an_open_state_offers_alternatives() {
        for command in Command::ALL {
            for state in State::ALL {
                if let Err(refusal @ (CommandRefusal::WrongState { .. } | CommandRefusal::StillRunning { .. })) =
                    command.is_valid_in(&at(state))
                {
                    assert!(refusal.to_string().contains("`/update-branch`"), "{refusal}");
                    assert!(!refusal.to_string().contains("/close-and-reopen"), "{refusal}");
                }
            }
        }
    }

    #[test]
    fn write_is_enough_for_most_and_maintain_for_all() {
        let allowed = |requester: CommandRequester| {
            Command::ALL.into_iter().filter(|command| command.allows(requester).is_ok()).collect::<Vec<_>>()
        };
        let maintainers_only = [Command::CloseAndReopen, Command::Cancel, Command::Approve];
        let ordinary: Vec<Command> = Command::ALL.into_iter().filter(|c| !maintainers_only.contains(c)).collect();
        assert_eq!(ordinary.len(), 10);
        for too_little in [None, Some(RepoPermission::Read), Some(RepoPermission::Triage)] {
            assert_eq!(allowed(CommandRequester::GitHub(too_little)), [], "{too_little:?}");
        }
        assert_eq!(allowed(CommandRequester::GitHub(Some(RepoPermission::Write))), ordinary);
        for enough in [RepoPermission::Maintain, RepoPermission::Admin] {
            assert_eq!(allowed(CommandRequester::GitHub(Some(enough))), Command::ALL);
        }
        assert_eq!(allowed(CommandRequester::Api(ApiRole::Viewer)), []);
        assert_eq!(allowed(CommandRequester::Api(ApiRole::Operator)), ordinary);
        assert_eq!(allowed(CommandRequester::Api(ApiRole::Admin)), Command::ALL);
        let remedies: Vec<Command> = Command::ALL.into_iter().filter(|c| c.strategy().is_some()).collect();
        assert_eq!(allowed(CommandRequester::Reconciler), remedies);
    }

    #[test]
    fn refusal_for_missing_permission_names_the_needed_one() {
        let refused =
            |command: Command, requester: CommandRequester| command.allows(requester).unwrap_err().to_string();
        insta::assert_snapshot!(refused(Command::Rebuild, CommandRequester::GitHub(None)), @"`/rebuild` needs write permission on this repository, but yours is none: ask someone who has it.");
        insta::assert_snapshot!(refused(Command::Cancel, CommandRequester::GitHub(Some(RepoPermission::Write))), @"`/cancel` needs maintain permission on this repository, but yours is write: ask someone who has it.");
        insta::assert_snapshot!(refused(Command::Approve, CommandRequester::Api(ApiRole::Operator)), @"`/approve` needs an API key with the role admin, but yours is operator: ask someone who has one.");
        insta::assert_snapshot!(refused(Command::Hold, CommandRequester::Reconciler), @"`/hold` needs a person: the reconciler may only apply remedies.");
    }

    #[test]
    fn levels_round_trip_and_are_ordered() {
        assert!(RepoPermission::ALL.is_sorted());
        assert!(ApiRole::ALL.is_sorted());
        for permission in RepoPermission::ALL {
            assert_eq!(permission.to_string().parse(), Ok(permission));
            assert_eq!(serde_json::to_string(&permission).unwrap(), format!("\"{permission}\""));
        }
        for role in ApiRole::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
        let error = "owner".parse::<ApiRole>().unwrap_err();
        assert_eq!(error.to_string(), "`owner` is not a role: expected viewer, operator or admin");
        let error = "none".parse::<RepoPermission>().unwrap_err();
        assert_eq!(error.to_string(), "`none` is not a permission: expected read, triage, write, maintain or admin");
    }

    #[test]
    fn github_permission_is_read_from_role_name_then_from_permission() {
        for (role_name, permission, expected) in [
            ("maintain", "write", Some(RepoPermission::Maintain)),
            ("triage", "read", Some(RepoPermission::Triage)),
            ("admin", "admin", Some(RepoPermission::Admin)),
            ("security-engineer", "write", Some(RepoPermission::Write)),
            ("", "read", Some(RepoPermission::Read)),
            ("security-engineer", "none", None),
            ("none", "none", None),
            ("none", "write", None),
            ("Admin", "", None),
        ] {
            assert_eq!(RepoPermission::from_github(role_name, permission), expected, "{role_name} {permission}");
        }
    }
}
