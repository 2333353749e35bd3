// The top of the page: the runs as cards or as a table, and the bar that hides and shows them.

const factsOf = (run) => drawnOr(() => readFacts(run), (text) => [['facts', text]]);

function readFacts(run) {
  const facts = [['model', `${run.layers} layers, ${run.hidden} wide` + (run.moe ? `, ${grouped(run.moe.experts)} experts, top-${run.moe.top_k}` : '')],
    ['parameters', run.moe ? `${scaled(run.audit.total)}, ${scaled(run.audit.active)} active` : scaled(run.audit.total)]];
  if (run.problem) return facts;
  const {loss_nats: loss, loss_step: validated} = run.summary, bits = evalOf(run, 'val', 'bits_per_byte'), train = run.scalars.train_loss_nats;
  facts.push(['trained', `${scaled(run.tokens)} tokens, ${grouped(run.steps_done)} of ${grouped(run.planned_steps)} steps` +
    (run.end && run.end !== 'steps' ? `, ended by ${run.end.replace(/_/g, ' ')}` : '')]);
  facts.push(['FLOPs', flopsText(flopsAt(run, run.steps_done))]);
  if (validated !== null) facts.push(['validation loss', (loss === null ? 'NaN or infinite' : `${loss.toFixed(4)} nats` +
    (bits && last(bits.value) ? `, ${last(bits.value).toFixed(4)} bits/byte` : '')) + lossStepText(run)]);
  else if (train && last(train.value)) facts.push(['training loss', `${last(train.value).toFixed(4)} nats`]);
  const speed = run.scalars.tokens_per_s ? medianOf(run.scalars.tokens_per_s) : null;
  if (run.scalars.train_s && run.scalars.train_s.value.length) facts.push(['time', secondsText(last(run.scalars.train_s.value)) +
    (timedUpTo(run) ? ` up to step ${grouped(timedUpTo(run))}` : '') + (speed === null ? '' : `, median ${grouped(speed)} tokens/s`)]);
  facts.push(['machine', [run.device === 'cpu' ? [run.cpu, run.instructions].filter(Boolean).join(' with ') : run.device, run.recipe].filter(Boolean).join(', ') || '–']);
  facts.push(['seed, commit', `${run.seed}, ${run.commit ? run.commit.slice(0, 7) + (run.dirty ? ' with changes' : '') : '–'}`]);
  return facts;
}

// A short piece of the line with its dash, at two thirds of the size.
function swatchNode({colour, dash}) {
  const node = (tag, attributes) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const swatch = node('svg', {class: 'swatch', viewBox: '0 0 45 18', 'aria-hidden': 'true'});
  swatch.append(node('line', {x1: 0, x2: 45, y1: 9, y2: 9, 'stroke-dasharray': dash === 'solid' ? 'none' : dash.replace(/px/g, '')}));
  swatch.style.setProperty('--run', colour);
  return swatch;
}
const swatchOf = (run) => swatchNode(paintOf(run));
const warningsOf = (run) => [...(run.problem ? ['No curves: ' + run.problem] : []), ...run.notes];

const runCard = (run) => element('article', {className: 'run'},
  element('div', {className: 'run-head'}, swatchOf(run), element('h3', {textContent: run.label}), badgeOf(run)),
  element('dl', {}, ...factsOf(run).flatMap(([name, value]) => [element('dt', {textContent: name}), element('dd', {textContent: value})])),
  ...warningsOf(run).map(warning));

function runTable() {
  const facts = runs.map((run) => new Map(factsOf(run)));
  const names = [...new Set(['validation loss', ...facts.flatMap((of) => [...of.keys()])])];
  return {columns: ['run', 'router', ...names],
    rows: runs.map((run, i) => [element('span', {}, swatchOf(run), run.label), badgeOf(run), ...names.map((name) => facts[i].get(name) ?? null)])};
}

function fillRuns() {
  const place = document.getElementById('runs'), few = runs.length <= 4;
  place.className = few ? 'cards' : 'panel';
  if (few) return refill(place, runs.map(runCard));
  const warnings = runs.flatMap((run) => warningsOf(run).map((text) => warning(run.label + ': ' + text)));
  const table = tableNode('runs', runTable());
  // In a matrix, the tables of its contracts come first.
  refill(place, [report.matrix ? detailsNode('runs', `the ${runs.length} runs`, table) : table, ...warnings]);
}

// Buttons of models where their seeds are drawn together, else of runs.
function legendEntries() {
  if (!isBanded()) return runs.map((run) => ({key: 'run ' + run.path, name: run.label, members: [run], paint: paintOf(run)}));
  return models.map((model) => ({key: 'model ' + model.name, name: model.name + (model.runs.length > 1 ? ` × ${model.runs.length}` : ''), members: model.runs, paint: paintOfModel(model)}));
}

function fillLegend() {
  refill(document.getElementById('legend'), legendEntries().map(({key, name, members, paint}) => {
    const isHidden = members.every((run) => shown.hidden.has(run.slot));
    const button = element('button', {type: 'button', title: 'hide or show ' + name}, swatchNode(paint), name);
    button.dataset.key = key;
    button.setAttribute('aria-pressed', String(!isHidden));
    button.addEventListener('click', () => hideOrShow(key));
    return button;
  }));
  document.getElementById('seeds').hidden = !hasSeeds();
}

function hideOrShow(key) {
  const {members} = legendEntries().find((entry) => entry.key === key), slotsOf = members.map((run) => run.slot);
  const hide = !slotsOf.every((slot) => shown.hidden.has(slot));
  for (const slot of slotsOf) if (hide) shown.hidden.add(slot); else shown.hidden.delete(slot);
  fillLegend();
  drawAll();
}
