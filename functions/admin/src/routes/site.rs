//! Public routes: health, the OpenAPI description, and the files of the dashboard.

use axum::Json;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

const PAGE: &str = include_str!("../../dashboard/index.html");
const SCRIPT: &str = include_str!("../../dashboard/app.js");
const PAGES: &str = include_str!("../../dashboard/pages.js");
const STYLE: &str = include_str!("../../dashboard/style.css");
/// The committed file, which a test compares with the code: generating it here would add the generator to the binary.
const DESCRIPTION: &str = include_str!("../../../../docs/openapi.json");

/// The health of the API.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthView {
    /// Always `ok`.
    status: &'static str,
    /// The version of this build.
    version: &'static str,
}

/// Health check. Does not read the tables.
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "OK.", body = HealthView)))]
pub(crate) async fn healthz() -> Json<HealthView> {
    Json(HealthView { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// This OpenAPI description.
#[utoipa::path(get, path = "/api/openapi.json", responses((status = 200, description = "OK.", content_type = "application/json", body = Object)))]
pub(crate) async fn openapi() -> impl IntoResponse {
    file("application/json", DESCRIPTION)
}

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    // Revalidated on every load, so that a new version is used immediately.
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text)
}

/// The dashboard.
pub(crate) async fn page() -> impl IntoResponse {
    file("text/html; charset=utf-8", PAGE)
}

/// The script of the dashboard.
pub(crate) async fn script() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", SCRIPT)
}

/// Further pages of the dashboard, which the script loads on demand.
pub(crate) async fn pages() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", PAGES)
}

/// The style sheet of the dashboard.
pub(crate) async fn style() -> impl IntoResponse {
    file("text/css; charset=utf-8", STYLE)
}
