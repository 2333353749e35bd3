// A chart as a drawing for a paper: SVG, with the view that the reader chose and in the colours of
// the page's theme.

// The height of a legend, whole: nothing scrolls in a drawing. Plotly gives each name the width of
// the longest one, after a piece of its line.
function legendHeight(names, width, font) {
  const pen = document.createElement('canvas').getContext('2d'), lineWidth = 50, rowHeight = 20;
  pen.font = font;
  const longest = highestOf(names.map((name) => pen.measureText(name).width));
  return rowHeight * (1 + Math.ceil(names.length / Math.max(1, Math.floor(width / (1.05 * longest + lineWidth)))));
}

// A copy, since Plotly writes into what it draws. Where the bar of the page is the legend of a chart,
// its lines have their names in the drawing.
function drawingOf({plot}) {
  const {width, height, _size: size} = plot._fullLayout, lines = plot.data.filter((trace) => trace.type === 'scatter' && trace.showlegend !== false);
  const named = lines.length > 1, layout = structuredClone(plot.layout), family = getComputedStyle(document.body).fontFamily;
  const more = named ? legendHeight(lines.map(({name}) => name), size.w, `${layout.legend.font.size}px ${family}`) : 0;
  return {data: structuredClone(plot.data), width, height: height + more,
    layout: {...layout, showlegend: named, legend: {...layout.legend, maxheight: Math.max(more, 2)}, font: {...layout.font, family}}};
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
