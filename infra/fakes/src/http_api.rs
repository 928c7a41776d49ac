//! Code shared by both HTTP APIs: requests, responses, paging, and connections closed without a response.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use serde_json::{Value, json};

/// The connection was closed without a response. The client cannot know whether the request was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoResponse {
    /// Whether the request was applied.
    pub applied: bool,
}

impl std::fmt::Display for NoResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the connection was closed without a response")
    }
}

impl std::error::Error for NoResponse {}

#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The path's parts, percent-decoded.
    pub(crate) parts: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The body as JSON; null if it is not JSON.
    pub(crate) json: Value,
}

impl ApiRequest {
    pub(crate) fn of(request: Request<Bytes>) -> Self {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let parts = path.split('/').filter(|part| !part.is_empty()).map(|part| decoded(part, false)).collect();
        let query = head.uri.query().map_or_else(Vec::new, pairs);
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Self { method: head.method, path, parts, query, headers: head.headers, body, json }
    }

    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A text field of the JSON body.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.json.get(name).and_then(Value::as_str)
    }

    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD)
    }

    /// The fields of the query and of a form body.
    pub(crate) fn form(&self) -> Vec<(String, String)> {
        let text = String::from_utf8_lossy(&self.body);
        let mut fields = self.query.clone();
        fields.extend(pairs(&text));
        fields
    }
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key, true), decoded(value, true))
    };
    text.split('&').filter(|it| !it.is_empty()).map(pair).collect()
}

/// Percent-decoded; in queries and forms `+` is a space.
pub(crate) fn decoded(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) if plus => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[derive(Debug, Clone)]
pub(crate) struct ApiResponse {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
}

impl ApiResponse {
    pub(crate) fn json(code: u16, value: &Value) -> Self {
        let headers = vec![("content-type", "application/json; charset=utf-8".to_owned())];
        Self { code, headers, body: Bytes::from(value.to_string()) }
    }

    pub(crate) fn ok(value: &Value) -> Self {
        Self::json(200, value)
    }

    pub(crate) fn text(code: u16, text: impl Into<String>) -> Self {
        Self {
            code,
            headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())],
            body: Bytes::from(text.into()),
        }
    }

    pub(crate) fn empty(code: u16) -> Self {
        Self { code, headers: Vec::new(), body: Bytes::new() }
    }

    /// An error in GitHub's shape.
    pub(crate) fn error(code: u16, message: &str) -> Self {
        Self::json(
            code,
            &json!({"message": message, "documentation_url": "https://docs.github.com/rest", "status": code.to_string()}),
        )
    }

    /// GitHub's 422 with its list of errors.
    pub(crate) fn invalid(resource: &str, message: &str) -> Self {
        let errors = json!([{"resource": resource, "code": "custom", "message": message}]);
        Self::json(
            422,
            &json!({"message": "Validation Failed", "errors": errors, "documentation_url": "https://docs.github.com/rest", "status": "422"}),
        )
    }

    pub(crate) fn not_found() -> Self {
        Self::error(404, "Not Found")
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn into_response(self) -> Response<Bytes> {
        let mut builder = Response::builder().status(self.code);
        for (name, value) in self.headers {
            builder = builder.header(name, value);
        }
        // All header values here are valid, so this cannot fail.
        builder.body(self.body).unwrap_or_default()
    }
}

/// GitHub's maximum page size.
const PAGE: usize = 100;

/// One page of a list, with GitHub's `Link` header.
pub(crate) fn page(
    request: &ApiRequest,
    base_url: &str,
    items: Vec<Value>,
    wrap: impl FnOnce(Vec<Value>, usize) -> Value,
) -> ApiResponse {
    let number =
        |name: &str, default: usize| request.param(name).and_then(|it| it.parse().ok()).unwrap_or(default).max(1);
    let (per_page, page) = (number("per_page", 30).min(PAGE), number("page", 1));
    let total = items.len();
    let last = total.div_ceil(per_page).max(1);
    let shown: Vec<Value> = items.into_iter().skip((page - 1) * per_page).take(per_page).collect();
    let response = ApiResponse::ok(&wrap(shown, total));
    let url = |page: usize| {
        let mut query: Vec<String> = request
            .query
            .iter()
            .filter(|(key, _)| key != "page")
            .map(|(key, value)| format!("{key}={}", encoded(value)))
            .collect();
        query.push(format!("page={page}"));
        format!("{base_url}{}?{}", request.path, query.join("&"))
    };
    let mut links = Vec::new();
    if page > 1 {
        links.push(format!("<{}>; rel=\"prev\"", url(page - 1)));
    }
    if page < last {
        links.push(format!("<{}>; rel=\"next\"", url(page + 1)));
        links.push(format!("<{}>; rel=\"last\"", url(last)));
    }
    if links.is_empty() { response } else { response.with("link", links.join(", ")) }
}

/// Percent-encoded for a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
