//! The settings of the admin function: the API keys.

use platform::env::{ConfigError, Environment};

use crate::api_keys::ApiKeys;

/// The API keys of `SUTURE_ADMIN_KEYS`; without any, every request is answered 401.
pub fn keys(environment: &impl Environment) -> Result<ApiKeys, ConfigError> {
    const NAME: &str = "SUTURE_ADMIN_KEYS";
    ApiKeys::parse(&environment.get(NAME).unwrap_or_default()).map_err(|error| ConfigError::invalid(NAME, error))
}
