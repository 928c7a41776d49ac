//! Runs the webhook function on Lambda, behind API Gateway.

use std::sync::Arc;

use jiff::Timestamp;
use lambda_http::{Error, Request, tracing};
use platform::env::ConfigError;
use platform::publish::Publisher;
use platform::secrets::{SecretEnv, SecretRefresher};
use platform::store::Store;
use platform::{api_gateway, aws, env};
use webhook::{WebhookHandler, config};

/// Parsing a webhook allocates many short strings; mimalloc needs 10 % fewer instructions than the C library (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let webhook = &build(&aws::environment().await?).await?;
    api_gateway::run(move |request: Request| async move {
        let (parts, body) = request.into_parts();
        Ok::<_, Error>(webhook.handle(&parts, &body, Timestamp::now()).await)
    })
    .await
}

async fn build(
    secret_env: &Arc<SecretEnv>,
) -> Result<WebhookHandler<impl Store + use<>, impl Publisher + use<>>, ConfigError> {
    let (policies, secrets, identity) =
        (env::policies(&**secret_env)?, config::webhook_secrets(&**secret_env)?, config::bot_identity(&**secret_env)?);
    let (store, publisher) = aws::backends(&**secret_env).await?;
    let webhook = WebhookHandler::new(store, publisher, policies, identity, secrets, env::log(&**secret_env));
    let reload = |secret_env: &SecretEnv| {
        let secrets = config::webhook_secrets(secret_env);
        secrets
            .inspect_err(|error| tracing::error!(%error, "rotated webhook secret is invalid; keeping the old one"))
            .ok()
    };
    Ok(webhook.with_last_webhook().with_secret_refresh(SecretRefresher::new(secret_env, Timestamp::now, reload)))
}
