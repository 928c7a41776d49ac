//! A private key for the GitHub App that the fake GitHub knows.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// A new RSA key in PEM form.
///
/// # Errors
/// If this machine has no source of randomness.
pub fn private_key() -> Result<String, aws_lc_rs::error::Unspecified> {
    let key = KeyPair::generate(KeySize::Rsa2048)?;
    let der: Pkcs8V1Der<'static> = key.as_der()?;
    let body = BASE64_STANDARD.encode(der.as_ref());
    Ok(format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"))
}
