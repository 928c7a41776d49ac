//! External services: a real GitHub and Jenkins as configured in the environment, or the fakes. Also the keys of the
//! admin API.

use std::sync::{Arc, Mutex, PoisonError};

use admin::keys::ApiKeys;
use car_bridge::BotHttp;
use domain::policy::Policies;
use fakes::Fakes;
use platform::clients;
use platform::clock::{Clock, SystemClock};
use platform::env::Environment;
use platform::github::GitHub;
use platform::jenkins::Jenkins;
use platform::transport::Transport;
use testbed::FakeAccess;
use webhook::WebhookSecrets;
use webhook::github::BotIdentity;

use super::StartError;
use super::data_dir::DataDir;
use super::demo::Demo;
use super::system::https;

const KEY_FILE: &str = "admin.key";

pub(super) struct ExternalServices {
    pub(super) policies: Policies,
    pub(super) senders: WebhookSecrets,
    pub(super) own: BotIdentity,
    pub(super) github: GitHub,
    pub(super) jenkins: Option<Jenkins>,
    /// For bots that are retriggered by HTTP.
    pub(super) bot_http: BotHttp,
    pub(super) owners: Vec<String>,
    /// Owner assumed for a repository name without one.
    pub(super) owner: Option<String>,
    pub(super) bots: Option<Arc<Mutex<Fakes>>>,
    pub(super) clock: Arc<dyn Clock>,
}

/// A real GitHub, as configured in the environment.
pub(super) fn live(policies: Policies, environment: &impl Environment) -> Result<ExternalServices, StartError> {
    let github = clients::github(environment)?;
    let secret = webhook::config::secrets(environment, "SUTURE_WEBHOOK_SECRET")?;
    let secret = secret.ok_or_else(|| {
        StartError(
            "SUTURE_WEBHOOK_SECRET is not set: choose a secret, and set the same one in the App's webhook settings."
                .to_owned(),
        )
    })?;
    let owner = environment.get("SUTURE_GITHUB_OWNER");
    Ok(ExternalServices {
        bot_http: BotHttp::from_environment(https(), environment, &policies)?,
        policies,
        senders: WebhookSecrets {
            github: secret,
            jenkins: webhook::config::secrets(environment, "SUTURE_JENKINS_WEBHOOK_SECRET")?,
            bots: webhook::config::bot_secrets(environment)?,
        },
        own: webhook::config::bot_identity(environment)?,
        github,
        jenkins: clients::jenkins(environment)?,
        owners: owner.iter().cloned().collect(),
        owner,
        bots: None,
        clock: Arc::new(SystemClock),
    })
}

/// The fakes, accessed like the real services: over HTTP, with signatures, as an App.
pub(super) fn fakes(demo: &Demo, policies: Policies) -> Result<ExternalServices, StartError> {
    let settings = demo.fakes.lock().unwrap_or_else(PoisonError::into_inner).settings().clone();
    let unreachable = |error: String| StartError(format!("The fake GitHub cannot be reached: {error}."));
    let access =
        FakeAccess::new(&settings, &demo.serving.github_url, &demo.serving.jenkins_url).map_err(unreachable)?;
    let transport = Transport::https().map_err(|error| unreachable(error.to_string()))?;
    let clock: Arc<dyn Clock> = Arc::clone(&demo.clock) as Arc<dyn Clock>;
    Ok(ExternalServices {
        policies,
        bot_http: BotHttp::new(transport.clone(), None),
        github: access.github(transport.clone(), Arc::clone(&clock)),
        jenkins: Some(access.jenkins(transport, Arc::clone(&clock))),
        senders: access.senders,
        own: access.own,
        owners: Vec::new(),
        owner: demo.repos().first().map(|repo| repo.owner().to_owned()),
        bots: Some(Arc::clone(&demo.fakes)),
        clock,
    })
}

pub(super) struct AdminAccess {
    pub(super) keys: ApiKeys,
    /// The plain key, if it was created here; shown in the dashboard link.
    pub(super) key: Option<String>,
}

impl AdminAccess {
    /// Uses `SUTURE_ADMIN_KEYS`. Without it, creates a key once and stores it in a file that only the owner can read.
    pub(super) fn open(data_dir: &DataDir, environment: &impl Environment) -> Result<Self, StartError> {
        if environment.get("SUTURE_ADMIN_KEYS").is_some() {
            return Ok(Self { keys: admin::config::keys(environment)?, key: None });
        }
        let key = match data_dir.read_json(KEY_FILE)? {
            Some(key) => key,
            None => {
                let key = crate::keys::make("local", "admin", &[]).map_err(StartError)?;
                data_dir.write_json(KEY_FILE, &key)?;
                key
            }
        };
        let keys = ApiKeys::parse(&key.entry).map_err(|error| StartError(format!("{KEY_FILE}: {error}.")))?;
        Ok(Self { keys, key: Some(key.key) })
    }
}
