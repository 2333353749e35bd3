// A chart: heading, how to read it, controls, plot, CSV; a sentence if there is nothing to draw.
//
//   {id, title, how, wide, controls: [control],
//    build(values) -> {missing} or {traces, layout, note, height, table()}}
//   control: {id, label, options(values) -> [[value, label]]}    {id, label, toggle: initial}
//            {id, label, positions(values) -> [label]}           a slider; its value is the index

const charts = [];

function addSection(title, how) {
  const section = element('section', {}, element('h2', {textContent: title}), element('p', {className: 'how', textContent: how}));
  const grid = element('div', {className: 'charts'});
  section.append(grid);
  document.getElementById('sections').append(section);
  return {section, grid};
}

function addChart(grid, spec) {
  const csv = element('button', {type: 'button', className: 'csv', textContent: 'CSV', title: 'download the data of this chart'});
  csv.setAttribute('aria-label', 'download the data of: ' + spec.title);
  const chart = {
    spec, values: {}, inputs: [], built: null,
    controls: element('div', {className: 'controls'}), plot: element('div', {className: 'plot'}),
    missing: element('p', {className: 'missing', hidden: true}), note: element('p', {className: 'note', hidden: true}),
  };
  csv.addEventListener('click', () => download(spec.id, chart.built.table()));
  chart.csv = csv;
  for (const control of spec.controls || []) addControl(chart, control);
  const figure = element('figure', {className: 'chart' + (spec.wide ? ' wide' : ''), id: 'chart-' + spec.id},
    element('div', {className: 'chart-head'}, element('h3', {textContent: spec.title}), csv),
    element('p', {className: 'how', textContent: spec.how}), chart.controls, chart.plot, chart.missing, chart.note);
  grid.append(figure);
  charts.push(chart);
}

function addControl(chart, control) {
  let input, output = null, refill;
  const changed = (value) => {
    chart.values[control.id] = value;
    draw(chart);
  };
  if (control.options) {
    input = element('select', {'aria-label': control.label});
    input.addEventListener('change', () => changed(input.value));
    refill = () => {
      const options = control.options(chart.values);
      const values = options.map(([value]) => String(value));
      if (!values.includes(String(chart.values[control.id]))) chart.values[control.id] = values[0];
      input.replaceChildren(...options.map(([value, label]) => element('option', {value, textContent: label})));
      input.value = chart.values[control.id];
      label.hidden = options.length < 2;
    };
  } else if (control.positions) {
    input = element('input', {type: 'range', min: 0, step: 1, 'aria-label': control.label});
    output = element('output');
    input.addEventListener('input', () => changed(Number(input.value)));
    refill = () => {
      const labels = control.positions(chart.values);
      if (!(chart.values[control.id] < labels.length)) chart.values[control.id] = Math.max(0, labels.length - 1);
      input.max = Math.max(0, labels.length - 1);
      input.value = chart.values[control.id];
      output.textContent = labels[chart.values[control.id]] || '';
      label.hidden = labels.length < 2;
    };
  } else {
    input = element('input', {type: 'checkbox', checked: control.toggle});
    chart.values[control.id] = control.toggle;
    input.addEventListener('change', () => changed(input.checked));
    refill = () => {};
  }
  input.id = chart.spec.id + '-' + control.id;
  const label = element('label', control.positions ? {className: 'slider'} : {},
    ...(control.toggle === undefined ? [control.label, input] : [input, control.label]), output);
  chart.controls.append(label);
  chart.inputs.push(refill);
}

function layoutOf(built) {
  const ink = css('--ink'), soft = css('--soft'), grid = css('--grid');
  const axis = {gridcolor: grid, linecolor: css('--line'), zeroline: false, tickcolor: css('--line'), automargin: true,
    title: {standoff: 8, font: {size: 12.5, color: soft}}, tickfont: {size: 12, color: soft}};
  const layout = Object.assign({
    height: built.height || (isNarrow() ? 290 : 330), margin: {l: isNarrow() ? 46 : 58, r: 14, t: 12, b: 44},
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font: {family: 'inherit', color: ink, size: 12.5},
    modebar: {bgcolor: 'rgba(0,0,0,0)', color: soft, activecolor: ink}, hovermode: 'closest', dragmode: isNarrow() ? false : 'zoom', showlegend: false, uirevision: 'kept',
    hoverlabel: {bgcolor: css('--card'), bordercolor: css('--line'), font: {color: ink, size: 12.5}, align: 'left', namelength: -1},
    legend: {orientation: 'h', y: -0.2, yanchor: 'top', x: 0, font: {size: 12, color: soft}},
  }, built.layout);
  for (const name of ['xaxis', 'yaxis']) {
    const own = layout[name] || {}, values = built.traces.flatMap((trace) => trace[name[0]] || []);
    const large = own.type !== 'log' && values.some((value) => Math.abs(value) >= 1e4);
    layout[name] = Object.assign({exponentformat: large ? 'SI' : 'power'}, axis, own, {title: Object.assign({}, axis.title, {text: own.title || ''})});
  }
  return layout;
}

// The x axis chosen for the whole page.
const commonX = () => ({title: axes[shown.x].title, type: shown.logX ? 'log' : 'linear'});

// A horizontal reference line: a ceiling or a limit.
function level(at, text) {
  const colour = css('--soft');
  return {
    shape: {type: 'line', xref: 'paper', x0: 0, x1: 1, y0: at, y1: at, line: {color: colour, width: 1, dash: 'dot'}},
    annotation: {xref: 'paper', x: 1, y: at, yanchor: 'bottom', xanchor: 'right', text, showarrow: false, font: {size: 11, color: colour}},
  };
}
const withLevels = (levels) => ({shapes: levels.map((l) => l.shape), annotations: levels.map((l) => l.annotation)});

function draw(chart) {
  for (const refill of chart.inputs) refill();
  let built = chart.spec.build(chart.values);
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
  chart.note.hidden = !built.note;
  chart.note.textContent = built.note || '';
  if (built.missing) return;
  Plotly.react(chart.plot, built.traces, layoutOf(built), {responsive: true, displaylogo: false,
    displayModeBar: !isNarrow(), modeBarButtons: [['toImage', 'zoomIn2d', 'zoomOut2d', 'resetScale2d']],
    toImageButtonOptions: {filename: chart.spec.id, scale: 2}});
}

function drawAll() {
  for (const chart of charts) draw(chart);
}

// One line of a run: series {step, value}.
function line(run, index, series, more = {}) {
  const few = series.step.length < 30;
  const {unit = '', name = run.label, line: style = {}, ...rest} = more;
  return {
    type: 'scatter', mode: few ? 'lines+markers' : 'lines', name: plain(name), x: positions(run, series.step), y: series.value,
    customdata: series.step, marker: {size: series.step.length === 1 ? 9 : 5, color: colourOf(index)},
    line: {color: colourOf(index), width: 1.8, dash: dashOf(index), ...style},
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
  return long.length ? `Long curves show the lowest and highest value of each stretch (${grouped(long[0].series.step.length)} of ` +
    `${grouped(long[0].series.of)} logged values).` : '';
};
