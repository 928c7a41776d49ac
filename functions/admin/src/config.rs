//! The settings of the admin function: the API keys.

use platform::env::{ConfigError, Environment};

use crate::api_keys::Keys;

/// The API keys of `SUTURE_ADMIN_KEYS`; without any, every request is answered 401.
pub fn keys(environment: &impl Environment) -> Result<Keys, ConfigError> {
    const NAME: &str = "SUTURE_ADMIN_KEYS";
    Keys::parse(&environment.get(NAME).unwrap_or_default()).map_err(|error| ConfigError::invalid(NAME, error))
}
