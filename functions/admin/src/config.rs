//! The settings of this function: who may use the API.

use platform::env::{ConfigError, Environment};

use crate::api_keys::Keys;

/// The keys of the API; none if nothing is set, and then nobody gets in.
pub fn keys(environment: &impl Environment) -> Result<Keys, ConfigError> {
    const NAME: &str = "SUTURE_ADMIN_KEYS";
    Keys::parse(&environment.get(NAME).unwrap_or_default()).map_err(|error| ConfigError::invalid(NAME, error))
}
