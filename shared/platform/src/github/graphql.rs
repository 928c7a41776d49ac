//! GraphQL as GitHub speaks it: 200 with errors, and partial data with nulls. Octocrab's own call throws the data away when
//! there are errors, so answers are read here. The documents are static files in `queries/` but for one, held against
//! GitHub's published schema by a test.

use http::{Method, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::auth::Identity;
use super::client::{GitHub, body};
use super::rate_limit::Query;
use crate::transport::ApiError;

/// Pull requests with everything a snapshot needs.
pub(super) const PULL_REQUESTS: &str = include_str!("queries/pull_requests.graphql");
/// Further contexts of one pull request, and which of them are required.
pub(super) const CONTEXTS: &str = include_str!("queries/contexts.graphql");
/// Whether pull requests can be merged, asked again.
pub(super) const MERGEABLE: &str = include_str!("queries/mergeable.graphql");
/// The open pull requests of a repository.
pub(super) const OPEN_PULL_REQUESTS: &str = include_str!("queries/open_pull_requests.graphql");
/// Reacts to a comment or a review.
pub(super) const ADD_REACTION: &str = include_str!("queries/add_reaction.graphql");
pub(super) const PIN_ISSUE: &str = include_str!("queries/pin_issue.graphql");

/// Compares so many heads `h0`, `h1`, … with one base. The only document that is made and not written: `compare` cannot vary over
/// a list. It costs one point, however many they are.
#[must_use]
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

/// What GraphQL complains about.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct GraphqlError {
    pub(super) message: String,
    #[serde(default, rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) path: Vec<Value>,
    /// There if the question itself was wrong.
    #[serde(default)]
    extensions: Option<Value>,
}

/// An answer, whole or in part.
#[derive(Debug, Deserialize)]
pub(super) struct GraphqlResponse<T> {
    #[serde(default = "nothing")]
    pub(super) data: Option<T>,
    #[serde(default)]
    pub(super) errors: Vec<GraphqlError>,
}

fn nothing<T>() -> Option<T> {
    None
}

#[derive(Serialize)]
struct GraphqlRequest<'a, V> {
    query: &'a str,
    variables: V,
}

impl GitHub {
    /// Asks a query, and again if `repeat` and the failure may pass. Errors beside data are the caller's to judge; errors
    /// without data are ours.
    pub(super) async fn query<T: DeserializeOwned>(
        &self,
        who: Identity<'_>,
        document: &str,
        variables: impl Serialize,
        repeat: bool,
    ) -> Result<GraphqlResponse<T>, ApiError> {
        let question = GraphqlRequest { query: document, variables };
        let reply = self.call(who, |github| {
            let builder = Request::builder().method(Method::POST).uri("/graphql").extension(Query { repeat });
            let request = github.build_request(builder, Some(&question));
            async move { github.execute(request?).await }
        });
        self.judge(body(reply.await?).await?, false)
    }

    /// Asks for a change, once.
    pub(super) async fn mutate<T: DeserializeOwned>(
        &self,
        who: Identity<'_>,
        document: &str,
        variables: impl Serialize,
    ) -> Result<T, ApiError> {
        let question = GraphqlRequest { query: document, variables };
        let reply = self.write(who, Method::POST, "/graphql", Some(&question)).await?;
        let graph: GraphqlResponse<T> = self.judge(body(reply).await?, true)?;
        match (graph.data, graph.errors.first()) {
            (Some(data), None) => Ok(data),
            (_, Some(error)) => Err(refused(error)),
            (None, None) => Err(ApiError::Unreadable { why: "neither data nor errors".to_owned() }),
        }
    }

    fn judge<T>(&self, graph: GraphqlResponse<T>, writes: bool) -> Result<GraphqlResponse<T>, ApiError> {
        if graph.errors.iter().any(|error| error.kind.as_deref() == Some("RATE_LIMITED")) {
            let soon = self.limiter.clock.now().saturating_add(jiff::SignedDuration::from_mins(1));
            let reset =
                self.rate_limits().graphql.map(|rate| rate.resets_at).filter(|at| *at > self.limiter.clock.now());
            let until = reset.or(soon.ok()).unwrap_or(jiff::Timestamp::MAX);
            self.set_not_before(until);
            return Err(ApiError::RateLimited { until });
        }
        match (&graph.data, graph.errors.first()) {
            // GitHub's way of saying that it took too long, or broke: neither a type nor what is wrong with the question.
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
