//! What is for everybody: health, the description, and the dashboard's own files.

use axum::Json;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

const PAGE: &str = include_str!("../../dashboard/index.html");
const SCRIPT: &str = include_str!("../../dashboard/app.js");
const PAGES: &str = include_str!("../../dashboard/pages.js");
const STYLE: &str = include_str!("../../dashboard/style.css");
/// As it stands in the repository, where a test keeps it true: generating it would be part of the program.
const DESCRIPTION: &str = include_str!("../../../../docs/openapi.json");

/// That it is there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`.
    status: &'static str,
    /// Of this build.
    version: &'static str,
}

/// Whether the API is there. Asks nothing of the tables.
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "Here it is.", body = Health)))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// This description.
#[utoipa::path(get, path = "/api/openapi.json", responses((status = 200, description = "Here it is.", content_type = "application/json", body = Object)))]
pub(crate) async fn openapi() -> impl IntoResponse {
    file("application/json", DESCRIPTION)
}

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    // Asked for again each time, and answered from memory: a new version is seen at once.
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text)
}

/// The dashboard.
pub(crate) async fn page() -> impl IntoResponse {
    file("text/html; charset=utf-8", PAGE)
}

/// Its script.
pub(crate) async fn script() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", SCRIPT)
}

/// The rest of it, which the script loads when it is needed.
pub(crate) async fn pages() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", PAGES)
}

/// Its style.
pub(crate) async fn style() -> impl IntoResponse {
    file("text/css; charset=utf-8", STYLE)
}
