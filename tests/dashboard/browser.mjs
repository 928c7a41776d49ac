// The dashboard in a real browser, against the mock or against the admin function itself.
//   node tests/dashboard/browser.mjs --mock --out DIR                        starts the mock itself; also empty, paused, broken installations
//   node tests/dashboard/browser.mjs --base URL --key KEY --out DIR          a running admin function; the key is an operator's or an admin's
//        [--pr owner/repo/42]   a pull request on which /rebuild is valid; otherwise one is looked for
// It needs: some pull requests, at least one on which /rebuild is valid. /rebuild is really asked for; destructive commands are not.
// Screenshots go to DIR. Exits 1 if anything is not as it should be. Tools come from scripts/browser-tools.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { start } from './mock.mjs';

const { values: given } = parseArgs({ options: { base: { type: 'string' }, key: { type: 'string' }, out: { type: 'string' }, pr: { type: 'string' }, mock: { type: 'boolean', default: false } } });
if (!given.out || (!given.mock && !(given.base && given.key))) {
  console.error('usage: browser.mjs (--mock | --base URL --key KEY) --out DIR [--pr owner/repo/42]');
  process.exit(2);
}
const MOST_BYTES = 60_000, PATIENCE_MS = 10_000, WHOLE_MS = 300_000;
const limit = setTimeout(() => { console.error('WRONG: it takes too long'); process.exit(3); }, WHOLE_MS);
const [tools, browserPath] = execFileSync(fileURLToPath(new URL('../../scripts/browser-tools', import.meta.url)), { encoding: 'utf8' }).trim().split('\n');
const require = createRequire(join(tools, 'package.json'));
const { chromium } = require('playwright-core');
const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const mock = given.mock && !given.base ? await start() : null;
const base = (given.base ?? `http://127.0.0.1:${mock.address().port}`).replace(/\/$/, ''), key = given.key ?? 'mock-admin';
mkdirSync(given.out, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'suture-page-'));
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const context = await chromium.launchPersistentContext(profile, { executablePath: browserPath, args: FLAGS, viewport: { width: 1280, height: 860 }, colorScheme: 'light', reducedMotion: 'reduce', bypassCSP: false });
context.setDefaultTimeout(PATIENCE_MS);

// ── What must never happen, whatever is done

const wrong = [], passed = [];
let expectedStatus = new Set(), bytes = null;
function listen(page) {
  // Chromium writes a line for each refused request; those the test provokes are expected.
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type()) && ![...expectedStatus].some((status) => message.text().includes(status))) wrong.push(`console: ${message.text()}`); });
  page.on('pageerror', (error) => wrong.push(`script: ${error.message}`));
  page.on('request', (request) => { const url = request.url(); if (!url.startsWith(`${base}/`) && !url.startsWith('data:')) wrong.push(`another host was asked: ${url}`); });
  page.on('response', async (response) => { if (bytes && response.url().startsWith(base)) { const sizes = await response.request().sizes().catch(() => null); bytes?.set(new URL(response.url()).pathname, sizes?.responseBodySize ?? 0); } });
  return page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error(`CSP violation: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`)));
}

async function step(name, work) {
  try {
    await work();
    passed.push(name);
    console.log(`ok    ${name}`);
  } catch (error) {
    wrong.push(`${name}: ${error.message.split('\n').slice(0, 6).join(' | ')}`);
    console.log(`WRONG ${name}: ${error.message.split('\n')[0]}`);
    await page.screenshot({ path: join(given.out, `wrong-${wrong.length}.png`) }).catch(() => {});
  }
}
const must = (fact, text) => { if (!fact) throw new Error(text); };
const shot = (name, whole = true) => page.screenshot({ path: join(given.out, `${name}.png`), fullPage: whole });
const sees = (selector, text) => page.locator(selector, text ? { hasText: text } : {}).first().waitFor();
const axeTotals = { serious: 0, critical: 0, moderate: 0, minor: 0, rules: 0 };

/** No serious or critical finding, in both themes. */
async function accessible(name) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    // The script runs in its own world, past the page's policy.
    const found = await page.evaluate(`(() => { ${AXE}; return axe.run(document, { resultTypes: ['violations'] }); })()`);
    axeTotals.rules = Math.max(axeTotals.rules, found.passes.length);
    for (const { impact, id, nodes } of found.violations) {
      axeTotals[impact] += 1;
      const line = `axe, ${name}, ${colorScheme}: ${impact} ${id}: ${nodes[0].html.slice(0, 140)} ${nodes[0].failureSummary?.split('\n')[1] ?? ''}`;
      if (impact === 'serious' || impact === 'critical') wrong.push(line);
      else console.log(`note  ${line}`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

async function fitsWidth(name) {
  const over = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return null;
    const wide = [...document.querySelectorAll('body *')].find((node) => node.getBoundingClientRect().right > width + 1 && !node.closest('.scroll, .sr, .skip'));
    return `${document.documentElement.scrollWidth} > ${width}: ${wide?.outerHTML.slice(0, 160)}`;
  });
  must(!over, `${name} is wider than the window: ${over}`);
}

async function signIn(with_) {
  await page.locator('#key').fill(with_);
  await page.keyboard.press('Enter');
}
async function fresh(with_) {
  await page.goto(`${base}/`);
  await page.evaluate(() => sessionStorage.clear());
  await page.goto(`${base}/#/`);
  await page.reload();
  await signIn(with_);
}

const page = context.pages()[0] ?? await context.newPage();
await listen(page);
let there = given.pr;

await step('the page asks for a key, with its policy on', async () => {
  bytes = new Map();
  const answer = await page.goto(`${base}/`);
  const policy = answer.headers()['content-security-policy'] ?? '';
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]) must(policy.includes(part), `the policy lacks ${part}: ${policy}`);
  await sees('#door h1');
  must(await page.evaluate(() => document.activeElement.id === 'key'), 'the key field has no focus');
  must(await page.locator('#top').isHidden(), 'the header shows before sign-in');
  await shot('sign-in');
});
await step('sign-in is accessible', () => accessible('sign-in'));
await step('a wrong key is refused with the server’s sentence', async () => {
  const kept = bytes;
  bytes = null;
  expectedStatus = new Set(['401']);
  await signIn('not-a-key');
  await page.waitForFunction(() => document.getElementById('refused').textContent.length > 10);
  must(await page.evaluate(() => sessionStorage.length === 0), 'a wrong key was kept');
  await shot('sign-in-refused');
  bytes = kept;
});
await step('the right key opens the overview; its lanes are filled', async () => {
  expectedStatus = new Set();
  await signIn(key);
  await sees('#view h1');
  must(await page.locator('.lane').count() === 12, 'not all twelve states are shown');
  const open = await page.locator('.lane .count').allTextContents();
  must(open.some((count) => Number(count) > 0), 'every lane is empty');
  must(await page.locator('.lane:not([data-empty]) .pr').count() > 0, 'no lane names its oldest pull request');
  for (const id of ['people', 'pipeline', 'stuck', 'activity', 'days', 'dwell', 'controls']) must(await page.locator(`#${id} h2`).count() === 1, `the section ${id} is missing`);
  must(await page.locator('.days li').count() === 14, 'not 14 days');
  must((await page.locator('#age').textContent()).startsWith('Updated'), 'it does not say how old it is');
  must(await page.evaluate((key) => sessionStorage.getItem('suture-key') === key && localStorage.length === 0, key), 'the key is not kept for this tab alone');
  await shot('overview-light');
});
await step('the first view is small', async () => {
  await page.waitForTimeout(200);
  const sizes = [...bytes].map(([path, size]) => `${path} ${size}`), sum = [...bytes.values()].reduce((a, b) => a + b, 0);
  bytes = null;
  console.log(`      ${sum} bytes: ${sizes.join(', ')}`);
  must(sizes.length >= 4 && sum <= MOST_BYTES, `${sum} bytes, at most ${MOST_BYTES}: ${sizes.join(', ')}`);
});
await step('the overview is accessible', () => accessible('overview'));
await step('dark mode', async () => {
  await page.emulateMedia({ colorScheme: 'dark' });
  const [ground, ink] = await page.evaluate(() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color].map((colour) => colour.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)));
  must(ground < 150 && ink > 500, 'it is not dark');
  await shot('overview-dark');
  await page.emulateMedia({ colorScheme: 'light' });
});
await step('it refreshes by itself and keeps focus and scroll', async () => {
  await page.locator('#repos a').first().focus();
  await page.evaluate(() => { window.scrollTo(0, 400); document.querySelector('.lane').dataset.probe = 'same node'; window.before = document.activeElement; });
  const y = await page.evaluate(() => window.scrollY);
  await page.waitForResponse((response) => response.url().endsWith('/api/overview'), { timeout: 15_000 });
  await page.waitForTimeout(300);
  must(await page.evaluate(() => window.before.isConnected && document.activeElement === window.before), 'the focus was lost');
  must(Math.abs((await page.evaluate(() => window.scrollY)) - y) < 3, 'the page jumped');
});
await step('it stops asking while hidden, and asks at once when it is seen again', async () => {
  const other = await context.newPage();
  await listen(other);
  await other.clock.install();
  await other.goto(`${base}/`);
  await other.locator('#key').fill(key);
  await other.keyboard.press('Enter');
  await other.locator('#pipeline').waitFor();
  let asked = 0;
  other.on('request', (request) => { asked += request.url().endsWith('/api/overview') ? 1 : 0; });
  const turn = (hidden) => other.evaluate((hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }, hidden);
  await turn(true);
  await other.clock.runFor(60_000);
  must(asked === 0, `it asked ${asked} times while hidden`);
  const answered = other.waitForResponse((response) => response.url().endsWith('/api/overview'));
  await turn(false);
  await answered;
  must(asked === 1, `it asked ${asked} times when seen again`);
  await other.close();
});
await step('the keyboard: /, Escape, ?, g p, g o, the skip link', async () => {
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('/');
  must(await page.evaluate(() => document.activeElement.id === 'q'), '/ does not lead to the search');
  await page.keyboard.press('Escape');
  must(await page.evaluate(() => document.activeElement.id !== 'q'), 'Escape does not leave the search');
  await page.keyboard.press('?');
  await sees('#help[open]');
  await shot('shortcuts', false);
  await page.keyboard.press('Escape');
  await page.locator('#help').waitFor({ state: 'hidden' });
  // The second key has to come within a moment of the first: on a machine that stutters, once more.
  for (let tries = 3; tries > 0 && !/#\/prs$/.test(page.url()); tries -= 1) {
    await page.keyboard.press('g');
    await page.keyboard.press('p');
    await page.waitForURL(/#\/prs$/, { timeout: 3_000 }).catch((late) => { if (tries === 1) throw late; });
  }
  await sees('.prs tbody tr');
  await page.keyboard.press('g');
  await page.keyboard.press('o');
  await sees('#pipeline');
  await page.evaluate(() => { document.activeElement.blur(); window.scrollTo(0, 0); });
  await page.reload();
  await sees('#pipeline');
  await page.keyboard.press('Tab');
  must(await page.evaluate(() => document.activeElement.className === 'skip'), 'the skip link is not first');
  await page.keyboard.press('Enter');
  must(await page.evaluate(() => document.activeElement.id === 'main'), 'the skip link does not lead to the content');
});
await step('the list: filter by state and repository, search, empty', async () => {
  await page.goto(`${base}/#/prs`);
  await sees('.prs tbody tr');
  const all = await page.locator('.prs tbody tr').count();
  await shot('list');
  const state = await page.locator('.prs tbody tr .pill').first().getAttribute('title');
  await page.locator('select[data-filter=state]').selectOption(state);
  await page.waitForURL(new RegExp(`state=${state}`));
  await page.waitForFunction((state) => [...document.querySelectorAll('.prs tbody .pill')].every((pill) => pill.title === state), state);
  const repo = await page.locator('select[data-filter=repo] option').nth(1).getAttribute('value');
  await page.locator('select[data-filter=state]').selectOption('');
  await page.locator('select[data-filter=repo]').selectOption(repo);
  await page.waitForFunction((repo) => [...document.querySelectorAll('.prs tbody .pr')].every((link) => link.title.startsWith(`${repo}#`)), repo);
  await page.getByRole('button', { name: 'Clear filters' }).click();
  await page.waitForFunction((all) => document.querySelectorAll('.prs tbody tr').length === all, all);
  const name = await page.locator('.prs tbody .pr').last().getAttribute('title');
  await page.locator('#q').fill(name);
  await page.waitForFunction((name) => { const found = [...document.querySelectorAll('.prs tbody .pr')]; return found.length >= 1 && found.every((link) => link.title.startsWith(name)); }, name);
  await page.locator('#q').fill('there is nothing like this');
  await sees('.empty', 'Nothing fits');
  await page.locator('#q').fill(name);
  await page.keyboard.press('Enter');
  await sees('#explain');
  must(page.url().endsWith(`#/pr/${name.replace('#', '/')}`), 'a name and number do not open the pull request');
  await page.goto(`${base}/#/stale`);
  await sees('#view h1', 'Stuck');
});
await step('the list is accessible', async () => {
  await page.goto(`${base}/#/prs`);
  await sees('.prs tbody tr');
  await accessible('list');
});
await step('a pull request’s page', async () => {
  for (const state of there ? [] : ['CHECKS_FAILED', 'CREATED', 'CHECKS_RUNNING', 'NEEDS_INTERVENTION']) {
    await page.goto(`${base}/#/prs?state=${state}`);
    await page.waitForFunction((state) => document.querySelector('.empty') ?? document.querySelector(`.prs .pill[title=${state}]`), state);
    const links = await page.locator('.prs tbody .pr').evaluateAll((all) => all.map((link) => link.getAttribute('href').slice(5)));
    for (const link of links.slice(0, 10)) {
      await page.goto(`${base}/#/pr/${link}`);
      await sees('#commands');
      if (await page.locator('[data-command="/rebuild"]').count()) { there = link; break; }
    }
    if (there) break;
  }
  must(there, 'there is no pull request on which /rebuild is valid');
  await page.goto(`${base}/#/pr/${there}`);
  for (const id of ['explain', 'commands', 'life', 'checks', 'budgets', 'runs', 'events']) await sees(`#${id} h2`);
  must(await page.locator('svg.life rect[class^="s-"]').count() > 0, 'its life has no picture');
  must(await page.locator('#events tbody tr').count() > 0, 'it has no events');
  must((await page.locator('.say').textContent()).length > 10, 'nothing is explained');
  must(await page.evaluate(() => document.activeElement.tagName === 'H1' || document.activeElement === document.body), 'the focus is nowhere useful');
  await shot('pr-light');
  await page.emulateMedia({ colorScheme: 'dark' });
  await shot('pr-dark');
});
await step('a pull request’s page is accessible', () => accessible('pr'));
await step('GitHub is asked now, and it says so', async () => {
  const answered = page.waitForResponse((response) => response.url().includes('explain?live=true'));
  await page.getByRole('button', { name: 'Ask GitHub now' }).click();
  await answered;
  await page.waitForFunction(() => document.getElementById('note').className !== '');
});
await step('a destructive command asks first, and Escape leaves it', async () => {
  const dangerous = page.locator('button[data-destructive]').first();
  if (!(await dangerous.count())) { must(!given.mock, 'no destructive command is offered'); return console.log('      none is offered to this key'); }
  let sent = false;
  const watch = (request) => { if (request.method() === 'POST') sent = true; };
  page.on('request', watch);
  await dangerous.click();
  await sees('#ask[open]');
  must((await page.locator('#ask-title').textContent()).startsWith('/'), 'it does not name the command');
  await shot('confirm', false);
  await page.waitForTimeout(300);
  await page.keyboard.press('Escape');
  await page.locator('#ask').waitFor({ state: 'hidden' });
  await dangerous.click();
  await page.getByRole('button', { name: 'Leave it' }).click();
  await page.locator('#ask').waitFor({ state: 'hidden' });
  await page.waitForTimeout(200);
  page.off('request', watch);
  must(!sent, 'it was sent without a yes');
});
await step('/rebuild is queued, shown, and followed', async () => {
  const asked = page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/command'));
  await page.locator('[data-command="/rebuild"]').click();
  const request = await asked;
  must(request.postDataJSON().command === '/rebuild' && /^[0-9a-f]{24}$/.test(request.headers()['idempotency-key'] ?? ''), 'the request is not what it should be');
  await sees('#follow', /queued|running|accepted|taken|completed/);
  await shot('pr-queued');
  if (given.mock) {
    await sees('#follow', 'accepted');
    await page.locator('#follow', { hasText: 'completed' }).waitFor({ timeout: 15_000 });
    await sees('.facts .pill[title=CHECKS_RUNNING]');
    await shot('pr-followed');
  }
});
await step('nothing is wider than a phone', async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  for (const [name, hash, selector] of [['overview', '#/', '#pipeline'], ['list', '#/prs', '.prs tbody tr'], ['pr', `#/pr/${there}`, '#events']]) {
    await page.goto(`${base}/${hash}`);
    await sees(selector);
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
    await sees('#pipeline');
    await fitsWidth(`overview at ${width}`);
    await shot(`overview-${width}`);
  }
  await page.setViewportSize({ width: 1280, height: 860 });
});
await step('an unknown pull request is told as such', async () => {
  expectedStatus = new Set(['404']);
  await page.goto(`${base}/#/pr/nobody/nothing/1`);
  await page.locator('#trouble').waitFor();
  must((await page.locator('#said').textContent()).startsWith('There is nothing here.'), 'it does not say so');
  await shot('unknown', false);
  expectedStatus = new Set();
});
await step('a server that is gone is told, and the page comes back by itself', async () => {
  await page.goto(`${base}/#/`);
  await sees('#pipeline');
  expectedStatus = new Set(['ERR_INTERNET_DISCONNECTED', 'ERR_FAILED']);
  await context.setOffline(true);
  await page.keyboard.press('r');
  await page.locator('#trouble').waitFor();
  must((await page.locator('#said').textContent()).includes('cannot be reached'), 'it does not say so');
  must(await page.locator('#pipeline').isVisible(), 'what was known is gone');
  await shot('unreachable', false);
  await context.setOffline(false);
  await page.getByRole('button', { name: 'Try now' }).click();
  await page.locator('#trouble').waitFor({ state: 'hidden' });
  expectedStatus = new Set();
});
await step('signing out forgets the key', async () => {
  await page.getByRole('button', { name: 'Sign out' }).click();
  await sees('#door h1');
  must(await page.evaluate(() => sessionStorage.length === 0 && document.getElementById('view').textContent === ''), 'something is left behind');
});

await step('a link may carry the key, which leaves the address at once', async () => {
  await page.goto('about:blank');
  await page.goto(`${base}/#key=${key}`);
  await page.locator('#top').waitFor();
  must(!page.url().includes(key) && !(await page.evaluate(() => location.href)).includes('key='), `the key stands in the address: ${page.url()}`);
  await page.evaluate(() => sessionStorage.clear());
});

// ── What only the mock can show

if (given.mock) {
  await step('mock: a new installation helps', async () => {
    await fresh('mock-empty');
    await sees('.empty', 'No pull requests yet');
    await sees('.notices', 'Observing');
    await shot('empty');
    await accessible('empty');
  });
  await step('mock: paused, breaker open; reset and resume', async () => {
    await fresh('mock-paused');
    await sees('.notices', 'Paused by ben');
    await sees('.notices', 'breaker is open');
    await shot('paused');
    await page.getByRole('button', { name: 'Reset' }).click();
    await page.locator('#ask-yes').click();
    await page.locator('#facts', { hasText: 'Breaker closed' }).waitFor();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.locator('#facts', { hasText: 'Acting' }).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.locator('#reason').fill('release freeze');
    await page.locator('#ask-yes').click();
    await sees('.notices', 'release freeze');
    await page.getByRole('button', { name: 'Sweep now' }).click();
    await sees('#note.on', 'sweep');
  });
  await step('mock: what the numbers suggest is said, with its tables', async () => {
    await page.goto(`${base}/#/`);
    await page.getByRole('link', { name: 'What the numbers suggest' }).click();
    await sees('#advice li', 'Raise thresholds_minutes.checks_running from 60 to 83');
    await sees('#advice li', '3 of 4 retries by rule network');
    await sees('.lead', 'only the first 5000 events');
    await sees('#rules .stale', 'fails identically');
    await sees('#heard tbody tr', '2.4 %');
    await shot('insights');
    await accessible('insights');
  });
  await step('mock: dead letters are shown and sent again', async () => {
    await page.goto(`${base}/#/dlq`);
    await sees('#view tbody tr');
    await shot('dlq');
    await accessible('dlq');
    await page.getByRole('button', { name: 'Send all again' }).click();
    await page.locator('#ask-yes').click();
    await sees('.lead', 'There are none');
  });
  await step('mock: a viewer can only look', async () => {
    await fresh('mock-viewer');
    await sees('#controls');
    must(await page.locator('#controls button').count() === 0, 'a viewer is offered controls');
    await page.goto(`${base}/#/pr/${there}`);
    await sees('#commands', 'can only look');
    must(await page.locator('[data-command]').count() === 0, 'a viewer is offered commands');
  });
  await step('mock: an operator is not offered what admins may', async () => {
    await fresh('mock-operator');
    await page.getByRole('button', { name: 'Sweep now' }).waitFor();
    must(await page.locator('[data-do=pause]').count() === 0, 'an operator is offered the pause');
    await page.goto(`${base}/#/pr/${there}`);
    await sees('[data-command="/hold"]');
    must(await page.locator('[data-destructive]').count() === 0, 'an operator is offered an admin’s command');
    await page.locator('[data-command="/hold"]').click();
    await sees('#follow', 'taken');
    await sees('.tag', 'held');
  });
  await step('mock: a command whose answer was lost carries the same key when it is pressed again', async () => {
    expectedStatus = new Set(['ERR_FAILED']);
    const keys = [];
    await page.route('**/command', (route) => { keys.push(route.request().headers()['idempotency-key']); return keys.length === 1 ? route.abort() : route.continue(); });
    for (const seen of ['#note.bad', '#follow']) {
      await page.locator('[data-command="/hold"]').click();
      await sees(seen, seen === '#follow' ? 'taken' : 'cannot be reached');
    }
    await page.locator('[data-command="/resume"]').click();
    await sees('#follow', '/resume taken');
    await page.unroute('**/command');
    must(keys.length === 3 && keys[0] === keys[1] && keys[1] !== keys[2], `the keys were ${keys}`);
  });
  await step('mock: a refused command says why', async () => {
    expectedStatus = new Set(['409']);
    await page.locator('[data-command="/hold"]').evaluate((button) => { button.dataset.command = '/merge'; });
    await page.locator('[data-command="/merge"]').click();
    await sees('#note.bad', 'not valid');
  });
  await step('mock: 403, 429 and 503 are told with what to do', async () => {
    expectedStatus = new Set(['403', '429', '503']);
    for (const [name, text] of [['403', 'Ask an admin'], ['503', 'could not answer']]) {
      await page.goto(`${base}/`);
      await page.evaluate(() => sessionStorage.clear());
      await page.reload();
      await signIn(`mock-${name}`);
      await sees('#refused', text);
    }
    // A key that worked before: the page stays and says what is wrong.
    for (const name of ['429', '503']) {
      await fresh('mock-admin');
      await sees('#pipeline');
      await page.route('**/api/overview', (route) => route.continue({ headers: { ...route.request().headers(), authorization: `Bearer mock-${name}` } }));
      await page.keyboard.press('r');
      await page.locator('#trouble').waitFor();
      if (name === '429') must(/Trying again in (10|[5-9]) s/.test(await page.locator('#again').textContent()), `Retry-After is not shown: ${await page.locator('#again').textContent()}`);
      await shot(`error-${name}`, false);
      await accessible(`error ${name}`);
      await page.unroute('**/api/overview');
    }
  });
  await step('mock: a key that ends leads back to sign-in, and the page is found again', async () => {
    expectedStatus = new Set(['401']);
    await fresh('mock-admin');
    await page.goto(`${base}/#/pr/${there}`);
    await sees('#explain');
    await page.route('**/api/**', (route) => route.continue({ headers: { ...route.request().headers(), authorization: 'Bearer ended' } }));
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press('r');
    await sees('#refused', 'This key is not known');
    await page.unroute('**/api/**');
    await signIn('mock-admin');
    await sees('#explain');
  });
  await step('mock: markup in the data stays text', async () => {
    await page.route('**/api/overview', async (route) => {
      const answer = await route.fetch(), json = await answer.json();
      json.needs_person[0].why = '<img src=x onerror=alert(1)> <b>not bold</b> `<script>`';
      json.needs_person[0].repo = 'acme/"><script>alert(1)</script>';
      await route.fulfill({ response: answer, json });
    });
    await page.goto(`${base}/#/`);
    await sees('#people', '<img src=x onerror=alert(1)>');
    must(await page.locator('#view img, #view script').count() === 0, 'data became markup');
    await page.unroute('**/api/overview');
  });
}

clearTimeout(limit);
await context.close();
mock?.close();
rmSync(profile, { recursive: true, force: true });
console.log(JSON.stringify({ passed: passed.length, wrong: wrong.length, axe: axeTotals }));
for (const line of wrong) console.error(`WRONG ${line}`);
process.exit(wrong.length ? 1 : 0);
