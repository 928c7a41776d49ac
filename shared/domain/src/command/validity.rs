//! May this command be given, here, now, by this person? The matrix of R-CMD-3 as a function: what each command needs is in the list
//! (`command`), what that means is here. Whether a run awaits approval, a rate limit is spent or the installation only
//! observes is asked elsewhere.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{Command, code_list};
use crate::policy::Policy;
use crate::pull_request::Record;
use crate::state::State;

/// In which states a command makes sense.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValidIn {
    /// Whatever the state, as long as the pull request is open.
    AnyOpen,
    Only(&'static [When]),
}

/// One state in which a command makes sense.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    In(State),
    /// In this state, unless a check is really queued or running: starting a second build would help nobody.
    IdleIn(State),
}

impl When {
    fn state(self) -> State {
        match self {
            Self::In(state) | Self::IdleIn(state) => state,
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(state) => write!(f, "{state}"),
            Self::IdleIn(state) => write!(f, "{state} with nothing running"),
        }
    }
}

impl fmt::Display for ValidIn {
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

/// What a command needs of whoever gives it. Two levels, each with a name on GitHub and one in the API.
#[derive(Debug, Clone, Copy)]
pub(super) enum Needs {
    Write,
    /// For what closes a pull request or lets a held-back remedy go.
    Maintain,
}

impl Needs {
    pub(super) fn permission(self) -> Permission {
        match self {
            Self::Write => Permission::Write,
            Self::Maintain => Permission::Maintain,
        }
    }

    pub(super) fn role(self) -> Role {
        match self {
            Self::Write => Role::Operator,
            Self::Maintain => Role::Admin,
        }
    }
}

named! {
    /// What somebody may do in a repository, weakest first, as GitHub calls it.
    pub enum Permission {
        Read = "read",
        /// Sort issues and pull requests.
        Triage = "triage",
        Write = "write",
        /// Run it, short of the dangerous settings.
        Maintain = "maintain",
        Admin = "admin",
    }
}

impl Permission {
    /// What GitHub's collaborator answer means: the `role_name`, which alone tells maintain from write, or, where that
    /// is an organisation's own invention, the `permission` it is based on. `none` and what we do not know give nothing.
    pub fn from_github(role_name: &str, permission: &str) -> Option<Self> {
        match role_name {
            // Not a custom role: the base level must not speak for it.
            "none" => None,
            _ => role_name.parse().or_else(|_| permission.parse()).ok(),
        }
    }
}

/// Not a level of GitHub's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a permission: expected read, triage, write, maintain or admin")]
pub struct BadPermission(pub String);

impl FromStr for Permission {
    type Err = BadPermission;

    fn from_str(text: &str) -> Result<Self, BadPermission> {
        let found = Self::ALL.into_iter().find(|permission| permission.name() == text);
        found.ok_or_else(|| BadPermission(text.to_owned()))
    }
}

named! {
    /// What the key of an API caller allows, weakest first; each includes the ones before it.
    pub enum Role {
        Viewer = "viewer",
        Operator = "operator",
        /// Give every command, and stop and start Suture.
        Admin = "admin",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a role: expected viewer, operator or admin")]
pub struct BadRole(pub String);

impl FromStr for Role {
    type Err = BadRole;

    fn from_str(text: &str) -> Result<Self, BadRole> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| BadRole(text.to_owned()))
    }
}

/// Who gives a command, as far as that decides whether it may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// Somebody on GitHub, with this permission in the repository, or none.
    GitHub(Option<Permission>),
    /// An API caller whose key has this role.
    Api(Role),
    /// Our own reconciler: it applies remedies, and nothing but remedies.
    Reconciler,
}

/// What has to be known of a pull request to say which commands make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    pub state: State,
    /// The state the head's signals imply; it counts where the state is NEEDS_INTERVENTION, which says nothing about
    /// where in the pipeline the pull request is.
    pub implied: State,
    /// Whether any check of this head is really queued or running; CHECKS_RUNNING may have outlived its build.
    pub checks_running: bool,
}

impl Situation {
    pub fn of(record: &Record, policy: &Policy) -> Self {
        Self {
            state: record.state,
            implied: record.implied(policy).state,
            checks_running: record.signals.any_check_at_work(),
        }
    }

    /// The state that commands are measured against.
    pub fn effective(&self) -> State {
        if self.state == State::NeedsIntervention { self.implied } else { self.state }
    }

    /// The commands that make sense now, in the order of the list; for the buttons of a page.
    pub fn valid_now(&self) -> Vec<Command> {
        Command::ALL.into_iter().filter(|command| command.is_valid_in(self).is_ok()).collect()
    }

    /// The state as a refusal names it.
    fn standing(&self) -> String {
        match self.effective() == self.state {
            true => self.state.to_string(),
            false => format!("{} (its checks and reviews say {})", self.state, self.implied),
        }
    }

    /// What a refusal offers instead: what moves the pipeline. A refusal talks nobody into closing a pull request.
    fn would_work(&self) -> String {
        let moves = |command: &Command| command.strategy().is_some() && !command.is_destructive();
        code_list(&self.valid_now().into_iter().filter(moves).collect::<Vec<_>>())
    }
}

/// Why a command is not carried out; its sentence is what the person reads.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("`{command}` needs an open pull request, and this one is merged: nothing is left to do.")]
    Merged { command: Command },
    #[error("`{command}` needs an open pull request, and this one is closed: reopen it first.")]
    Closed { command: Command },
    /// The command makes no sense in this state.
    #[error(
        "`{command}` needs {}, and this pull request is {}. What would work now: {}.",
        .command.spec().valid_in, .situation.standing(), .situation.would_work()
    )]
    WrongState { command: Command, situation: Situation },
    /// The command would start what is already under way.
    #[error(
        "`{command}` has to wait: checks of this commit are still queued or running. What would work now: {}.",
        .situation.would_work()
    )]
    StillRunning { command: Command, situation: Situation },
    /// Whoever asked may not.
    #[error("`{command}` needs {}.", needs_and_has(*.command, *.requester))]
    NotPermitted { command: Command, requester: Requester },
}

/// The end of "`/cancel` needs …": in the words of the place the person asked from.
fn needs_and_has(command: Command, requester: Requester) -> String {
    match requester {
        Requester::GitHub(has) => {
            let has = has.map_or("none", Permission::name);
            format!(
                "{} permission on this repository, and yours is {has}: ask somebody who has it",
                command.permission()
            )
        }
        Requester::Api(role) => {
            format!("a key with the role {}, and yours is {role}: ask somebody who has one", command.role())
        }
        Requester::Reconciler => "a person: the reconciler applies remedies only".to_owned(),
    }
}

impl Command {
    pub fn permission(self) -> Permission {
        self.spec().needs.permission()
    }

    pub fn role(self) -> Role {
        self.spec().needs.role()
    }

    pub fn allows(self, requester: Requester) -> Result<(), Refusal> {
        let allowed = match requester {
            Requester::GitHub(has) => has.is_some_and(|has| has >= self.permission()),
            Requester::Api(role) => role >= self.role(),
            Requester::Reconciler => self.strategy().is_some(),
        };
        if allowed { Ok(()) } else { Err(Refusal::NotPermitted { command: self, requester }) }
    }

    /// Whether it makes sense there (R-CMD-3).
    ///
    /// The [`Refusal`] says why not, and what would work instead.
    pub fn is_valid_in(self, situation: &Situation) -> Result<(), Refusal> {
        let (command, situation) = (self, *situation);
        let state = situation.effective();
        if state == State::Merged {
            return Err(Refusal::Merged { command });
        }
        if state == State::Closed {
            return Err(Refusal::Closed { command });
        }
        let ValidIn::Only(whens) = self.spec().valid_in else { return Ok(()) };
        match whens.iter().find(|when| when.state() == state) {
            Some(When::In(_)) => Ok(()),
            Some(When::IdleIn(_)) if !situation.checks_running => Ok(()),
            Some(When::IdleIn(_)) => Err(Refusal::StillRunning { command, situation }),
            None => Err(Refusal::WrongState { command, situation }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(state: State) -> Situation {
        Situation { state, implied: State::Created, checks_running: false }
    }

    #[test]
    fn the_whole_validity_matrix() {
        // One line per command, with the states it is valid in; where a state is not named, it is refused.
        let mut rendered = String::new();
        for command in Command::ALL {
            rendered += command.name();
            for state in State::ALL {
                // NEEDS_INTERVENTION has a test of its own: here its signals imply nothing.
                let idle = Situation { state, implied: State::NeedsIntervention, checks_running: false };
                let busy = Situation { checks_running: true, ..idle };
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
        /recheck-policy CHECKS_PASSED POLICY_EVALUATING POLICY_FAILED POLICY_PASSED
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
                    let stuck = Situation { state: State::NeedsIntervention, implied, checks_running };
                    let there = Situation { state: implied, implied, checks_running };
                    assert_eq!(
                        command.is_valid_in(&stuck).is_ok(),
                        command.is_valid_in(&there).is_ok(),
                        "{command} {implied}"
                    );
                    // Anywhere else what the signals imply does not matter.
                    let created = Situation { state: State::Created, implied, checks_running };
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
    fn the_buttons_of_a_page_are_what_is_valid() {
        let names = |situation: Situation| code_list(&situation.valid_now());
        insta::assert_snapshot!(names(at(State::ChecksFailed)), @"`/rebuild`, `/update-branch`, `/close-and-reopen`, `/cancel`, `/status`, `/explain`, `/hold`, `/resume`, `/approve`");
        insta::assert_snapshot!(names(at(State::Merging)), @"`/merge`, `/update-branch`, `/close-and-reopen`, `/cancel`, `/status`, `/explain`, `/hold`, `/resume`, `/approve`");
        assert_eq!(at(State::Merged).valid_now(), []);
        assert_eq!(at(State::Closed).valid_now(), []);
    }

    #[test]
    fn a_refusal_says_what_happened_and_what_would_work() {
        let refused = |command: Command, situation: Situation| command.is_valid_in(&situation).unwrap_err().to_string();
        insta::assert_snapshot!(refused(Command::Merge, at(State::ChecksFailed)), @"`/merge` needs APPROVED or MERGING, and this pull request is CHECKS_FAILED. What would work now: `/rebuild`, `/update-branch`.");
        insta::assert_snapshot!(refused(Command::Rebuild, at(State::PolicyFailed)), @"`/rebuild` needs CREATED, CHECKS_FAILED or CHECKS_RUNNING with nothing running, and this pull request is POLICY_FAILED. What would work now: `/recheck-policy`, `/recheck-sod`, `/update-branch`.");
        insta::assert_snapshot!(refused(Command::RecheckSod, at(State::Approved)), @"`/recheck-sod` needs POLICY_FAILED, and this pull request is APPROVED. What would work now: `/merge`, `/update-branch`.");
        let busy = Situation { checks_running: true, ..at(State::ChecksRunning) };
        insta::assert_snapshot!(refused(Command::Rebuild, busy), @"`/rebuild` has to wait: checks of this commit are still queued or running. What would work now: `/update-branch`.");
        let stuck = Situation { implied: State::ChecksFailed, ..at(State::NeedsIntervention) };
        insta::assert_snapshot!(refused(Command::Merge, stuck), @"`/merge` needs APPROVED or MERGING, and this pull request is NEEDS_INTERVENTION (its checks and reviews say CHECKS_FAILED). What would work now: `/rebuild`, `/update-branch`.");
        insta::assert_snapshot!(refused(Command::Merge, at(State::Merged)), @"`/merge` needs an open pull request, and this one is merged: nothing is left to do.");
        insta::assert_snapshot!(refused(Command::Status, at(State::Closed)), @"`/status` needs an open pull request, and this one is closed: reopen it first.");
    }

    #[test]
    fn every_refusal_in_an_open_state_offers_something() {
        for command in Command::ALL {
            for state in State::ALL {
                if let Err(refusal @ (Refusal::WrongState { .. } | Refusal::StillRunning { .. })) =
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
        let allowed = |requester: Requester| {
            Command::ALL.into_iter().filter(|command| command.allows(requester).is_ok()).collect::<Vec<_>>()
        };
        let maintainers_only = [Command::CloseAndReopen, Command::Cancel, Command::Approve];
        let ordinary: Vec<Command> = Command::ALL.into_iter().filter(|c| !maintainers_only.contains(c)).collect();
        assert_eq!(ordinary.len(), 10);
        for too_little in [None, Some(Permission::Read), Some(Permission::Triage)] {
            assert_eq!(allowed(Requester::GitHub(too_little)), [], "{too_little:?}");
        }
        assert_eq!(allowed(Requester::GitHub(Some(Permission::Write))), ordinary);
        for enough in [Permission::Maintain, Permission::Admin] {
            assert_eq!(allowed(Requester::GitHub(Some(enough))), Command::ALL);
        }
        assert_eq!(allowed(Requester::Api(Role::Viewer)), []);
        assert_eq!(allowed(Requester::Api(Role::Operator)), ordinary);
        assert_eq!(allowed(Requester::Api(Role::Admin)), Command::ALL);
        let remedies: Vec<Command> = Command::ALL.into_iter().filter(|c| c.strategy().is_some()).collect();
        assert_eq!(allowed(Requester::Reconciler), remedies);
    }

    #[test]
    fn who_may_not_is_told_what_it_takes() {
        let refused = |command: Command, requester: Requester| command.allows(requester).unwrap_err().to_string();
        insta::assert_snapshot!(refused(Command::Rebuild, Requester::GitHub(None)), @"`/rebuild` needs write permission on this repository, and yours is none: ask somebody who has it.");
        insta::assert_snapshot!(refused(Command::Cancel, Requester::GitHub(Some(Permission::Write))), @"`/cancel` needs maintain permission on this repository, and yours is write: ask somebody who has it.");
        insta::assert_snapshot!(refused(Command::Approve, Requester::Api(Role::Operator)), @"`/approve` needs a key with the role admin, and yours is operator: ask somebody who has one.");
        insta::assert_snapshot!(refused(Command::Hold, Requester::Reconciler), @"`/hold` needs a person: the reconciler applies remedies only.");
    }

    #[test]
    fn levels_are_read_as_they_are_written_and_ordered() {
        assert!(Permission::ALL.is_sorted());
        assert!(Role::ALL.is_sorted());
        for permission in Permission::ALL {
            assert_eq!(permission.to_string().parse(), Ok(permission));
            assert_eq!(serde_json::to_string(&permission).unwrap(), format!("\"{permission}\""));
        }
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
        let error = "owner".parse::<Role>().unwrap_err();
        assert_eq!(error.to_string(), "`owner` is not a role: expected viewer, operator or admin");
        let error = "none".parse::<Permission>().unwrap_err();
        assert_eq!(error.to_string(), "`none` is not a permission: expected read, triage, write, maintain or admin");
    }

    #[test]
    fn githubs_answer_is_read_by_role_then_by_its_base() {
        for (role_name, permission, expected) in [
            ("maintain", "write", Some(Permission::Maintain)),
            ("triage", "read", Some(Permission::Triage)),
            ("admin", "admin", Some(Permission::Admin)),
            ("security-engineer", "write", Some(Permission::Write)),
            ("", "read", Some(Permission::Read)),
            ("security-engineer", "none", None),
            ("none", "none", None),
            ("none", "write", None),
            ("Admin", "", None),
        ] {
            assert_eq!(Permission::from_github(role_name, permission), expected, "{role_name} {permission}");
        }
    }
}
