//! Settings of the webhook function: the senders' secrets, and Suture's own identity on GitHub.

use std::collections::BTreeMap;

use platform::clients;
use platform::env::{ConfigError, Environment};

use crate::bot::ReportingBot;
use crate::github::BotIdentity;
use crate::handler::WebhookSecrets;
use crate::signature::SenderSecrets;

/// Parses a variable of the form `current` or `current,previous`; `None` if it is not set.
pub fn secrets(environment: &impl Environment, name: &'static str) -> Result<Option<SenderSecrets>, ConfigError> {
    let Some(text) = environment.get(name) else { return Ok(None) };
    if text.starts_with("secret:") {
        return Err(ConfigError::invalid(
            name,
            "references to Secrets Manager are resolved only on AWS; set the secret itself",
        ));
    }
    SenderSecrets::parse(&text).map(Some).map_err(|error| ConfigError::invalid(name, error))
}

/// The secrets of all senders.
pub fn webhook_secrets(environment: &impl Environment) -> Result<WebhookSecrets, ConfigError> {
    const GITHUB: &str = "SUTURE_WEBHOOK_SECRET";
    Ok(WebhookSecrets {
        github: secrets(environment, GITHUB)?.ok_or(ConfigError::Missing(GITHUB))?,
        jenkins: secrets(environment, "SUTURE_JENKINS_WEBHOOK_SECRET")?,
        bots: bot_secrets(environment)?,
    })
}

/// The secrets of the bots that report directly. Two bots must not share one: it would prove nothing.
pub fn bot_secrets(environment: &impl Environment) -> Result<BTreeMap<ReportingBot, SenderSecrets>, ConfigError> {
    let mut bots = BTreeMap::new();
    let mut known: Vec<String> = Vec::new();
    for bot in ReportingBot::ALL {
        let name = match bot {
            ReportingBot::Policy => "SUTURE_POLICY_BOT_SECRET",
            ReportingBot::Approver => "SUTURE_APPROVER_BOT_SECRET",
            ReportingBot::Automerge => "SUTURE_AUTOMERGE_BOT_SECRET",
        };
        let Some(parsed) = secrets(environment, name)? else { continue };
        let text = environment.get(name).unwrap_or_default();
        let own: Vec<String> = text.split(',').map(|secret| secret.trim().to_owned()).collect();
        if own.iter().any(|secret| !secret.is_empty() && known.contains(secret)) {
            return Err(ConfigError::invalid(name, "another bot has the same secret; give each bot its own"));
        }
        known.extend(own);
        bots.insert(bot, parsed);
    }
    Ok(bots)
}

pub fn bot_identity(environment: &impl Environment) -> Result<BotIdentity, ConfigError> {
    let app_id = environment.get("SUTURE_GITHUB_APP_ID").map(|id| clients::app_id(&id)).transpose()?;
    Ok(BotIdentity { app_id, login: environment.get("SUTURE_GITHUB_LOGIN") })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestEnv(BTreeMap<&'static str, &'static str>);

    impl Environment for TestEnv {
        fn get(&self, name: &str) -> Option<String> {
            self.0.get(name).map(|value| (*value).to_owned())
        }
    }

    fn set<const N: usize>(values: [(&'static str, &'static str); N]) -> TestEnv {
        TestEnv(BTreeMap::from(values))
    }

    #[test]
    fn secrets_may_be_unset_but_not_empty_or_unresolved() {
        let set = set([("A", "x,y"), ("B", " , "), ("C", "secret:suture#webhook")]);
        assert_eq!(format!("{:?}", secrets(&set, "A").unwrap().unwrap()), "SenderSecrets(2)");
        assert!(secrets(&set, "Z").unwrap().is_none());
        assert!(secrets(&set, "B").unwrap_err().to_string().contains("B is invalid"));
        assert!(secrets(&set, "C").unwrap_err().to_string().contains("Secrets Manager"));
    }

    #[test]
    fn each_bot_has_its_own_secret() {
        let two = set([("SUTURE_POLICY_BOT_SECRET", "p-new,p-old"), ("SUTURE_AUTOMERGE_BOT_SECRET", "m")]);
        let bots: Vec<ReportingBot> = bot_secrets(&two).unwrap().into_keys().collect();
        assert_eq!(bots, [ReportingBot::Policy, ReportingBot::Automerge]);
        let shared = set([("SUTURE_POLICY_BOT_SECRET", "p-new,p-old"), ("SUTURE_APPROVER_BOT_SECRET", "a, p-old")]);
        let error = bot_secrets(&shared).unwrap_err().to_string();
        assert!(error.starts_with("SUTURE_APPROVER_BOT_SECRET is invalid: another bot has the same"), "{error}");
        assert!(bot_secrets(&set([])).unwrap().is_empty());
    }

    #[test]
    fn github_secret_is_required_and_app_id_is_optional() {
        assert!(webhook_secrets(&set([])).unwrap_err().to_string().starts_with("SUTURE_WEBHOOK_SECRET is not set"));
        assert_eq!(bot_identity(&set([])).unwrap(), BotIdentity::default());
        assert_eq!(bot_identity(&set([("SUTURE_GITHUB_APP_ID", "77")])).unwrap().app_id, Some(77));
        assert!(bot_identity(&set([("SUTURE_GITHUB_APP_ID", "x")])).is_err());
    }
}
