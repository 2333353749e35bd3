// The page from top to bottom, the switches that act on all charts, and updates.

// A part that cannot be drawn leaves the others.
function drawPart(id, draw) {
  drawnOr(draw, (text) => refill(document.getElementById(id), [warning(text)]));
}
function keepApart({spec, charts: own}) {
  for (const part of ['top', 'bottom']) {
    const nodes = spec[part];
    if (nodes) spec[part] = () => drawnOr(nodes, (text) => [warning(text)]);
  }
  for (const chart of own) {
    const {build} = chart.spec;
    chart.spec.build = (...given) => drawnOr(() => build(...given), (missing) => ({missing}));
    chart.inputs = chart.inputs.map((follow) => () => drawnOr(follow, () => {}));  // the chart says it
  }
}

// Words are looked up by names of the data.
for (const words of [scalarUnits, scalarWords, measureWords, removalWords, guards]) Object.setPrototypeOf(words, null);

function drawPage() {
  drawPart('answer', fillAnswer);
  drawPart('runs', fillRuns);
  fillLegend();
  drawAll();
  const {curve_points: points, measure_steps: steps} = report.limits;
  document.getElementById('about').textContent = `Made by assay report. Logged numbers have 7 significant digits here, router measures 5; loads are exact counts; ` +
    `curves of more than ${grouped(points)} values are thinned, keeping peaks. Router measures have at most ${grouped(steps)} logged steps, ` +
    `keeping the peaks of max load and dead experts; number formats as many, evenly chosen. Seconds between logged steps are interpolated. ` +
    (typeof Plotly === 'undefined' ? '' : `Charts: Plotly.js ${Plotly.version} (MIT licence).`);
}

function applyTheme() {
  if (shown.theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = shown.theme;
  document.getElementById('theme').textContent = 'theme: ' + shown.theme;
  drawPage();
}

function addSwitches() {
  const x = document.getElementById('x-axis'), log = document.getElementById('log-x'), seeds = document.getElementById('seeds-as');
  x.addEventListener('change', () => { shown.x = x.value; drawAll(); });
  log.addEventListener('change', () => { shown.logX = log.checked; drawAll(); });
  seeds.addEventListener('change', () => { shown.seeds = seeds.value; drawPage(); });
  document.getElementById('theme').addEventListener('click', () => {
    shown.theme = {auto: 'light', light: 'dark', dark: 'auto'}[shown.theme];
    applyTheme();
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', applyTheme);
  let narrow = isNarrow();
  window.addEventListener('resize', () => {
    markAllEdges();
    if (isNarrow() === narrow) return;
    narrow = isNarrow();
    drawPage();
  });
}

// Draws new data of the same shape. Kept: hidden runs, axes, zooms, sliders, chosen options, open
// details, focus and scroll position.
function update(data) {
  keepingPlace(() => {
    useData(data);
    shown.isUpdate = true;
    drawPage();
    shown.isUpdate = false;
  });
}
window.assayPage = {update};

useData(JSON.parse(document.getElementById('report-data').textContent));
addMatrix();
addCurves();
addSamples();
addRouters();
addDissect();
addPrecision();
addAudit();
addTimes();
addRanks();
sections.forEach(keepApart);
addSwitches();
applyTheme();
markAllEdges();
document.body.dataset.ready = 'yes';
