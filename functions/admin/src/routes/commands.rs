//! Asking: one command, or many at once.

use std::sync::Arc;

use crate::api_keys::Caller;
use crate::command::Ask;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::command::{ARGS_MAX_CHARS, Command};
use domain::event::cut;
use domain::id::PrId;
use platform::outlets::Outlets;
use platform::store::Store;
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ArrayBuilder, Object, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::lists::PrParams;
use crate::Admin;
use crate::auth::Operator;
use crate::extract::{PrNumber, PrPath, repo};
use crate::idempotent_request::{Named, Processing, Wish};
use crate::problem::{Problem, Problems};

/// Most commands at once.
const MOST_AT_ONCE: usize = 100;

/// What makes a request the same request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct OnceParams {
    /// The same name and the same request: done once, and answered alike for a day. Also `X-Idempotency-Key`, `X-Request-ID`.
    #[param(rename = "Idempotency-Key", required = false, min_length = 1, max_length = 200, pattern = "^[!-~]+$")]
    idempotency_key: String,
}

/// A command.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandBody {
    /// What is to be done.
    #[schema(schema_with = doable)]
    command: String,
    /// What else there is to say, such as the reason of a `/hold`.
    args: Option<String>,
}

/// All commands but those that only ask: they have routes of their own.
fn doable() -> Object {
    let asks = |command: &Command| matches!(command, Command::Status | Command::Explain);
    let names = Command::ALL.into_iter().filter(|command| !asks(command)).map(Command::name);
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).examples(["/rebuild"]).build()
}

/// It is on the queue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Queued {
    /// Its name, also in the log.
    command_id: String,
    /// The run that it opens, once the Car Bridge has taken it.
    run_id: Option<String>,
}

fn known(text: &str) -> Result<Command, Problem> {
    Command::parse_name(text).map_err(|unknown| Problem::bad_request("UNKNOWN_COMMAND", unknown.to_string()))
}

async fn ask<S: Store, O: Outlets>(
    admin: &Admin<S, O>,
    caller: &Caller,
    pr: PrId,
    body: CommandBody,
    (named, n): (&Named, usize),
) -> Result<Queued, Problem> {
    let command = known(&body.command)?;
    let args = body.args.map(|args| cut(args.trim(), ARGS_MAX_CHARS)).filter(|args| !args.is_empty());
    let ask = Ask { pr, command, args, id: named.command(n), at: named.at };
    let asked = admin.desk.command(caller, ask).await?;
    Ok(Queued { command_id: asked.command.to_string(), run_id: asked.run.map(|run| run.to_string()) })
}

/// Asks for a command: it is checked, put onto the queue, and carried out by the Car Bridge.
#[utoipa::path(
    post, path = "/api/pr/{repo}/{number}/command", params(PrParams, OnceParams), request_body = CommandBody,
    security(("key" = [])),
    responses((status = 202, description = "It is taken.", body = inline(Taken)), Problems)
)]
pub(crate) async fn command<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Operator(caller): Operator,
    PrPath(pr): PrPath,
    wish: Wish,
) -> Result<Response, Problem> {
    let asked: CommandBody = wish.body.object()?;
    let taken = async |named: Named| ask(&admin, &caller, pr, asked, (&named, 0)).await;
    wish.once(&admin, &caller, StatusCode::ACCEPTED, taken).await
}

/// On the queue, or being put there by somebody else.
#[derive(ToSchema)]
#[schema(title = "Taken")]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) enum Taken {
    Queued(Queued),
    Processing(Processing),
}

/// One of many commands. What its repository and its command are is looked at for each: its own result says what is wrong.
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

/// What became of one of many.
#[derive(Debug, Serialize, ToSchema)]
struct BatchResult {
    repo: String,
    pr_number: u64,
    /// 202, or why not.
    status: u16,
    command_id: Option<String>,
    run_id: Option<String>,
    /// As in a problem.
    code: Option<&'static str>,
    detail: Option<String>,
}

/// What became of each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchResults {
    /// In the order in which they were asked.
    results: Vec<BatchResult>,
}

/// Asks for up to 100 commands. One that is refused keeps none of the others from being taken.
#[utoipa::path(
    post, path = "/api/commands", params(OnceParams), request_body = inline(Batch), security(("key" = [])),
    responses((status = 207, description = "One result for each.", body = BatchResults), (status = 202, description = "Somebody else is at it.", body = Processing), Problems)
)]
pub(crate) async fn commands<S: Store + 'static, O: Outlets + 'static>(
    State(admin): State<Arc<Admin<S, O>>>,
    Operator(caller): Operator,
    wish: Wish,
) -> Result<Response, Problem> {
    let Batch(items) = wish.body.json()?;
    if items.is_empty() || items.len() > MOST_AT_ONCE {
        let detail = format!("{} commands cannot be taken at once: send 1 to {MOST_AT_ONCE}.", items.len());
        return Err(Problem::bad_request("BAD_BATCH", detail));
    }
    wish.once(&admin, &caller, StatusCode::MULTI_STATUS, async |named| {
        let mut results = Vec::with_capacity(items.len());
        for (n, item) in items.into_iter().enumerate() {
            results.push(one_of_many(&admin, &caller, item, (&named, n)).await?);
        }
        Ok(BatchResults { results })
    })
    .await
}

/// At most 100 commands.
#[derive(Debug, Deserialize)]
pub(crate) struct Batch(Vec<BatchItem>);

impl PartialSchema for Batch {
    fn schema() -> RefOr<Schema> {
        let items = ArrayBuilder::new().items(Ref::from_schema_name(BatchItem::name()));
        items.min_items(Some(1)).max_items(Some(MOST_AT_ONCE)).into()
    }
}

impl ToSchema for Batch {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((BatchItem::name().into_owned(), BatchItem::schema()));
    }
}

/// What is refused is its own matter; what cannot be reached is everybody's, and they may all ask again under the same name.
async fn one_of_many<S: Store, O: Outlets>(
    admin: &Admin<S, O>,
    caller: &Caller,
    item: BatchItem,
    place: (&Named, usize),
) -> Result<BatchResult, Problem> {
    let BatchItem { repo: name, pr_number: PrNumber(pr_number), command, args } = item;
    let asked = async {
        let repo = repo(&name, admin.owner.as_deref())?;
        ask(admin, caller, PrId::new(repo, pr_number), CommandBody { command, args }, place).await
    };
    let none = |status: u16| BatchResult {
        repo: cut(&name, 201),
        pr_number,
        status,
        command_id: None,
        run_id: None,
        code: None,
        detail: None,
    };
    match asked.await {
        Ok(Queued { command_id, run_id }) => Ok(BatchResult { command_id: Some(command_id), run_id, ..none(202) }),
        Err(problem) if problem.status >= 500 => Err(problem),
        Err(Problem { status, code, detail, .. }) => {
            Ok(BatchResult { code: Some(code), detail: Some(detail), ..none(status) })
        }
    }
}
