//! The outside, as this process reaches it: a real GitHub as the environment names it, or the pretended world. And who gets in.

use std::fmt;
use std::sync::{Arc, PoisonError};

use domain::policy::Policies;
use http::Uri;
use platform::clock::{Clock, SystemClock};
use platform::github::webhook::Own;
use platform::github::webhook::signature::Secrets;
use platform::github::{Credentials, GitHub};
use platform::http::Transport;
use platform::jenkins::{Jenkins, Login};
use platform::keys::Keys;
use platform::wiring::{self, Environment};
use webhook::Senders;

use super::StartError;
use super::data_dir::DataDir;
use super::demo::Demo;
use super::publisher::Bots;

/// The file with the key of our own making.
const KEY_FILE: &str = "admin.key";

/// The outside, as this process reaches it.
pub(super) struct External {
    pub(super) policies: Policies,
    pub(super) senders: Senders,
    pub(super) own: Own,
    pub(super) github: GitHub,
    pub(super) jenkins: Option<Jenkins>,
    pub(super) owners: Vec<String>,
    /// Whose repositories are meant by a bare name.
    pub(super) owner: Option<String>,
    pub(super) bots: Bots,
    pub(super) clock: Arc<dyn Clock>,
}

/// A real GitHub, as the environment names it (design §9).
pub(super) fn live(policies: Policies, environment: &impl Environment) -> Result<External, StartError> {
    let github = wiring::github(environment)?;
    let secret = wiring::secrets(environment, "SUTURE_WEBHOOK_SECRET")?;
    let secret = secret.ok_or_else(|| {
        StartError(
            "SUTURE_WEBHOOK_SECRET is not set: choose one, and give GitHub the same under the App's webhook settings."
                .to_owned(),
        )
    })?;
    let senders = Senders {
        github: secret,
        jenkins: wiring::secrets(environment, "SUTURE_JENKINS_WEBHOOK_SECRET")?,
        bot: wiring::secrets(environment, "SUTURE_BOT_SECRET")?,
    };
    Ok(External {
        policies,
        senders,
        own: wiring::own(environment)?,
        github,
        jenkins: wiring::jenkins(environment)?,
        owners: environment.get("SUTURE_GITHUB_OWNER").into_iter().collect(),
        owner: environment.get("SUTURE_GITHUB_OWNER"),
        bots: Bots::None,
        clock: Arc::new(SystemClock),
    })
}

/// The pretended world, reached as the real one would be: over HTTP, with signatures, as an App.
pub(super) fn pretended(demo: &Demo, policies: Policies) -> Result<External, StartError> {
    let settings = demo.world.lock().unwrap_or_else(PoisonError::into_inner).settings().clone();
    let broken = |error: &dyn fmt::Display| StartError(format!("The pretended world cannot be reached: {error}."));
    let secrets = |text: &str| Secrets::parse(text).map_err(|error| broken(&error));
    let address = |text: &str| text.parse::<Uri>().map_err(|error| broken(&error));
    let clock: Arc<dyn Clock> = Arc::clone(&demo.clock) as Arc<dyn Clock>;
    let transport = Transport::https().map_err(|error| broken(&error))?;
    let key = simulate::private_key().map_err(|error| broken(&error))?;
    let credentials = Credentials::app(settings.app_id, &key).map_err(|error| broken(&error))?;
    let github = platform::github::Settings {
        base_url: address(&demo.serving.github_url)?,
        ..platform::github::Settings::default()
    };
    let github = GitHub::with_service(&credentials, github, transport.clone(), Arc::clone(&clock));
    let login = Login::Token { user: settings.jenkins_user.clone(), token: settings.jenkins_token.clone() };
    let jenkins = platform::jenkins::Settings::new(address(&demo.serving.jenkins_url)?);
    let senders = Senders {
        github: secrets(&settings.webhook_secret)?,
        jenkins: Some(secrets(&settings.jenkins_secret)?),
        bot: Some(secrets(&settings.bot_secret)?),
    };
    Ok(External {
        policies,
        senders,
        own: Own { app_id: Some(settings.app_id), login: Some(format!("{}[bot]", settings.app_slug)) },
        github,
        jenkins: Some(Jenkins::with_service(login, jenkins, transport, Arc::clone(&clock))),
        owners: Vec::new(),
        owner: demo.repos().first().map(|repo| repo.owner().to_owned()),
        bots: Bots::Pretended(Arc::clone(&demo.world)),
        clock,
    })
}

/// Who gets in, and with which key, if it is of our own making.
pub(super) struct AdminAccess {
    pub(super) keys: Keys,
    pub(super) key: Option<String>,
}

impl AdminAccess {
    /// The keys of the environment; without any, one that is made once and kept where only its owner can read it.
    pub(super) fn open(data_dir: &DataDir, environment: &impl Environment) -> Result<Self, StartError> {
        if environment.get("SUTURE_ADMIN_KEYS").is_some() {
            return Ok(Self { keys: wiring::keys(environment)?, key: None });
        }
        let made = match data_dir.json(KEY_FILE)? {
            Some(made) => made,
            None => {
                let made = crate::keys::make("local", "admin", &[]).map_err(StartError)?;
                data_dir.keep_json(KEY_FILE, &made)?;
                made
            }
        };
        let keys = Keys::parse(&made.entry).map_err(|error| StartError(format!("{KEY_FILE}: {error}.")))?;
        Ok(Self { keys, key: Some(made.key) })
    }
}
