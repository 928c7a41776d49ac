//! Wires the webhook function and runs it behind the Lambda runtime.

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use lambda_http::{Error, Request, run, service_fn, tracing};
use platform::secrets::{Renewal, Vault};
use platform::wiring;
use webhook::{Senders, Webhook};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let webhook = webhook(&wiring::vault().await?).await?;
    let webhook = &webhook;
    run(service_fn(move |request: Request| async move {
        let (parts, body) = request.into_parts();
        Ok::<_, Error>(webhook.handle(&parts, body.as_ref(), Timestamp::now()).await)
    }))
    .await
}

async fn webhook(
    vault: &Arc<Vault>,
) -> anyhow::Result<Webhook<impl platform::store::Store + use<>, impl platform::outlets::Outlets + use<>>> {
    let policies = wiring::policies(&**vault)?;
    let senders = senders(vault)?;
    let (store, outlets) = wiring::on_aws(&**vault)?;
    let webhook = Webhook::new(store, outlets, policies, wiring::own(&**vault)?, senders, wiring::log(&**vault));
    Ok(webhook.renewing(Renewal::new(vault, Timestamp::now, renewed)))
}

fn senders(vault: &Vault) -> anyhow::Result<Senders> {
    Ok(Senders {
        github: wiring::secrets(vault, "SUTURE_WEBHOOK_SECRET")?.context("SUTURE_WEBHOOK_SECRET is not set")?,
        jenkins: wiring::secrets(vault, "SUTURE_JENKINS_WEBHOOK_SECRET")?,
        bot: wiring::secrets(vault, "SUTURE_BOT_SECRET")?,
    })
}

/// What a secret was changed to may be nonsense: then the old one is kept, and the log says why.
fn renewed(vault: &Vault) -> Option<Senders> {
    senders(vault).inspect_err(|error| tracing::error!("a secret is not usable, the old one is kept: {error}")).ok()
}
