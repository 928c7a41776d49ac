//! `issue_comment` and `pull_request_review_comment`: commands in comments on a pull request and on its lines. The Car Bridge checks permissions; this module only drops Suture's own comments and authors
//! who certainly have no write access.

use domain::command::{CommandMessage, CommandSource, MessageVersion, ParsedCommand, parse};
use domain::id::{CommandId, PrId};
use jiff::Timestamp;

use super::payload::{Comment, CommentEvent, ReviewCommentEvent};
use super::{ParseContext, ParseRejection, ParsedWebhook};

/// Start of the hidden marker line in Suture's own comments.
const OWN_MARKER: &str = "<!-- suture";

pub(super) fn read(ctx: &ParseContext<'_>, event: &CommentEvent<'_>) -> Result<ParsedWebhook, ParseRejection> {
    check_action("issue_comment", event.action.text())?;
    let repo = event.repository.name()?;
    let issue = event.issue.needed("issue")?;
    if issue.pull_request.0.is_none() {
        return Err(ParseRejection::ignored("comment on an issue, not on a pull request"));
    }
    let pr = PrId::new(repo.clone(), issue.number.needed("issue.number")?);
    let commands = commands(ctx, &posted("comment", pr, event.comment.needed("comment")?)?)?;
    Ok(ParsedWebhook { repo, fact: None, commands })
}

/// A comment on a line of a pull request. The reply is a comment on the pull request.
pub(super) fn read_review_comment(
    ctx: &ParseContext<'_>,
    event: &ReviewCommentEvent<'_>,
) -> Result<ParsedWebhook, ParseRejection> {
    check_action("pull_request_review_comment", event.action.text())?;
    let repo = event.repository.name()?;
    let number = event.pull_request.needed("pull_request")?.number.needed("pull_request.number")?;
    let pr = PrId::new(repo.clone(), number);
    let commands = commands(ctx, &posted("review-comment", pr, event.comment.needed("comment")?)?)?;
    Ok(ParsedWebhook { repo, fact: None, commands })
}

fn check_action(event: &str, action: &str) -> Result<(), ParseRejection> {
    match action {
        "created" => Ok(()),
        "edited" => Err(ParseRejection::ignored("edited comments run no commands: write a new comment")),
        other => {
            let action = domain::event::truncate(other, 50);
            Err(ParseRejection::Ignored(format!("unhandled action `{event}.{action}`")))
        }
    }
}

fn posted<'a>(kind: &'static str, pr: PrId, comment: &'a Comment<'_>) -> Result<PostedText<'a>, ParseRejection> {
    Ok(PostedText {
        kind,
        id: comment.id.0,
        pr,
        by: comment.user.login(),
        association: comment.author_association.text(),
        body: comment.body.text(),
        via_app: comment.performed_via_github_app.0.as_ref().and_then(|app| app.id.0),
        node_id: comment.node_id.0.as_deref(),
        at: comment.created_at.needed("comment.created_at")?,
    })
}

/// A comment or a review on a pull request.
pub(super) struct PostedText<'a> {
    /// `comment`, `review-comment` or `review`: each kind has its own numbers.
    pub(super) kind: &'static str,
    pub(super) id: Option<u64>,
    pub(super) pr: PrId,
    pub(super) by: &'a str,
    pub(super) association: &'a str,
    pub(super) body: &'a str,
    pub(super) via_app: Option<u64>,
    pub(super) node_id: Option<&'a str>,
    pub(super) at: Timestamp,
}

impl PostedText<'_> {
    /// The id that the ids of its commands begin with. It comes from the signed payload and not from the header of the delivery, so
    /// that a comment that several hooks deliver is executed once, and nobody can make it run again under another id.
    fn command_prefix(&self) -> Result<String, ParseRejection> {
        let node_id = self.node_id.filter(|id| is_node_id(id)).map(|id| format!("cmd:{id}"));
        let by_number = || self.id.map(|id| format!("cmd:{}-{id}", self.kind));
        node_id.or_else(by_number).ok_or_else(|| ParseRejection::missing("node_id"))
    }
}

/// The id becomes part of a table key. GitHub's node ids are Base64.
fn is_node_id(id: &str) -> bool {
    (1..=100).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'=' | b'+' | b'/'))
}

/// The commands in the text, in order; or why there are none.
pub(super) fn commands(ctx: &ParseContext<'_>, post: &PostedText<'_>) -> Result<Vec<CommandMessage>, ParseRejection> {
    let marked = || post.body.lines().any(|line| line.starts_with(OWN_MARKER));
    if ctx.own.is_app(post.via_app) || ctx.own.is_login(post.by) || marked() {
        return Err(ParseRejection::ignored("Suture's own comment"));
    }
    let parsed = parse(post.body);
    if parsed.is_empty() {
        return Err(ParseRejection::ignored("comment without a command"));
    }
    if !may_have_write_access(post.association) || post.by.is_empty() {
        let association = domain::event::truncate(post.association, 30);
        return Err(ParseRejection::Ignored(format!(
            "command by a user without write access (author association `{association}`)"
        )));
    }
    let known = parsed.iter().filter_map(|parsed| match parsed {
        ParsedCommand::Known { command, args } => Some((*command, args)),
        ParsedCommand::Unknown { .. } => None,
    });
    let prefix = post.command_prefix()?;
    let commands: Vec<CommandMessage> = known
        .zip(1_u32..)
        .map(|((command, args), n)| CommandMessage {
            v: MessageVersion,
            pr_number: post.pr.number,
            repo: post.pr.repo.clone(),
            command,
            source: CommandSource::PrComment,
            requested_by: post.by.to_owned(),
            timestamp: post.at,
            command_id: CommandId::new(format!("{prefix}#{n}")),
            run_id: None,
            // A command applies to the pull request, whatever its head is when the command runs.
            head_sha: None,
            args: (!args.is_empty()).then(|| args.clone()),
            comment: post.node_id.map(str::to_owned),
            resent: false,
        })
        .collect();
    if commands.is_empty() { Err(ParseRejection::Ignored(unknown_commands(&parsed))) } else { Ok(commands) }
}

/// First-time contributors and strangers cannot have write access. A contributor may be a private member of the organisation, so the
/// Car Bridge asks GitHub.
fn may_have_write_access(association: &str) -> bool {
    ["OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR"].iter().any(|known| association.eq_ignore_ascii_case(known))
}

fn unknown_commands(parsed: &[ParsedCommand]) -> String {
    let names: Vec<String> = parsed
        .iter()
        .filter_map(|parsed| match parsed {
            ParsedCommand::Known { .. } => None,
            ParsedCommand::Unknown { word, nearest: Some(nearest) } => Some(format!("`{word}` (`{nearest}`?)")),
            ParsedCommand::Unknown { word, nearest: None } => Some(format!("`{word}`")),
        })
        .collect();
    domain::event::truncate(&format!("unknown command: {}", names.join(", ")), 200)
}
