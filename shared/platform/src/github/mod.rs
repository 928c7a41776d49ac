//! GitHub, as Suture hears it.

pub mod webhook;
