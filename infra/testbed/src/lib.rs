//! The one harness of the tests and the simulator. [`MemoryStore`] is a store without a database; [`FaultStore`],
//! [`FaultTransport`] and [`RecordingPublisher`] stand between a process and what it calls, and fail as [`Faults`] says;
//! [`ManualClock`] is time that a test moves. [`Testbed`] is all of Suture on these, around the fakes.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::print_stderr,
    reason = "test support may stop when its own setup is wrong"
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

/// The fakes, shared by everything that talks to them.
pub type SharedFakes = Arc<Mutex<fakes::Fakes>>;

/// A test that has panicked still shows what it left behind.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
