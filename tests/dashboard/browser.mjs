// Tests the dashboard in Chromium, against the mock API or against a running admin function.
//   node tests/dashboard/browser.mjs --mock --out DIR                        starts the mock API; also tests empty, paused and failing installations
//   node tests/dashboard/browser.mjs --base URL --key KEY --out DIR          a running admin function; the key has the role operator or admin
//        [--pr owner/repo/42]   a pull request on which /rebuild is valid; without it, the test searches for one
// The installation needs at least one pull request on which /rebuild is valid. The test sends /rebuild, but no destructive command.
// Screenshots go to DIR. Exits 1 if a step fails. scripts/browser-tools installs Playwright, axe and Chromium.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { start } from './mock.mjs';

const { values: options } = parseArgs({ options: { base: { type: 'string' }, key: { type: 'string' }, out: { type: 'string' }, pr: { type: 'string' }, mock: { type: 'boolean', default: false } } });
if (!options.out || (!options.mock && !(options.base && options.key))) {
  console.error('usage: browser.mjs (--mock | --base URL --key KEY) --out DIR [--pr owner/repo/42]');
  process.exit(2);
}
const MAX_TRANSFERRED_BYTES = 25_000, STEP_TIMEOUT_MS = 10_000, TEST_TIMEOUT_MS = 300_000;
const timeout = setTimeout(() => { console.error('FAILED: time limit reached'); process.exit(3); }, TEST_TIMEOUT_MS);
const [tools, browserPath] = execFileSync(fileURLToPath(new URL('../../scripts/browser-tools', import.meta.url)), { encoding: 'utf8' }).trim().split('\n');
const require = createRequire(join(tools, 'package.json'));
const { chromium } = require('playwright-core');
const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const mock = options.mock && !options.base ? await start() : null;
const base = (options.base ?? `http://127.0.0.1:${mock.address().port}`).replace(/\/$/, ''), key = options.key ?? 'mock-admin';
mkdirSync(options.out, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'suture-dashboard-'));
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const context = await chromium.launchPersistentContext(profile, { executablePath: browserPath, args: FLAGS, viewport: { width: 1280, height: 860 }, colorScheme: 'light', reducedMotion: 'reduce', bypassCSP: false });
context.setDefaultTimeout(STEP_TIMEOUT_MS);

// ── Checked during all steps

const failures = [], passed = [];
let expectedStatus = new Set(), bytes = null;
function listen(page) {
  // Chromium logs a line for each failed request; the test expects those that it causes.
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type()) && ![...expectedStatus].some((status) => message.text().includes(status))) failures.push(`console: ${message.text()}`); });
  page.on('pageerror', (error) => failures.push(`script error: ${error.message}`));
  page.on('request', (request) => { const url = request.url(); if (!url.startsWith(`${base}/`) && !url.startsWith('data:')) failures.push(`request to another host: ${url}`); });
  page.on('response', async (response) => { if (bytes && response.url().startsWith(base)) { const sizes = await response.request().sizes().catch(() => null); bytes?.set(new URL(response.url()).pathname, sizes?.responseBodySize ?? 0); } });
  return page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error(`CSP violation: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`)));
}

async function step(name, work) {
  try {
    await work();
    passed.push(name);
    console.log(`ok    ${name}`);
  } catch (error) {
    failures.push(`${name}: ${error.message.split('\n').slice(0, 6).join(' | ')}`);
    console.log(`FAILED ${name}: ${error.message.split('\n')[0]}`);
    await page.screenshot({ path: join(options.out, `failed-${failures.length}.png`) }).catch(() => {});
  }
}
const assert = (fact, text) => { if (!fact) throw new Error(text); };
const shot = (name, whole = true) => page.screenshot({ path: join(options.out, `${name}.png`), fullPage: whole });
const waitFor = (selector, text) => page.locator(selector, text ? { hasText: text } : {}).first().waitFor();
const axeTotals = { serious: 0, critical: 0, moderate: 0, minor: 0, rules: 0 };

/** axe reports no serious or critical violation, in both color schemes. */
async function accessible(name) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    // Playwright evaluates the script outside the page's Content-Security-Policy.
    const found = await page.evaluate(`(() => { ${AXE}; return axe.run(document, { resultTypes: ['violations'] }); })()`);
    axeTotals.rules = Math.max(axeTotals.rules, found.passes.length);
    for (const { impact, id, nodes } of found.violations) {
      axeTotals[impact] += 1;
      const line = `axe, ${name}, ${colorScheme}: ${impact} ${id}: ${nodes[0].html.slice(0, 140)} ${nodes[0].failureSummary?.split('\n')[1] ?? ''}`;
      if (impact === 'serious' || impact === 'critical') failures.push(line);
      else console.log(`note  ${line}`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

async function fitsWidth(name) {
  const over = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return null;
    const wide = [...document.querySelectorAll('body *')].find((node) => node.getBoundingClientRect().right > width + 1 && !node.closest('.scroll, .screen-reader-only, .skip'));
    return `${document.documentElement.scrollWidth} > ${width}: ${wide?.outerHTML.slice(0, 160)}`;
  });
  assert(!over, `${name} is wider than the window: ${over}`);
}

async function signIn(apiKey) {
  await page.locator('#key').fill(apiKey);
  await page.keyboard.press('Enter');
}
async function signInAgain(apiKey) {
  await page.goto(`${base}/`);
  await page.evaluate(() => sessionStorage.clear());
  await page.goto(`${base}/#/`);
  await page.reload();
  await signIn(apiKey);
}

const page = context.pages()[0] ?? await context.newPage();
await listen(page);
let prPath = options.pr;

await step('the page shows the sign-in form and sends its Content-Security-Policy', async () => {
  bytes = new Map();
  const response = await page.goto(`${base}/`);
  const policy = response.headers()['content-security-policy'] ?? '';
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]) assert(policy.includes(part), `the Content-Security-Policy lacks ${part}: ${policy}`);
  await waitFor('#sign-in h1');
  assert(await page.evaluate(() => document.activeElement.id === 'key'), 'the key field has no focus');
  assert(await page.locator('#header').isHidden(), 'the header shows before sign-in');
  await shot('sign-in');
});
await step('sign-in is accessible', () => accessible('sign-in'));
await step('sign-in with an unknown key shows the error of the API', async () => {
  const kept = bytes;
  bytes = null;
  expectedStatus = new Set(['401']);
  await signIn('not-a-key');
  await page.waitForFunction(() => document.getElementById('sign-in-error').textContent.length > 10);
  assert(await page.evaluate(() => sessionStorage.length === 0), 'the page stored an unknown key');
  await shot('sign-in-refused');
  bytes = kept;
});
await step('sign-in opens the overview with a count for each state', async () => {
  expectedStatus = new Set();
  await signIn(key);
  await waitFor('#view h1');
  assert(await page.locator('.state').count() === 12, 'not all twelve states are shown');
  const open = await page.locator('.state .count').allTextContents();
  assert(open.some((count) => Number(count) > 0), 'every state is empty');
  assert(await page.locator('.state:not([data-empty]) .pr').count() > 0, 'no state shows its oldest pull request');
  for (const id of ['needs-person', 'pipeline', 'stuck', 'activity', 'days', 'dwell', 'controls']) assert(await page.locator(`#${id} h2`).count() === 1, `the section ${id} is missing`);
  assert(await page.locator('.days li').count() === 14, 'the chart does not have 14 days');
  assert((await page.locator('#updated').textContent()).startsWith('Updated'), 'the page does not show when it was updated');
  assert(await page.evaluate((key) => sessionStorage.getItem('suture-key') === key && localStorage.length === 0, key), 'the key is not in sessionStorage alone');
  await shot('overview-light');
});
await step('the first view transfers at most 25,000 bytes', async () => {
  await page.waitForTimeout(200);
  const sizes = [...bytes].map(([path, size]) => `${path} ${size}`), sum = [...bytes.values()].reduce((a, b) => a + b, 0);
  bytes = null;
  console.log(`      ${sum} bytes: ${sizes.join(', ')}`);
  assert(sizes.length >= 4 && sum <= MAX_TRANSFERRED_BYTES, `${sum} bytes, at most ${MAX_TRANSFERRED_BYTES}: ${sizes.join(', ')}`);
});
await step('the overview is accessible', () => accessible('overview'));
await step('dark mode', async () => {
  await page.emulateMedia({ colorScheme: 'dark' });
  const [ground, ink] = await page.evaluate(() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color].map((colour) => colour.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)));
  assert(ground < 150 && ink > 500, 'the background is not dark');
  await shot('overview-dark');
  await page.emulateMedia({ colorScheme: 'light' });
});
await step('a refresh keeps focus and scroll position', async () => {
  await page.locator('#repos a').first().focus();
  await page.evaluate(() => { window.scrollTo(0, 400); document.querySelector('.state').dataset.probe = 'same node'; window.before = document.activeElement; });
  const y = await page.evaluate(() => window.scrollY);
  await page.waitForResponse((response) => response.url().endsWith('/api/overview'), { timeout: 15_000 });
  await page.waitForTimeout(300);
  assert(await page.evaluate(() => window.before.isConnected && document.activeElement === window.before), 'the refresh lost the focus');
  assert(Math.abs((await page.evaluate(() => window.scrollY)) - y) < 3, 'the refresh changed the scroll position');
});
await step('a hidden tab sends no requests, and a visible one refreshes at once', async () => {
  const other = await context.newPage();
  await listen(other);
  await other.clock.install();
  await other.goto(`${base}/`);
  await other.locator('#key').fill(key);
  await other.keyboard.press('Enter');
  await other.locator('#pipeline').waitFor();
  let requests = 0;
  other.on('request', (request) => { requests += request.url().endsWith('/api/overview') ? 1 : 0; });
  const setHidden = (hidden) => other.evaluate((hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }, hidden);
  await setHidden(true);
  await other.clock.runFor(60_000);
  assert(requests === 0, `${requests} requests while hidden`);
  const response = other.waitForResponse((response) => response.url().endsWith('/api/overview'));
  await setHidden(false);
  await response;
  assert(requests === 1, `${requests} requests after the tab became visible`);
  await other.close();
});
await step('keyboard shortcuts: /, Escape, ?, g p, g o, the skip link', async () => {
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('/');
  assert(await page.evaluate(() => document.activeElement.id === 'search'), '/ does not focus the search field');
  await page.keyboard.press('Escape');
  assert(await page.evaluate(() => document.activeElement.id !== 'search'), 'Escape does not leave the search');
  await page.keyboard.press('?');
  await waitFor('#help[open]');
  await shot('shortcuts', false);
  await page.keyboard.press('Escape');
  await page.locator('#help').waitFor({ state: 'hidden' });
  // The second key must follow within 1.5 s; a slow machine gets three attempts.
  for (let tries = 3; tries > 0 && !/#\/prs$/.test(page.url()); tries -= 1) {
    await page.keyboard.press('g');
    await page.keyboard.press('p');
    await page.waitForURL(/#\/prs$/, { timeout: 3_000 }).catch((late) => { if (tries === 1) throw late; });
  }
  await waitFor('.pr-table tbody tr');
  await page.keyboard.press('g');
  await page.keyboard.press('o');
  await waitFor('#pipeline');
  await page.evaluate(() => { document.activeElement.blur(); window.scrollTo(0, 0); });
  await page.reload();
  await waitFor('#pipeline');
  await page.keyboard.press('Tab');
  assert(await page.evaluate(() => document.activeElement.className === 'skip'), 'the skip link is not first');
  await page.keyboard.press('Enter');
  assert(await page.evaluate(() => document.activeElement.id === 'main'), 'the skip link does not focus the content');
});
await step('the list: filter by state and repository, search, empty', async () => {
  await page.goto(`${base}/#/prs`);
  await waitFor('.pr-table tbody tr');
  const all = await page.locator('.pr-table tbody tr').count();
  await shot('list');
  const state = await page.locator('.pr-table tbody tr .badge').first().getAttribute('title');
  await page.locator('select[data-filter=state]').selectOption(state);
  await page.waitForURL(new RegExp(`state=${state}`));
  await page.waitForFunction((state) => [...document.querySelectorAll('.pr-table tbody .badge')].every((pill) => pill.title === state), state);
  const repo = await page.locator('select[data-filter=repo] option').nth(1).getAttribute('value');
  await page.locator('select[data-filter=state]').selectOption('');
  await page.locator('select[data-filter=repo]').selectOption(repo);
  await page.waitForFunction((repo) => [...document.querySelectorAll('.pr-table tbody .pr')].every((link) => link.title.startsWith(`${repo}#`)), repo);
  await page.getByRole('button', { name: 'Clear filters' }).click();
  await page.waitForFunction((all) => document.querySelectorAll('.pr-table tbody tr').length === all, all);
  const name = await page.locator('.pr-table tbody .pr').last().getAttribute('title');
  await page.locator('#search').fill(name);
  await page.waitForFunction((name) => { const found = [...document.querySelectorAll('.pr-table tbody .pr')]; return found.length >= 1 && found.every((link) => link.title.startsWith(name)); }, name);
  await page.locator('#search').fill('there is nothing like this');
  await waitFor('.empty', 'No pull request matches');
  await page.locator('#search').fill(name);
  await page.keyboard.press('Enter');
  await waitFor('#explain');
  assert(page.url().endsWith(`#/pr/${name.replace('#', '/')}`), 'a search for repository#number does not open the pull request');
  await page.goto(`${base}/#/stale`);
  await waitFor('#view h1', 'Stuck');
});
await step('the list is accessible', async () => {
  await page.goto(`${base}/#/prs`);
  await waitFor('.pr-table tbody tr');
  await accessible('list');
});
await step('the view of one pull request', async () => {
  for (const state of prPath ? [] : ['CHECKS_FAILED', 'CREATED', 'CHECKS_RUNNING', 'NEEDS_INTERVENTION']) {
    await page.goto(`${base}/#/prs?state=${state}`);
    await page.waitForFunction((state) => document.querySelector('.empty') ?? document.querySelector(`.pr-table .badge[title=${state}]`), state);
    const links = await page.locator('.pr-table tbody .pr').evaluateAll((all) => all.map((link) => link.getAttribute('href').slice(5)));
    for (const link of links.slice(0, 10)) {
      await page.goto(`${base}/#/pr/${link}`);
      await waitFor('#commands');
      if (await page.locator('[data-command="/rebuild"]').count()) { prPath = link; break; }
    }
    if (prPath) break;
  }
  assert(prPath, 'no pull request found on which /rebuild is valid');
  await page.goto(`${base}/#/pr/${prPath}`);
  for (const id of ['explain', 'commands', 'timeline', 'checks', 'budgets', 'runs', 'events']) await waitFor(`#${id} h2`);
  assert(await page.locator('svg.timeline rect[class^="s-"]').count() > 0, 'the timeline is empty');
  assert(await page.locator('#events tbody tr').count() > 0, 'the event log is empty');
  assert((await page.locator('.explanation').textContent()).length > 10, 'the diagnosis is empty');
  assert(await page.evaluate(() => document.activeElement.tagName === 'H1' || document.activeElement === document.body), 'the focus is not on the heading');
  await shot('pr-light');
  await page.emulateMedia({ colorScheme: 'dark' });
  await shot('pr-dark');
});
await step('the view of one pull request is accessible', () => accessible('pr'));
await step('"Verify with GitHub now" updates the diagnosis', async () => {
  const response = page.waitForResponse((response) => response.url().includes('explain?live=true'));
  await page.getByRole('button', { name: 'Verify with GitHub now' }).click();
  await response;
  await page.waitForFunction(() => document.getElementById('toast').className !== '');
});
await step('a destructive command needs a confirmation', async () => {
  const destructive = page.locator('button[data-destructive]').first();
  if (!(await destructive.count())) { assert(!options.mock, 'no button for a destructive command'); return console.log('      this key has no destructive command'); }
  let sent = false;
  const watch = (request) => { if (request.method() === 'POST') sent = true; };
  page.on('request', watch);
  await destructive.click();
  await waitFor('#confirm[open]');
  assert((await page.locator('#confirm-title').textContent()).startsWith('/'), 'the dialog does not name the command');
  await shot('confirm', false);
  await page.waitForTimeout(300);
  await page.keyboard.press('Escape');
  await page.locator('#confirm').waitFor({ state: 'hidden' });
  await destructive.click();
  await page.getByRole('button', { name: 'Go back' }).click();
  await page.locator('#confirm').waitFor({ state: 'hidden' });
  await page.waitForTimeout(200);
  page.off('request', watch);
  assert(!sent, 'the command was sent without a confirmation');
});
await step('/rebuild is queued and its progress is shown', async () => {
  const sent = page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/command'));
  await page.locator('[data-command="/rebuild"]').click();
  const request = await sent;
  assert(request.postDataJSON().command === '/rebuild' && /^[0-9a-f]{24}$/.test(request.headers()['idempotency-key'] ?? ''), 'the request lacks the command or the idempotency key');
  await waitFor('#command-progress', /queued|running|accepted|processed|completed/);
  await shot('pr-queued');
  if (options.mock) {
    await waitFor('#command-progress', 'accepted');
    await page.locator('#command-progress', { hasText: 'completed' }).waitFor({ timeout: 15_000 });
    await waitFor('.fact-list .badge[title=CHECKS_RUNNING]');
    await shot('pr-followed');
  }
});
await step('every view fits a width of 360 pixels', async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  for (const [name, hash, selector] of [['overview', '#/', '#pipeline'], ['list', '#/prs', '.pr-table tbody tr'], ['pr', `#/pr/${prPath}`, '#events']]) {
    await page.goto(`${base}/${hash}`);
    await waitFor(selector);
    await page.waitForTimeout(150);
    await fitsWidth(name);
    await shot(`phone-${name}`);
    if (name === 'overview') {
      await page.emulateMedia({ colorScheme: 'dark' });
      await shot('phone-overview-dark', false);
      await page.emulateMedia({ colorScheme: 'light' });
    }
  }
  for (const width of [768, 1000]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto(`${base}/#/`);
    await waitFor('#pipeline');
    await fitsWidth(`overview at ${width}`);
    await shot(`overview-${width}`);
  }
  await page.setViewportSize({ width: 1280, height: 860 });
});
await step('an unknown pull request shows "Not found"', async () => {
  expectedStatus = new Set(['404']);
  await page.goto(`${base}/#/pr/nobody/nothing/1`);
  await page.locator('#error').waitFor();
  assert((await page.locator('#error-text').textContent()).startsWith('Not found.'), 'the error text is missing');
  await shot('unknown', false);
  expectedStatus = new Set();
});
await step('an unreachable server shows an error, and the page recovers', async () => {
  await page.goto(`${base}/#/`);
  await waitFor('#pipeline');
  expectedStatus = new Set(['ERR_INTERNET_DISCONNECTED', 'ERR_FAILED']);
  await context.setOffline(true);
  await page.keyboard.press('r');
  await page.locator('#error').waitFor();
  assert((await page.locator('#error-text').textContent()).includes('Cannot reach Suture'), 'the error text is missing');
  assert(await page.locator('#pipeline').isVisible(), 'the page removed the data it had');
  await shot('unreachable', false);
  await context.setOffline(false);
  await page.getByRole('button', { name: 'Retry now' }).click();
  await page.locator('#error').waitFor({ state: 'hidden' });
  expectedStatus = new Set();
});
await step('sign-out deletes the key', async () => {
  await page.getByRole('button', { name: 'Sign out' }).click();
  await waitFor('#sign-in h1');
  assert(await page.evaluate(() => sessionStorage.length === 0 && document.getElementById('view').textContent === ''), 'data is left after sign-out');
});

await step('a link with a key signs in and the key leaves the address', async () => {
  await page.goto('about:blank');
  await page.goto(`${base}/#key=${key}`);
  await page.locator('#header').waitFor();
  assert(!page.url().includes(key) && !(await page.evaluate(() => location.href)).includes('key='), `the key is still in the address: ${page.url()}`);
  await page.evaluate(() => sessionStorage.clear());
});

// ── Steps that need the mock API

if (options.mock) {
  await step('mock: an empty installation explains the next steps', async () => {
    await signInAgain('mock-empty');
    await waitFor('.empty', 'No pull requests yet');
    await waitFor('.notices', 'Observe mode');
    await shot('empty');
    await accessible('empty');
  });
  await step('mock: paused, breaker open; reset and resume', async () => {
    await signInAgain('mock-paused');
    await waitFor('.notices', 'Paused by ben');
    await waitFor('.notices', 'circuit breaker is open');
    await shot('paused');
    await page.getByRole('button', { name: 'Reset' }).click();
    await page.locator('#confirm-yes').click();
    await page.locator('#system-status', { hasText: 'Breaker closed' }).waitFor();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.locator('#system-status', { hasText: 'Act mode' }).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.locator('#reason').fill('release freeze');
    await page.locator('#confirm-yes').click();
    await waitFor('.notices', 'release freeze');
    await page.getByRole('button', { name: 'Sweep now' }).click();
    await waitFor('#toast.on', 'Sweep requested');
  });
  await step('mock: suggestions are shown with their tables', async () => {
    await page.goto(`${base}/#/`);
    await page.getByRole('link', { name: 'Threshold and rule suggestions' }).click();
    await waitFor('#advice li', 'Raise thresholds_minutes.checks_running from 60 to 83');
    await waitFor('#advice li', '3 of 4 retries by rule network');
    await waitFor('.intro', 'only the first 5000 events');
    await waitFor('#rules .alert', 'same failure after retry');
    await waitFor('#lost-webhooks tbody tr', '2.4 %');
    await shot('insights');
    await accessible('insights');
  });
  await step('mock: dead letters are shown and redriven', async () => {
    await page.goto(`${base}/#/dlq`);
    await waitFor('#view tbody tr');
    await shot('dlq');
    await accessible('dlq');
    await page.getByRole('button', { name: 'Redrive all' }).click();
    await page.locator('#confirm-yes').click();
    await waitFor('.intro', 'queue is empty');
  });
  await step('mock: a viewer has no commands and no controls', async () => {
    await signInAgain('mock-viewer');
    await waitFor('#controls');
    assert(await page.locator('#controls button').count() === 0, 'a viewer sees controls');
    await page.goto(`${base}/#/pr/${prPath}`);
    await waitFor('#commands', 'read-only');
    assert(await page.locator('[data-command]').count() === 0, 'a viewer sees commands');
  });
  await step('mock: an operator has no admin actions', async () => {
    await signInAgain('mock-operator');
    await page.getByRole('button', { name: 'Sweep now' }).waitFor();
    assert(await page.locator('[data-action=pause]').count() === 0, 'an operator sees the pause button');
    await page.goto(`${base}/#/pr/${prPath}`);
    await waitFor('[data-command="/hold"]');
    assert(await page.locator('[data-destructive]').count() === 0, 'an operator sees an admin command');
    await page.locator('[data-command="/hold"]').click();
    await waitFor('#command-progress', 'processed');
    await waitFor('.tag', 'held');
  });
  await step('mock: a retry after a lost response sends the same idempotency key', async () => {
    expectedStatus = new Set(['ERR_FAILED']);
    const keys = [];
    await page.route('**/command', (route) => { keys.push(route.request().headers()['idempotency-key']); return keys.length === 1 ? route.abort() : route.continue(); });
    for (const seen of ['#toast.bad', '#command-progress']) {
      await page.locator('[data-command="/hold"]').click();
      await waitFor(seen, seen === '#command-progress' ? 'processed' : 'Cannot reach Suture');
    }
    await page.locator('[data-command="/resume"]').click();
    await waitFor('#command-progress', '/resume processed');
    await page.unroute('**/command');
    assert(keys.length === 3 && keys[0] === keys[1] && keys[1] !== keys[2], `idempotency keys: ${keys}`);
  });
  await step('mock: a rejected command shows the reason', async () => {
    expectedStatus = new Set(['409']);
    await page.locator('[data-command="/hold"]').evaluate((button) => { button.dataset.command = '/merge'; });
    await page.locator('[data-command="/merge"]').click();
    await waitFor('#toast.bad', 'not valid');
  });
  await step('mock: 403, 429 and 503 show what to do', async () => {
    expectedStatus = new Set(['403', '429', '503']);
    for (const [name, text] of [['403', 'Ask an admin'], ['503', 'returned an error']]) {
      await page.goto(`${base}/`);
      await page.evaluate(() => sessionStorage.clear());
      await page.reload();
      await signIn(`mock-${name}`);
      await waitFor('#sign-in-error', text);
    }
    // With a key that worked before, the page keeps its data and shows the error.
    for (const name of ['429', '503']) {
      await signInAgain('mock-admin');
      await waitFor('#pipeline');
      await page.route('**/api/overview', (route) => route.continue({ headers: { ...route.request().headers(), authorization: `Bearer mock-${name}` } }));
      await page.keyboard.press('r');
      await page.locator('#error').waitFor();
      if (name === '429') assert(/Next attempt in (10|[5-9]) s/.test(await page.locator('#retry-text').textContent()), `Retry-After is not shown: ${await page.locator('#retry-text').textContent()}`);
      await shot(`error-${name}`, false);
      await accessible(`error ${name}`);
      await page.unroute('**/api/overview');
    }
  });
  await step('mock: a revoked key returns to sign-in, and sign-in returns to the same view', async () => {
    expectedStatus = new Set(['401']);
    await signInAgain('mock-admin');
    await page.goto(`${base}/#/pr/${prPath}`);
    await waitFor('#explain');
    await page.route('**/api/**', (route) => route.continue({ headers: { ...route.request().headers(), authorization: 'Bearer revoked' } }));
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press('r');
    await waitFor('#sign-in-error', 'Unknown API key');
    await page.unroute('**/api/**');
    await signIn('mock-admin');
    await waitFor('#explain');
  });
  await step('mock: HTML in the data is shown as text', async () => {
    await page.route('**/api/overview', async (route) => {
      const response = await route.fetch(), json = await response.json();
      json.needs_person[0].why = '<img src=x onerror=alert(1)> <b>not bold</b> `<script>`';
      json.needs_person[0].repo = 'acme/"><script>alert(1)</script>';
      await route.fulfill({ response, json });
    });
    await page.goto(`${base}/#/`);
    await waitFor('#needs-person', '<img src=x onerror=alert(1)>');
    assert(await page.locator('#view img, #view script').count() === 0, 'data was inserted as HTML');
    await page.unroute('**/api/overview');
  });
}

clearTimeout(timeout);
await context.close();
mock?.close();
rmSync(profile, { recursive: true, force: true });
console.log(JSON.stringify({ passed: passed.length, failed: failures.length, axe: axeTotals }));
for (const line of failures) console.error(`FAILED ${line}`);
process.exit(failures.length ? 1 : 0);
