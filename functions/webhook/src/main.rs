//! Wires the webhook function and runs it behind the Lambda runtime.

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::gateway::{Answer, Event};
use platform::secrets::{Renewal, Vault};
use platform::wiring;
use webhook::{Senders, Webhook};

/// A webhook is many small texts, made and freed: a tenth of its instructions less than with the C library's (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let webhook = webhook(&wiring::vault().await?).await?;
    let webhook = &webhook;
    run(service_fn(move |event: LambdaEvent<Event>| async move {
        let (parts, body) = match event.payload.into_request() {
            Ok(request) => request.into_parts(),
            Err(why) => return Ok(Answer::no_request(&why)),
        };
        Ok::<_, Error>(webhook.handle(&parts, &body, Timestamp::now()).await.into())
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
