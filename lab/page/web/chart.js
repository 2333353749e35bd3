// A chart: heading, how to read it, controls, plot, CSV, SVG (figure.js); a sentence if there is
// nothing to draw.
//
//   {id, title, how, wide, controls: [control], present() (always unless given),
//    build(values) -> {missing} or {traces, layout, note, height, table()}}
//    Plotly interprets HTML in names, categories and hover texts: those of the data go through
//    plain(). Titles of axes do so in axisOf().
//   control: {id, label, options(values) -> [[value, label]]}    {id, label, toggle: initial}
//            {id, label, positions(values) -> [[key, label]]}    a slider; its value is the index
//            {id, label, press(chart)}                           a button

const sections = [], charts = [];

// An update draws the charts near the window at once, the others when they come near.
const nearby = new IntersectionObserver((entries) => {
  for (const {target, isIntersecting} of entries) {
    const chart = charts.find(({figure}) => figure === target);
    chart.near = isIntersecting;
    if (chart.near && chart.stale) draw(chart);
  }
}, {rootMargin: '400px'});

// A section: {id, title, how, present(), top() -> nodes, charts: [spec], bottom() -> nodes}. Parts
// come and go with the data; charts are made once, so an update keeps their controls.
function addSection(spec) {
  const top = element('div', {className: 'top'}), grid = element('div', {className: 'charts'}), bottom = element('div', {className: 'bottom'});
  const node = element('section', {id: 'section-' + spec.id}, element('h2', {textContent: spec.title}),
    element('p', {className: 'how', textContent: spec.how || '', hidden: !spec.how}), top, grid, bottom);
  document.getElementById('sections').append(node);
  sections.push({spec, node, top, grid, bottom, charts: (spec.charts || []).map((chart) => addChart(grid, chart))});
}

function drawSection({spec, node, top, grid, bottom, charts: own}) {
  node.hidden = Boolean(spec.present && !spec.present());
  if (node.hidden) return;
  refill(top, spec.top ? spec.top().filter(Boolean) : []);
  refill(bottom, spec.bottom ? spec.bottom().filter(Boolean) : []);
  for (const chart of own) {
    chart.stale = shown.isUpdate && chart.watched && !chart.near;
    if (!chart.stale) draw(chart);
  }
  grid.hidden = own.every((chart) => chart.figure.hidden);
}

function drawAll() {
  for (const section of sections) drawSection(section);
}

function addChart(grid, spec) {
  const csv = element('button', {type: 'button', className: 'csv', textContent: 'CSV', title: 'download the data of this chart'});
  csv.setAttribute('aria-label', 'download the data of: ' + spec.title);
  const chart = {
    spec, csv, values: {}, chosen: {}, inputs: [], built: null, zoom: {},
    controls: element('div', {className: 'controls'}), plot: element('div', {className: 'plot'}),
    missing: element('p', {className: 'missing', hidden: true}), note: element('p', {className: 'note', hidden: true}),
  };
  csv.addEventListener('click', () => download(spec.id, chart.built.table()));
  chart.svg = drawingButton(chart);
  for (const control of spec.controls || []) addControl(chart, control);
  chart.figure = element('figure', {className: 'chart' + (spec.wide ? ' wide' : ''), id: 'chart-' + spec.id},
    element('div', {className: 'chart-head'}, element('h3', {textContent: spec.title}), csv, chart.svg),
    element('p', {className: 'how', textContent: spec.how}), chart.controls, chart.plot, chart.missing, chart.note);
  grid.append(chart.figure);
  charts.push(chart);
  nearby.observe(chart.figure);
  return chart;
}

function layoutOf(chart, built) {
  const ink = css('--ink'), soft = css('--soft'), grid = css('--grid');
  const axis = {gridcolor: grid, linecolor: css('--line'), zeroline: false, tickcolor: css('--line'), automargin: true, tickangle: 0,
    title: {standoff: 8, font: {size: 12.5, color: soft}}, tickfont: {size: 12, color: soft}};
  const layout = Object.assign({
    height: built.height || (isNarrow() ? 290 : 330), margin: {l: isNarrow() ? 46 : 58, r: 14, t: 12, b: 44},
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font: {family: 'inherit', color: ink, size: 12.5},
    modebar: {bgcolor: 'rgba(0,0,0,0)', color: soft, activecolor: ink}, hovermode: 'closest', dragmode: isNarrow() ? false : 'zoom', showlegend: false, uirevision: 'kept',
    hoverlabel: {bgcolor: css('--card'), bordercolor: css('--line'), font: {color: ink, size: 12.5}, align: 'left', namelength: -1},
    legend: {orientation: 'h', y: -0.2, yanchor: 'top', x: 0, font: {size: 12, color: soft}, traceorder: 'normal', itemclick: false, itemdoubleclick: false},
  }, built.layout);
  for (const name of ['xaxis', 'yaxis']) layout[name] = axisOf(chart, built, axis, name, layout[name] || {});
  titleAbove(layout, soft);
  return layout;
}

// The title of the y axis stands above the plot: beside it, tick labels that grow longer after a
// zoom would lie over it.
function titleAbove(layout, colour) {
  const text = layout.yaxis.title.text;
  if (!text) return;
  layout.yaxis.title = {text: ''};
  layout.margin = {...layout.margin, t: 30};
  layout.annotations = [...(layout.annotations || []), {xref: 'paper', yref: 'paper', x: 0, y: 1, xanchor: 'left', yanchor: 'bottom', yshift: 5,
    xshift: isNarrow() ? -34 : -40, text, showarrow: false, align: 'left', font: {size: 12.5, color: colour}}];
}

// The x axis chosen for the whole page.
const commonX = () => ({title: axes[shown.x].title, type: shown.logX ? 'log' : 'linear', fromZero: true});

// A horizontal reference line: a ceiling or a limit.
function level(at, text) {
  const colour = css('--soft');
  return {
    shape: {type: 'line', xref: 'paper', x0: 0, x1: 1, y0: at, y1: at, line: {color: colour, width: 1, dash: 'dot'}},
    annotation: {xref: 'paper', x: 1, y: at, yanchor: 'bottom', xanchor: 'right', text, showarrow: false, bgcolor: css('--card'), borderpad: 1, font: {size: 11, color: colour}},
  };
}
const withLevels = (levels) => ({shapes: levels.map((l) => l.shape), annotations: levels.map((l) => l.annotation)});

const resetIcon = {width: 24, height: 24, path: 'M12 5V1L6 6l6 5V7a5 5 0 1 1-5 5H5a7 7 0 1 0 7-7z'};

function draw(chart) {
  chart.stale = false;
  chart.figure.hidden = Boolean(chart.spec.present && !chart.spec.present());
  if (chart.figure.hidden) return;
  for (const follow of chart.inputs) follow();
  let built = chart.spec.build(chart.values, chart);
  const hasPoints = (trace) => (trace.z || trace.x || []).length > 0;
  if (!built.missing && !built.traces.some(hasPoints)) built = {missing: 'There is nothing to draw yet.'};
  if (!built.missing && typeof Plotly === 'undefined') {
    built.missing = 'The chart is drawn by Plotly.js, which could not be loaded. Its data is in the CSV.';
  }
  chart.built = built;
  chart.missing.hidden = !built.missing;
  chart.missing.textContent = built.missing || '';
  chart.plot.hidden = Boolean(built.missing);
  chart.csv.hidden = !built.table;
  chart.svg.hidden = Boolean(built.missing);
  chart.note.hidden = !built.note;
  chart.note.textContent = built.note || '';
  if (built.missing) return;
  const reset = {name: 'reset', title: 'Reset the view', icon: resetIcon, click: () => unzoom(chart)};
  Plotly.react(chart.plot, built.traces, layoutOf(chart, built), {responsive: true, displaylogo: false, doubleClick: false,
    displayModeBar: !isNarrow(), modeBarButtons: [['toImage', 'zoomIn2d', 'zoomOut2d', reset]],
    toImageButtonOptions: {filename: chart.spec.id, scale: 2}});
  if (!chart.watched) {
    watchZoom(chart);
    chart.plot.on('plotly_afterplot', () => makeScalable(chart.plot));
  }
  makeScalable(chart.plot);
  chart.watched = true;
}

// On paper, a drawing that is wider than the sheet shrinks to it.
function makeScalable(plot) {
  for (const svg of plot.querySelectorAll('.main-svg')) svg.setAttribute('viewBox', `0 0 ${svg.getAttribute('width')} ${svg.getAttribute('height')}`);
}

// One line of a run: series {step, value}.
function line(run, series, more = {}) {
  const few = series.step.length < 30;
  const {unit = '', name = run.label, line: style = {}, paint: {colour, dash} = paintOf(run), ...rest} = more;
  return {
    type: 'scatter', mode: few ? 'lines+markers' : 'lines', name: plain(name), x: positions(run, series.step), y: series.value,
    customdata: series.step, marker: {size: series.step.length === 1 ? 9 : 5, color: colour},
    line: {color: colour, width: 1.8, dash, ...style},
    hovertemplate: `<b>${plain(name)}</b><br>step %{customdata}<br>%{y:.5~g} ${unit}<extra></extra>`, ...rest,
  };
}

// The CSV of a chart of series, with every x axis. all: [{run, name, series}].
const seriesTable = (all) => () => ({
  columns: ['run', 'series', ...placeColumns, 'value'],
  rows: all.flatMap(({run, name, series}) => series.step.map((step, i) => [run.label, name, ...place(run, step), series.value[i]])),
});
const thinnedNote = (all) => {
  const long = all.filter(({series}) => series.of > series.step.length);
  return long.length ? `Long curves show the lowest and the highest of each stretch of their ${grouped(long[0].series.of)} logged values; ` +
    'smoothed curves, differences and means over seeds go through the mean of each stretch. ' +
    'The CSV has these values; assay telemetry RUN --csv FOLDER writes every logged one.' : '';
};
