//! What API Gateway gives a function, and what it takes back: payload format 2.0 of HTTP APIs. Only what is used is read, once, and a
//! body is not copied: this is on the way of each webhook (ADR 0065).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a path may not hold as it is: API Gateway gives it as it was meant, not as it was sent.
const NOT_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A request, as API Gateway tells it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    raw_path: String,
    #[serde(default)]
    raw_query_string: String,
    #[serde(default, deserialize_with = "headers")]
    headers: HeaderMap,
    request_context: RequestContext,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

#[derive(Debug, Deserialize)]
struct RequestContext {
    http: Http,
}

#[derive(Debug, Deserialize)]
struct Http {
    method: String,
}

/// Why an event is no request.
#[derive(Debug, Error)]
pub enum NoRequest {
    /// Its method is none.
    #[error("the method cannot be read")]
    Method(#[source] http::method::InvalidMethod),
    /// Its path or query is none.
    #[error("the path cannot be read")]
    Path(#[source] http::uri::InvalidUri),
    /// Its body is not encoded as it says.
    #[error("the body is not the base64 it is said to be")]
    Body(#[source] base64::DecodeError),
}

impl Event {
    /// The request that was meant.
    ///
    /// # Errors
    /// [`NoRequest`] if it is none: whoever sent it is told so.
    pub fn into_request(self) -> Result<Request<Bytes>, NoRequest> {
        let mut target = utf8_percent_encode(&self.raw_path, NOT_IN_PATHS).to_string();
        if !self.raw_query_string.is_empty() {
            target.push('?');
            target.push_str(&self.raw_query_string);
        }
        let body = match self.body {
            Some(body) if self.is_base64_encoded => STANDARD.decode(body).map_err(NoRequest::Body)?.into(),
            Some(body) => Bytes::from(body),
            None => Bytes::new(),
        };
        let mut request = Request::new(body);
        *request.method_mut() =
            Method::from_bytes(self.request_context.http.method.as_bytes()).map_err(NoRequest::Method)?;
        *request.uri_mut() = Uri::try_from(target).map_err(NoRequest::Path)?;
        *request.headers_mut() = self.headers;
        Ok(request)
    }
}

/// Headers as API Gateway gives them: several of one name are one already. One that is none is left out.
fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderMap, D::Error> {
    struct Headers;

    impl<'de> Visitor<'de> for Headers {
        type Value = HeaderMap;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("headers by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderMap, A::Error> {
            let mut headers = HeaderMap::with_capacity(map.size_hint().unwrap_or(16));
            while let Some((name, value)) = map.next_entry::<String, String>()? {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                    headers.append(name, value);
                }
            }
            Ok(headers)
        }

        fn visit_unit<E>(self) -> Result<HeaderMap, E> {
            Ok(HeaderMap::new())
        }
    }

    deserializer.deserialize_any(Headers)
}

/// An answer, as API Gateway takes it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    status_code: u16,
    #[serde(serialize_with = "by_name")]
    headers: HeaderMap,
    body: String,
    is_base64_encoded: bool,
}

impl Answer {
    /// Nobody could tell what was asked.
    #[must_use]
    pub fn no_request(why: &NoRequest) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let detail = format!("{why}: send it again, as HTTP wants it");
        let body = serde_json::json!({
            "type": "about:blank", "title": "Bad Request", "status": 400, "code": "BAD_REQUEST", "detail": detail
        });
        Self { status_code: 400, headers, body: body.to_string(), is_base64_encoded: false }
    }
}

/// Text goes as it is, anything else (what is compressed) in base64.
impl<B: Into<Bytes>> From<Response<B>> for Answer {
    fn from(response: Response<B>) -> Self {
        let (parts, body) = response.into_parts();
        let body: Bytes = body.into();
        let (body, is_base64_encoded) = match String::from_utf8(body.into()) {
            Ok(text) => (text, false),
            Err(binary) => (STANDARD.encode(binary.as_bytes()), true),
        };
        Self { status_code: parts.status.as_u16(), headers: parts.headers, body, is_base64_encoded }
    }
}

/// Several of one name become one, as HTTP allows.
fn by_name<S: serde::Serializer>(headers: &HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(headers.keys().map(|name| {
        let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        (name.as_str(), values.collect::<Vec<_>>().join(", "))
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(changes: &Value) -> Event {
        let mut event = json!({
            "version": "2.0", "rawPath": "/webhook/github", "rawQueryString": "", "cookies": ["a=b"],
            "headers": {"content-type": "application/json", "x-twice": "1,2", "bad name": "x"},
            "requestContext": {"http": {"method": "POST", "path": "/webhook/github"}, "stage": "$default"},
            "body": "{\"a\": \"\u{e9}\"}", "isBase64Encoded": false
        });
        for (name, value) in changes.as_object().unwrap() {
            event[name] = value.clone();
        }
        // As Lambda gives it: bytes.
        serde_json::from_slice(event.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_request_is_what_was_sent() {
        let request = event(&json!({})).into_request().unwrap();
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/webhook/github"));
        assert_eq!(request.uri().query(), None);
        assert_eq!(request.headers().len(), 2, "what is no header is left out: {:?}", request.headers());
        assert_eq!(request.headers()["x-twice"], "1,2");
        assert_eq!(request.body(), "{\"a\": \"\u{e9}\"}");
    }

    #[test]
    fn a_path_is_encoded_where_it_has_to_be() {
        let changes = json!({"rawPath": "/api/pr/a b/\u{e9}%2F?", "rawQueryString": "after=x%20y&b=1"});
        let request = event(&changes).into_request().unwrap();
        assert_eq!(request.uri().path(), "/api/pr/a%20b/%C3%A9%2F%3F");
        assert_eq!(request.uri().query(), Some("after=x%20y&b=1"));
    }

    #[test]
    fn a_body_may_be_missing_or_encoded() {
        assert!(event(&json!({"body": null, "headers": null})).into_request().unwrap().body().is_empty());
        let encoded = json!({"body": "/wA=", "isBase64Encoded": true});
        assert_eq!(event(&encoded).into_request().unwrap().body().as_ref(), [0xff, 0]);
    }

    #[test]
    fn what_is_no_request_is_answered() {
        for changes in [
            json!({"body": "not base64!", "isBase64Encoded": true}),
            json!({"requestContext": {"http": {"method": "no method"}}}),
            json!({"rawPath": "", "rawQueryString": "a b"}),
        ] {
            let why = event(&changes).into_request().unwrap_err();
            let answer = serde_json::to_value(Answer::no_request(&why)).unwrap();
            assert_eq!(answer["statusCode"], 400);
            assert!(answer["body"].as_str().unwrap().contains(&why.to_string()), "{answer}");
        }
        let nonsense = serde_json::from_str::<Event>(r#"{"Records": []}"#).unwrap_err();
        assert!(nonsense.to_string().contains("rawPath"), "{nonsense}");
    }

    #[test]
    fn text_is_answered_as_text_and_anything_else_encoded() {
        let mut response = Response::new("{}".to_owned());
        response.headers_mut().append("vary", HeaderValue::from_static("a"));
        response.headers_mut().append("vary", HeaderValue::from_static("b"));
        let answer = serde_json::to_value(Answer::from(response)).unwrap();
        let expected = json!({"statusCode": 200, "headers": {"vary": "a, b"}, "body": "{}", "isBase64Encoded": false});
        assert_eq!(answer, expected);
        let answer = Answer::from(Response::new(vec![0x1f, 0x8b, 0xff]));
        assert_eq!((answer.body.as_str(), answer.is_base64_encoded), ("H4v/", true));
    }
}
