//! HTTP without sockets: records requests, and fails on demand.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use platform::transport::{BoxError, Transport};
use serde_json::Value;

use crate::{Faults, SharedFakes, locked};

/// A recorded request.
#[derive(Debug, Clone)]
pub struct SentRequest {
    /// The name of the receiver, such as `GitHub`.
    pub target: &'static str,
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    body: Bytes,
}

impl SentRequest {
    #[must_use]
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Method and path.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// Creates transports that share [`Faults`] and a list of sent requests.
#[derive(Debug, Clone, Default)]
pub struct FaultTransport {
    pub faults: Arc<Faults>,
    sent: Arc<Mutex<Vec<SentRequest>>>,
    refused: Arc<Mutex<BTreeSet<String>>>,
}

impl FaultTransport {
    #[must_use]
    pub fn new(faults: &Arc<Faults>) -> Self {
        Self { faults: Arc::clone(faults), ..Self::default() }
    }

    /// A transport to a named target; `answer` produces its responses.
    #[must_use]
    pub fn to<F>(&self, target: &'static str, answer: F) -> Transport
    where
        F: Fn(Request<Bytes>) -> Result<Response<Bytes>, BoxError> + Send + Sync + 'static,
    {
        let (this, answer) = (self.clone(), Arc::new(answer));
        Transport::with_service(tower::service_fn(move |request: Request<Bytes>| {
            let answer = Arc::clone(&answer);
            let sent = SentRequest {
                target,
                method: request.method().to_string(),
                path: request.uri().path().to_owned(),
                query: request.uri().query().unwrap_or_default().to_owned(),
                headers: request.headers().clone(),
                body: request.body().clone(),
            };
            let (name, faults) = (format!("{target} {}", sent.line()), Arc::clone(&this.faults));
            locked(&this.sent).push(sent);
            let refused = locked(&this.refused).iter().any(|refused| name.contains(refused));
            async move {
                if refused {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
                }
                faults.call(name, async { answer(request) }).await?
            }
        }))
    }

    /// Starts or stops refusing the connections of all requests whose target, method and path contain `named`.
    pub fn refuse_connections(&self, named: &str, refuse: bool) {
        let refused = &mut locked(&self.refused);
        if refuse {
            refused.insert(named.to_owned())
        } else {
            refused.remove(named)
        };
    }

    /// A transport to the fake GitHub.
    #[must_use]
    pub fn github(&self, fakes: &SharedFakes) -> Transport {
        let fakes = Arc::clone(fakes);
        self.to("GitHub", move |request| locked(&fakes).github(request).map_err(Into::into))
    }

    /// A transport to the fake Jenkins.
    #[must_use]
    pub fn jenkins(&self, fakes: &SharedFakes) -> Transport {
        let fakes = Arc::clone(fakes);
        self.to("Jenkins", move |request| locked(&fakes).jenkins(request).map_err(Into::into))
    }

    #[must_use]
    pub fn sent(&self) -> Vec<SentRequest> {
        locked(&self.sent).clone()
    }

    #[must_use]
    pub fn count(&self) -> usize {
        locked(&self.sent).len()
    }

    /// Counts the requests to this target, and removes them from the list.
    pub fn take_count(&self, target: &str) -> usize {
        let mut sent = locked(&self.sent);
        let before = sent.len();
        sent.retain(|sent| sent.target != target);
        before - sent.len()
    }

    /// Method and path of each request.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        locked(&self.sent).iter().map(SentRequest::line).collect()
    }

    #[must_use]
    pub fn last(&self) -> SentRequest {
        locked(&self.sent).last().cloned().expect("at least one request")
    }
}
