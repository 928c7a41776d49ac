//! Wires the admin function and runs it behind the Lambda runtime.

use std::sync::Arc;

use admin::{Admin, Settings, router};
use axum::body::{Body, to_bytes};
use axum::http::Response;
use jiff::Timestamp;
use lambda_runtime::{Error, LambdaEvent, run, service_fn, tracing};
use platform::clock::SystemClock;
use platform::engine::Engine;
use platform::gateway::{Answer, Event};
use platform::secrets::{Renewal, Vault};
use platform::wiring::{self, Clients, Environment};
use tower::ServiceExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let vault = wiring::vault().await?;
    // Only live explanations need them.
    let clients = Clients::connect_if_set(&vault)?;
    let router = router(Arc::new(admin(&vault, clients.as_ref()).await?));
    let (router, clients) = (&router, &clients);
    run(service_fn(move |event: LambdaEvent<Event>| async move {
        let request = match event.payload.into_request() {
            Ok(request) => request.map(Body::from),
            Err(why) => return Ok(Answer::no_request(&why)),
        };
        if let Some(clients) = clients {
            clients.freshen(Timestamp::now()).await;
        }
        let (parts, body) = router.clone().oneshot(request).await?.into_parts();
        let body = to_bytes(body, usize::MAX).await?;
        Ok::<_, Error>(Response::from_parts(parts, body).into())
    }))
    .await
}

async fn admin(
    vault: &Arc<Vault>,
    clients: Option<&Clients>,
) -> anyhow::Result<
    Admin<impl platform::store::Store + 'static + use<>, impl platform::outlets::Outlets + 'static + use<>>,
> {
    let policies = wiring::policies(&**vault)?;
    let (store, outlets) = wiring::on_aws(&**vault)?;
    let settings = Settings {
        keys: wiring::keys(&**vault)?,
        owner: vault.get("SUTURE_GITHUB_OWNER"),
        github: clients.map(|clients| clients.github.clone()),
        jenkins: clients.and_then(|clients| clients.jenkins.clone()),
        dlq: wiring::dlq(&**vault)?,
        clock: Arc::new(SystemClock),
        log: wiring::log(&**vault),
    };
    let admin = Admin::new(Engine::new(store, outlets, policies), settings);
    let keys = |vault: &Vault| {
        let keys = wiring::keys(vault);
        keys.inspect_err(|error| tracing::error!("the keys are not usable, the old ones are kept: {error}")).ok()
    };
    Ok(admin.renewing(Renewal::new(vault, Timestamp::now, keys)))
}
