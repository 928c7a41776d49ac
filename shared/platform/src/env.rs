//! Settings from environment variables and from the configuration file. Each function reads them once, at startup, so that a missing
//! setting fails the deployment and not the first request. Settings of a single function are in that function's `config.rs`.

use std::{fmt, fs};

use domain::policy::{GithubUrl, Policies, PolicyError, is_secure_url};
use http::Uri;
use thiserror::Error;

use crate::secrets::SecretError;
use crate::telemetry::{self, MetricLog};

/// A setting that is missing or invalid. `Debug` prints the same sentence as `Display`: a `main` that returns the error prints it with
/// `Debug`, and the operator needs the sentence.
#[derive(Error)]
pub enum ConfigError {
    #[error("{} is not set: {}", .0, fix_for(.0))]
    Missing(&'static str),
    #[error("{name} is invalid: {why}")]
    Invalid { name: &'static str, why: String },
    #[error("SUTURE_CONFIG: {path} cannot be read: {source}; correct the path or the file's permissions")]
    Unreadable { path: String, source: std::io::Error },
    #[error("SUTURE_CONFIG: {0}")]
    Configuration(#[from] PolicyError),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn fix_for(name: &str) -> &'static str {
    if name.starts_with("AWS_") {
        "Lambda sets it; elsewhere, export it yourself"
    } else {
        "set this environment variable (docs/settings.md)"
    }
}

impl ConfigError {
    /// The variable has a value that cannot be used.
    pub fn invalid(name: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Invalid { name, why: why.to_string() }
    }
}

/// A source of environment variables: the process, the process with secret references resolved, or a test.
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

/// Loads the policies from the file that `SUTURE_CONFIG` names, or the defaults if it is not set. Links to pull requests follow
/// `SUTURE_GITHUB_API_URL`.
pub fn policies(environment: &impl Environment) -> Result<Policies, ConfigError> {
    let policies = match environment.get("SUTURE_CONFIG") {
        Some(path) => {
            let text = fs::read_to_string(&path).map_err(|source| ConfigError::Unreadable { path, source })?;
            Policies::parse(&text)?
        }
        None => Policies::default(),
    };
    Ok(match environment.get("SUTURE_GITHUB_API_URL") {
        Some(url) => policies.with_github_url(&GithubUrl::from_api_url(url.trim())),
        None => policies,
    })
}

/// The log on standard output, with metrics in this deployment's namespace.
pub fn log(environment: &impl Environment) -> MetricLog {
    let namespace = environment.get("SUTURE_METRICS_NAMESPACE");
    MetricLog::stdout().in_namespace(namespace.as_deref().unwrap_or(telemetry::NAMESPACE))
}

/// Parses a URL like `https://example.org`; trailing slashes are removed.
pub fn url(name: &'static str, text: &str) -> Result<Uri, ConfigError> {
    let url: Result<Uri, _> = text.trim().trim_end_matches('/').parse();
    let url = url.map_err(|error| ConfigError::invalid(name, error))?;
    if url.scheme().is_none() || url.authority().is_none() {
        return Err(ConfigError::invalid(name, format!("`{text}` is not a URL like https://example.org")));
    }
    if !is_secure_url(text.trim()) {
        let why =
            "others could read and change what is sent; use https:// (http:// only for a server on the same machine)";
        return Err(ConfigError::invalid(name, format!("`{text}` is not encrypted: {why}")));
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
    fn configuration_file_is_optional_but_must_be_readable() {
        assert_eq!(policies(&BTreeMap::new()).unwrap(), Policies::default());
        let set = BTreeMap::from([("SUTURE_CONFIG", "no/such/file")]);
        assert!(policies(&set).unwrap_err().to_string().contains("no/such/file cannot be read"));
    }

    #[test]
    fn links_follow_the_address_of_the_api() {
        let set = BTreeMap::from([("SUTURE_GITHUB_API_URL", "https://ghe.example.org/api/v3")]);
        assert_eq!(policies(&set).unwrap().base().github_url.0, "https://ghe.example.org");
    }

    #[test]
    fn plain_http_is_refused_outside_this_machine() {
        let name = "SUTURE_JENKINS_URL";
        let error = url(name, "http://jenkins.example").unwrap_err().to_string();
        assert!(
            error.starts_with("SUTURE_JENKINS_URL is invalid: `http://jenkins.example` is not encrypted"),
            "{error}"
        );
        for secure in ["https://jenkins.example/ci/", "http://127.0.0.1:8080", " http://localhost:1 "] {
            assert!(url(name, secure).is_ok(), "{secure}");
        }
        assert!(url(name, "jenkins.example").unwrap_err().to_string().contains("is not a URL"));
    }

    #[test]
    fn missing_variable_is_named_with_its_fix() {
        let error = BTreeMap::new().required("SUTURE_STATE_TABLE").unwrap_err();
        let sentence = "SUTURE_STATE_TABLE is not set: set this environment variable (docs/settings.md)";
        assert_eq!(error.to_string(), sentence);
        let main_prints: Box<dyn std::error::Error + Send + Sync> = error.into();
        assert_eq!(format!("{main_prints:?}"), sentence);
        assert!(ConfigError::Missing("AWS_REGION").to_string().contains("Lambda sets it"));
    }
}
