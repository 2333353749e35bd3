// Curves of a run as a whole: loss, bits per byte, everything else that is logged as one number per
// step, and times.

const withTelemetry = () => visible().filter(({run}) => !run.problem);
const noRuns = () => visible().length === 0 ? 'All runs are hidden: click their names above.' : 'No run shown here has readable telemetry.';
const evalOf = (run, task, metric) => (run.evals || []).find((e) => e.task === task && e.metric === metric);
const isSeconds = () => shown.x === 'seconds';
function secondsNote(list = withTelemetry()) {
  if (!isSeconds()) return '';
  const times = list.map(({run}) => (run.scalars.train_s ? run.scalars.train_s.value : []));
  if (times.some((values) => values.every((value) => value === null))) return 'A run without recorded seconds is left out.';
  return times.some((values) => values.includes(null)) ? 'Steps without recorded seconds are left out.' : '';
}

function curveChart(curves, {unit, y, note = '', layout = {}, legend = hasSeeds(), banded = isBanded(), logY = false, height}) {
  if (withTelemetry().length === 0) return {missing: noRuns()};
  const traces = curveTraces(curves, unit, banded), named = traces.filter((trace) => trace.showlegend !== false).length;
  return {
    height, traces,
    layout: {xaxis: commonX(), yaxis: {title: y, type: logY ? 'log' : 'linear'}, showlegend: legend && named > 1 && named <= (isNarrow() ? 6 : 16), ...layout},
    note: [note, banded ? bandNote(curves) : '', thinnedNote(curves), secondsNote()].filter(Boolean).join(' '),
    table: seriesTable(curves.map(({run, of, series}) => ({run, name: of, series}))),
  };
}

// Of losses: "" where all runs are validated on the same text.
function incomparableNote() {
  const differences = report.comparison ? report.comparison.incomparable : [];
  if (differences.length === 0) return '';
  const more = differences.length > 1 ? ` (and ${differences.length - 1} more)` : '';
  return `Not comparable: ${differences[0]}${more}. Where runs differ in this, a lower curve does not show a better model.`;
}

function bitsChart({logY}) {
  const curves = withTelemetry().map(({run}) => ({run, of: 'val_bits_per_byte', series: evalOf(run, 'val', 'bits_per_byte'),
    style: {mode: 'lines+markers'}})).filter(({series}) => series);
  if (curves.length === 0 && withTelemetry().length > 0) {
    return {missing: 'No bits per byte: no validation yet, or the shards have no tokenizer to count bytes with (data.tokenizer).'};
  }
  const note = incomparableNote();
  return curveChart(curves, {unit: 'bits/byte', y: 'bits per byte', logY,
    note: note ? note + ' Bits per byte may be of different vocabularies, but not of different texts.' : 'Comparable across vocabularies.'});
}

const scalarNames = () => [...new Set(runs.flatMap((run) => Object.keys(run.scalars || {})))];
function scalarChart(name, logY) {
  const curves = withTelemetry().map(({run}) => ({run, of: name, series: run.scalars[name]})).filter(({series}) => series);
  if (curves.length === 0) return {missing: withTelemetry().length === 0 ? noRuns() : `No run shown here logged ${name}.`};
  return curveChart(curves, {unit: unitOf(name), y: scalarTitle(name), logY,
    layout: name === 'mfu_share' ? {yaxis: {title: scalarTitle(name), ...(logY ? {type: 'log'} : {rangemode: 'tozero'})}} : {}});
}

function spanChart({span, logY}) {
  const curves = withTelemetry().map(({run}) => ({run, of: span, series: run.spans[span]})).filter(({series}) => series);
  if (curves.length === 0) return {missing: withTelemetry().length === 0 ? noRuns() : 'No time spans were logged.'};
  return curveChart(curves, {unit: 'ms', y: `${span} (milliseconds per step)`, logY});
}

const spanNames = () => [...new Set(runs.flatMap((run) => Object.keys(run.spans || {})))].sort((a, b) => (b === 'step') - (a === 'step'));
const otherEvals = () => [...new Set(runs.flatMap((run) => (run.evals || []).map((e) => e.task + ' ' + e.metric)))]
  .filter((name) => !['val loss_nats', 'val bits_per_byte', 'samples tokens_each'].includes(name));
const orNothing = (names, words = (name) => name) => (names.length ? names : ['']).map((name) => [name, words(name)]);
const preferred = (names, first) => orNothing([...names].sort((a, b) => first.indexOf(b) - first.indexOf(a)), (name) => scalarName(name)[0]);

function evalChart({name, logY}) {
  const curves = withTelemetry().map(({run}) => ({run, of: name, series: (run.evals || []).find((e) => e.task + ' ' + e.metric === name)})).filter(({series}) => series);
  return curveChart(curves, {unit: '', y: name.replace(/_/g, ' '), logY});
}

function addCurves() {
  const logY = {id: 'logY', label: 'log y', toggle: false};
  addSection({id: 'curves', title: 'Curves', how: 'In the bar above, click a name to hide it, and choose the x axis. Drag over a chart to zoom in, double-click to zoom out.', charts: [
    lossSpec(),
    {id: 'bits-per-byte', title: 'Bits per byte', how: 'Validation loss over the bytes of the text.', controls: [logY], build: bitsChart},
    {id: 'scalars', title: 'Everything else by step', how: 'Any number that the run logged once per step.',
      controls: [{id: 'name', label: 'show', options: () => preferred(scalarNames(), ['lr', 'gradient_norm'])}, logY], build: ({name, logY: log}) => scalarChart(name, log)},
    {id: 'evals', title: 'Other evaluations', how: 'By task and metric.', present: () => otherEvals().length > 0,
      controls: [{id: 'name', label: 'show', options: () => orNothing(otherEvals(), (name) => name.replace(/_/g, ' '))}, logY], build: evalChart},
  ]});
}
