//! The commands that people and the reconciler can send, in one list: name, help, valid states, permission, strategy.
//! `grammar` parses comments, `validity` decides whether a command is allowed now, `message` is the queue format. The
//! target of a command is in `bus`, its effect in `remedy`.

mod grammar;
mod message;
mod validity;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use grammar::{ARGS_MAX_CHARS, BODY_MAX_BYTES, PER_COMMENT_MAX, ParsedCommand, parse};
pub use message::{CommandMessage, CommandSource, MessageVersion, UnknownMessageVersion};
pub use validity::{
    ApiRole, CommandRefusal, CommandRequester, RepoPermission, UnknownPermission, UnknownRole, ValidityContext,
};

use crate::state::{State, Strategy};
use validity::RequiredPermission::{Maintain, Write};
use validity::StateCondition::{IdleIn, In};
use validity::ValidStates::{AnyOpen, Only};
use validity::{RequiredPermission, ValidStates};

/// The properties of one command.
struct CommandSpec {
    name: &'static str,
    help: &'static str,
    valid_in: ValidStates,
    needs: RequiredPermission,
    destructive: bool,
    strategy: Option<Strategy>,
}

/// Generates the enum, `ALL` and the specs from the list below, so that an incomplete entry does not compile and no
/// command can be missing from `ALL`.
macro_rules! commands {
    ($($variant:ident {
        name: $name:literal,
        help: $help:literal,
        valid_in: $valid_in:expr,
        needs: $needs:expr,
        destructive: $destructive:literal,
        strategy: $strategy:expr,
    })*) => {
        /// A command on a pull request (R-CMD-1).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum Command {
            $(#[doc = $help] $variant,)*
        }

        impl Command {
            const COUNT: usize = [$(Self::$variant),*].len();

            /// All commands, in help order.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),*];

            fn spec(self) -> CommandSpec {
                match self {
                    $(Self::$variant => CommandSpec {
                        name: $name,
                        help: $help,
                        valid_in: $valid_in,
                        needs: $needs,
                        destructive: $destructive,
                        strategy: $strategy,
                    },)*
                }
            }
        }
    };
}

commands! {
    Rebuild {
        name: "/rebuild",
        help: "Runs the Jenkins build again.",
        valid_in: Only(&[In(State::Created), In(State::ChecksFailed), IdleIn(State::ChecksRunning)]),
        needs: Write,
        destructive: false,
        strategy: Some(Strategy::Rebuild),
    }
    RecheckPolicy {
        name: "/recheck-policy",
        help: "Asks Policy Bot to evaluate again.",
        // Not POLICY_PASSED: no transition leads back from there, and the next step is `/recheck-approval`.
        valid_in: Only(&[In(State::ChecksPassed), In(State::PolicyEvaluating), In(State::PolicyFailed)]),
        needs: Write,
        destructive: false,
        strategy: Some(Strategy::RetriggerPolicyBot),
    }
    RecheckSod {
        name: "/recheck-sod",
        help: "Requests only the separation-of-duties check again.",
        valid_in: Only(&[In(State::PolicyFailed)]),
        needs: Write,
        destructive: false,
        strategy: Some(Strategy::RetriggerSodCheck),
    }
    RecheckApproval {
        name: "/recheck-approval",
        help: "Asks Approver Bot to review again.",
        valid_in: Only(&[In(State::PolicyPassed)]),
        needs: Write,
        destructive: false,
        strategy: Some(Strategy::RetriggerApproverBot),
    }
    Merge {
        name: "/merge",
        help: "Asks Automerge Bot to merge.",
        valid_in: Only(&[In(State::Approved), In(State::Merging)]),
        needs: Write,
        destructive: false,
        strategy: Some(Strategy::RetriggerAutomergeBot),
    }
    UpdateBranch {
        name: "/update-branch",
        help: "Merges the base branch into this branch.",
        valid_in: AnyOpen,
        needs: Write,
        destructive: false,
        strategy: Some(Strategy::BranchUpdate),
    }
    CloseAndReopen {
        name: "/close-and-reopen",
        help: "Closes this pull request and asks CodeGenie for a new one.",
        valid_in: AnyOpen,
        needs: Maintain,
        destructive: true,
        strategy: Some(Strategy::CloseAndReopen),
    }
    Cancel {
        name: "/cancel",
        help: "Closes this pull request permanently: Suture never requests another one for its vulnerability.",
        valid_in: AnyOpen,
        needs: Maintain,
        destructive: true,
        strategy: None,
    }
    Status {
        name: "/status",
        help: "Replies with the state of this pull request.",
        valid_in: AnyOpen,
        needs: Write,
        destructive: false,
        strategy: None,
    }
    Explain {
        name: "/explain",
        help: "Replies with the diagnosis, its evidence and the next step.",
        valid_in: AnyOpen,
        needs: Write,
        destructive: false,
        strategy: None,
    }
    Hold {
        name: "/hold",
        help: "Stops Suture from acting on this pull request until `/resume`.",
        valid_in: AnyOpen,
        needs: Write,
        destructive: false,
        strategy: None,
    }
    Resume {
        name: "/resume",
        help: "Ends a `/hold`, or lets Suture try an escalated pull request again with its budgets reset.",
        valid_in: AnyOpen,
        needs: Write,
        destructive: false,
        strategy: None,
    }
    Approve {
        name: "/approve",
        help: "Approves a remedy that is waiting for approval.",
        valid_in: AnyOpen,
        needs: Maintain,
        destructive: false,
        strategy: None,
    }
}

impl Command {
    /// The command as people type it, slash included.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// One line about the effect of the command.
    pub fn help(self) -> &'static str {
        self.spec().help
    }

    /// The remedy that the command requests, if any.
    pub fn strategy(self) -> Option<Strategy> {
        self.spec().strategy
    }

    /// Whether the command closes the pull request, so that the dashboard asks for confirmation.
    pub fn is_destructive(self) -> bool {
        self.spec().destructive
    }

    /// Whether the command closes, merges or approves. Suture executes it only within an hour: a lost webhook is
    /// redelivered for three days, and what was right then may be wrong now (R-CMD-16).
    pub fn must_be_recent(self) -> bool {
        matches!(self, Self::CloseAndReopen | Self::Cancel | Self::Merge | Self::Approve)
    }

    /// The command with which the reconciler requests this remedy; it takes the same path as a person's command.
    pub fn for_strategy(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Rebuild => Self::Rebuild,
            Strategy::BranchUpdate => Self::UpdateBranch,
            Strategy::RetriggerPolicyBot => Self::RecheckPolicy,
            Strategy::RetriggerApproverBot => Self::RecheckApproval,
            Strategy::RetriggerAutomergeBot => Self::Merge,
            Strategy::RetriggerSodCheck => Self::RecheckSod,
            Strategy::CloseAndReopen => Self::CloseAndReopen,
        }
    }

    /// Parses a bare name, as in the admin API's `{"command": "/rebuild"}`. Comments go through [`parse`].
    ///
    /// Fails with [`UnknownCommand`], which names the nearest command and lists all of them.
    pub fn parse_name(text: &str) -> Result<Self, UnknownCommand> {
        let word = text.trim();
        Self::named(word)
            .ok_or_else(|| UnknownCommand { word: sanitized(word), nearest: grammar::nearest(word).map(Self::name) })
    }

    /// The command with this name, ignoring case.
    fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.name().eq_ignore_ascii_case(word))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl TryFrom<String> for Command {
    type Error = UnknownCommand;

    fn try_from(text: String) -> Result<Self, UnknownCommand> {
        Self::parse_name(&text)
    }
}

impl From<Command> for &'static str {
    fn from(command: Command) -> Self {
        command.name()
    }
}

/// A word that is not a command. The message lists all commands, because the sender has no help at hand.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{word}` is not a command{}. The commands are: {}.", self.hint(), code_list(&Command::ALL))]
pub struct UnknownCommand {
    /// The word as typed, shortened and sanitized.
    pub word: String,
    /// The name of the most similar command.
    pub nearest: Option<&'static str>,
}

impl UnknownCommand {
    fn hint(&self) -> String {
        self.nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
    }
}

/// How many characters of an unknown word an error repeats.
const ECHO_MAX_CHARS: usize = 40;

/// Shortens input for an error message and replaces control characters and backticks.
fn sanitized(word: &str) -> String {
    let replaced = |c: char| if c.is_control() || c == '`' { '?' } else { c };
    word.chars().take(ECHO_MAX_CHARS).map(replaced).collect()
}

/// `` `/a`, `/b` ``
fn code_list(commands: &[Command]) -> String {
    commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_list_matches_this_table() {
        let rendered: String = Command::ALL
            .into_iter()
            .map(|c| {
                let strategy = c.strategy().map_or("-", Strategy::name);
                let destructive = if c.is_destructive() { "destructive" } else { "-" };
                format!("{:<18}{:<10}{:<10}{strategy:<25}{destructive}\n", c.name(), c.permission(), c.role())
            })
            .collect();
        insta::assert_snapshot!(rendered, @"
        /rebuild          write     operator  rebuild                  -
        /recheck-policy   write     operator  retrigger_policy_bot     -
        /recheck-sod      write     operator  retrigger_sod_check      -
        /recheck-approval write     operator  retrigger_approver_bot   -
        /merge            write     operator  retrigger_automerge_bot  -
        /update-branch    write     operator  branch_update            -
        /close-and-reopen maintain  admin     close_and_reopen         destructive
        /cancel           maintain  admin     -                        destructive
        /status           write     operator  -                        -
        /explain          write     operator  -                        -
        /hold             write     operator  -                        -
        /resume           write     operator  -                        -
        /approve          maintain  admin     -                        -
        ");
    }

    #[test]
    fn every_strategy_has_exactly_one_command() {
        for strategy in Strategy::ALL {
            assert_eq!(Command::for_strategy(strategy).strategy(), Some(strategy));
        }
        let with_strategy = Command::ALL.into_iter().filter(|c| c.strategy().is_some()).count();
        assert_eq!(with_strategy, Strategy::ALL.len());
    }

    #[test]
    fn names_are_unique_and_equal_in_json_and_display() {
        let names: std::collections::BTreeSet<&str> = Command::ALL.into_iter().map(Command::name).collect();
        assert_eq!(names.len(), Command::ALL.len());
        for command in Command::ALL {
            assert_eq!(command.to_string(), command.name());
            let json = serde_json::to_string(&command).unwrap();
            assert_eq!(json, format!("\"{}\"", command.name()));
            assert_eq!(serde_json::from_str::<Command>(&json).unwrap(), command);
        }
    }

    #[test]
    fn name_is_parsed_trimmed_and_ignoring_case() {
        for text in ["/close-and-reopen", " /Close-And-Reopen\n", "\t/CLOSE-AND-REOPEN"] {
            assert_eq!(Command::parse_name(text), Ok(Command::CloseAndReopen), "{text:?}");
        }
        for text in ["rebuild", "/rebuild now", "/", "", "//rebuild", "/rebuild."] {
            assert!(Command::parse_name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn unknown_name_error_has_the_nearest_command_and_the_list() {
        insta::assert_snapshot!(Command::parse_name("/Rebuid").unwrap_err(), @"`/Rebuid` is not a command (did you mean `/rebuild`?). The commands are: `/rebuild`, `/recheck-policy`, `/recheck-sod`, `/recheck-approval`, `/merge`, `/update-branch`, `/close-and-reopen`, `/cancel`, `/status`, `/explain`, `/hold`, `/resume`, `/approve`.");
        insta::assert_snapshot!(Command::parse_name("dance").unwrap_err(), @"`dance` is not a command. The commands are: `/rebuild`, `/recheck-policy`, `/recheck-sod`, `/recheck-approval`, `/merge`, `/update-branch`, `/close-and-reopen`, `/cancel`, `/status`, `/explain`, `/hold`, `/resume`, `/approve`.");
        assert_eq!(Command::parse_name("rebuild").unwrap_err().nearest, Some("/rebuild"));
        let error = serde_json::from_str::<Command>("\"/rebuid\"").unwrap_err();
        assert!(error.to_string().contains("did you mean `/rebuild`?"), "{error}");
    }

    #[test]
    fn unknown_name_is_repeated_shortened_and_sanitized() {
        let error = Command::parse_name(&"é".repeat(41)).unwrap_err();
        assert_eq!(error.word, "é".repeat(40));
        assert_eq!(Command::parse_name("a`b\nc\u{7}d").unwrap_err().word, "a?b?c?d");
    }
}
