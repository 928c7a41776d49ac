//! Builds the GitHub and Jenkins clients from the environment.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tracing::error;

use crate::clock::SystemClock;
use crate::env::{self, ConfigError, Environment};
use crate::github::{self, Credentials, GitHub};
use crate::jenkins::{self, Jenkins, JenkinsLogin};
use crate::secrets::{SecretEnv, SecretRefresher};
use crate::transport::Transport;

/// GitHub and Jenkins, with credentials that are refreshed when their secrets rotate.
#[derive(Debug)]
pub struct Clients {
    pub github: GitHub,
    /// Set if Jenkins is configured.
    pub jenkins: Option<Jenkins>,
    credentials: SecretRefresher<Credentials>,
    login: SecretRefresher<JenkinsLogin>,
}

impl Clients {
    /// Connects both. If one of them rejects the credentials, the secrets are refreshed.
    pub fn connect(secret_env: &Arc<SecretEnv>) -> Result<Self, ConfigError> {
        Self::connect_with(secret_env, github::GitHubSettings::default())
    }

    fn connect_with(secret_env: &Arc<SecretEnv>, settings: github::GitHubSettings) -> Result<Self, ConfigError> {
        let (mut github, mut jenkins) = (github_with(&**secret_env, settings)?, jenkins(&**secret_env)?);
        let credentials = SecretRefresher::new(secret_env, Timestamp::now, |env| usable(credentials(env)));
        let login = SecretRefresher::new(secret_env, Timestamp::now, |env| usable(login(env)));
        github.set_credential_refresh(credentials.clone());
        if let Some(jenkins) = &mut jenkins {
            jenkins.set_login_refresh(login.clone());
        }
        Ok(Self { github, jenkins, credentials, login })
    }

    /// For the admin API: `None` without GitHub credentials, and short waits for mergeability, because a user and API Gateway are waiting.
    pub fn connect_if_set(secret_env: &Arc<SecretEnv>) -> Result<Option<Self>, ConfigError> {
        let mergeable_pauses = [2, 4].map(Duration::from_secs).to_vec();
        let interactive = github::GitHubSettings { repeats: 1, mergeable_pauses, ..github::GitHubSettings::default() };
        match Self::connect_with(secret_env, interactive) {
            Ok(clients) => Ok(Some(clients)),
            Err(ConfigError::Missing("SUTURE_GITHUB_TOKEN")) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Refreshes the credentials if the secrets are stale. Called once per invocation.
    pub async fn refresh_if_stale(&self, now: Timestamp) {
        if let Some(credentials) = self.credentials.refresh_if_stale(now).await {
            self.github.use_credentials(&credentials);
        }
        if let Some(jenkins) = &self.jenkins
            && let Some(login) = self.login.refresh_if_stale(now).await
        {
            jenkins.use_login(login);
        }
    }
}

/// Keeps the old credentials if the rotated secret is invalid.
fn usable<T>(parsed: Result<T, ConfigError>) -> Option<T> {
    parsed.inspect_err(|error| error!(%error, "rotated secret is invalid; keeping the old one")).ok()
}

/// GitHub credentials: an App, or a token.
pub fn credentials(environment: &impl Environment) -> Result<Credentials, ConfigError> {
    Ok(match (environment.get("SUTURE_GITHUB_APP_ID"), environment.get("SUTURE_GITHUB_PRIVATE_KEY")) {
        (Some(id), Some(key)) => {
            let id = app_id(&id)?;
            Credentials::app(id, &key).map_err(|error| ConfigError::invalid("SUTURE_GITHUB_PRIVATE_KEY", error))?
        }
        (Some(_), None) => return Err(ConfigError::Missing("SUTURE_GITHUB_PRIVATE_KEY")),
        (None, _) => Credentials::token(&environment.required("SUTURE_GITHUB_TOKEN")?),
    })
}

pub fn github(environment: &impl Environment) -> Result<GitHub, ConfigError> {
    github_with(environment, github::GitHubSettings::default())
}

fn github_with(environment: &impl Environment, mut settings: github::GitHubSettings) -> Result<GitHub, ConfigError> {
    let credentials = credentials(environment)?;
    if let Some(url) = environment.get("SUTURE_GITHUB_API_URL") {
        settings.base_url = env::url("SUTURE_GITHUB_API_URL", &url)?;
    }
    let https = Transport::https().map_err(|error| ConfigError::invalid("SUTURE_GITHUB_API_URL", error))?;
    Ok(GitHub::with_service(&credentials, settings, https, Arc::new(SystemClock)))
}

/// The Jenkins client, if `SUTURE_JENKINS_URL` is set.
pub fn jenkins(environment: &impl Environment) -> Result<Option<Jenkins>, ConfigError> {
    let Some(url) = environment.get("SUTURE_JENKINS_URL") else { return Ok(None) };
    let settings = jenkins::JenkinsSettings::new(env::url("SUTURE_JENKINS_URL", &url)?);
    let https = Transport::https().map_err(|error| ConfigError::invalid("SUTURE_JENKINS_URL", error))?;
    Ok(Some(Jenkins::with_service(login(environment)?, settings, https, Arc::new(SystemClock))))
}

pub fn login(environment: &impl Environment) -> Result<JenkinsLogin, ConfigError> {
    let user = environment.required("SUTURE_JENKINS_USER")?;
    Ok(JenkinsLogin::Token { user, token: environment.required("SUTURE_JENKINS_TOKEN")? })
}

pub fn app_id(text: &str) -> Result<u64, ConfigError> {
    text.trim().parse().map_err(|_| ConfigError::invalid("SUTURE_GITHUB_APP_ID", "it must be a number"))
}
