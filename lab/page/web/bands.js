// Curves of runs as lines, or of the seeds of a model as their mean and the band from the lowest to
// the highest of them.

// What averages and differences are drawn from: a thinned curve has the lowest and the highest value
// of each stretch, which say nothing of its mean.
const averaged = (series) => (series.means ? {...series.means, of: series.of, mean: true} : series);

const meanOf = (list) => list.reduce((a, b) => a + b, 0) / list.length;

// At every step that a seed has: {step, x, mean, low, high, n}, over the seeds that reached it.
function bandOf(curves) {
  const steps = [...new Set(curves.flatMap(({series}) => series.step))].sort((a, b) => a - b);
  return steps.map((step) => {
    const at = curves.map(({run, series}) => ({x: axes[shown.x].at(run, step), value: valueAt(series, step)})).filter(({value}) => value !== null);
    const values = at.map(({value}) => value), places = at.map(({x}) => x).filter((x) => x !== null);
    return {step, n: values.length, x: places.length ? meanOf(places) : null, mean: meanOf(values), low: Math.min(...values), high: Math.max(...values)};
  }).filter(({n}) => n > 0);
}

function bandTraces(curves, unit) {
  const {run, name, style} = curves[0], {paint} = style, points = bandOf(curves);
  const x = points.map((p) => p.x), title = name.replace(run.label, run.modelOf.name);
  const edge = (key, fill) => ({type: 'scatter', mode: 'lines', x, y: points.map((p) => p[key]), line: {width: 0}, fill, fillcolor: faded(paint.colour, 0.18),
    hoverinfo: 'skip', showlegend: false, name: plain(title)});
  const middle = line(run, {step: points.map((p) => p.step), value: points.map((p) => p.mean)}, {unit, ...style, name: title});
  middle.x = x;
  middle.customdata = points.map((p) => [p.step, p.low, p.high, p.n]);
  middle.hovertemplate = `<b>${plain(title)}</b><br>step %{customdata[0]}<br>mean of %{customdata[3]} seeds %{y:.5~g} ${unit}<br>from %{customdata[1]:.5~g} to %{customdata[2]:.5~g}<extra></extra>`;
  return [edge('low', 'none'), edge('high', 'tonexty'), middle];
}

// curves: [{run, of, name, series, style}]; those with one model and one `of` are seeds.
function curveTraces(curves, unit, banded) {
  const alone = (curve) => [line(curve.run, curve.series, {unit, name: curve.name || curve.run.label, ...curve.style})];
  if (!banded) return curves.flatMap(alone);
  const groups = new Map();
  for (const curve of curves) {
    const key = curve.run.modelOf.slot + ' ' + curve.of;
    groups.set(key, [...(groups.get(key) || []), {...curve, name: curve.name || curve.run.label, style: {paint: paintOfModel(curve.run.modelOf), ...curve.style}}]);
  }
  return [...groups.values()].flatMap((seeds) => (seeds.length > 1 ? bandTraces(seeds.map((seed) => ({...seed, series: averaged(seed.series)})), unit) : alone(seeds[0])));
}
const bandNote = (curves) => (curves.some(({run}) => run.modelOf.runs.length > 1) ?
  'Line: mean over the seeds; band: from the lowest to the highest seed.' : '');
