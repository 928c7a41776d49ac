//! The GitHub and Jenkins clients, built from the environment.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tracing::error;

use crate::clock::SystemClock;
use crate::env::{self, ConfigError, Environment};
use crate::github::{self, Credentials, GitHub};
use crate::http::Transport;
use crate::jenkins::{self, Jenkins, Login};
use crate::secrets::{Renewal, Vault};

/// GitHub and Jenkins, with credentials that follow their secrets.
#[derive(Debug)]
pub struct Clients {
    pub github: GitHub,
    /// Jenkins, if there is one.
    pub jenkins: Option<Jenkins>,
    credentials: Renewal<Credentials>,
    login: Renewal<Login>,
}

impl Clients {
    /// Connects both. When one of them does not accept our credentials, the secret is read again.
    ///
    /// # Errors
    /// [`ConfigError`] if what is set is not usable.
    pub fn connect(vault: &Arc<Vault>) -> Result<Self, ConfigError> {
        Self::connect_with(vault, github::Settings::default())
    }

    fn connect_with(vault: &Arc<Vault>, settings: github::Settings) -> Result<Self, ConfigError> {
        let (mut github, mut jenkins) = (github_with(&**vault, settings)?, jenkins(&**vault)?);
        let credentials = Renewal::new(vault, Timestamp::now, |vault| usable(credentials(vault)));
        let login = Renewal::new(vault, Timestamp::now, |vault| usable(login(vault)));
        github.renew_with(credentials.clone());
        if let Some(jenkins) = &mut jenkins {
            jenkins.renew_with(login.clone());
        }
        Ok(Self { github, jenkins, credentials, login })
    }

    /// The same, for who has somebody waiting and can do without: nothing if no credentials for GitHub are set, and whether a
    /// pull request can be merged is not waited for longer than a person, or API Gateway, would.
    ///
    /// # Errors
    /// [`ConfigError`] if what is set is not usable.
    pub fn connect_if_set(vault: &Arc<Vault>) -> Result<Option<Self>, ConfigError> {
        let mergeable_pauses = [2, 4].map(Duration::from_secs).to_vec();
        let hasty = github::Settings { repeats: 1, mergeable_pauses, ..github::Settings::default() };
        match Self::connect_with(vault, hasty) {
            Ok(clients) => Ok(Some(clients)),
            Err(ConfigError::Missing("SUTURE_GITHUB_TOKEN")) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Uses the secrets as they are now, if they were read a while ago. To be called when there is work.
    pub async fn freshen(&self, now: Timestamp) {
        if let Some(credentials) = self.credentials.freshen(now).await {
            self.github.use_credentials(&credentials);
        }
        if let Some(jenkins) = &self.jenkins
            && let Some(login) = self.login.freshen(now).await
        {
            jenkins.use_login(login);
        }
    }
}

/// What a secret was changed to may be nonsense: then the old one is kept, and the log says why.
fn usable<T>(made: Result<T, ConfigError>) -> Option<T> {
    made.inspect_err(|error| error!(%error, "a secret was changed to what cannot be used: the old one is kept")).ok()
}

/// Who we are to GitHub: an App, or somebody with a token.
///
/// # Errors
/// [`ConfigError`] if neither is set, or what is set is not usable.
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

/// GitHub, as an App or with somebody's token.
///
/// # Errors
/// [`ConfigError`] if neither is set, or what is set is not usable.
pub fn github(environment: &impl Environment) -> Result<GitHub, ConfigError> {
    github_with(environment, github::Settings::default())
}

fn github_with(environment: &impl Environment, mut settings: github::Settings) -> Result<GitHub, ConfigError> {
    let credentials = credentials(environment)?;
    if let Some(url) = environment.get("SUTURE_GITHUB_API_URL") {
        settings.base_url = env::url("SUTURE_GITHUB_API_URL", &url)?;
    }
    let https = Transport::https().map_err(|error| ConfigError::invalid("SUTURE_GITHUB_API_URL", error))?;
    Ok(GitHub::with_service(&credentials, settings, https, Arc::new(SystemClock)))
}

/// Jenkins, if there is one.
///
/// # Errors
/// [`ConfigError`] if what is set is not usable.
pub fn jenkins(environment: &impl Environment) -> Result<Option<Jenkins>, ConfigError> {
    let Some(url) = environment.get("SUTURE_JENKINS_URL") else { return Ok(None) };
    let settings = jenkins::Settings::new(env::url("SUTURE_JENKINS_URL", &url)?);
    let https = Transport::https().map_err(|error| ConfigError::invalid("SUTURE_JENKINS_URL", error))?;
    Ok(Some(Jenkins::with_service(login(environment)?, settings, https, Arc::new(SystemClock))))
}

/// Who we are to Jenkins.
pub fn login(environment: &impl Environment) -> Result<Login, ConfigError> {
    let user = environment.required("SUTURE_JENKINS_USER")?;
    Ok(Login::Token { user, token: environment.required("SUTURE_JENKINS_TOKEN")? })
}

/// The id of a GitHub App.
///
/// # Errors
/// [`ConfigError::Invalid`] if it is not a number.
pub fn app_id(text: &str) -> Result<u64, ConfigError> {
    text.trim().parse().map_err(|_| ConfigError::invalid("SUTURE_GITHUB_APP_ID", "it is not a number"))
}
