// A chart as a drawing for a paper: SVG, with the view that the reader chose and in the colours of
// the page's theme.

// A copy, since Plotly writes into what it draws. Where the bar of the page is the legend of a chart,
// its lines have their names in the drawing.
function drawingOf({plot}) {
  const {width, height} = plot._fullLayout, lines = plot.data.filter((trace) => trace.type === 'scatter' && trace.showlegend !== false);
  const named = lines.length > 1;
  return {data: structuredClone(plot.data), width, height: height + (named ? 24 * Math.ceil(lines.length / 3) : 0),
    layout: {...structuredClone(plot.layout), showlegend: named, font: {...plot.layout.font, family: getComputedStyle(document.body).fontFamily}}};
}

function downloadDrawing(chart) {
  const {data, layout, width, height} = drawingOf(chart);
  return Plotly.downloadImage({data, layout}, {format: 'svg', filename: chart.spec.id, width, height});
}

function drawingButton(chart) {
  const button = element('button', {type: 'button', className: 'svg', textContent: 'SVG', title: 'download this chart as a drawing, for a paper'});
  button.setAttribute('aria-label', 'download the drawing: ' + chart.spec.title);
  button.addEventListener('click', () => downloadDrawing(chart));
  return button;
}
