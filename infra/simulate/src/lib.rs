//! Simulates Suture: the four functions' own code around fakes, in virtual time, with injected faults. Everything follows from
//! a seed; invariants are checked after every write.
//!
//! `simulation` runs one seed; `cluster` runs the functions as processes; `fault_injection` is where a call leaves its process,
//! takes time and fails; `invariants` and `budget_model` check what happens, `final_checks` how it ended; `users` and
//! `dashboard_users` are people; `report` counts. [`replay`] applies another configuration to recorded events.

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
