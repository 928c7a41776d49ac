// The dashboard's first view: sign-in, overview, and the functions that all views share. It shows data of the admin API and decides
// nothing. API data is inserted as text, never as HTML. Each refresh builds a new tree, and `updateNode` applies the differences, so
// that focus, scroll position, open details and dialogs survive. pages.js has the other views and all actions; it loads on demand.

export const $ = (id) => document.getElementById(id);
export const REFRESH_MS = 10_000;
const FOLLOW_REFRESH_MS = 2_000;
const ROLES = ['viewer', 'operator', 'admin'];
export const TERMINAL_STATES = ['MERGED', 'CLOSED'];

// A link may contain an API key after `#`, which browsers do not send to the server. Store it and remove it from the address.
const keyInLink = /^#key=([\x21-\x7e]+)$/.exec(location.hash);
if (keyInLink) {
  sessionStorage.setItem('suture-key', keyInLink[1]);
  history.replaceState(null, '', location.pathname + location.search);
}

/** State of this page. `clock`: Suture's time at a local time, in ms, and how fast it runs (the demo: 60 times). `follow`: the command whose progress is shown. */
export const app = { key: sessionStorage.getItem('suture-key'), overview: null, overviewAt: 0, clock: { at: 0, now: 0, speed: 1 }, route: null, data: null, follow: null, listPages: 1, showAllActivity: false };
let updatedAt = 0, lastError = null, failedRefreshes = 0, nextRefreshAt = 0, refreshTimer = 0, refreshNumber = 0, linkClicked = false;
const scrollPositions = new Map();

// ── Building and updating the DOM

const SVG_TAGS = ['svg', 'rect', 'title'];
/** Creates an element: `h('a.pr', { href }, …)` or `h('p', …)`. Skips null, undefined, false and ''. `key` identifies the node across refreshes. */
export function h(tag, ...children) {
  const [name, ...classes] = tag.split('.'), attributes = children[0]?.constructor === Object ? children.shift() : {};
  const node = SVG_TAGS.includes(name) ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  if (classes.length) node.setAttribute('class', classes.join(' '));
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value != null && value !== false) node.setAttribute(attribute === 'key' ? 'data-key' : attribute, value === true ? '' : value);
  }
  node.append(...children.flat(9).filter((child) => child != null && child !== false && child !== ''));
  return node;
}

function updateNode(old, now) {
  if (old.nodeType === 3) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  // The user opens and closes details; a refresh must not.
  for (const { name } of [...old.attributes]) if (name !== 'open' && !now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  updateChildren(old, [...now.childNodes]);
  if (old.localName === 'select' && old !== document.activeElement) old.value = now.value;
}

function updateChildren(old, nodes) {
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
      updateNode(match, node);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function render(id, ...nodes) {
  const focus = document.activeElement;
  updateChildren($(id), nodes.flat().filter(Boolean));
  // A node loses the focus when it is moved.
  if (focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true });
}

// ── Formatting

export const labelOf = (name) => {
  const text = (name || 'unknown').toLowerCase().replace(/[_-]/g, ' ').replace(/^remediation (?=accepted|closing|ended)/, 'remedy ').replace(/^remediation /, '').replace(/^(escalated) .*/, '$1').replace(/\b(pr|sod)\b/, (word) => word.toUpperCase());
  return text[0].toUpperCase() + text.slice(1);
};
export const plural = (count, one, more = `${one}s`) => `${count} ${count === 1 ? one : more}`;
export const now = () => app.clock.now + (Date.now() - app.clock.at) * app.clock.speed;
export const utc = (at) => `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
const secondsSince = (iso) => (now() - Date.parse(iso)) / 1000;

/** A duration in its two largest units, as in Suture's pull request comments. */
export function duration(seconds) {
  const secs = Math.max(0, Math.round(seconds)), [d, hours, min] = [Math.floor(secs / 86400), Math.floor(secs / 3600) % 24, Math.floor(secs / 60) % 60];
  const parts = d ? [[d, 'd'], [hours, 'h']] : hours ? [[hours, 'h'], [min, 'min']] : min ? [[min, 'min']] : [[secs, 's']];
  return parts.filter(([n], i) => n || !i).map(([n, unit]) => `${n} ${unit}`).join(' ');
}
export function timeAgo(iso, bare) {
  if (!iso) return '–';
  const secs = secondsSince(iso);
  return h('time', { datetime: iso, title: utc(iso) }, bare ? duration(secs) : secs < -1 ? `in ${duration(-secs)}` : secs < 3 ? 'just now' : `${duration(secs)} ago`);
}
/** Renders `code` and **bold**, the only markup in the API's sentences. */
export const richText = (text) => (text ?? '').split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) =>
  part[0] === '`' ? h('code', part.slice(1, -1)) : part.startsWith('**') ? h('b', part.slice(2, -2)) : part);

export const hasRole = (role) => ROLES.indexOf(app.overview?.role) >= ROLES.indexOf(role);
export const tone = (name) => (/FAIL|INTERVENTION|ESCALAT|ANOMALY|failed/.test(name) ? 'bad' : /MERGED|MERGE_SUCC|completed|passed/.test(name) ? 'good'
  : /CLOSED|cancelled/.test(name) ? 'inactive' : /REMEDIATION|WOULD|COMMAND/.test(name) ? 'suture' : 'neutral');
export const badge = (name, detail) => h(`span.badge.${tone(name)}`, { title: name }, labelOf(name), detail && h('small', labelOf(detail)));
export const shortRepo = (repo) => (app.overview?.owner && repo.startsWith(`${app.overview.owner}/`) ? repo.slice(app.overview.owner.length + 1) : repo);
export const encodePath = (repo) => repo.split('/').map(encodeURIComponent).join('/');
export const prLink = (pr) => h('a.pr', { href: `#/pr/${encodePath(pr.repo)}/${pr.number}`, title: `${pr.repo}#${pr.number}` }, shortRepo(pr.repo), h('b', ` #${pr.number}`));
export const button = (act, text, more) => h('button', { 'data-action': act, ...more }, text);
export const section = (id, title, ...body) => h('section', { key: id, id, 'aria-labelledby': `${id}-h` }, h('h2', { id: `${id}-h` }, title), body);
/** A table that scrolls horizontally when it is too wide. */
export const scrollTable = (name, heads, body) => h('div.scroll', { tabindex: 0, role: 'group', 'aria-label': name },
  h('table', h('thead', h('tr', heads.map((head) => h('th', { scope: 'col' }, head)))), h('tbody', body)));
/** Screen readers announce a changed heading. */
export const pageTitle = (text) => h('h1', { key: 'h1', tabindex: -1, 'aria-live': 'polite' }, text);

/** One row per pull request: time in its state, reason, next action. */
export function prTable(prs, withState) {
  const mark = !prs.every((pr) => pr.stale);
  return h('table.pr-table',
    h('thead', h('tr', ['Pull request', ...(withState ? ['State'] : []), 'Time in state', 'Reason and next action'].map((head) => h('th', { scope: 'col' }, head)))),
    h('tbody', prs.map((pr) => h('tr', { key: `${pr.repo}#${pr.number}` },
      h('th', { scope: 'row' }, prLink(pr), prTags(pr, pr.priority)),
      withState && h('td', badge(pr.state, pr.substatus), mark && pr.stale && h('span.alert', 'stuck')),
      h('td.time-in-state', timeAgo(pr.since, true)),
      h('td', h('p', richText(pr.why)), h('p.muted', richText(pr.next), pr.active_run && ` Running: ${labelOf(pr.active_run.strategy).toLowerCase()}.`))))));
}
export const prTags = (pr, priority) => h('span.tags', /^p[01]$/.test(priority) && h(`span.tag.${priority}`, { title: 'Priority' }, priority.toUpperCase()),
  pr.vulnerability_id && h('span.id', pr.vulnerability_id), pr.held && h('span.tag', pr.hold_label ? `held by label ${pr.hold_label}` : 'held'), pr.draft && h('span.tag', 'draft'));

// ── Charts: SVG shapes without text; the numbers are printed beside them

export const rect = (tag, x, y, width, height) => h(tag, { x, y, width: Math.max(0, width), height: Math.max(0, height) });
export const chart = (tag, width, height, ...body) => h(tag, { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, body);
export const swatch = (name) => chart(`svg.swatch.${name}`, 1, 1, rect('rect', 0, 0, 1, 1));

// ── API client

export async function api(path, body, idempotencyKey) {
  const headers = { Authorization: `Bearer ${app.key}`, Accept: 'application/json' };
  if (body) headers['Content-Type'] = 'application/json';
  if (idempotencyKey) headers['Idempotency-Key'] = idempotencyKey;
  let response, text;
  try {
    response = await fetch(`api/${path}`, { method: body ? 'POST' : 'GET', headers, cache: 'no-store', signal: AbortSignal.timeout(20_000), body: body && JSON.stringify(body) });
    text = await response.text();
  } catch {
    throw { status: 0, detail: '' };
  }
  const serverNow = Date.parse(response.headers.get('Suture-Now'));
  if (serverNow) app.clock = { at: Date.now(), now: serverNow, speed: Number(response.headers.get('Suture-Speed')) || 1 };
  let json = null;
  try { json = JSON.parse(text); } catch { /* not JSON: an error page of a proxy */ }
  if (response.ok && json) return json;
  throw { status: response.ok ? 502 : response.status, detail: json?.detail ?? json?.title ?? '', after: Number(response.headers.get('Retry-After')) || 0 };
}

export function errorText({ status, detail }) {
  if (status === 0) return `Cannot reach Suture. Check your network or VPN.${updatedAt ? ` The data shown is from ${utc(updatedAt)}.` : ''}`;
  if (status === 403) return `This API key lacks permission. ${detail} Ask an administrator for a key with the required role.`;
  if (status === 404) return `Not found. ${detail}`;
  if (status === 429) return `Rate limit reached for this API key. ${detail}`;
  if (status >= 500) return `Suture returned an error (HTTP ${status}). ${detail} If it persists, check the log of the admin function and /healthz.`;
  return `${detail || 'The request failed.'} (HTTP ${status})`;
}

async function getOverview() {
  app.overview = await api('overview');
  app.overviewAt = Date.now();
  return app.overview;
}

const loadPages = () => import('./pages.js').catch(() => { throw { status: 0, detail: '' }; });
const views = {
  overview: { title: () => (stateCount('NEEDS_INTERVENTION') ? `(${stateCount('NEEDS_INTERVENTION')}) Suture` : 'Suture'), load: getOverview, draw: drawOverview },
};

// ── Overview

const stateCount = (name) => app.overview.states.find((one) => one.state === name)?.count ?? 0;
const total = (list, field) => list.reduce((sum, one) => sum + one[field], 0);

function drawOverview() {
  const o = app.overview, open = o.states.filter(({ state }) => !TERMINAL_STATES.includes(state)), recent = o.days.slice(-2);
  const all = total(open, 'count'), stuck = total(open, 'stale'), needPerson = stateCount('NEEDS_INTERVENTION'), isEmpty = !total(o.states, 'count');
  const headline = `${needPerson ? `${plural(needPerson, 'pull request')} ${needPerson === 1 ? 'needs' : 'need'} a person` : 'No pull request needs a person'}, ${stuck ? `${stuck} ${stuck === 1 ? 'is' : 'are'} stuck` : 'none is stuck'}.`;
  const more = (href, shown, of) => of > shown.length && h('p', h('a', { href }, `Show all ${of}`));
  return [
    pageTitle(o.health.github.status === 'ok' || isEmpty ? headline : o.health.github.text),
    o.health.github.status !== 'ok' && !isEmpty && h('p.intro', { key: 'last-known' }, `As last known: ${headline}`),
    !isEmpty && h('p.intro', { key: 'lead' }, `${plural(all, 'open pull request')} in ${plural(o.repos.length, 'repository', 'repositories')}. Since yesterday: ${total(recent, 'healed')} healed by Suture, ${total(recent, 'escalated')} escalated to a person, ${total(recent, 'merged')} merged.`),
    drawNotices(o),
    isEmpty && h('p.empty', { key: 'none' }, 'No pull requests yet. Suture adds a pull request when its first webhook arrives. Let your bot open one, or check “Recent deliveries” in the GitHub App’s settings for failed webhooks.'),
    section('needs-person', 'Needs a person', o.needs_person.length ? [prTable(o.needs_person), more('#/prs?state=NEEDS_INTERVENTION', o.needs_person, needPerson)]
      : h('p.empty', 'No pull request needs a person. When the remedies for a pull request are used up, it appears here and Suture sends a mail.')),
    section('pipeline', 'Pipeline', h('ol.states', o.states.map(drawState))),
    section('stuck', 'Stuck pull requests', o.stuck.length ? [prTable(o.stuck, true), more('#/stale', o.stuck, stuck)]
      : h('p.empty', 'No pull request is stuck. A pull request is stuck when it has been in its state for longer than the threshold in suture.toml.')),
    h('div.two-columns', { key: 'two' }, section('activity', 'Recent activity', drawActivity(o.activity)), h('div', drawDays(o.days), drawDwell(o.dwell))),
    section('controls', 'Controls', drawControls(o)),
    o.repos.length > 0 && section('repos', 'Repositories', scrollTable('Repositories', ['Repository', 'Open', 'Need a person', 'Stuck'], o.repos.map((one) => h('tr', { key: one.repo },
      h('th', { scope: 'row' }, h('a', { href: `#/prs?repo=${encodeURIComponent(one.repo)}` }, shortRepo(one.repo))), [one.open, one.needs_person, one.stale].map((n) => h('td.num', n)))))),
  ];
}

function drawNotices(o) {
  const texts = [];
  if (o.paused) texts.push(`Paused by ${o.paused.by}${o.paused.reason ? `: ${o.paused.reason}` : ''}. Suture records events but takes no action until an administrator resumes it.`);
  else if (o.mode === 'observe') texts.push('Observe mode. Suture logs what it would do and changes nothing. To let it act, set mode = "act" in suture.toml.');
  if (o.breaker.state !== 'closed') texts.push(breakerText(o.breaker));
  return texts.length > 0 && h('ul.notices', { key: 'notices' }, texts.map((text) => h('li', text)));
}

function breakerText(b) {
  const rate = `${b.failures} of ${plural(b.actions, 'remedy', 'remedies')} failed in ${b.window_minutes} min (${b.failure_rate_percent} %)`;
  if (b.state === 'closed') return b.actions ? `Closed: ${rate}.` : `Closed: no remedies in ${b.window_minutes} min.`;
  if (b.state === 'half_open') return `The circuit breaker is half open: ${rate}. Suture runs one remedy as a probe.`;
  return `The circuit breaker is open: ${rate}. Suture runs no automatic remedies${b.cooldown_until ? ` until ${utc(b.cooldown_until)}` : ''}; commands by people still work.`;
}

function drawState(one) {
  const name = one.state;
  return h(`li.state.${tone(name)}${/FAILED|NEEDS|CLOSED/.test(name) ? '.off-path' : ''}`, { key: name, 'data-state': name, 'data-empty': !one.count },
    h('a', { href: `#/prs?state=${name}`, title: name }, h('span.count', one.count), ' ', h('span.name', labelOf(name))),
    h('p', TERMINAL_STATES.includes(name) ? 'in the last 24 h' : one.oldest && ['oldest ', timeAgo(one.oldest.since, true), ' ', prLink(one.oldest)]),
    one.stale > 0 && h('p.alert', `${one.stale} stuck`));
}

function drawActivity(all) {
  if (!all.length) return h('p.empty', 'No activity yet. Remedies, escalations, drift corrections and merges appear here.');
  const shown = app.showAllActivity ? all : all.slice(0, 14);
  return [
    h('ol.activity-list', shown.map((one) => h('li', { key: `${one.at}${one.repo}${one.number}${one.kind}` }, timeAgo(one.at), h('div', badge(one.kind), ' ', prLink(one), h('p', richText(one.text)))))),
    all.length > shown.length && h('p', button('activity', `Show all ${all.length}`)),
  ];
}

function drawDays(days) {
  const top = Math.max(1, ...days.map((day) => day.healed + day.escalated));
  return section('days', 'Healed per day',
    h('p.chart-key', swatch('good'), `healed ${total(days, 'healed')}`, swatch('bad'), `escalated ${total(days, 'escalated')}`, h('span.muted', `in ${days.length} days${total(days, 'remedies') ? `, at most ${top} per day` : ''}`)),
    h('ol.days', days.map((day) => {
      const good = (day.healed / top) * 100, bad = (day.escalated / top) * 100, summary = `${day.day}: ${day.healed} healed, ${day.escalated} escalated`;
      return h('li', { key: day.day, title: `${summary}, ${plural(day.remedies, 'remedy', 'remedies')}, ${day.opened} opened, ${day.merged} merged` },
        chart('svg', 10, 100, rect('rect.chart-baseline', 0, 99, 10, 1), rect('rect.good', 0, 100 - good, 10, good), rect('rect.bad', 0, Math.max(0, 98.5 - good - bad), 10, bad)),
        h('span.screen-reader-only', summary), h('span', { 'aria-hidden': 'true' }, Number(day.day.slice(8))));
    })));
}

function drawDwell(dwell) {
  const known = dwell.filter((one) => one.count > 0), top = Math.max(1, ...known.map((one) => one.p95_secs));
  return section('dwell', 'Time in each state', known.length ? [
    h('p.chart-key', swatch('chart-value'), 'median', swatch('chart-range'), '95th percentile', h('span.muted', 'of the last 7 days')),
    scrollTable('Time in each state', ['State', h('span.screen-reader-only', 'Chart'), 'Median', 'p95'], known.map((one) => h('tr', { key: one.state }, h('th', { scope: 'row' }, labelOf(one.state)),
      h('td.chart-cell', chart('svg', 1000, 10, rect('rect.chart-range', 0, 0, (one.p95_secs / top) * 1000, 10), rect('rect.chart-value', 0, 0, Math.max(3, (one.median_secs / top) * 1000), 10))),
      h('td.num', duration(one.median_secs)), h('td.num', duration(one.p95_secs))))),
  ] : h('p.empty', 'No pull request changed its state in the last 7 days.'), h('p', h('a', { href: '#/insights' }, 'Threshold and rule suggestions')));
}

function drawControls(o) {
  const s = o.last_sweep, pairs = (of) => Object.entries(of).map(([name, n]) => `${labelOf(name).toLowerCase()} ${n}`).join(', ');
  const block = (name, text, act) => h('div', { key: name }, h('h3', name), h('p', text), act);
  return h('div.control-blocks',
    block('Mode', o.paused ? `Paused by ${o.paused.by}.` : o.mode === 'act' ? 'Act mode: Suture applies remedies within its budgets.' : 'Observe mode: Suture changes nothing.',
      hasRole('admin') && (o.paused ? button('unpause', 'Resume') : button('pause', 'Pause …'))),
    block('Circuit breaker', breakerText(o.breaker), hasRole('admin') && o.breaker.state !== 'closed' && button('reset', 'Reset …')),
    block('Last sweep', s ? [timeAgo(s.at), `${s.duration_ms == null ? '' : `, in ${(s.duration_ms / 1000).toFixed(1)} s`}: ${s.due} due, ${s.verified} verified, ${s.drifted} corrected, ${s.escalated} escalated.`,
      pairs(s.dispatched) && ` Dispatched: ${pairs(s.dispatched)}.`, pairs(s.skipped) && ` Skipped: ${pairs(s.skipped)}.`, s.partial && ' The sweep reached its time limit; the rest is still due.',
      s.errors.length > 0 && h('span.alert', ` ${plural(s.errors.length, 'error')}: ${s.errors[0]}`)] : 'No sweep yet. The schedule starts one every minute.',
      hasRole('operator') && button('sweep', 'Sweep now')),
    block('Dead-letter queue', !o.dlq ? 'Unknown: the queue could not be read.' : o.dlq.messages ? `${plural(o.dlq.messages, 'failed message')}.` : 'Empty.',
      hasRole('admin') && o.dlq && h('a', { href: '#/dlq' }, 'Show messages')));
}

// ── Header, errors, navigation

export function draw() {
  const { key, overview: o, route, data } = app;
  $('sign-in').hidden = Boolean(key);
  $('header').hidden = !key || !o;
  $('error').hidden = !key || !lastError;
  if (lastError && $('error-text').textContent !== errorText(lastError)) $('error-text').textContent = errorText(lastError);
  if (!key) document.title = 'Sign in · Suture';
  if (!key || !o || !data) return render('view', key && !lastError && h('p.empty', 'Loading …'));
  document.title = views[route.name].title(route);
  render('view', views[route.name].draw(route));
  const b = o.breaker.state;
  render('system-status', h(`li${o.paused ? '.alert' : ''}`, o.paused ? 'Paused' : o.mode === 'act' ? 'Act mode' : 'Observe mode'),
    h(`li${b === 'closed' ? '' : '.alert'}`, `Breaker ${b.replace('_', ' ')}`),
    h('li', o.last_sweep ? ['Last sweep ', timeAgo(o.last_sweep.at)] : 'No sweep yet'),
    h(`li${o.health.github.status === 'ok' ? '' : '.alert'}`, o.health.github.last_compared_at ? ['Compared with GitHub ', timeAgo(o.health.github.last_compared_at)] : 'Not compared with GitHub yet'),
    o.dlq?.messages > 0 && h('li.alert', plural(o.dlq.messages, 'dead letter')));
  $('signed-in-as').textContent = `${o.key} (${o.role})`;
  for (const link of document.querySelectorAll('[data-nav]')) {
    if (link.dataset.nav === (route.stale ? 'stale' : route.name)) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

function drawAge() {
  const age = (Date.now() - updatedAt) / 1000;
  $('updated').textContent = !updatedAt ? '' : age < 2 ? 'Updated just now' : `Updated ${duration(age)} ago`;
  $('retry-text').textContent = lastError ? `Next attempt in ${duration((nextRefreshAt - Date.now()) / 1000)}.` : '';
}

let toastTimer = 0;
export function toast(text, bad) {
  clearTimeout(toastTimer);
  $('toast').textContent = text;
  $('toast').className = bad ? 'bad' : 'on';
  toastTimer = setTimeout(() => { $('toast').className = $('toast').textContent = ''; }, bad ? 15_000 : 6_000);
}

export async function refresh() {
  if (!app.key) return;
  clearTimeout(refreshTimer);
  const thisRefresh = ++refreshNumber, to = app.route;
  try {
    if (!views[to.name]) Object.assign(views, (await loadPages()).views);
    const overviewIsOld = to.name !== 'overview' && (!app.overview || Date.now() - app.overviewAt > 3 * REFRESH_MS);
    const [found] = await Promise.all([views[to.name].load(to, app.data), overviewIsOld && getOverview()]);
    if (thisRefresh !== refreshNumber) return;
    app.data = found;
    [lastError, failedRefreshes, updatedAt] = [null, 0, Date.now()];
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    if (thisRefresh !== refreshNumber) return;
    if (failure.status === 401) return signOut(failure.detail);
    lastError = failure;
    failedRefreshes += 1;
  }
  const delay = lastError ? Math.max((lastError.after ?? 0) * 1000, Math.min(60_000, REFRESH_MS * failedRefreshes)) : app.follow?.busy ? FOLLOW_REFRESH_MS : REFRESH_MS;
  nextRefreshAt = Date.now() + delay;
  if (!document.hidden) refreshTimer = setTimeout(refresh, delay);
  try {
    draw();
  } catch (error) {
    // A response that cannot be drawn must not stop the refresh timer.
    console.error(error);
    toast(`Cannot display the response (${error.message}). Reload the page; if the error stays, report it.`, true);
  }
  drawAge();
}

export function signOut(why) {
  sessionStorage.removeItem('suture-key');
  Object.assign(app, { key: null, overview: null, data: null, follow: null });
  [lastError, updatedAt] = [null, 0];
  refreshNumber += 1;
  clearTimeout(refreshTimer);
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
  draw();
  $('sign-in-error').textContent = why ?? '';
  $('key').focus();
}

export async function navigate() {
  const [address, query] = location.hash.replace(/^#\/?/, '').split('?');
  let parts = [];
  try { parts = address.split('/').map(decodeURIComponent); } catch { /* an invalid address opens the overview */ }
  const previous = app.route, [name, owner, repo, number] = parts, route = { name: 'overview', query: new URLSearchParams(query), hash: location.hash };
  if (['prs', 'dlq', 'insights'].includes(name)) route.name = name;
  if (name === 'stale') Object.assign(route, { name: 'prs', stale: true });
  if (name === 'pr' && number) Object.assign(route, { name, apiPath: `pr/${encodePath(`${owner}/${repo}`)}/${encodeURIComponent(number)}`, pr: { repo: `${owner}/${repo}`, number } });
  app.route = route;
  const sameView = previous?.name === route.name && previous.stale === route.stale && previous.apiPath === route.apiPath;
  const scrollTarget = linkClicked ? 0 : scrollPositions.get(route.hash) ?? 0;
  linkClicked = false;
  if (previous && !sameView) scrollPositions.set(previous.hash, window.scrollY);
  if (!sameView) {
    const home = route.name === 'overview' && app.overview;
    Object.assign(app, { data: home || null, listPages: 1, follow: null });
    [lastError, updatedAt] = [null, home ? app.overviewAt : 0];
  }
  if (document.activeElement !== $('search')) $('search').value = route.query.get('q') ?? '';
  draw();
  if (sameView) {
    // Only the filters changed: wait for the end of typing before the request.
    clearTimeout(refreshTimer);
    refreshTimer = setTimeout(refresh, 300);
    return;
  }
  await refresh();
  if (!previous || app.route !== route) return;
  window.scrollTo(0, scrollTarget);
  if (document.activeElement === document.body || document.activeElement.closest('#header')) document.querySelector('#view h1')?.focus({ preventScroll: true });
}

/** Sets one filter of the list; other views open the list. */
export function filter(name, value) {
  const here = app.route.name === 'prs', query = new URLSearchParams(here ? app.route.query : '');
  if (value) query.set(name, value);
  else query.delete(name);
  const hash = `#/${app.route.stale ? 'stale' : 'prs'}${query.size ? `?${query}` : ''}`;
  if (!here) location.hash = hash;
  else {
    history.replaceState(null, '', hash);
    navigate();
  }
}

const actions = {
  skip: () => $('main').focus(),
  help: () => $('help').showModal(),
  refresh: () => { app.overviewAt = 0; return refresh(); },
  signOut: () => signOut(),
  activity: () => { app.showAllActivity = true; draw(); },
};

async function runAction(button) {
  try {
    await (actions[button.dataset.action] ?? (await loadPages()).actions[button.dataset.action])(button);
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    if (failure.status === 401) signOut(failure.detail);
    else toast(`${errorText(failure)}${failure.after ? ` Try again in ${failure.after} s.` : ''}`, true);
  }
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-action]');
  if (event.target.closest('a[href^="#/"]')) linkClicked = true;
  if (!button) return;
  event.preventDefault();
  runAction(button);
});
document.addEventListener('change', ({ target }) => { if (target.dataset.filter) filter(target.dataset.filter, target.value); });
$('search').addEventListener('input', () => { if (app.route.name === 'prs') filter('q', $('search').value.trim()); });
$('search-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = $('search').value.trim(), [, owner = app.overview?.owner, repo, number] = text.match(/^(?:([\w.-]+)\/)?([\w.-]+)#(\d+)$/) ?? [];
  if (!number || !owner) return filter('q', text);
  $('search').value = '';
  location.hash = `#/pr/${owner}/${repo}/${number}`;
});
$('sign-in-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  app.key = $('key').value.trim();
  try {
    if (!/^[\x21-\x7e]+$/.test(app.key)) throw { status: 401, detail: 'An API key contains only ASCII letters, digits and punctuation, no spaces.' };
    await getOverview();
    sessionStorage.setItem('suture-key', app.key);
    $('key').value = $('sign-in-error').textContent = '';
    if (app.route.name === 'overview') {
      [app.data, updatedAt, refreshTimer] = [app.overview, Date.now(), setTimeout(refresh, REFRESH_MS)];
      draw();
      drawAge();
    } else await refresh();
    document.querySelector('#view h1')?.focus();
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    app.key = null;
    $('sign-in-error').textContent = failure.status === 401 ? failure.detail || 'Unknown API key.' : errorText(failure);
    $('key').select();
  }
});

let gPressedAt = 0;
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && event.target === $('search')) $('search').blur();
  if (/^(INPUT|SELECT)$/.test(event.target.tagName) || !app.overview || event.ctrlKey || event.metaKey || event.altKey || !$('shortcuts-enabled').checked || document.querySelector('dialog[open]')) return;
  const target = Date.now() - gPressedAt < 1500 && { o: '#/', p: '#/prs', s: '#/stale' }[event.key];
  gPressedAt = event.key === 'g' ? Date.now() : 0;
  if (target) location.hash = target;
  else if (event.key === '?') actions.help();
  else if (event.key === 'r') actions.refresh();
  else if (event.key === '/') {
    event.preventDefault();
    $('search').select();
  }
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden) clearTimeout(refreshTimer);
  else refresh();
});
window.addEventListener('hashchange', navigate);
setInterval(drawAge, 1000);
navigate();
if (!app.key) $('key').focus();
