//! HTTP routing on one port: `/webhook/…` to the webhook function, all other paths to the admin function.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use platform::clock::Clock;
use platform::publish::Publisher;
use platform::store::Store;
use webhook::{MAX_BODY_BYTES, WebhookHandler};

pub(super) struct WebhookRoute<S, O> {
    pub(super) webhook: WebhookHandler<S, O>,
    pub(super) clock: Arc<dyn Clock>,
}

pub(super) fn router<S, O>(route: Arc<WebhookRoute<S, O>>, admin: Router) -> Router
where
    S: Store + 'static,
    O: Publisher + 'static,
{
    Router::new().route("/webhook/{sender}", any(receive::<S, O>)).with_state(route).fallback_service(admin)
}

async fn receive<S: Store, O: Publisher>(State(route): State<Arc<WebhookRoute<S, O>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // One byte over the limit is enough for the function to respond 413.
    let body = match to_bytes(body, MAX_BODY_BYTES + 1).await {
        Ok(body) => body.to_vec(),
        Err(_) => vec![0; MAX_BODY_BYTES + 1],
    };
    route.webhook.handle(&parts, &body, route.clock.now()).await.map(Body::from)
}
