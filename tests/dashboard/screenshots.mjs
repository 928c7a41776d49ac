// The pictures of docs/demo.md: the dashboard of a demo some seconds after it began.
//   node tests/dashboard/screenshots.mjs --link http://127.0.0.1:PORT/#key=KEY --out DIR
// `scripts/screenshots` starts the demo and calls this. Tools come from scripts/browser-tools.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values: given } = parseArgs({ options: { link: { type: 'string' }, out: { type: 'string' } } });
if (!given.link || !given.out) {
  console.error('usage: screenshots.mjs --link URL#key=KEY --out DIR');
  process.exit(2);
}
const PATIENCE_MS = 90_000;
const [tools, browserPath] = execFileSync(fileURLToPath(new URL('../../scripts/browser-tools', import.meta.url)), { encoding: 'utf8' }).trim().split('\n');
const { chromium } = createRequire(join(tools, 'package.json'))('playwright-core');
const [base, key] = given.link.split('/#key=');
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

mkdirSync(given.out, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'suture-pictures-'));
const context = await chromium.launchPersistentContext(profile, { executablePath: browserPath, args: FLAGS, viewport: { width: 1080, height: 760 }, colorScheme: 'light', reducedMotion: 'reduce' });
context.setDefaultTimeout(PATIENCE_MS);
const page = context.pages()[0] ?? await context.newPage();

const ask = async (path) => (await fetch(`${base}${path}`, { headers: { authorization: `Bearer ${key}` } })).json();
/** Waits until the API says so. */
async function until(what, look) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`no ${what} within ${PATIENCE_MS / 1000} s`);
    await new Promise((resume) => setTimeout(resume, 500));
  }
}
/** A picture of a page, from its beginning or from this heading on. */
async function picture(name, hash, heading) {
  await page.goto(`${base}/${hash}`);
  await page.reload();
  await page.locator('h1:visible').first().waitFor();
  // What is asked for again and again is never quite still; what matters is there.
  await page.waitForTimeout(1_500);
  if (heading) await page.locator('h2:visible', { hasText: heading }).first().evaluate((node) => scrollTo(0, node.getBoundingClientRect().top + scrollY - 12));
  await page.screenshot({ path: join(given.out, `${name}.png`) });
  console.log(`${name}.png`);
}

try {
  await page.goto(given.link);
  await page.locator('h1:visible').first().waitFor();
  await until('four merges', async () => (await ask('/api/prs?state=MERGED')).prs?.length >= 4);
  await picture('demo-overview', '#/');
  await picture('demo-what-suture-did', '#/', 'What Suture did');
  const healed = await until('healed one', async () => {
    for (const pull of (await ask('/api/prs?state=MERGED')).prs ?? []) {
      const { events } = await ask(`/api/pr/${pull.repo}/${pull.number}/events`);
      if (events?.some((event) => JSON.stringify(event).includes('REMEDIATION_'))) return pull;
    }
    return null;
  });
  await picture('demo-one-life', `#/pr/${healed.repo}/${healed.number}`);
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true });
}
