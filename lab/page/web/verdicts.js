// What the routers' verdicts say. The words are those of the program: run.router.analysis.verdict.

const verdictOf = (run) => (run.router ? run.router.analysis.verdict : null);
const stateWords = {too_early: 'too early to say'};

function badgeOf(run) {
  if (!run.moe) return element('span', {className: 'badge dense', textContent: 'dense'});
  const verdict = verdictOf(run);
  if (!verdict) return element('span', {className: 'badge dense', textContent: 'MoE'});
  return element('span', {className: 'badge ' + verdict.state, title: verdict.because + ' Rule: ' + verdict.rule, tabIndex: 0,
    textContent: 'router: ' + (stateWords[verdict.state] || verdict.state)});
}

const layerColumns = [['saturated at', 'saturated_at'], ['cv / ceiling', 'cv_norm'], ['K max load', 'max_load_norm'], ['H / ln E', 'entropy_norm'],
  ['exp(H) / E', 'e_eff_norm'], ['gini', 'gini'], ['dead', 'dead'], ['never used', 'never_used'], ['turnover', 'turnover'], ['cv % at steps', 'step_cv'], ['swing %', 'swing'], ['bias range', 'bias_range'], ['margin', 'margin']];

function layerTable(run) {
  const cell = (value) => (value === null || value === undefined ? null : Number.isInteger(value) ? grouped(value) : digits(value, 3));
  return {columns: ['layer', ...layerColumns.map(([name]) => name)], rows: run.router.analysis.layers.map((l) => [String(l.layer), ...layerColumns.map(([, key]) => cell(l[key]))])};
}

function verdictPanel(run, few) {
  const {because, rule, advice} = verdictOf(run), key = 'layers ' + run.path, last = Math.min(run.router.window, run.router.analysis.logged_steps);
  const why = [element('p', {className: 'soft', textContent: rule}),
    ...(advice.length ? [element('ul', {}, ...advice.map((a) => element('li', {textContent: `${a.because}. Try: ${a.advice}.`})))] : [])];
  return element('div', {className: 'panel verdict'},
    element('div', {className: 'run-head'}, element('h3', {textContent: run.label}), badgeOf(run)),
    element('p', {textContent: because}), ...(few ? why : []),
    detailsNode(key, (few ? '' : 'rule, advice, ') + 'by layer, over the last ' + (last === 1 ? 'logged step' : `${last} logged steps`), ...(few ? [] : why), tableNode(key, layerTable(run))));
}

function verdictPanels() {
  if (!runs.some((run) => run.moe)) {
    return [element('p', {className: 'missing', id: 'no-routers', textContent: runs.length === 1 ? 'No routed experts: the model is dense.' : 'No routed experts: all models here are dense.'})];
  }
  const having = runs.filter((run) => run.router), panels = having.map((run) => verdictPanel(run, having.length <= 3));
  return having.length > 6 ? [detailsNode('verdicts', `verdicts of the ${having.length} runs with routers`, ...panels)] : panels;
}

function addRouters() {
  const of = {id: 'of', label: 'lines', options: allOrLayers}, run = {id: 'of', label: 'run', options: routerRuns}, present = () => runs.some((one) => one.moe);
  const positionsOf = (values) => (chosenRun(values.of) ? chosenRun(values.of).run.router.loads.steps.map((step) => [step, 'step ' + grouped(step)]) : []);
  const measure = {id: 'name', label: 'measure', options: measureOptions};
  addSection({id: 'routers', title: 'Routers', how: 'How the routers spread the tokens. A share of a ceiling compares layers, steps and rules at one number of experts E and one K; across them effective experts / E compares.',
    top: verdictPanels, charts: [
      {id: 'router-curves', title: 'Router balance over time', wide: true, present, how: 'All runs: the mean over the layers of each, shaded from its lowest to its highest layer (up to four runs). One run: one line per layer.',
        controls: [measure, of], build: measureCurves},
      {id: 'router-map', title: 'Layer × step', wide: true, present, how: 'One row per layer, time to the right. The brighter, the higher the measure.', controls: [measure, run], build: measureMap},
      {id: 'loads', title: 'Load by layer × expert', wide: true, present, how: 'Assignments of one step as multiples of the mean: pale is the mean, red is above it, blue is below it, none has the colour at the foot of the scale.',
        controls: [run, {id: 'order', label: 'experts', options: () => [['sorted', 'busiest first'], ['id', 'by id']]}, {id: 'step', label: 'step', positions: positionsOf}], build: loadMap},
      {id: 'ccdf', title: 'Tail of the load (CCDF)', present, how: 'Share of the experts with at least this multiple of the mean load. Even loads drop steeply at 1.', controls: [of], build: tailChart},
      {id: 'dead', title: 'Dead experts', present, how: 'Experts without an assignment in any of the last W logged steps.', controls: [of], build: deadChart},
      {id: 'bias', title: 'Balancing bias', wide: true, present, how: 'The range of the biases, and the distance of scores that they have to bridge.', controls: [of], build: biasChart},
    ]});
}
