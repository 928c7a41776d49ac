"""The Python program that the benchmarks compare Suture with: a webhook function with Powertools' idempotency and boto3. It verifies the
signature, deduplicates by delivery id and stores the state of the pull request and the event. It handles the same events and
actions as Suture, with production settings: one log line per event, no debugging."""

import hashlib
import hmac
import json
import os
import time

import boto3
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

logger = Logger(service="webhook")
dynamodb = boto3.client("dynamodb")
deliveries = DynamoDBPersistenceLayer(table_name=os.environ["DELIVERIES_TABLE"], boto3_client=dynamodb)
once = IdempotencyConfig(event_key_jmespath="id", expires_after_seconds=90 * 24 * 3600)
SECRET = os.environ["WEBHOOK_SECRET"].encode()
STATE, EVENTS = os.environ["STATE_TABLE"], os.environ["EVENTS_TABLE"]
HANDLED = {
    "pull_request": {
        "opened", "reopened", "synchronize", "closed", "edited", "labeled", "unlabeled", "ready_for_review",
        "converted_to_draft",
    },
    "check_run": {"created", "completed"},
    "check_suite": {"rerequested"},
    "pull_request_review": {"submitted", "dismissed"},
}


def subject(name, payload):
    """Returns the number of the pull request, its head, its state, and the time."""
    if name == "pull_request":
        pull = payload["pull_request"]
        state = "merged" if pull.get("merged") else pull["state"]
        return pull["number"], pull["head"]["sha"], state, pull["updated_at"]
    if name == "pull_request_review":
        review = payload["review"]
        return payload["pull_request"]["number"], review["commit_id"], review["state"], review["submitted_at"]
    if name == "check_run":
        run = payload["check_run"]
        at = run["completed_at"] or run["started_at"]
        return number_of(run["pull_requests"]), run["head_sha"], run["conclusion"] or run["status"], at
    suite = payload["check_suite"]
    return number_of(suite["pull_requests"]), suite["head_sha"], suite["conclusion"] or suite["status"], suite["updated_at"]


def number_of(pulls):
    return pulls[0]["number"] if pulls else None


@idempotent_function(data_keyword_argument="delivery", config=once, persistence_store=deliveries)
def record(delivery, payload):
    number, head, state, at = subject(delivery["name"], payload)
    repo = payload["repository"]["full_name"]
    pr = f"{repo}#{number}" if number else f"{repo}@{head}"
    kind = f"{delivery['name']}.{payload['action']}"
    dynamodb.update_item(
        TableName=STATE,
        Key={"pk": {"S": f"PR#{pr}"}},
        UpdateExpression="SET #state = :state, head_sha = :head, updated_at = :at, last_event = :kind ADD version :one",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues={
            ":state": {"S": state}, ":head": {"S": head}, ":at": {"S": at}, ":kind": {"S": kind}, ":one": {"N": "1"},
        },
    )
    dynamodb.put_item(
        TableName=EVENTS,
        Item={
            "pr": {"S": pr}, "sk": {"S": f"{at}#{delivery['id']}"}, "kind": {"S": kind}, "state": {"S": state},
            "head_sha": {"S": head}, "sender": {"S": payload["sender"]["login"]},
            "ttl": {"N": str(int(time.time()) + 90 * 24 * 3600)},
        },
    )
    return {"pr": pr, "kind": kind}


def answer(status, body):
    return {"statusCode": status, "headers": {"content-type": "application/json"}, "body": json.dumps(body)}


def handler(event, context):
    headers, body = event["headers"], event["body"].encode()
    expected = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, headers.get("x-hub-signature-256", "")):
        logger.warning("signature mismatch", delivery=headers.get("x-github-delivery"))
        return answer(401, {"message": "signature mismatch"})
    name, payload = headers["x-github-event"], json.loads(body)
    if payload.get("action") not in HANDLED.get(name, ()):
        return answer(200, {"status": "ignored"})
    once.register_lambda_context(context)
    recorded = record(delivery={"id": headers["x-github-delivery"], "name": name}, payload=payload)
    logger.info("recorded", pr=recorded["pr"], kind=recorded["kind"], delivery=headers["x-github-delivery"])
    return answer(200, {"status": "applied"})
