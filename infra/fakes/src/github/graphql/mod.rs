//! `POST /graphql`: a small executor for the questions that are asked about pull requests. The part of the schema it knows
//! is in `schema`; a query is parsed and checked once, and kept.

mod answers;
mod document;
mod mutations;
mod schema;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

pub(crate) use document::Query;

use super::access::Caller;
use crate::fakes::Fakes;
use crate::http_api::{ApiRequest, ApiResponse};
use answers::Answering;

/// GitHub's own bound.
const NODES: u64 = 500_000;
const BROKEN: &str = "Something went wrong while executing your query. This may be the result of a timeout, or it could be a GitHub bug.";

impl Fakes {
    pub(crate) fn graphql(&mut self, asked: &ApiRequest, key: &str, caller: &Caller, partial: bool) -> ApiResponse {
        let Some(text) = asked.text("query") else {
            return ApiResponse::error(400, "A query attribute must be specified and must be a string.");
        };
        let query = match self.read_query(text) {
            Ok(query) => query,
            Err(error) => return refused(vec![error]),
        };
        let mut variables = query.defaults.clone();
        if let Some(given) = asked.json["variables"].as_object() {
            variables.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        let size = match schema::size(&query, &variables) {
            Ok(size) => size,
            Err(error) => return refused(vec![error]),
        };
        if size.nodes > NODES {
            return refused(vec![
                json!({"type": "MAX_NODE_LIMIT_EXCEEDED", "message": format!("This query requests up to {} possible nodes which exceeds the maximum limit of 500,000.", size.nodes)}),
            ]);
        }
        if size.nodes > self.settings.graphql_502_above {
            return ApiResponse::json(502, &json!({"data": null, "errors": [{"message": BROKEN}]}));
        }
        if !self.spend_graphql(key, size.cost()) {
            return ApiResponse::ok(
                &json!({"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}),
            );
        }
        if query.mutation {
            return self.mutate(&query, &variables, caller);
        }
        let (remaining, reset) = self.graphql_left(key);
        let mut answering = Answering::new(self, &variables, size, remaining, reset, caller.login());
        let mut data = answering.query(&query.selections);
        let (mut errors, to_work_out) = (answering.errors, answering.to_work_out);
        for ix in to_work_out {
            self.ask_mergeability(ix);
        }
        if partial && let Some(first) = data["nodes"].as_array_mut().and_then(|nodes| nodes.first_mut()) {
            *first = Value::Null;
            errors.push(json!({"message": BROKEN, "path": ["nodes", 0]}));
        }
        let mut body = json!({"data": data});
        if !errors.is_empty() {
            body["errors"] = Value::Array(errors);
        }
        ApiResponse::ok(&body)
    }

    fn read_query(&mut self, text: &str) -> Result<Arc<Query>, Value> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let known = hasher.finish();
        if let Some(query) = self.queries.get(&known) {
            return Ok(Arc::clone(query));
        }
        let query = document::read(text).map_err(|message| json!({"message": format!("Parse error: {message}")}))?;
        schema::check(&query)?;
        let query = Arc::new(query);
        self.queries.insert(known, Arc::clone(&query));
        Ok(query)
    }
}

/// A refusal as a whole: 200, with errors and no data.
fn refused(errors: Vec<Value>) -> ApiResponse {
    ApiResponse::ok(&json!({"errors": errors}))
}
