// Throughput and time: what a run took.

// Rows of [name, value of a run, text of the value].
function timeRows() {
  const scalar = (name, of) => (run) => (run.scalars[name] && run.scalars[name].value.length ? of(run.scalars[name]) : null);
  const largest = ({value}) => value.reduce((a, b) => Math.max(a, b ?? 0), 0);
  return [
    ['training time (s)', scalar('train_s', ({value}) => last(value)), secondsText],
    ...(runs.some((run) => !run.problem && timedUpTo(run)) ? [['training time up to step', timedUpTo, grouped]] : []),
    ['tokens/s, median', scalar('tokens_per_s', medianOf), grouped],
    ['mfu, median', scalar('mfu_share', medianOf), (value) => (100 * value).toFixed(1) + '%'],
    ['peak host memory (bytes)', scalar('peak_rss_bytes', largest), bytesText],
    ...spanNames().map((span) => [`${span}, median (ms)`, (run) => (run.spans[span] ? medianOf(run.spans[span]) : null), (value) => digits(value)]),
  ];
}

function timeTable() {
  const rows = timeRows().map(([name, value, text]) => [name, text, ...runs.map((run) => (run.problem ? null : value(run)))]);
  const columns = ['', ...runs.map((run) => run.label)];
  // As a table, units stand at the numbers; as CSV, in the name.
  return turned({columns, rows: rows.map(([name, text, ...values]) => [name.replace(/ \((s|bytes)\)$/, ''), ...values.map((v) => (v === null ? null : text(v)))]),
    raw: {columns, rows: rows.map(([name, , ...values]) => [name, ...values])}});
}

function addTimes() {
  const names = ['tokens_per_s', 'mfu_share', 'peak_rss_bytes'];
  addSection({id: 'times', title: 'Throughput and time', how: 'Measured on the training machine; the seconds of training leave out evaluations and checkpoints.',
    top: () => [tablePanel('times', 'By run', timeTable)],
    charts: [
      {id: 'throughput', title: 'Throughput', how: 'Higher is better. mfu is a share of the peak rate of matrix products: measured on a CPU, that of bf16 on a GPU, so that 8-bit products may exceed 1.',
        controls: [{id: 'name', label: 'show', options: () => orNothing(names.filter((n) => scalarNames().includes(n)), (name) => scalarName(name)[0])}],
        build: ({name}) => scalarChart(name, false)},
      {id: 'spans', title: 'Time spans', how: 'Milliseconds of the parts of a step.',
        controls: [{id: 'span', label: 'show', options: () => orNothing(spanNames())}, {id: 'logY', label: 'log y', toggle: false}], build: spanChart},
    ]});
}
