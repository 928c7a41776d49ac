//! The few writes that are done by GraphQL: pinning, which REST cannot do, and reactions, which REST cannot do to reviews.

use serde_json::{Map, Value, json};

use super::answers::Answering;
use super::document::{Field, Query, Selection};
use super::schema::Size;
use crate::audit::Action;
use crate::fakes::Fakes;
use crate::github::access::Caller;
use crate::github::model::{Numbered, Reaction};
use crate::http_api::ApiResponse;

/// GraphQL's and REST's words for reactions.
const REACTIONS: [(&str, &str); 8] = [
    ("THUMBS_UP", "+1"),
    ("THUMBS_DOWN", "-1"),
    ("LAUGH", "laugh"),
    ("CONFUSED", "confused"),
    ("HEART", "heart"),
    ("HOORAY", "hooray"),
    ("ROCKET", "rocket"),
    ("EYES", "eyes"),
];

impl Fakes {
    pub(super) fn mutate(&mut self, query: &Query, variables: &Map<String, Value>, caller: &Caller) -> ApiResponse {
        let (mut data, mut errors) = (Map::new(), Vec::new());
        for selection in &query.selections {
            let Selection::Field(field) = selection else { continue };
            let input = field.argument("input", variables);
            let done = match field.name.as_str() {
                "addReaction" => self.add_reaction(&input, field, variables, caller),
                "pinIssue" => self.pin(&input, true, field, variables, caller),
                _ => self.pin(&input, false, field, variables, caller),
            };
            let value = done.unwrap_or_else(|(kind, message)| {
                errors.push(json!({"type": kind, "path": [field.key], "message": message}));
                Value::Null
            });
            data.insert(field.key.clone(), value);
        }
        let mut body = json!({"data": data});
        if !errors.is_empty() {
            body["errors"] = Value::Array(errors);
        }
        ApiResponse::ok(&body)
    }

    fn pin(&mut self, input: &Value, on: bool, field: &Field, variables: &Map<String, Value>, caller: &Caller) -> Done {
        let id = input["issueId"].as_str().unwrap_or_default();
        let Some(Numbered::Issue(place)) = self.github.by_node.get(id).copied() else { return Err(missing(id)) };
        let (repo, number) = (self.github.issues[place].repo, self.github.issues[place].number);
        let pinned = self.github.issues.iter().filter(|issue| issue.repo == repo && issue.pinned).count();
        if on && pinned >= 3 && !self.github.issues[place].pinned {
            return Err(("UNPROCESSABLE", "Maximum 3 pinned issues per repository".to_owned()));
        }
        self.github.issues[place].pinned = on;
        let pr = self.pr_named(repo, number);
        self.log(caller.login(), Action::IssuePinned, Some(pr), None, field.name.clone());
        let now = self.now();
        let mut answering = Answering::new(self, variables, Size::default(), 0, now, caller.login());
        Ok(answering.payload(place, &field.selections))
    }

    /// Reacts to a comment or a review; a second reaction of the same kind is the first one.
    fn add_reaction(&mut self, input: &Value, field: &Field, variables: &Map<String, Value>, caller: &Caller) -> Done {
        let (id, by) = (input["subjectId"].as_str().unwrap_or_default(), caller.login());
        let word = input["content"].as_str().unwrap_or_default();
        let Some((word, content)) = REACTIONS.iter().find(|(known, _)| *known == word) else {
            return Err(("UNPROCESSABLE", format!("'{word}' is not a ReactionContent")));
        };
        let number = |prefix: &str| id.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
        if let Some(place) =
            number("IC_").and_then(|id| self.github.comments.binary_search_by_key(&id, |it| it.id).ok())
        {
            self.react(place, by, content);
        } else if let Some((ix, place)) = number("PRR_").and_then(|id| self.github.by_review.get(&id).copied()) {
            let known = &self.github.pull(ix).reviews[place].reactions;
            if !known.iter().any(|it| it.user == by && it.content == *content) {
                let reaction = Reaction { id: self.github.id(), user: by.to_owned(), content: (*content).to_owned() };
                self.github.pulls[ix.0].reviews[place].reactions.push(reaction);
                self.note(by, Action::ReactionAdded, ix, format!("{content} on review"));
            }
        } else {
            return Err(missing(id));
        }
        let now = self.now();
        let mut answering = Answering::new(self, variables, Size::default(), 0, now, by);
        Ok(answering.reacted(word, &field.selections))
    }
}

/// What a mutation answers, or the kind of error and its message.
type Done = Result<Value, (&'static str, String)>;

fn missing(id: &str) -> (&'static str, String) {
    ("NOT_FOUND", format!("Could not resolve to a node with the global id of '{id}'."))
}
