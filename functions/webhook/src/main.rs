//! Wires the webhook function and runs it behind the Lambda runtime.

use anyhow::Context;
use jiff::Timestamp;
use lambda_http::{Error, Request, run, service_fn, tracing};
use platform::telemetry::Log;
use platform::wiring::{self, Process};
use webhook::{Senders, Webhook};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let webhook = webhook().await?;
    let webhook = &webhook;
    run(service_fn(move |request: Request| async move {
        let (parts, body) = request.into_parts();
        Ok::<_, Error>(webhook.handle(&parts, body.as_ref(), Timestamp::now()).await)
    }))
    .await
}

async fn webhook() -> anyhow::Result<Webhook<impl platform::store::Store, impl platform::outlets::Outlets>> {
    let policies = wiring::policies(&Process)?;
    let secrets = |name| wiring::secrets(&Process, name);
    let senders = Senders {
        github: secrets("SUTURE_WEBHOOK_SECRET")?.context("SUTURE_WEBHOOK_SECRET is not set")?,
        jenkins: secrets("SUTURE_JENKINS_WEBHOOK_SECRET")?,
        bot: secrets("SUTURE_BOT_SECRET")?,
    };
    let (store, outlets) = wiring::on_aws(&Process).await?;
    Ok(Webhook::new(store, outlets, policies, wiring::own(&Process)?, senders, Log::stdout()))
}
