// A mock of the admin API for work on the dashboard: serves the dashboard with its Content-Security-Policy and answers API requests with
// invented data. It has no dependencies:  node tests/dashboard/mock.mjs [PORT]
// The API key selects the installation: mock-admin, mock-operator, mock-viewer (many pull requests), mock-empty (none, observe mode),
// mock-paused, mock-403, mock-429, mock-503. Every other key gets 401.
// `MOCK_FULL=1` fills every list to its limit in docs/openapi.json, to measure the largest first view.

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const DASHBOARD = new URL('../../functions/admin/dashboard/', import.meta.url);
const FILES = { '/': ['index.html', 'text/html'], '/assets/app.js': ['app.js', 'text/javascript'], '/assets/pages.js': ['pages.js', 'text/javascript'], '/assets/style.css': ['style.css', 'text/css'] };
export const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const STATES = ['CREATED', 'CHECKS_RUNNING', 'CHECKS_FAILED', 'CHECKS_PASSED', 'POLICY_EVALUATING', 'POLICY_FAILED', 'POLICY_PASSED', 'APPROVED', 'MERGING', 'MERGED', 'CLOSED', 'NEEDS_INTERVENTION'];
const TERMINAL_STATES = ['MERGED', 'CLOSED'];
const STRATEGIES = { rebuild: 3, branch_update: 5, retrigger_policy_bot: 3, retrigger_sod_check: 2, retrigger_approver_bot: 3, retrigger_automerge_bot: 3, close_and_reopen: 2 };
const MINUTE = 60_000;
const RANKS = ['viewer', 'operator', 'admin'];
const REPOS = ['acme/shop', 'acme/payments-api', 'acme/identity', 'acme/a-repository-with-a-remarkably-long-name-for-a-service', 'acme/web'];

const iso = (ms) => new Date(ms).toISOString();
const sha = (seed) => Array.from({ length: 40 }, (_, i) => '0123456789abcdef'[(seed * 7 + i * i * 3 + i) % 16]).join('');
const full = Boolean(process.env.MOCK_FULL);

/** For each state, examples of [reason, next action, minutes in the state, stale]. */
const EXAMPLES = {
  CREATED: [['Checks have not started.', 'If none has started in 4 min, Suture runs the checks.', 1, false], ['Checks never started: no build of this commit is known to Jenkins.', 'Suture runs the checks again in 2 min.', 14, true]],
  CHECKS_RUNNING: [['`continuous-integration/jenkins/pr-merge` is running.', 'Suture verifies it again in 38 min.', 22, false], ['`integration tests` has been running for 2 h 14 min; Jenkins has no such build.', 'Suture runs the checks again in 3 min.', 134, true], ['2 of 5 required checks have reported.', 'Suture verifies it again in 51 min.', 9, false]],
  CHECKS_FAILED: [['`unit tests` failed, transient by rule `agent lost`: java.nio.channels.ClosedChannelException while the agent linux-large-14 was streaming the log of stage “Integration”; the agent was marked offline.', 'Suture runs the checks again in 4 min (rebuild 2 of 3).', 44, true], ['`lint` failed: 3 errors in src/main/java/com/acme/shop/checkout/CheckoutController.java.', 'Suture leaves it alone until somebody pushes; it calls a person in 12 min.', 18, false]],
  CHECKS_PASSED: [['Policy Bot has not begun.', 'Suture retriggers Policy Bot in 25 min.', 5, false]],
  POLICY_EVALUATING: [['Policy Bot started and has not reported a result.', 'Suture retriggers Policy Bot in 1 min (2 of 3).', 47, true]],
  POLICY_FAILED: [['Policy Bot rejected it (SOD_FAILURE): separation of duties: the author may not be the only approver.', 'Suture asks the SOD validator again in 6 min.', 21, true]],
  POLICY_PASSED: [['Approver Bot has not approved.', 'Suture retriggers Approver Bot in 9 min.', 6, false]],
  APPROVED: [['The branch is 7 commits behind main, and main asks for up-to-date branches.', 'Suture merges the base branch into it; under way since 2 min.', 12, true], ['Automerge Bot has not merged.', 'Suture retriggers Automerge Bot in 8 min.', 2, false]],
  MERGING: [['Automerge Bot is merging.', 'Suture verifies it again in 4 min.', 1, false]],
  MERGED: [['Merged by automerge-bot[bot].', 'None: the record is deleted in 21 h.', 190, false]],
  CLOSED: [['Closed by Suture: replaced by a fresh pull request.', 'None: the record is deleted in 9 h.', 880, false]],
  NEEDS_INTERVENTION: [
    ['`unit tests` failed 3 times on this commit, each time in PaymentRoundingTest.roundsHalfEven: expected 10.01 but was 10.02. The rebuild budget is used up.', 'Suture takes no action until somebody pushes, comments `/resume`, or closes it.', 3 * 1440 + 250, false],
    ['Policy Bot rejected it (OTHER_POLICY_FAILURE): a change to db/migrations needs a review by acme/data-owners.', 'Suture takes no action until the policy is met.', 15 * 60, false],
    ['The branch conflicts with main in 4 files, and the budget for close-and-reopen is used up.', 'Suture takes no action until somebody resolves the conflicts.', 8 * 60 + 20, false],
  ],
};
const SUBSTATUS = { CHECKS_FAILED: ['TRANSIENT', 'PERSISTENT'], POLICY_FAILED: ['SOD_FAILURE'], CLOSED: ['REPLACED', 'ABANDONED'] };

function installation(startedAt) {
  const prs = new Map();
  let number = 17;
  const add = (state, example, repo, extra = {}) => {
    const [why, next, minutes, stale] = example;
    const at = startedAt - minutes * MINUTE, n = ++number, p = ['p0', 'p1', 'p2', 'none'][n % 4];
    const pr = {
      repo, number: n, url: `https://github.com/${repo}/pull/${n}`, state, substatus: SUBSTATUS[state]?.[n % SUBSTATUS[state].length] ?? null,
      vulnerability_id: n % 3 ? `CVE-2026-${10000 + n * 37}` : n % 2 ? 'GHSA-7fh5-64p2-3v2j' : null, since: iso(at), waiting_secs: 0,
      due_at: TERMINAL_STATES.includes(state) ? null : iso(startedAt + 4 * MINUTE), stale, held: false, draft: false, priority: p, why, next, active_run: null, ...extra,
    };
    prs.set(`${repo}#${n}`, { item: pr, version: 5 + (n % 9), ...details(pr, at, startedAt) });
  };
  const counts = { CREATED: 3, CHECKS_RUNNING: 8, CHECKS_FAILED: 4, CHECKS_PASSED: 2, POLICY_EVALUATING: 2, POLICY_FAILED: 2, POLICY_PASSED: 3, APPROVED: 4, MERGING: 1, MERGED: 9, CLOSED: 2, NEEDS_INTERVENTION: 3 };
  if (full) for (const state of ['CHECKS_RUNNING', 'CHECKS_FAILED', 'NEEDS_INTERVENTION']) counts[state] = 25;
  let i = 0;
  for (const state of STATES) {
    for (let n = 0; n < counts[state]; n++) {
      const examples = EXAMPLES[state];
      add(state, examples[n % examples.length], REPOS[i++ % REPOS.length], state === 'CHECKS_RUNNING' && n === 7 ? { draft: true, stale: false, why: 'It is a draft: recorded, never remedied.' }
        : state === 'POLICY_PASSED' && n === 2 ? { held: true, why: 'Held by ana: waits for the release freeze to end.', next: 'Suture takes no action until `/resume`.' }
          : state === 'APPROVED' && n === 0 ? { active_run: { id: 'run-7f31c0', strategy: 'branch_update', since: iso(startedAt - 2 * MINUTE), accepted: true } } : {});
    }
  }
  return { prs, paused: null, breaker: 'closed', dlq: 3, mode: 'act', startedAt, commands: 0 };
}

/** Invents the history of one pull request: events, checks, runs. */
function details(pr, at, startedAt) {
  const events = [], runs = [], head = sha(pr.number);
  let n = 0;
  const log = (ms, kind, source, from, to, text, more = {}) => events.unshift({ at: iso(ms), id: `${pr.number}-${String(++n).padStart(3, '0')}`, hop: 0, kind, source, from, to, text, head, name: null, by: null, run: null, anomaly: null, ...more });
  const start = at - 95 * MINUTE, jenkins = 'continuous-integration/jenkins/pr-merge';
  const path = ['CREATED', 'CHECKS_RUNNING', 'CHECKS_PASSED', 'POLICY_EVALUATING', 'POLICY_PASSED', 'APPROVED', 'MERGING', 'MERGED'];
  log(start, 'PR_OPENED', 'codegenie', null, 'CREATED', `opened by codegenie[bot]: fixes ${pr.vulnerability_id ?? 'a dependency'}`);
  log(start + 2 * MINUTE, 'CHECKS_STARTED', 'jenkins', 'CREATED', 'CHECKS_RUNNING', 'checks began', { name: jenkins });
  const run = (id, kind, created, state, extra = {}) => runs.unshift({
    id, repo: pr.repo, number: pr.number, kind, state, head_sha: head, trigger: 'reconciler', requested_by: null, created_at: iso(created), updated_at: iso(created + 9 * MINUTE),
    completed_at: state === 'completed' ? iso(created + 9 * MINUTE) : null, duration_ms: state === 'completed' ? 9 * MINUTE : null, outcome: state === 'completed' ? 'proven by CHECKS_STARTED' : null, error: null,
    expects: 'the checks to start', wait_deadline: state === 'completed' ? null : iso(created + 20 * MINUTE), lease_until: null, resume_count: 0, partial: false,
    steps: [{ name: 'probe', status: 'done', at: iso(created + 1000), duration_ms: 210 }, { name: 'start_build', status: state === 'pending' ? 'pending' : 'done', at: iso(created + 2400), duration_ms: 640 }], transitions: [], compensation: [], ...extra,
  });
  if (pr.number % 2 || pr.state === 'NEEDS_INTERVENTION') {
    log(start + 15 * MINUTE, 'CHECKS_FAILED', 'jenkins', 'CHECKS_RUNNING', 'CHECKS_FAILED', '`unit tests` failed, transient by rule `agent lost`: Unexpected termination of the channel', { name: 'unit tests' });
    log(start + 46 * MINUTE, 'REMEDIATION_REBUILD', 'reconciler', null, null, 'Rule 3 (CHECKS FAILED — TRANSIENT): rebuild, 1 of 3', { run: `run-${pr.number}a` });
    log(start + 46.2 * MINUTE, 'REMEDIATION_ACCEPTED', 'command-queue', 'CHECKS_FAILED', 'CHECKS_RUNNING', 'Jenkins accepted it: queue item 8841', { run: `run-${pr.number}a` });
    log(start + 55 * MINUTE, 'REMEDIATION_ENDED', 'jenkins', null, null, 'rebuild is proven by CHECKS_STARTED', { run: `run-${pr.number}a` });
    run(`run-${pr.number}a`, 'rebuild', start + 46 * MINUTE, 'completed');
  }
  if (pr.state === 'NEEDS_INTERVENTION') {
    for (const [k, minutes] of [[2, 66], [3, 78]]) {
      log(start + minutes * MINUTE, 'CHECKS_FAILED', 'jenkins', 'CHECKS_RUNNING', 'CHECKS_FAILED', '`unit tests` failed: PaymentRoundingTest.roundsHalfEven: expected 10.01 but was 10.02', { name: 'unit tests' });
      log(start + (minutes + 5) * MINUTE, 'REMEDIATION_REBUILD', 'reconciler', null, null, `rebuild, ${k} of 3`, { run: `run-${pr.number}${k}` });
      log(start + (minutes + 5.5) * MINUTE, 'REMEDIATION_ACCEPTED', 'command-queue', 'CHECKS_FAILED', 'CHECKS_RUNNING', 'Jenkins accepted it', { run: `run-${pr.number}${k}` });
      run(`run-${pr.number}${k}`, 'rebuild', start + (minutes + 5) * MINUTE, 'failed', { completed_at: iso(start + (minutes + 6) * MINUTE), duration_ms: MINUTE, error: 'Jenkins answered 503: Service Unavailable (queue is full)', resume_count: k - 2, wait_deadline: null });
    }
    log(at - MINUTE, 'CHECKS_FAILED', 'jenkins', 'CHECKS_RUNNING', 'CHECKS_FAILED', '`unit tests` failed: PaymentRoundingTest.roundsHalfEven', { name: 'unit tests' });
    log(at, 'ESCALATED_NEEDS_INTERVENTION', 'reconciler', 'CHECKS_FAILED', 'NEEDS_INTERVENTION', 'handed to a person: budget for rebuild used up (3 of 3)');
    log(at + 30 * MINUTE, 'COMMAND_RECEIVED', 'github-webhook', null, null, '/rebuild by ben: refused, not valid in NEEDS_INTERVENTION', { by: 'ben' });
  } else {
    const goal = pr.state === 'CHECKS_FAILED' ? 'CHECKS_RUNNING' : pr.state === 'POLICY_FAILED' ? 'POLICY_EVALUATING' : pr.state === 'CLOSED' ? 'CHECKS_RUNNING' : pr.state;
    const kinds = { CHECKS_PASSED: ['CHECKS_PASSED', 'jenkins', 'all 5 required checks are green'], POLICY_EVALUATING: ['POLICY_STARTED', 'policy-bot', 'Policy Bot began'], POLICY_PASSED: ['POLICY_PASSED', 'policy-bot', 'all policies are met'],
      APPROVED: ['APPROVAL_GRANTED', 'approver-bot', 'approved by approver-bot[bot]'], MERGING: ['MERGE_ATTEMPTED', 'automerge-bot', 'Automerge Bot attempts the merge'], MERGED: ['MERGE_SUCCEEDED', 'automerge-bot', 'merged by automerge-bot[bot]'] };
    const to = path.indexOf(goal);
    for (let i = 2; i <= to; i++) log(at - (to - i) * 7 * MINUTE, kinds[path[i]][0], kinds[path[i]][1], path[i - 1], path[i], kinds[path[i]][2]);
    if (pr.state === 'CHECKS_FAILED') log(at, 'CHECKS_FAILED', 'jenkins', 'CHECKS_RUNNING', 'CHECKS_FAILED', pr.why, { name: 'unit tests' });
    if (pr.state === 'POLICY_FAILED') log(at, 'POLICY_FAILED', 'policy-bot', 'POLICY_EVALUATING', 'POLICY_FAILED', pr.why);
    if (pr.state === 'CLOSED') log(at, 'PR_CLOSED', 'github-webhook', 'CHECKS_RUNNING', 'CLOSED', 'closed', { by: 'suture[bot]' });
  }
  if (pr.state === 'POLICY_PASSED') log(startedAt - 3 * 60 * MINUTE, 'STATE_DRIFT_CORRECTED', 'reconciler', null, null, `State drift detected for PR #${pr.number}: table=CHECKS_RUNNING, actual=CHECKS_PASSED`);
  if (pr.active_run) {
    log(startedAt - 2 * MINUTE, 'REMEDIATION_BRANCH_UPDATE', 'reconciler', null, null, 'Rule 2 (BRANCH BEHIND BASE): merges main into it', { run: pr.active_run.id });
    run(pr.active_run.id, 'branch_update', startedAt - 2 * MINUTE, 'waiting_external', { expects: 'a new head on the branch' });
  }
  if (pr.state === 'CHECKS_RUNNING' && pr.stale) run(`run-${pr.number}w`, 'close_and_reopen', startedAt - 9 * MINUTE, 'awaiting_approval', { expects: null, trigger: 'admin-api', requested_by: 'ana', wait_deadline: null });
  return { events, runs, head, created: start };
}

const COMMANDS = [
  ['/rebuild', 'Runs the Jenkins build again.', ['CREATED', 'CHECKS_FAILED', 'CHECKS_RUNNING', 'NEEDS_INTERVENTION'], 'operator'], ['/recheck-policy', 'Asks Policy Bot to evaluate again.', ['CHECKS_PASSED', 'POLICY_EVALUATING', 'POLICY_FAILED'], 'operator'],
  ['/recheck-sod', 'Asks for the separation-of-duties check alone again.', ['POLICY_FAILED'], 'operator'], ['/recheck-approval', 'Asks Approver Bot to look again.', ['POLICY_PASSED'], 'operator'],
  ['/merge', 'Asks Automerge Bot to merge.', ['APPROVED', 'MERGING'], 'operator'], ['/update-branch', 'Merges the base branch into this one.', null, 'operator'], ['/close-and-reopen', 'Closes this pull request and asks CodeGenie for a fresh one.', null, 'admin', true],
  ['/cancel', 'Closes this pull request for good: its vulnerability is not picked up again.', null, 'admin', true], ['/status', 'Answers where this pull request stands.', null, 'operator'], ['/explain', 'Answers why it stands there.', null, 'operator'],
  ['/hold', 'Keeps Suture from acting on this pull request until `/resume`.', null, 'operator'], ['/resume', 'Ends a `/hold`, or takes an escalated pull request back with fresh budgets.', null, 'operator'], ['/approve', 'Lets a remedy that awaits approval go ahead.', null, 'admin'],
];
const commandsFor = (item) => (TERMINAL_STATES.includes(item.state) ? [] : COMMANDS.filter(([name, , states]) => (!states || states.includes(item.state)) && (name !== '/approve' || item.state === 'CHECKS_RUNNING')))
  .map(([command, help, , role, destructive = false]) => ({ command, help, destructive, role }));

const fresh = (item, now) => ({ ...item, waiting_secs: Math.round((now - Date.parse(item.since)) / 1000) });
const budgetsOf = (one) => Object.entries(STRATEGIES).map(([strategy, max]) => { const used = Math.min(max, one.runs.filter((run) => run.kind === strategy && !run.requested_by).length); return { strategy, used, max, remaining: max - used }; });

function overviewOf(system, role, now) {
  const all = [...system.prs.values()].map((one) => fresh(one.item, now));
  const live = all.filter((pr) => !TERMINAL_STATES.includes(pr.state) && pr.state !== 'NEEDS_INTERVENTION'), oldest = (list) => list.reduce((a, b) => (!a || b.since < a.since ? b : a), null);
  const activity = [...system.prs.values()].flatMap((one) => one.events.filter(({ kind }) => /REMEDIATION_(?!ACC)|ESCALATED|MERGE_SUCC|COMMAND|DRIFT/.test(kind)).map(({ at, kind, text }) => ({ at, repo: one.item.repo, number: one.item.number, kind, text }))).sort((a, b) => (a.at < b.at ? 1 : -1));
  const busy = all.length > 0;
  const rate = { closed: [6, 31, 2], open: [62, 13, 8], half_open: [50, 10, 5] }[system.breaker];
  return {
    now: iso(now), mode: system.mode, owner: 'acme', role, key: `ana-${role}`, paused: system.paused,
    breaker: { state: system.breaker, failure_rate_percent: busy ? rate[0] : 0, actions: busy ? rate[1] : 0, failures: busy ? rate[2] : 0, window_minutes: 15, opened_at: system.breaker === 'open' ? iso(now - 4 * MINUTE) : null, cooldown_until: system.breaker === 'open' ? iso(now + 6 * MINUTE) : null },
    last_sweep: busy ? { run_id: 'sweep-0419', at: iso(now - 41_000), duration_ms: 3240, due: 12, verified: 12, drifted: 1, dispatched: { rebuild: 2, retrigger_policy_bot: 1 }, escalated: 0, skipped: { backoff: 2 }, partial: false, errors: [] } : null,
    states: STATES.map((state) => { const here = all.filter((pr) => pr.state === state), first = TERMINAL_STATES.includes(state) ? null : oldest(here); return { state, count: here.length, stale: here.filter((pr) => pr.stale).length, oldest: first && { repo: first.repo, number: first.number, since: first.since } }; }),
    repos: (busy ? REPOS : []).map((repo) => { const mine = all.filter((pr) => pr.repo === repo && !TERMINAL_STATES.includes(pr.state)); return { repo, open: mine.length, needs_person: mine.filter((pr) => pr.state === 'NEEDS_INTERVENTION').length, stale: mine.filter((pr) => pr.stale).length }; }),
    needs_person: all.filter((pr) => pr.state === 'NEEDS_INTERVENTION').sort((a, b) => b.waiting_secs - a.waiting_secs).slice(0, 20), stuck: live.filter((pr) => pr.stale).sort((a, b) => (a.priority < b.priority ? -1 : 1)).slice(0, 20), activity: activity.slice(0, full ? 50 : 24),
    days: Array.from({ length: 14 }, (_, i) => { const day = iso(now - (13 - i) * 1440 * MINUTE).slice(0, 10), weekend = [0, 6].includes(new Date(day).getUTCDay()); return busy ? { day, opened: weekend ? 2 : 9 + (i % 4), merged: weekend ? 1 : 7 + (i % 5), healed: weekend ? i % 2 : 4 + ((i * 5) % 7), remedies: weekend ? 2 : 9 + (i % 6), escalated: [1, 0, 0, 2, 0, 1, 0][i % 7] } : { day, opened: 0, merged: 0, healed: 0, remedies: 0, escalated: 0 }; }),
    dwell: STATES.filter((state) => !TERMINAL_STATES.includes(state) && state !== 'NEEDS_INTERVENTION').map((state, i) => ({ state, count: busy ? 40 - i * 3 : 0, median_secs: busy ? [48, 760, 1900, 210, 130, 1300, 320, 260, 40][i] : 0, p95_secs: busy ? [290, 3100, 5900, 1500, 1900, 4200, 1400, 2300, 210][i] : 0 })),
    dlq: { messages: busy ? system.dlq : 0 },
  };
}

/** Response of /api/insights, with suggested changes. */
const insightsOf = (now) => {
  const stay = (repo, state, minutes, configured, suggested, advice) => ({ repo, state, count: 44, by_itself: suggested ? 41 : 3, p50_secs: minutes * 20, p95_secs: minutes * 50, p99_secs: minutes * 60, configured_minutes: configured, suggested_minutes: suggested, advice });
  return {
    now: iso(now), days: 14, partial: true, partial_reason: 'For one day, only the first 5000 events of each partition were read, so the numbers are incomplete.',
    formulas: ['A suggested threshold is the p99 …', 'A rule is flagged when …'],
    dwell: [stay(null, 'CHECKS_RUNNING', 66, 60, 83, 'Raise `thresholds_minutes.checks_running` from 60 to 83: it is stale before it has had its ordinary time (p99 1 h 6 min).'),
      stay(null, 'APPROVED', 7, 10, 9, '`thresholds_minutes.approved` = 10 fits what was seen.'), stay('acme/shop', 'CHECKS_RUNNING', 66, 60, 83, 'Raise `thresholds_minutes.checks_running` from 60 to 83: …'),
      stay('acme/web', 'CREATED', 1, 5, null, 'CREATED was left by itself 3 times: 20 are needed to suggest a threshold.')],
    webhooks: [{ kind: 'CHECKS_PASSED', received: 120, missed: 3, loss_percent: 2.4 }, { kind: 'APPROVAL_GRANTED', received: 40, missed: 0, loss_percent: 0 }],
    remedies: [{ strategy: 'rebuild', claimed: 12, healed: 8, failed_again: 3, failed: 0, dropped: 1, success_percent: 72.7 }],
    rules: [{ rule: 'network', retries: 4, healed: 0, failed_again: 4, identical: 3, success_percent: 0, flagged: true, advice: '3 of 4 retries by rule `network` failed again with the same words: what it matches is no accident. Narrow its patterns, or set `transient.network.enabled = false`.' }],
  };
};

function statusOf(one, system, role, now) {
  const { item } = one, failed = item.state === 'CHECKS_FAILED' || item.state === 'NEEDS_INTERVENTION', running = item.state === 'CHECKS_RUNNING', early = item.state === 'CREATED', far = STATES.indexOf(item.state) >= 4 && item.state !== 'NEEDS_INTERVENTION';
  const check = (name, verdict, failure = null, required = true) => ({ name, required, verdict, at: verdict === 'queued' ? null : item.since, failure });
  return {
    repo: item.repo, number: item.number, url: item.url, state: item.state, substatus: item.substatus, branch: `codegenie/${(item.vulnerability_id ?? 'bump').toLowerCase()}-${item.number}`, base_branch: 'main', head_sha: one.head, vulnerability_id: item.vulnerability_id,
    created_at: iso(one.created), since: item.since, waiting_secs: fresh(item, now).waiting_secs, last_event_at: one.events[0].at, verified_at: iso(now - 130_000), due_at: item.due_at, stale: item.stale, held: item.held, hold_label: null, draft: item.draft, labels: ['codegenie', 'security'],
    priority: { name: item.priority, score: 73 }, blocked_reason: item.state === 'NEEDS_INTERVENTION' ? 'budget for rebuild used up (3 of 3)' : null, retry_counts: Object.fromEntries(budgetsOf(one).map(({ strategy, used }) => [strategy, used])), budgets: budgetsOf(one), lifetime: { used: budgetsOf(one).reduce((a, b) => a + b.used, 0), max: 12 },
    last_remediation_at: one.runs[0]?.created_at ?? null, remediation_action: one.runs[0]?.kind ?? null, active_run: item.active_run,
    checks: early ? [] : [check('continuous-integration/jenkins/pr-merge', running ? 'running' : 'passed'), check('unit tests', failed ? 'failed' : running ? 'queued' : 'passed', failed ? { text: item.why, transient_rule: item.substatus === 'TRANSIENT' ? 'agent lost' : null } : null), check('lint', 'passed'), check('licence scan', 'passed', null, false)],
    policy: far ? { verdict: item.state === 'POLICY_FAILED' ? 'failed' : item.state === 'POLICY_EVALUATING' ? 'pending' : 'passed', text: item.state === 'POLICY_FAILED' ? 'separation of duties: the author may not be the only approver' : '', at: item.since } : null,
    approval: ['APPROVED', 'MERGING', 'MERGED'].includes(item.state) ? { granted: true, by: 'approver-bot[bot]', at: item.since } : null, merge: null, generation: 1, replaces: item.number % 5 ? null : item.number - 1, replaced_by: null, mode: system.mode, commands: commandsFor(item).filter((one) => RANKS.indexOf(one.role) <= RANKS.indexOf(role)), history: one.events.slice(0, 50), runs: one.runs.slice(0, 20), version: one.version, summary: `**${item.state}** for a while, on ${one.head.slice(0, 7)}.`,
  };
}

function explainOf(one, live) {
  const { item } = one, person = item.state === 'NEEDS_INTERVENTION';
  return {
    repo: item.repo, number: item.number, state: item.state, summary: item.why, rule: { number: '3', title: 'CHECKS FAILED — TRANSIENT' }, classification: person ? 'NEEDS_INTERVENTION' : item.stale ? 'RETRY_CHECKS' : 'NO_ACTION',
    evidence: [item.why.replace(/\.$/, ''), `in ${item.state} since ${item.since.slice(0, 16).replace('T', ' ')} UTC`, live ? 'GitHub: mergeable, not behind, 4 of 4 required contexts reported' : 'GitHub was last asked 2 min ago'], would_have_matched: 'rule 10 (STILL WITHIN THRESHOLD)', next_action: item.next, next_action_at: item.due_at,
    budgets: budgetsOf(one), lifetime: { used: 1, max: 12 }, you_can: person ? ['Fix the cause and push to the branch: Suture then resumes automatically.', 'Merge or close it: Suture notices.'] : ['Wait: Suture does the next step by itself.'], commands: commandsFor(item), live, live_error: null, text: '',
  };
}

/** Advances the run of a command by its age: pending, running, waiting_external, completed. */
function advance(one, now) {
  for (const run of one.runs.filter((run) => run.mock && run.state !== 'completed')) {
    const age = now - Date.parse(run.created_at), to = age > 7000 ? 'completed' : age > 4500 ? 'waiting_external' : age > 2500 ? 'running' : 'pending';
    if (to === run.state) continue;
    Object.assign(run, { state: to, updated_at: iso(now) });
    one.version += 1;
    if (to === 'completed') {
      Object.assign(run, { completed_at: iso(now), duration_ms: age, outcome: 'proven by CHECKS_STARTED' });
      one.events.unshift({ at: iso(now), id: run.id, hop: 0, kind: 'CHECKS_STARTED', source: 'jenkins', from: one.item.state, to: 'CHECKS_RUNNING', text: 'checks began', head: one.head, name: null, by: null, run: run.id, anomaly: null });
      Object.assign(one.item, { state: 'CHECKS_RUNNING', substatus: null, since: iso(now), stale: false, active_run: null, why: 'Checks are running.', next: 'Suture verifies it again in 60 min.' });
    }
  }
}

function command(system, one, { command: name }, now) {
  const known = commandsFor(one.item).find(({ command }) => command === name);
  if (!known) return [409, { code: 'COMMAND_NOT_VALID', detail: `${name} is not valid in ${one.item.state}.` }];
  const id = `cmd-${++system.commands}`, run = ['/hold', '/resume', '/approve'].includes(name) ? null : `run-c${system.commands}`;
  one.events.unshift({ at: iso(now), id, hop: 0, kind: 'COMMAND_RECEIVED', source: 'admin-api', from: null, to: null, text: `${name} by ana`, head: one.head, name: null, by: 'ana', run, anomaly: null });
  if (run) one.runs.unshift({ id: run, repo: one.item.repo, number: one.item.number, kind: name.slice(1).replaceAll('-', '_'), state: 'pending', head_sha: one.head, trigger: 'admin-api', requested_by: 'ana', created_at: iso(now), updated_at: iso(now), completed_at: null, duration_ms: null, outcome: null, error: null, expects: 'the checks to start', wait_deadline: iso(now + 20 * MINUTE), lease_until: null, resume_count: 0, partial: false, steps: [{ name: 'probe', status: 'pending', at: iso(now) }], transitions: [], compensation: [], mock: true });
  if (name === '/hold' || name === '/resume') one.item.held = name === '/hold';
  if (!run) one.version += 1;
  return [202, { command_id: id, run_id: run }];
}

export function handler() {
  const startedAt = Date.now(), busy = installation(startedAt), empty = { ...installation(startedAt), prs: new Map(), mode: 'observe' }, paused = { ...installation(startedAt), paused: { by: 'ben' }, breaker: 'open' }, replays = new Map();
  const keys = { 'mock-admin': [busy, 'admin'], 'mock-operator': [busy, 'operator'], 'mock-viewer': [busy, 'viewer'], 'mock-empty': [empty, 'admin'], 'mock-paused': [paused, 'admin'] };
  const failingKeys = { 'mock-403': [403, 'FORBIDDEN', 'This key has no role here.'], 'mock-429': [429, 'RATE_LIMITED', 'A key may ask 120 times a minute.', 7], 'mock-503': [503, 'STORE_UNAVAILABLE', 'The tables could not be read just now.'] };

  function respond(method, url, key, body, idempotencyKey) {
    const now = Date.now(), [, , ...at] = url.pathname.split('/').map(decodeURIComponent), problem = (status, code, detail, after) => [status, { type: 'about:blank', title: code, status, code, detail }, after];
    if (failingKeys[key]) return problem(...failingKeys[key]);
    if (!keys[key]) return problem(401, 'UNAUTHENTICATED', 'Unknown API key. It may have been rotated; ask an administrator for a new one.');
    const [system, role] = keys[key], rank = RANKS.indexOf(role), need = (least) => rank < least && problem(403, 'FORBIDDEN', `This needs the role ${RANKS[least]}; yours is ${role}.`);
    if (idempotencyKey && replays.has(idempotencyKey)) return replays.get(idempotencyKey);
    const path = at.join('/');
    if (path === 'overview') return [200, overviewOf(system, role, now)];
    if (path === 'prs' || path === 'prs/stale') {
      const [state, repo, limit, after] = ['state', 'repo', 'limit', 'after'].map((name) => url.searchParams.get(name));
      const all = [...system.prs.values()].map((one) => fresh(one.item, now)).filter((pr) => (path !== 'prs/stale' || pr.stale) && (!state || pr.state === state) && (!repo || pr.repo === repo)), from = Number(after ?? 0), to = from + Number(limit ?? 50);
      return [200, { prs: all.slice(from, to), next: to < all.length ? String(to) : null }];
    }
    if (at[0] === 'pr') {
      const one = system.prs.get(`${at[1]}/${at[2]}#${at[3]}`);
      if (!one) return problem(404, 'PR_NOT_FOUND', `Suture does not know ${at[1]}/${at[2]}#${at[3]}. It knows a pull request from its first webhook on, and forgets one a day after its end.`);
      advance(one, now);
      if (at[4] === 'status') return [200, statusOf(one, system, role, now)];
      if (at[4] === 'explain') return [200, explainOf(one, url.searchParams.get('live') === 'true')];
      if (at[4] === 'events') return [200, { events: one.events, next: null }];
      if (at[4] === 'command' && method === 'POST') { const [status, payload] = need(1) || command(system, one, body, now); const whole = status < 300 ? [status, payload] : problem(status, payload.code, payload.detail); if (idempotencyKey) replays.set(idempotencyKey, whole); return whole; }
    }
    if (path === 'dlq') return need(2) || [200, { messages: Array.from({ length: system.dlq }, (_, i) => ({ id: `m${i}`, sent_at: iso(startedAt - (i + 1) * 47 * MINUTE), reason: ['PR_NOT_FOUND: the record is gone', 'Jenkins answered 500 five times', null][i % 3], body_excerpt: `{"pr_number":${40 + i},"repo":"acme/shop","command":"/rebuild","source":"reconciler","command_id":"c-${i}`, receive_count: 5 })), approximate_count: system.dlq }];
    if (path === 'insights') return [200, insightsOf(now)];
    if (method !== 'POST') return problem(404, 'NOT_FOUND', 'There is no such path.');
    if (path === 'dlq/redrive') { const moved = system.dlq; return need(2) || ((system.dlq = 0), [202, { moved }]); }
    if (path === 'pause') return need(2) || ((system.paused = { by: `ana-${role}`, reason: body.reason }), [200, { paused: system.paused }]);
    if (path === 'unpause') return need(2) || ((system.paused = null), [200, { paused: null }]);
    if (path === 'circuit-breaker/reset') return need(2) || ((system.breaker = 'closed'), [200, overviewOf(system, role, now).breaker]);
    if (path === 'reconciler/run') return need(1) || [202, { run_id: 'sweep-0420' }];
    if (at[0] === 'runs') {
      const run = [...system.prs.values()].flatMap((one) => one.runs).find(({ id }) => id === at[1]);
      if (!run) return problem(404, 'RUN_NOT_FOUND', 'There is no such run.');
      Object.assign(run, at[2] === 'approve' ? { state: 'pending' } : { state: 'cancelled', completed_at: iso(now), duration_ms: now - Date.parse(run.created_at), compensation: [{ at: iso(now), what: 'budget returned', detail: null }] });
      return need(1) || [202, run];
    }
    return problem(404, 'NOT_FOUND', 'There is no such path.');
  }

  return async (request, response) => {
    const url = new URL(request.url, 'http://mock'), headers = { 'Content-Security-Policy': CSP, 'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer', 'Cache-Control': 'no-store' };
    // Compressed, as the admin function does it: the browser test limits the bytes transferred.
    const send = (status, more, body) => response.writeHead(status, { ...headers, ...more, 'Content-Encoding': 'gzip' }).end(gzipSync(body));
    if (FILES[url.pathname]) {
      const [name, type] = FILES[url.pathname];
      return send(200, { 'Content-Type': `${type}; charset=utf-8` }, await readFile(new URL(name, DASHBOARD)));
    }
    let text = '';
    for await (const chunk of request) text += chunk;
    const key = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
    const [status, payload, after] = url.pathname.startsWith('/api/') ? respond(request.method, url, key, text ? JSON.parse(text) : {}, request.headers['idempotency-key']) : [404, {}];
    return send(status, { ...(after ? { 'Retry-After': after } : {}), 'Content-Type': status < 400 ? 'application/json' : 'application/problem+json' }, JSON.stringify(payload));
  };
}

/** Starts the server on 127.0.0.1; port 0 selects a free port. */
export const start = (port = 0) => new Promise((resolve) => { const server = createServer(handler()); server.listen(port, '127.0.0.1', () => resolve(server)); });

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const server = await start(Number(process.argv[2] ?? 0));
  console.log(`http://127.0.0.1:${server.address().port}/  keys: mock-admin mock-operator mock-viewer mock-empty mock-paused mock-403 mock-429 mock-503`);
}
