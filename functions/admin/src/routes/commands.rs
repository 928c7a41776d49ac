//! Command routes: one command, or a batch.

use std::sync::Arc;

use crate::api_keys::ApiCaller;
use crate::command::CommandSubmission;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::command::{ARGS_MAX_CHARS, Command};
use domain::event::truncate;
use domain::id::PrId;
use platform::publish::Publisher;
use platform::store::Store;
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ArrayBuilder, Object, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::lists::PrParams;
use crate::Admin;
use crate::auth::Operator;
use crate::extract::{PrNumber, PrPath, repo};
use crate::idempotent_request::{IdempotentRequest, RequestIdentity, StillProcessing};
use crate::problem::{ApiProblem, CommonProblems};

/// Largest batch of commands.
const MAX_BATCH: usize = 100;

/// The idempotency key of a POST request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct IdempotencyHeaders {
    /// A repeated request with the same key is executed once and gets the same response for a day. Also accepted as
    /// `X-Idempotency-Key` or `X-Request-ID`.
    #[param(rename = "Idempotency-Key", required = false, min_length = 1, max_length = 200, pattern = "^[!-~]+$")]
    idempotency_key: String,
}

/// A command.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandBody {
    /// The command.
    #[schema(schema_with = valid_command)]
    command: String,
    /// The arguments, such as the reason of a `/hold`.
    args: Option<String>,
}

/// All commands except the queries, which have their own routes.
fn valid_command() -> Object {
    let is_query = |command: &Command| matches!(command, Command::Status | Command::Explain);
    let names = Command::ALL.into_iter().filter(|command| !is_query(command)).map(Command::name);
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).examples(["/rebuild"]).build()
}

/// A command on the queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CommandQueued {
    /// The id of the command, also in the event log.
    command_id: String,
    /// The run that it starts, once the Car Bridge has received it.
    run_id: Option<String>,
}

fn known_repo(text: &str) -> Result<Command, ApiProblem> {
    Command::parse_name(text).map_err(|unknown| ApiProblem::bad_request("UNKNOWN_COMMAND", unknown.to_string()))
}

async fn submit<S: Store, O: Publisher>(
    admin: &Admin<S, O>,
    caller: &ApiCaller,
    pr: PrId,
    body: CommandBody,
    (identity, n): (&RequestIdentity, usize),
) -> Result<CommandQueued, ApiProblem> {
    let command = known_repo(&body.command)?;
    let args = body.args.map(|args| truncate(args.trim(), ARGS_MAX_CHARS)).filter(|args| !args.is_empty());
    let submission = CommandSubmission { pr, command, args, id: identity.command(n), at: identity.at };
    let accepted = admin.api.command(caller, submission).await?;
    Ok(CommandQueued { command_id: accepted.command.to_string(), run_id: accepted.run.map(|run| run.to_string()) })
}

/// Submits a command: it is validated, put onto the queue, and executed by the Car Bridge.
#[utoipa::path(
    post, path = "/api/pr/{repo}/{number}/command", params(PrParams, IdempotencyHeaders), request_body = CommandBody,
    security(("key" = [])),
    responses((status = 202, description = "Accepted.", body = inline(CommandAccepted)), CommonProblems)
)]
pub(crate) async fn command<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Operator(caller): Operator,
    PrPath(pr): PrPath,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    let body: CommandBody = request.body.object()?;
    let submit = async |identity: RequestIdentity| submit(&admin, &caller, pr, body, (&identity, 0)).await;
    request.run_once(&admin, &caller, StatusCode::ACCEPTED, submit).await
}

/// On the queue, or still being processed.
#[derive(ToSchema)]
#[schema(title = "Taken")]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum CommandAccepted {
    Queued(CommandQueued),
    Processing(StillProcessing),
}

/// One command of a batch. An invalid repository or command is reported in its own result.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchItem {
    /// `owner/name`, or a bare name of the configured owner.
    repo: String,
    #[schema(inline)]
    pr_number: PrNumber,
    /// Such as `/rebuild`.
    command: String,
    args: Option<String>,
}

/// The result of one command of a batch.
#[derive(Debug, Serialize, ToSchema)]
struct BatchResult {
    repo: String,
    pr_number: u64,
    /// 202, or the status of the error.
    status: u16,
    command_id: Option<String>,
    run_id: Option<String>,
    /// The `code` of the error.
    code: Option<&'static str>,
    detail: Option<String>,
}

/// The results of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchResults {
    /// In the order of the request.
    results: Vec<BatchResult>,
}

/// Submits up to 100 commands. A rejected command does not affect the others.
#[utoipa::path(
    post, path = "/api/commands", params(IdempotencyHeaders), request_body = inline(CommandBatch), security(("key" = [])),
    responses((status = 207, description = "One result per command.", body = BatchResults), (status = 202, description = "The same request is already being processed.", body = StillProcessing), CommonProblems)
)]
pub(crate) async fn commands<S: Store + 'static, O: Publisher + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Operator(caller): Operator,
    request: IdempotentRequest,
) -> Result<Response, ApiProblem> {
    let CommandBatch(items) = request.body.json()?;
    if items.is_empty() || items.len() > MAX_BATCH {
        let detail = format!("A batch of {} commands is not possible. Send 1 to {MAX_BATCH}.", items.len());
        return Err(ApiProblem::bad_request("BAD_BATCH", detail));
    }
    request
        .run_once(&admin, &caller, StatusCode::MULTI_STATUS, async |identity| {
            let mut results = Vec::with_capacity(items.len());
            for (n, item) in items.into_iter().enumerate() {
                results.push(submit_item(&admin, &caller, item, (&identity, n)).await?);
            }
            Ok(BatchResults { results })
        })
        .await
}

/// At most 100 commands.
#[derive(Debug, Deserialize)]
pub(crate) struct CommandBatch(Vec<BatchItem>);

impl PartialSchema for CommandBatch {
    fn schema() -> RefOr<Schema> {
        let items = ArrayBuilder::new().items(Ref::from_schema_name(BatchItem::name()));
        items.min_items(Some(1)).max_items(Some(MAX_BATCH)).into()
    }
}

impl ToSchema for CommandBatch {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((BatchItem::name().into_owned(), BatchItem::schema()));
    }
}

/// A rejected command fails alone; an unavailable service fails the whole batch, which can be repeated with the same key.
async fn submit_item<S: Store, O: Publisher>(
    admin: &Admin<S, O>,
    caller: &ApiCaller,
    item: BatchItem,
    position: (&RequestIdentity, usize),
) -> Result<BatchResult, ApiProblem> {
    let BatchItem { repo: name, pr_number: PrNumber(pr_number), command, args } = item;
    let submitted = async {
        let repo = repo(&name, admin.owner.as_deref())?;
        submit(admin, caller, PrId::new(repo, pr_number), CommandBody { command, args }, position).await
    };
    let result = |status: u16| BatchResult {
        repo: truncate(&name, 201),
        pr_number,
        status,
        command_id: None,
        run_id: None,
        code: None,
        detail: None,
    };
    match submitted.await {
        Ok(CommandQueued { command_id, run_id }) => {
            Ok(BatchResult { command_id: Some(command_id), run_id, ..result(202) })
        }
        Err(problem) if problem.status >= 500 => Err(problem),
        Err(ApiProblem { status, code, detail, .. }) => {
            Ok(BatchResult { code: Some(code), detail: Some(detail), ..result(status) })
        }
    }
}
