// A matrix: the table of every contract, points with intervals.

const runsOfRow = (row) => runs.filter((run) => row.runs.some((one) => one.run === run.label));
const modelOfRow = (row) => (runsOfRow(row)[0] || {}).modelOf;
const rowName = (row) => row.model + (new Set(report.matrix.contracts.flatMap((c) => c.rows.map((r) => r.precision))).size > 1 ? ' ' + row.precision : '');
const seedsText = (row) => (row.finished === row.planned ? String(row.planned) : `${row.finished} of ${row.planned}`);

// Where runs stop at a target their losses are all about that, and the steps to it are ranked.
const byTarget = (contract) => contract.ranked_by === 'target_steps';

// "moe 2.91 < dense 2.95 ~ wide 2.96"
function rankingText(contract) {
  const signs = {below: ' < ', above: ' ! ', unclear: ' ~ ', no_spread: ' ? ', one_seed: ' ? ', no_seed: ' ? '};
  const rowOf = (place) => contract.rows.find((row) => row.model === place.model && row.precision === place.precision);
  return contract.ranking.map((place) => `${rowName(rowOf(place))} ${byTarget(contract) ? grouped(rowOf(place).time_to_target.steps.mean) : meanText(rowOf(place).val_loss_nats)}` +
    ('relation_to_next' in place ? signs[place.relation_to_next] : '')).join('');
}

// Rows without a rank, or the whole contract, and why.
function notRankedText(contract) {
  if (contract.not_ranked) return `Not ranked under ${contract.name}: ${contract.not_ranked}.`;
  const late = contract.rows.filter((row) => row.not_ranked);
  return late.length ? `Not ranked under ${contract.name}: ` + late.map((row) => `${rowName(row)}, which ${row.not_ranked}`).join('; ') + '.' : '';
}

// Verdicts that the correction for their number does not leave are counted apart.
function claimsAnswer(claims) {
  const count = (verdict, counts = true) => claims.filter((claim) => claim.verdict === verdict && (claim.after_holm !== false) === counts).length;
  const apart = count('holds', false) + count('fails', false), open = claims.length - apart - count('holds') - count('fails');
  return `Claims: ${count('holds')} of ${claims.length} hold, ${count('fails')} fail, ` + (apart ? `${apart} hold or fail, not after Holm, ` : '') +
    `${open} ${open === 1 ? 'is' : 'are'} open.`;
}

function matrixAnswer() {
  const {matrix, complete, cells, done, unavailable, contracts, claims, different_data: different, shared_order: order, notes} = report.matrix;
  const text = [`Matrix ${matrix}: ${done} of ${cells} cells are done` + (unavailable ? `, ${unavailable} cannot be trained in their precision` : '') + (complete ? '.' : '; the values may change.'),
    ...contracts.filter((c) => c.ranking.length > 1).map((c) => `Under ${c.name}: ${rankingText(c)}.`),
    ...contracts.map(notRankedText),
    ...contracts.map((c) => (c.not_held ? `Under ${c.name}: ${c.not_held}` : '')),
    ...contracts.map((c) => (c.other_core_questions ? `CORE is not comparable under ${c.name}: ${c.other_core_questions}.` : '')),
    claims.length ? claimsAnswer(claims) : ''];
  return [...text.filter(Boolean).map((line) => element('p', {className: 'answer', textContent: line})),
    element('p', {className: 'soft', textContent: (contracts.some(byTarget) ? 'Mean steps to the target, fewest first' : 'Mean validation losses in nats, best first') + '. < : the 95% interval of the difference seed by seed excludes 0; ~ : it includes 0; ! : it excludes 0 the other way, as the means are of all seeds; ? : one shared seed or none, or a few with all the same difference, which have no spread to judge by. Another contract may rank them differently.' + (order ? ` Note: ${order}.` : '')}),
    ...(different ? [warning('Not comparable: ' + different + '.')] : []), ...notes.map(warning)];
}

// The name of a row; pressed, it leaves only the row's runs in the curves.
function rowButton(row, contract) {
  const model = modelOfRow(row);
  if (!model) return rowName(row);
  const button = element('button', {type: 'button', className: 'link', title: 'show only the curves of these runs'}, swatchNode(paintOfModel(model)), rowName(row));
  button.dataset.key = `only ${contract.name} ${row.model} ${row.precision}`;
  const labels = runsOfRow(row).map((run) => run.label);
  button.addEventListener('click', () => {
    shown.hidden = new Set(runs.filter((run) => !labels.includes(run.label)).map((run) => run.slot));
    fillLegend();
    drawAll();
    document.getElementById('section-curves').scrollIntoView({behavior: 'smooth'});
  });
  return button;
}

// Counts of a row without a configuration are null.
const known = (count, text) => (count === null ? null : text(count));

// Their mean; where the seeds measured numbers of steps of their own, the fewest and the most.
function stepsText(row) {
  if (!row.steps) return null;
  const done = row.runs.map((run) => run.steps), planned = new Set(row.runs.map((run) => run.planned_steps));
  return planned.size > 1 ? `${grouped(Math.min(...done))} to ${grouped(Math.max(...done))}` : grouped(row.steps.mean);
}

function contractTable(contract) {
  const first = rowName(contract.rows[0]), target = contract.target_nats;
  const places = byTarget(contract) ? 0 : 4;
  const difference = (row) => (byTarget(contract) ? row.time_to_target.steps_difference_to_first : row.difference_to_first);
  const columns = [
    ['model', (row) => rowButton(row, contract)], ['seeds', seedsText],
    ['validation loss', (row) => meanText(row.val_loss_nats)], ['95% interval', (row) => intervalText(row.val_loss_nats)],
    [(byTarget(contract) ? 'steps to target minus ' : 'minus ') + first, (row) => (difference(row) ? signed(difference(row).mean, places) : null)],
    ['95% interval of the difference', (row) => intervalText(difference(row), places)],
    ['bits/byte', (row) => meanText(row.bits_per_byte)], ['CORE', (row) => meanText(row.core)],
    ['CORE minus ' + first, (row) => (row.core_difference_to_first ? signed(row.core_difference_to_first.mean) : null)], ['95% interval of CORE\'s', (row) => intervalText(row.core_difference_to_first)], ['worst K max load', (row) => (row.worst_max_load_norm === null ? null : row.worst_max_load_norm.toFixed(2) + (row.collapsed_runs ? ` collapsed (${row.collapsed_runs})` : '') + (row.uneven_runs ? ` uneven (${row.uneven_runs})` : '') + (row.restless_runs ? ` restless (${row.restless_runs})` : '') + (row.too_early_runs ? ` too early (${row.too_early_runs})` : ''))],
    ['effective share', (row) => meanText(row.measures.effective_share)], ['swing', (row) => (row.measures.swing ? (100 * row.measures.swing.mean).toFixed(0) + '%' : null)],
    ['active', (row) => known(row.parameters_active, scaled)], ['total', (row) => known(row.parameters_total, scaled)],
    ['steps', (row) => stepsText(row)], ['tokens', (row) => known(row.tokens, scaled)], ['FLOPs', (row) => known(row.flops, flopsText)],
    ['training time', (row) => (row.seconds ? secondsText(row.seconds.mean) : null)],
    [target ? `steps to ${target.toFixed(4)}` : 'steps to target', (row) => (row.time_to_target.steps ? grouped(row.time_to_target.steps.mean) : null)],
  ].filter(([name, of]) => name === 'validation loss' || contract.rows.some((row) => of(row) !== null));
  return {columns: columns.map(([name]) => name), rows: contract.rows.map((row) => columns.map(([, of]) => of(row)))};
}

// The runs of a contract's rows, seed by seed.
function seedTable(contract) {
  return {columns: ['run', 'model', 'seed', 'steps', 'end', 'validation loss', 'reused from'],
    rows: contract.rows.flatMap((row) => row.runs.map((run) => [run.run, rowName(row), String(run.seed), grouped(run.steps), (run.end || '–').replace(/_/g, ' '),
      run.val_loss_nats === null ? null : run.val_loss_nats.toFixed(4), run.reused_from]))};
}

const remarks = (contract) => [...confoundTexts(contract.confounds), ...contract.rows.flatMap((row) => row.missing)];
const contractPanels = () => report.matrix.contracts.map((contract, i) => tablePanel('contract-' + contract.name, `${contract.name}: ${contract.says}`, () => contractTable(report.matrix.contracts[i]),
  remarks(contract).length ? element('ul', {className: 'soft'}, ...remarks(contract).map((text) => element('li', {textContent: text}))) : '',
  detailsNode('seeds ' + contract.name, 'seed by seed', tableNode('seeds ' + contract.name, seedTable(contract)))));

const pointMeasures = () => [['val_loss_nats', 'validation loss (nats per token)'], ['difference', 'loss minus that of the first row, seed by seed (nats per token)'],
  ...[...new Set(report.matrix.contracts.flatMap((c) => c.rows.flatMap((row) => Object.keys(row.measures).filter((name) => row.measures[name]))))]
    .filter((name) => name !== 'val_loss').map((name) => [name, name.replace(/_/g, ' ')])];
const pointOf = (row, name) => (name === 'val_loss_nats' ? row.val_loss_nats : name === 'difference' ? row.difference_to_first : row.measures[name]);

function pointChart({name}) {
  const rows = report.matrix.contracts.flatMap((contract) => contract.rows.map((row) => ({contract, row, summary: pointOf(row, name), place: `${rowName(row)}, ${contract.name}`}))).filter(({summary}) => summary);
  if (rows.length === 0) return {missing: 'No finished run has this measure.'};
  const order = rows.map(({place}) => plain(place)).reverse(), words = pointMeasures().find(([key]) => key === name)[1];
  const traces = rows.map(({row, summary, place}) => {
    const model = modelOfRow(row), colour = colourAt(model ? model.slot : 6), bounds = summary.interval95 || [summary.mean, summary.mean];
    return {type: 'scatter', mode: 'markers', name: plain(place), x: [summary.mean], y: [plain(place)], marker: {color: colour, size: 10},
      error_x: {type: 'data', symmetric: false, array: [bounds[1] - summary.mean], arrayminus: [summary.mean - bounds[0]], color: colour, thickness: 2, width: 6},
      hovertemplate: `<b>${plain(place)}</b><br>mean %{x:.5~g} over ${summary.n} seed${summary.n > 1 ? 's' : ''}<br>` + (summary.interval95 ? `95% interval ${bounds.map((b) => digits(b, 5)).join(' to ')}` : noInterval(summary)) + '<extra></extra>'};
  });
  const seeds = name !== 'val_loss_nats' ? [] : rows.map(({row, place}) => ({type: 'scatter', mode: 'markers', x: row.runs.map((run) => run.val_loss_nats), y: row.runs.map(() => plain(place)),
    marker: {color: 'rgba(0,0,0,0)', size: 6, line: {color: css('--soft'), width: 1}}, hoverinfo: 'skip', showlegend: false}));
  return {traces: [...traces, ...seeds], height: Math.max(220, 90 + 30 * order.length), layout: {xaxis: {title: words}, yaxis: {type: 'category', categoryorder: 'array', categoryarray: order},
    ...(name === 'difference' ? {shapes: [{type: 'line', yref: 'paper', y0: 0, y1: 1, x0: 0, x1: 0, line: {color: css('--soft'), width: 1, dash: 'dot'}}]} : {})},
    note: 'Point: mean over the seeds; bar: Student\'s 95% interval' + (seeds.length ? '; rings: single seeds.' : '.'),
    table: () => ({columns: ['contract', 'model', 'precision', 'measure', 'n', 'mean', 'low95', 'high95'], rows: rows.map(({contract, row, summary}) =>
      [contract.name, row.model, row.precision, name, summary.n, summary.mean, ...(summary.interval95 || [null, null])])})};
}

function addMatrix() {
  addSection({id: 'matrix', title: 'Contracts', present: () => Boolean(report.matrix), how: 'Each contract holds something else fixed and has its own table. Click a model to see only the curves of its runs.',
    top: contractPanels, charts: [{id: 'matrix-points', title: 'Points with intervals', wide: true, how: 'One row per model and contract. The intervals are over the seeds; they leave out how another validation text would change a loss.', controls: [{id: 'name', label: 'show', options: () => (report.matrix ? pointMeasures() : [['', '']])}],
      present: () => Boolean(report.matrix), build: pointChart}, gapChartSpec(), ...studyCharts()],
    bottom: claimPanels});
}
