// The dashboard's first view: sign-in, overview, and what all views share. It shows what the admin API says; nothing is decided
// here. What the API says becomes text, never HTML. Each drawing is a fresh tree, and `morph` brings the page up to it, so that
// focus, scroll, open details and dialogs survive a refresh. Other views and all actions are in pages.js, loaded when needed.

export const $ = (id) => document.getElementById(id);
export const EVERY_MS = 10_000;
const FOLLOW_MS = 2_000;
const ROLES = ['viewer', 'operator', 'admin'];
export const ENDED = ['MERGED', 'CLOSED'];

// A link may carry a key behind `#`, where no server and no log sees it. It is taken over, and out of the address at once.
const carried = /^#key=([\x21-\x7e]+)$/.exec(location.hash);
if (carried) {
  sessionStorage.setItem('suture-key', carried[1]);
  history.replaceState(null, '', location.pathname + location.search);
}

/** What the page knows. `skew`: how far the server's clock is ahead of ours. `follow`: the command being followed. */
export const it = { key: sessionStorage.getItem('suture-key'), overview: null, overviewAt: 0, skew: 0, route: null, data: null, follow: null, pages: 1, whole: false };
let updatedAt = 0, trouble = null, misses = 0, nextAt = 0, timer = 0, turn = 0, clicked = false;
const scrolls = new Map();

// ── Building, and bringing up to date

const DRAWN = ['svg', 'rect', 'title'];
/** `h('a.pr', { href }, …)` or `h('p', …)`. Text stays text; null, undefined, false and '' are left out. `key` says which node it was before. */
export function h(tag, ...children) {
  const [name, ...classes] = tag.split('.'), attributes = children[0]?.constructor === Object ? children.shift() : {};
  const node = DRAWN.includes(name) ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  if (classes.length) node.setAttribute('class', classes.join(' '));
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value != null && value !== false) node.setAttribute(attribute === 'key' ? 'data-key' : attribute, value === true ? '' : value);
  }
  node.append(...children.flat(9).filter((child) => child != null && child !== false && child !== ''));
  return node;
}

function morph(old, now) {
  if (old.nodeType === 3) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  // `open` belongs to whoever clicks on it.
  for (const { name } of [...old.attributes]) if (name !== 'open' && !now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  fill(old, [...now.childNodes]);
  if (old.localName === 'select' && old !== document.activeElement) old.value = now.value;
}

function fill(old, nodes) {
  const keyed = new Map([...old.children].map((child) => [child.dataset.key, child]));
  let at = old.firstChild;
  for (const node of nodes) {
    const key = node.dataset?.key;
    const match = key ? keyed.get(key) : at && !at.dataset?.key ? at : null;
    if (match?.nodeName !== node.nodeName) {
      old.insertBefore(node, at);
    } else {
      if (match === at) at = at.nextSibling;
      else old.insertBefore(match, at);
      morph(match, node);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function show(id, ...nodes) {
  const focus = document.activeElement;
  fill($(id), nodes.flat().filter(Boolean));
  // Moving a node takes the focus from it.
  if (focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true });
}

// ── Words

export const words = (name) => {
  const text = (name || 'unknown').toLowerCase().replace(/[_-]/g, ' ').replace(/^remediation (?=accepted|ended)/, 'remedy ').replace(/^remediation /, '').replace(/^(escalated) .*/, '$1').replace(/\b(pr|sod)\b/, (word) => word.toUpperCase());
  return text[0].toUpperCase() + text.slice(1);
};
export const many = (count, one, more = `${one}s`) => `${count} ${count === 1 ? one : more}`;
export const now = () => Date.now() + it.skew;
export const utc = (at) => `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
const since = (iso) => (now() - Date.parse(iso)) / 1000;

/** Two largest units, as Suture's comments say it. */
export function span(seconds) {
  const secs = Math.max(0, Math.round(seconds)), [d, hours, min] = [Math.floor(secs / 86400), Math.floor(secs / 3600) % 24, Math.floor(secs / 60) % 60];
  const parts = d ? [[d, 'd'], [hours, 'h']] : hours ? [[hours, 'h'], [min, 'min']] : min ? [[min, 'min']] : [[secs, 's']];
  return parts.filter(([n], i) => n || !i).map(([n, unit]) => `${n} ${unit}`).join(' ');
}
export function when(iso, bare) {
  if (!iso) return '–';
  const secs = since(iso);
  return h('time', { datetime: iso, title: utc(iso) }, bare ? span(secs) : secs < -1 ? `in ${span(-secs)}` : secs < 3 ? 'just now' : `${span(secs)} ago`);
}
/** `code` and **bold** are the only marks in Suture's sentences. */
export const rich = (text) => (text ?? '').split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) =>
  part[0] === '`' ? h('code', part.slice(1, -1)) : part.startsWith('**') ? h('b', part.slice(2, -2)) : part);

export const may = (role) => ROLES.indexOf(it.overview?.role) >= ROLES.indexOf(role);
export const tone = (name) => (/FAIL|INTERVENTION|ESCALAT|ANOMALY|failed/.test(name) ? 'bad' : /MERGED|MERGE_SUCC|completed|passed/.test(name) ? 'good'
  : /CLOSED|cancelled/.test(name) ? 'quiet' : /REMEDIATION|WOULD|COMMAND/.test(name) ? 'ours' : 'calm');
export const pill = (name, detail) => h(`span.pill.${tone(name)}`, { title: name }, words(name), detail && h('small', words(detail)));
export const own = (repo) => (it.overview?.owner && repo.startsWith(`${it.overview.owner}/`) ? repo.slice(it.overview.owner.length + 1) : repo);
export const path = (repo) => repo.split('/').map(encodeURIComponent).join('/');
export const prLink = (pr) => h('a.pr', { href: `#/pr/${path(pr.repo)}/${pr.number}`, title: `${pr.repo}#${pr.number}` }, own(pr.repo), h('b', ` #${pr.number}`));
export const button = (act, text, more) => h('button', { 'data-do': act, ...more }, text);
export const section = (id, title, ...body) => h('section', { key: id, id, 'aria-labelledby': `${id}-h` }, h('h2', { id: `${id}-h` }, title), body);
/** A plain table that scrolls by itself where it is too wide. */
export const rows = (name, heads, body) => h('div.scroll', { tabindex: 0, role: 'group', 'aria-label': name },
  h('table', h('thead', h('tr', heads.map((head) => h('th', { scope: 'col' }, head)))), h('tbody', body)));
/** A headline that changes is read out. */
export const title = (text) => h('h1', { key: 'h1', tabindex: -1, 'aria-live': 'polite' }, text);

/** What Suture waits for and why, one pull request a row. */
export function prTable(prs, withState) {
  const mark = !prs.every((pr) => pr.stale);
  return h('table.prs',
    h('thead', h('tr', ['Pull request', ...(withState ? ['State'] : []), 'Waiting', 'Why, and what comes next'].map((head) => h('th', { scope: 'col' }, head)))),
    h('tbody', prs.map((pr) => h('tr', { key: `${pr.repo}#${pr.number}` },
      h('th', { scope: 'row' }, prLink(pr), tags(pr, pr.priority)),
      withState && h('td', pill(pr.state, pr.substatus), mark && pr.stale && h('span.stale', 'stuck')),
      h('td.wait', when(pr.since, true)),
      h('td', h('p', rich(pr.why)), h('p.hush', rich(pr.next), pr.active_run && ` Under way: ${words(pr.active_run.strategy).toLowerCase()}.`))))));
}
export const tags = (pr, priority) => h('span.tags', /^p[01]$/.test(priority) && h(`span.tag.${priority}`, { title: 'Priority' }, priority.toUpperCase()),
  pr.vulnerability_id && h('span.id', pr.vulnerability_id), pr.held && h('span.tag', pr.hold_label ? `held by label ${pr.hold_label}` : 'held'), pr.draft && h('span.tag', 'draft'));

// ── Pictures: stretched shapes without text; the text is beside them

export const bar = (tag, x, y, width, height) => h(tag, { x, y, width: Math.max(0, width), height: Math.max(0, height) });
export const sketch = (tag, width, height, ...body) => h(tag, { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, body);
export const swatch = (name) => sketch(`svg.swatch.${name}`, 1, 1, bar('rect', 0, 0, 1, 1));

// ── Asking the API

export async function api(where, body, once) {
  const headers = { Authorization: `Bearer ${it.key}`, Accept: 'application/json' };
  if (body) headers['Content-Type'] = 'application/json';
  if (once) headers['Idempotency-Key'] = once;
  let answer, said;
  try {
    answer = await fetch(`api/${where}`, { method: body ? 'POST' : 'GET', headers, cache: 'no-store', signal: AbortSignal.timeout(20_000), body: body && JSON.stringify(body) });
    said = await answer.text();
  } catch {
    throw { status: 0, detail: '' };
  }
  let json = null;
  try { json = JSON.parse(said); } catch { /* a proxy's own words */ }
  if (answer.ok && json) return json;
  throw { status: answer.ok ? 502 : answer.status, detail: json?.detail ?? json?.title ?? '', after: Number(answer.headers.get('Retry-After')) || 0 };
}

export function explainTrouble({ status, detail }) {
  if (status === 0) return `Suture cannot be reached. Check the connection or the VPN.${updatedAt ? ` What you see is from ${utc(updatedAt)}.` : ''}`;
  if (status === 403) return `This key may not see or do that. ${detail} Ask an admin for a key with the role you need.`;
  if (status === 404) return `There is nothing here. ${detail}`;
  if (status === 429) return `Too many requests with this key. ${detail}`;
  if (status >= 500) return `Suture could not answer (${status}). ${detail} If this lasts, see its log and /healthz.`;
  return `${detail || 'That did not work.'} (${status})`;
}

async function getOverview() {
  it.overview = await api('overview');
  it.overviewAt = Date.now();
  it.skew = Date.parse(it.overview.now) - it.overviewAt;
  return it.overview;
}

const pages = () => import('./pages.js').catch(() => { throw { status: 0, detail: '' }; });
const views = {
  overview: { title: () => (count('NEEDS_INTERVENTION') ? `(${count('NEEDS_INTERVENTION')}) Suture` : 'Suture'), load: getOverview, draw: drawOverview },
};

// ── Overview

const count = (name) => it.overview.states.find((one) => one.state === name)?.count ?? 0;
const total = (list, field) => list.reduce((sum, one) => sum + one[field], 0);

function drawOverview() {
  const o = it.overview, open = o.states.filter(({ state }) => !ENDED.includes(state)), recent = o.days.slice(-2);
  const all = total(open, 'count'), stuck = total(open, 'stale'), people = count('NEEDS_INTERVENTION'), none = !total(o.states, 'count');
  const said = `${people ? `${many(people, 'pull request')} ${people === 1 ? 'needs' : 'need'} a person` : 'Nothing needs a person'}, ${stuck ? `${stuck} ${stuck === 1 ? 'is' : 'are'} stuck` : 'nothing is stuck'}.`;
  const more = (href, shown, of) => of > shown.length && h('p', h('a', { href }, `All ${of}`));
  return [
    title(said),
    !none && h('p.lead', { key: 'lead' }, `${all} open in ${many(o.repos.length, 'repository', 'repositories')}. Since yesterday Suture healed ${total(recent, 'healed')}, handed ${total(recent, 'escalated')} to a person, and saw ${total(recent, 'merged')} merged.`),
    notices(o),
    none && h('p.empty', { key: 'none' }, 'No pull requests yet. Suture hears of one when GitHub’s first webhook arrives: let your bot open a pull request, or look at “Recent deliveries” in the GitHub App’s settings to see whether webhooks come through.'),
    section('people', 'Needs a person', o.needs_person.length ? [prTable(o.needs_person), more('#/prs?state=NEEDS_INTERVENTION', o.needs_person, people)]
      : h('p.empty', 'Nobody is needed. When Suture has tried all it may, the pull request appears here and a mail is sent.')),
    section('pipeline', 'Pipeline', h('ol.lanes', o.states.map(drawLane))),
    section('stuck', 'Stuck, and why', o.stuck.length ? [prTable(o.stuck, true), more('#/stale', o.stuck, stuck)]
      : h('p.empty', 'Nothing is stuck. A pull request counts as stuck when it has waited longer than its state should take.')),
    h('div.two', { key: 'two' }, section('activity', 'What Suture did', drawActivity(o.activity)), h('div', drawDays(o.days), drawDwell(o.dwell))),
    section('controls', 'Controls', drawControls(o)),
    o.repos.length > 0 && section('repos', 'Repositories', rows('Repositories', ['Repository', 'Open', 'Need a person', 'Stuck'], o.repos.map((one) => h('tr', { key: one.repo },
      h('th', { scope: 'row' }, h('a', { href: `#/prs?repo=${encodeURIComponent(one.repo)}` }, own(one.repo))), [one.open, one.needs_person, one.stale].map((n) => h('td.num', n)))))),
  ];
}

function notices(o) {
  const said = [];
  if (o.paused) said.push(`Paused by ${o.paused.by}${o.paused.reason ? `: ${o.paused.reason}` : ''}. Suture watches and records, but does nothing until somebody resumes it.`);
  else if (o.mode === 'observe') said.push('Observing. Suture says what it would do and changes nothing. Set mode = "act" in suture.toml when you trust it.');
  if (o.breaker.state !== 'closed') said.push(breakerText(o.breaker));
  return said.length > 0 && h('ul.notices', { key: 'notices' }, said.map((text) => h('li', text)));
}

function breakerText(b) {
  const rate = `${b.failures} of ${many(b.actions, 'remedy', 'remedies')} failed in ${b.window_minutes} min (${b.failure_rate_percent} %)`;
  if (b.state === 'closed') return b.actions ? `Closed: ${rate}.` : `Closed: no remedies in ${b.window_minutes} min.`;
  if (b.state === 'half_open') return `The breaker is half open: ${rate}. One remedy is let through as a trial.`;
  return `The breaker is open: ${rate}. No automatic remedies${b.cooldown_until ? ` until ${utc(b.cooldown_until)}` : ''}; people’s commands still work.`;
}

function drawLane(one) {
  const name = one.state;
  return h(`li.lane.${tone(name)}${/FAILED|NEEDS|CLOSED/.test(name) ? '.aside' : ''}`, { key: name, 'data-state': name, 'data-empty': !one.count },
    h('a', { href: `#/prs?state=${name}`, title: name }, h('span.count', one.count), ' ', h('span.name', words(name))),
    h('p', ENDED.includes(name) ? 'in 24 h' : one.oldest && ['oldest ', when(one.oldest.since, true), ' ', prLink(one.oldest)]),
    one.stale > 0 && h('p.stale', `${one.stale} stuck`));
}

function drawActivity(all) {
  if (!all.length) return h('p.empty', 'Nothing yet. Remedies, escalations, corrections and merges appear here as they happen.');
  const shown = it.whole ? all : all.slice(0, 14);
  return [
    h('ol.acts', shown.map((one) => h('li', { key: `${one.at}${one.repo}${one.number}${one.kind}` }, when(one.at), h('div', pill(one.kind), ' ', prLink(one), h('p', rich(one.text)))))),
    all.length > shown.length && h('p', button('activity', `Show all ${all.length}`)),
  ];
}

function drawDays(days) {
  const top = Math.max(1, ...days.map((day) => day.healed + day.escalated));
  return section('days', 'Healed per day',
    h('p.key', swatch('good'), `healed ${total(days, 'healed')}`, swatch('bad'), `escalated ${total(days, 'escalated')}`, h('span.hush', `in ${days.length} days${total(days, 'remedies') ? `, at most ${top} a day` : ''}`)),
    h('ol.days', days.map((day) => {
      const good = (day.healed / top) * 100, bad = (day.escalated / top) * 100, said = `${day.day}: ${day.healed} healed, ${day.escalated} escalated`;
      return h('li', { key: day.day, title: `${said}, ${many(day.remedies, 'remedy', 'remedies')}, ${day.opened} opened, ${day.merged} merged` },
        sketch('svg', 10, 100, bar('rect.base', 0, 99, 10, 1), bar('rect.good', 0, 100 - good, 10, good), bar('rect.bad', 0, Math.max(0, 98.5 - good - bad), 10, bad)),
        h('span.sr', said), h('span', { 'aria-hidden': 'true' }, Number(day.day.slice(8))));
    })));
}

function drawDwell(dwell) {
  const known = dwell.filter((one) => one.count > 0), top = Math.max(1, ...known.map((one) => one.p95_secs));
  return section('dwell', 'Time in each state', known.length ? [
    h('p.key', swatch('mid'), 'median', swatch('far'), '95 in 100', h('span.hush', 'in 7 days')),
    rows('Time in each state', ['State', h('span.sr', 'Picture'), 'Median', '95 %'], known.map((one) => h('tr', { key: one.state }, h('th', { scope: 'row' }, words(one.state)),
      h('td.pic', sketch('svg', 1000, 10, bar('rect.far', 0, 0, (one.p95_secs / top) * 1000, 10), bar('rect.mid', 0, 0, Math.max(3, (one.median_secs / top) * 1000), 10))),
      h('td.num', span(one.median_secs)), h('td.num', span(one.p95_secs))))),
  ] : h('p.empty', 'No pull request has moved in the last 7 days.'), h('p', h('a', { href: '#/insights' }, 'What the numbers suggest')));
}

function drawControls(o) {
  const s = o.last_sweep, pairs = (of) => Object.entries(of).map(([name, n]) => `${words(name).toLowerCase()} ${n}`).join(', ');
  const block = (name, text, act) => h('div', { key: name }, h('h3', name), h('p', text), act);
  return h('div.blocks',
    block('Acting', o.paused ? `Paused by ${o.paused.by}.` : o.mode === 'act' ? 'Suture acts by itself, within its budgets.' : 'Observe mode: nothing is changed.',
      may('admin') && (o.paused ? button('unpause', 'Resume') : button('pause', 'Pause …'))),
    block('Circuit breaker', breakerText(o.breaker), may('admin') && o.breaker.state !== 'closed' && button('reset', 'Reset …')),
    block('Last sweep', s ? [when(s.at), `${s.duration_ms == null ? '' : `, in ${(s.duration_ms / 1000).toFixed(1)} s`}: ${s.due} due, ${s.verified} verified, ${s.drifted} corrected, ${s.escalated} escalated.`,
      pairs(s.dispatched) && ` Asked for ${pairs(s.dispatched)}.`, pairs(s.skipped) && ` Skipped: ${pairs(s.skipped)}.`, s.partial && ' It ran out of time; the rest is still due.',
      s.errors.length > 0 && h('span.stale', ` ${many(s.errors.length, 'error')}: ${s.errors[0]}`)] : 'None yet. The schedule starts one every minute.',
      may('operator') && button('sweep', 'Sweep now')),
    block('Dead letters', !o.dlq ? 'Not known.' : o.dlq.messages ? `${many(o.dlq.messages, 'message')} could not be handled.` : 'None: every message was handled.',
      may('admin') && o.dlq && h('a', { href: '#/dlq' }, 'Look inside')));
}

// ── The page around the view

export function draw() {
  const { key, overview: o, route, data } = it;
  $('door').hidden = Boolean(key);
  $('top').hidden = !key || !o;
  $('trouble').hidden = !key || !trouble;
  if (trouble && $('said').textContent !== explainTrouble(trouble)) $('said').textContent = explainTrouble(trouble);
  if (!key) document.title = 'Sign in · Suture';
  if (!key || !o || !data) return show('view', key && !trouble && h('p.empty', 'Asking Suture …'));
  document.title = views[route.name].title(route);
  show('view', views[route.name].draw(route));
  const b = o.breaker.state;
  show('facts', h(`li${o.paused ? '.stale' : ''}`, o.paused ? 'Paused' : o.mode === 'act' ? 'Acting' : 'Observing'),
    h(`li${b === 'closed' ? '' : '.stale'}`, `Breaker ${b.replace('_', ' ')}`),
    h('li', o.last_sweep ? ['Swept ', when(o.last_sweep.at)] : 'No sweep yet'),
    o.dlq?.messages > 0 && h('li.stale', many(o.dlq.messages, 'dead letter')));
  $('who').textContent = `${o.key} (${o.role})`;
  for (const link of document.querySelectorAll('[data-nav]')) {
    if (link.dataset.nav === (route.stale ? 'stale' : route.name)) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

function drawAge() {
  const age = (Date.now() - updatedAt) / 1000;
  $('age').textContent = !updatedAt ? '' : age < 2 ? 'Updated just now' : `Updated ${span(age)} ago`;
  $('again').textContent = trouble ? `Trying again in ${span((nextAt - Date.now()) / 1000)}.` : '';
}

let telling = 0;
export function tell(text, bad) {
  clearTimeout(telling);
  $('note').textContent = text;
  $('note').className = bad ? 'bad' : 'on';
  telling = setTimeout(() => { $('note').className = $('note').textContent = ''; }, bad ? 15_000 : 6_000);
}

export async function refresh() {
  if (!it.key) return;
  clearTimeout(timer);
  const mine = ++turn, to = it.route;
  try {
    if (!views[to.name]) Object.assign(views, (await pages()).views);
    const aged = to.name !== 'overview' && (!it.overview || Date.now() - it.overviewAt > 3 * EVERY_MS);
    const [found] = await Promise.all([views[to.name].load(to, it.data), aged && getOverview()]);
    if (mine !== turn) return;
    it.data = found;
    [trouble, misses, updatedAt] = [null, 0, Date.now()];
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    if (mine !== turn) return;
    if (problem.status === 401) return leave(problem.detail);
    trouble = problem;
    misses += 1;
  }
  const pause = trouble ? Math.max((trouble.after ?? 0) * 1000, Math.min(60_000, EVERY_MS * misses)) : it.follow?.busy ? FOLLOW_MS : EVERY_MS;
  nextAt = Date.now() + pause;
  if (!document.hidden) timer = setTimeout(refresh, pause);
  try {
    draw();
  } catch (error) {
    // An answer this page does not understand must not stop it from asking again.
    console.error(error);
    tell(`This page cannot show what Suture answered (${error.message}). Reload it; if that does not help, please report it.`, true);
  }
  drawAge();
}

export function leave(why) {
  sessionStorage.removeItem('suture-key');
  Object.assign(it, { key: null, overview: null, data: null, follow: null });
  [trouble, updatedAt] = [null, 0];
  turn += 1;
  clearTimeout(timer);
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
  draw();
  $('refused').textContent = why ?? '';
  $('key').focus();
}

export async function go() {
  const [place, query] = location.hash.replace(/^#\/?/, '').split('?');
  let parts = [];
  try { parts = place.split('/').map(decodeURIComponent); } catch { /* a broken address leads to the overview */ }
  const before = it.route, [name, owner, repo, number] = parts, route = { name: 'overview', query: new URLSearchParams(query), hash: location.hash };
  if (['prs', 'dlq', 'insights'].includes(name)) route.name = name;
  if (name === 'stale') Object.assign(route, { name: 'prs', stale: true });
  if (name === 'pr' && number) Object.assign(route, { name, at: `pr/${path(`${owner}/${repo}`)}/${encodeURIComponent(number)}`, pr: { repo: `${owner}/${repo}`, number } });
  it.route = route;
  const same = before?.name === route.name && before.stale === route.stale && before.at === route.at;
  const there = clicked ? 0 : scrolls.get(route.hash) ?? 0;
  clicked = false;
  if (before && !same) scrolls.set(before.hash, window.scrollY);
  if (!same) {
    const home = route.name === 'overview' && it.overview;
    Object.assign(it, { data: home || null, pages: 1, follow: null });
    [trouble, updatedAt] = [null, home ? it.overviewAt : 0];
  }
  if (document.activeElement !== $('q')) $('q').value = route.query.get('q') ?? '';
  draw();
  if (same) {
    // Other filters: not every letter typed asks the server.
    clearTimeout(timer);
    timer = setTimeout(refresh, 300);
    return;
  }
  await refresh();
  if (!before || it.route !== route) return;
  window.scrollTo(0, there);
  if (document.activeElement === document.body || document.activeElement.closest('#top')) document.querySelector('#view h1')?.focus({ preventScroll: true });
}

/** Other filters for the list; from elsewhere it opens the list. */
export function filter(name, value) {
  const here = it.route.name === 'prs', query = new URLSearchParams(here ? it.route.query : '');
  if (value) query.set(name, value);
  else query.delete(name);
  const hash = `#/${it.route.stale ? 'stale' : 'prs'}${query.size ? `?${query}` : ''}`;
  if (!here) location.hash = hash;
  else {
    history.replaceState(null, '', hash);
    go();
  }
}

const deeds = {
  skip: () => $('main').focus(),
  help: () => $('help').showModal(),
  refresh: () => { it.overviewAt = 0; return refresh(); },
  leave: () => leave(),
  activity: () => { it.whole = true; draw(); },
};

async function act(button) {
  try {
    await (deeds[button.dataset.do] ?? (await pages()).deeds[button.dataset.do])(button);
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    if (problem.status === 401) leave(problem.detail);
    else tell(`${explainTrouble(problem)}${problem.after ? ` Try again in ${problem.after} s.` : ''}`, true);
  }
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-do]');
  if (event.target.closest('a[href^="#/"]')) clicked = true;
  if (!button) return;
  event.preventDefault();
  act(button);
});
document.addEventListener('change', ({ target }) => { if (target.dataset.filter) filter(target.dataset.filter, target.value); });
$('q').addEventListener('input', () => { if (it.route.name === 'prs') filter('q', $('q').value.trim()); });
$('find').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = $('q').value.trim(), [, owner = it.overview?.owner, repo, number] = text.match(/^(?:([\w.-]+)\/)?([\w.-]+)#(\d+)$/) ?? [];
  if (!number || !owner) return filter('q', text);
  $('q').value = '';
  location.hash = `#/pr/${owner}/${repo}/${number}`;
});
$('enter').addEventListener('submit', async (event) => {
  event.preventDefault();
  it.key = $('key').value.trim();
  try {
    if (!/^[\x21-\x7e]+$/.test(it.key)) throw { status: 401, detail: 'A key has no spaces, only plain letters, digits and signs.' };
    await getOverview();
    sessionStorage.setItem('suture-key', it.key);
    $('key').value = $('refused').textContent = '';
    if (it.route.name === 'overview') {
      [it.data, updatedAt, timer] = [it.overview, Date.now(), setTimeout(refresh, EVERY_MS)];
      draw();
      drawAge();
    } else await refresh();
    document.querySelector('#view h1')?.focus();
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    it.key = null;
    $('refused').textContent = problem.status === 401 ? problem.detail || 'This key is not known.' : explainTrouble(problem);
    $('key').select();
  }
});

let prefix = 0;
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && event.target === $('q')) $('q').blur();
  if (/^(INPUT|SELECT)$/.test(event.target.tagName) || !it.overview || event.ctrlKey || event.metaKey || event.altKey || !$('keys-on').checked || document.querySelector('dialog[open]')) return;
  const place = Date.now() - prefix < 1500 && { o: '#/', p: '#/prs', s: '#/stale' }[event.key];
  prefix = event.key === 'g' ? Date.now() : 0;
  if (place) location.hash = place;
  else if (event.key === '?') deeds.help();
  else if (event.key === 'r') deeds.refresh();
  else if (event.key === '/') {
    event.preventDefault();
    $('q').select();
  }
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden) clearTimeout(timer);
  else refresh();
});
window.addEventListener('hashchange', go);
setInterval(drawAge, 1000);
go();
if (!it.key) $('key').focus();
