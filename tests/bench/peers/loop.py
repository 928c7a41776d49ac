"""A minimal Lambda runtime for the handler: fetches an event, sends the response, repeats."""

import http.client
import json
import os
import time

from powertools import handler

API = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
PATH = "/2018-06-01/runtime/invocation/"


class Context:
    function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
    memory_limit_in_mb = 128

    def __init__(self, headers):
        self.aws_request_id = headers["Lambda-Runtime-Aws-Request-Id"]
        self.invoked_function_arn = headers["Lambda-Runtime-Invoked-Function-Arn"]
        self.deadline_ms = int(headers["Lambda-Runtime-Deadline-Ms"])

    def get_remaining_time_in_millis(self):
        return max(0, self.deadline_ms - int(time.time() * 1000))


while True:
    API.request("GET", PATH + "next")
    response = API.getresponse()
    event = json.loads(response.read())
    context = Context(response.headers)
    body = json.dumps(handler(event, context))
    API.request("POST", f"{PATH}{context.aws_request_id}/response", body, {"content-type": "application/json"})
    API.getresponse().read()
