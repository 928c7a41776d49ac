// Validates recorded requests against GitHub's OpenAPI description: path, method, query and body. Usage: node requests.mjs SCHEMAS
// REQUESTS.json, where SCHEMAS is the folder of scripts/fetch-github-schemas and REQUESTS a list of {method, path, query, body}. Prints one
// violation per line.
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

// As on GitHub, literal path segments take precedence over variables.
function templateOf(path) {
  const parts = path.split('/');
  const fits = ({ parts: known }) =>
    known.length === parts.length && known.every((part, n) => part === parts[n] || (isVariable(part) && parts[n] !== ''));
  const variables = ({ parts: known }) => known.filter(isVariable).length;
  return templates.filter(fits).sort((a, b) => variables(a) - variables(b))[0];
}

// Converts `nullable` of OpenAPI 3.0 into JSON Schema. Validators ignore it beside `oneOf`.
function toJsonSchema(schema) {
  if (Array.isArray(schema)) return schema.map(toJsonSchema);
  if (!schema || typeof schema !== 'object') return schema;
  const { nullable, example, examples, ...rest } = schema;
  const inner = Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, name === 'enum' ? value : toJsonSchema(value)]));
  return nullable === true ? { anyOf: [{ type: 'null' }, inner] } : inner;
}

function conforms(validator, schema, value) {
  const validate = validator.compile(toJsonSchema(schema));
  return validate({ value }) ? [] : validate.errors.map((error) => `${error.instancePath} ${error.message}`);
}
const boxed = (schema) => ({ type: 'object', properties: { value: schema } });

// The description allows additional fields in bodies; a field that it does not name is a violation here.
function fieldNames(schema) {
  const alternatives = [...(schema.oneOf ?? []), ...(schema.anyOf ?? []), ...(schema.allOf ?? [])];
  return new Set([...Object.keys(schema.properties ?? {}), ...alternatives.flatMap((one) => [...fieldNames(one)])]);
}

function check({ method, path, query, body }) {
  const template = templateOf(path);
  const operation = template && description.paths[template.path][method.toLowerCase()];
  if (!operation) return ['no such operation'];
  const violations = [];
  const parameters = operation.parameters ?? [];
  const given = path.split('/');
  template.parts.forEach((part, n) => {
    if (!isVariable(part)) return;
    const parameter = parameters.find((one) => one.in === 'path' && `{${one.name}}` === part);
    if (!parameter) return violations.push(`${part} is not described`);
    const value = decodeURIComponent(given[n]);
    violations.push(...conforms(asText, boxed(parameter.schema), value).map((why) => `${part}:${why}`));
  });
  for (const [name, value] of new URLSearchParams(query)) {
    const parameter = parameters.find((one) => one.in === 'query' && one.name === name);
    if (!parameter) violations.push(`query ${name} is not described`);
    else violations.push(...conforms(asText, boxed(parameter.schema), value).map((why) => `query ${name}:${why}`));
  }
  for (const { name } of parameters.filter((one) => one.in === 'query' && one.required)) {
    if (!new URLSearchParams(query).has(name)) violations.push(`query ${name} is missing`);
  }
  const schema = operation.requestBody?.content?.['application/json']?.schema;
  if (body === null) {
    if (operation.requestBody?.required) violations.push('the body is missing');
  } else if (!schema) {
    violations.push('a body is not described');
  } else {
    violations.push(...conforms(ajv, boxed(schema), body).map((why) => `body:${why}`));
    const known = fieldNames(schema);
    const fields = body && typeof body === 'object' && !Array.isArray(body) ? Object.keys(body) : [];
    if (known.size > 0) violations.push(...fields.filter((name) => !known.has(name)).map((name) => `body has ${name}`));
  }
  return violations;
}

const requests = JSON.parse(readFileSync(recorded));
for (const request of requests) {
  for (const why of check(request)) console.log(`${request.method} ${request.path}?${request.query}: ${why}`);
}
