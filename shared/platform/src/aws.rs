//! AWS clients, configured from the environment variables that Lambda sets. Profile files and metadata services are disabled: Lambda
//! needs neither, and both would slow down cold starts. Every call has a timeout.

use std::sync::Arc;
use std::time::Duration;

use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use aws_sdk_secretsmanager::error::{DisplayErrorContext, ProvideErrorMetadata};
use jiff::Timestamp;

use crate::env::{ConfigError, Environment, ProcessEnv};
use crate::publish::aws::{AwsPublisher, AwsTargets, QueueUrls};
use crate::publish::dead_letters::{DeadLetterQueue, DeadLetterSource};
use crate::publish::sqs_dead_letters::{SqsDeadLetterQueue, SqsDlq};
use crate::secrets::{FetchError, SecretEnv};
use crate::store::dynamo::DynamoStore;
use crate::store::dynamo::tables::TableNames;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// One attempt. DynamoDB, SQS and Secrets Manager respond in milliseconds, so a slower attempt is retried.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// All attempts of one call together. Shorter than the time that sweeps, batches and webhooks reserve before their invocation ends.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration shared by all AWS clients.
///
/// Returns [`ConfigError::Missing`] without a region or credentials; otherwise every call would fail with its own error.
pub async fn config() -> Result<SdkConfig, ConfigError> {
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        ProcessEnv.required(name)?;
    }
    ProcessEnv
        .get("AWS_REGION")
        .or_else(|| ProcessEnv.get("AWS_DEFAULT_REGION"))
        .ok_or(ConfigError::Missing("AWS_REGION"))?;
    let no_files = EnvConfigFiles::builder()
        .with_contents(EnvConfigFileKind::Config, "")
        .with_contents(EnvConfigFileKind::Credentials, "")
        .build();
    let config = aws_config::defaults(BehaviorVersion::latest())
        .region(EnvironmentVariableRegionProvider::new())
        .credentials_provider(EnvironmentVariableCredentialsProvider::new())
        .profile_files(no_files)
        .timeout_config(timeouts());
    Ok(config.load().await)
}

pub fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(OPERATION_TIMEOUT)
        .build()
}

/// The process environment, with references to Secrets Manager resolved.
pub async fn environment() -> Result<Arc<SecretEnv>, ConfigError> {
    let client = aws_sdk_secretsmanager::Client::new(&config().await?);
    Ok(Arc::new(SecretEnv::resolve(ProcessEnv, fetch_with(client), Timestamp::now()).await?))
}

pub fn fetch_with(client: aws_sdk_secretsmanager::Client) -> crate::secrets::FetchSecret {
    Box::new(move |name| {
        let client = client.clone();
        Box::pin(async move {
            let secret = client.get_secret_value().secret_id(name).send().await;
            let secret = secret.map_err(|error| match error.code() {
                Some("ResourceNotFoundException") => FetchError::Missing,
                Some("AccessDeniedException" | "AccessDenied" | "DecryptionFailure") => FetchError::Denied,
                Some(_) | None => FetchError::Unavailable(DisplayErrorContext(&error).to_string()),
            })?;
            Ok(secret.secret_string().unwrap_or_default().to_owned())
        })
    })
}

pub fn tables(environment: &impl Environment) -> Result<TableNames, ConfigError> {
    Ok(TableNames {
        state: environment.required("SUTURE_STATE_TABLE")?,
        events: environment.required("SUTURE_EVENTS_TABLE")?,
    })
}

/// The queues that the Car Bridge reads.
pub fn queues(environment: &impl Environment) -> Result<QueueUrls, ConfigError> {
    Ok(QueueUrls {
        commands: environment.required("SUTURE_COMMAND_QUEUE_URL")?,
        facts: environment.required("SUTURE_FACTS_QUEUE_URL")?,
    })
}

pub fn addresses(environment: &impl Environment) -> Result<AwsTargets, ConfigError> {
    Ok(AwsTargets {
        queues: queues(environment)?,
        bus: environment.get("SUTURE_EVENT_BUS").unwrap_or_else(|| "default".to_owned()),
        topic_arn: environment.get("SUTURE_ALERTS_TOPIC_ARN"),
    })
}

/// The store and the publisher, on AWS or on the endpoint that `AWS_ENDPOINT_URL` names.
pub async fn backends(environment: &impl Environment) -> Result<(DynamoStore, AwsPublisher), ConfigError> {
    let (names, addresses) = (tables(environment)?, addresses(environment)?);
    let config = config().await?;
    let store = DynamoStore::new(aws_sdk_dynamodb::Client::new(&config), names);
    Ok((store, AwsPublisher::new(&config, addresses)))
}

/// The dead-letter queues, if `SUTURE_DLQ_URL` is set.
pub async fn dead_letters(environment: &impl Environment) -> Result<DeadLetterQueue, ConfigError> {
    let queues = dead_letter_queues(environment)?;
    if queues.is_empty() {
        return Ok(DeadLetterQueue::None);
    }
    Ok(DeadLetterQueue::Sqs(SqsDlq::new(&config().await?, queues)))
}

/// Each dead-letter queue whose URL is set, and the queue that its messages are redriven to.
fn dead_letter_queues(environment: &impl Environment) -> Result<Vec<SqsDeadLetterQueue>, ConfigError> {
    let mut queues = Vec::new();
    for (source, url, redrive_to) in [
        (DeadLetterSource::Commands, "SUTURE_DLQ_URL", Some("SUTURE_COMMAND_QUEUE_URL")),
        (DeadLetterSource::Facts, "SUTURE_FACTS_DLQ_URL", Some("SUTURE_FACTS_QUEUE_URL")),
        (DeadLetterSource::Sweeps, "SUTURE_SWEEP_DLQ_URL", None),
    ] {
        if let Some(url) = environment.get(url) {
            let redrive_to = redrive_to.map(|name| environment.required(name)).transpose()?;
            queues.push(SqsDeadLetterQueue { source, url, redrive_to });
        }
    }
    Ok(queues)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::publish::queue_message::QueueName;

    #[test]
    fn missing_address_is_named_and_bus_has_a_default() {
        let mut set = BTreeMap::from([("SUTURE_STATE_TABLE", "s")]);
        assert!(tables(&set).unwrap_err().to_string().starts_with("SUTURE_EVENTS_TABLE is not set"));
        assert!(addresses(&set).unwrap_err().to_string().starts_with("SUTURE_COMMAND_QUEUE_URL is not set"));
        set.extend([("SUTURE_EVENTS_TABLE", "e"), ("SUTURE_COMMAND_QUEUE_URL", "q")]);
        assert!(addresses(&set).unwrap_err().to_string().starts_with("SUTURE_FACTS_QUEUE_URL is not set"));
        set.insert("SUTURE_FACTS_QUEUE_URL", "f");
        let queues = addresses(&set).unwrap().queues;
        assert_eq!(QueueName::ALL.map(|queue| queues.url(queue)), ["q", "f"]);
        assert_eq!(tables(&set).unwrap().events, "e");
        assert_eq!(addresses(&set).unwrap().bus, "default");
    }

    #[test]
    fn only_dead_letters_of_commands_are_redriven() {
        let mut set = BTreeMap::from([("SUTURE_SWEEP_DLQ_URL", "s")]);
        let sweeps = dead_letter_queues(&set).unwrap();
        assert_eq!((sweeps.len(), sweeps[0].redrive_to.as_deref()), (1, None));
        set.insert("SUTURE_DLQ_URL", "d");
        assert!(dead_letter_queues(&set).unwrap_err().to_string().starts_with("SUTURE_COMMAND_QUEUE_URL is not set"));
        set.insert("SUTURE_COMMAND_QUEUE_URL", "q");
        let queues = dead_letter_queues(&set).unwrap();
        assert_eq!((queues.len(), queues[0].redrive_to.as_deref()), (2, Some("q")));
    }
}
