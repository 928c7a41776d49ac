// The other views (list, one pull request, dead letters, suggestions) and all actions. Loaded on demand, so that the first view stays
// small. app.js has the functions that all views share.

import { $, TERMINAL_STATES, REFRESH_MS, api, rect, button, draw, errorText, navigate, h, app, plural, hasRole, now, shortRepo, badge, prLink, prTable, refresh, richText, scrollTable, section, chart, duration, swatch, prTags, toast, pageTitle, tone, utc, timeAgo, labelOf } from './app.js';

const FOLLOW_LIMIT_MS = 180_000, MAX_LIST_PAGES = 5, MAX_EVENT_PAGES = 20;
const QUEUED = 'Waiting in the command queue.';
const TERMINAL_RUN_STATES = ['completed', 'failed', 'cancelled'];

export const views = {
  prs: { title: () => 'Pull requests · Suture', load: loadList, draw: drawList },
  pr: { title: ({ pr }) => `${pr.repo}#${pr.number} · Suture`, load: loadPr, draw: drawPr },
  dlq: { title: () => 'Dead letters · Suture', load: () => api('dlq'), draw: drawDlq },
  insights: { title: () => 'Suggestions · Suture', load: () => api('insights'), draw: drawInsights },
};

// ── List

/** The filters that the server applies; the text search runs in the browser. */
const serverFilters = (query) => [query.get('repo'), query.get('state')].join();

async function loadList({ query, stale }) {
  const prs = [], maxPages = query.get('q') ? MAX_LIST_PAGES : app.listPages;
  let after = '';
  for (let page = 0; page < maxPages && after !== null; page++) {
    const params = new URLSearchParams({ limit: 100 });
    for (const name of stale ? [] : ['repo', 'state']) if (query.get(name)) params.set(name, query.get(name));
    if (after) params.set('after', after);
    const response = await api(`prs${stale ? '/stale' : ''}?${params}`);
    prs.push(...response.prs);
    after = response.next;
  }
  return { prs, more: after !== null, filters: serverFilters(query) };
}

function drawList({ query, stale }) {
  const [repo, state, q] = ['repo', 'state', 'q'].map((name) => query.get(name) ?? ''), searchWords = q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (pr) => [`${pr.repo}#${pr.number}`, pr.vulnerability_id, pr.state, labelOf(pr.state), pr.substatus, pr.why, pr.next].join(' ').toLowerCase();
  const found = app.data.prs.filter((pr) => (!repo || pr.repo === repo) && (!state || pr.state === state) && searchWords.every((word) => text(pr).includes(word)));
  const choice = (name, label, options) => h('label', label, ' ', h('select', { 'data-filter': name }, h('option', { value: '' }, 'all'),
    options.map((one) => h('option', { value: one, selected: query.get(name) === one }, name === 'state' ? labelOf(one) : shortRepo(one)))));
  const repos = [...new Set([...app.overview.repos.map((one) => one.repo), ...(repo ? [repo] : [])])], filtered = repo || state || q;
  return [
    pageTitle(stale ? 'Stuck pull requests' : 'Pull requests'),
    h('div.filters', { key: 'filters', role: 'group', 'aria-label': 'Filters' }, choice('repo', 'Repository', repos), choice('state', 'State', app.overview.states.map((one) => one.state)),
      q && h('span', 'containing ', h('b', `“${q}”`)), filtered && button('clear', 'Clear filters'),
      h('span.muted', { id: 'match-count', role: 'status' }, `${plural(found.length, 'pull request')}${app.data.more ? ' so far' : ''}`)),
    found.length ? h('div', { key: 'list' }, prTable(found, true)) : h('p.empty', { key: 'empty' }, app.data.filters !== serverFilters(query) ? 'Loading …' : filtered ? 'No pull request matches these filters. Clear a filter, or check the spelling of the repository and the number.'
      : stale ? 'No pull request is stuck.' : 'No pull requests yet. Suture adds a pull request when its first webhook arrives.'),
    app.data.more && h('p', { key: 'more' }, app.listPages < MAX_LIST_PAGES && !q ? button('more', 'Load more') : `Showing the first ${app.data.prs.length}. Choose a repository or a state to narrow the list.`),
  ];
}

// ── One pull request

async function loadPr({ apiPath }, old) {
  const [status, before] = await Promise.all([api(`${apiPath}/status`), old?.explain ?? fetchExplanation(apiPath, false)]);
  const explainIsOld = !before.live && Date.now() - before.fetchedAt > 60_000;
  const explain = old && (explainIsOld || old.status.version !== status.version) ? await fetchExplanation(apiPath, false) : before;
  if (app.follow?.busy) updateFollowed(status);
  return { status, explain, events: mergeEvents(old?.events, status.history), allEventsLoaded: old?.allEventsLoaded };
}

const fetchExplanation = (apiPath, live) => api(`${apiPath}/explain?live=${live}`).then(
  (found) => ({ ...found, fetchedAt: Date.now(), verifiedAt: new Date(now()).toISOString() }),
  (failure) => {
    if (failure.status === 401) throw failure;
    return { error: errorText(failure), fetchedAt: Date.now() };
  });

/** Newest first; at the same time, later hops first. */
const mergeEvents = (old = [], newer) => [...new Map([...old, ...newer].map((event) => [`${event.id}#${event.hop}`, event])).values()]
  .sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || b.hop - a.hop);
const stateChanges = () => app.data.events.filter((event) => event.to && event.to !== event.from);

function drawPr() {
  const s = app.data.status, relatedPr = (number, text) => number && h('span', `${text} `, prLink({ repo: s.repo, number }));
  return [
    h('p.breadcrumbs', { key: 'crumbs' }, h('a', { href: '#/prs' }, 'Pull requests'), ' / ', h('a', { href: `#/prs?repo=${encodeURIComponent(s.repo)}` }, s.repo)),
    pageTitle(`${shortRepo(s.repo)} #${s.number}`),
    h('p.fact-list', { key: 'facts' }, badge(s.state, s.substatus), h('span', 'for ', timeAgo(s.since, true)), s.stale && h('span.alert', 'stuck'), prTags(s, s.priority.name), s.mode === 'observe' && h('span.tag', 'observe mode'),
      /^https?:\/\//.test(s.url) && h('a', { href: s.url, rel: 'noreferrer' }, 'Open on GitHub')),
    h('p.fact-list.muted', { key: 'branch' }, h('span', h('code', s.branch), ' → ', h('code', s.base_branch), ' at ', h('code', s.head_sha?.slice(0, 7))),
      h('span', 'opened ', timeAgo(s.created_at)), h('span', 'verified with GitHub ', s.verified_at ? timeAgo(s.verified_at) : 'never'), relatedPr(s.replaces, 'replaces'), relatedPr(s.replaced_by, 'replaced by')),
    section('explain', 'Diagnosis', drawExplain(s, app.data.explain)),
    section('commands', 'Commands', drawCommands(s)),
    section('timeline', 'Timeline', drawTimeline(s)),
    h('div.two-columns', { key: 'two' }, h('div', section('checks', 'Checks', drawChecks(s)), section('budgets', 'Budgets', drawBudgets(s))),
      section('runs', 'Runs', s.runs.length ? s.runs.map((run) => drawRun(s, run)) : h('p.empty', 'No runs: Suture has applied no remedy to this pull request.'))),
    section('events', 'Event log', drawEvents(s)),
  ];
}

function drawExplain(s, x) {
  if (x.error) return [h('p', richText(s.summary)), h('p.muted', x.error)];
  return [
    h('p.explanation', richText(x.summary)),
    h('p', h('b', 'Next action: '), richText(x.next_action), x.next_action_at && [' (', timeAgo(x.next_action_at), ')']),
    s.blocked_reason && !x.summary.toLowerCase().includes(s.blocked_reason.toLowerCase()) && h('p', h('b', 'Blocked: '), richText(s.blocked_reason)),
    h('ul', x.evidence.filter((line) => !x.summary.includes(line)).map((line) => h('li', richText(line)))),
    h('p.muted', x.rule && `Matched rule ${x.rule.number}, ${x.rule.title.toLowerCase()}: ${labelOf(x.classification).toLowerCase()}. `, x.would_have_matched && `Would otherwise match ${x.would_have_matched}.`),
    h('p', button('verify', 'Verify with GitHub now'), ' ', h('span.muted', x.live_error ?? (x.live ? ['Verified with GitHub ', timeAgo(x.verifiedAt), '.'] : 'Based on the stored record.'))),
  ];
}

function drawCommands(s) {
  // This view already shows the replies to /status and /explain.
  const allowed = s.commands.filter(({ command, role }) => command !== '/status' && command !== '/explain' && hasRole(role)), { follow } = app;
  const steps = app.data.explain.you_can ?? [];
  return [
    steps.length > 0 && h('ul', steps.map((line) => h('li', richText(line)))),
    allowed.length > 0 && h('ul.command-list', allowed.map(({ command, help, destructive }) => h('li', { key: command },
      h(`button${destructive ? '.danger' : ''}`, { 'data-action': 'command', 'data-command': command, 'data-help': help, 'data-destructive': destructive }, command, destructive && ' …'), h('span.muted', richText(help))))),
    !allowed.length && h('p.empty', TERMINAL_STATES.includes(s.state) ? 'The pull request is merged or closed; no command applies.' : hasRole('operator') ? 'No command applies now.' : 'Your API key has the role viewer, which is read-only. Commands need the role operator.'),
    h('p.command-progress', { id: 'command-progress', role: 'status' }, follow && [h('b', `${follow.command} ${follow.stage}`), ` ${follow.text}`, follow.run && h('span.muted', ` Run ${follow.run}.`)]),
  ];
}

/** The intervals that the pull request spent in each state, oldest first. */
function stateIntervals(s) {
  const moves = stateChanges().reverse(), end = TERMINAL_STATES.includes(s.state) ? Date.parse(s.since) : now(), createdAt = Date.parse(s.created_at);
  if (!moves.length) return [{ state: s.state, from: Math.min(createdAt, end), to: end }];
  const all = moves.map((event, i) => ({ state: event.to, from: Date.parse(event.at), to: i + 1 < moves.length ? Date.parse(moves[i + 1].at) : end }));
  if (all[0].from > createdAt) all.unshift({ state: moves[0].from ?? moves[0].to, from: createdAt, to: all[0].from });
  return all.filter((one, i) => one.to > one.from || i + 1 === all.length);
}

function drawTimeline(s) {
  const all = stateIntervals(s), totalMs = Math.max(1, all.at(-1).to - all[0].from), totals = new Map();
  // Short intervals get a minimum width; the others shrink.
  const widths = all.map((one) => Math.max(6, ((one.to - one.from) / totalMs) * 1000)), scale = 1000 / widths.reduce((a, b) => a + b, 0);
  let x = 0;
  for (const [i, one] of all.entries()) {
    Object.assign(one, { x, width: widths[i] * scale });
    x += one.width;
    totals.set(one.state, (totals.get(one.state) ?? 0) + one.to - one.from);
  }
  const position = (at) => {
    const one = all.find(({ from, to }) => at >= from && at < to) ?? all.at(-1);
    return Math.min(995, one.x + Math.min(1, Math.max(0, (at - one.from) / Math.max(1, one.to - one.from))) * one.width);
  };
  const withTooltip = (node, text) => (node.append(h('title', text)), node);
  const interventions = app.data.events.filter(({ kind }) => /^REMEDIATION_(?!ACCEPTED|ENDED)|^ESCALATED|^COMMAND/.test(kind));
  return [
    h('svg.timeline', { viewBox: '0 0 1000 40', preserveAspectRatio: 'none', role: 'img', 'aria-label': `Time in each state: ${[...totals].map(([state, ms]) => `${labelOf(state)} ${duration(ms / 1000)}`).join(', ')}` },
      all.map((one) => withTooltip(rect(`rect.s-${one.state}`, one.x, tone(one.state) === 'bad' ? 0 : 5, Math.max(1, one.width - 1.5), tone(one.state) === 'bad' ? 26 : 21), `${labelOf(one.state)}: ${duration((one.to - one.from) / 1000)}, from ${utc(one.from)}`)),
      interventions.map((event) => withTooltip(rect(`rect.intervention.${tone(event.kind)}`, position(Date.parse(event.at)), 30, 4, 10), `${labelOf(event.kind)}, ${utc(event.at)}: ${event.text}`))),
    h('p.timeline-range', h('span', utc(all[0].from)), h('span', TERMINAL_STATES.includes(s.state) ? utc(all.at(-1).to) : 'now')),
    h('ul.legend', [...totals].sort((a, b) => b[1] - a[1]).map(([state, ms]) => h('li', { key: state }, swatch(`s-${state}`), `${labelOf(state)} `, h('b', duration(ms / 1000)))),
      interventions.length > 0 && h('li', chart('svg.swatch.intervention', 3, 3, rect('rect', 1, 0, 1, 3)), plural(interventions.length, 'intervention'))),
  ];
}

function drawChecks(s) {
  const row = (name, at, ...cell) => h('tr', { key: name }, h('th', { scope: 'row' }, name), h('td', cell), h('td', timeAgo(at)));
  const body = [
    ...s.checks.map(({ name, required, verdict, failure, at }) => row(name, at, badge(verdict), !required && h('small', ' optional'),
      failure && h('p', richText(failure.text), failure.transient_rule && h('span.muted', ' Transient by rule ', h('code', failure.transient_rule), '.')))),
    s.policy && row('Policy Bot', s.policy.at, badge(s.policy.verdict), s.policy.text && h('p', richText(s.policy.text))),
    s.approval && row('Approval', s.approval.at, `${s.approval.granted ? 'granted' : 'withdrawn'} by ${s.approval.by}`),
    s.merge && row('Merge', s.merge.at, badge(s.merge.failed ? 'failed' : 'attempted'), s.merge.text && h('p', richText(s.merge.text))),
  ].filter(Boolean);
  return body.length ? scrollTable('Checks', ['Name', 'Result', 'Time'], body) : h('p.empty', 'No check has reported on this commit yet.');
}

function drawBudgets(s) {
  const row = (name, { used, max }) => h('tr', { key: name }, h('th', { scope: 'row' }, name),
    h('td.chart-cell', chart('svg', 100, 10, rect('rect.chart-range', 0, 0, 100, 10), rect(`rect.${used >= max ? 'bad' : 'chart-value'}`, 0, 0, max ? Math.min(100, (used / max) * 100) : 0, 10))), h('td.num', `${used} of ${max}`));
  return scrollTable('Budgets', ['Remedy', h('span.screen-reader-only', 'Chart'), 'Used'], [...s.budgets.map((one) => row(labelOf(one.strategy), one)), row('All remedies together', s.lifetime)]);
}

function drawRun(s, run) {
  const ended = TERMINAL_RUN_STATES.includes(run.state), runButton = (action, text) => button('run', text, { 'data-run': run.id, 'data-run-action': action });
  const canApprove = run.state === 'awaiting_approval' && hasRole(s.commands.find(({ command }) => command === '/approve')?.role ?? 'admin');
  return h('details.run', { key: run.id, open: !ended },
    h('summary', h('b', labelOf(run.kind)), ' ', badge(run.state), ' ', timeAgo(run.created_at), run.duration_ms != null && `, took ${duration(run.duration_ms / 1000)}`),
    run.outcome && h('p', richText(run.outcome)), run.error && h('p.alert', run.error),
    h('p.muted', run.requested_by ? `Requested by ${run.requested_by}` : 'Started by Suture', ` (${labelOf(run.trigger).toLowerCase()})`, run.head_sha && ` on ${run.head_sha.slice(0, 7)}`, run.expects && `; expected proof: ${run.expects}`,
      !ended && run.wait_deadline && [', deadline ', timeAgo(run.wait_deadline)], run.resume_count > 0 && `; resumed ${plural(run.resume_count, 'time')}`, '.'),
    run.steps.length > 0 && h('ol.steps', run.steps.map((step) => h('li', { key: step.name }, labelOf(step.name), ' ', h('b', step.status), ' ', h('span.muted', timeAgo(step.at)), step.error && h('p.alert', step.error)))),
    run.compensation.map((one) => h('p', `Compensated: ${one.what}${one.detail ? ` (${one.detail})` : ''}.`)),
    !ended && hasRole('operator') && h('p.button-row', canApprove && [runButton('approve', 'Approve'), runButton('reject', 'Reject …')], runButton('cancel', 'Cancel this run …')));
}

function drawEvents(s) {
  const moves = stateChanges();
  return [scrollTable('Events', ['Time', 'Event', 'Details'], app.data.events.map((event) => {
    const position = moves.indexOf(event), before = position >= 0 && moves[position + 1];
    return h('tr', { key: `${event.id}#${event.hop}` }, h('td', timeAgo(event.at)), h('td', badge(event.kind)), h('td', h('p', richText(event.text)),
      h('p.muted', position >= 0 && event.from && `${labelOf(event.from)} → ${labelOf(event.to)}${before ? ` after ${duration((Date.parse(event.at) - Date.parse(before.at)) / 1000)}` : ''}. `,
        `By ${event.by ?? event.source}`, (event.name ?? event.run_end) && ` · ${event.name ?? event.run_end}`, event.head && ` · ${event.head.slice(0, 7)}`), event.anomaly && h('p.alert', event.anomaly)));
  })), s.history.length >= 50 && !app.data.allEventsLoaded && h('p', button('events', 'Load older events'))];
}

// ── Dead-letter queue

function drawDlq() {
  const { messages, approximate_count: count } = app.data;
  return [
    pageTitle('Dead-letter queue'),
    h('p.intro', { key: 'lead' }, messages.length ? `About ${plural(count, 'message')} failed. Fix the cause, then redrive them; steps that are already done are not repeated.` : 'The dead-letter queue is empty.'),
    messages.length > 0 && h('p', { key: 'act' }, button('redrive', 'Redrive all …')),
    messages.length > 0 && h('div', { key: 'list' }, scrollTable('Dead letters', ['Sent', 'Error', 'Attempts', 'Message'], messages.map((one) => h('tr', { key: one.id },
      h('td', timeAgo(one.sent_at)), h('td', one.reason ?? 'unknown'), h('td.num', one.receive_count), h('td', h('code', one.body_excerpt)))))),
  ];
}

// ── Suggestions

function drawInsights() {
  const { days, partial_reason: partial, formulas, dwell, webhooks, remedies, rules } = app.data, share = (n) => (n == null ? '–' : `${n} %`);
  const head = (text) => h('th', { scope: 'row' }, text), num = (...all) => all.map((n) => h('td.num', n));
  const known = dwell.filter((one) => !one.repo || one.suggested_minutes != null);
  const advice = [...known.filter((one) => one.suggested_minutes != null && (one.suggested_minutes > one.configured_minutes || one.suggested_minutes * 2 <= one.configured_minutes)).map((one) => `${one.repo ? `${shortRepo(one.repo)}: ` : ''}${one.advice}`), ...rules.map((one) => one.advice).filter(Boolean)];
  return [
    pageTitle('Threshold and rule suggestions'),
    h('p.intro', { key: 'lead' }, `Computed from the events of the last ${days} days.${partial ? ` ${partial}` : ''}`),
    section('advice', 'Suggested changes', advice.length ? h('ul', advice.map((text) => h('li', { key: text }, richText(text)))) : h('p.empty', 'No changes suggested: the thresholds fit the measured times, and no rule retries failures that repeat identically.')),
    section('state-times', 'Time in each state', known.length ? scrollTable('Time in each state', ['State', 'Repository', 'Visits', 'Without remedy', 'Median', 'p95', 'p99', 'Threshold', 'Suggested'], known.map((one) => h('tr', { key: `${one.repo}${one.state}` },
      head(labelOf(one.state)), h('td', one.repo ? shortRepo(one.repo) : 'all'), num(one.count, one.by_itself, duration(one.p50_secs), duration(one.p95_secs), duration(one.p99_secs), `${one.configured_minutes} min`, one.suggested_minutes == null ? '–' : `${one.suggested_minutes} min`)))) : h('p.empty', 'No pull request changed its state.'),
    h('p.muted', formulas[0])),
    section('lost-webhooks', 'Lost webhooks', webhooks.length ? scrollTable('Lost webhooks', ['Event', 'Received', 'Lost', 'Loss rate'], webhooks.map((one) => h('tr', { key: one.kind },
      head(labelOf(one.kind)), num(one.received, one.missed, share(one.loss_percent))))) : h('p.empty', 'No events yet.')),
    section('remedies', 'Remedies', remedies.length ? scrollTable('Remedies', ['Remedy', 'Claimed', 'Healed', 'Failed again', 'Failed', 'Dropped', 'Success rate'], remedies.map((one) => h('tr', { key: one.strategy },
      head(labelOf(one.strategy)), num(one.claimed, one.healed, one.failed_again, one.failed, one.dropped, share(one.success_percent))))) : h('p.empty', 'No remedy was applied.')),
    section('rules', 'Transient rules', rules.length ? scrollTable('Transient rules', ['Rule', 'Retries', 'Healed', 'Failed again', 'Same failure', 'Success rate'], rules.map((one) => h('tr', { key: one.rule },
      h('th', { scope: 'row' }, h('code', one.rule), one.flagged && [' ', h('span.alert', 'same failure after retry')]), num(one.retries, one.healed, one.failed_again, one.identical, share(one.success_percent))))) : h('p.empty', 'No failure was retried.'),
    h('p.muted', formulas[1])),
  ];
}

// ── Actions

function confirmDialog(name, text, yes, withReason) {
  $('confirm-title').textContent = name;
  $('confirm-text').replaceChildren(...richText(text));
  $('confirm-yes').textContent = yes;
  $('confirm-reason').hidden = !withReason;
  $('reason').value = $('confirm').returnValue = '';
  $('confirm').showModal();
  return new Promise((resolve) => $('confirm').addEventListener('close', () => resolve($('confirm').returnValue === 'yes'), { once: true }));
}

const pendingKeys = new Map();
/** A second click after a lost response sends the same idempotency key, so the server acts once. */
async function post(path, body) {
  const name = `${path} ${JSON.stringify(body)}`;
  const idempotencyKey = pendingKeys.get(name) ?? Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, '0')).join('');
  pendingKeys.set(name, idempotencyKey);
  try {
    const response = await api(path, body, idempotencyKey);
    pendingKeys.delete(name);
    return response;
  } catch (failure) {
    if (failure.status > 0 && failure.status < 500) pendingKeys.delete(name);
    throw failure;
  }
}

async function postAndRefresh(path, body, message) {
  const response = await post(path, body);
  toast(typeof message === 'string' ? message : message(response));
  app.overviewAt = 0;
  await refresh();
}

/** Updates the progress of a command until its run ends or, without a run, until the record changes. */
function updateFollowed(s) {
  const { follow } = app, run = s.runs.find(({ id, requested_by: by, created_at: at }) => (follow.run ? id === follow.run : by && Date.parse(at) >= follow.since - 2000));
  if (run) {
    const [stage, text] = { pending: ['queued.', QUEUED], running: ['running.', 'The Car Bridge executes it.'], awaiting_approval: ['awaiting approval.', ''], waiting_external: ['accepted.', `Waiting for ${run.expects ?? 'its result'}.`] }[run.state] ?? [`${run.state}.`, ''];
    Object.assign(follow, { run: run.id, stage, text: run.error ?? run.outcome ?? text });
    follow.busy = !TERMINAL_RUN_STATES.includes(run.state) && run.state !== 'awaiting_approval';
  } else if (s.version !== follow.version) {
    // The run may appear later; a rejected command has none.
    follow.changed ??= Date.now();
    Object.assign(follow, { stage: 'processed.', text: s.history[0]?.text ?? '', busy: Boolean(follow.run) && Date.now() - follow.changed < REFRESH_MS });
  }
  if (follow.busy && Date.now() - follow.started > FOLLOW_LIMIT_MS) Object.assign(follow, { text: `Still running. This page refreshes every ${REFRESH_MS / 1000} s.`, busy: false });
}

export const actions = {
  more: () => { app.listPages += 1; return refresh(); },
  clear: () => { $('search').value = ''; history.replaceState(null, '', app.route.stale ? '#/stale' : '#/prs'); return navigate(); },
  unpause: () => postAndRefresh('unpause', {}, 'Suture is resumed.'),
  sweep: () => postAndRefresh('reconciler/run', {}, ({ run_id: run }) => `Sweep requested: run ${run}.`),
  async pause() {
    if (!(await confirmDialog('Pause Suture?', 'Suture records events but takes no action until an administrator resumes it.', 'Pause', true))) return;
    const reason = $('reason').value.trim();
    await postAndRefresh('pause', reason ? { reason } : {}, 'Suture is paused.');
  },
  async reset() {
    if (await confirmDialog('Reset the circuit breaker?', 'Automatic remedies start again at once, even if the cause of the failures is not fixed.', 'Reset')) await postAndRefresh('circuit-breaker/reset', {}, 'The circuit breaker is closed.');
  },
  async redrive() {
    if (await confirmDialog('Redrive all dead letters?', 'The messages return to the command queue. If the cause is not fixed, they fail again and come back.', 'Redrive')) await postAndRefresh('dlq/redrive', {}, ({ moved }) => (moved === undefined ? 'A redrive is already running.' : `${plural(moved, 'message')} moved to the command queue.`));
  },
  async verify(button) {
    button.disabled = true;
    const { apiPath } = app.route, explain = await fetchExplanation(apiPath, true).finally(() => { button.disabled = false; });
    if (app.route.apiPath !== apiPath || !app.data) return;
    app.data.explain = explain;
    const failed = explain.error ?? explain.live_error;
    toast(failed ?? 'Diagnosis updated from GitHub.', Boolean(failed));
    draw();
  },
  async events(button) {
    button.disabled = true;
    const { apiPath } = app.route, shown = app.data;
    let events = shown.events, after = '';
    for (let page = 0; after !== null && page < MAX_EVENT_PAGES; page++) {
      const response = await api(`${apiPath}/events?order=desc${after && `&after=${encodeURIComponent(after)}`}`).finally(() => { button.disabled = false; });
      events = mergeEvents(events, response.events);
      after = response.next;
    }
    if (app.route.apiPath !== apiPath) return;
    // A refresh may have replaced the data meanwhile.
    Object.assign(app.data ?? shown, { events: mergeEvents(events, app.data.events), allEventsLoaded: true });
    draw();
  },
  async command(button) {
    const { command, help, destructive } = button.dataset, { apiPath, pr } = app.route, { version } = app.data.status;
    if (destructive !== undefined && !(await confirmDialog(`${command} on ${pr.repo} #${pr.number}?`, help, command))) return;
    const response = await post(`${apiPath}/command`, { command });
    if (app.route.apiPath !== apiPath) return;
    app.follow = { command, version, run: response.run_id, stage: 'queued.', text: QUEUED, busy: true, since: now(), started: Date.now() };
    draw();
    await refresh();
  },
  async run(button) {
    const { run, runAction: action } = button.dataset;
    if (action !== 'approve' && !(await confirmDialog(`${labelOf(action)} this run?`, 'Remaining steps are not executed, and the budget is returned.', labelOf(action)))) return;
    await postAndRefresh(`runs/${encodeURIComponent(run)}/${action}`, {}, `${labelOf(action)} requested.`);
  },
};
