//! Seeds that once failed, each named for what went wrong.
