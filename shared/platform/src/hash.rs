//! Ids for what comes without one: SHA-256, in hexadecimal.

use aws_lc_rs::digest::{SHA256, digest};

/// An id for what comes without one: the same content has the same id.
pub fn hashed(parts: &[&str]) -> String {
    let mut bytes = Vec::new();
    for part in parts {
        // The length goes in too: ("ab", "c") is not ("a", "bc").
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    hash(&bytes)
}

pub fn hash(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
