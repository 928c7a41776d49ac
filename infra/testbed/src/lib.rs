//! Test harness, shared by the tests and the simulator. [`MemoryStore`] is an in-memory store; [`FaultStore`], [`FaultTransport`]
//! and [`RecordingPublisher`] wrap the calls of a process and fail them as [`Faults`] says; [`ManualClock`] advances only when a
//! test or a sleep advances it. [`Testbed`] runs Suture on all of these, against the fakes.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::print_stderr,
    reason = "test support panics when its own setup is wrong"
)]

mod clock;
mod fake_access;
mod fault_store;
mod faults;
mod memory_store;
mod publisher;
mod system;
mod transport;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use clock::ManualClock;
pub use fake_access::{FakeAccess, app_credentials};
pub use fault_store::{FaultStore, TestStore};
pub use faults::{CallFault, Faults};
pub use memory_store::MemoryStore;
pub use publisher::RecordingPublisher;
pub use system::{SWEEP_TIMEOUT, Testbed, pr_id, scheduled_sweep};
pub use transport::{FaultTransport, SentRequest};

/// The fakes, shared by all clients.
pub type SharedFakes = Arc<Mutex<fakes::Fakes>>;

/// Ignores poisoning: after a panic, the state is still readable for the failure message.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
