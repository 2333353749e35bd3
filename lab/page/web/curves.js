// Curves of a run as a whole: loss, bits per byte, everything else that is logged as one number per
// step, and times.

const withTelemetry = () => visible().filter(({run}) => !run.problem);
const noRuns = () => visible().length === 0 ? 'All runs are hidden: click their names above.' : 'No run shown here has readable telemetry.';
const evalOf = (run, task, metric) => (run.evals || []).find((e) => e.task === task && e.metric === metric);
const isSeconds = () => shown.x === 'seconds';
const secondsNote = () => isSeconds() && withTelemetry().some(({run}) => !run.scalars.train_s) ?
  'A run without recorded seconds is left out.' : '';

function curveChart(curves, {unit, y, note = '', layout = {}, legend = false, logY = false, height}) {
  if (withTelemetry().length === 0) return {missing: noRuns()};
  return {
    height, traces: curves.map(({run, index, name, series, style}) => line(run, index, series, {unit, name: name || run.label, ...style})),
    layout: {xaxis: commonX(), yaxis: {title: y, type: logY ? 'log' : 'linear'}, showlegend: legend && curves.length <= 12 && !isNarrow(), ...layout},
    note: [note, thinnedNote(curves), secondsNote()].filter(Boolean).join(' '),
    table: seriesTable(curves.map(({run, of, series}) => ({run, name: of, series}))),
  };
}

function lossChart({which, logY}) {
  const curves = [];
  for (const {run, index} of withTelemetry()) {
    const train = run.scalars.train_loss_nats, validation = evalOf(run, 'val', 'loss_nats');
    if (train && which !== 'validation') {
      curves.push({run, index, series: train, of: 'train_loss_nats', name: run.label + ', training',
        style: {opacity: 0.65, line: {width: 1}}});
    }
    if (validation && which !== 'training') {
      curves.push({run, index, series: validation, of: 'val_loss_nats', name: run.label + ', validation',
        style: {mode: 'lines+markers', line: {width: 2.2}}});
    }
  }
  const guesses = [...new Set(runs.map((run) => run.vocab_size))].map((v) => `ln ${grouped(v)} = ${Math.log(v).toFixed(2)} nats`);
  return curveChart(curves, {unit: 'nats', y: 'loss (nats per token)', legend: true, logY, height: isNarrow() ? 300 : 400,
    note: 'A uniform guess over the vocabulary costs ' + guesses.join(', ') + '.'});
}

function bitsChart({logY}) {
  const curves = withTelemetry().map(({run, index}) => ({run, index, of: 'val_bits_per_byte', series: evalOf(run, 'val', 'bits_per_byte'),
    style: {mode: 'lines+markers'}})).filter(({series}) => series);
  if (curves.length === 0 && withTelemetry().length > 0) {
    return {missing: 'No bits per byte: no validation yet, or the shards have no tokenizer to count bytes with (data.tokenizer).'};
  }
  return curveChart(curves, {unit: 'bits/byte', y: 'bits per byte', logY});
}

const scalarNames = () => [...new Set(runs.flatMap((run) => Object.keys(run.scalars || {})))];
function scalarChart(name, logY) {
  const curves = withTelemetry().map(({run, index}) => ({run, index, of: name, series: run.scalars[name]})).filter(({series}) => series);
  if (curves.length === 0) return {missing: withTelemetry().length === 0 ? noRuns() : `No run shown here logged ${name}.`};
  const unit = unitOf(name);
  return curveChart(curves, {unit, y: name + (unit ? ` (${unit})` : ''), logY,
    layout: name === 'mfu_share' ? {yaxis: {title: 'mfu (share)', rangemode: 'tozero'}} : {}});
}

function spanChart({span, logY}) {
  const curves = withTelemetry().map(({run, index}) => ({run, index, of: span, series: run.spans[span]})).filter(({series}) => series);
  if (curves.length === 0) return {missing: withTelemetry().length === 0 ? noRuns() : 'No time spans were logged.'};
  return curveChart(curves, {unit: 'ms', y: `${span} (ms per step)`, logY});
}

const spanNames = () => [...new Set(runs.flatMap((run) => Object.keys(run.spans || {})))].sort((a, b) => (b === 'step') - (a === 'step'));
const otherEvals = () => [...new Set(runs.flatMap((run) => (run.evals || []).map((e) => e.task + ' ' + e.metric)))]
  .filter((name) => name !== 'val loss_nats' && name !== 'val bits_per_byte');
const orNothing = (names) => (names.length ? names : ['']).map((name) => [name, name]);
const preferred = (names, first) => orNothing([...names].sort((a, b) => first.indexOf(b) - first.indexOf(a)));

function addCurves() {
  const {grid} = addSection('Curves', 'Each run has its colour. In the bar above, click a name to hide its run, and choose the x axis. ' +
    'Drag over a chart to zoom in, double-click to zoom out.');
  addChart(grid, {id: 'loss', title: 'Loss', wide: true, how: 'Thin: the training batch of each step. Thick with dots: the validation set. Lower is better.',
    controls: [{id: 'which', label: 'show', options: () => [['both', 'training and validation'], ['validation', 'validation'], ['training', 'training']]},
      {id: 'logY', label: 'log y', toggle: false}], build: lossChart});
  addChart(grid, {id: 'bits-per-byte', title: 'Bits per byte', how: 'Validation loss over the bytes of the text: comparable across vocabularies.',
    controls: [{id: 'logY', label: 'log y', toggle: false}], build: bitsChart});
  addChart(grid, {id: 'scalars', title: 'Everything else by step', how: 'Any number that the run logged once per step.',
    controls: [{id: 'name', label: 'show', options: () => preferred(scalarNames(), ['lr', 'gradient_norm'])}, {id: 'logY', label: 'log y', toggle: false}],
    build: ({name, logY}) => scalarChart(name, logY)});
  if (otherEvals().length === 0) return;
  addChart(grid, {id: 'evals', title: 'Other evaluations', how: 'By task and metric.', controls: [{id: 'name', label: 'show', options: () => orNothing(otherEvals())}],
    build: ({name}) => curveChart(withTelemetry().map(({run, index}) => ({run, index, of: name,
      series: (run.evals || []).find((e) => e.task + ' ' + e.metric === name)})).filter(({series}) => series), {unit: '', y: name})});
}

function timeTable() {
  const columns = ['', ...runs.map((run) => run.label)];
  const spans = spanNames();
  const of = (run, text) => (run.problem ? '–' : text(run) ?? '–');
  const rows = [
    ['training time', ...runs.map((run) => of(run, (r) => r.scalars.train_s && secondsText(last(r.scalars.train_s.value))))],
    ['tokens/s, median', ...runs.map((run) => of(run, (r) => r.scalars.tokens_per_s && grouped(median(r.scalars.tokens_per_s.value))))],
    ['mfu, median', ...runs.map((run) => of(run, (r) => r.scalars.mfu_share && (100 * median(r.scalars.mfu_share.value)).toFixed(1) + '%'))],
    ['peak memory', ...runs.map((run) => of(run, (r) => r.scalars.peak_rss_bytes && bytesText(Math.max(...r.scalars.peak_rss_bytes.value))))],
    ...spans.map((span) => [`span ${span}, median ms`, ...runs.map((run) => of(run, (r) => r.spans[span] && digits(median(r.spans[span].value))))]),
  ];
  return {columns, rows};
}

function addTimes() {
  const {section, grid} = addSection('Throughput and time', 'Measured on the training machine; the seconds of training leave out evaluations and checkpoints.');
  addTable(section, 'times', 'By run', timeTable(), grid);
  const names = ['tokens_per_s', 'mfu_share', 'peak_rss_bytes'];
  addChart(grid, {id: 'throughput', title: 'Throughput', how: 'Higher is better. The ceiling of mfu is 1: only matrix products, at the machine\'s peak rate.',
    controls: [{id: 'name', label: 'show', options: () => orNothing(names.filter((n) => scalarNames().includes(n)))}],
    build: ({name}) => scalarChart(name, false)});
  addChart(grid, {id: 'spans', title: 'Time spans', how: 'Milliseconds of the parts of a step.',
    controls: [{id: 'span', label: 'show', options: () => orNothing(spanNames())}, {id: 'logY', label: 'log y', toggle: false}], build: spanChart});
}
