// The page from top to bottom: runs, routers' verdicts, tables, sections, and the switches that act
// on all charts.

const stateWords = {too_early: 'too early to say'};
const badgeOf = (run) => {
  if (!run.moe) return element('span', {className: 'badge dense', textContent: 'dense'});
  if (!run.router) return element('span', {className: 'badge dense', textContent: 'MoE'});
  const state = run.router.analysis.verdict.state;
  return element('span', {className: 'badge ' + state, textContent: 'router: ' + (stateWords[state] || state)});
};

function factsOf(run) {
  const facts = [['model', `${run.layers} layers, ${run.hidden} wide` + (run.moe ? `, ${grouped(run.moe.experts)} experts, top-${run.moe.top_k}` : '')],
    ['parameters', run.moe ? `${scaled(run.audit.total)}, ${scaled(run.audit.active)} active` : scaled(run.audit.total)]];
  if (run.problem) return facts;
  const loss = evalOf(run, 'val', 'loss_nats'), bits = evalOf(run, 'val', 'bits_per_byte'), train = run.scalars.train_loss_nats;
  facts.push(['trained', `${scaled(run.tokens)} tokens, ${grouped(run.steps_done)} of ${grouped(run.planned_steps)} steps` +
    (run.end && run.end !== 'steps' ? `, ended by ${run.end.replace(/_/g, ' ')}` : '')]);
  facts.push(['FLOPs', flopsText(flopsAt(run, run.steps_done))]);
  if (loss && last(loss.value) !== null && last(loss.value) !== undefined) facts.push(['validation loss', `${last(loss.value).toFixed(4)} nats` +
    (bits && last(bits.value) ? `, ${last(bits.value).toFixed(4)} bits/byte` : '')]);
  else if (train && last(train.value)) facts.push(['training loss', `${last(train.value).toFixed(4)} nats`]);
  if (run.scalars.train_s) facts.push(['time', secondsText(last(run.scalars.train_s.value)) +
    (run.scalars.tokens_per_s ? `, ${grouped(median(run.scalars.tokens_per_s.value))} tokens/s` : '')]);
  facts.push(['machine', [run.device === 'cpu' ? run.cpu : run.device, run.recipe].filter(Boolean).join(', ') || '–']);
  facts.push(['seed, commit', `${run.seed}, ${run.commit ? run.commit.slice(0, 7) + (run.dirty ? ' with changes' : '') : '–'}`]);
  return facts;
}

const swatchOf = (index) => {
  const swatch = element('span', {className: 'swatch' + (dashOf(index) === 'solid' ? '' : ' dashed')});
  swatch.style.setProperty('--run', colourOf(index));
  return swatch;
};
const warning = (text) => element('p', {className: 'warning', textContent: text});
const warningsOf = (run) => [...(run.problem ? ['No curves: ' + run.problem] : []), ...run.notes];

function fillRuns() {
  const place = document.getElementById('runs');
  const few = runs.length <= 4;
  place.className = few ? 'cards' : 'panel';
  place.replaceChildren(...(few ? runs.map(runCard) : [runTable(),
    ...runs.flatMap((run) => warningsOf(run).map((text) => warning(run.label + ': ' + text)))]));
}

const runCard = (run, index) => element('article', {className: 'run'},
  element('div', {className: 'run-head'}, swatchOf(index), element('h3', {textContent: run.label}), badgeOf(run)),
  element('dl', {}, ...factsOf(run).flatMap(([name, value]) => [element('dt', {textContent: name}), element('dd', {textContent: value})])),
  ...warningsOf(run).map(warning));

function runTable() {
  const facts = runs.map((run) => new Map(factsOf(run)));
  const names = [...new Set(['validation loss', ...facts.flatMap((of) => [...of.keys()])])];
  const row = (run, index) => element('tr', {}, element('td', {}, swatchOf(index), run.label), element('td', {}, badgeOf(run)),
    ...names.map((name) => element('td', {textContent: facts[index].get(name) || '–'})));
  return element('div', {className: 'table'}, element('table', {},
    element('thead', {}, element('tr', {}, ...['run', 'router', ...names].map((text) => element('th', {textContent: text})))),
    element('tbody', {}, ...runs.map(row))));
}

function fillLegend() {
  document.getElementById('legend').replaceChildren(...runs.map((run, index) => {
    const button = element('button', {type: 'button', title: 'hide or show ' + run.label},
      swatchOf(index), run.label);
    button.setAttribute('aria-pressed', String(!shown.hidden.has(index)));
    button.addEventListener('click', () => {
      if (!shown.hidden.delete(index)) shown.hidden.add(index);
      fillLegend();
      drawAll();
    });
    return button;
  }));
}

function tableNode({columns, rows}, sums = []) {
  return element('div', {className: 'table'}, element('table', {},
    element('thead', {}, element('tr', {}, ...columns.map((text) => element('th', {textContent: text})))),
    element('tbody', {}, ...rows.map((row) => element('tr', {className: sums.includes(row[0]) ? 'sum' : ''}, ...row.map((cell) => element('td', {textContent: cell ?? '–'})))))));
}
function addTable(section, id, title, table, before = null, sums = []) {
  const csv = element('button', {type: 'button', className: 'csv', textContent: 'CSV', title: 'download the table'});
  csv.addEventListener('click', () => download(id, table.raw || table));
  const head = element('div', {className: 'chart-head'}, element('h3', {textContent: title}), csv);
  section.insertBefore(element('div', {className: 'panel', id: 'table-' + id}, head, tableNode(table, sums)), before);
}

function addVerdicts(section, before) {
  const having = runs.filter((run) => run.router);
  for (const run of having) {
    const {verdict, layers} = run.router.analysis;
    const columns = ['layer', 'saturated at', 'cv / ceiling', 'K max load', 'H / ln E', 'gini', 'dead', 'never used', 'turnover', 'bias range', 'margin'];
    const cell = (value) => (value === null || value === undefined ? '–' : digits(value, 3));
    const rows = layers.map((l) => [l.layer, cell(l.saturated_at), cell(l.cv_norm), cell(l.max_load_norm), cell(l.entropy_norm), cell(l.gini), cell(l.dead), cell(l.never_used),
      cell(l.turnover), cell(l.bias_range), cell(l.margin)]);
    const why = [element('p', {className: 'soft', textContent: verdict.rule}),
      verdict.advice.length ? element('ul', {}, ...verdict.advice.map((a) => element('li', {textContent: `${a.because}. Try: ${a.advice}.`}))) : ''];
    const few = having.length <= 3;
    section.insertBefore(element('div', {className: 'panel verdict'},
      element('div', {className: 'run-head'}, element('h3', {textContent: run.label}), badgeOf(run)),
      element('p', {textContent: verdict.because}), ...(few ? why : []),
      element('details', {}, element('summary', {textContent: (few ? '' : 'rule, advice, ') + `by layer, over the last ${run.router.window} logged steps`}),
        ...(few ? [] : why), tableNode({columns, rows}))), before);
  }
}

function addRouters() {
  const {section, grid} = addSection('Routers', 'How the routers spread the tokens. Normalised measures (shares of their ceiling) compare across numbers of experts, raw ones do not.');
  if (!runs.some((run) => run.moe)) {
    grid.replaceWith(element('p', {className: 'missing', id: 'no-routers', textContent: runs.length === 1 ? 'No routed experts: the model is dense.' : 'No routed experts: all models here are dense.'}));
    return;
  }
  addVerdicts(section, grid);
  const of = {id: 'of', label: 'of', options: allOrLayers}, run = {id: 'of', label: 'run', options: routerRuns};
  addChart(grid, {id: 'router-curves', title: 'A measure over time', wide: true, how: 'All runs: the mean over the layers of each, shaded from its lowest to its highest layer (up to four runs). One run: one line per layer.',
    controls: [{id: 'name', label: 'measure', options: measureOptions('max_load_norm')}, of], build: measureCurves});
  addChart(grid, {id: 'router-map', title: 'Layer × step', wide: true, how: 'One row per layer, time to the right. Bright is high.',
    controls: [{id: 'name', label: 'measure', options: measureOptions('max_load_norm')}, run], build: measureMap});
  addChart(grid, {id: 'loads', title: 'Load by layer × expert', wide: true, how: 'Assignments of one step as multiples of the mean: pale is the mean, red is above it, blue is below it, black has none.',
    controls: [run, {id: 'order', label: 'experts', options: () => [['sorted', 'busiest first'], ['id', 'by id']]},
      {id: 'step', label: 'step', positions: (values) => (chosenRun(values.of) ? chosenRun(values.of).run.router.loads.steps.map((step) => 'step ' + grouped(step)) : [])}], build: loadMap});
  addChart(grid, {id: 'ccdf', title: 'Tail of the load (CCDF)', how: 'Share of the experts with at least this multiple of the mean load. Even loads drop steeply at 1.', controls: [of], build: tailChart});
  addChart(grid, {id: 'dead', title: 'Dead experts', how: 'Experts without an assignment in any of the last W logged steps.', controls: [of], build: deadChart});
  addChart(grid, {id: 'bias', title: 'Balancing bias', wide: true, how: 'The range of the biases, and the distance of scores that they have to bridge.', controls: [of], build: biasChart});
}

const auditRows = [['embedding', 'embedding'], ['head', 'head'], ['norms', 'norms'], ['attention', 'attention'], ['dense feed-forward', 'dense_ffn'], ['router', 'router'],
  ['routed experts', 'routed_experts'], ['shared experts', 'shared_experts'], ['P_total', 'total'], ['P_active', 'active'], ['active feed-forward width', 'ffn_active_width'],
  ['FLOPs per token', 'flops_per_token'], ['weights', 'weight_bytes'], ['masters', 'master_bytes'], ['gradients', 'gradient_bytes'], ['moments', 'moment_bytes']];

function auditTable() {
  const columns = ['', ...runs.map((run) => run.label)];
  const isBytes = (key) => key.endsWith('_bytes');
  const rows = auditRows.map(([name, key]) => [name, ...runs.map((run) => (isBytes(key) ? bytesText(run.audit[key]) : grouped(run.audit[key])))]);
  const raw = auditRows.map(([name, key]) => [name + (isBytes(key) ? ' (bytes)' : ''), ...runs.map((run) => run.audit[key])]);
  const add = (name, value, text = (v) => digits(v)) => {
    const values = runs.map((run) => (run.problem ? null : value(run)));
    rows.push([name, ...values.map((v) => (v === null ? '–' : text(v)))]);
    raw.push([name, ...values]);
  };
  add('tokens trained', (run) => run.tokens, grouped);
  add('tokens / P_total', (run) => run.tokens / run.audit.total);
  add('tokens / P_active', (run) => run.tokens / run.audit.active);
  add('tokens per routed expert', (run) => (run.moe ? run.tokens * run.moe.top_k / run.moe.experts : null), grouped);
  add('FLOPs trained', (run) => flopsAt(run, run.steps_done), flopsText);
  return {columns, rows, raw: {columns, rows: raw}};
}

function addAudit() {
  const {section, grid} = addSection('Audit', 'Counted from the parameter tables of the models: parameters by role, training FLOPs per token, bytes held.');
  addTable(section, 'audit', 'By model', auditTable(), grid, ['P_total', 'P_active']);
  for (const run of runs) {
    section.append(element('details', {}, element('summary', {textContent: 'configuration of ' + run.label}), element('pre', {textContent: run.config})));
  }
}

function addSwitches() {
  const x = document.getElementById('x-axis'), log = document.getElementById('log-x'), theme = document.getElementById('theme');
  x.addEventListener('change', () => { shown.x = x.value; drawAll(); });
  log.addEventListener('change', () => { shown.logX = log.checked; drawAll(); });
  const apply = () => {
    if (shown.theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = shown.theme;
    theme.textContent = 'theme: ' + shown.theme;
    fillRuns();
    fillLegend();
    drawAll();
  };
  theme.addEventListener('click', () => {
    shown.theme = {auto: 'light', light: 'dark', dark: 'auto'}[shown.theme];
    apply();
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', apply);
  let narrow = isNarrow();
  window.addEventListener('resize', () => {
    if (isNarrow() === narrow) return;
    narrow = isNarrow();
    drawAll();
  });
  apply();
}

addCurves();
addRouters();
addPrecision();
addAudit();
addTimes();
const {curve_points: points} = report.limits;
document.getElementById('about').textContent = `Made by assay report. Logged numbers have 7 significant digits here, router measures 5; loads are exact counts; ` +
  `curves of more than ${grouped(points)} values are thinned, keeping peaks. Seconds between logged steps are interpolated. ` +
  (typeof Plotly === 'undefined' ? '' : `Charts: Plotly.js ${Plotly.version} (MIT licence).`);
addSwitches();
document.body.dataset.ready = 'yes';
