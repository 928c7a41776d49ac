//! The GitHub and Jenkins clients: conformance with GitHub's published schemas, behaviour against the fakes, and rare
//! errors with scripted responses.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test support may panic")]

mod aws_timeouts;
mod github;
mod github_api_conformance;
mod jenkins;
mod retries_and_limits;
mod snapshots;

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use platform::github::{Credentials, GitHub, GitHubSettings};
use platform::transport::BoxError;
use testbed::{FaultTransport, ManualClock, Testbed, app_credentials};

/// A GitHub client with scripted responses.
struct ScriptedGitHub {
    github: GitHub,
    transport: FaultTransport,
    clock: ManualClock,
}

/// Builds a GitHub client whose requests are answered by this function.
fn scripted_github<F>(credentials: &Credentials, answer: F) -> ScriptedGitHub
where
    F: Fn(Request<Bytes>) -> Result<Response<Bytes>, BoxError> + Send + Sync + 'static,
{
    let (transport, clock) = (FaultTransport::default(), ManualClock::at(tests::start()));
    let answering = transport.to("GitHub", answer);
    let github = GitHub::with_service(credentials, GitHubSettings::default(), answering, Arc::new(clock.clone()));
    ScriptedGitHub { github, transport, clock }
}

fn response(status: u16, body: &str) -> Response<Bytes> {
    Response::builder().status(status).body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

/// A testbed with these fakes; the clients use a GitHub App and a Jenkins API token.
fn testbed_with(settings: fakes::FakeSettings) -> Testbed {
    Testbed::new(settings, "")
}

fn app() -> Credentials {
    app_credentials(4711).unwrap()
}

/// A personal token that the fakes accept.
fn token() -> Credentials {
    Credentials::token("world-token")
}
