//! Runs lambda_http behind API Gateway's HTTP API, with three additions: a path without the stage and the custom domain's base path, a
//! query string that always parses, and a 503 response before the invocation times out.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use lambda_http::request::LambdaRequest;
use lambda_http::{
    Adapter, Body, Error, IntoResponse, LambdaEvent, Request, RequestExt, Response, lambda_runtime, service_fn,
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tower::ServiceBuilder;
use tracing::error;

use crate::telemetry::InvocationIds;

/// Characters that API Gateway passes on in a query although a URI must not contain them.
const NOT_IN_QUERIES: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');
/// The response must be sent this long before Lambda stops the invocation.
const RESERVE: Duration = Duration::from_millis(500);

pub async fn run<H, F, R>(handler: H) -> Result<(), Error>
where
    H: Fn(Request) -> F + Sync,
    F: Future<Output = Result<R, Error>> + Send,
    R: IntoResponse + Send,
{
    let handler = &handler;
    let with_timeout = service_fn(move |request: Request| async move {
        let left = time_left(&request, Timestamp::now());
        let ids = invocation_ids(&request);
        match tokio::time::timeout(left, ids.scope(handler(request))).await {
            Ok(response) => Ok::<_, Error>(response?.into_response().await),
            Err(_) => {
                error!("request timed out; responded 503");
                Ok(timed_out())
            }
        }
    });
    lambda_runtime::run(ServiceBuilder::new().map_request(normalise).service(Adapter::from(with_timeout))).await
}

/// The tracing header of API Gateway if there is one: Lambda's own begins a new trace.
fn invocation_ids(request: &Request) -> InvocationIds {
    let Some(context) = request.lambda_context_ref() else { return InvocationIds::default() };
    let header = request.headers().get("x-amzn-trace-id").and_then(|header| header.to_str().ok());
    InvocationIds::new(&context.request_id, header.or(context.xray_trace_id.as_deref()))
}

fn time_left(request: &Request, now: Timestamp) -> Duration {
    let Some(context) = request.lambda_context_ref() else { return Duration::MAX };
    let deadline = Duration::from_millis(context.deadline);
    let now = Duration::from_millis(now.as_millisecond().unsigned_abs());
    deadline.saturating_sub(now).saturating_sub(RESERVE)
}

fn timed_out() -> Response<Body> {
    let body = serde_json::json!({
        "type": "about:blank", "title": "Service Unavailable", "status": 503, "code": "TEMPORARILY_UNAVAILABLE",
        "detail": "the request timed out: retry it"
    });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    let problem = http::HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, problem);
    response
}

/// Without this lambda_http would put the stage before the path, and panic on an invalid query.
fn normalise(mut event: LambdaEvent<LambdaRequest>) -> LambdaEvent<LambdaRequest> {
    if let LambdaRequest::ApiGatewayV2(request) = &mut event.payload {
        request.raw_path = Some(path_of(request));
        request.request_context.stage = None;
        if let Some(query) = &mut request.raw_query_string {
            *query = utf8_percent_encode(query, NOT_IN_QUERIES).to_string();
        }
    }
    event
}

/// The path of the route, without the stage or a custom domain's base path before it.
fn path_of(request: &ApiGatewayV2httpRequest) -> String {
    let raw = request.raw_path.as_deref().unwrap_or("/");
    let stage = request.request_context.stage.as_deref().unwrap_or_default();
    let raw = raw
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(stage))
        .filter(|path| path.starts_with('/'))
        .unwrap_or(raw);
    let route = request.route_key.as_deref().or(request.request_context.route_key.as_deref()).unwrap_or_default();
    let Some((_, pattern)) = route.split_once(' ') else { return raw.to_owned() };
    if !pattern.contains('{') {
        return pattern.to_owned();
    }
    let mut path = pattern.to_owned();
    for (name, value) in &request.path_parameters {
        path = path.replace(&format!("{{{name}+}}"), value).replace(&format!("{{{name}}}"), value);
    }
    if raw.ends_with(&path) { path } else { raw.to_owned() }
}

#[cfg(test)]
mod tests {
    use lambda_http::Context;
    use serde_json::{Value, json};

    use super::*;

    fn request(changes: &Value) -> Request {
        let mut event = json!({
            "version": "2.0", "rawPath": "/api/overview", "rawQueryString": "", "routeKey": "ANY /api/{proxy+}",
            "pathParameters": {"proxy": "overview"},
            "headers": {"content-type": "application/json", "host": "suture.example"},
            "requestContext": {"http": {"method": "GET", "path": "/api/overview"}, "stage": "$default"},
            "isBase64Encoded": false
        });
        for (name, value) in changes.as_object().unwrap() {
            event[name] = value.clone();
        }
        let payload = serde_json::from_value(event).unwrap();
        normalise(LambdaEvent::new(payload, Context::default())).payload.into()
    }

    #[test]
    fn stage_and_base_path_are_removed_from_the_path() {
        let staged = json!({"http": {"method": "GET", "path": "/"}, "stage": "prod"});
        for (changes, path) in [
            (json!({}), "/api/overview"),
            (json!({"rawPath": "/suture/api/overview"}), "/api/overview"),
            (json!({"rawPath": "/api/api/overview"}), "/api/overview"),
            (json!({"rawPath": "/prod/api/overview", "requestContext": staged}), "/api/overview"),
            (json!({"rawPath": "/prod/healthz", "routeKey": "$default", "requestContext": staged}), "/healthz"),
            (json!({"rawPath": "/suture/", "routeKey": "GET /", "pathParameters": {}}), "/"),
            (json!({"rawPath": "/suture/webhook/github", "routeKey": "POST /webhook/github"}), "/webhook/github"),
        ] {
            assert_eq!(request(&changes).uri().path(), path, "{changes}");
        }
    }

    #[test]
    fn invalid_query_is_encoded() {
        let invalid = request(&json!({"rawQueryString": "a=<b> c\"d&e=%20"}));
        assert_eq!(invalid.uri().query(), Some("a=%3Cb%3E%20c%22d&e=%20"));
    }

    #[test]
    fn trace_of_api_gateway_goes_on() {
        let mut context = Context::default();
        context.request_id = "r-1".to_owned();
        context.xray_trace_id = Some("Root=1-lambda".to_owned());
        let traced = json!({"host": "suture.example", "x-amzn-trace-id": "Root=1-gateway;Sampled=0"});
        let ids = invocation_ids(&request(&json!({"headers": traced})).with_lambda_context(context.clone()));
        assert_eq!((ids.request_id.as_str(), ids.trace.as_deref()), ("r-1", Some("1-gateway")));
        let ids = invocation_ids(&request(&json!({})).with_lambda_context(context));
        assert_eq!(ids.trace.as_deref(), Some("1-lambda"));
    }

    #[test]
    fn time_left_ends_before_the_deadline() {
        let mut context = Context::default();
        context.deadline = 10_000;
        let request = request(&json!({})).with_lambda_context(context);
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        assert_eq!(time_left(&request, at(4_000)), Duration::from_millis(5_500));
        assert_eq!(time_left(&request, at(9_900)), Duration::ZERO);
    }
}
