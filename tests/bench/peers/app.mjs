// The JavaScript program that the benchmarks compare Suture with: an ordinary Probot app with the AWS SDK. It deduplicates by delivery id
// and stores the state of the pull request and the event. It handles the same events and actions as Suture.
import { ConditionalCheckFailedException, DynamoDBClient, PutItemCommand, UpdateItemCommand } from "@aws-sdk/client-dynamodb";

const dynamodb = new DynamoDBClient({});
const { DELIVERIES_TABLE, STATE_TABLE, EVENTS_TABLE } = process.env;
const NINETY_DAYS = 90 * 24 * 3600;

const numberOf = (pulls) => (pulls.length ? pulls[0].number : undefined);

/** Returns the number of the pull request, its head, its state, and the time. */
function subject(name, payload) {
  switch (name) {
    case "pull_request": {
      const pull = payload.pull_request;
      return [pull.number, pull.head.sha, pull.merged ? "merged" : pull.state, pull.updated_at];
    }
    case "pull_request_review": {
      const review = payload.review;
      return [payload.pull_request.number, review.commit_id, review.state, review.submitted_at];
    }
    case "check_run": {
      const run = payload.check_run;
      return [numberOf(run.pull_requests), run.head_sha, run.conclusion ?? run.status, run.completed_at ?? run.started_at];
    }
    default: {
      const suite = payload.check_suite;
      return [numberOf(suite.pull_requests), suite.head_sha, suite.conclusion ?? suite.status, suite.updated_at];
    }
  }
}

async function record(context) {
  const { id, name, payload } = context;
  const ttl = { N: String(Math.floor(Date.now() / 1000) + NINETY_DAYS) };
  try {
    await dynamodb.send(new PutItemCommand({
      TableName: DELIVERIES_TABLE,
      Item: { id: { S: id }, ttl },
      ConditionExpression: "attribute_not_exists(id)",
    }));
  } catch (error) {
    if (error instanceof ConditionalCheckFailedException) return;
    throw error;
  }
  const [number, head, state, at] = subject(name, payload);
  const repo = payload.repository.full_name;
  const pr = number ? `${repo}#${number}` : `${repo}@${head}`;
  const kind = `${name}.${payload.action}`;
  await dynamodb.send(new UpdateItemCommand({
    TableName: STATE_TABLE,
    Key: { pk: { S: `PR#${pr}` } },
    UpdateExpression: "SET #state = :state, head_sha = :head, updated_at = :at, last_event = :kind ADD version :one",
    ExpressionAttributeNames: { "#state": "state" },
    ExpressionAttributeValues: {
      ":state": { S: state }, ":head": { S: head }, ":at": { S: at }, ":kind": { S: kind }, ":one": { N: "1" },
    },
  }));
  await dynamodb.send(new PutItemCommand({
    TableName: EVENTS_TABLE,
    Item: {
      pr: { S: pr }, sk: { S: `${at}#${id}` }, kind: { S: kind }, state: { S: state }, head_sha: { S: head },
      sender: { S: payload.sender.login }, ttl,
    },
  }));
  context.log.info({ pr, kind, delivery: id }, "recorded");
}

export default (app) => {
  app.on([
    "pull_request.opened", "pull_request.reopened", "pull_request.synchronize", "pull_request.closed", "pull_request.edited",
    "pull_request.labeled", "pull_request.unlabeled", "pull_request.ready_for_review", "pull_request.converted_to_draft",
    "check_run.created", "check_run.completed", "check_suite.rerequested", "pull_request_review.submitted",
    "pull_request_review.dismissed",
  ], record);
};
