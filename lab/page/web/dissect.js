// What the parts of a mixture are worth on held-out text (assay dissect damage).

const dissected = () => visible().filter(({run}) => run.dissect && run.dissect.rows);
const dissectRuns = () => (dissected().length ? dissected().map(({run, index}) => [index, run.label]) : [['', '']]);
const removalWords = {zero: 'still chosen, contribute nothing', next: 'cannot be chosen: the next best take their place', mean: 'contribute their mean output'};
const dissectRows = (values) => runAt(values.of)?.dissect?.rows || [];
const removalsOf = (values) => orNothing([...new Set(dissectRows(values).map((row) => row.removal).filter(Boolean))], (name) => removalWords[name] || name);
const noDissect = () => visible().length === 0 ? noRuns() : 'No run shown here was dissected: assay dissect damage RUN.';

// One bar for each layer and part, with its standard error.
function damageBars(rows, names) {
  const layers = [...new Set(rows.map((row) => row.layer))].sort((a, b) => a - b);
  return layers.map((layer, l) => {
    const at = names.map((name) => rows.find((row) => row.layer === layer && row.without === name));
    return {type: 'bar', name: 'layer ' + layer, x: names.map(plain), y: at.map((row) => (row ? row.nats : null)), marker: {color: layerColour(l, layers.length)},
      error_y: {type: 'data', array: at.map((row) => (row ? row.standard_error : null)), thickness: 1, width: 2},
      customdata: at.map((row) => (row && row.load_share !== null ? `, ${digits(100 * row.load_share, 3)}% of the assignments` : '')),
      hovertemplate: `<b>layer ${layer}</b>, without %{x}%{customdata}<br>%{y:+.4f} nats<extra></extra>`};
  });
}

function damageTable(values, rows) {
  const run = runAt(values.of);
  return () => ({columns: ['run', 'layer', 'without', 'removal', 'load_share', 'damage_nats', 'standard_error'],
    rows: rows.map((row) => [run.label, row.layer, row.without, row.removal || '', row.load_share ?? '', row.nats, row.standard_error ?? ''])});
}

// "10 groups of 409 or 410 experts. " where the rows are of groups.
function groupsText(rows, names) {
  if (!rows.every(isGroup)) return '';
  const sizes = [...new Set(rows.map((row) => row.experts ?? null))].filter((size) => size !== null).sort((a, b) => a - b);
  return `${grouped(names.length)} groups` + (sizes.length ? ` of ${sizes.map((size) => grouped(size)).join(' or ')} experts` : '') + '. ';
}

function damageChart(values, chosen) {
  const run = runAt(values.of);
  if (dissected().length === 0 || !run || !run.dissect) return {missing: noDissect()};
  const rows = chosen(dissectRows(values)), names = [...new Set(rows.map((row) => row.without))];
  if (rows.length === 0) return {missing: `${run.label} has no such row: assay dissect damage measures them.`};
  const {tokens, loss_nats: loss, step} = run.dissect;
  return {traces: damageBars(rows, names), table: damageTable(values, rows), height: isNarrow() ? 300 : 380,
    layout: {barmode: 'group', xaxis: {type: 'category'}, yaxis: {title: 'added to the loss (nats per token)', zeroline: true}, showlegend: !isNarrow()},
    note: `${groupsText(rows, names)}Step ${grouped(step)}, ${grouped(tokens)} held-out tokens, whose loss is ${digits(loss)} nats; bars with their standard errors. Changes are not additive.`};
}

const isGroup = (row) => /^(decile|group) /.test(row.without);
const groupChart = (values) => damageChart(values, (rows) => rows.filter((row) => isGroup(row) && row.removal === values.removal));
const partChart = (values) => damageChart(values, (rows) => rows.filter((row) => !row.removal));

function usedNodes() {
  return visible().filter(({run}) => run.dissect && run.dissect.p_used).map(({run}) => element('p', {className: 'note', textContent:
    `${run.label}, step ${grouped(run.dissect.used_step)}: ${grouped(run.dissect.used_tokens)} held-out tokens reach ${grouped(run.dissect.p_used)} of ${grouped(run.dissect.p_total)} parameters (P_used), one token ${grouped(run.dissect.p_active)}.`}));
}

function addDissect() {
  const run = {id: 'of', label: 'run', options: dissectRuns};
  addSection({id: 'dissect', title: 'What the parts are worth', present: () => runs.some((one) => one.dissect), top: usedNodes,
    how: 'The held-out loss of a checkpoint with one change in one layer, minus the loss without it; assay dissect damage prints the same numbers.', charts: [
      {id: 'damage-groups', title: 'Without a group of the experts', wide: true, how: 'Groups of equally many, the busiest first, by their load on this text; deciles where there are ten. A group that no token chose has a damage of exactly 0.',
        controls: [run, {id: 'removal', label: 'they', options: removalsOf}], build: groupChart},
      {id: 'damage-parts', title: 'Without the other parts', wide: true, how: 'All routed experts, the shared expert, and routers that know nothing or only the token\'s id.',
        controls: [run], build: partChart},
    ]});
}
