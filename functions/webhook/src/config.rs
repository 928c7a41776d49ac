//! Settings of the webhook function: the senders' secrets, and Suture's own identity on GitHub.

use platform::clients;
use platform::env::{ConfigError, Environment};

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
        bot: secrets(environment, "SUTURE_BOT_SECRET")?,
    })
}

pub fn bot_identity(environment: &impl Environment) -> Result<BotIdentity, ConfigError> {
    let app_id = environment.get("SUTURE_GITHUB_APP_ID").map(|id| clients::app_id(&id)).transpose()?;
    Ok(BotIdentity { app_id, login: environment.get("SUTURE_GITHUB_LOGIN") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
    fn github_secret_is_required_and_app_id_is_optional() {
        assert!(webhook_secrets(&set([])).unwrap_err().to_string().starts_with("SUTURE_WEBHOOK_SECRET is not set"));
        assert_eq!(bot_identity(&set([])).unwrap(), BotIdentity::default());
        assert_eq!(bot_identity(&set([("SUTURE_GITHUB_APP_ID", "77")])).unwrap().app_id, Some(77));
        assert!(bot_identity(&set([("SUTURE_GITHUB_APP_ID", "x")])).is_err());
    }
}
