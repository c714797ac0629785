/* Plans on the page of choir watch: for each strategy of choir plan its memory, by kind, and the
 * time of its step; the advice with the command to run; what holds the memory of a strategy.
 *
 * page.js, which comes after this script, has the model and the words for numbers. */
'use strict';

const MEMORY = [['parameters', 'weights_bytes'], ['gradients', 'gradients_bytes'],
  ['optimizer', 'optimizer_bytes'], ['activations', 'activations_bytes'],
  ['workspace', 'workspace_bytes'], ['messages', 'messages_bytes']];
const opened = new Set(); // plans whose holders are shown

const labelOf = (s) => (s.mesh ? `${s.strategy}, ${s.mesh}` : s.strategy);
// Where a composition may break on a phone: behind its signs, not inside a word.
const breakable = (text) => text.split(/(?<=[+,=:])/).flatMap((part) => [make('wbr'), part]).slice(1);
// A command, whose lines break between its words, or behind a sign in an option.
const commandOf = (text) => String(text).split(' ').flatMap((word, i) => [i ? ' ' : '',
  ...word.split(/(?<=[+,=:\/])/).map((part) => make('span', { class: 'part' }, part))]);
const commandLine = (text) => make('pre', {}, ...commandOf(text));
const milliseconds = (ms) => (ms >= 1000 ? `${short(ms / 1000)} s` : `${short(ms)} ms`);

// Returns the strategy that the advice takes: of some with its name, the one on the mesh that the
// command says.
function advised(plan) {
  const { strategy, command } = plan.advice || {};
  const alike = plan.strategies.filter((s) => strategy && s.strategy === strategy);
  return alike.find((s) => s.mesh && `${command} `.includes(` --mesh=${s.mesh} `)) || alike[0] || null;
}

// The peak of the fullest device, stacked by kind, as a share of the largest peak.
function drawPeak(strategy, most) {
  const svg = draw('svg', { viewBox: '0 0 300 12', preserveAspectRatio: 'none', role: 'img',
    'aria-label': `the memory of the fullest device of ${labelOf(strategy)} by kind` });
  let at = 0;
  for (const [kind, key] of MEMORY) {
    const held = strategy.fullest[key] || 0, width = held / most * 300;
    svg.append(draw('rect', { class: `of-${kind}`, x: at.toFixed(2), y: 0, height: 12,
      width: width.toFixed(2) }, draw('title', {}, `${kind} ${bytes(held)}`)));
    at += width;
  }
  return svg;
}

function timesOf(s) {
  if (!Number.isFinite(s.step_ms)) return ['–', '–', '–', '–'];
  const spread = `${milliseconds(s.step_ms)} (${milliseconds(s.step_ms_low)} to ${milliseconds(s.step_ms_high)})`;
  return [spread, `${short(s.items_per_s)}/s`, `${Math.round(100 * s.idle)} %`, duration(s.whole_s)];
}

// What matters most comes first: a phone shows some columns, and the others by scrolling.
function planRow(s, most, best) {
  const kind = s === best ? 'best' : s.fits ? '' : 'lacking';
  const words = [...timesOf(s), String(s.world), String(s.microbatches)];
  return make('tr', { class: kind }, make('th', { scope: 'row' }, ...breakable(labelOf(s))),
    make('td', {}, s.fits ? 'yes' : 'no'), make('td', {}, bytes(s.fullest.peak_bytes)),
    make('td', {}, drawPeak(s, most)), ...words.map((text) => make('td', {}, text)));
}

function planTable(plan, best) {
  const rows = plan.strategies.filter((s) => s.fullest);
  const most = Math.max(1, ...rows.map((s) => s.fullest.peak_bytes));
  const heads = ['strategy', 'fits', 'peak', 'of a device', 'step', 'items', 'idle', 'training', 'devices',
    'micro-batches'];
  return make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'the strategies of the plan' },
    make('table', {}, make('thead', {}, make('tr', {}, ...heads.map((text) => make('th', {}, text)))),
      make('tbody', {}, ...rows.map((s) => planRow(s, most, best)))));
}

function planHolders(plan, s) {
  const part = make('details', {}, make('summary', {}, `what holds the memory of ${labelOf(s)}`));
  const rows = s.held.map((h) => make('tr', {}, make('td', {}, bytes(Math.round(h.bytes))),
    make('td', { class: `of-${h.kind}` }, h.kind), make('td', {}, h.name)));
  part.append(make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'the largest holders' },
    make('table', {}, make('tbody', {}, ...rows))));
  part.open = opened.has(plan.path);
  part.addEventListener('toggle', () => opened[part.open ? 'add' : 'delete'](plan.path));
  return part;
}

// What the plan says in words, with the commands.
function planWords(plan) {
  const advice = plan.advice;
  if (!advice) return [make('p', { class: 'quiet' }, 'The plan is still being made.')];
  const words = [make('p', {}, advice.why || '')];
  if (advice.command) words.push(commandLine(advice.command));
  for (const remedy of advice.remedies || [])
    words.push(make('p', {}, `${remedy.change} (${bytes(remedy.memory_bytes)})`), commandLine(remedy.command));
  if (advice.other_microbatches)
    words.push(make('p', {}, `With ${advice.other_microbatches} micro-batches, which give other numbers, ` +
      `a step would take ${milliseconds(advice.other_step_ms)}:`), commandLine(advice.other_command));
  return words;
}

function drawPlan(plan) {
  const best = advised(plan), told = best || plan.strategies.find((s) => s.held && s.held.length);
  const card = make('div', { class: 'plan' }, make('h3', {}, plan.path), ...planWords(plan));
  if (plan.strategies.length) card.append(planTable(plan, best),
    make('p', { class: 'legend quiet' }, ...MEMORY.map(([kind]) =>
      make('span', {}, make('i', { class: `of-${kind}` }), kind))));
  for (const s of plan.strategies.filter((each) => !each.fits && each.lacks))
    card.append(make('p', { class: 'quiet' }, `${labelOf(s)} does not fit: ${s.lacks}.`));
  for (const s of (plan.advice && plan.advice.left_out) || [])
    card.append(make('p', { class: 'quiet' }, `${labelOf(s)} is left out: ${s.why}.`));
  if (told) card.append(planHolders(plan, told));
  return card;
}

let plansDrawn = '';

function drawPlans() {
  const list = [...model.plans.values()], now = JSON.stringify(list), parent = byId('plans');
  parent.parentElement.hidden = !list.length;
  if (plansDrawn === now) return; // a table keeps its place while nothing changes
  plansDrawn = now;
  parent.replaceChildren(...list.map(drawPlan));
}
