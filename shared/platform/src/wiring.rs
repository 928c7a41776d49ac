//! The environment: which tables, queue, bus and topic a function works with, its secrets and its configuration (design §9).
//! Read once, when a function starts, so that what is missing is said then and not on the first webhook.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use domain::policy::{Policies, PolicyError};
use http::Uri;
use jiff::Timestamp;
use thiserror::Error;
use tracing::error;

use crate::aws;
use crate::github::webhook::Own;
use crate::github::webhook::signature::Secrets;
use crate::github::{self, Credentials, GitHub};
use crate::jenkins::{self, Jenkins, Login};
use crate::keys::Keys;
use crate::outlets::aws::{Addresses, AwsOutlets};
use crate::outlets::dlq::Dlq;
use crate::secrets::{BadSecret, Renewal, Vault};
use crate::store::dynamo::DynamoStore;
use crate::store::dynamo::tables::Names;
use crate::telemetry::{self, Log};

/// What is wrong with the environment, for whoever has set it.
#[derive(Debug, Error)]
pub enum BadWiring {
    /// Something that must be set is not.
    #[error("{0} is not set")]
    Missing(&'static str),
    /// Something is set to what it cannot be.
    #[error("{name} is not usable: {why}")]
    Unusable {
        /// Which.
        name: &'static str,
        /// Why not.
        why: String,
    },
    /// The configuration cannot be read.
    #[error("SUTURE_CONFIG: {path} cannot be read: {source}")]
    Unreadable {
        /// Where it should be.
        path: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// No encrypted connection can be made.
    #[error("no HTTPS: {0}. Install the machine's root certificates (ca-certificates)")]
    NoHttps(String),
    /// The configuration is wrong.
    #[error("SUTURE_CONFIG: {0}")]
    Configuration(#[from] PolicyError),
    /// A secret is not to be had.
    #[error(transparent)]
    Secret(#[from] BadSecret),
}

/// Where values come from: the environment, or a test's.
pub trait Environment {
    /// The value of a variable, if it is set and not empty.
    fn get(&self, name: &str) -> Option<String>;
}

/// The process's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Process;

impl Environment for Process {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.trim().is_empty())
    }
}

fn needed(environment: &impl Environment, name: &'static str) -> Result<String, BadWiring> {
    environment.get(name).ok_or(BadWiring::Missing(name))
}

/// The policies: of the file that `SUTURE_CONFIG` names, or the defaults.
///
/// # Errors
/// [`BadWiring`] if the file cannot be read or is wrong.
pub fn policies(environment: &impl Environment) -> Result<Policies, BadWiring> {
    let Some(path) = environment.get("SUTURE_CONFIG") else {
        return Ok(Policies::default());
    };
    let text = fs::read_to_string(&path).map_err(|source| BadWiring::Unreadable { path, source })?;
    Ok(Policies::parse(&text)?)
}

/// The secrets of a variable, `current` or `current,previous`; `None` if it is not set.
///
/// # Errors
/// [`BadWiring::Unusable`] if it is set to nothing usable.
pub fn secrets(environment: &impl Environment, name: &'static str) -> Result<Option<Secrets>, BadWiring> {
    let Some(text) = environment.get(name) else { return Ok(None) };
    if text.starts_with("secret:") {
        let why = "a reference to Secrets Manager is only understood through `wiring::vault`".to_owned();
        return Err(BadWiring::Unusable { name, why });
    }
    Secrets::parse(&text).map(Some).map_err(|error| BadWiring::Unusable { name, why: error.to_string() })
}

/// Who Suture is on GitHub.
///
/// # Errors
/// [`BadWiring::Unusable`] if the App's id is not a number.
pub fn own(environment: &impl Environment) -> Result<Own, BadWiring> {
    let app_id = environment.get("SUTURE_GITHUB_APP_ID").map(|id| id.trim().parse::<u64>()).transpose();
    let app_id =
        app_id.map_err(|error| BadWiring::Unusable { name: "SUTURE_GITHUB_APP_ID", why: error.to_string() })?;
    Ok(Own { app_id, login: environment.get("SUTURE_GITHUB_LOGIN") })
}

/// The tables' names.
///
/// # Errors
/// [`BadWiring::Missing`].
pub fn tables(environment: &impl Environment) -> Result<Names, BadWiring> {
    Ok(Names { state: needed(environment, "SUTURE_STATE_TABLE")?, events: needed(environment, "SUTURE_EVENTS_TABLE")? })
}

/// The keys of the API; none if nothing is set, and then nobody gets in.
///
/// # Errors
/// [`BadWiring::Unusable`] if an entry is wrong.
pub fn keys(environment: &impl Environment) -> Result<Keys, BadWiring> {
    const NAME: &str = "SUTURE_ADMIN_KEYS";
    let text = environment.get(NAME).unwrap_or_default();
    Keys::parse(&text).map_err(|error| BadWiring::Unusable { name: NAME, why: error.to_string() })
}

/// The dead-letter queue, on AWS or whatever `AWS_ENDPOINT_URL` points to, if there is one.
///
/// # Errors
/// [`BadWiring::Missing`] if there is one, but no queue its messages came from.
pub fn dlq(environment: &impl Environment) -> Result<Dlq, BadWiring> {
    let Some(dead) = environment.get("SUTURE_DLQ_URL") else { return Ok(Dlq::None) };
    let queue = needed(environment, "SUTURE_COMMAND_QUEUE_URL")?;
    let config = aws::config(environment)?;
    Ok(Dlq::sqs(&config, dead, queue))
}

/// Where to send.
///
/// # Errors
/// [`BadWiring::Missing`].
pub fn addresses(environment: &impl Environment) -> Result<Addresses, BadWiring> {
    Ok(Addresses {
        queue_url: needed(environment, "SUTURE_COMMAND_QUEUE_URL")?,
        bus: environment.get("SUTURE_EVENT_BUS").unwrap_or_else(|| "default".to_owned()),
        topic_arn: environment.get("SUTURE_ALERTS_TOPIC_ARN"),
    })
}

/// The store and the ways out, on AWS or whatever `AWS_ENDPOINT_URL` points to.
///
/// # Errors
/// [`BadWiring::Missing`].
pub fn on_aws(environment: &impl Environment) -> Result<(DynamoStore, AwsOutlets), BadWiring> {
    let (names, addresses) = (tables(environment)?, addresses(environment)?);
    let config = aws::config(environment)?;
    let store = DynamoStore::new(aws_sdk_dynamodb::Client::new(&config), names);
    Ok((store, AwsOutlets::new(&config, addresses)))
}

/// The process's environment, with its references to Secrets Manager resolved.
///
/// # Errors
/// [`BadWiring::Secret`] says which is not to be had, and why.
pub async fn vault() -> Result<Arc<Vault>, BadWiring> {
    let config = aws::config(&Process)?;
    let client = aws_sdk_secretsmanager::Client::new(&config);
    Ok(Arc::new(Vault::open(Process, client, Timestamp::now()).await?))
}

/// Where lines go: standard output, with metrics in the namespace of this deployment.
#[must_use]
pub fn log(environment: &impl Environment) -> Log {
    let namespace = environment.get("SUTURE_METRICS_NAMESPACE");
    Log::stdout().in_namespace(namespace.as_deref().unwrap_or(telemetry::NAMESPACE))
}

/// GitHub and Jenkins, with credentials that follow their secrets.
#[derive(Debug)]
pub struct Clients {
    /// GitHub.
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
    /// [`BadWiring`] if what is set is not usable.
    pub fn connect(vault: &Arc<Vault>) -> Result<Self, BadWiring> {
        Self::connect_with(vault, github::Settings::default())
    }

    fn connect_with(vault: &Arc<Vault>, settings: github::Settings) -> Result<Self, BadWiring> {
        let (github, jenkins) = (github_with(&**vault, settings)?, jenkins(&**vault)?);
        let credentials = Renewal::new(vault, Timestamp::now, |vault| usable(credentials(vault)));
        let login = Renewal::new(vault, Timestamp::now, |vault| usable(login(vault)));
        github.renew_with(credentials.clone());
        if let Some(jenkins) = &jenkins {
            jenkins.renew_with(login.clone());
        }
        Ok(Self { github, jenkins, credentials, login })
    }

    /// The same, for who has somebody waiting and can do without: nothing if no credentials for GitHub are set, and whether a
    /// pull request can be merged is not waited for longer than a person, or API Gateway, would.
    ///
    /// # Errors
    /// [`BadWiring`] if what is set is not usable.
    pub fn connect_if_set(vault: &Arc<Vault>) -> Result<Option<Self>, BadWiring> {
        let mergeable_pauses = [2, 4].map(Duration::from_secs).to_vec();
        let hasty = github::Settings { repeats: 1, mergeable_pauses, ..github::Settings::default() };
        match Self::connect_with(vault, hasty) {
            Ok(clients) => Ok(Some(clients)),
            Err(BadWiring::Missing("SUTURE_GITHUB_TOKEN")) => Ok(None),
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
fn usable<T>(made: Result<T, BadWiring>) -> Option<T> {
    made.inspect_err(|error| error!(%error, "a secret was changed to what cannot be used: the old one is kept")).ok()
}

/// Who we are to GitHub: an App, or somebody with a token.
///
/// # Errors
/// [`BadWiring`] if neither is set, or what is set is not usable.
pub fn credentials(environment: &impl Environment) -> Result<Credentials, BadWiring> {
    Ok(match (environment.get("SUTURE_GITHUB_APP_ID"), environment.get("SUTURE_GITHUB_PRIVATE_KEY")) {
        (Some(id), Some(key)) => {
            let unusable = |name, why: String| BadWiring::Unusable { name, why };
            let id =
                id.trim().parse().map_err(|_| unusable("SUTURE_GITHUB_APP_ID", "it is not a number".to_owned()))?;
            Credentials::app(id, &key).map_err(|error| unusable("SUTURE_GITHUB_PRIVATE_KEY", error.to_string()))?
        }
        (Some(_), None) => return Err(BadWiring::Missing("SUTURE_GITHUB_PRIVATE_KEY")),
        (None, _) => Credentials::token(&needed(environment, "SUTURE_GITHUB_TOKEN")?),
    })
}

/// GitHub, as an App or with somebody's token.
///
/// # Errors
/// [`BadWiring`] if neither is set, or what is set is not usable.
pub fn github(environment: &impl Environment) -> Result<GitHub, BadWiring> {
    github_with(environment, github::Settings::default())
}

fn github_with(environment: &impl Environment, mut settings: github::Settings) -> Result<GitHub, BadWiring> {
    let credentials = credentials(environment)?;
    if let Some(url) = environment.get("SUTURE_GITHUB_API_URL") {
        settings.base_url = address("SUTURE_GITHUB_API_URL", &url)?;
    }
    let connected = GitHub::connect(&credentials, settings);
    connected.map_err(|error| BadWiring::Unusable { name: "SUTURE_GITHUB_API_URL", why: error.to_string() })
}

/// Jenkins, if there is one.
///
/// # Errors
/// [`BadWiring`] if what is set is not usable.
pub fn jenkins(environment: &impl Environment) -> Result<Option<Jenkins>, BadWiring> {
    let Some(url) = environment.get("SUTURE_JENKINS_URL") else { return Ok(None) };
    let settings = jenkins::Settings::new(address("SUTURE_JENKINS_URL", &url)?);
    let connected = Jenkins::connect(login(environment)?, settings);
    connected.map(Some).map_err(|error| BadWiring::Unusable { name: "SUTURE_JENKINS_URL", why: error.to_string() })
}

/// Who we are to Jenkins.
///
/// # Errors
/// [`BadWiring::Missing`].
pub fn login(environment: &impl Environment) -> Result<Login, BadWiring> {
    let user = needed(environment, "SUTURE_JENKINS_USER")?;
    Ok(Login::Token { user, token: needed(environment, "SUTURE_JENKINS_TOKEN")? })
}

fn address(name: &'static str, url: &str) -> Result<Uri, BadWiring> {
    let address: Result<Uri, _> = url.trim().trim_end_matches('/').parse();
    let address = address.map_err(|error| BadWiring::Unusable { name, why: error.to_string() })?;
    if address.scheme().is_none() || address.authority().is_none() {
        return Err(BadWiring::Unusable { name, why: format!("`{url}` is not an address like https://example.org") });
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl Environment for BTreeMap<&str, &str> {
        fn get(&self, name: &str) -> Option<String> {
            BTreeMap::get(self, name).map(|value| (*value).to_owned())
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut set = BTreeMap::from([("SUTURE_STATE_TABLE", "s")]);
        assert_eq!(tables(&set).unwrap_err().to_string(), "SUTURE_EVENTS_TABLE is not set");
        assert_eq!(addresses(&set).unwrap_err().to_string(), "SUTURE_COMMAND_QUEUE_URL is not set");
        set.extend([("SUTURE_EVENTS_TABLE", "e"), ("SUTURE_COMMAND_QUEUE_URL", "q")]);
        assert_eq!(tables(&set).unwrap().events, "e");
        assert_eq!(addresses(&set).unwrap().bus, "default");
    }

    #[test]
    fn secrets_may_be_unset_but_not_empty_or_unresolved() {
        let set = BTreeMap::from([("A", "x,y"), ("B", " , "), ("C", "secret:suture#webhook")]);
        assert_eq!(format!("{:?}", secrets(&set, "A").unwrap().unwrap()), "Secrets(2)");
        assert!(secrets(&set, "Z").unwrap().is_none());
        assert!(secrets(&set, "B").unwrap_err().to_string().contains("B is not usable"));
        assert!(secrets(&set, "C").unwrap_err().to_string().contains("Secrets Manager"));
    }

    #[test]
    fn the_app_and_the_configuration_are_optional() {
        let none = BTreeMap::new();
        assert_eq!(own(&none).unwrap(), Own::default());
        assert_eq!(policies(&none).unwrap(), Policies::default());
        let set = BTreeMap::from([("SUTURE_GITHUB_APP_ID", "77"), ("SUTURE_CONFIG", "no/such/file")]);
        assert_eq!(own(&set).unwrap().app_id, Some(77));
        assert!(policies(&set).unwrap_err().to_string().contains("no/such/file cannot be read"));
        assert!(own(&BTreeMap::from([("SUTURE_GITHUB_APP_ID", "x")])).is_err());
    }
}
