'use strict';
// Shared by all parts of the page: numbers as text, positions on the x axis, tables as CSV. The
// data and the reader's choices are in data.js.

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in node && name !== 'list') node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// What `draw` returns. If it fails, as on a run that another program wrote, what `instead` makes of
// a sentence about that; the console has the place.
function drawnOr(draw, instead) {
  try {
    return draw();
  } catch (error) {
    console.error(error);
    return instead(`This part cannot be drawn: ${error.message}. The run's telemetry has something here that the page does not expect, or the page has a defect.`);
  }
}

// Escapes text for Plotly, which interprets some HTML, and %{y} in the texts of points.
const plain = (text) => String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/%\{/g, '&#37;{');

const grouped = (value) => Math.round(value).toLocaleString('en-US');
function digits(value, count = 4) {
  if (value === null || value === undefined) return '–';
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4)) return value.toExponential(count - 1);
  return String(Number(value.toPrecision(count)));
}
const noInterval = (summary) => (summary.n === 1 ? 'one seed: no interval' : summary.sd > 1e-9 * Math.abs(summary.mean) ? 'no interval: 0 or 1 in each run' : 'no interval: equal in all seeds');
const wholeOrDigits = (value) => (Number.isInteger(value) ? grouped(value) : digits(value));
function scaled(value, units = [[1e12, ' T'], [1e9, ' B'], [1e6, ' M'], [1e3, ' k']]) {
  const three = (number) => (Math.abs(number) >= 999.5 ? number.toFixed(0) : number.toPrecision(3));
  for (const [size, unit] of units) if (Math.abs(value) >= 0.9995 * size) return three(value / size) + unit;
  return digits(value, 3);
}
function flopsText(flops) {
  const power = Math.floor(Math.log10(Math.max(1, flops * 1.0005)));  // 9.999e12 is written 1.00e13
  return power < 6 ? grouped(flops) : (flops / 10 ** power).toFixed(2) + 'e' + power;
}
const bytesText = (bytes) => scaled(bytes, [[2 ** 30, ' GiB'], [2 ** 20, ' MiB'], [2 ** 10, ' KiB']]);
function secondsText(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 10) return seconds.toFixed(2) + ' s';
  if (seconds < 120) return seconds.toFixed(1) + ' s';
  return seconds < 7200 ? (seconds / 60).toFixed(1) + ' min' : (seconds / 3600).toFixed(1) + ' h';
}
function median(values) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
}
// Of a series of the page; a thinned one has that of all its values.
const medianOf = (series) => (series.median === undefined ? median(series.value) : series.median);
// Of any number of values: a call with more than some 120,000 arguments, as in Math.min(...values), fails.
const lowestOf = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const highestOf = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
const last = (list) => list[list.length - 1];

// A scalar's name in words, and the unit in its suffix.
const scalarUnits = {nats: 'nats', percent: '%', share: 'share', bytes: 'bytes', ms: 'ms', s: 's'};
const scalarWords = {tokens_per_s: ['throughput', 'tokens per second'], lr: ['learning rate', ''], mfu_share: ['share of peak FLOPs (mfu)', 'share'],
  peak_rss_bytes: ['peak host memory', 'bytes'], train_s: ['time of training', 's'], train_loss_nats: ['training loss', 'nats']};
function scalarName(name) {
  if (scalarWords[name]) return scalarWords[name];
  const parts = name.split('_'), unit = scalarUnits[last(parts)] || '';
  return [(unit && parts.length > 1 ? parts.slice(0, -1) : parts).join(' '), unit];
}
const unitOf = (name) => scalarName(name)[1];
const scalarTitle = (name) => scalarName(name)[0] + (unitOf(name) ? ` (${unitOf(name)})` : '');

// The last step whose time is known, of a run that stopped between two logged steps; null of others.
function timedUpTo(run) {
  const time = run.scalars && run.scalars.train_s;
  return time && time.step.length && last(time.step) < run.steps_done ? last(time.step) : null;
}

// The value at a step, between logged steps on a straight line; null outside of the curve, and
// beside an unknown value.
function valueAt({step, value}, at) {
  let low = 0, high = step.length - 1;
  if (high < 0 || at < step[0] || at > step[high]) return null;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (step[middle] <= at) low = middle; else high = middle;
  }
  if (step[low] === at) return value[low];
  if (step[high] === at || high === low) return value[high];
  if (value[low] === null || value[high] === null) return null;
  return value[low] + (value[high] - value[low]) * (at - step[low]) / (step[high] - step[low]);
}

// Seconds of training at a step: logged, or interpolated; null after the last logged step.
function secondsAt(run, step) {
  const time = run.scalars && run.scalars.train_s;
  if (!time || time.step.length === 0) return null;
  if (step >= time.step[0]) return valueAt(time, step);
  return time.value[0] === null ? null : time.value[0] * step / time.step[0];
}
const tokensAt = (run, step) => step * run.tokens_per_step;
const flopsAt = (run, step) => tokensAt(run, step) * run.audit.flops_per_token;

const axes = {
  step: {title: 'optimizer steps', at: (run, step) => step},
  tokens: {title: 'training tokens', at: tokensAt},
  seconds: {title: 'seconds of training', at: secondsAt},
  flops: {title: 'training FLOPs', at: flopsAt},
};
const positions = (run, steps) => steps.map((step) => axes[shown.x].at(run, step));
const placeColumns = ['step', 'tokens', 'train_s', 'flops'];
const place = (run, step) => [step, tokensAt(run, step), secondsAt(run, step), flopsAt(run, step)];

const faded = (colour, share) => colour + Math.round(255 * share).toString(16).padStart(2, '0');
const layerColour = (index, count) => {
  const at = count < 2 ? 0 : index / (count - 1);
  return isDark() ? `hsl(${205 - 165 * at}, ${60 + 20 * at}%, ${62 + 6 * at}%)`
    : `hsl(${215 - 195 * at}, ${75 - 5 * at}%, ${30 + 14 * at}%)`;
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isNarrow = () => window.innerWidth < 600;

const csvCell = (value) => {
  if (value === null || value === undefined) return '';
  const text = String(value);
  return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
};
function download(name, {columns, rows}) {
  const text = [columns, ...rows].map((row) => row.map(csvCell).join(',')).join('\n') + '\n';
  const link = element('a', {href: URL.createObjectURL(new Blob([text], {type: 'text/csv'})), download: name + '.csv'});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
