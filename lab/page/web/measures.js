// Router measures in words: name, description, unit and ceiling by column name. A column not listed
// here, or without a name, is shown under that of its column.

const measureWords = {
  assignments: {unit: 'assignments', says: 'tokens times K'},
  cv: {unit: '%', says: '100 std(load) / mean(load): 0 is even', ceiling: (r) => r.cv_ceiling, of: '100 sqrt((E - K) / K)'},
  cv_floor: {unit: '%', says: 'the cv that uniform random routing shows by sampling alone'},
  max_load: {unit: 'share', says: 'the largest share of the assignments on one expert', ceiling: (r) => r.max_load_ceiling, of: '1/K'},
  entropy: {unit: 'nats', says: 'entropy of the loads: at its ceiling they are even', ceiling: (r) => r.entropy_ceiling, of: 'ln E'},
  e_eff: {name: 'effective experts', unit: 'experts', says: 'exp(entropy): the number of evenly loaded experts with this entropy', ceiling: (r) => r.experts, of: 'E'},
  participation: {unit: 'experts', says: '1 / sum load^2', ceiling: (r) => r.experts, of: 'E'},
  active: {unit: 'experts', says: 'experts with at least one assignment', ceiling: (r) => r.experts, of: 'E'},
  gini: {unit: '', says: 'Gini coefficient of the loads: 0 is even'},
  dead_for: {unit: 'experts', says: 'experts without an assignment in the last W logged steps', ceiling: (r) => r.experts, of: 'E'},
  bias_range: {unit: '', says: 'largest minus smallest selection bias', ceiling: () => 32, of: 'the clamp'},
  margin: {unit: '', says: 'score of the last chosen expert minus that of the first unchosen one'},
  lead: {unit: '', says: 'score of the first chosen expert minus that of the first unchosen one: how far the bias must move to displace it'},
  gate_entropy: {unit: 'nats', says: 'mean entropy of the gates of a token', ceiling: (r) => Math.log(r.top_k), of: 'ln K'},
  overlap: {unit: 'share', says: 'share of the chosen experts of fixed tokens that were also chosen at the previous probe', ceiling: () => 1, of: 'all'},
};

// cv, cv_norm, window_cv, window_cv_norm: one measure in four forms.
function measureOf(name) {
  const windowed = name.startsWith('window_'), normal = name.endsWith('_norm');
  const base = name.replace(/^window_/, '').replace(/_norm$/, '');
  const words = measureWords[base] || {unit: '', says: ''};
  const of = words.of || 'its ceiling', called = words.name || base.replace(/_/g, ' ');
  return {
    name, base, called, windowed, normal, says: words.says,
    label: called + (normal ? ` / ${base === 'max_load' ? 'ceiling (K max load)' : of}` : '') + (windowed ? ', last W steps' : ''),
    unit: normal ? 'of its ceiling' : words.unit,
    ceiling: (router) => (normal ? 1 : words.ceiling ? words.ceiling(router) : null),
    ceilingName: normal ? '' : of,
  };
}

const withRouters = () => visible().filter(({run}) => run.router);

// What is said of runs is said once for the seeds of a model: [{name, members}].
function byModel(list) {
  const groups = new Map();
  for (const {run} of list) groups.set(run.modelOf, [...(groups.get(run.modelOf) || []), run]);
  return [...groups].map(([model, members]) => ({name: members.length > 1 ? `${model.name} × ${members.length}` : members[0].label, members}));
}
// "40" or, of seeds that differ, "30 to 40".
const spanText = (values) => [...new Set([lowestOf(values), highestOf(values)])].map(grouped).join(' to ');

function noRouters() {
  if (visible().length === 0) return noRuns();
  const planned = visible().filter(({run}) => run.moe);
  if (planned.length === 0) return 'No routed experts: ' + (visible().length === 1 ? 'the run shown is dense.' : 'the runs shown are dense.');
  const why = (run) => run.problem || run.notes.join(' ') || 'no router telemetry.';
  return 'No router telemetry. ' + byModel(planned).flatMap(({name, members}) => (new Set(members.map(why)).size === 1 ? [name + ': ' + why(members[0])] :
    members.map((run) => run.label + ': ' + why(run)))).join(' ');
}
const routerRuns = () => (withRouters().length ? withRouters().map(({run, index}) => [index, run.label]) : [['', '']]);
const allOrLayers = () => (withRouters().length === 0 ? [['', '']] : [
  ...(withRouters().length > 1 ? [['all', 'one per run']] : []),
  ...withRouters().map(({run, index}) => [index, (withRouters().length > 1 ? run.label + ', ' : '') + 'one per layer']),
  ...(withRouters().length > 1 ? [] : [['all', 'mean of the layers']])]);

const measuresOf = (run) => run.router.measures;
const measureNames = () => [...new Set(withRouters().flatMap(({run}) => Object.keys(measuresOf(run).values)))];
const measureOptions = () => {
  const first = firstMeasure(), names = measureNames().filter((name) => !name.endsWith('assignments'));
  names.sort((a, b) => (b === first) - (a === first));
  return names.length ? names.map((name) => [name, measureOf(name).label]) : [['', '']];
};

// The ceilings of max_load and cv are of one E and K, where even loads have a K max_load of K / E;
// max_load and entropy fall and rise with E: only as a share of the experts are effective ones
// comparable.
const differIn = (list, key) => new Set(list.map((run) => run.router[key])).size > 1;
const differInShape = (list) => differIn(list, 'experts') || differIn(list, 'top_k');
const firstMeasure = () => (differInShape(runs.filter((run) => run.router)) && measureNames().includes('window_e_eff_norm') ? 'window_e_eff_norm' : 'max_load_norm');
function acrossNote(list, {base, normal}) {
  const compared = list.map(({run}) => run), ofShape = normal && (base === 'max_load' || base === 'cv');
  const differs = differIn(compared, 'experts') && (ofShape || base === 'max_load' || base === 'entropy') ? 'their number of experts' :
    differIn(compared, 'top_k') && ofShape ? 'K' : '';
  return differs && `These runs differ in ${differs}: this measure does not say which is more even; effective experts / E does.`;
}

// "Ceiling: 264.6 % (100 sqrt((E - K) / K)).", by model if they differ.
function ceilingNote(list, measure) {
  const groups = byModel(list), texts = groups.map(({members}) => {
    const ceiling = measure.ceiling(members[0].router);  // of E and K, equal in all seeds
    return ceiling === null ? null : `${wholeOrDigits(ceiling)} ${measure.normal ? '' : measure.unit}`.trim() + (measure.ceilingName ? ` (${measure.ceilingName})` : '');
  });
  if (texts.some((text) => text === null)) return '';
  if (new Set(texts).size === 1) return `Ceiling: ${texts[0]}.`;
  return 'Ceilings: ' + groups.map(({name}, i) => `${name} ${texts[i]}`).join('; ') + '.';
}
// The cv of sampling alone, by model.
function floorNote(list, measure) {
  if (measure.base !== 'cv') return '';
  const column = (measure.windowed ? 'window_' : '') + 'cv_floor';
  const texts = byModel(list).flatMap(({name, members}) => {
    const floor = median(members.flatMap((run) => (measuresOf(run).values[column] || []).flat()));
    if (floor === null) return [];
    return [`${name} ${digits(measure.normal ? floor / members[0].router.cv_ceiling : floor)}${measure.normal ? ' of the ceiling' : '%'}`];
  });
  return texts.length ? `Sampling floor of cv, from uniform routing: ${texts.join('; ')}.` : '';
}
// How many of the logged steps the curves, maps and CSV of router measures have, if not all.
function stepsNote(list) {
  const counts = byModel(list.filter(({run}) => measuresOf(run).of > measuresOf(run).steps.length)).map(({name, members}) =>
    `${list.length > 1 ? name + ' ' : ''}${spanText(members.map((run) => measuresOf(run).steps.length))} of ${spanText(members.map((run) => measuresOf(run).of))}`);
  return counts.length ? `${counts.join('; ')} logged steps: of each stretch those with the lowest and the highest max load, and with the most dead experts.` : '';
}
const measureNote = (list, name) => {
  const measure = measureOf(name);
  return [measure.says ? `${measure.called}: ${measure.says}.` : '', acrossNote(list, measure), ceilingNote(list, measure),
    floorNote(list, measure), stepsNote(list)].filter(Boolean).join(' ');
};
const measureTable = (list, names) => () => ({
  columns: ['run', 'layer', ...placeColumns, ...names],
  rows: list.flatMap(({run}) => run.router.layers.flatMap((layer, l) => measuresOf(run).steps.map((step, s) =>
    [run.label, layer, ...place(run, step), ...names.map((name) => (measuresOf(run).values[name] || [])[l]?.[s] ?? null)]))),
});
