//! SHA-256 hashes in hexadecimal, used as stable ids, signatures, and the comparison of secrets in constant time.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;

/// A stable id for content without an id of its own.
pub fn stable_id(parts: &[&str]) -> String {
    let mut bytes = Vec::new();
    for part in parts {
        // With the length, because ("ab", "c") must differ from ("a", "bc").
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    hash(&bytes)
}

pub fn hash(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// 32 bytes from 64 hexadecimal digits, of either case.
#[must_use]
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(0)? << 4 | digit(1)?;
    }
    Some(bytes)
}

/// The signature of a body in the form of GitHub's `X-Hub-Signature-256`: `sha256=` and the HMAC-SHA256.
pub fn sign(secret: &str, body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body);
    format!("sha256={}", hex(tag.as_ref()))
}

/// Which of these hashes is the shown one. Each is compared in constant time, and all of them are, so that it does not show which
/// one fitted, nor how far.
pub fn matching<H: AsRef<[u8]>, T>(known: impl IntoIterator<Item = (H, T)>, shown: &[u8]) -> Option<T> {
    let fits = |hash: &H| verify_slices_are_equal(hash.as_ref(), shown).is_ok();
    known.into_iter().filter(|(hash, _)| fits(hash)).last().map(|(_, whose)| whose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_as_it_is_written() {
        let bytes: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 8 + 5).unwrap());
        let text = hex(&bytes);
        assert_eq!(&text[..8], "050d151d");
        assert_eq!((unhex(&text), unhex(&text.to_uppercase())), (Some(bytes), Some(bytes)));
        for bad in ["", &text[1..], &format!("{text}0"), &text.replace('d', "g"), &"é".repeat(32)] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
        assert!(hash(b"").starts_with("e3b0c44298fc1c14"));
    }

    #[test]
    fn only_the_same_hash_matches_wherever_it_stands() {
        let known = || [([1; 32], "a"), ([2; 32], "b"), ([3; 32], "c")];
        for (byte, whose) in [(1, Some("a")), (2, Some("b")), (3, Some("c")), (4, None)] {
            assert_eq!(matching(known(), &[byte; 32]), whose);
        }
        assert_eq!((matching(known(), &[1; 31]), matching(known(), &[])), (None, None));
        // Both are asked; whose it is, the last one says.
        assert_eq!(matching([([1], "a"), ([1], "b")], &[1]), Some("b"));
    }
}
