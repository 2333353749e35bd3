// The answer on top of the page: the judgement of `assay compare`, or the summary of a single run.

const meanText = (summary, places = 4) => (summary ? summary.mean.toFixed(places) : null);
function intervalText(summary, places = 4) {
  if (!summary || !summary.interval95) return null;
  return summary.interval95.map((bound) => (bound < 0 ? '−' : '') + Math.abs(bound).toFixed(places)).join(' to ');
}
const signed = (value, places = 4) => (value > 0 ? '+' : value < 0 ? '−' : '') + Math.abs(value).toFixed(places);

const guards = {non_finite: 'NaN or infinite', collapse_stop: 'collapsed routers'};

// " (step 300)" of a validation before the last step.
const lossStepText = (run) => (run.summary.loss_step === run.steps_done ? '' : ` (step ${grouped(run.summary.loss_step)})`);

// How a run ended, and its last validation loss.
function endParts(run) {
  const {loss_nats: loss, loss_step: step} = run.summary, guard = guards[run.end];
  const end = run.end ? (guard ? 'stopped by its guard' : run.steps_done >= run.planned_steps ? 'ended' : 'stopped') : 'is';
  const after = `${guard ? ` (${guard})` : ''} after ${grouped(run.steps_done)} of ${grouped(run.planned_steps)} steps`;
  if (step === null && !guard) return [`${run.label} has no validation loss${run.end ? '' : ' yet'}${after}`];
  if (loss !== null && step === run.steps_done && !guard) return [`${run.label} ${end} at a validation loss of ${loss.toFixed(4)} nats${after}`];
  const place = run.end ? `${end}${after}` : `is at step ${grouped(run.steps_done)} of ${grouped(run.planned_steps)}`;
  return [`${run.label} ${place}`, step === null ? 'it has no validation loss' :
    `its last validation loss is ${loss === null ? 'NaN or infinite' : loss.toFixed(4) + ' nats'}${lossStepText(run)}`];
}

// Loss, target and routers of one run.
function runSentence(run) {
  if (run.problem) return `${run.label} has no readable telemetry.`;
  const {target, pathological_win: pathological} = run.summary, verdict = verdictOf(run), parts = endParts(run);
  if (target && target.reached) parts.push(`it reached its target of ${digits(target.target_loss_nats)} nats at step ${grouped(target.step)}` + (target.seconds ? `, after ${secondsText(target.seconds)} of training` : ''));
  else if (target) parts.push(`it did not reach its target of ${digits(target.target_loss_nats)} nats`);
  if (verdict) parts.push(`routers: ${stateWords[verdict.state] || verdict.state}` + (pathological ? ', so the target means little' : ''));
  return parts.join('; ') + '.';
}

// One row per model, best first where there is a ranking.
function comparisonTable() {
  const {models: rows, rankings} = report.comparison, order = rankings.length ? rankings[0].places.map((place) => place.model) : [];
  const rank = (row) => (order.includes(row.name) ? order.indexOf(row.name) : order.length + rows.indexOf(row));
  const sorted = [...rows].sort((a, b) => rank(a) - rank(b)), first = rows[0].name, some = (of) => sorted.some((row) => of(row) !== null && of(row) !== undefined);
  const note = (row) => (rankings.length ? (rankings[0].places.find((place) => place.model === row.name) || {note: ''}).note : '');
  const columns = [
    ['model', (row) => modelLabel(row.name)], ['seeds', (row) => row.runs.map((run) => run.seed).join(', ')],
    ['validation loss', (row) => meanText(row.val_loss_nats)], ['95% interval', (row) => intervalText(row.val_loss_nats)],
    ['contract', (row) => (rows.some((other) => other.contract !== row.contract) ? row.contract : null)],
    ['minus ' + first, (row) => (row.against_first ? signed(row.against_first.mean) : null)],
    ['95% interval of the difference', (row) => intervalText(row.against_first)],
    ['bits/byte', (row) => meanText(row.bits_per_byte)], ['parameters', (row) => scaled(row.total) + (row.active === row.total ? '' : `, ${scaled(row.active)} active`)],
    ['tokens', (row) => (rows.some((other) => other.tokens !== row.tokens) ? scaled(row.tokens) : null)],
    ['training time', (row) => (row.seconds ? secondsText(row.seconds.mean) : null)],
    ['steps to target', (row) => (row.to_target && row.to_target.steps ? grouped(row.to_target.steps.mean) : null)],
    ['against the next', (row) => (row.runs.length > 1 && note(row)) || null],
  ].filter(([name, of]) => some(of) || name === 'validation loss');
  return {columns: columns.map(([name]) => name), rows: sorted.map((row) => columns.map(([, of]) => of(row)))};
}

const confoundTexts = (confounds) => confounds.map(({text}) => 'confound: ' + text);

// A model's name with its colour.
function modelLabel(name) {
  const model = models.find((one) => one.name === name);
  return element('span', {}, model ? swatchNode(paintOfModel(model)) : '', name);
}

function answerNodes() {
  if (report.matrix) return matrixAnswer();
  const {comparison} = report, readable = runs.filter((run) => !run.problem);
  if (readable.length === 0) return [element('p', {className: 'answer', textContent: runs.length === 1 ? 'The run has no readable telemetry yet.' : 'No run has readable telemetry yet.'})];
  if (!comparison) return [element('p', {className: 'answer', textContent: readable.map(runSentence).join(' ')})];
  if (comparison.refused) return [element('p', {className: 'answer', textContent: `Not compared: ${comparison.refused}.`})];
  const notes = [...comparison.incomparable, ...comparison.notes, ...confoundTexts(comparison.confounds)];
  return [element('p', {className: 'answer', textContent: comparison.sentence}),
    tablePanel('comparison', 'Comparison', comparisonTable,
      notes.length ? element('ul', {className: 'soft'}, ...notes.map((text) => element('li', {textContent: text}))) : '',
      element('p', {className: 'note', textContent: 'As in assay compare: differences are taken seed by seed, intervals are Student\'s 95% over the seeds. All runs are validated on one text, so they leave out how another text would change a loss.'}))];
}

function fillAnswer() {
  refill(document.getElementById('answer'), answerNodes());
}
