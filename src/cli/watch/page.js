/* The page of choir watch. The server tells what happens as server-sent events (run.h, overview.h):
 *
 *   board   how many runs there are, and where they are looked for
 *   run     a run's path, state and job
 *   steps, evals   columns of numbers from a bucket on (table.h)
 *   events  what happened in a run
 *   chain   hashes of a run's audited steps (chain.h)
 *   study   the trials of a search
 *   plan    the strategies of a plan, and its advice (plan.js)
 *   ranks   what ranks do now, on this machine and others
 *   end     the server ends
 *
 * They fill in `model`; a moment later, what has changed is drawn. All words from the server are
 * put into the page as text, never as markup. */
'use strict';

const model = { runs: new Map(), studies: new Map(), plans: new Map(), board: null, jobs: [], troubles: [],
  ended: false };
const choices = { axis: 'step', smooth: 0, log: false, hidden: new Set(), allEvents: false };
const MOST_AT_FIRST = 10;    // runs whose curves are shown unasked
const EVENTS_AT_FIRST = 30;
const DEVICES_AT_FIRST = 32;
const MOST_DEVICES = 256;    // drawn per run
const CHAIN_ENDS = 256;      // steps of a chain that are kept from its beginning, and up to its end
const RECENT = 60;           // seconds of steps whose mean rate is shown

const byId = (id) => document.getElementById(id);

// Makes an element. Attributes are set as such, and children are elements or text.
function make(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

function draw(name, attributes = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// --- words for numbers ---------------------------------------------------------------------------

function shortened(x, digits) {
  if (x === null || x === undefined || Number.isNaN(x)) return '–';
  const size = Math.abs(x);
  if (size >= 1e12 || (size > 0 && size < 1e-3)) return Number(x.toPrecision(digits - 1)).toExponential().replace('e+', 'e');
  for (const [unit, sign] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']])
    if (size >= unit) return trim(x / (unit === 1e4 ? 1e3 : unit), digits) + sign;
  return trim(x, digits);
}

const short = (x) => shortened(x, 4);

const trim = (x, digits = 4) => String(Number(x.toPrecision(digits)));

// The words of an axis' marks, with as many digits as tell each from the others.
function apart(marks, words) {
  let texts = [];
  for (let digits = 4; digits < 16 && new Set(texts).size < marks.length; digits++)
    texts = marks.map((x) => words(x, digits));
  return texts;
}

function bytes(x) {
  for (const [unit, sign] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']])
    if (x >= unit) return `${Number((x / unit).toPrecision(3))} ${sign}`;
  return `${x} B`;
}

function duration(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return '–';
  if (seconds < 90) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${trim(Math.round(seconds / 360) / 10)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

// --- the model -----------------------------------------------------------------------------------

function emptyTable() {
  return { step: [], seconds: [], items: [], columns: {}, leftOut: 0 };
}

function runOf(message) {
  let run = model.runs.get(message.id);
  if (!run || run.generation !== message.generation) {
    run = { id: message.id, generation: message.generation, path: run ? run.path : '', state: '',
      job: run ? run.job : null, steps: emptyTable(), evals: emptyTable(), events: [],
      chain: null };
    model.runs.set(message.id, run);
  }
  return run;
}

// Buckets from `from` on are new, or replace those that are there.
function putBuckets(list, from, values) {
  list.length = Math.min(list.length, from);
  for (const value of values) list.push(value === null ? NaN : value);
}

function takeTable(table, message) {
  table.leftOut = message.left_out;
  for (const axis of ['step', 'seconds', 'items']) putBuckets(table[axis], message.from, message[axis]);
  for (const [name, column] of Object.entries(message.columns)) {
    const mine = Object.hasOwn(table.columns, name) ? table.columns[name] : {};
    for (const [kind, values] of Object.entries(column))
      putBuckets(mine[kind] ??= [], message.from, values);
    Object.defineProperty(table.columns, name, { value: mine, enumerable: true, configurable: true });
  }
}

const takes = {
  board(message) {
    model.board = message;
    model.clock = message.now - performance.now() / 1000;
  },
  run(message) {
    const run = runOf(message);
    if (run.path !== message.path) run.job = null; // the server gave the place to another run
    Object.assign(run, { path: message.path, state: message.state, first: message.first_time,
      last: message.last_time });
    run.job = message.job || run.job;
    if (!('known' in run)) {
      run.known = true;
      if (run.id >= MOST_AT_FIRST && !choices.shownOnce?.has(run.path)) choices.hidden.add(run.path);
    }
  },
  steps: (message) => takeTable(runOf(message).steps, message),
  evals: (message) => takeTable(runOf(message).evals, message),
  events(message) {
    const run = runOf(message);
    const first = run.events.length ? run.events[0].number : message.from;
    run.events.length = Math.max(0, Math.min(run.events.length, message.from - first));
    message.events.forEach((event, i) => run.events.push({ ...event, number: message.from + i }));
    run.events.splice(0, Math.max(0, run.events.length - 1000));
  },
  chain(message) {
    const run = runOf(message);
    if (!run.chain || !message.from) run.chain = { lines: [], modules: [] };
    const { from, lines, ...rest } = message;
    Object.assign(run.chain, rest);
    run.chain.lines.push(...lines);
    run.chain.lines.splice(CHAIN_ENDS, Math.max(0, run.chain.lines.length - 2 * CHAIN_ENDS));
  },
  study(message) { model.studies.set(message.id, message); }, // those of a storage
  plan(message) { model.plans.set(message.id, message); },
  ranks(message) { Object.assign(model, { jobs: message.jobs, troubles: message.troubles }); },
};

const now = () => (model.clock || 0) + performance.now() / 1000;
const runs = () => [...model.runs.values()].filter((run) => run.path);
const shown = () => inOrder(runs().filter((run) => !choices.hidden.has(run.path)));

// --- the trials of a search as runs ---

// The search and the trial whose run this is: FOLDER/NUMBER/..., where FOLDER has the study.
function trialOf(run) {
  for (const storage of model.studies.values())
    for (const study of storage.studies) {
      const folder = study.path.replace(/\/?study\.db$/, '').replace(/\/+$/, '');
      const inside = run.path.startsWith(`${folder}/`) && /^(\d+)(\/|$)/.exec(run.path.slice(folder.length + 1));
      const trial = inside && study.trials.find((t) => t.number === Number(inside[1]));
      if (trial) return { study, trial, best: Boolean(study.best) && study.best.number === trial.number };
    }
  return null;
}

// The class of a run's colour: trials that the search stopped are grey.
function colour(run) {
  const of = trialOf(run);
  return of && of.trial.state === 'PRUNED' ? 'stopped' : `c${run.id % 10}${run.id >= 10 ? ' dashed' : ''}`;
}

// Runs in the order in which they were found, the trials of a search by number behind them.
function inOrder(list) {
  const key = (run) => { const of = trialOf(run); return of ? of.trial.number : -1; };
  const keys = new Map(list.map((run) => [run, key(run)]));
  return [...list].sort((a, b) => keys.get(a) - keys.get(b));
}

// The best trial's curve is shown unasked, too.
function showBest() {
  for (const run of runs()) {
    const of = choices.hidden.has(run.path) && !choices.shownOnce?.has(run.path) ? trialOf(run) : null;
    if (of && of.best) choices.hidden.delete(run.path);
  }
}

// A trial's number, else the last part of the path, or all of it where two runs share that.
function nameOf(run) {
  const of = trialOf(run);
  if (of) return `trial ${of.trial.number}${of.best ? ', the best' : ''}`;
  const last = (path) => path.replace(/\/+$/, '').split('/').pop() || path;
  const mine = last(run.path);
  return runs().some((r) => r !== run && last(r.path) === mine) ? run.path : mine;
}

const lastOf = (list) => (list && list.length ? list[list.length - 1] : NaN);
const lastKnown = (list) => lastOf(list.filter(Number.isFinite)); // steps without a target have no loss
const column = (table, name) => (Object.hasOwn(table.columns, name) ? table.columns[name] : null);

function option(run, name) {
  const options = run.job && run.job.options;
  return options && Object.hasOwn(options, name) ? options[name] : undefined;
}

// --- runs ----------------------------------------------------------------------------------------

// Keeps the elements of a list, so that neither the focus nor an opened part is lost.
function keep(parent, key, build) {
  for (const child of parent.children) if (child.dataset.key === key) return child;
  const child = build();
  child.dataset.key = key;
  parent.append(child);
  return child;
}

function forgetOthers(parent, keys) {
  for (const child of [...parent.children]) if (!keys.has(child.dataset.key)) child.remove();
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function buildRun(run) {
  const box = make('input', { type: 'checkbox' });
  box.checked = !choices.hidden.has(run.path);
  box.addEventListener('change', () => {
    if (box.checked) choices.hidden.delete(run.path);
    else choices.hidden.add(run.path);
    (choices.shownOnce ??= new Set()).add(run.path);
    redraw();
  });
  return make('li', {},
    make('label', {}, box, make('span', { class: `swatch ${colour(run)}` }),
      make('span', { class: 'name' }), make('span', { class: 'state' })),
    make('p', { class: 'quiet figures' }),
    make('details', {}, make('summary', {}, 'job'), make('dl')));
}

function stateOf(run) {
  const silent = run.last === null ? 0 : now() - run.last;
  if (run.state === 'waiting') return 'waiting';
  const quiet = run.state === 'running' && silent > 30;
  const of = quiet || run.state === 'interrupted' ? trialOf(run) : null;
  if (of && stateWords[of.trial.state]) return stateWords[of.trial.state];
  return quiet ? `silent for ${duration(silent)}` : run.state;
}

// A job may hold anything.
function totalOf(run) {
  const steps = option(run, 'steps');
  return typeof steps === 'number' || (typeof steps === 'string' && /^\d+$/.test(steps)) ? Number(steps) : NaN;
}

// The mean rate from one bucket to another: items over the time that the steps took.
function rateBetween(steps, from, to) {
  const seconds = steps.seconds[to] - steps.seconds[from];
  return seconds > 0 ? (steps.items[to] - steps.items[from]) / seconds : NaN;
}

// The mean rate over the last minute of steps, or over all of them; of the first alone its own.
function recentRate(steps) {
  const last = steps.seconds.length - 1, speed = column(steps, 'items_per_s');
  let from = last;
  while (from > 0 && steps.seconds[last] - steps.seconds[from] < RECENT) from--;
  const rate = rateBetween(steps, from, last);
  return Number.isFinite(rate) || !speed ? rate : lastKnown(speed.mean);
}

// The mean rate of each bucket; a mean of the steps' rates would be too high.
function rates(steps) {
  const speed = column(steps, 'items_per_s').mean;
  return speed.map((own, i) => {
    const rate = i ? rateBetween(steps, i - 1, i) : NaN;
    return Number.isFinite(rate) ? rate : own;
  });
}

// A text has more tokens than a batch has samples; elsewhere they are the same.
function unitOf(run) {
  const batch = Number(option(run, 'batch-size')), items = lastOf(run.steps.items);
  if (!(batch > 0) || !Number.isFinite(items)) return '';
  return items > batch * lastOf(run.steps.step) ? 'tokens' : 'samples';
}

function figuresOf(run) {
  const steps = run.steps, step = lastOf(steps.step), total = totalOf(run);
  const parts = [];
  if (Number.isFinite(step)) parts.push(total ? `step ${step} of ${total}` : `step ${step}`);
  const loss = column(steps, 'loss'), evaluated = column(run.evals, 'loss');
  if (loss) parts.push(`loss ${short(lastKnown(loss.mean))}`);
  if (evaluated) parts.push(`validation ${short(lastOf(evaluated.mean))}`);
  const speed = recentRate(steps);
  if (Number.isFinite(speed)) parts.push(`${short(speed)} ${unitOf(run)}/s`.replace(' /', '/'));
  const took = lastOf(steps.seconds);
  if (Number.isFinite(took)) parts.push(`took ${duration(took)}`);
  if (total > step && run.state === 'running' && step > 0)
    parts.push(`${duration((total - step) * took / step)} left`);
  if (steps.leftOut) parts.push('some of its numbers are not shown');
  return parts.join('\u00a0· ') || 'no step yet'; // no line begins with the dot
}

function drawJob(list, run) {
  if (list.dataset.of === String(run.generation) + Boolean(run.job)) return;
  list.dataset.of = String(run.generation) + Boolean(run.job);
  list.replaceChildren();
  const options = (run.job && (run.job.options || run.job)) || {};
  for (const [name, value] of Object.entries(options)) {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    list.append(make('dt', {}, name), make('dd', {}, text));
  }
}

function drawRuns() {
  const list = byId('runs'), keys = new Set();
  showBest();
  for (const run of inOrder(runs())) {
    keys.add(run.path);
    const item = keep(list, run.path, () => buildRun(run)), state = item.querySelector('.state');
    item.querySelector('input').checked = !choices.hidden.has(run.path);
    if (list.children[keys.size - 1] !== item) list.insertBefore(item, list.children[keys.size - 1]);
    item.querySelector('.swatch').className = `swatch ${colour(run)}`;
    setText(item.querySelector('.name'), nameOf(run));
    setText(state, stateOf(run));
    const words = state.textContent;
    const kind = { interrupted: words === 'interrupted' ? 'failed' : '', running: words === 'running' ? words : '' };
    state.className = `state ${kind[run.state] ?? run.state}`;
    setText(item.querySelector('.figures'), figuresOf(run));
    item.querySelector('details').hidden = !run.job;
    drawJob(item.querySelector('dl'), run);
  }
  forgetOthers(list, keys);
  setText(byId('waiting'), waitingWords(model.board));
  byId('waiting').hidden = !byId('waiting').textContent;
  byId('runs').parentElement.hidden = !keys.size && byId('waiting').hidden; // searches or plans alone
  byId('controls').hidden = !keys.size;
}

// What the page does not show, in words.
function waitingWords(board) {
  if (!board) return '';
  const words = [];
  if (!board.runs && !board.studies && !board.plans)
    words.push(`No run yet in ${board.places.join(', ')}. The page waits for one.`);
  if (board.left_out) words.push(`${board.left_out} more runs are left out; name fewer to see them.`);
  if (board.studies_left_out)
    words.push(`${board.studies_left_out} more searches are left out; name fewer to see them.`);
  if (board.plans_left_out)
    words.push(`${board.plans_left_out} more plans are left out; name fewer to see them.`);
  if (board.folders_left_out)
    words.push(`There are too many folders: ${board.folders_left_out} of them are not searched for ` +
      'runs; name the folders of runs themselves.');
  return words.join(' ');
}

// --- charts --------------------------------------------------------------------------------------

const charts = [
  { title: 'Loss', column: 'loss', evals: 'loss', log: true },
  { title: 'Validation accuracy', column: '', evals: 'accuracy' },
  { title: 'Learning rate', column: 'lr', exact: true },
  { title: 'Gradient norm', column: 'grad_norm', log: true },
  { title: 'Tokens or samples per second', column: 'items_per_s', zero: true, rate: true },
  { title: 'Seconds per step', column: 'step_s', zero: true },
];
const MOST_CHARTS = 20;
const box = { width: 560, height: 240, left: 52, right: 10, top: 8, bottom: 22 };

// Exponential smoothing whose beginning is corrected for the missing past, as in choir plot.
function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0, norm = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

// An evaluation knows its step alone; time and items are those of the step.
function evalAxis(run) {
  if (choices.axis === 'step') return run.evals.step;
  const steps = run.steps.step, axis = run.steps[choices.axis];
  return run.evals.step.map((step) => {
    const at = steps.findIndex((s) => s >= step);
    return at < 0 ? lastOf(axis) : axis[at];
  });
}

function curvesOf(chart) {
  const curves = [];
  for (const run of shown()) {
    const steps = column(run.steps, chart.column), evals = column(run.evals, chart.evals || '');
    if (!steps && !evals) continue;
    const mean = steps ? (chart.rate ? rates(run.steps) : steps.mean) : [];
    curves.push({ run,
      x: run.steps[choices.axis],
      raw: mean, low: steps && steps.low, high: steps && steps.high,
      y: smoothed(mean, chart.exact ? 0 : choices.smooth),
      evalX: evals ? evalAxis(run) : [], evalY: evals ? evals.mean : [] });
  }
  return curves;
}

// Distances between marks are 1, 2 or 5 times a power of ten, and at least `least`.
function marks(low, high, count, least = 0) {
  const rough = Math.max((high - low) / count, least), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
  const list = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12) && list.length < 50; i++)
    list.push(i * step);
  return list;
}

function logMarks(low, high) {
  const list = [], wide = high / low > 50;
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const times of wide ? [1] : [1, 2, 5]) list.push(times * 10 ** power);
  const inside = list.filter((y) => y >= low && y <= high);
  return inside.length > 1 ? inside : marks(low, high, 4);
}

function rangeOf(lists, wanted) {
  let low = Infinity, high = -Infinity;
  for (const list of lists)
    for (const value of list)
      if (Number.isFinite(value) && wanted(value)) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
  return [low, high];
}

// Numbers that are larger are drawn at the edge: the distance of two of them is none.
const inReach = (value) => Math.max(-1e300, Math.min(1e300, value));

// Maps values to places in the picture; null: there is nothing to draw.
function scalesOf(chart, curves) {
  const log = Boolean(chart.log) && choices.log;
  let [left, right] = rangeOf(curves.flatMap((c) => [c.x, c.evalX]), () => true);
  let [low, high] = rangeOf(curves.flatMap((c) => [c.raw, c.y, c.evalY]), (y) => !log || y > 0);
  if (left > right || low > high) return null;
  [left, right, low, high] = [left, right, low, high].map(inReach);
  if (chart.zero) low = Math.min(0, low);
  if (left === right) { left -= 0.5; right += 0.5; }
  const around = log ? 0 : (high - low) * 0.04 || Math.abs(high) * 0.05 || 1;
  if (!(chart.zero && low === 0)) low -= around;
  high += around;
  if (log && low === high) { low /= 2; high *= 2; }
  const place = log ? Math.log : (y) => y;
  const width = box.width - box.left - box.right, height = box.height - box.top - box.bottom;
  return { log, left, right, low, high,
    x: (x) => box.left + (inReach(x) - left) / (right - left) * width,
    y: (y) =>
      box.top + (place(high) - place(inReach(y))) / (place(high) - place(low)) * height,
    back: (px) => left + (px - box.left) / width * (right - left) };
}

const inPicture = (scale, x, y) => Number.isFinite(x) && Number.isFinite(y) && (!scale.log || y > 0);

function pathOf(scale, xs, ys) {
  let path = '', pen = false;
  for (let i = 0; i < ys.length; i++) {
    if (!inPicture(scale, xs[i], ys[i])) { pen = false; continue; }
    path += `${pen ? 'L' : 'M'}${scale.x(xs[i]).toFixed(1)},${scale.y(ys[i]).toFixed(1)}`;
    pen = true;
  }
  return path;
}

// The area between the lowest and the highest of each bucket.
function bandOf(scale, c) {
  const there = [], back = [];
  const inside = (y) => Math.max(scale.low, Math.min(scale.high, y));
  for (let i = 0; i < c.low.length; i++) {
    if (!inPicture(scale, c.x[i], inside(c.low[i])) || !Number.isFinite(c.high[i])) continue;
    const x = scale.x(c.x[i]).toFixed(1);
    there.push(`${x},${scale.y(inside(c.high[i])).toFixed(1)}`);
    back.unshift(`${x},${scale.y(inside(c.low[i])).toFixed(1)}`);
  }
  return there.length > 1 ? `M${there.join('L')}L${back.join('L')}Z` : '';
}

// The marks of the axis of steps, items or trials, or of seconds in their largest unit.
function axisMarks(low, high, isTime) {
  if (!isTime) {
    const list = marks(low, high, 5, 1);
    return [list, apart(list, shortened)];
  }
  const units = [[48 * 3600, 86400, 'days'], [5400, 3600, 'h'], [90, 60, 'min'], [-Infinity, 1, 's']];
  const [, unit, name] = units.find(([least]) => high >= least), list = marks(low / unit, high / unit, 5);
  return [list.map((x) => x * unit), apart(list, trim).map((text) => `${text} ${name}`)];
}

function axisText(x) {
  return choices.axis === 'seconds' ? duration(x) : short(x);
}

function drawAxes(scale, isTime = choices.axis === 'seconds') {
  const group = draw('g'), bottom = box.height - box.bottom;
  const up = scale.log ? logMarks(scale.low, scale.high) : marks(scale.low, scale.high, 5);
  const [along, words] = axisMarks(scale.left, scale.right, isTime), ups = apart(up, shortened);
  for (const [i, y] of up.entries()) {
    const at = scale.y(y).toFixed(1);
    group.append(draw('path', { class: 'grid', d: `M${box.left},${at}H${box.width - box.right}` }),
      draw('text', { x: box.left - 6, y: Number(at) + 4, 'text-anchor': 'end' }, ups[i]));
  }
  for (const [i, x] of along.entries()) {
    const at = scale.x(x);
    const anchor = at > box.width - 40 ? 'end' : at < box.left + 15 ? 'start' : 'middle';
    group.append(draw('text', { x: at.toFixed(1), y: bottom + 16, 'text-anchor': anchor }, words[i]));
  }
  return group;
}

function drawCurve(scale, c) {
  const group = draw('g', { class: colour(c.run) });
  if (c.low) group.append(draw('path', { class: 'range', d: bandOf(scale, c) }));
  if (choices.smooth) group.append(draw('path', { class: 'raw', d: pathOf(scale, c.x, c.raw) }));
  group.append(draw('path', { class: 'curve', d: pathOf(scale, c.x, c.y) }));
  if (c.evalX.length > 1 && !c.y.length)
    group.append(draw('path', { class: 'curve', d: pathOf(scale, c.evalX, c.evalY) }));
  const radius = c.evalX.length > 100 ? 1.5 : 3;
  c.evalX.forEach((x, i) => {
    if (inPicture(scale, x, c.evalY[i]))
      group.append(draw('circle', { class: 'mark', r: radius, cx: scale.x(x).toFixed(1),
        cy: scale.y(c.evalY[i]).toFixed(1) }));
  });
  return group;
}

// The index of the value that is nearest to x in an ascending list.
function nearest(list, x) {
  let low = 0, high = list.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] <= x) low = middle;
    else high = middle;
  }
  return high > 0 && Math.abs(list[high] - x) < Math.abs(list[low] - x) ? high : low;
}

// Writes the values at the cursor, or the last ones, below a chart.
function readOut(card, state) {
  const list = card.querySelector('.readout'), at = state.cursor;
  list.replaceChildren();
  if (at !== null) list.append(make('span', {}, axisText(at)));
  for (const c of state.curves) {
    const [xs, ys] = c.y.length ? [c.x, c.y] : [c.evalX, c.evalY];
    const i = at === null ? ys.length - 1 : nearest(xs, at);
    if (i >= 0) list.append(make('span', { class: colour(c.run) }, `${nameOf(c.run)} ${short(ys[i])}`));
  }
}

function moveCursor(card, state, x) {
  const { scale } = state, svg = card.querySelector('svg');
  svg.querySelector('.cursor')?.remove();
  state.cursor = x === null || !scale ? null : Math.max(scale.left, Math.min(scale.right, x));
  if (state.cursor !== null) {
    const at = scale.x(state.cursor).toFixed(1);
    svg.append(draw('path', { class: 'cursor', d: `M${at},${box.top}V${box.height - box.bottom}` }));
  }
  readOut(card, state);
}

function steer(card, state, event) {
  const { scale } = state;
  if (!scale) return;
  const step = (scale.right - scale.left) / (event.shiftKey ? 10 : 100);
  const from = state.cursor === null ? scale.right : state.cursor;
  const to = { ArrowLeft: from - step, ArrowRight: from + step, Home: scale.left, End: scale.right,
    Escape: null }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  moveCursor(card, state, to);
}

const chartStates = new Map(charts.map((chart) => [chart, { cursor: null, scale: null, curves: [] }]));

function buildChart(chart) {
  const state = chartStates.get(chart);
  const svg = draw('svg', { viewBox: `0 0 ${box.width} ${box.height}`, role: 'img', tabindex: 0,
    'aria-label': chart.title, preserveAspectRatio: 'none' });
  const card = make('figure', { class: 'card' }, make('h3', {}, chart.title), svg,
    make('figcaption', { class: 'readout' }));
  const readout = card.querySelector('.readout'); // read aloud for whoever moves the cursor
  svg.addEventListener('focus', () => readout.setAttribute('aria-live', 'polite'));
  svg.addEventListener('blur', () => readout.removeAttribute('aria-live'));
  svg.addEventListener('keydown', (event) => steer(card, state, event));
  svg.addEventListener('pointermove', (event) => {
    const rect = svg.getBoundingClientRect();
    if (state.scale)
      moveCursor(card, state, state.scale.back((event.clientX - rect.left) / rect.width * box.width));
  });
  svg.addEventListener('pointerleave', () => moveCursor(card, state, null));
  return card;
}

// Numbers that validations have besides, such as a metric of one's own, have charts of their own.
function addOwnCharts() {
  const known = new Set(['eval_s', ...charts.map((chart) => chart.evals)]);
  for (const run of runs())
    for (const name of Object.keys(run.evals.columns)) {
      if (known.has(name) || charts.length >= MOST_CHARTS) continue;
      known.add(name);
      const chart = { title: `Validation ${name}`, column: '', evals: name };
      charts.splice(2, 0, chart);
      chartStates.set(chart, { cursor: null, scale: null, curves: [] });
    }
}

function drawCharts() {
  const parent = byId('curves'), keys = new Set();
  addOwnCharts();
  for (const chart of charts) {
    const state = chartStates.get(chart);
    state.curves = curvesOf(chart);
    state.scale = scalesOf(chart, state.curves);
    if (!state.scale) continue;
    keys.add(chart.title);
    const card = keep(parent, chart.title, () => buildChart(chart)), svg = card.querySelector('svg');
    box.width = Math.max(240, svg.clientWidth || 560);
    box.height = svg.clientHeight || 240;
    svg.setAttribute('viewBox', `0 0 ${box.width} ${box.height}`);
    state.scale = scalesOf(chart, state.curves);
    svg.replaceChildren(drawAxes(state.scale), ...state.curves.map((c) => drawCurve(state.scale, c)));
    moveCursor(card, state, state.cursor);
  }
  forgetOthers(parent, keys);
  parent.parentElement.hidden = !keys.size;
}

// --- searches ------------------------------------------------------------------------------------

// The first value of each trial over its number.
function drawTrials(study) {
  const trials = study.trials.filter((trial) => trial.values[0] !== null);
  const svg = draw('svg', { viewBox: `0 0 ${box.width} ${box.height}`, role: 'img',
    'aria-label': 'values of the trials' });
  const numbers = trials.map((trial) => trial.number), values = trials.map((trial) => trial.values[0]);
  const curve = { x: numbers, raw: values, y: values, evalX: [], evalY: [] };
  const scale = scalesOf({ log: true }, [curve]);
  if (!scale) return [];
  svg.append(drawAxes(scale, false));
  for (const trial of trials) {
    if (!inPicture(scale, trial.number, trial.values[0])) continue;
    const best = study.best && study.best.number === trial.number;
    svg.append(draw('circle', { class: `dot ${best ? 'best' : trial.state.toLowerCase()}`,
      r: best ? 5 : 3, cx: scale.x(trial.number).toFixed(1), cy: scale.y(trial.values[0]).toFixed(1) },
    draw('title', {}, `trial ${trial.number}: ${short(trial.values[0])}`)));
  }
  return [svg];
}

const stateWords = { PRUNED: 'stopped early', FAIL: 'failed' };

// A parameter's value with few digits; its whole text appears beside the pointer.
function paramCell(text) {
  const number = /^-?\d*\.\d{5,}(e[-+]?\d+)?$/i.test(text) || /^-?\d+\.?\d*e[-+]?\d+$/i.test(text);
  return number ? make('td', { title: text }, short(Number(text))) : make('td', {}, text);
}

function trialRow(trial, names, best) {
  const value = trial.values.map(short).join(', '), step = trial.step < 0 ? '–' : String(trial.step);
  const state = stateWords[trial.state] ?? trial.state.toLowerCase();
  return make('tr', best ? { class: 'best' } : {},
    ...[String(trial.number), state, value, step].map((text) => make('td', {}, text)),
    ...names.map((name) => paramCell(Object.hasOwn(trial.params, name) ? String(trial.params[name]) : '–')));
}

function drawStudy(study) {
  const names = [...new Set(study.trials.flatMap((trial) => Object.keys(trial.params)))];
  const running = study.trials.filter((trial) => trial.state === 'RUNNING').length;
  const number = study.best ? study.best.number : -1;
  const rows = study.trials.slice(-100).reverse().filter((trial) => trial.number !== number)
    .map((trial) => trialRow(trial, names, false));
  if (study.best) rows.unshift(trialRow(study.best, names, true));
  const heads = ['trial', 'state', 'value', study.unit, ...names].map((text) => make('th', {}, text));
  return make('div', { class: 'study' }, make('h3', {}, study.path),
    make('p', { class: 'quiet' }, `${study.count} trials, ${running} of them running; ` +
      `${study.maximizes[0] ? 'maximised' : 'minimised'}` +
      (study.best ? `; the best so far is trial ${number} with ${study.best.values.map(short).join(', ')}` : '')),
    ...drawTrials(study),
    make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'the newest trials' },
      make('table', {}, make('thead', {}, make('tr', {}, ...heads)), make('tbody', {}, ...rows))));
}

let studiesDrawn = '';

function drawStudies() {
  const parent = byId('studies');
  parent.parentElement.hidden = !model.studies.size;
  box.width = Math.max(240, (parent.clientWidth || 560) - 24);
  box.height = 192;
  const storages = [...model.studies.values()], now = JSON.stringify([box.width, choices.log, storages]);
  if (studiesDrawn === now) return; // a table keeps its place while nothing changes
  studiesDrawn = now;
  parent.replaceChildren(...storages.flatMap((storage) => [
    ...(storage.why ? [make('p', { class: 'failed' }, storage.why)] : []), ...storage.studies.map(drawStudy)]));
}

// --- devices -------------------------------------------------------------------------------------

// The devices of a run, from columns such as device/0/cpu:0/bytes (rank 0).
function devicesOf(run) {
  const devices = new Map();
  for (const [name, values] of Object.entries(run.steps.columns)) {
    const parts = /^device\/(\d+)\/(.+)\/((?:[a-z]+_)?bytes|busy)$/.exec(name);
    if (!parts || devices.size > MOST_DEVICES) continue;
    const key = `rank ${parts[1]}, ${parts[2]}`;
    if (!devices.has(key)) devices.set(key, { rank: Number(parts[1]), key });
    devices.get(key)[parts[3]] = values.mean;
  }
  return [...devices.values()].sort((a, b) => a.rank - b.rank || (a.key < b.key ? -1 : 1));
}

// At most 150 points of a curve, as shares of `most`, in a picture of 300 x 40.
function strip(values, most) {
  const points = [], each = Math.max(1, Math.ceil(values.length / 150));
  for (let i = 0; i < values.length; i += each) {
    const some = values.slice(i, i + each).filter(Number.isFinite);
    if (!some.length) continue;
    const share = some.reduce((a, b) => a + b, 0) / some.length / most;
    const x = values.length > 1 ? i / (values.length - 1) * 300 : 0;
    points.push(`${x.toFixed(1)},${(39 - 38 * Math.min(1, share)).toFixed(1)}`);
  }
  return points;
}

function lastFinite(values) {
  for (let i = (values || []).length - 1; i >= 0; i--) if (Number.isFinite(values[i])) return values[i];
  return NaN;
}

const KINDS = ['weights', 'gradients', 'optimizer']; // of memory; activations are the rest

function buildDevice() {
  const picture = (name) =>
    draw('svg', { class: name, viewBox: '0 0 300 40', preserveAspectRatio: 'none', role: 'img' });
  return make('div', { class: 'device' },
    make('p', {}, make('span', { class: 'name' }), make('span', { class: 'key-busy busy' })),
    picture('use'),
    make('p', {}, make('span', { class: 'key-memory bytes' })), picture('held'),
    make('p', { class: 'kinds' }, ...KINDS.map((kind) => make('span', { class: `key-${kind}` }))));
}

// The area between two strips.
function between(low, high) {
  return `M${high.join('L')}L${[...low].reverse().join('L')}Z`;
}

// Memory by kind, one kind on another, below the line of the peak.
function drawKinds(item, device, most) {
  const parts = [], svg = item.querySelector('svg.held');
  let sum = (device.bytes || []).map(() => 0), low = strip(sum, most);
  for (const kind of KINDS) {
    const held = device[`${kind}_bytes`] || [];
    sum = sum.map((below, i) => below + held[i]);
    const high = strip(sum, most);
    if (high.length > 1 && high.length === low.length)
      parts.push(draw('path', { class: `held-${kind}`, d: between(low, high) }));
    low = high;
    setText(item.querySelector(`.key-${kind}`),
      held.length ? `${kind} ${bytes(lastFinite(held))}` : '');
  }
  for (const [name, values] of [['memory', device.bytes], ['peak', device.peak_bytes]]) {
    const line = strip(values || [], most);
    if (line.length > 1) parts.push(draw('path', { class: name, d: `M${line.join('L')}` }));
  }
  svg.replaceChildren(...parts);
  svg.setAttribute('aria-label', `memory of ${device.key} by kind over the run`);
}

function drawDevice(item, device, most) {
  const busy = strip(device.busy || [], 1);
  const used = lastFinite(device.busy), svg = item.querySelector('svg.use'), parts = [];
  if (busy.length > 1)
    parts.push(draw('path', { class: 'area',
      d: `M${busy[0].split(',')[0]},40L${busy.join('L')}L${busy.at(-1).split(',')[0]},40Z` }),
    draw('path', { class: 'area-line', d: `M${busy.join('L')}` }));
  svg.replaceChildren(...parts);
  svg.setAttribute('aria-label', `use of ${device.key} over the run`);
  setText(item.querySelector('.name'), device.key);
  setText(item.querySelector('.busy'), Number.isFinite(used) ? `busy ${Math.round(100 * used)} %` : '');
  setText(item.querySelector('.bytes'),
    `memory ${bytes(lastFinite(device.bytes))}, at most ${bytes(lastFinite(device.peak_bytes))}`);
  drawKinds(item, device, most);
}

// The devices of a run, which are drawn while they are open; a few are open unasked.
function buildDevices(run, count) {
  const part = make('details', { class: 'of-run' }, make('summary', { class: colour(run) }),
    make('div', { class: 'devices' }));
  part.open = count <= DEVICES_AT_FIRST;
  part.addEventListener('toggle', redraw);
  return part;
}

function drawDevicesOf(run, list, devices) {
  const most = Math.max(1, ...devices.map((d) => lastFinite(d.peak_bytes) || 0));
  for (const device of devices) drawDevice(keep(list, device.key, buildDevice), device, most);
  forgetOthers(list, new Set(devices.map((device) => device.key)));
}

function drawDevices() {
  const parent = byId('devices'), keys = new Set();
  const all = shown().map((run) => [run, devicesOf(run)]).filter(([, devices]) => devices.length);
  const count = all.reduce((sum, [, devices]) => sum + devices.length, 0);
  for (const [run, devices] of all) {
    keys.add(run.path);
    const part = keep(parent, run.path, () => buildDevices(run, count));
    setText(part.querySelector('summary'),
      `${nameOf(run)}: ${devices.length === 1 ? 'one device' : `${devices.length} devices`}`);
    if (part.open) drawDevicesOf(run, part.querySelector('.devices'), devices);
  }
  forgetOthers(parent, keys);
  parent.parentElement.hidden = !keys.size;
}

// --- ranks ---------------------------------------------------------------------------------------

// The time before now in which most ranks have all of their remembered collectives.
function windowOf(ranks) {
  const spans = ranks.filter((r) => r.calls.length).map((r) => Math.max(...r.calls.map((c) => c[1])));
  spans.sort((a, b) => a - b);
  const recent = ranks.flatMap((r) => r.calls.map((c) => c[1] - c[2]));
  return { from: spans.length ? spans[spans.length >> 1] : 0, to: Math.max(0, Math.min(...recent)) };
}

function drawTimeline(job, kinds) {
  const lanes = job.ranks.filter((r) => r.calls.length), view = windowOf(lanes);
  const span = view.from - view.to;
  if (!(span > 0)) return null;
  const height = Math.max(4, Math.min(16, 480 / lanes.length)), width = 800;
  const svg = draw('svg', { viewBox: `0 0 ${width} ${lanes.length * height}`, role: 'img',
    preserveAspectRatio: 'none', height: lanes.length * height,
    'aria-label': `collectives of each rank in the last ${duration(span)}` });
  lanes.forEach((rank, lane) => {
    svg.append(draw('rect', { class: 'lane', x: 0, y: lane * height + 1, width, height: height - 2 }));
    for (const [kind, ago, long, ended] of rank.calls) {
      const x = Math.max(0, (view.from - ago) / span * width), end = (view.from - ago + long) / span * width;
      if (end < 0) continue;
      svg.append(draw('rect', { class: `call c${kinds.indexOf(kind) % 10}${ended ? '' : ' open'}`,
        x: x.toFixed(1), y: lane * height + 1, height: height - 2,
        width: Math.max(0.8, Math.min(width, end) - x).toFixed(1) },
      draw('title', {}, `rank ${rank.rank}: ${kind}, ${duration(long)}${ended ? '' : ' so far'}`)));
    }
  });
  return [svg, make('p', { class: 'quiet' },
    `The last ${duration(span)}, a line per rank: between its collectives a rank computes.`)];
}

function drawRank(rank, slow, where) {
  const devices = rank.devices.map((d) => `${d.device} ${bytes(d.bytes)}, busy ${Math.round(100 * d.busy)} %`);
  const words = [rank.doing, devices.join('; ')].filter(Boolean).join(' · ') || 'no device yet';
  return make('div', { class: `rank${slow ? ' slow' : ''}` },
    make('span', {}, rank.rank < 0 ? `pid ${rank.pid}` : `rank ${rank.rank}`),
    make('span', {}, where ? `${rank.host} · ${words}` : words));
}

function drawRankJob(job) {
  const kinds = [...new Set(job.ranks.flatMap((r) => r.calls.map((c) => c[0])))].sort();
  const many = job.machines > 1, count = job.ranks.length;
  const here = count > 1 ? `${count} of ${job.world} ranks${many ? '' : ' here'}` : 'one process';
  const card = make('div', { class: 'job' },
    make('h3', {}, ...commandOf(job.command)),
    make('p', { class: 'quiet' },
      `${many ? `${job.machines} machines` : job.host}, ${here}, up ${duration(job.age_s)}` +
      (job.generation > 1 ? `, generation ${job.generation}` : '')));
  if (job.slow) {
    const cost = job.slow.per_step_s > 0 ? `, ${duration(job.slow.per_step_s)} per step` : '';
    card.append(make('p', { class: 'failed' }, `rank ${job.slow.rank} is slow: the others wait for it ` +
      `${Math.round(100 * job.slow.share)} % of the time${cost}`));
  }
  const timeline = job.ranks.length > 1 ? drawTimeline(job, kinds) : null;
  if (timeline)
    card.append(...timeline, make('p', { class: 'legend quiet' }, ...kinds.map((kind, i) =>
      make('span', {}, make('i', { class: `c${i % 10}` }), kind))));
  for (const rank of job.ranks)
    card.append(drawRank(rank, job.slow && job.slow.rank === rank.rank, many));
  return card;
}

function drawRanks() {
  byId('ranks').replaceChildren(...model.jobs.map(drawRankJob));
  byId('troubles').replaceChildren(...model.troubles.map((text) => make('li', {}, text)));
  byId('ranks').parentElement.hidden = !model.jobs.length && !model.troubles.length;
}

// --- audits --------------------------------------------------------------------------------------

// Kinds of hashes, in the order in which a step's numbers depend on each other.
const HASHES = [['read_weights', 'a weight that the step read'], ['read_state', 'the state that the step read'],
  ['key', 'the random key'], ['samples', 'which samples are in the batch'], ['batch', 'the batch'],
  ['losses', 'the loss'], ['loss', 'the loss'], ['gradients', 'a gradient'], ['weights', 'a weight after the step'],
  ['state', 'the state after the step']];
const OF_BATCHES = new Set(['samples', 'batch', 'losses']);

// Returns the places at which two lists of hashes differ; null: they are equal, or not known.
function otherPlaces([all, codes], [theirAll, theirCodes]) {
  const places = [];
  let unknown = codes.length !== theirCodes.length;
  if (all === theirAll) return null;
  for (let i = 0; i + 4 <= Math.min(codes.length, theirCodes.length); i += 4) {
    const mine = codes.slice(i, i + 4), theirs = theirCodes.slice(i, i + 4);
    if (mine === '----' || theirs === '----') unknown = true;
    else if (mine !== theirs) places.push(i / 4);
  }
  return places.length || !unknown ? places : null;
}

// The first kind in which two lines of one step differ, and the places; null: they are equal.
function otherHashes(a, b) {
  for (const [kind, name] of HASHES) {
    if (!Array.isArray(a[kind])) {
      if (a[kind] && b[kind] && a[kind] !== b[kind]) return { kind, name, places: [] };
      continue;
    }
    const places = otherPlaces(a[kind], b[kind]);
    if (places) return { kind, name, places };
  }
  return null;
}

// Returns whether two chains have hashes of the same modules, as runs of one model do.
function sameModules(a, b) {
  return JSON.stringify(a.modules || []) === JSON.stringify(b.modules || []);
}

// Compares two chains at the steps that both have.
function compareChains(a, b) {
  const found = { common: 0, last: 0, same: new Set(), other: new Set() };
  if (!sameModules(a, b)) return found;
  const theirs = new Map(b.lines.map((line) => [line.step, line]));
  for (const line of a.lines) {
    const their = theirs.get(line.step);
    if (!their) continue;
    const other = otherHashes(line, their);
    found.common++;
    found.last = line.step;
    (other ? found.other : found.same).add(line.step);
    if (!other) continue;
    found.first ??= { step: line.step, ...other };
  }
  return found;
}

// Of a long chain the page has the two ends.
const isWhole = (chain) => chain.count === chain.lines.length;

function wordsOfDifference(run, reference, found) {
  const both = `${nameOf(reference)} and ${nameOf(run)}`;
  if (!sameModules(run.chain, reference.chain)) return `${both} have different modules, so no hash can be compared.`;
  if (!found.common) return `${both} have no audited step in common.`;
  const rest = isWhole(run.chain) && isWhole(reference.chain) ? ''
    : ` Of long audits only the first and the last ${CHAIN_ENDS} steps are compared here; choir audit diff compares all.`;
  if (!found.first) return `${both} are equal in ${found.common} common steps, up to step ${found.last}.${rest}`;
  const { step, kind, name, places } = found.first, modules = reference.chain.modules || [];
  const place = !places.length || kind === 'key' ? ''
    : OF_BATCHES.has(kind) ? `, in micro-batch ${places[0]}` : `, in module ${modules[places[0]] ?? places[0]}`;
  const more = places.length > 1 ? ` and ${places.length - 1} more` : '';
  return `${both} part at step ${step}: ${name} differs${place}${more}.${rest}`;
}

function drawLinks(run, found) {
  const lines = run.chain.lines, each = 300 / Math.max(1, lines.length);
  const svg = draw('svg', { viewBox: '0 0 300 12', preserveAspectRatio: 'none', role: 'img',
    'aria-label': `${lines.length} audited steps of ${nameOf(run)}` +
      (found ? `, ${found.other.size} of ${found.common} common ones differ` : '') });
  lines.forEach((line, i) => svg.append(draw('rect', { x: (i * each).toFixed(2), y: 0, height: 12,
    width: Math.max(0.5, each * (each > 2 ? 0.85 : 1)).toFixed(2),
    class: `link ${found?.other.has(line.step) ? 'other' : found?.same.has(line.step) ? 'same' : 'alone'}` },
  draw('title', {}, `step ${line.step}: ${line.link}`))));
  return svg;
}

function drawChain(run, reference) {
  const { lines, count, broken, build, bits } = run.chain, last = lines.at(-1);
  const found = run !== reference ? compareChains(reference.chain, run.chain) : null;
  const card = make('div', { class: 'chain' }, make('h3', { class: colour(run) }, nameOf(run)));
  card.append(make('p', { class: 'quiet' }, last
    ? `${count} audited steps, ${lines[0].step} to ${last.step}; ${build}, bits ${bits}` : 'no audited step yet'));
  if (broken) card.append(make('p', { class: 'failed' },
    `The chain breaks at line ${broken} of audit.jsonl: it, or a line before it, was changed or removed.`));
  if (last) card.append(drawLinks(run, found), make('p', { class: 'quiet' }, `step ${last.step} is linked as `,
    make('code', {}, last.link.slice(0, 16)), '…'));
  if (wordsOfCut(run)) card.append(make('p', { class: 'failed' }, wordsOfCut(run)));
  if (found) card.append(make('p', found.first ? { class: 'failed' } : {}, wordsOfDifference(run, reference, found)));
  if (found && found.first) card.append(make('p', { class: 'quiet' }, 'What is behind it: ',
    make('code', {}, `choir audit diff ${reference.path} ${run.path}`)));
  return card;
}

// The chain's end may have been cut off: its links follow each other, but the run has done more steps.
// A run that has not ended well may lack the line of its newest steps.
function wordsOfCut(run) {
  const { lines, every, broken } = run.chain, reached = lastOf(run.steps.step), last = lines.at(-1)?.step ?? 0;
  const spacing = Math.max(every || 1, lines.length > 1 ? last - lines.at(-2).step : 0);
  const lacks = reached >= last + spacing * (run.state === 'ended' ? 1 : 2);
  return lacks && !broken ? `The audit ends with step ${last}, and the run has done ${reached} steps: it was cut, ` +
    'or these steps were not audited.' : '';
}

let chainsDrawn = '';

// Each run is compared with the first one that is shown.
function drawChains() {
  const list = shown().filter((run) => run.chain), drawn = JSON.stringify(list.map((run) =>
    [run.path, run.generation, run.chain.count, run.chain.broken, wordsOfCut(run)]));
  byId('chains').parentElement.hidden = !list.length;
  if (drawn === chainsDrawn) return;
  chainsDrawn = drawn;
  byId('chains').replaceChildren(...list.map((run) => drawChain(run, list[0])));
}

// --- events --------------------------------------------------------------------------------------

const words = {
  begin: (e) => `${e.resumed ? 'continues' : 'begins'}: ${e.strategy}, ${e.world} at work`,
  end: (e) => `ends with loss ${short(e.loss)}`,
  eval: (e) => `validation: loss ${short(e.loss)}${e.accuracy === null || e.accuracy === undefined ? ''
    : `, accuracy ${short(e.accuracy)}`}${e.metric_name ? `, ${e.metric_name} ${short(e.metric)}` : ''}${e.best ? ', the best so far' : ''}`,
  epoch: (e) => `epoch ${e.epoch}: mean loss ${short(e.loss)}`,
  straggler: (e) => `rank ${e.rank} is slow: the others wait ${short(e.cost_s)} s per step for it`,
  checkpoint: (e) => `saved ${e.path}`,
  stop: (e) => (e.by ? `ends here, by --${e.by}` : e.signal ? `ends here, by ${e.signal}` : 'stops here, for the search'),
  edit: (e) => `${e.rewound_from ? `goes back from step ${e.rewound_from}` : 'is edited'}${e.skip_batches
    ? `, leaves out batches ${e.skip_batches}` : ''}, by --${e.by}`,
  failure: (e) => `failed: ${e.message || 'no reason is known'}`,
  interrupted: (e) => e.message || 'interrupted',
  text: (e) => `${e.name}: ${e.text}`,
  membership: (e) => {
    const left = (e.left || []).map((rank) => `rank ${rank.rank} left (${rank.why})`);
    const joined = (e.joined || []).length ? [`joined: ${e.joined.join(', ')}`] : [];
    return `generation ${e.generation}, ${e.world} ranks; ${[...left, ...joined].join('; ')}`;
  },
};

function wordsOf(event) {
  if (event.too_long === true) return `${event.event}, with more than a page shows`;
  if (Object.hasOwn(words, event.event)) {
    try {
      return words[event.event](event);
    } catch { /* its fields are others than ours */ }
  }
  const { event: kind, step, time, number, ...rest } = event;
  return `${kind} ${JSON.stringify(rest)}`;
}

const timeOf = (event) => (Number.isFinite(event.time) ? event.time : 0);

function drawEvents() {
  const all = shown().flatMap((run) => run.events.map((event) => ({ run, event })));
  all.sort((a, b) => timeOf(b.event) - timeOf(a.event) || b.event.number - a.event.number);
  const some = choices.allEvents ? all : all.slice(0, EVENTS_AT_FIRST);
  byId('events').replaceChildren(...some.map(({ run, event }) => make('li', {},
    make('span', { class: 'quiet' }, new Date(timeOf(event) * 1000).toLocaleTimeString([], { hour12: false })),
    make('span', { class: colour(run) }, `${nameOf(run)}, step ${event.step}`),
    make('span', { class: event.event === 'failure' ? 'text failed' : 'text' }, wordsOf(event)))));
  byId('all-events').hidden = some.length === all.length;
  byId('events').parentElement.hidden = !all.length;
}

// --- the whole -----------------------------------------------------------------------------------

let due = false;

// Words from elsewhere that one part cannot draw leave the others as they should be.
function drawAll() {
  due = false;
  for (const drawPart of [drawRuns, drawCharts, drawStudies, drawPlans, drawDevices, drawRanks,
    drawChains, drawEvents])
    try {
      drawPart();
    } catch (error) {
      console.error(error);
    }
  document.title = runs().length === 1 ? `${nameOf(runs()[0])} – Choir` : 'Choir';
}

// Draws soon, with all that comes until then; a page in the background waits to be seen.
function redraw() {
  if (due || document.hidden) return;
  due = true;
  setTimeout(() => requestAnimationFrame(drawAll), 150);
}

function say(text, lost) {
  byId('link').textContent = text;
  byId('link').className = lost ? 'lost' : '';
}

function connect() {
  const source = new EventSource('live');
  source.onopen = () => { // the server tells all from the start
    model.runs.clear();
    model.studies.clear();
    model.plans.clear();
    say('live', false);
  };
  source.onerror = () => {
    if (model.ended) return;
    say('the connection is lost; trying again', true);
    if (source.readyState === 2) setTimeout(connect, 5000); // refused: the browser gives up then
  };
  for (const [name, take] of Object.entries(takes))
    source.addEventListener(name, (event) => {
      try {
        take(JSON.parse(event.data));
      } catch (error) { // the others are still good
        console.error(error);
      }
      redraw();
    });
  source.addEventListener('end', () => {
    model.ended = true;
    source.close();
    say('the server of this page has ended; choir watch shows the runs again', false);
  });
}

function listen() {
  byId('controls').addEventListener('submit', (event) => event.preventDefault());
  byId('axis').addEventListener('change', (event) => { choices.axis = event.target.value; redraw(); });
  byId('log').addEventListener('change', (event) => { choices.log = event.target.checked; redraw(); });
  byId('smooth').addEventListener('input', (event) => {
    choices.smooth = Number(event.target.value) / 100;
    byId('smooth-value').textContent = choices.smooth ? choices.smooth.toFixed(2) : 'none';
    redraw();
  });
  byId('all-events').addEventListener('click', () => { choices.allEvents = true; redraw(); });
  document.addEventListener('visibilitychange', redraw);
  addEventListener('resize', redraw);
  setInterval(redraw, 10000); // "silent for ..." goes on by itself
}

if (typeof document !== 'undefined') { // else it is checked without a browser
  listen();
  connect();
}
