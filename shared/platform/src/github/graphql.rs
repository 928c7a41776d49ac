//! GraphQL requests. GitHub returns errors with status 200, possibly beside partial data with nulls; octocrab's own method drops the
//! data if there are errors, so responses are decoded here. The documents are in `queries/`, except `comparisons`; a test validates
//! them against GitHub's published schema.

use http::{Method, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::auth::Identity;
use super::client::{GitHub, body};
use super::rate_limit::Query;
use crate::transport::ApiError;

pub(super) const PULL_REQUESTS: &str = include_str!("queries/pull_requests.graphql");
/// Further contexts of one pull request, and which of them are required.
pub(super) const CONTEXTS: &str = include_str!("queries/contexts.graphql");
/// Polls the mergeability of pull requests.
pub(super) const MERGEABLE: &str = include_str!("queries/mergeable.graphql");
/// The open pull requests of a repository.
pub(super) const OPEN_PULL_REQUESTS: &str = include_str!("queries/open_pull_requests.graphql");
/// The closed and merged pull requests of a repository.
pub(super) const CLOSED_PULL_REQUESTS: &str = include_str!("queries/closed_pull_requests.graphql");
/// Reacts to a comment or a review.
pub(super) const ADD_REACTION: &str = include_str!("queries/add_reaction.graphql");
pub(super) const PIN_ISSUE: &str = include_str!("queries/pin_issue.graphql");

/// A document that compares the heads `h0`, `h1`, … with one base. Generated, because `compare` takes a single head. It costs one point
/// for any number of heads.
pub fn comparisons(heads: usize) -> String {
    use std::fmt::Write as _;
    let mut document = "query Comparisons($owner: String!, $name: String!, $base: String!".to_owned();
    for head in 0..heads {
        let _ = write!(document, ", $h{head}: String!");
    }
    document.push_str(") { repository(owner: $owner, name: $name) { ref(qualifiedName: $base) {");
    for head in 0..heads {
        let _ = write!(document, " h{head}: compare(headRef: $h{head}) {{ behindBy }}");
    }
    document.push_str(" } } rateLimit { cost remaining resetAt } }");
    document
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct GraphqlError {
    pub(super) message: String,
    #[serde(default, rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) path: Vec<Value>,
    /// Set if the query is invalid.
    #[serde(default)]
    extensions: Option<Value>,
}

/// Data, errors, or both.
#[derive(Debug, Deserialize)]
pub(super) struct GraphqlResponse<T> {
    #[serde(default = "none")]
    pub(super) data: Option<T>,
    #[serde(default)]
    pub(super) errors: Vec<GraphqlError>,
}

fn none<T>() -> Option<T> {
    None
}

#[derive(Serialize)]
struct GraphqlRequest<'a, V> {
    query: &'a str,
    variables: V,
}

impl GitHub {
    /// Sends a query; with `repeat`, it is retried after transient errors. Errors without data fail the call; errors beside data are left
    /// to the caller.
    pub(super) async fn query<T: DeserializeOwned>(
        &self,
        who: Identity<'_>,
        document: &str,
        variables: impl Serialize,
        repeat: bool,
    ) -> Result<GraphqlResponse<T>, ApiError> {
        let payload = GraphqlRequest { query: document, variables };
        let response = self.call(who, |github| {
            let builder = Request::builder().method(Method::POST).uri("/graphql").extension(Query { repeat });
            let request = github.build_request(builder, Some(&payload));
            async move { github.execute(request?).await }
        });
        self.check_errors(body(response.await?).await?, false)
    }

    /// Sends a mutation, without retries.
    pub(super) async fn mutate<T: DeserializeOwned>(
        &self,
        who: Identity<'_>,
        document: &str,
        variables: impl Serialize,
    ) -> Result<T, ApiError> {
        let payload = GraphqlRequest { query: document, variables };
        let response = self.write(who, Method::POST, "/graphql", Some(&payload)).await?;
        let graph: GraphqlResponse<T> = self.check_errors(body(response).await?, true)?;
        match (graph.data, graph.errors.first()) {
            (Some(data), None) => Ok(data),
            (_, Some(error)) => Err(refused(error)),
            (None, None) => Err(ApiError::Unreadable { why: "neither data nor errors".to_owned() }),
        }
    }

    fn check_errors<T>(&self, graph: GraphqlResponse<T>, writes: bool) -> Result<GraphqlResponse<T>, ApiError> {
        if graph.errors.iter().any(|error| error.kind.as_deref() == Some("RATE_LIMITED")) {
            let soon = self.limiter.clock.now().saturating_add(jiff::SignedDuration::from_mins(1));
            let reset =
                self.rate_limits().graphql.map(|rate| rate.resets_at).filter(|at| *at > self.limiter.clock.now());
            let until = reset.or(soon.ok()).unwrap_or(jiff::Timestamp::MAX);
            self.set_not_before(until);
            return Err(ApiError::RateLimited { until });
        }
        match (&graph.data, graph.errors.first()) {
            // Without a type and extensions the error is a timeout or an internal error.
            (None, Some(error)) if error.kind.is_none() && error.extensions.is_none() => {
                Err(ApiError::Unavailable { why: error.message.clone(), may_have_happened: writes })
            }
            (None, Some(error)) => Err(refused(error)),
            (Some(_), _) | (None, None) => Ok(graph),
        }
    }
}

fn refused(error: &GraphqlError) -> ApiError {
    let message = domain::event::truncate(&error.message, 300);
    match error.kind.as_deref() {
        Some("NOT_FOUND") => ApiError::NotFound { message },
        Some("FORBIDDEN" | "INSUFFICIENT_SCOPES") => ApiError::Refused { status: 403, message },
        Some(_) | None => ApiError::Refused { status: 422, message },
    }
}
