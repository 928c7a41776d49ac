// Holds GraphQL documents against GitHub's published schema, and against its limit of 500,000 nodes per query. Usage: node
// documents.mjs TRUTH FILE…. Prints what does not conform, one per line.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [schemas, ...files] = process.argv.slice(2);
const require = createRequire(join(schemas, 'package.json'));
const { validate } = await import(pathToFileURL(join(schemas, 'node_modules/@octokit/graphql-schema/index.js')));
const { parse } = require('graphql');
const MOST_NODES = 500_000;
// `nodes(ids:)` takes a hundred at most.
const MOST_IDS = 100;

function nodes(selections, times) {
  let sum = 0;
  for (const selection of selections?.selections ?? []) {
    const argument = (name) => selection.arguments?.find((one) => one.name.value === name)?.value;
    const bound = Number(argument('first')?.value ?? argument('last')?.value ?? (argument('ids') ? MOST_IDS : 0));
    if (bound > 100) console.log(`${selection.name.value} asks for ${bound}, and may for 100`);
    sum += times * bound + nodes(selection.selectionSet, bound ? times * bound : times);
  }
  return sum;
}

for (const file of files) {
  const text = readFileSync(file, 'utf8');
  const wrong = validate(text).map((error) => error.message);
  const count = parse(text).definitions.reduce((sum, one) => sum + nodes(one.selectionSet, 1), 0);
  if (count > MOST_NODES) wrong.push(`${count} nodes`);
  for (const why of wrong) console.log(`${basename(file)}: ${why}`);
}
