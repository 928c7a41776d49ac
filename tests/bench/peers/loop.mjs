// A minimal Lambda runtime for Probot: fetches an event, sends the response, repeats. It passes an event to Probot as Probot's Lambda
// adapter does.
import http from "node:http";
import { createProbot } from "probot";
import app from "./app.mjs";

const probot = createProbot();
await probot.load(app);

const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(":");

function call(method, path, body) {
  return new Promise((resolve, reject) => {
    const headers = body === undefined ? {} : { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const request = http.request({ host, port, method, path: `/2018-06-01/runtime/invocation/${path}`, agent, headers }, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () => resolve({ headers: response.headers, body: Buffer.concat(chunks).toString() }));
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function handler(event) {
  const headers = event.headers;
  try {
    await probot.webhooks.verifyAndReceive({
      id: headers["x-github-delivery"],
      name: headers["x-github-event"],
      signature: headers["x-hub-signature-256"],
      payload: event.body,
    });
    return { statusCode: 200, body: JSON.stringify({ ok: true }) };
  } catch (error) {
    return { statusCode: error.status ?? error.errors?.[0]?.status ?? 500, body: JSON.stringify({ error: String(error) }) };
  }
}

for (;;) {
  const next = await call("GET", "next");
  const answer = await handler(JSON.parse(next.body));
  await call("POST", `${next.headers["lambda-runtime-aws-request-id"]}/response`, JSON.stringify(answer));
}
