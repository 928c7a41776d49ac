// Holds recorded requests against GitHub's OpenAPI description: path, method, query and body. Usage: node requests.mjs TRUTH
// REQUESTS.json, where REQUESTS is a list of {method, path, query, body}. Prints what does not conform, one per line.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const [schemas, recorded] = process.argv.slice(2);
const require = createRequire(join(schemas, 'package.json'));
const Ajv = require('ajv');
const description = JSON.parse(
  readFileSync(join(schemas, 'node_modules/@octokit/openapi/generated/api.github.com.deref.json')),
);
const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false, coerceTypes: false });
const asText = new Ajv({ strict: false, allErrors: true, validateFormats: false, coerceTypes: true });

const templates = Object.keys(description.paths).map((path) => ({ path, parts: path.split('/') }));
const isVariable = (part) => part.startsWith('{');

// GitHub's own order: what is written out goes before what is variable.
function templateOf(path) {
  const parts = path.split('/');
  const fits = ({ parts: known }) =>
    known.length === parts.length && known.every((part, n) => part === parts[n] || (isVariable(part) && parts[n] !== ''));
  const variables = ({ parts: known }) => known.filter(isVariable).length;
  return templates.filter(fits).sort((a, b) => variables(a) - variables(b))[0];
}

// OpenAPI 3.0 says `nullable` where JSON Schema has a type, also beside `oneOf`, where validators do not look for it.
function plain(schema) {
  if (Array.isArray(schema)) return schema.map(plain);
  if (!schema || typeof schema !== 'object') return schema;
  const { nullable, example, examples, ...rest } = schema;
  const inner = Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, name === 'enum' ? value : plain(value)]));
  return nullable === true ? { anyOf: [{ type: 'null' }, inner] } : inner;
}

function conforms(validator, schema, value) {
  const validate = validator.compile(plain(schema));
  return validate({ value }) ? [] : validate.errors.map((error) => `${error.instancePath} ${error.message}`);
}
const boxed = (schema) => ({ type: 'object', properties: { value: schema } });

// The description leaves bodies open; a field GitHub does not name is a mistake all the same.
function named(schema) {
  const alternatives = [...(schema.oneOf ?? []), ...(schema.anyOf ?? []), ...(schema.allOf ?? [])];
  return new Set([...Object.keys(schema.properties ?? {}), ...alternatives.flatMap((one) => [...named(one)])]);
}

function check({ method, path, query, body }) {
  const template = templateOf(path);
  const operation = template && description.paths[template.path][method.toLowerCase()];
  if (!operation) return ['no such operation'];
  const wrong = [];
  const parameters = operation.parameters ?? [];
  const given = path.split('/');
  template.parts.forEach((part, n) => {
    if (!isVariable(part)) return;
    const parameter = parameters.find((one) => one.in === 'path' && `{${one.name}}` === part);
    if (!parameter) return wrong.push(`${part} is not described`);
    const value = decodeURIComponent(given[n]);
    wrong.push(...conforms(asText, boxed(parameter.schema), value).map((why) => `${part}:${why}`));
  });
  for (const [name, value] of new URLSearchParams(query)) {
    const parameter = parameters.find((one) => one.in === 'query' && one.name === name);
    if (!parameter) wrong.push(`query ${name} is not described`);
    else wrong.push(...conforms(asText, boxed(parameter.schema), value).map((why) => `query ${name}:${why}`));
  }
  for (const { name } of parameters.filter((one) => one.in === 'query' && one.required)) {
    if (!new URLSearchParams(query).has(name)) wrong.push(`query ${name} is missing`);
  }
  const schema = operation.requestBody?.content?.['application/json']?.schema;
  if (body === null) {
    if (operation.requestBody?.required) wrong.push('the body is missing');
  } else if (!schema) {
    wrong.push('a body is not described');
  } else {
    wrong.push(...conforms(ajv, boxed(schema), body).map((why) => `body:${why}`));
    const known = named(schema);
    const fields = body && typeof body === 'object' && !Array.isArray(body) ? Object.keys(body) : [];
    if (known.size > 0) wrong.push(...fields.filter((name) => !known.has(name)).map((name) => `body has ${name}`));
  }
  return wrong;
}

const requests = JSON.parse(readFileSync(recorded));
for (const request of requests) {
  for (const why of check(request)) console.log(`${request.method} ${request.path}?${request.query}: ${why}`);
}
