//! Runs the webhook function on Lambda, behind API Gateway.

use std::sync::Arc;

use jiff::Timestamp;
use lambda_http::{Error, Request, tracing};
use platform::env::ConfigError;
use platform::outlets::Outlets;
use platform::secrets::{Renewal, Vault};
use platform::store::Store;
use platform::{api_gateway, aws, env};
use webhook::{Webhook, config};

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

async fn build(vault: &Arc<Vault>) -> Result<Webhook<impl Store + use<>, impl Outlets + use<>>, ConfigError> {
    let (policies, senders, own) = (env::policies(&**vault)?, config::senders(&**vault)?, config::own(&**vault)?);
    let (store, outlets) = aws::backends(&**vault).await?;
    let webhook = Webhook::new(store, outlets, policies, own, senders, env::log(&**vault));
    let renewed = |vault: &Vault| {
        let senders = config::senders(vault);
        senders
            .inspect_err(|error| tracing::error!(%error, "rotated webhook secret is invalid; keeping the old one"))
            .ok()
    };
    Ok(webhook.renewing(Renewal::new(vault, Timestamp::now, renewed)))
}
