//! The routes. Each is described once, beside its handler: `docs/openapi.json` is generated from that, and
//! `GET /api/openapi.json` serves it. The first argument of a handler after the state is the role it requires.

mod commands;
mod dead_letters;
mod insights;
mod lists;
mod operations;
mod overview;
mod runs;
mod site;

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, get, post};
use platform::publish::Publisher;
use platform::store::Store;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::Admin;
use crate::problem::ApiProblem;

/// Adds the bearer key to the description.
struct ApiKeySecurity;

impl Modify for ApiKeySecurity {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A key of SUTURE_ADMIN_KEYS."));
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(bearer.build()));
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Suture",
        description = "Queries and commands of Suture. `{repo}` is a bare name (of the configured owner) or \
                       `owner%2Fname`; `/api/pr/{owner}/{repo}/{number}/…` works too. Errors are \
                       `application/problem+json` with a stable `code`. A POST with an `Idempotency-Key` is executed once.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
        contact()
    ),
    paths(
        site::healthz,
        site::openapi,
        overview::overview,
        insights::insights,
        lists::prs,
        lists::stale,
        lists::status,
        lists::events,
        lists::explain,
        commands::command,
        commands::commands,
        runs::runs,
        runs::run,
        runs::cancel,
        runs::approve,
        runs::reject,
        operations::reconcile,
        operations::breaker,
        operations::reset_breaker,
        operations::pause,
        operations::unpause,
        dead_letters::dlq,
        dead_letters::redrive,
        dead_letters::delete,
        dead_letters::purge,
        operations::export_events,
    ),
    components(schemas(ApiProblem)),
    modifiers(&ApiKeySecurity)
)]
struct ApiDescription;

/// The OpenAPI 3.1 description, which `docs/openapi.json` must equal. The deployed function serves that file instead of
/// generating it.
pub fn openapi() -> utoipa::openapi::OpenApi {
    ApiDescription::openapi()
}

/// A path and its handlers.
type Route<S, O> = (&'static str, MethodRouter<Arc<Admin<S, O>>>);

/// All routes. Routes without a description belong to the dashboard, or are another form of a described path.
fn table<S: Store + 'static, O: Publisher + 'static>() -> Vec<Route<S, O>> {
    vec![
        ("/healthz", get(site::healthz)),
        ("/api/openapi.json", get(site::openapi)),
        ("/", get(site::page)),
        ("/assets/app.js", get(site::script)),
        ("/assets/pages.js", get(site::pages)),
        ("/assets/style.css", get(site::style)),
        ("/api/overview", get(overview::overview::<S, O>)),
        ("/api/insights", get(insights::insights::<S, O>)),
        ("/api/prs", get(lists::prs::<S, O>)),
        ("/api/prs/stale", get(lists::stale::<S, O>)),
        ("/api/pr/{repo}/{number}/status", get(lists::status::<S, O>)),
        ("/api/pr/{owner}/{repo}/{number}/status", get(lists::status::<S, O>)),
        ("/api/pr/{repo}/{number}/events", get(lists::events::<S, O>)),
        ("/api/pr/{owner}/{repo}/{number}/events", get(lists::events::<S, O>)),
        ("/api/pr/{repo}/{number}/explain", get(lists::explain::<S, O>)),
        ("/api/pr/{owner}/{repo}/{number}/explain", get(lists::explain::<S, O>)),
        ("/api/pr/{repo}/{number}/command", post(commands::command::<S, O>)),
        ("/api/pr/{owner}/{repo}/{number}/command", post(commands::command::<S, O>)),
        ("/api/commands", post(commands::commands::<S, O>)),
        ("/api/runs", get(runs::runs::<S, O>)),
        ("/api/runs/{id}", get(runs::run::<S, O>)),
        ("/api/runs/{id}/cancel", post(runs::cancel::<S, O>)),
        ("/api/runs/{id}/approve", post(runs::approve::<S, O>)),
        ("/api/runs/{id}/reject", post(runs::reject::<S, O>)),
        ("/api/reconciler/run", post(operations::reconcile::<S, O>)),
        ("/api/circuit-breaker", get(operations::breaker::<S, O>)),
        ("/api/circuit-breaker/reset", post(operations::reset_breaker::<S, O>)),
        ("/api/pause", post(operations::pause::<S, O>)),
        ("/api/unpause", post(operations::unpause::<S, O>)),
        ("/api/dlq", get(dead_letters::dlq::<S, O>)),
        ("/api/dlq/redrive", post(dead_letters::redrive::<S, O>)),
        ("/api/dlq/delete", post(dead_letters::delete::<S, O>)),
        ("/api/dlq/purge", post(dead_letters::purge::<S, O>)),
        ("/api/export/events", get(operations::export_events::<S, O>)),
    ]
}

/// The routes, without middleware.
pub(crate) fn routes<S: Store + 'static, O: Publisher + 'static>() -> Router<Arc<Admin<S, O>>> {
    let router = table().into_iter().fold(Router::new(), |router, (path, route)| router.route(path, route));
    router
        .fallback(async || ApiProblem::not_found())
        .method_not_allowed_fallback(async || ApiProblem::method_not_allowed())
}
