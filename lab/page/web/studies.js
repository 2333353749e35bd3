// A matrix as the studies drew theirs: models from contract to contract, loss against tokens per expert, and the
// published lanes beside ours.

const lossOf = (row) => row.val_loss_nats;
const colourOfRow = (row) => ((model) => colourAt(model ? model.slot : 6))(modelOfRow(row));
const errorBar = (summary, colour) => ({type: 'data', symmetric: false, array: [summary.interval95 ? summary.interval95[1] - summary.mean : 0], arrayminus: [summary.interval95 ? summary.mean - summary.interval95[0] : 0], color: colour, thickness: 2, width: 6});
const intervalWords = (summary) => (summary.interval95 ? `95% interval ${summary.interval95.map((b) => digits(b, 5)).join(' to ')}` : noInterval(summary));

// Labels that would lie on each other are lines of one, from the highest point down, at the point in their middle.
// points: {label, x, y}; two are near if they differ in x and y by less than these.
function joinedLabels(points, nearX, nearY) {
  const order = points.map((_, i) => i).sort((a, b) => points[b].y - points[a].y), groups = [];
  for (const i of order) {
    const group = groups.find((one) => Math.abs(points[one[0]].x - points[i].x) < nearX && points[last(one)].y - points[i].y < nearY);
    if (group) group.push(i);
    else groups.push([i]);
  }
  const texts = points.map(() => '');
  for (const group of groups) texts[group[Math.floor(group.length / 2)]] = group.map((i) => points[i].label).join('<br>');
  return texts;
}

// The rows of one model and precision, contract by contract.
function rowsAcross() {
  const lines = new Map();
  for (const contract of report.matrix.contracts)
    for (const row of contract.rows) {
      const key = row.model + ' ' + row.precision;
      lines.set(key, [...(lines.get(key) || []), {contract, row}]);
    }
  return [...lines.values()];
}

// y: the difference to the first row, or the loss itself. Lines that cross are orders that the contract changed.
function contractMap({y}) {
  const names = report.matrix.contracts.map(({name}) => plain(name)), first = rowName(report.matrix.contracts[0].rows[0]);
  const none = {mean: 0, interval95: [0, 0], n: null};
  const valueOf = ({contract, row}) => (y === 'loss' ? lossOf(row) : row === contract.rows[0] ? lossOf(row) && none : row.difference_to_first);
  const lines = rowsAcross().map((places) => places.map((place) => ({...place, value: valueOf(place)})).filter(({value}) => value)).filter((places) => places.length);
  if (lines.length === 0) return {missing: 'No run is finished yet.'};
  const values = lines.flat().flatMap(({value}) => [value.mean, ...(value.interval95 || [])]);
  const labels = joinedLabels(lines.map((places) => ({label: plain(rowName(places[0].row)), x: names.indexOf(plain(last(places).contract.name)), y: last(places).value.mean})), 0.5, (highestOf(values) - lowestOf(values)) / 15);
  const traces = lines.map((places, line) => {
    const {row} = places[0], colour = colourOfRow(row), bars = places.map(({value}) => errorBar(value, colour));
    return {type: 'scatter', mode: 'lines+markers+text', text: places.map((place, i) => (i === places.length - 1 ? labels[line] : '')), textposition: 'middle right', cliponaxis: false, name: plain(rowName(row)), x: places.map(({contract}) => plain(contract.name)), y: places.map(({value}) => value.mean), line: {color: colour, width: 2}, marker: {color: colour, size: 9},
      error_y: {...bars[0], array: bars.flatMap((bar) => bar.array), arrayminus: bars.flatMap((bar) => bar.arrayminus)}, customdata: places.map(({value}) => (value === none ? 'every difference is to this model' : intervalWords(value))),
      hovertemplate: `<b>${plain(rowName(row))}</b>, %{x}<br>%{y:.5~g} nats<br>%{customdata}<extra></extra>`};
  });
  return {traces, layout: {xaxis: {type: 'category', categoryorder: 'array', categoryarray: names, range: [-0.2, names.length - 0.5]}, yaxis: {title: y === 'loss' ? 'validation loss (nats per token)' : `loss minus ${first}'s (nats per token)`}},
    note: 'Point: mean over the seeds; bar: Student\'s 95% interval. Lines that cross, with intervals apart, are an order that the contract changed.',
    table: () => ({columns: ['model', 'precision', 'contract', 'mean', 'low95', 'high95'], rows: lines.flatMap((places) => places.map(({contract, row, value}) => [row.model, row.precision, contract.name, value.mean, ...(value.interval95 || [null, null])]))})};
}

const sparseRows = () => (report.matrix ? report.matrix.contracts.flatMap((contract) => contract.rows.filter((row) => row.tokens_per_expert && lossOf(row)).map((row) => ({contract, row}))) : []);

function tokensPerExpert() {
  const points = sparseRows();
  if (points.length === 0) return {missing: 'No run of a mixture is finished yet.'};
  const places = points.map(({row}) => Math.log(row.tokens_per_expert)), width = highestOf(places) - lowestOf(places), middle = lowestOf(places) + width / 2;
  const ends = points.flatMap(({row}) => [lossOf(row).mean, ...(lossOf(row).interval95 || [])]);
  const labels = joinedLabels(points.map(({row}, i) => ({label: plain(rowName(row)), x: places[i], y: lossOf(row).mean})), width / 50 || 1, (highestOf(ends) - lowestOf(ends)) / 15);
  const traces = points.map(({contract, row}, i) => {
    const colour = colourOfRow(row), loss = lossOf(row), place = `${rowName(row)}, ${contract.name}`;
    return {type: 'scatter', mode: 'markers+text', text: [labels[i]], textposition: places[i] > middle ? 'middle left' : 'middle right', cliponaxis: false, name: plain(place), x: [row.tokens_per_expert], y: [loss.mean], marker: {color: colour, size: 10}, error_y: errorBar(loss, colour),
      hovertemplate: `<b>${plain(place)}</b><br>%{x:.3s} tokens per routed expert<br>%{y:.5~g} nats over ${loss.n} seed${loss.n > 1 ? 's' : ''}<br>${intervalWords(loss)}<extra></extra>`};
  });
  return {traces, layout: {xaxis: {title: 'tokens per routed expert (tokens K / E)', type: 'log'}, yaxis: {title: 'validation loss (nats per token)'}},
    note: 'One point per mixture and contract, over its finished seeds; the mouse shows the contract. Dense models have no experts.',
    table: () => ({columns: ['contract', 'model', 'precision', 'tokens_per_expert', 'mean', 'low95', 'high95'], rows: points.map(({contract, row}) => [contract.name, row.model, row.precision, row.tokens_per_expert, lossOf(row).mean, ...(lossOf(row).interval95 || [null, null])])})};
}

// Of the measures that a study published, those that this matrix has too. The others are not on the page.
const ourFigures = {stop_step: (row, contract) => (byTarget(contract) ? row.time_to_target.steps : row.steps), last_step: (row) => row.steps, val_loss: lossOf, last_val_loss: lossOf, best_val_loss: (row) => row.measures.best_val_loss,
  core: (row) => row.core, last_core: (row) => row.core,
  step_ms: (row) => row.measures.step_seconds, train_minutes: (row) => row.seconds, k_tokens_per_s: (row) => row.tokens_per_s};
const ratioMeasures = ['stop_step', 'last_step', 'step_ms', 'train_minutes', 'k_tokens_per_s'];  // a ratio needs no common unit
const ourFigure = (measure, row, contract) => (ourFigures[measure] ? ourFigures[measure](row, contract) || null : null);
const publishedMeasures = () => (report.matrix && report.matrix.published ? report.matrix.published.measures.filter(({measure}) => report.matrix.contracts.some((c) => c.rows.some((row) => ourFigure(measure, row, c)))) : []);

// A row against the first of its group: seed by seed with its interval where that is the contract's first row.
const pairedFigures = {val_loss: (row) => row.difference_to_first, last_val_loss: (row) => row.difference_to_first, core: (row) => row.core_difference_to_first, last_core: (row) => row.core_difference_to_first};
function ourLane(measure, contract, row, first) {
  const paired = first === contract.rows[0] && pairedFigures[measure] ? pairedFigures[measure](row) : null;
  if (ratioMeasures.includes(measure)) return {mean: ourFigure(measure, row, contract).mean / ourFigure(measure, first, contract).mean, interval95: null};
  return paired || {mean: ourFigure(measure, row, contract).mean - ourFigure(measure, first, contract).mean, interval95: null};
}

// Each lane against the first of its group: steps as a ratio, losses and scores as a difference, so that runs of other
// sizes stand beside the published ones. Groups without the study's first model are left out.
function publishedLanes({measure}) {
  const chosen = publishedMeasures().find((one) => one.measure === measure) || publishedMeasures()[0];
  if (!chosen) return {missing: 'No finished run has a measure that the study published.'};
  const ratio = ratioMeasures.includes(chosen.measure), reference = chosen.groups[0].lanes[0].name;
  const theirs = chosen.groups.filter((group) => group.lanes[0].name === reference).flatMap((group) => group.lanes.slice(1).map((lane) => ({place: `${report.matrix.published.name}: ${[group.name, lane.name].filter(Boolean).join(', ')}`,
    value: {mean: ratio ? lane.value / group.lanes[0].value : lane.value - group.lanes[0].value, interval95: null}, base: reference, colour: css('--soft'), hollow: true})));
  const ours = report.matrix.contracts.flatMap((contract) => {
    const groups = [...new Set(contract.rows.map((row) => row.precision))].map((precision) => contract.rows.filter((row) => row.precision === precision && ourFigure(chosen.measure, row, contract)));
    return groups.filter((rows) => rows.length > 1).flatMap(([first, ...rows]) => rows.map((row) => ({place: `${rowName(row)}, ${contract.name}`, value: ourLane(chosen.measure, contract, row, first), base: rowName(first), colour: colourOfRow(row), hollow: false})));
  });
  const all = [...theirs, ...ours], order = all.map(({place}) => plain(place)).reverse();
  const traces = all.map(({place, value, base, colour, hollow}) => ({type: 'scatter', mode: 'markers', name: plain(place), x: [value.mean], y: [plain(place)], marker: {size: 11, symbol: hollow ? 'circle-open' : 'circle', color: colour, line: {color: colour, width: 2}},
    ...(value.interval95 ? {error_x: errorBar(value, colour)} : {}), hovertemplate: `<b>${plain(place)}</b><br>${ratio ? '%{x:.4~g} times' : '%{x:+.4~f} from'} ${plain(base)}` + (value.interval95 ? '<br>' + intervalWords(value) : '') + '<extra></extra>'}));
  return {traces, height: Math.max(220, 90 + 26 * order.length), layout: {xaxis: {title: ratio ? 'over the first model\'s' : `minus the first model's (${chosen.unit})`}, yaxis: {type: 'category', categoryorder: 'array', categoryarray: order},
    shapes: [{type: 'line', yref: 'paper', y0: 0, y1: 1, x0: ratio ? 1 : 0, x1: ratio ? 1 : 0, line: {color: css('--soft'), width: 1, dash: 'dot'}}]},
    note: `${chosen.what[0].toUpperCase() + chosen.what.slice(1)}. Rings: ${report.matrix.published.title}, one seed; discs: this matrix, means over the seeds, with the 95% interval of the difference seed by seed where it is to the contract's first row. Sizes, text and machine differ: compare signs and order, not lengths.`,
    table: () => ({columns: ['lane', 'against', chosen.measure, 'low95', 'high95'], rows: all.map(({place, base, value}) => [place, base, value.mean, ...(value.interval95 || [null, null])])})};
}

const studyCharts = () => [
  {id: 'matrix-contracts', title: 'From contract to contract', how: 'One line per model.', controls: [{id: 'y', label: 'show', options: () => [['difference', 'difference to the first model'], ['loss', 'validation loss']]}],
    present: () => Boolean(report.matrix) && report.matrix.contracts.length > 1, build: contractMap},
  {id: 'matrix-tokens', title: 'Loss against tokens per expert', how: 'Mixtures under every contract.', controls: [], present: () => sparseRows().length > 1, build: tokensPerExpert},
  {id: 'matrix-published', title: 'Beside the published study', wide: true, how: 'Every lane against the first model of its precision or contract.',
    controls: [{id: 'measure', label: 'show', options: () => (publishedMeasures().length ? publishedMeasures().map(({measure, what}) => [measure, what]) : [['', '']])}], present: () => publishedMeasures().length > 0, build: publishedLanes}];
