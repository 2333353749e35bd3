// The loss chart: training and validation, the first view, smoothing, differences to a run.

const smoothings = [[0, 'off'], [0.5, '2 steps'], [0.8, '5 steps'], [0.9, '10 steps'], [0.95, '20 steps'], [0.98, '50 steps'], [0.99, '100 steps'],
  [0.995, '200 steps'], [0.998, '500 steps']];
const validationOf = (run) => evalOf(run, 'val', 'loss_nats');
const validated = () => withTelemetry().filter(({run}) => validationOf(run) && validationOf(run).step.length > 1);

// An exponential average over steps that forgets by `weight` per step and begins without a bias.
function smoothed({step, value, of}, weight) {
  let sum = 0, total = 0;
  return {step, of, value: value.map((v, i) => {
    if (v === null) return null;
    const keep = weight ** (i > 0 ? step[i] - step[i - 1] : 1);
    sum = keep * sum + (1 - keep) * v;
    total = keep * total + (1 - keep);
    return sum / total;
  })};
}

function lossCurves(which) {
  const curves = [];
  for (const {run} of withTelemetry()) {
    const train = run.scalars.train_loss_nats, validation = validationOf(run);
    const one = which === 'both' ? {training: ', training', validation: ', validation'} : {training: '', validation: ''};
    if (train && which !== 'validation') curves.push({run, series: train, of: 'train_loss_nats', name: run.label + one.training, style: {opacity: 0.65, line: {width: 1}}});
    if (validation && which !== 'training') {
      curves.push({run, series: validation, of: 'val_loss_nats', name: run.label + one.validation, style: {mode: 'lines+markers', line: {width: 2.2}}});
    }
  }
  return curves;
}

function smoothCurves(curves, weight, isDifference) {
  if (weight === 0) return curves;
  return curves.flatMap((curve) => {
    if (curve.of !== 'train_loss_nats') return [curve];
    const smooth = {...curve, series: smoothed(averaged(curve.series), weight), style: {line: {width: 1.8}, mode: 'lines'}};
    const raw = {...curve, of: 'raw', style: {opacity: 0.22, line: {width: 1}, hoverinfo: 'skip', showlegend: false}};
    return isBanded() || isDifference ? [smooth] : [raw, smooth];
  });
}

// Curves minus that of the reference at the same place on the x axis: the same seed's, if the
// reference is a model that has it.
function differencesTo(reference, given) {
  const curves = given.map((curve) => ({...curve, series: averaged(curve.series)}));
  const members = curves.filter(({run}) => reference.runs.includes(run));
  return curves.flatMap((curve) => {
    const same = members.filter(({of}) => of === curve.of);
    const base = same.find(({run}) => run === curve.run) || same.find(({run}) => run.seed === curve.run.seed) || same[0];
    if (!base) return [];
    const places = positions(base.run, base.series.step), isKnown = (_, i) => places[i] !== null;
    const at = {step: places.filter(isKnown), value: base.series.value.filter(isKnown)}, x = positions(curve.run, curve.series.step);
    const kept = curve.series.step.map((step, i) => ({step, v: curve.series.value[i], b: x[i] === null ? null : valueAt(at, x[i])})).filter(({v, b}) => v !== null && b !== null);
    return [{...curve, series: {step: kept.map(({step}) => step), value: kept.map(({v, b}) => v - b), of: curve.series.of, mean: curve.series.mean}}];
  });
}

const referenceOptions = () => [['', 'nothing'], ...(isBanded() ? models.filter((model) => model.runs.some((run) => !shown.hidden.has(run.slot))).map((model) => ['m' + model.slot, model.name]) :
  withTelemetry().map(({run}) => ['r' + run.slot, run.label]))];
function referenceOf(value) {
  if (!value) return null;
  if (value[0] === 'm') return models.find((model) => 'm' + model.slot === value);
  return {name: runAt(value.slice(1)).label, runs: [runAt(value.slice(1))]};
}

const evaluationSteps = () => [...new Set(withTelemetry().flatMap(({run}) => (validationOf(run) || {step: []}).step))].sort((a, b) => a - b);
const fromPositions = () => {
  const steps = evaluationSteps();
  return [[0, 'the start'], ...steps.slice(0, Math.max(0, steps.length - 2)).map((step) => [step, 'step ' + grouped(step)])];
};

function drawnLosses({which, reference}) {
  const base = referenceOf(reference), curves = lossCurves(which);
  return base ? differencesTo(base, curves) : curves;
}

// The first view begins where the runs differ: at the first evaluation from which the last
// difference fills a quarter of the height, but not after the last third of the evaluations, nor
// after the end of a curve, whose last value would be out of view.
function firstPosition(values, positionsOf) {
  const curves = validated().map(({run}) => validationOf(run));
  if (curves.length < 2) return 0;
  const end = lowestOf(curves.map(({step}) => last(step))), ends = curves.map((curve) => valueAt(curve, end)).filter((v) => v !== null);
  const spread = highestOf(ends) - lowestOf(ends);
  const firstEnd = lowestOf(drawnLosses(values).map(endOf).filter((step) => step !== null));
  let latest = Math.min(positionsOf.length - 1, Math.floor(2 * positionsOf.length / 3));
  while (latest > 0 && positionsOf[latest][0] > firstEnd) --latest;
  for (let i = 0; i < latest; ++i) {
    const losses = curves.flatMap(({step, value}) => value.filter((v, k) => v !== null && step[k] >= positionsOf[i][0]));
    if (spread >= (highestOf(losses) - lowestOf(losses)) / 4) return i;
  }
  return latest;
}

// The ranges from a step on.
function rangesFrom(step, curves, logY) {
  const points = curves.flatMap(({run, series}) => series.step.map((s, i) => ({s, x: axes[shown.x].at(run, s), y: series.value[i]})))
    .filter(({s, x, y}) => s >= step && x !== null && y !== null);
  if (points.length < 2) return {};
  const xs = points.map(({x}) => x), ys = points.map(({y}) => (logY ? Math.log10(y) : y)).filter(Number.isFinite);
  const of = (values, pad) => {
    const low = lowestOf(values), high = highestOf(values), more = pad * (high - low);
    return high > low ? [low - more, high + more] : undefined;
  };
  return {x: of(shown.logX ? xs.map(Math.log10) : xs, 0.02), y: of(ys, 0.06)};
}

// The validations of a public run, whose log has steps and neither tokens nor seconds.
const anchorShown = (which, base) => Boolean(report.anchor) && which !== 'training' && !base && shown.x === 'step';
function withAnchor(built) {
  const {name, says, val_loss_nats: series} = report.anchor, colour = css('--soft');
  built.traces.push({type: 'scatter', mode: 'lines', name: plain(says), x: series.step, y: series.value, line: {color: colour, width: 2, dash: 'dot'},
    hovertemplate: `<b>${plain(says)}</b><br>%{y:.5~g} nats<br>step %{x:,}<extra></extra>`});
  built.layout.showlegend = true;
  const own = built.table;
  built.table = () => {
    const {columns, rows} = own();
    return {columns, rows: [...rows, ...series.step.map((step, i) => columns.map((column) => ({run: name, series: 'val_loss_nats', step, value: series.value[i]}[column] ?? null)))]};
  };
}

function lossChart({which, logY, smooth, reference, from}) {
  if (withTelemetry().length === 0) return {missing: noRuns()};
  const base = referenceOf(reference), raw = lossCurves(which);
  const all = base ? differencesTo(base, raw) : raw;
  if (raw.length > 0 && all.every(({series}) => series.step.length === 0)) return {missing: `No run shown has a loss where ${base.name} has one.`};
  const weight = which === 'validation' ? 0 : smoothings[smooth][0];
  const curves = base ? differencesTo(base, smoothCurves(raw, weight, true)) : smoothCurves(raw, weight, false);
  const [start, startText] = fromPositions()[from] || [0, ''], isLog = logY && !base;
  const ranges = start > 0 ? rangesFrom(start, curves, isLog) : {};
  const guesses = [...new Set(runs.map((run) => run.vocab_size))].map((v) => `ln ${grouped(v)} = ${Math.log(v).toFixed(2)} nats`);
  const title = base ? `loss minus that of ${base.name} (nats per token)` : {both: 'loss', validation: 'validation loss', training: 'training loss'}[which] + ' (nats per token)';
  const notes = [incomparableNote(), base ? `Below 0: a lower loss than ${base.name} at the same place on the x axis; seed by seed where both have it.` : 'A uniform guess over the vocabulary costs ' + guesses.join(', ') + '.',
    start > 0 ? `Shown from ${startText} on` + (from === firstPosition({which, reference}, fromPositions()) ?
      ', where the runs begin to differ: the last difference fills a quarter of the height, or the last third of the evaluations begins, or a run ends.' : '.') : '',
    report.anchor ? (anchorShown(which, base) ? `Dotted: ${report.anchor.says} (${report.anchor.name}).` +
      (report.anchor.not_comparable.length ? ` NOT COMPARABLE with it: ${report.anchor.not_comparable.join('; ')}.` : '') : `${report.anchor.name} has validations by step alone: it is drawn with validation losses, over steps, without a difference.`) : '',
    weight ? 'Training loss: exponential average, the faint line is as logged.' : ''];
  const xaxis = {...commonX(), ...(ranges.x ? {range: ranges.x} : {})}, yaxis = {title, type: isLog ? 'log' : 'linear', ...(ranges.y ? {range: ranges.y} : {})};
  const built = curveChart(curves, {unit: 'nats', legend: true, height: isNarrow() ? 320 : 420, note: notes.filter(Boolean).join(' '), layout: {xaxis, yaxis, ...(base ? withLevels([level(0, '')]) : {})}});
  const suffix = (series) => (base ? ' minus ' + base.name + (series.mean ? ', stretch means' : '') : '');
  built.table = seriesTable(all.map(({run, of, series}) => ({run, name: of + suffix(series), series})));
  if (anchorShown(which, base)) withAnchor(built);
  return built;
}

const lossSpec = () => ({id: 'loss', title: 'Loss', wide: true, how: 'Lower is better. Thin: the training batch of each step. Thick with dots: the validation set.',
  controls: [
    {id: 'which', label: 'show', options: () => {
      const all = [['validation', 'validation'], ['both', 'training and validation'], ['training', 'training']];
      return validated().length > 1 ? all : [all[1], all[0], all[2]];
    }},
    {id: 'reference', label: 'difference to', options: referenceOptions},
    {id: 'logY', label: 'log y', toggle: false},
    {id: 'smooth', label: 'smoothing', positions: ({which}) => (which === 'validation' ? [] : smoothings), initial: () => 0},
    {id: 'from', label: 'from', positions: fromPositions, initial: firstPosition, unzooms: true},
    {id: 'reset', label: 'reset view', title: 'the first view again', press: (chart) => { chart.zoom = {}; chart.chosen.from = null; }},
  ], build: lossChart});
