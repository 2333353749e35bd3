// Charts of the routers: a measure over time, layer x step, load by layer x expert, tails, biases,
// dead experts.

// A legend: of layers, and of the seeds of a model, which the bar above shows together.
const namesLines = (of) => !isNarrow() && (of !== 'all' || (isBanded() && withRouters().length <= 16));

// Mean and range over the layers at every step; null if no layer has a value.
function overLayers(values) {
  const steps = values[0].length, mean = [], low = [], high = [];
  for (let s = 0; s < steps; ++s) {
    const at = values.map((layer) => layer[s]).filter((value) => value !== null);
    mean.push(at.length ? at.reduce((a, b) => a + b) / at.length : null);
    low.push(at.length ? Math.min(...at) : null);
    high.push(at.length ? Math.max(...at) : null);
  }
  return {mean, low, high};
}

function rangeTraces(run, name, unit) {
  const steps = measuresOf(run).steps, {mean, low, high} = overLayers(measuresOf(run).values[name]);
  const kept = steps.map((_, s) => s).filter((s) => mean[s] !== null);
  const pick = (list) => kept.map((s) => list[s]);
  const at = pick(steps), x = positions(run, at);
  const edge = (y, fill) => ({type: 'scatter', mode: 'lines', x, y: pick(y), line: {width: 0}, fill, fillcolor: faded(paintOf(run).colour, 0.16),
    hoverinfo: 'skip', showlegend: false, name: plain(run.label)});
  const middle = line(run, {step: at, value: pick(mean)}, {unit});
  middle.customdata = kept.map((s) => [steps[s], low[s], high[s]]);
  middle.hovertemplate = `<b>${plain(run.label)}</b><br>step %{customdata[0]}<br>mean %{y:.4~g} ${unit}<br>layers %{customdata[1]:.4~g} to %{customdata[2]:.4~g}<extra></extra>`;
  return withRouters().length > 4 ? [middle] : [edge(low, 'none'), edge(high, 'tonexty'), middle];
}

function layerTraces(run, name, unit) {
  const layers = run.router.layers;
  return layers.map((layer, l) => {
    const steps = measuresOf(run).steps, values = measuresOf(run).values[name][l];
    const kept = steps.map((_, s) => s).filter((s) => values[s] !== null);
    const colour = layerColour(l, layers.length);
    return line(run, {step: kept.map((s) => steps[s]), value: kept.map((s) => values[s])},
      {unit, name: 'layer ' + layer, line: {color: colour, width: 1.6, dash: 'solid'}, marker: {color: colour, size: 5}});
  });
}

// Traces of one measure: of all runs over their layers, or of one run by layer.
function measureTraces(of, name, unit) {
  const list = of === 'all' ? withRouters() : withRouters().filter(({index}) => String(index) === String(of));
  const having = list.filter(({run}) => measuresOf(run).values[name]);
  return {having, traces: having.flatMap(({run}) => (of === 'all' ? rangeTraces : layerTraces)(run, name, unit))};
}

function measureCurves({name, of}) {
  if (withRouters().length === 0) return {missing: noRouters()};
  const measure = measureOf(name);
  const {having, traces} = measureTraces(of, name, measure.unit);
  if (traces.length === 0) return {missing: `No value of ${measure.label} was logged by the run shown.`};
  const levels = [], highest = highestOf(traces.flatMap((trace) => trace.y));
  const ceilings = [...new Set(having.map(({run}) => measure.ceiling(run.router)))];
  if (ceilings.length === 1 && ceilings[0] !== null && (measure.normal || highest > ceilings[0] / 4)) levels.push(level(ceilings[0], 'ceiling'));
  const limits = [...new Set(having.map(({run}) => run.router.saturation_limit))];
  if (measure.base === 'max_load' && measure.normal && limits.length === 1 && limits[0]) levels.push(level(limits[0], 'saturated'));
  if (measure.base === 'cv' && !measure.normal) {
    for (const {run} of having) {
      const floors = measuresOf(run).values[(measure.windowed ? 'window_' : '') + 'cv_floor'];
      if (floors) traces.push(line(run, {step: measuresOf(run).steps, value: floors[0]}, {unit: '%', name: run.label + ', sampling floor', mode: 'lines', line: {dash: '1px,4px', width: 1.2}}));
    }
  }
  return {traces, note: measureNote(having, name), table: measureTable(having, [name]),
    layout: {xaxis: commonX(), yaxis: {title: measure.label + (measure.unit && !measure.normal ? ` (${measure.unit})` : ''), rangemode: 'tozero',
      ...(measure.normal ? {range: [0, 1.06]} : {})}, showlegend: namesLines(of), ...withLevels(levels)}};
}

const chosenRun = (of) => withRouters().find(({index}) => String(index) === String(of));

function measureMap({name, of}) {
  const chosen = chosenRun(of);
  if (!chosen) return {missing: noRouters()};
  const {run} = chosen, measure = measureOf(name), {steps, values} = measuresOf(run);
  if (!values[name]) return {missing: `${run.label} did not log ${measure.label}.`};
  const layers = run.router.layers, places = positions(run, steps);
  const kept = steps.map((_, s) => s).filter((s) => places[s] !== null && values[name].some((layer) => layer[s] !== null));
  if (kept.length === 0) return {missing: `${run.label} has no value of ${measure.label} at a known place on the x axis.`};
  const at = kept.map((s) => steps[s]);
  return {
    traces: [{type: 'heatmap', x: positions(run, at), y: layers.map((layer) => 'layer ' + layer), z: values[name].map((layer) => kept.map((s) => layer[s])),
      colorscale: 'Cividis', zmin: measure.normal ? 0 : undefined, zmax: measure.normal ? 1 : undefined, zauto: !measure.normal, hoverongaps: false, customdata: layers.map(() => at),
      colorbar: {thickness: 12, outlinewidth: 0, title: {text: measure.normal ? '' : measure.unit, font: {size: 11}}, tickfont: {size: 11}},
      hovertemplate: `<b>${plain(run.label)}</b><br>%{y}, step %{customdata}<br>%{z:.5~g} ${measure.unit}<extra></extra>`}],
    height: Math.min(620, Math.max(210, 110 + 22 * layers.length)), note: [measureNote([chosen], name), secondsNote([chosen])].filter(Boolean).join(' '),
    table: measureTable([chosen], [name]), layout: {xaxis: commonX(), yaxis: {type: 'category'}},
  };
}

// Loads in powers of two of the mean: below the mean blue, the mean pale, above it red. None is
// black, on the dark page grey, as the card there is nearly black.
function loadScale(router) {
  const none = isDark() ? '#878d96' : '#15181d';
  const low = -4, high = Math.max(1, Math.log2(router.experts / router.top_k));
  const dead = low - 1, at = (value) => (value - dead) / (high - dead);
  const ticks = [];
  for (let power = high > 8 ? low + 2 : low; power <= high; power += high > 8 ? 2 : 1) ticks.push(power);
  return {low, high, dead, ticks: [dead + 0.4, ...ticks], texts: ['none', ...ticks.map((p) => (p < 0 ? '1/' + 2 ** -p : String(2 ** p)))],
    colours: [[0, none], [at(low - 0.2), none], [at(low - 0.2), '#2a5d9e'], [at(-1), '#9dc0dd'], [at(0), '#f4f0e8'],
      [at(high / 3), '#f2b48a'], [at(2 * high / 3), '#d6604d'], [1, '#7f0d24']]};
}

// Counts of one slider position: [layer][bin].
function loadsAt(router, order, position) {
  const loads = router.loads;
  if (order === 'id') return loads.by_id[position];
  return loads.sorted ? loads.sorted[position] : loads.by_id[position].map((counts) => [...counts].sort((a, b) => b - a));
}
const binSize = (router, bin) => Math.min(router.loads.bin, router.experts - bin * router.loads.bin);

function loadTable({run}, order) {
  const router = run.router;
  return () => ({
    columns: ['run', ...placeColumns, 'layer', order === 'id' ? 'first_expert' : 'first_rank', 'experts', 'assignments', 'load_share', 'times_mean_load'],
    rows: router.loads.steps.flatMap((step, position) => loadsAt(router, order, position).flatMap((counts, l) => {
      const sum = counts.reduce((a, b) => a + b, 0);
      return counts.map((count, b) => [run.label, ...place(run, step), router.layers[l], b * router.loads.bin, binSize(router, b), count,
        Number((count / sum).toPrecision(6)), Number((count / sum * router.experts / binSize(router, b)).toPrecision(6))]);
    })),
  });
}

function loadMap({of, order, step: position}) {
  const chosen = chosenRun(of);
  if (!chosen) return {missing: noRouters()};
  const {run} = chosen, router = run.router, loads = router.loads;
  if (loads.steps.length === 0) return {missing: `${run.label} logged no load of its experts yet.`};
  const at = Math.min(position, loads.steps.length - 1), scale = loadScale(router);
  const word = order === 'id' ? 'expert' : 'rank';
  const z = [], texts = [];
  loadsAt(router, order, at).forEach((counts, l) => {
    const sum = counts.reduce((a, b) => a + b, 0);
    const times = counts.map((count, b) => (sum ? count / sum * router.experts / binSize(router, b) : 0));
    z.push(times.map((value) => (value > 0 ? Math.max(scale.low, Math.log2(value)) : scale.dead)));
    texts.push(counts.map((count, b) => {
      const first = b * loads.bin, size = binSize(router, b);
      return `layer ${router.layers[l]}, ` + (size > 1 ? `${word}s ${first} to ${first + size - 1}` : `${word} ${first}`) +
        `<br>${digits(times[b], 3)} times the mean load<br>${grouped(count)} assignments, ${digits(sum ? 100 * count / sum : 0, 3)}% of the layer`;
    }));
  });
  const unused = loads.unused[at].map((count, l) => `layer ${router.layers[l]}: ${grouped(count)}`);
  return {
    traces: [{type: 'heatmap', z, text: texts, y: router.layers.map((layer) => 'layer ' + layer), x0: (loads.bin - 1) / 2, dx: loads.bin, zmin: scale.dead, zmax: scale.high,
      colorscale: scale.colours, colorbar: {thickness: 12, outlinewidth: 0, tickvals: scale.ticks, ticktext: scale.texts, tickfont: {size: 11}, title: {text: '× mean', font: {size: 11}}},
      hovertemplate: `<b>${plain(run.label)}</b>, step ${loads.steps[at]}<br>%{text}<extra></extra>`}],
    height: Math.min(620, Math.max(230, 120 + 26 * router.layers.length)), table: loadTable(chosen, order),
    layout: {xaxis: {title: order === 'id' ? 'expert' : 'experts of each layer, busiest first', tickformat: 'd', ...(router.experts <= 24 ? {dtick: 1} : {})}, yaxis: {type: 'category'}},
    note: `Experts without an assignment at step ${grouped(loads.steps[at])}, of ${grouped(router.experts)}: ${unused.join(', ')}. ` +
      `Even is 1; the ceiling is E/K = ${wholeOrDigits(router.experts / router.top_k)}, an expert in every token's top-${router.top_k}.` +
      (loads.bin > 1 ? ` One column is ${loads.bin} experts together.` : '') +
      (loads.of > loads.steps.length ? ` The slider has ${loads.steps.length} of ${grouped(loads.of)} logged steps, more of the early ones.` : ''),
  };
}

function tailChart({of}) {
  if (withRouters().length === 0) return {missing: noRouters()};
  const list = of === 'all' ? withRouters() : withRouters().filter(({index}) => String(index) === String(of));
  const curves = list.flatMap(({run}) => run.router.ccdf.filter((tail) => (of === 'all') === (tail.layer === null)).map((tail, l, all) => ({run, tail,
    name: of === 'all' ? run.label : 'layer ' + tail.layer, colour: of === 'all' ? paintOf(run).colour : layerColour(l, all.length), dash: of === 'all' ? paintOf(run).dash : 'solid'})));
  return {
    traces: curves.map(({tail, name, colour, dash}) => ({type: 'scatter', mode: 'lines+markers', name: plain(name), x: tail.load, y: tail.share,
      line: {color: colour, width: 1.8, dash}, marker: {color: colour, size: tail.load.length < 20 ? 6 : 3},
      hovertemplate: `<b>${plain(name)}</b><br>%{y:.3~g} of the experts have at least<br>%{x:.3~g} times the mean load<extra></extra>`})),
    layout: {xaxis: {title: 'load, times the mean (log)', type: 'log'}, yaxis: {title: 'share of the experts (log)', type: 'log'}, showlegend: namesLines(of)},
    note: 'An even router drops from 1 at a load of 1. Ceiling of the load: ' + byModel(list).map(({name, members: [{router}]}) => `${name} E/K = ${wholeOrDigits(router.experts / router.top_k)}`).join('; ') +
      `. Over the last ${list.map(({run}) => Math.min(run.router.window, run.router.analysis.logged_steps)).filter((w, i, all) => all.indexOf(w) === i).join(', ')} logged steps; experts without load are missing on the log axis.`,
    table: () => ({columns: ['run', 'layer', 'times_mean_load', 'share_of_experts_with_at_least'],
      rows: curves.flatMap(({run, tail}) => tail.load.map((load, i) => [run.label, tail.layer === null ? 'all' : tail.layer, load, tail.share[i]]))}),
  };
}

function biasChart({of}) {
  if (withRouters().length === 0) return {missing: noRouters()};
  const bias = measureTraces(of, 'bias_range', ''), margin = measureTraces(of, 'margin', '');
  if (bias.traces.length === 0) return {missing: 'No bias was logged: the routers shown are not balanced by one (router.bias_rate is 0).'};
  for (const trace of margin.traces) {
    if (trace.line.width === 0) continue;
    trace.line.width = 1;
    trace.hovertemplate = trace.hovertemplate.replace('</b>', ', margin</b>');
    trace.name += ', margin';
  }
  return {traces: [...bias.traces, ...margin.traces.filter((trace) => trace.line.width > 0)],
    layout: {xaxis: commonX(), yaxis: {title: 'bias range, margin', rangemode: 'tozero'}, showlegend: namesLines(of)},
    note: 'Thick: bias range, ceiling 32 (biases stay within 16 of zero). Thin: margin, the distance between the last chosen and the first unchosen score. ' +
      'While the first is smaller than the second, the bias changes few choices. ' + stepsNote(bias.having), table: measureTable(bias.having, ['bias_range', 'margin'])};
}

const deadAtEnd = (run) => measuresOf(run).values.dead_for.reduce((sum, layer) => sum + (last(layer) || 0), 0);
function deadChart({of}) {
  if (withRouters().length === 0) return {missing: noRouters()};
  const {having, traces} = measureTraces(of, 'dead_for_norm', 'of E');
  const early = withRouters().filter(({run}) => run.router.analysis.logged_steps < run.router.window);
  const earlyText = early.length ? `Dead experts are counted over the last W logged steps; fewer were logged by ${byModel(early).map(({name}) => name).join(', ')}.` : '';
  if (traces.length === 0) return {missing: earlyText || 'Dead experts were not logged by the run shown.'};
  return {traces, layout: {xaxis: commonX(), yaxis: {title: 'dead experts (share of E)', rangemode: 'tozero'}, showlegend: namesLines(of)},
    note: `Ceiling: 1. At the end: ` + byModel(having).map(({name, members, members: [{router}]}) => `${name} ${spanText(members.map(deadAtEnd))} of ` +
      `${grouped(router.experts * router.layers.length)} in ${router.layers.length} layers`).join('; ') + '. ' + [earlyText, stepsNote(having)].filter(Boolean).join(' '),
    table: measureTable(having, ['dead_for', 'dead_for_norm'])};
}
