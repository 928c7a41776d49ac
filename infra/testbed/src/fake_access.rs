//! Credentials and clients for the fakes, for tests, the simulator and the demo.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fakes::{FakeBot, FakeSettings};
use http::Uri;
use platform::clock::Clock;
use platform::github::{Credentials, GitHub};
use platform::jenkins::{Jenkins, JenkinsLogin};
use platform::transport::Transport;
use webhook::github::BotIdentity;
use webhook::signature::SenderSecrets;
use webhook::{ReportingBot, WebhookSecrets};

/// The secrets and addresses of the fakes.
pub struct FakeAccess {
    pub senders: WebhookSecrets,
    pub own: BotIdentity,
    pub credentials: Credentials,
    pub login: JenkinsLogin,
    github_url: Uri,
    jenkins_url: Uri,
}

impl FakeAccess {
    /// Access as the App of these settings.
    ///
    /// # Errors
    /// If an address is not a valid URI, or no private key can be generated.
    pub fn new(settings: &FakeSettings, github_url: &str, jenkins_url: &str) -> Result<Self, String> {
        let secrets = |text: &str| SenderSecrets::parse(text).map_err(|error| error.to_string());
        let uri = |text: &str| text.parse::<Uri>().map_err(|error| error.to_string());
        Ok(Self {
            senders: WebhookSecrets {
                github: secrets(&settings.webhook_secret)?,
                jenkins: Some(secrets(&settings.jenkins_secret)?),
                bots: BTreeMap::from([
                    (ReportingBot::Policy, secrets(&settings.bot_secret(FakeBot::Policy))?),
                    (ReportingBot::Approver, secrets(&settings.bot_secret(FakeBot::Approver))?),
                    (ReportingBot::Automerge, secrets(&settings.bot_secret(FakeBot::Automerge))?),
                ]),
            },
            own: BotIdentity { app_id: Some(settings.app_id), login: Some(format!("{}[bot]", settings.app_slug)) },
            credentials: app_credentials(settings.app_id)?,
            github_url: uri(github_url)?,
            login: JenkinsLogin::Token { user: settings.jenkins_user.clone(), token: settings.jenkins_token.clone() },
            jenkins_url: uri(jenkins_url)?,
        })
    }

    pub fn github(&self, transport: Transport, clock: Arc<dyn Clock>) -> GitHub {
        let settings = platform::github::GitHubSettings {
            base_url: self.github_url.clone(),
            ..platform::github::GitHubSettings::default()
        };
        GitHub::with_service(&self.credentials, settings, transport, clock)
    }

    pub fn jenkins(&self, transport: Transport, clock: Arc<dyn Clock>) -> Jenkins {
        let settings = platform::jenkins::JenkinsSettings::new(self.jenkins_url.clone());
        Jenkins::with_service(self.login.clone(), settings, transport, clock)
    }
}

/// An App's credentials. The key is generated once per process, because that takes longer than a whole simulation.
///
/// # Errors
/// If no private key can be generated.
pub fn app_credentials(app_id: u64) -> Result<Credentials, String> {
    static KEY: LazyLock<Result<String, Unspecified>> = LazyLock::new(private_key);
    let key = KEY.as_deref().map_err(|error| error.to_string())?;
    Credentials::app(app_id, key).map_err(|error| error.to_string())
}

fn private_key() -> Result<String, Unspecified> {
    let key = KeyPair::generate(KeySize::Rsa2048)?;
    let der: Pkcs8V1Der<'static> = key.as_der()?;
    let body = BASE64_STANDARD.encode(der.as_ref());
    Ok(format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"))
}
