// Validates GraphQL documents against GitHub's published schema and its limit of 500,000 nodes per query. Usage: node documents.mjs
// SCHEMAS FILE…, where SCHEMAS is the folder of scripts/fetch-github-schemas. Prints one violation per line.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [schemas, ...files] = process.argv.slice(2);
const require = createRequire(join(schemas, 'package.json'));
const { validate } = await import(pathToFileURL(join(schemas, 'node_modules/@octokit/graphql-schema/index.js')));
const { parse } = require('graphql');
const MAX_NODES = 500_000;
// `nodes(ids:)` accepts at most 100 ids.
const MAX_IDS = 100;

function nodes(selections, times) {
  let sum = 0;
  for (const selection of selections?.selections ?? []) {
    const argument = (name) => selection.arguments?.find((one) => one.name.value === name)?.value;
    const bound = Number(argument('first')?.value ?? argument('last')?.value ?? (argument('ids') ? MAX_IDS : 0));
    if (bound > 100) console.log(`${selection.name.value} requests ${bound} items; the limit is 100`);
    sum += times * bound + nodes(selection.selectionSet, bound ? times * bound : times);
  }
  return sum;
}

for (const file of files) {
  const text = readFileSync(file, 'utf8');
  const violations = validate(text).map((error) => error.message);
  const count = parse(text).definitions.reduce((sum, one) => sum + nodes(one.selectionSet, 1), 0);
  if (count > MAX_NODES) violations.push(`${count} nodes`);
  for (const why of violations) console.log(`${basename(file)}: ${why}`);
}
