//! Requests to bots that are retriggered by HTTP. Each is signed as GitHub signs webhooks, together with the time, so that the bot can
//! reject what others send or repeat: docs/setup.md describes the headers for receivers.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use domain::policy::Policies;
use http::{Method, Request, Response, header};
use jiff::Timestamp;
use platform::env::{ConfigError, Environment};
use platform::hash;
use platform::transport::{ApiError, Transport};

/// The variable with the secret.
pub const RETRIGGER_SECRET: &str = "SUTURE_RETRIGGER_SECRET";
/// Unix time in seconds, of the request.
const TIMESTAMP_HEADER: &str = "x-suture-timestamp";
/// `sha256=` and the HMAC-SHA256 of `<timestamp>.<body>`.
const SIGNATURE_HEADER: &str = "x-suture-signature-256";
/// The timeout of a request.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends signed requests. Clones share the secret.
#[derive(Clone)]
pub struct BotHttp {
    transport: Transport,
    secret: Arc<RwLock<Option<String>>>,
}

impl fmt::Debug for BotHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BotHttp").finish_non_exhaustive()
    }
}

/// Why a request was not answered.
pub(crate) enum PostError {
    /// It cannot be built or signed.
    Invalid(String),
    Api(ApiError),
}

impl BotHttp {
    /// Without a secret, no request is sent.
    pub fn new(transport: Transport, secret: Option<String>) -> Self {
        Self { transport, secret: Arc::new(RwLock::new(secret)) }
    }

    /// With the secret of the environment, which is needed if a bot is retriggered by HTTP.
    pub fn from_environment(
        transport: Transport,
        environment: &impl Environment,
        policies: &Policies,
    ) -> Result<Self, ConfigError> {
        let secret = environment.get(RETRIGGER_SECRET);
        if secret.is_none() && policies.retriggers_by_http() {
            return Err(ConfigError::Missing(RETRIGGER_SECRET));
        }
        Ok(Self::new(transport, secret))
    }

    /// The secret was rotated.
    pub fn use_secret(&self, secret: String) {
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = Some(secret);
    }

    pub(crate) async fn post(
        &self,
        address: &str,
        body: Vec<u8>,
        now: Timestamp,
    ) -> Result<Response<Bytes>, PostError> {
        let secret = self.secret.read().unwrap_or_else(PoisonError::into_inner).clone();
        let secret = secret.ok_or_else(|| PostError::Invalid(format!("{RETRIGGER_SECRET} is not set")))?;
        let at = now.as_second();
        let signed = [format!("{at}.").as_bytes(), &body].concat();
        let request = Request::builder()
            .method(Method::POST)
            .uri(address)
            .header(header::CONTENT_TYPE, "application/json")
            .header(TIMESTAMP_HEADER, at)
            .header(SIGNATURE_HEADER, hash::sign(&secret, &signed))
            .body(body.into())
            .map_err(|error| PostError::Invalid(format!("{address}: {error}")))?;
        self.transport.send(request, CALL_TIMEOUT).await.map_err(PostError::Api)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use platform::transport::BoxError;

    use super::*;

    struct TestEnv(Option<&'static str>);

    impl Environment for TestEnv {
        fn get(&self, _: &str) -> Option<String> {
            self.0.map(str::to_owned)
        }
    }

    type Sent = Arc<Mutex<Vec<Request<Bytes>>>>;

    fn recording() -> (Transport, Sent) {
        let sent = Sent::default();
        let requests = Arc::clone(&sent);
        let service = tower::service_fn(move |request: Request<Bytes>| {
            requests.lock().unwrap().push(request);
            async { Ok::<_, BoxError>(Response::new(Bytes::new())) }
        });
        (Transport::with_service(service), sent)
    }

    #[tokio::test]
    async fn request_is_signed_with_its_time_and_the_rotated_secret() {
        let (transport, sent) = recording();
        let http = BotHttp::new(transport, Some("old".to_owned()));
        http.clone().use_secret("key".to_owned());
        let now: Timestamp = "2026-03-02T09:00:00.7Z".parse().unwrap();
        assert!(http.post("https://bot.example/retrigger", br#"{"pr_number":42}"#.to_vec(), now).await.is_ok());
        let request = sent.lock().unwrap().remove(0);
        let header = |name: &str| request.headers()[name].to_str().unwrap();
        assert_eq!(header("x-suture-timestamp"), "1772442000");
        // printf '1772442000.{"pr_number":42}' | openssl dgst -sha256 -hmac key
        let expected = hash::sign("key", br#"1772442000.{"pr_number":42}"#);
        assert_eq!(header("x-suture-signature-256"), expected);
        assert!(expected.starts_with("sha256=") && expected.len() == "sha256=".len() + 64);
        assert!(!format!("{http:?}").contains("key"), "Debug output must not contain secrets");
    }

    #[tokio::test]
    async fn unsigned_request_is_never_sent() {
        let (transport, sent) = recording();
        let unsigned = BotHttp::new(transport.clone(), None);
        let posted = unsigned.post("https://bot.example", Vec::new(), Timestamp::UNIX_EPOCH).await;
        assert!(matches!(posted, Err(PostError::Invalid(why)) if why.contains(RETRIGGER_SECRET)));
        assert!(sent.lock().unwrap().is_empty());
        let by_http = Policies::parse(
            "[repos.'acme/shop']\nretrigger.codegenie = { via = 'http', target = 'https://x.example' }",
        )
        .unwrap();
        let error = BotHttp::from_environment(transport.clone(), &TestEnv(None), &by_http).unwrap_err();
        assert!(error.to_string().starts_with("SUTURE_RETRIGGER_SECRET is not set"), "{error}");
        assert!(BotHttp::from_environment(transport.clone(), &TestEnv(Some("s")), &by_http).is_ok());
        assert!(BotHttp::from_environment(transport, &TestEnv(None), &Policies::default()).is_ok());
    }
}
