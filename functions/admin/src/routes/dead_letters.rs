//! Routes of the dead-letter queues: list, redrive, delete one message, purge.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use platform::publish::Publisher;
use platform::publish::dead_letters::{DeadLetter, DeadLetterSource};
use platform::store::Store;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::commands::IdempotencyHeaders;
use crate::Admin;
use crate::auth::GlobalAdministrator;
use crate::idempotent_request::{IdempotentRequest, StillProcessing};
use crate::problem::{ApiProblem, CommonProblems};

/// A message that could not be processed.
#[derive(Debug, Serialize, ToSchema)]
struct DeadLetterView {
    id: String,
    /// The queue it is in: `commands`, `facts` or `sweeps`.
    queue: &'static str,
    sent_at: Option<Timestamp>,
    /// Why it could not be processed.
    reason: String,
    body_excerpt: String,
    receive_count: u32,
}

impl From<&DeadLetter> for DeadLetterView {
    fn from(dead: &DeadLetter) -> Self {
        Self {
            id: dead.id.clone(),
            queue: dead.queue.name(),
            sent_at: dead.sent_at,
            reason: dead.reason(),
            body_excerpt: dead.excerpt(),
            receive_count: dead.receive_count,
        }
    }
}

/// The messages of the dead-letter queues.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeadLettersView {
    messages: Vec<DeadLetterView>,
    approximate_count: u64,
}

/// Lists the dead-letter queues, with the reason of each message.
#[utoipa::path(get, path = "/api/dlq", security(("key" = [])), responses((status = 200, description = "OK.", body = DeadLettersView), CommonProblems))]
pub(crate) async fn dlq<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    _caller: GlobalAdministrator,
) -> Result<Json<DeadLettersView>, ApiProblem> {
    let dump = admin.dlq.peek().await?;
    let messages = dump.messages.iter().map(DeadLetterView::from).collect();
    Ok(Json(DeadLettersView { messages, approximate_count: dump.approximate_count }))
}

/// How many messages were moved back to the queue they came from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedriveResult {
    moved: u64,
}

/// Moved back, or still being processed.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum RedriveAccepted {
    Moved(RedriveResult),
    Processing(StillProcessing),
}

/// Moves dead letters back to the queue they came from. Failed sweeps stay: the schedule has started others since.
#[utoipa::path(
    post, path = "/api/dlq/redrive", params(IdempotencyHeaders), security(("key" = [])),
    responses((status = 202, description = "Accepted.", body = inline(RedriveAccepted)), CommonProblems)
)]
pub(crate) async fn redrive<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    GlobalAdministrator(caller): GlobalAdministrator,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    let redrive = async |_| Ok(RedriveResult { moved: admin.dlq.redrive().await? });
    request.run_once(&admin, &caller, StatusCode::ACCEPTED, redrive).await
}

/// The message to delete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteBody {
    /// Its `id` in the list.
    #[schema(min_length = 1, max_length = 100)]
    id: String,
}

/// How many messages were deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeleteResult {
    deleted: u64,
}

/// Deleted, or still being processed.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum DeleteAccepted {
    Deleted(DeleteResult),
    Processing(StillProcessing),
}

/// Deletes one dead letter. `deleted` is 0 if there is none with this id, or if somebody else is looking at it: then try again in a minute.
#[utoipa::path(
    post, path = "/api/dlq/delete", params(IdempotencyHeaders), request_body = DeleteBody, security(("key" = [])),
    responses((status = 202, description = "Accepted.", body = inline(DeleteAccepted)), CommonProblems)
)]
pub(crate) async fn delete<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    GlobalAdministrator(caller): GlobalAdministrator,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    let DeleteBody { id } = request.body.object()?;
    let delete = async |_| Ok(DeleteResult { deleted: u64::from(admin.dlq.delete(&id).await?) });
    request.run_once(&admin, &caller, StatusCode::ACCEPTED, delete).await
}

/// Which queue to purge; an empty body means all of them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PurgeBody {
    /// `commands`, `facts` or `sweeps`.
    #[schema(value_type = Option<DeadLetterQueueName>, inline)]
    queue: Option<DeadLetterSource>,
}

/// The name of a dead-letter queue.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its description is used")]
enum DeadLetterQueueName {
    Commands,
    Facts,
    Sweeps,
}

/// Deletes all dead letters of one queue or of all. `deleted` is approximate.
#[utoipa::path(
    post, path = "/api/dlq/purge", params(IdempotencyHeaders), request_body = Option<PurgeBody>, security(("key" = [])),
    responses((status = 202, description = "Accepted.", body = inline(DeleteAccepted)), CommonProblems)
)]
pub(crate) async fn purge<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    GlobalAdministrator(caller): GlobalAdministrator,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    let PurgeBody { queue } = request.body.object_or_default::<Option<PurgeBody>>()?.unwrap_or_default();
    let purge = async |_| Ok(DeleteResult { deleted: admin.dlq.purge(queue).await? });
    request.run_once(&admin, &caller, StatusCode::ACCEPTED, purge).await
}
