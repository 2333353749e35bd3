// Axes of a chart: ranges, tick labels, and the reader's zoom. Every draw states the ranges, so an
// update with longer curves changes neither a zoom nor the rule that chose the first view.

// What a zoom belongs to: it is dropped when the axis shows another quantity.
const axisKey = (chart, name, type) => (name === 'xaxis' ? `${shown.x} ${type}` :
  `${type} ` + (chart.spec.controls || []).filter((control) => !control.positions && !control.press && !control.keepsZoom)
    .map((control) => chart.values[control.id]).join(' '));

function axisOf(chart, built, base, name, own) {
  const type = own.type || 'linear', key = axisKey(chart, name, type);
  const values = built.traces.flatMap((trace) => trace[name[0]] || []).filter((value) => typeof value === 'number' && Number.isFinite(value));
  const large = values.some((value) => Math.abs(value) >= 1e4);
  const axis = Object.assign({exponentformat: large && type !== 'log' ? 'SI' : 'power'}, base,
    // Without a format Plotly.js writes only the digit, in small type, between the powers of ten.
    type === 'log' ? {tickformat: large ? '~s' : '~g'} : {}, own, {title: Object.assign({}, base.title, {text: plain(own.title || '')}), uirevision: Math.random()});
  const range = wholeRange(built, values, name, type, own);
  if (range && !axis.range) axis.range = range;
  const zoom = chart.zoom[name];
  if (zoom && zoom.key === key) axis.range = zoom.range;
  if (type === 'log') Object.assign(axis, logTicks(axis.range || spanOf(values)));
  chart.axisKeys = {...chart.axisKeys, [name]: key};
  return axis;
}

// Powers of ten over many decades, 1, 2 and 5 times them over a few, even steps within one.
const spanOf = (values) => [Math.log10(lowestOf(values.filter((v) => v > 0))), Math.log10(highestOf(values))];
function logTicks([low, high]) {
  const decades = high - low;
  if (decades > 3) return {dtick: Math.ceil(decades / 8)};
  return decades > 0.8 ? {dtick: 'D2'} : {nticks: 6};
}

// null: Plotly.js chooses. A curve of steps begins at 0; a single value stands in the middle of an
// axis that reads well.
function wholeRange(built, values, name, type, own) {
  if (values.length === 0 || own.type === 'category' || built.traces.some((trace) => trace.type === 'heatmap')) return null;
  const low = lowestOf(values), high = highestOf(values);
  if (type === 'log') return low === high && low > 0 ? [Math.log10(low) - 0.5, Math.log10(low) + 0.5] : null;
  if (name === 'xaxis') return own.fromZero && high > 0 ? [0, high * 1.015] : null;
  if (low !== high) return null;
  const pad = Math.abs(low) * 0.1 || 1;
  return own.rangemode === 'tozero' && low >= 0 ? [0, low ? low * 1.2 : 1] : [low - pad, high + pad];
}

// Plotly.js reports drags; a double click or the button gives the first view back.
function watchZoom(chart) {
  chart.plot.on('plotly_relayout', (change) => {
    for (const name of ['xaxis', 'yaxis']) {
      const range = change[name + '.range'] || (name + '.range[0]' in change ? [change[name + '.range[0]'], change[name + '.range[1]']] : null);
      if (range) chart.zoom[name] = {key: chart.axisKeys[name], range};
    }
    // The ticks of a logarithmic axis follow its range.
    const {xaxis, yaxis} = chart.plot.layout;
    if (xaxis.type === 'log' || yaxis.type === 'log') setTimeout(() => draw(chart));
  });
  chart.plot.on('plotly_doubleclick', () => unzoom(chart));
}
function unzoom(chart) {
  chart.zoom = {};
  draw(chart);
}
