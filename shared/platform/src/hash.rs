//! SHA-256 hashes in hexadecimal, used as stable ids.

use aws_lc_rs::digest::{SHA256, digest};

/// A stable id for content without an id of its own.
pub fn hashed(parts: &[&str]) -> String {
    let mut bytes = Vec::new();
    for part in parts {
        // With the length, because ("ab", "c") must differ from ("a", "bc").
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    hash(&bytes)
}

pub fn hash(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
