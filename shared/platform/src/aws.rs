//! What AWS's clients have to know: region, credentials, and where the services are. Lambda puts all of it into the environment, so
//! it is taken from there and nowhere else; the SDK's own search through files, metadata services and role assumption would be
//! part of each function and of each cold start (ADR 0049).

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use aws_types::SdkConfig;
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};

use crate::wiring::{BadWiring, Environment, Process};

/// The clients' configuration, from this environment.
///
/// # Errors
/// [`BadWiring::Missing`] if there is no region or are no credentials.
pub fn config(environment: &impl Environment) -> Result<SdkConfig, BadWiring> {
    let needed = |name: &'static str| environment.get(name).ok_or(BadWiring::Missing(name));
    let region = environment.get("AWS_REGION").or_else(|| environment.get("AWS_DEFAULT_REGION"));
    let region = region.ok_or(BadWiring::Missing("AWS_REGION"))?;
    // Lambda gives a process one set of credentials that outlives it: there is nothing to renew.
    let (key, secret) = (needed("AWS_ACCESS_KEY_ID")?, needed("AWS_SECRET_ACCESS_KEY")?);
    let credentials = Credentials::new(key, secret, environment.get("AWS_SESSION_TOKEN"), None, "environment");
    let is_on = |name: &str| environment.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let mut config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .service_config(Endpoints);
    config.set_endpoint_url(environment.get("AWS_ENDPOINT_URL"));
    config.set_use_fips(is_on("AWS_USE_FIPS_ENDPOINT").then_some(true));
    config.set_use_dual_stack(is_on("AWS_USE_DUALSTACK_ENDPOINT").then_some(true));
    Ok(config.build())
}

/// `AWS_ENDPOINT_URL_DYNAMODB` and the like, which the clients ask for by name.
#[derive(Debug)]
struct Endpoints;

impl LoadServiceConfig for Endpoints {
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        Process.get(&variable(key.env(), key.service_id()))
    }
}

fn variable(name: &str, service: &str) -> String {
    format!("{name}_{}", service.to_ascii_uppercase().replace([' ', '-'], "_"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_missing_is_named_and_what_is_there_is_taken() {
        let mut set = BTreeMap::from([("AWS_DEFAULT_REGION", "eu-west-1"), ("AWS_ACCESS_KEY_ID", "k")]);
        assert_eq!(config(&set).unwrap_err().to_string(), "AWS_SECRET_ACCESS_KEY is not set");
        set.extend([("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:1")]);
        let found = config(&set).unwrap();
        assert_eq!(found.region().unwrap().as_ref(), "eu-west-1");
        assert_eq!((found.endpoint_url(), found.use_fips()), (Some("http://127.0.0.1:1"), None));
        set.extend([("AWS_REGION", "us-east-1"), ("AWS_USE_FIPS_ENDPOINT", "TRUE")]);
        let found = config(&set).unwrap();
        assert_eq!((found.region().unwrap().as_ref(), found.use_fips()), ("us-east-1", Some(true)));
        assert!(config(&BTreeMap::new()).unwrap_err().to_string().contains("AWS_REGION"));
    }

    #[test]
    fn endpoints_are_named_as_amazons_own_tools_name_them() {
        assert_eq!(variable("AWS_ENDPOINT_URL", "DynamoDB"), "AWS_ENDPOINT_URL_DYNAMODB");
        assert_eq!(variable("AWS_ENDPOINT_URL", "Secrets Manager"), "AWS_ENDPOINT_URL_SECRETS_MANAGER");
    }
}
