//! The harness of the tests and the simulator. [`MemoryStore`] is a store without a database.

mod memory_store;

pub use memory_store::MemoryStore;
