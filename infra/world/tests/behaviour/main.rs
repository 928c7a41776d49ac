//! The world's behaviour, through its public surface only.

mod asking;
mod lives;
