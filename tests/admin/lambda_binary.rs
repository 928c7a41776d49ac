//! The release binary behind the Lambda Runtime API, with DynamoDB in this process and a request in API Gateway's
//! format.

use admin::keys::new_key;
use domain::command::ApiRole;
use platform::engine::Engine;
use platform::store::Store as _;
use platform::store::schema;
use serde_json::{Value, json};
use testbed::RecordingPublisher;
use tests::lambda::Function;
use tests::local_aws::{Dynoxide, fresh_names};
use tests::{acting, minute, opened, pr, start};

/// The API Gateway event (payload version 2.0) of a request.
fn gateway_event(path: &str, key: Option<&str>) -> Value {
    let authorization = key.map(|key| format!("Bearer {key}")).unwrap_or_default();
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
        "headers": {"host": "suture.example", "authorization": authorization},
        "requestContext": {
            "accountId": "123456789012", "apiId": "api", "domainName": "suture.example", "domainPrefix": "suture",
            "http": {"method": "GET", "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1", "userAgent": "x"},
            "requestId": "r", "routeKey": "$default", "stage": "$default",
            "time": "02/Mar/2036:09:00:00 +0000", "timeEpoch": 1_772_442_000_000_u64
        },
        "isBase64Encoded": false
    })
}

/// After a code change this test first builds the release binary, which takes minutes. `SUTURE_PROFILE=dev` avoids
/// that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_binary_answers_gateway_events() {
    let dynamo = Dynoxide::in_memory().await;
    let names = fresh_names();
    let engine = Engine::new(dynamo.store_on(names.clone()).await, RecordingPublisher::default(), acting());
    engine.apply(&opened(&pr(42), "d0", start()), start()).await.unwrap();
    engine.store().write(vec![schema::add_repo(&pr(42).repo)], minute(1)).await.unwrap();
    let (key, entry) = new_key("ops", ApiRole::Viewer).unwrap();
    let function = Function::start(
        "admin",
        &[
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_ENDPOINT_URL_DYNAMODB", dynamo.endpoint()),
            ("SUTURE_STATE_TABLE", &names.state),
            ("SUTURE_EVENTS_TABLE", &names.events),
            // Nothing listens there: an unexpected publish fails at once.
            ("SUTURE_COMMAND_QUEUE_URL", "http://127.0.0.1:9/queue"),
            ("SUTURE_FACTS_QUEUE_URL", "http://127.0.0.1:9/facts"),
            ("SUTURE_GITHUB_OWNER", "acme"),
            ("SUTURE_ADMIN_KEYS", &entry),
        ],
    )
    .await;
    let status = function.invoke(&gateway_event("/api/pr/shop/42/status", Some(&key))).await;
    assert_eq!(status["statusCode"], 200, "{status}");
    let body: Value = serde_json::from_str(status["body"].as_str().unwrap()).unwrap();
    assert_eq!((&body["state"], &body["number"]), (&json!("CREATED"), &json!(42)));
    // API Gateway decodes the path.
    let spelled = function.invoke(&gateway_event("/api/pr/acme/shop/42/explain", Some(&key))).await;
    assert_eq!(spelled["statusCode"], 200, "{spelled}");
    let refused = function.invoke(&gateway_event("/api/overview", None)).await;
    let problem = (&refused["statusCode"], &refused["headers"]["content-type"]);
    assert_eq!(problem, (&json!(401), &json!("application/problem+json")));
    let page = function.invoke(&gateway_event("/", None)).await;
    assert_eq!(
        (&page["statusCode"], &page["headers"]["content-type"]),
        (&json!(200), &json!("text/html; charset=utf-8"))
    );
}
