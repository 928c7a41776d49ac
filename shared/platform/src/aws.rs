//! What AWS's clients have to know: region, credentials, and where the services are. Lambda puts all of it into the environment, so
//! it is taken from there and nowhere else; the SDK's own search through files, metadata services and role assumption would be
//! part of each function and of each cold start (ADR 0049).

use std::time::Duration;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_types::SdkConfig;
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};

use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::http::{BoxError, Transport};
use crate::wiring::{BadWiring, Environment, Process};

/// The clients' configuration, from this environment.
///
/// # Errors
/// [`BadWiring::Missing`] if there is no region or are no credentials, [`BadWiring::NoHttps`] without root certificates.
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
        .http_client(http_client()?)
        .service_config(Endpoints);
    config.set_endpoint_url(environment.get("AWS_ENDPOINT_URL"));
    config.set_use_fips(is_on("AWS_USE_FIPS_ENDPOINT").then_some(true));
    config.set_use_dual_stack(is_on("AWS_USE_DUALSTACK_ENDPOINT").then_some(true));
    Ok(config.build())
}

/// What AWS's clients send their requests through: the transport of all our other clients. The SDK's own would bring HTTP/2 and a
/// second pool, a tenth of each function (ADR 0049).
///
/// # Errors
/// [`BadWiring::NoHttps`] when the machine has no root certificates.
pub fn http_client() -> Result<SharedHttpClient, BadWiring> {
    let transport = Transport::https().map_err(|error| BadWiring::NoHttps(error.to_string()))?;
    Ok(http_client_fn(move |settings, _| {
        SharedHttpConnector::new(Wire { transport: transport.clone(), read_within: settings.read_timeout() })
    }))
}

#[derive(Debug)]
struct Wire {
    transport: Transport,
    read_within: Option<Duration>,
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let answer = exchange(self.transport.clone(), request);
        let limit = self.read_within;
        HttpConnectorFuture::new(async move {
            let Some(limit) = limit else { return answer.await };
            let late = |_| Err(ConnectorError::timeout(format!("no answer within {limit:?}").into()));
            tokio::time::timeout(limit, answer).await.unwrap_or_else(late)
        })
    }
}

/// Whatever goes wrong on the way counts as lost, which the SDK repeats, as it does with its own client; each of our writes bears
/// being repeated.
async fn exchange(transport: Transport, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
    let unusable = |error: BoxError| ConnectorError::user(error);
    let (parts, body) = request.try_into_http1x().map_err(|error| unusable(error.into()))?.into_parts();
    let body = body.collect().await.map_err(unusable)?.to_bytes();
    let answer = transport.into_service().oneshot(http::Request::from_parts(parts, body)).await;
    let answer = answer.map_err(ConnectorError::io)?.map(SdkBody::from);
    HttpResponse::try_from(answer).map_err(|error| unusable(error.into()))
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
