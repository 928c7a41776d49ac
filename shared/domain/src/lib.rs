//! Suture's pure core: (record, fact, now) → decision.
pub mod id;
pub mod state;
