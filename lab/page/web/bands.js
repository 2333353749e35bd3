// Curves of runs as lines, or of the seeds of a model as their mean and the band from the lowest to
// the highest of them.

// What averages and differences are drawn from: a thinned curve has the lowest and the highest value
// of each stretch, which say nothing of its mean.
const averaged = (series) => (series.means ? {...series.means, of: series.of, mean: true} : series);

const meanOf = (list) => list.reduce((a, b) => a + b, 0) / list.length;

// The last step at which a curve is drawn: with a value, at a known place on the x axis. null: at none.
function endOf({run, series: {step, value}}) {
  for (let i = step.length - 1; i >= 0; --i) {
    if (value[i] !== null && axes[shown.x].at(run, step[i]) !== null) return step[i];
  }
  return null;
}

// At every step that all seeds have: {step, x, mean, low, high, n}. It ends with the first seed that
// does: the mean over the others would jump there, and turn back on an axis of seconds. A seed that
// is drawn at no step is left out.
function bandOf(curves) {
  const seeds = curves.filter((curve) => endOf(curve) !== null);
  const steps = [...new Set(seeds.flatMap(({series}) => series.step))].sort((a, b) => a - b);
  return steps.flatMap((step) => {
    const places = seeds.map(({run}) => axes[shown.x].at(run, step)), values = seeds.map(({series}) => valueAt(series, step));
    if (places.includes(null) || values.includes(null)) return [];
    return [{step, n: values.length, x: meanOf(places), mean: meanOf(values), low: Math.min(...values), high: Math.max(...values)}];
  });
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
function seedsOf(curves) {
  const groups = new Map();
  for (const curve of curves) {
    const key = curve.run.modelOf.slot + ' ' + curve.of;
    groups.set(key, [...(groups.get(key) || []), curve]);
  }
  return [...groups.values()];
}
function curveTraces(curves, unit, banded) {
  const alone = (curve) => [line(curve.run, curve.series, {unit, name: curve.name || curve.run.label, ...curve.style})];
  if (!banded) return curves.flatMap(alone);
  const painted = curves.map((curve) => ({...curve, name: curve.name || curve.run.label, style: {paint: paintOfModel(curve.run.modelOf), ...curve.style}}));
  return seedsOf(painted).flatMap((seeds) => (seeds.length > 1 ? bandTraces(seeds.map((seed) => ({...seed, series: averaged(seed.series)})), unit) : alone(seeds[0])));
}
function bandNote(curves) {
  if (!curves.some(({run}) => run.modelOf.runs.length > 1)) return '';
  const early = seedsOf(curves).flatMap((seeds) => {
    const ends = seeds.map(endOf).filter((step) => step !== null), first = lowestOf(ends);
    return first < highestOf(ends) ? [`${seeds[0].run.modelOf.name} at step ${grouped(first)}`] : [];
  });
  return 'Line: mean over the seeds; band: from the lowest to the highest seed.' +
    (early.length ? ` Both end with the first seed that does: ${[...new Set(early)].join(', ')}.` : '');
}
