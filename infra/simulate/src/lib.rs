//! Simulates Suture: the production code of the four functions, connected to the fakes, in virtual time, with injected faults. A
//! seed determines the whole run; invariants are checked after every write.
//!
//! `simulation` runs one seed; `cluster` runs the functions as processes; `fault_injection` delays and fails the outgoing calls of
//! a process; `invariants` and `budget_model` check every write and effect, `final_checks` the final state; `users` and
//! `dashboard_users` simulate people; `report` holds the results. [`replay`] applies another configuration to recorded events.

mod budget_model;
mod cluster;
mod command_line;
mod dashboard_users;
mod fault_injection;
mod faults;
mod final_checks;
mod invariants;
pub mod queue;
pub mod replay;
mod report;
mod rng;
mod shared_state;
mod simulation;
mod users;

pub use command_line::{SeedRequest, SimulateArguments, run, run_seeds};
pub use dashboard_users::DashboardAction;
pub use fault_injection::{CrashPoint, FunctionName, InjectedBug};
pub use faults::{FaultSelection, InternalFault};
pub use invariants::Invariant;
pub use report::SimulationReport;
pub use simulation::{SimConfig, SimResult, run_seed};
