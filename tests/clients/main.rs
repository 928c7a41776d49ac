//! The GitHub and the Jenkins client: what they send is held against what GitHub publishes, how they behave against the
//! simulated fakes, and what the fakes does not do against answers made up here.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test support may stop when its own setting is wrong")]

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

/// A client before made-up answers.
struct ScriptedGitHub {
    github: GitHub,
    transport: FaultTransport,
    clock: ManualClock,
}

/// A GitHub client that gets these answers.
fn scripted_github<F>(credentials: &Credentials, answer: F) -> ScriptedGitHub
where
    F: Fn(Request<Bytes>) -> Result<Response<Bytes>, BoxError> + Send + Sync + 'static,
{
    let (transport, clock) = (FaultTransport::default(), ManualClock::at(tests::start()));
    let answering = transport.to("GitHub", answer);
    let github = GitHub::with_service(credentials, GitHubSettings::default(), answering, Arc::new(clock.clone()));
    ScriptedGitHub { github, transport, clock }
}

/// An answer.
fn response(status: u16, body: &str) -> Response<Bytes> {
    Response::builder().status(status).body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

/// The clients before the fakes, as an App and with Jenkins' API token.
fn testbed_with(settings: fakes::FakeSettings) -> Testbed {
    Testbed::new(settings, "")
}

fn app() -> Credentials {
    app_credentials(4711).unwrap()
}

/// Somebody's token, which the fakes know.
fn token() -> Credentials {
    Credentials::token("world-token")
}
