// The other views (list, one pull request, dead letters, insights) and everything people can ask for. Loaded when first needed, so that the
// first view stays small. What all views share is in app.js.

import { $, ENDED, EVERY_MS, api, bar, button, draw, explainTrouble, go, h, it, many, may, now, own, pill, prLink, prTable, refresh, rich, rows, section, sketch, span, swatch, tags, tell, title, tone, utc, when, words } from './app.js';

const FOLLOW_FOR_MS = 180_000, PAGES_MOST = 5, LOG_PAGES_MOST = 20;
const QUEUED = 'The Car Bridge takes it from the queue.';
const RUN_ENDED = ['completed', 'failed', 'cancelled'];

export const views = {
  prs: { title: () => 'Pull requests · Suture', load: loadList, draw: drawList },
  pr: { title: ({ pr }) => `${pr.repo}#${pr.number} · Suture`, load: loadPr, draw: drawPr },
  dlq: { title: () => 'Dead letters · Suture', load: () => api('dlq'), draw: drawDlq },
  insights: { title: () => 'What the numbers suggest · Suture', load: () => api('insights'), draw: drawInsights },
};

// ── List

/** What the server was asked for; words are looked for here. */
const asked = (query) => [query.get('repo'), query.get('state')].join();

async function loadList({ query, stale }) {
  const prs = [], most = query.get('q') ? PAGES_MOST : it.pages;
  let after = '';
  for (let page = 0; page < most && after !== null; page++) {
    const ask = new URLSearchParams({ limit: 100 });
    for (const name of stale ? [] : ['repo', 'state']) if (query.get(name)) ask.set(name, query.get(name));
    if (after) ask.set('after', after);
    const answer = await api(`prs${stale ? '/stale' : ''}?${ask}`);
    prs.push(...answer.prs);
    after = answer.next;
  }
  return { prs, more: after !== null, of: asked(query) };
}

function drawList({ query, stale }) {
  const [repo, state, q] = ['repo', 'state', 'q'].map((name) => query.get(name) ?? ''), wanted = q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (pr) => [`${pr.repo}#${pr.number}`, pr.vulnerability_id, pr.state, words(pr.state), pr.substatus, pr.why, pr.next].join(' ').toLowerCase();
  const found = it.data.prs.filter((pr) => (!repo || pr.repo === repo) && (!state || pr.state === state) && wanted.every((word) => text(pr).includes(word)));
  const choice = (name, label, options) => h('label', label, ' ', h('select', { 'data-filter': name }, h('option', { value: '' }, 'all'),
    options.map((one) => h('option', { value: one, selected: query.get(name) === one }, name === 'state' ? words(one) : own(one)))));
  const repos = [...new Set([...it.overview.repos.map((one) => one.repo), ...(repo ? [repo] : [])])], filtered = repo || state || q;
  return [
    title(stale ? 'Stuck pull requests' : 'Pull requests'),
    h('div.filters', { key: 'filters', role: 'group', 'aria-label': 'Filters' }, choice('repo', 'Repository', repos), choice('state', 'State', it.overview.states.map((one) => one.state)),
      q && h('span', 'with ', h('b', `“${q}”`)), filtered && button('clear', 'Clear filters'),
      h('span.hush', { id: 'found', role: 'status' }, `${many(found.length, 'pull request')}${it.data.more ? ' so far' : ''}`)),
    found.length ? h('div', { key: 'list' }, prTable(found, true)) : h('p.empty', { key: 'empty' }, it.data.of !== asked(query) ? 'Looking …' : filtered ? 'Nothing fits these filters. Clear one, or see whether the number and the repository are spelt as on GitHub.'
      : stale ? 'Nothing is stuck.' : 'No pull requests yet. Suture hears of one when GitHub’s first webhook arrives.'),
    it.data.more && h('p', { key: 'more' }, it.pages < PAGES_MOST && !q ? button('more', 'Load more') : `Only the first ${it.data.prs.length} are shown: choose a repository or a state.`),
  ];
}

// ── One pull request

async function loadPr({ at }, old) {
  const [status, before] = await Promise.all([api(`${at}/status`), old?.explain ?? getExplain(at, false)]);
  const aged = !before.live && Date.now() - before.got > 60_000;
  const explain = old && (aged || old.status.version !== status.version) ? await getExplain(at, false) : before;
  if (it.follow?.busy) followOn(status);
  return { status, explain, events: merge(old?.events, status.history), whole: old?.whole };
}

const getExplain = (at, live) => api(`${at}/explain?live=${live}`).then(
  (found) => ({ ...found, got: Date.now() }),
  (problem) => {
    if (problem.status === 401) throw problem;
    return { failed: explainTrouble(problem), got: Date.now() };
  });

/** Newest first; of the same moment, later hops first. */
const merge = (old = [], newer) => [...new Map([...old, ...newer].map((event) => [`${event.id}#${event.hop}`, event])).values()]
  .sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || b.hop - a.hop);
const moves = () => it.data.events.filter((event) => event.to && event.to !== event.from);

function drawPr() {
  const s = it.data.status, near = (number, text) => number && h('span', `${text} `, prLink({ repo: s.repo, number }));
  return [
    h('p.crumbs', { key: 'crumbs' }, h('a', { href: '#/prs' }, 'Pull requests'), ' / ', h('a', { href: `#/prs?repo=${encodeURIComponent(s.repo)}` }, s.repo)),
    title(`${own(s.repo)} #${s.number}`),
    h('p.facts', { key: 'facts' }, pill(s.state, s.substatus), h('span', 'for ', when(s.since, true)), s.stale && h('span.stale', 'stuck'), tags(s, s.priority.name), s.mode === 'observe' && h('span.tag', 'observe mode'),
      /^https?:\/\//.test(s.url) && h('a', { href: s.url, rel: 'noreferrer' }, 'Open on GitHub')),
    h('p.facts.hush', { key: 'branch' }, h('span', h('code', s.branch), ' → ', h('code', s.base_branch), ' at ', h('code', s.head_sha?.slice(0, 7))),
      h('span', 'opened ', when(s.created_at)), h('span', 'checked with GitHub ', s.verified_at ? when(s.verified_at) : 'never'), near(s.replaces, 'replaces'), near(s.replaced_by, 'replaced by')),
    section('explain', 'What is going on', drawExplain(s, it.data.explain)),
    section('commands', 'What you can do', drawCommands(s)),
    section('life', 'Its life', drawLife(s)),
    h('div.two', { key: 'two' }, h('div', section('checks', 'Checks', drawChecks(s)), section('budgets', 'Budgets', drawBudgets(s))),
      section('runs', 'Runs', s.runs.length ? s.runs.map((run) => drawRun(s, run)) : h('p.empty', 'Suture has not had to do anything here.'))),
    section('events', 'Everything that happened', drawEvents(s)),
  ];
}

function drawExplain(s, x) {
  if (x.failed) return [h('p', rich(s.summary)), h('p.hush', x.failed)];
  return [
    h('p.say', rich(x.summary)),
    h('p', h('b', 'Next: '), rich(x.next_action), x.next_action_at && [' (', when(x.next_action_at), ')']),
    s.blocked_reason && !x.summary.toLowerCase().includes(s.blocked_reason.toLowerCase()) && h('p', h('b', 'Given up because: '), rich(s.blocked_reason)),
    h('ul', x.evidence.filter((line) => !x.summary.includes(line)).map((line) => h('li', rich(line)))),
    h('p.hush', x.rule && `Rule ${x.rule.number}, ${x.rule.title.toLowerCase()}, says: ${words(x.classification).toLowerCase()}. `, x.would_have_matched && `Otherwise it would be ${x.would_have_matched}.`),
    h('p', button('live', 'Ask GitHub now'), ' ', h('span.hush', x.live_error ?? (x.live ? ['GitHub was asked ', when(new Date(x.got + it.skew).toISOString()), '.'] : 'This is from what Suture has recorded.'))),
  ];
}

function drawCommands(s) {
  // What these two would answer on the pull request is this page.
  const mine = s.commands.filter(({ command, role }) => command !== '/status' && command !== '/explain' && may(role)), { follow } = it;
  // A command with a button is not listed as a sentence as well.
  const said = (it.data.explain.you_can ?? []).filter((line) => !mine.some(({ command }) => line.startsWith(`\`${command}\`:`)));
  return [
    said.length > 0 && h('ul', said.map((line) => h('li', rich(line)))),
    mine.length > 0 && h('ul.cmds', mine.map(({ command, help, destructive }) => h('li', { key: command },
      h(`button${destructive ? '.danger' : ''}`, { 'data-do': 'command', 'data-command': command, 'data-help': help, 'data-destructive': destructive }, command, destructive && ' …'), h('span.hush', rich(help))))),
    !mine.length && h('p.empty', ENDED.includes(s.state) ? 'It has ended: there is nothing to do.' : may('operator') ? 'No command applies now.' : 'Your key is a viewer key: it can only look. Commands need an operator key.'),
    h('p.follow', { id: 'follow', role: 'status' }, follow && [h('b', `${follow.command} ${follow.stage}`), ` ${follow.text}`, follow.run && h('span.hush', ` Run ${follow.run}.`)]),
  ];
}

/** Its stretches in each state, oldest first. */
function stretches(s) {
  const changes = moves().reverse(), end = ENDED.includes(s.state) ? Date.parse(s.since) : now(), born = Date.parse(s.created_at);
  if (!changes.length) return [{ state: s.state, from: Math.min(born, end), to: end }];
  const all = changes.map((event, i) => ({ state: event.to, from: Date.parse(event.at), to: i + 1 < changes.length ? Date.parse(changes[i + 1].at) : end }));
  if (all[0].from > born) all.unshift({ state: changes[0].from ?? changes[0].to, from: born, to: all[0].from });
  return all.filter((one, i) => one.to > one.from || i + 1 === all.length);
}

function drawLife(s) {
  const all = stretches(s), whole = Math.max(1, all.at(-1).to - all[0].from), totals = new Map();
  // Short stretches stay visible; the others give way.
  const widths = all.map((one) => Math.max(6, ((one.to - one.from) / whole) * 1000)), scale = 1000 / widths.reduce((a, b) => a + b, 0);
  let x = 0;
  for (const [i, one] of all.entries()) {
    Object.assign(one, { x, width: widths[i] * scale });
    x += one.width;
    totals.set(one.state, (totals.get(one.state) ?? 0) + one.to - one.from);
  }
  const place = (at) => {
    const one = all.find(({ from, to }) => at >= from && at < to) ?? all.at(-1);
    return Math.min(995, one.x + Math.min(1, Math.max(0, (at - one.from) / Math.max(1, one.to - one.from))) * one.width);
  };
  const told = (node, text) => (node.append(h('title', text)), node);
  const done = it.data.events.filter(({ kind }) => /^REMEDIATION_(?!ACCEPTED|ENDED)|^ESCALATED|^COMMAND/.test(kind));
  return [
    h('svg.life', { viewBox: '0 0 1000 40', preserveAspectRatio: 'none', role: 'img', 'aria-label': `Time in each state: ${[...totals].map(([state, ms]) => `${words(state)} ${span(ms / 1000)}`).join(', ')}` },
      all.map((one) => told(bar(`rect.s-${one.state}`, one.x, tone(one.state) === 'bad' ? 0 : 5, Math.max(1, one.width - 1.5), tone(one.state) === 'bad' ? 26 : 21), `${words(one.state)}: ${span((one.to - one.from) / 1000)}, from ${utc(one.from)}`)),
      done.map((event) => told(bar(`rect.deed.${tone(event.kind)}`, place(Date.parse(event.at)), 30, 4, 10), `${words(event.kind)}, ${utc(event.at)}: ${event.text}`))),
    h('p.ends', h('span', utc(all[0].from)), h('span', ENDED.includes(s.state) ? utc(all.at(-1).to) : 'now')),
    h('ul.legend', [...totals].sort((a, b) => b[1] - a[1]).map(([state, ms]) => h('li', { key: state }, swatch(`s-${state}`), `${words(state)} `, h('b', span(ms / 1000)))),
      done.length > 0 && h('li', sketch('svg.swatch.deed', 3, 3, bar('rect', 1, 0, 1, 3)), many(done.length, 'intervention'))),
  ];
}

function drawChecks(s) {
  const row = (name, at, ...cell) => h('tr', { key: name }, h('th', { scope: 'row' }, name), h('td', cell), h('td', when(at)));
  const body = [
    ...s.checks.map(({ name, required, verdict, failure, at }) => row(name, at, pill(verdict), !required && h('small', ' optional'),
      failure && h('p', rich(failure.text), failure.transient_rule && h('span.hush', ' Transient by rule ', h('code', failure.transient_rule), '.')))),
    s.policy && row('Policy Bot', s.policy.at, pill(s.policy.verdict), s.policy.text && h('p', rich(s.policy.text))),
    s.approval && row('Approval', s.approval.at, `${s.approval.granted ? 'granted' : 'taken back'} by ${s.approval.by}`),
    s.merge && row('Merge', s.merge.at, pill(s.merge.failed ? 'failed' : 'attempted'), s.merge.text && h('p', rich(s.merge.text))),
  ].filter(Boolean);
  return body.length ? rows('Checks', ['Name', 'Verdict', 'When'], body) : h('p.empty', 'No check has reported on this commit yet.');
}

function drawBudgets(s) {
  const row = (name, { used, max }) => h('tr', { key: name }, h('th', { scope: 'row' }, name),
    h('td.pic', sketch('svg', 100, 10, bar('rect.far', 0, 0, 100, 10), bar(`rect.${used >= max ? 'bad' : 'mid'}`, 0, 0, max ? Math.min(100, (used / max) * 100) : 0, 10))), h('td.num', `${used} of ${max}`));
  return rows('Budgets', ['Remedy', h('span.sr', 'Picture'), 'Used'], [...s.budgets.map((one) => row(words(one.strategy), one)), row('In its whole life', s.lifetime)]);
}

function drawRun(s, run) {
  const ended = RUN_ENDED.includes(run.state), act = (verb, text) => button('run', text, { 'data-run': run.id, 'data-verb': verb });
  const agree = run.state === 'awaiting_approval' && may(s.commands.find(({ command }) => command === '/approve')?.role ?? 'admin');
  return h('details.run', { key: run.id, open: !ended },
    h('summary', h('b', words(run.kind)), ' ', pill(run.state), ' ', when(run.created_at), run.duration_ms != null && `, took ${span(run.duration_ms / 1000)}`),
    run.outcome && h('p', rich(run.outcome)), run.error && h('p.stale', run.error),
    h('p.hush', run.requested_by ? `Asked for by ${run.requested_by}` : 'Decided', ` (${words(run.trigger).toLowerCase()})`, run.head_sha && ` on ${run.head_sha.slice(0, 7)}`, run.expects && `; proven by ${run.expects}`,
      !ended && run.wait_deadline && [', expected ', when(run.wait_deadline)], run.resume_count > 0 && `; resumed ${many(run.resume_count, 'time')}`, '.'),
    run.steps.length > 0 && h('ol.steps', run.steps.map((step) => h('li', { key: step.name }, words(step.name), ' ', h('b', step.status), ' ', h('span.hush', when(step.at)), step.error && h('p.stale', step.error)))),
    run.compensation.map((one) => h('p', `Undone: ${one.what}${one.detail ? ` (${one.detail})` : ''}.`)),
    !ended && may('operator') && h('p.row', agree && [act('approve', 'Approve'), act('reject', 'Reject …')], act('cancel', 'Cancel this run …')));
}

function drawEvents(s) {
  const changes = moves();
  return [rows('Events', ['When', 'What', 'Details'], it.data.events.map((event) => {
    const place = changes.indexOf(event), before = place >= 0 && changes[place + 1];
    return h('tr', { key: `${event.id}#${event.hop}` }, h('td', when(event.at)), h('td', pill(event.kind)), h('td', h('p', rich(event.text)),
      h('p.hush', place >= 0 && event.from && `${words(event.from)} → ${words(event.to)}${before ? ` after ${span((Date.parse(event.at) - Date.parse(before.at)) / 1000)}` : ''}. `,
        `By ${event.by ?? event.source}`, event.name && ` · ${event.name}`, event.head && ` · ${event.head.slice(0, 7)}`), event.anomaly && h('p.stale', event.anomaly)));
  })), s.history.length >= 50 && !it.data.whole && h('p', button('events', 'Load older events'))];
}

// ── Dead letters

function drawDlq() {
  const { messages, approximate_count: about } = it.data;
  return [
    title('Dead letters'),
    h('p.lead', { key: 'lead' }, messages.length ? `About ${many(about, 'message')} could not be handled. Fix the cause, then send them again: what was already done is not done twice.` : 'There are none: every message was handled.'),
    messages.length > 0 && h('p', { key: 'act' }, button('redrive', 'Send all again …')),
    messages.length > 0 && h('div', { key: 'list' }, rows('Dead letters', ['Sent', 'Why', 'Tried', 'Message'], messages.map((one) => h('tr', { key: one.id },
      h('td', when(one.sent_at)), h('td', one.reason ?? 'not known'), h('td.num', one.receive_count), h('td', h('code', one.body_excerpt)))))),
  ];
}

// ── What the numbers suggest

function drawInsights() {
  const { days, partial_reason: cut, formulas, dwell, webhooks, remedies, rules } = it.data, share = (n) => (n == null ? '–' : `${n} %`);
  const head = (text) => h('th', { scope: 'row' }, text), num = (...all) => all.map((n) => h('td.num', n));
  const known = dwell.filter((one) => !one.repo || one.suggested_minutes != null);
  const advice = [...known.filter((one) => one.suggested_minutes != null && !one.advice.includes('fits')).map((one) => `${one.repo ? `${own(one.repo)}: ` : ''}${one.advice}`), ...rules.map((one) => one.advice).filter(Boolean)];
  return [
    title('What the numbers suggest'),
    h('p.lead', { key: 'lead' }, `From the log of the last ${days} days.${cut ? ` ${cut}` : ''}`),
    section('advice', 'Worth a change', advice.length ? h('ul', advice.map((text) => h('li', { key: text }, rich(text)))) : h('p.empty', 'Nothing: the thresholds fit what was seen, and no rule fails identically.')),
    section('stays', 'Time in each state', known.length ? rows('Time in each state', ['State', 'Where', 'Seen', 'By itself', 'Median', '95 %', '99 %', 'Threshold', 'Suggested'], known.map((one) => h('tr', { key: `${one.repo}${one.state}` },
      head(words(one.state)), h('td', one.repo ? own(one.repo) : 'everywhere'), num(one.count, one.by_itself, span(one.p50_secs), span(one.p95_secs), span(one.p99_secs), `${one.configured_minutes} min`, one.suggested_minutes == null ? '–' : `${one.suggested_minutes} min`)))) : h('p.empty', 'No pull request has moved.'),
    h('p.hush', formulas[0])),
    section('heard', 'Webhooks that never came', webhooks.length ? rows('Webhooks that never came', ['What happened', 'Told by a webhook', 'Never told', 'Lost'], webhooks.map((one) => h('tr', { key: one.kind },
      head(words(one.kind)), num(one.told, one.missed, share(one.loss_percent))))) : h('p.empty', 'Nothing has happened yet.')),
    section('remedies', 'Remedies', remedies.length ? rows('Remedies', ['Remedy', 'Claimed', 'Healed', 'Failed again', 'Failed', 'Never done', 'Success'], remedies.map((one) => h('tr', { key: one.strategy },
      head(words(one.strategy)), num(one.claimed, one.healed, one.failed_again, one.failed, one.dropped, share(one.success_percent))))) : h('p.empty', 'Suture has not had to do anything.')),
    section('rules', 'Transient rules', rules.length ? rows('Transient rules', ['Rule', 'Retries', 'Healed', 'Failed again', 'Identically', 'Success'], rules.map((one) => h('tr', { key: one.rule },
      h('th', { scope: 'row' }, h('code', one.rule), one.flagged && [' ', h('span.stale', 'fails identically')]), num(one.retries, one.healed, one.failed_again, one.identical, share(one.success_percent))))) : h('p.empty', 'No failure was retried.'),
    h('p.hush', formulas[1])),
  ];
}

// ── What people ask for

function confirmed(name, text, yes, withReason) {
  $('ask-title').textContent = name;
  $('ask-text').replaceChildren(...rich(text));
  $('ask-yes').textContent = yes;
  $('ask-more').hidden = !withReason;
  $('reason').value = $('ask').returnValue = '';
  $('ask').showModal();
  return new Promise((resolve) => $('ask').addEventListener('close', () => resolve($('ask').returnValue === 'yes'), { once: true }));
}

const unanswered = new Map();
/** Pressed again after a lost answer, it carries the same key, and is done once. */
async function want(where, body) {
  const name = `${where} ${JSON.stringify(body)}`;
  const once = unanswered.get(name) ?? Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, '0')).join('');
  unanswered.set(name, once);
  try {
    const answer = await api(where, body, once);
    unanswered.delete(name);
    return answer;
  } catch (problem) {
    if (problem.status > 0 && problem.status < 500) unanswered.delete(name);
    throw problem;
  }
}

async function wanted(where, body, said) {
  const answer = await want(where, body);
  tell(typeof said === 'string' ? said : said(answer));
  it.overviewAt = 0;
  await refresh();
}

/** Follows a command until its run has ended or, without a run, until the record has changed. */
function followOn(s) {
  const { follow } = it, run = s.runs.find(({ id, requested_by: by, created_at: at }) => (follow.run ? id === follow.run : by && Date.parse(at) >= follow.since - 2000));
  if (run) {
    const [stage, text] = { pending: ['queued.', QUEUED], running: ['running.', 'The Car Bridge is at it.'], awaiting_approval: ['waits for approval.', ''], waiting_external: ['accepted.', `Waiting for ${run.expects ?? 'its result'}.`] }[run.state] ?? [`${run.state}.`, ''];
    Object.assign(follow, { run: run.id, stage, text: run.error ?? run.outcome ?? text });
    follow.busy = !RUN_ENDED.includes(run.state) && run.state !== 'awaiting_approval';
  } else if (s.version !== follow.version) {
    // Its run may still come; if it was refused, there is none.
    follow.changed ??= Date.now();
    Object.assign(follow, { stage: 'taken.', text: s.history[0]?.text ?? '', busy: Boolean(follow.run) && Date.now() - follow.changed < EVERY_MS });
  }
  if (follow.busy && Date.now() - follow.started > FOLLOW_FOR_MS) Object.assign(follow, { text: `It takes its time: the page goes on looking every ${EVERY_MS / 1000} s.`, busy: false });
}

export const deeds = {
  more: () => { it.pages += 1; return refresh(); },
  clear: () => { $('q').value = ''; history.replaceState(null, '', it.route.stale ? '#/stale' : '#/prs'); return go(); },
  unpause: () => wanted('unpause', {}, 'Suture acts again.'),
  sweep: () => wanted('reconciler/run', {}, ({ run_id: run }) => `A sweep is asked for: run ${run}.`),
  async pause() {
    if (!(await confirmed('Pause Suture?', 'It goes on watching and recording, but does nothing until somebody resumes it.', 'Pause', true))) return;
    const reason = $('reason').value.trim();
    await wanted('pause', reason ? { reason } : {}, 'Suture is paused.');
  },
  async reset() {
    if (await confirmed('Reset the breaker?', 'Automatic remedies start again at once, even if what made them fail is still broken.', 'Reset')) await wanted('circuit-breaker/reset', {}, 'The breaker is closed.');
  },
  async redrive() {
    if (await confirmed('Send all dead letters again?', 'They go back onto the command queue. If the cause is not fixed, they come back here.', 'Send again')) await wanted('dlq/redrive', {}, ({ moved }) => (moved === undefined ? 'They are on the way already.' : `${many(moved, 'message')} on the way.`));
  },
  async live(button) {
    button.disabled = true;
    const { at } = it.route, explain = await getExplain(at, true).finally(() => { button.disabled = false; });
    if (it.route.at !== at || !it.data) return;
    it.data.explain = explain;
    const failed = explain.failed ?? explain.live_error;
    tell(failed ?? 'GitHub has answered.', Boolean(failed));
    draw();
  },
  async events(button) {
    button.disabled = true;
    const { at } = it.route, shown = it.data;
    let events = shown.events, after = '';
    for (let page = 0; after !== null && page < LOG_PAGES_MOST; page++) {
      const answer = await api(`${at}/events?order=desc${after && `&after=${encodeURIComponent(after)}`}`).finally(() => { button.disabled = false; });
      events = merge(events, answer.events);
      after = answer.next;
    }
    if (it.route.at !== at) return;
    // A refresh may have come in between.
    Object.assign(it.data ?? shown, { events: merge(events, it.data.events), whole: true });
    draw();
  },
  async command(button) {
    const { command, help, destructive } = button.dataset, { at, pr } = it.route, { version } = it.data.status;
    if (destructive !== undefined && !(await confirmed(`${command} on ${pr.repo} #${pr.number}?`, help, command))) return;
    const answer = await want(`${at}/command`, { command });
    if (it.route.at !== at) return;
    it.follow = { command, version, run: answer.run_id, stage: 'queued.', text: QUEUED, busy: true, since: now(), started: Date.now() };
    draw();
    await refresh();
  },
  async run(button) {
    const { run, verb } = button.dataset;
    if (verb !== 'approve' && !(await confirmed(`${words(verb)} this run?`, 'What it has not done yet is not done, and its budget is given back.', words(verb)))) return;
    await wanted(`runs/${encodeURIComponent(run)}/${verb}`, {}, `${words(verb)}: asked for.`);
  },
};
