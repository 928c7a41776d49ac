//! The part of GitHub's schema that is answered here, and the check of a query against it: as on GitHub, a query with an
//! unknown field is refused as a whole.

use serde_json::{Map, Value, json};

use super::document::{Field, Query, Selection};

/// A type: its name, its scalar fields, and its fields of other types. `[…]` marks a connection, which wants `first` or
/// `last`.
struct Type {
    name: &'static str,
    scalars: &'static str,
    objects: &'static [(&'static str, &'static str)],
}

const fn of(name: &'static str, scalars: &'static str, objects: &'static [(&'static str, &'static str)]) -> Type {
    Type { name, scalars, objects }
}

const TYPES: &[Type] = &[
    of(
        "Query",
        "",
        &[
            ("node", "Node"),
            ("nodes", "Node"),
            ("repository", "Repository"),
            ("search", "[SearchResultItem]"),
            ("rateLimit", "RateLimit"),
            ("viewer", "Actor"),
        ],
    ),
    of(
        "Mutation",
        "",
        &[("addReaction", "AddReactionPayload"), ("pinIssue", "PinIssuePayload"), ("unpinIssue", "PinIssuePayload")],
    ),
    of("AddReactionPayload", "clientMutationId", &[("reaction", "Reaction")]),
    of("Reaction", "content", &[]),
    of("PinIssuePayload", "clientMutationId", &[("issue", "Issue")]),
    of("Node", "id", &[]),
    of("SearchResultItem", "", &[]),
    of("Actor", "login url resourcePath", &[]),
    of("Bot", "login id databaseId url", &[]),
    of("User", "login id databaseId name url", &[]),
    of("RateLimit", "cost limit nodeCount remaining resetAt used", &[]),
    of(
        "Repository",
        "id databaseId name nameWithOwner isArchived isPrivate url",
        &[
            ("owner", "Actor"),
            ("defaultBranchRef", "Ref"),
            ("ref", "Ref"),
            ("pullRequest", "PullRequest"),
            ("pullRequests", "[PullRequest]"),
            ("issue", "Issue"),
            ("issues", "[Issue]"),
            ("pinnedIssues", "[PinnedIssue]"),
        ],
    ),
    of("PinnedIssue", "id", &[("issue", "Issue")]),
    of(
        "Issue",
        "id databaseId number title body state url createdAt updatedAt closed isPinned",
        &[("author", "Actor"), ("labels", "[Label]")],
    ),
    of(
        "PullRequest",
        "id databaseId fullDatabaseId number title body url state isDraft merged mergedAt closed closedAt createdAt updatedAt \
         additions deletions changedFiles headRefName headRefOid baseRefName baseRefOid mergeable mergeStateStatus reviewDecision \
         isInMergeQueue isMergeQueueEnabled isCrossRepository locked authorAssociation",
        &[
            ("repository", "Repository"),
            ("headRepository", "Repository"),
            ("author", "Actor"),
            ("mergedBy", "Actor"),
            ("headRef", "Ref"),
            ("baseRef", "Ref"),
            ("mergeCommit", "Commit"),
            ("labels", "[Label]"),
            ("reviews", "[PullRequestReview]"),
            ("latestReviews", "[PullRequestReview]"),
            ("latestOpinionatedReviews", "[PullRequestReview]"),
            ("comments", "[IssueComment]"),
            ("commits", "[PullRequestCommit]"),
            ("autoMergeRequest", "AutoMergeRequest"),
            ("mergeQueueEntry", "MergeQueueEntry"),
            ("statusCheckRollup", "StatusCheckRollup"),
        ],
    ),
    of("Label", "id name color", &[]),
    of(
        "PullRequestReview",
        "id databaseId fullDatabaseId state body submittedAt createdAt url",
        &[("author", "Actor"), ("commit", "Commit")],
    ),
    of(
        "IssueComment",
        "id databaseId fullDatabaseId body createdAt updatedAt url authorAssociation",
        &[("author", "Actor")],
    ),
    of("PullRequestCommit", "id", &[("commit", "Commit")]),
    of(
        "Commit",
        "id oid abbreviatedOid message committedDate",
        &[("statusCheckRollup", "StatusCheckRollup"), ("checkSuites", "[CheckSuite]")],
    ),
    of("GitObject", "id oid abbreviatedOid", &[]),
    of("StatusCheckRollup", "id state", &[("contexts", "[StatusCheckRollupContext]")]),
    of("StatusCheckRollupContext", "", &[]),
    of(
        "CheckRun",
        "id databaseId name status conclusion startedAt completedAt detailsUrl externalId title summary text url permalink \
         resourcePath isRequired",
        &[("checkSuite", "CheckSuite")],
    ),
    of("CheckSuite", "id databaseId status conclusion createdAt updatedAt", &[("app", "App")]),
    of("App", "id databaseId slug name", &[]),
    of("StatusContext", "id context state description createdAt targetUrl isRequired", &[("creator", "Actor")]),
    of(
        "Ref",
        "id name prefix",
        &[
            ("target", "GitObject"),
            ("branchProtectionRule", "BranchProtectionRule"),
            ("refUpdateRule", "RefUpdateRule"),
            ("rules", "[RepositoryRule]"),
            ("compare", "Comparison"),
        ],
    ),
    of(
        "BranchProtectionRule",
        "id pattern requiredStatusCheckContexts requiresStrictStatusChecks requiresStatusChecks requiresApprovingReviews \
         requiredApprovingReviewCount dismissesStaleReviews",
        &[("requiredStatusChecks", "RequiredStatusCheckDescription")],
    ),
    of("RequiredStatusCheckDescription", "context", &[("app", "App")]),
    of("RefUpdateRule", "requiredStatusCheckContexts requiredApprovingReviewCount pattern viewerCanPush", &[]),
    of("RepositoryRule", "id type", &[("parameters", "RuleParameters")]),
    of("RuleParameters", "", &[]),
    of(
        "RequiredStatusChecksParameters",
        "strictRequiredStatusChecksPolicy doNotEnforceOnCreate",
        &[("requiredStatusChecks", "StatusCheckConfiguration")],
    ),
    of("StatusCheckConfiguration", "context integrationId", &[]),
    of("Comparison", "id aheadBy behindBy status", &[]),
    of("AutoMergeRequest", "enabledAt mergeMethod", &[("enabledBy", "Actor")]),
    of(
        "MergeQueueEntry",
        "id state position enqueuedAt estimatedTimeToMerge",
        &[("enqueuer", "Actor"), ("headCommit", "Commit")],
    ),
    of("PageInfo", "hasNextPage hasPreviousPage startCursor endCursor", &[]),
];

fn known(name: &str) -> Option<&'static Type> {
    TYPES.iter().find(|it| it.name == name)
}

/// How large a query is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Size {
    pub(crate) nodes: u64,
    pub(crate) requests: u64,
}

impl Size {
    /// GitHub's price.
    pub(crate) fn cost(self) -> u64 {
        (self.requests / 100).max(1)
    }
}

/// Checks a query; the first thing that is wrong, in GitHub's words.
pub(crate) fn check(query: &Query) -> Result<(), Value> {
    let root = if query.mutation { "Mutation" } else { "Query" };
    let operation = format!(
        "{}{}",
        if query.mutation { "mutation" } else { "query" },
        query.name.as_ref().map_or_else(String::new, |name| format!(" {name}"))
    );
    selections(&query.selections, root, &mut vec![operation])
}

fn selections(list: &[Selection], on: &str, path: &mut Vec<String>) -> Result<(), Value> {
    for selection in list {
        match selection {
            Selection::Field(it) if it.name == "__typename" => {}
            Selection::Field(it) => {
                path.push(it.key.clone());
                field(it, on, path)?;
                path.pop();
            }
            Selection::On(narrowed, _, inner) => {
                let on = narrowed.as_deref().unwrap_or(on);
                if known(on).is_none() {
                    return Err(wrong(
                        path,
                        "undefinedType",
                        &format!("No such type {on}, so it can't be a fragment condition"),
                    ));
                }
                path.push(format!("... on {on}"));
                selections(inner, on, path)?;
                path.pop();
            }
        }
    }
    Ok(())
}

fn field(it: &Field, on: &str, path: &mut Vec<String>) -> Result<(), Value> {
    let kind = known(on);
    if kind.is_some_and(|kind| kind.scalars.split_whitespace().any(|scalar| scalar == it.name)) {
        return match it.selections.is_empty() {
            true => Ok(()),
            false => Err(wrong(
                path,
                "selectionMismatch",
                &format!("Selections can't be made on scalars (field '{}')", it.name),
            )),
        };
    }
    let Some(result) = object_type(on, &it.name) else {
        let mut error = wrong(path, "undefinedField", &format!("Field '{}' doesn't exist on type '{on}'", it.name));
        error["extensions"] = json!({"code": "undefinedField", "typeName": on, "fieldName": it.name});
        return Err(error);
    };
    if it.selections.is_empty() {
        return Err(wrong(
            path,
            "selectionMismatch",
            &format!("Field must have selections (field '{}' returns {result} but has no selections)", it.name),
        ));
    }
    match result.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        None => selections(&it.selections, result, path),
        Some(_) if !it.has("first") && !it.has("last") => {
            let message = format!(
                "You must provide a `first` or `last` value to properly paginate the `{}` connection.",
                it.name
            );
            Err(wrong(path, "MISSING_PAGINATION_BOUNDARIES", &message))
        }
        Some(inner) => connection(&it.selections, inner, path),
    }
}

fn connection(list: &[Selection], of: &str, path: &mut Vec<String>) -> Result<(), Value> {
    for selection in list {
        match selection {
            Selection::Field(it) => match it.name.as_str() {
                "totalCount" | "issueCount" | "__typename" => {}
                "nodes" => selections(&it.selections, of, path)?,
                "edges" => edges(&it.selections, of, path)?,
                "pageInfo" => selections(&it.selections, "PageInfo", path)?,
                other => {
                    return Err(wrong(
                        path,
                        "undefinedField",
                        &format!("Field '{other}' doesn't exist on type '{of}Connection'"),
                    ));
                }
            },
            Selection::On(_, _, inner) => connection(inner, of, path)?,
        }
    }
    Ok(())
}

fn edges(list: &[Selection], of: &str, path: &mut Vec<String>) -> Result<(), Value> {
    for selection in list {
        match selection {
            Selection::Field(it) if it.name == "cursor" => {}
            Selection::Field(it) if it.name == "node" => selections(&it.selections, of, path)?,
            Selection::Field(it) => {
                return Err(wrong(
                    path,
                    "undefinedField",
                    &format!("Field '{}' doesn't exist on type '{of}Edge'", it.name),
                ));
            }
            Selection::On(_, _, inner) => edges(inner, of, path)?,
        }
    }
    Ok(())
}

fn object_type(on: &str, name: &str) -> Option<&'static str> {
    known(on)?.objects.iter().find(|(field, _)| *field == name).map(|(_, result)| *result)
}

fn wrong(path: &[String], code: &str, message: &str) -> Value {
    json!({"message": message, "path": path, "extensions": {"code": code}, "locations": [{"line": 1, "column": 1}]})
}

/// Counts as GitHub does: what could come back, and how many lists it takes.
pub(crate) fn size(query: &Query, variables: &Map<String, Value>) -> Result<Size, Value> {
    let mut size = Size::default();
    count(&query.selections, if query.mutation { "Mutation" } else { "Query" }, 1, variables, &mut size)?;
    Ok(size)
}

fn count(
    list: &[Selection],
    on: &str,
    times: u64,
    variables: &Map<String, Value>,
    size: &mut Size,
) -> Result<(), Value> {
    for selection in list {
        match selection {
            Selection::On(narrowed, _, inner) => {
                count(inner, narrowed.as_deref().unwrap_or(on), times, variables, size)?
            }
            Selection::Field(it) => {
                let Some(result) = object_type(on, &it.name) else { continue };
                match result.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
                    None if it.name == "nodes" => {
                        let ids = it.argument("ids", variables).as_array().map_or(0, Vec::len) as u64;
                        if ids > 100 {
                            return Err(wrong(
                                &[],
                                "ARGUMENT_LIMIT",
                                "You may not provide more than 100 node ids; you provided too many",
                            ));
                        }
                        size.nodes += ids;
                        count(&it.selections, result, times * ids, variables, size)?;
                    }
                    None => count(&it.selections, result, times, variables, size)?,
                    Some(inner) => {
                        let bound = |name: &str| it.argument(name, variables).as_u64();
                        let wanted = bound("first").or_else(|| bound("last")).unwrap_or(0);
                        if !(1..=100).contains(&wanted) {
                            let message = format!(
                                "Requesting {wanted} records on the `{}` connection exceeds the `first` limit of 100 records.",
                                it.name
                            );
                            return Err(wrong(&[], "EXCESSIVE_PAGINATION", &message));
                        }
                        size.requests += times;
                        size.nodes += times * wanted;
                        inside(&it.selections, inner, times * wanted, variables, size)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn inside(
    list: &[Selection],
    of: &str,
    times: u64,
    variables: &Map<String, Value>,
    size: &mut Size,
) -> Result<(), Value> {
    for selection in list {
        match selection {
            Selection::Field(it) if it.name == "nodes" || it.name == "node" => {
                count(&it.selections, of, times, variables, size)?
            }
            Selection::Field(it) => inside(&it.selections, of, times, variables, size)?,
            Selection::On(_, _, inner) => inside(inner, of, times, variables, size)?,
        }
    }
    Ok(())
}
