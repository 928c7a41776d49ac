//! Verifies senders by HMAC signature or bearer token. The previous secret is accepted beside the current one during a rotation, and
//! comparisons take constant time.

use std::fmt;

use aws_lc_rs::hmac;
use platform::hash;
/// The signature header that GitHub sends for a body, for tests and fakes.
pub use platform::hash::sign;
use thiserror::Error;

/// The secrets of one sender, current one first.
#[derive(Clone)]
pub struct SenderSecrets(Vec<hmac::Key>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the secret is empty: set the current one, or `current,previous` during a rotation")]
pub struct MissingSecret;

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SignatureError {
    #[error("the signature is missing")]
    Missing,
    #[error("the signature is not `sha256=` and 64 hexadecimal digits")]
    Unreadable,
    #[error("the signature matches neither the current nor the previous secret")]
    Wrong,
    #[error("`bot` is not the name of a bot with a configured secret (policy-bot, approver-bot, automerge-bot)")]
    UnknownBot,
    #[error("the request has neither a signature nor a bearer token")]
    NoCredentials,
    #[error("the header `Authorization` is not `Bearer` and a token")]
    TokenUnreadable,
    #[error("the bearer token is neither the current nor the previous secret")]
    TokenWrong,
}

impl SignatureError {
    /// The code of the response; programs may rely on it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing | Self::Unreadable | Self::Wrong | Self::UnknownBot | Self::NoCredentials => {
                "SIGNATURE_INVALID"
            }
            Self::TokenUnreadable | Self::TokenWrong => "TOKEN_INVALID",
        }
    }
}

impl fmt::Debug for SenderSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SenderSecrets({})", self.0.len())
    }
}

impl SenderSecrets {
    /// Parses `current` or `current,previous`. Empty secrets are errors, because anyone could sign with them.
    pub fn parse(text: &str) -> Result<Self, MissingSecret> {
        let keys: Vec<hmac::Key> = text
            .split(',')
            .map(str::trim)
            .filter(|secret| !secret.is_empty())
            .map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
            .collect();
        if keys.is_empty() { Err(MissingSecret) } else { Ok(Self(keys)) }
    }

    /// Checks the header `X-Hub-Signature-256` against the body.
    pub fn check_signature(&self, body: &[u8], header: Option<&str>) -> Result<(), SignatureError> {
        let header = header.ok_or(SignatureError::Missing)?;
        let tag = header.strip_prefix("sha256=").and_then(hash::unhex).ok_or(SignatureError::Unreadable)?;
        self.check_tag(body, &tag)
    }

    /// Checks that the header `Authorization` has one of the secrets, for senders that cannot sign.
    pub fn check_bearer(&self, header: Option<&str>) -> Result<(), SignatureError> {
        let header = header.ok_or(SignatureError::NoCredentials)?;
        let presented = header.strip_prefix("Bearer ").ok_or(SignatureError::TokenUnreadable)?;
        let presented = hmac::Key::new(hmac::HMAC_SHA256, presented.trim().as_bytes());
        // Compares signatures of a fixed text, so that the time depends on neither length nor content of the secrets.
        let is_secret = self.check_tag(b"suture", hmac::sign(&presented, b"suture").as_ref());
        is_secret.map_err(|_| SignatureError::TokenWrong)
    }

    fn check_tag(&self, body: &[u8], tag: &[u8]) -> Result<(), SignatureError> {
        hash::matching(self.0.iter().map(|key| (hmac::sign(key, body), ())), tag).ok_or(SignatureError::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn check(secrets: &str, body: &[u8], header: &str) -> Result<(), SignatureError> {
        SenderSecrets::parse(secrets).unwrap().check_signature(body, Some(header))
    }

    #[test]
    fn example_from_github_docs_is_accepted() {
        assert_eq!(check(SECRET, BODY, SIGNATURE), Ok(()));
        assert_eq!(sign(SECRET, BODY), SIGNATURE);
        assert_eq!(check(SECRET, BODY, &SIGNATURE.replace('e', "E")), Ok(()));
    }

    #[test]
    fn any_flipped_bit_is_rejected() {
        for at in 0..BODY.len() * 8 {
            let mut body = BODY.to_vec();
            body[at / 8] ^= 1 << (at % 8);
            assert_eq!(check(SECRET, &body, SIGNATURE), Err(SignatureError::Wrong), "bit {at} of the body");
        }
        let tag = hash::unhex(&SIGNATURE[7..]).unwrap();
        for at in 0..256 {
            let mut tag = tag;
            tag[at / 8] ^= 1 << (at % 8);
            let header = format!("sha256={}", hash::hex(&tag));
            assert_eq!(check(SECRET, BODY, &header), Err(SignatureError::Wrong), "bit {at} of the signature");
        }
        // In the header's text a flipped bit may produce another digit, an invalid digit, or only another case.
        for at in 0..SIGNATURE.len() * 8 {
            let mut header = SIGNATURE.as_bytes().to_vec();
            header[at / 8] ^= 1 << (at % 8);
            let Ok(header) = String::from_utf8(header) else { continue };
            let same = header[..7] == SIGNATURE[..7] && header.eq_ignore_ascii_case(SIGNATURE);
            assert_eq!(check(SECRET, BODY, &header).is_ok(), same, "{header}");
        }
        for at in 0..SECRET.len() * 8 {
            let mut secret = SECRET.as_bytes().to_vec();
            secret[at / 8] ^= 1 << (at % 8);
            let Ok(secret) = String::from_utf8(secret) else { continue };
            assert_ne!(check(&secret, BODY, SIGNATURE), Ok(()), "bit {at} of the secret");
        }
    }

    #[test]
    fn current_and_previous_secret_are_accepted() {
        for both in ["new,It's a Secret to Everybody", "It's a Secret to Everybody , old"] {
            assert_eq!(check(both, BODY, SIGNATURE), Ok(()), "{both}");
        }
        assert_eq!(check("new,newer", BODY, SIGNATURE), Err(SignatureError::Wrong));
    }

    #[test]
    fn malformed_signatures_are_unreadable() {
        let secrets = SenderSecrets::parse(SECRET).unwrap();
        assert_eq!(secrets.check_signature(BODY, None), Err(SignatureError::Missing));
        let sha1 = SIGNATURE.replace("sha256=", "sha1=");
        for bad in ["", "sha256=", "sha256=zz", &sha1, &SIGNATURE[7..], &SIGNATURE[..70], &format!("{SIGNATURE}0"), "é"]
        {
            assert_eq!(secrets.check_signature(BODY, Some(bad)), Err(SignatureError::Unreadable), "{bad}");
        }
        let other = format!("sha256={}", "g".repeat(64));
        assert_eq!(secrets.check_signature(BODY, Some(&other)), Err(SignatureError::Unreadable));
    }

    #[test]
    fn bearer_token_must_match_a_secret() {
        let secrets = SenderSecrets::parse("now,before").unwrap();
        assert_eq!(secrets.check_bearer(Some("Bearer now")), Ok(()));
        assert_eq!(secrets.check_bearer(Some("Bearer before ")), Ok(()));
        for wrong in ["Bearer nov", "Bearer ", "Bearer now,before", "Bearer now2"] {
            assert_eq!(secrets.check_bearer(Some(wrong)), Err(SignatureError::TokenWrong), "{wrong}");
        }
        assert_eq!(secrets.check_bearer(Some("now")), Err(SignatureError::TokenUnreadable));
        assert_eq!(secrets.check_bearer(None), Err(SignatureError::NoCredentials));
    }

    #[test]
    fn empty_secret_is_an_error_and_debug_shows_none() {
        for none in ["", " ", ",", " , "] {
            assert_eq!(SenderSecrets::parse(none).unwrap_err(), MissingSecret, "{none:?}");
        }
        assert_eq!(format!("{:?}", SenderSecrets::parse("a,b").unwrap()), "SenderSecrets(2)");
    }
}
