//! The environment: wiring variables and the configuration file. Read once, when a function starts, so that what is missing is
//! said then and not on the first webhook. What only one function needs is in that function's `config.rs`.

use std::fs;

use domain::policy::{Policies, PolicyError};
use http::Uri;
use thiserror::Error;

use crate::secrets::BadSecret;
use crate::telemetry::{self, Log};

/// What is wrong with the environment, for whoever has set it.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("{0} is not set")]
    Missing(&'static str),
    #[error("{name} is not usable: {why}")]
    Invalid { name: &'static str, why: String },
    #[error("SUTURE_CONFIG: {path} cannot be read: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("SUTURE_CONFIG: {0}")]
    Configuration(#[from] PolicyError),
    #[error(transparent)]
    Secret(#[from] BadSecret),
}

impl ConfigError {
    /// This variable is set to something that cannot be used.
    pub fn invalid(name: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Invalid { name, why: why.to_string() }
    }
}

/// Where values come from: the process's environment, one with secrets resolved, or a test's.
pub trait Environment {
    /// The value of a variable, if it is set and not empty.
    fn get(&self, name: &str) -> Option<String>;

    /// The value of a variable that must be set.
    fn required(&self, name: &'static str) -> Result<String, ConfigError> {
        self.get(name).ok_or(ConfigError::Missing(name))
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnv;

impl Environment for ProcessEnv {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.trim().is_empty())
    }
}

/// The policies: of the file that `SUTURE_CONFIG` names, or the defaults.
pub fn policies(environment: &impl Environment) -> Result<Policies, ConfigError> {
    let Some(path) = environment.get("SUTURE_CONFIG") else {
        return Ok(Policies::default());
    };
    let text = fs::read_to_string(&path).map_err(|source| ConfigError::Unreadable { path, source })?;
    Ok(Policies::parse(&text)?)
}

/// The log on standard output, with metrics in the namespace of this deployment.
pub fn log(environment: &impl Environment) -> Log {
    let namespace = environment.get("SUTURE_METRICS_NAMESPACE");
    Log::stdout().in_namespace(namespace.as_deref().unwrap_or(telemetry::NAMESPACE))
}

/// An address like `https://example.org`, without a slash at its end.
pub fn url(name: &'static str, text: &str) -> Result<Uri, ConfigError> {
    let url: Result<Uri, _> = text.trim().trim_end_matches('/').parse();
    let url = url.map_err(|error| ConfigError::invalid(name, error))?;
    if url.scheme().is_none() || url.authority().is_none() {
        return Err(ConfigError::invalid(name, format!("`{text}` is not an address like https://example.org")));
    }
    Ok(url)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl Environment for BTreeMap<&str, &str> {
        fn get(&self, name: &str) -> Option<String> {
            BTreeMap::get(self, name).map(|value| (*value).to_owned())
        }
    }

    #[test]
    fn a_configuration_file_is_optional_but_must_be_readable() {
        assert_eq!(policies(&BTreeMap::new()).unwrap(), Policies::default());
        let set = BTreeMap::from([("SUTURE_CONFIG", "no/such/file")]);
        assert!(policies(&set).unwrap_err().to_string().contains("no/such/file cannot be read"));
    }

    #[test]
    fn a_missing_variable_is_named() {
        let error = BTreeMap::new().required("SUTURE_STATE_TABLE").unwrap_err();
        assert_eq!(error.to_string(), "SUTURE_STATE_TABLE is not set");
    }
}
