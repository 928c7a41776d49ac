// Takes the screenshots of README.md and docs/demo.md: the dashboard of a running demo.
//   node tests/dashboard/screenshots.mjs --link http://127.0.0.1:PORT/#key=KEY --out DIR
// `scripts/screenshots` starts the demo and runs this program. scripts/browser-tools installs Playwright and Chromium.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({ options: { link: { type: 'string' }, out: { type: 'string' } } });
if (!options.link || !options.out) {
  console.error('usage: screenshots.mjs --link URL#key=KEY --out DIR');
  process.exit(2);
}
const TIMEOUT_MS = 90_000;
const [tools, browserPath] = execFileSync(fileURLToPath(new URL('../../scripts/browser-tools', import.meta.url)), { encoding: 'utf8' }).trim().split('\n');
const { chromium } = createRequire(join(tools, 'package.json'))('playwright-core');
const [base, key] = options.link.split('/#key=');
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

mkdirSync(options.out, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'suture-screenshots-'));
const context = await chromium.launchPersistentContext(profile, { executablePath: browserPath, args: FLAGS, viewport: { width: 1080, height: 760 }, colorScheme: 'light', reducedMotion: 'reduce' });
context.setDefaultTimeout(TIMEOUT_MS);
const page = context.pages()[0] ?? await context.newPage();

const getJson = async (path) => (await fetch(`${base}${path}`, { headers: { authorization: `Bearer ${key}` } })).json();
/** Polls the API until `poll` returns something. */
async function until(what, poll) {
  const end = Date.now() + TIMEOUT_MS;
  for (;;) {
    const found = await poll();
    if (found) return found;
    if (Date.now() > end) throw new Error(`no ${what} within ${TIMEOUT_MS / 1000} s`);
    await new Promise((resume) => setTimeout(resume, 500));
  }
}
/** Takes a screenshot of a view, from its top or from this heading on. */
async function takeScreenshot(name, hash, heading) {
  await page.goto(`${base}/${hash}`);
  await page.reload();
  await page.locator('h1:visible').first().waitFor();
  // The page refreshes all the time, so waiting for an idle network would not end.
  await page.waitForTimeout(1_500);
  if (heading) await page.locator('h2:visible', { hasText: heading }).first().evaluate((node) => scrollTo(0, node.getBoundingClientRect().top + scrollY - 12));
  await page.screenshot({ path: join(options.out, `${name}.png`) });
  console.log(`${name}.png`);
}

try {
  await page.goto(options.link);
  await page.locator('h1:visible').first().waitFor();
  await until('four merges', async () => (await getJson('/api/prs?state=MERGED')).prs?.length >= 4);
  await takeScreenshot('demo-overview', '#/');
  await takeScreenshot('demo-recent-activity', '#/', 'Recent activity');
  const healed = await until('healed pull request', async () => {
    for (const pull of (await getJson('/api/prs?state=MERGED')).prs ?? []) {
      const { events } = await getJson(`/api/pr/${pull.repo}/${pull.number}/events`);
      if (events?.some((event) => JSON.stringify(event).includes('REMEDIATION_'))) return pull;
    }
    return null;
  });
  await takeScreenshot('demo-pull-request', `#/pr/${healed.repo}/${healed.number}`);
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true });
}
