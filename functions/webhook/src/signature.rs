//! Who may tell us something: whoever knows the secret. Secrets rotate, so there are two, the current and the previous one,
//! and every comparison takes the same time whatever is compared.

use std::fmt;

use aws_lc_rs::hmac;
use platform::hash;
use thiserror::Error;

/// The secrets of one sender: the current one, then the previous ones.
#[derive(Clone)]
pub struct SenderSecrets(Vec<hmac::Key>);

/// There is no secret, so nobody could be told from anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("there is no secret: give the current one, or `current,previous` while it rotates")]
pub struct MissingSecret;

/// Why a message is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// It says nothing about who sent it.
    #[error("it is not signed")]
    Missing,
    /// What it says is not `sha256=` and 64 hexadecimal digits.
    #[error("its signature is not `sha256=` and 64 hexadecimal digits")]
    Unreadable,
    /// It was not made with any of the configured secrets.
    #[error("its signature fits neither the current nor the previous secret")]
    Wrong,
}

impl fmt::Debug for SenderSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl SenderSecrets {
    /// Reads `current` or `current,previous`.
    ///
    /// # Errors
    /// [`MissingSecret`] if there is none: an empty secret would let everybody in.
    pub fn parse(text: &str) -> Result<Self, MissingSecret> {
        let keys: Vec<hmac::Key> = text
            .split(',')
            .map(str::trim)
            .filter(|secret| !secret.is_empty())
            .map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
            .collect();
        if keys.is_empty() { Err(MissingSecret) } else { Ok(Self(keys)) }
    }

    /// Whether the header `X-Hub-Signature-256` was made of these bytes with one of the secrets.
    ///
    /// # Errors
    /// [`SignatureError`] says why not.
    pub fn check_signature(&self, body: &[u8], header: Option<&str>) -> Result<(), SignatureError> {
        let header = header.ok_or(SignatureError::Missing)?;
        let tag = header.strip_prefix("sha256=").and_then(hash::unhex).ok_or(SignatureError::Unreadable)?;
        self.any(body, &tag)
    }

    /// Whether the header `Authorization` holds one of the secrets, for senders that cannot sign.
    ///
    /// # Errors
    /// [`SignatureError`] says why not.
    pub fn check_bearer(&self, header: Option<&str>) -> Result<(), SignatureError> {
        let presented =
            header.ok_or(SignatureError::Missing)?.strip_prefix("Bearer ").ok_or(SignatureError::Unreadable)?;
        let presented = hmac::Key::new(hmac::HMAC_SHA256, presented.trim().as_bytes());
        // Both are made into signatures of one text, so that neither length nor content shows in the time it takes.
        self.any(b"suture", hmac::sign(&presented, b"suture").as_ref())
    }

    /// Whether one of the secrets makes this signature of the body.
    fn any(&self, body: &[u8], tag: &[u8]) -> Result<(), SignatureError> {
        hash::matching(self.0.iter().map(|key| (hmac::sign(key, body), ())), tag).ok_or(SignatureError::Wrong)
    }
}

/// The header GitHub would send for this body, for tests and for whoever plays GitHub.
#[must_use]
pub fn sign(secret: &str, body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body);
    format!("sha256={}", hash::hex(tag.as_ref()))
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
    fn githubs_own_example_is_accepted() {
        assert_eq!(check(SECRET, BODY, SIGNATURE), Ok(()));
        assert_eq!(sign(SECRET, BODY), SIGNATURE);
        assert_eq!(check(SECRET, BODY, &SIGNATURE.replace('e', "E")), Ok(()));
    }

    #[test]
    fn no_single_bit_can_be_flipped() {
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
        // Flipped in the text of the header, some bits give other digits, some no digits, and bit 5 only another case.
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
    fn a_secret_rotates() {
        for both in ["new,It's a Secret to Everybody", "It's a Secret to Everybody , old"] {
            assert_eq!(check(both, BODY, SIGNATURE), Ok(()), "{both}");
        }
        assert_eq!(check("new,newer", BODY, SIGNATURE), Err(SignatureError::Wrong));
    }

    #[test]
    fn what_is_no_signature_is_none() {
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
    fn a_secret_may_be_shown_by_those_who_cannot_sign() {
        let secrets = SenderSecrets::parse("now,before").unwrap();
        assert_eq!(secrets.check_bearer(Some("Bearer now")), Ok(()));
        assert_eq!(secrets.check_bearer(Some("Bearer before ")), Ok(()));
        for wrong in ["Bearer nov", "Bearer ", "Bearer now,before", "Bearer now2"] {
            assert_eq!(secrets.check_bearer(Some(wrong)), Err(SignatureError::Wrong), "{wrong}");
        }
        assert_eq!(secrets.check_bearer(Some("now")), Err(SignatureError::Unreadable));
        assert_eq!(secrets.check_bearer(None), Err(SignatureError::Missing));
    }

    #[test]
    fn there_must_be_a_secret_and_it_is_never_shown() {
        for none in ["", " ", ",", " , "] {
            assert_eq!(SenderSecrets::parse(none).unwrap_err(), MissingSecret, "{none:?}");
        }
        assert_eq!(format!("{:?}", SenderSecrets::parse("a,b").unwrap()), "Secrets(2)");
    }
}
