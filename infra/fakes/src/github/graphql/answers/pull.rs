//! Pull requests, their reviews, comments and queue entries.

use serde_json::{Value, json};

use super::super::document::{Field, Selection};
use super::{Answering, actor, state};
use crate::clock::stamp;
use crate::github::model::{PrIx, PullState, ReviewState};

impl Answering<'_> {
    pub(super) fn pull(&mut self, ix: PrIx, list: &[Selection]) -> Value {
        self.select(list, "PullRequest", &mut |it, field| {
            it.pull_scalar(ix, &field.name).unwrap_or_else(|| it.pull_object(ix, field))
        })
    }

    fn pull_scalar(&mut self, ix: PrIx, name: &str) -> Option<Value> {
        let fakes = self.fakes;
        let pull = fakes.github.pull(ix);
        let merged = pull.state == PullState::Merged;
        if matches!(name, "mergeable" | "mergeStateStatus") {
            self.to_work_out.push(ix);
        }
        Some(match name {
            "id" => json!(pull.node_id),
            "databaseId" => json!(pull.id),
            "fullDatabaseId" => json!(pull.id.to_string()),
            "number" => json!(pull.number),
            "title" => json!(pull.title),
            "body" => json!(pull.body),
            "url" => json!(format!("{}/pull/{}", fakes.repo_html(pull.repo), pull.number)),
            "state" => json!(state(pull.state)),
            "isDraft" => json!(pull.draft),
            "merged" => json!(merged),
            "mergedAt" => json!(pull.closed_at.filter(|_| merged).map(stamp)),
            "closed" => json!(!pull.is_open()),
            "closedAt" => json!(pull.closed_at.map(stamp)),
            "createdAt" => json!(stamp(pull.created_at)),
            "updatedAt" => json!(stamp(pull.updated_at)),
            "additions" => json!(12),
            "deletions" => json!(3),
            "changedFiles" => json!(2),
            "headRefName" => json!(pull.head_ref),
            "headRefOid" => json!(pull.head()),
            "baseRefName" => json!(pull.base_ref),
            "baseRefOid" => json!(fakes.github.repo(pull.repo).base[pull.base_commits.saturating_sub(1)]),
            "mergeable" => json!(match fakes.mergeable(ix).filter(|_| pull.is_open()) {
                None => "UNKNOWN",
                Some(true) => "MERGEABLE",
                Some(false) => "CONFLICTING",
            }),
            "mergeStateStatus" => json!(fakes.merge_state(ix).graphql()),
            "reviewDecision" => json!(self.review_decision(ix)),
            "isInMergeQueue" => json!(pull.queued_at.is_some()),
            "isMergeQueueEnabled" => json!(fakes.github.repo(pull.repo).settings.merge_queue),
            "isCrossRepository" => json!(pull.fork),
            "locked" => json!(false),
            "authorAssociation" => json!(fakes.association(&pull.author)),
            _ => return None,
        })
    }

    fn review_decision(&self, ix: PrIx) -> Option<&'static str> {
        let opinions = self.fakes.latest_opinions(ix);
        let says = |state| opinions.iter().any(|place| self.fakes.github.pull(ix).reviews[*place].state == state);
        if says(ReviewState::ChangesRequested) {
            Some("CHANGES_REQUESTED")
        } else if self.fakes.is_approved(ix) {
            Some("APPROVED")
        } else {
            self.fakes.review_required(ix).then_some("REVIEW_REQUIRED")
        }
    }

    fn pull_object(&mut self, ix: PrIx, field: &Field) -> Value {
        let fakes = self.fakes;
        let (pull, list) = (fakes.github.pull(ix), &field.selections);
        match field.name.as_str() {
            "repository" => self.repository(pull.repo, list),
            "headRepository" if pull.fork && pull.head_deleted => Value::Null,
            "headRepository" => self.repository(pull.repo, list),
            "author" => actor(self, Some(&pull.author), list),
            "mergedBy" => actor(self, pull.merged_by.as_deref(), list),
            "headRef" if pull.head_deleted => Value::Null,
            "headRef" => self.select(list, "Ref", &mut |it, field| match field.name.as_str() {
                "id" => json!(format!("REF_{}", pull.id)),
                "name" => json!(pull.head_ref),
                "prefix" => json!("refs/heads/"),
                "target" => it.commit(pull.repo, pull.head(), &field.selections),
                _ => Value::Null,
            }),
            "baseRef" => self.base_ref(pull.repo, Some(ix), list),
            "mergeCommit" => pull.merge_commit.as_ref().map_or(Value::Null, |sha| self.commit(pull.repo, sha, list)),
            "labels" => self.labels(field, &pull.labels),
            "reviews" => {
                let places: Vec<usize> = (0..pull.reviews.len()).collect();
                self.connection(field, &places, &mut |it, place, list| it.review(ix, place, list))
            }
            "latestReviews" | "latestOpinionatedReviews" => {
                let places = fakes.latest_opinions(ix);
                self.connection(field, &places, &mut |it, place, list| it.review(ix, place, list))
            }
            "comments" => {
                let places = fakes.github.comments_of.get(&(pull.repo, pull.number)).cloned().unwrap_or_default();
                self.connection(field, &places, &mut |it, place, list| it.comment(place, list))
            }
            "commits" => {
                let shas: Vec<_> = pull.commits.iter().collect();
                self.connection(field, &shas, &mut |it, sha, list| {
                    it.select(list, "PullRequestCommit", &mut |it, field| match field.name.as_str() {
                        "commit" => it.commit(pull.repo, sha, &field.selections),
                        _ => json!(format!("PRC_{sha}")),
                    })
                })
            }
            "statusCheckRollup" => self.rollup(pull.repo, pull.head(), list),
            "autoMergeRequest" => match &pull.auto_merge {
                None => Value::Null,
                Some((login, at)) => {
                    self.select(list, "AutoMergeRequest", &mut |it, field| match field.name.as_str() {
                        "enabledAt" => json!(stamp(*at)),
                        "enabledBy" => actor(it, Some(login), &field.selections),
                        _ => json!("MERGE"),
                    })
                }
            },
            "mergeQueueEntry" => self.queue_entry(ix, list),
            _ => Value::Null,
        }
    }

    fn queue_entry(&mut self, ix: PrIx, list: &[Selection]) -> Value {
        let pull = self.fakes.github.pull(ix);
        let Some(at) = pull.queued_at else { return Value::Null };
        self.select(list, "MergeQueueEntry", &mut |it, field| match field.name.as_str() {
            "state" => json!("AWAITING_CHECKS"),
            "position" => json!(1),
            "enqueuedAt" => json!(stamp(at)),
            "estimatedTimeToMerge" => json!(120),
            "enqueuer" => actor(it, Some(crate::settings::Bot::Automerge.login()), &field.selections),
            "headCommit" => it.commit(pull.repo, pull.head(), &field.selections),
            _ => json!(format!("MQE_{}", pull.id)),
        })
    }

    fn review(&mut self, ix: PrIx, place: usize, list: &[Selection]) -> Value {
        let pull = self.fakes.github.pull(ix);
        let review = &pull.reviews[place];
        self.select(list, "PullRequestReview", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("PRR_{}", review.id)),
            "databaseId" => json!(review.id),
            "fullDatabaseId" => json!(review.id.to_string()),
            "state" => json!(review.state.name()),
            "body" => json!(review.body),
            "submittedAt" | "createdAt" => json!(stamp(review.submitted_at)),
            "author" => actor(it, Some(&review.user), &field.selections),
            "commit" => it.commit(pull.repo, &review.commit, &field.selections),
            _ => json!(format!("https://github.com/reviews/{}", review.id)),
        })
    }

    fn comment(&mut self, place: usize, list: &[Selection]) -> Value {
        let comment = &self.fakes.github.comments[place];
        let association = self.fakes.association(&comment.user);
        self.select(list, "IssueComment", &mut |it, field| match field.name.as_str() {
            "id" => json!(format!("IC_{}", comment.id)),
            "databaseId" => json!(comment.id),
            "fullDatabaseId" => json!(comment.id.to_string()),
            "body" => json!(comment.body),
            "createdAt" => json!(stamp(comment.created_at)),
            "updatedAt" => json!(stamp(comment.updated_at)),
            "authorAssociation" => json!(association),
            "author" => actor(it, Some(&comment.user), &field.selections),
            _ => json!(format!("https://github.com/comments/{}", comment.id)),
        })
    }
}
