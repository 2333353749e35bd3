// Number formats: losses of the quantised operands of a run and the scales of their blocks, by role
// and operand over the sampled steps.

const precisionWords = {
  error: {label: 'relative error', says: 'root mean square of the error over that of the operand'},
  flushed: {label: 'flushed to 0', says: 'share of the values that were not 0 and became 0'},
  saturated: {label: 'saturated', says: 'share of the values beyond the format\'s largest'},
  flips: {label: 'flipped codes', says: 'share of a weight\'s codes that the update of the sampled step changed'},
  zero_blocks: {label: 'blocks of zeros', says: 'share of the blocks whose largest magnitude is 0'},
  low_scales: {label: 'scales at the low end', says: 'share of the blocks whose scale is the smallest of its format, or 0'},
  high_scales: {label: 'scales at the high end', says: 'share of the blocks whose scale is the largest of its format'},
};
const withPrecision = () => visible().filter(({run}) => run.precision);
const precisionRuns = () => (withPrecision().length ? withPrecision().map(({run, index}) => [index, run.label]) : [['', '']]);
const precisionOf = (values) => runAt(values.of) && runAt(values.of).precision;
const precisionRoles = (values) => {
  const precision = precisionOf(values);
  if (!precision) return [['', '']];
  const roles = [...new Set(precision.rows.map((row) => row.role))];
  return [...roles.map((role) => [role, role.replace(/_/g, ' ')]), ...(roles.length > 1 ? [['all', 'all roles']] : [])];
};
const precisionMeasures = (values) => {
  const precision = precisionOf(values);
  if (!precision) return [['', '']];
  return Object.keys(precisionWords).filter((name) => precision.rows.some((row) => row.values[name]))
    .map((name) => [name, precisionWords[name].label]);
};
const noPrecision = () => visible().length === 0 ? noRuns() : 'No run shown here quantises a product.';
const operandNames = ['fprop.input', 'fprop.weight', 'dgrad.gradient', 'dgrad.weight', 'wgrad.gradient', 'wgrad.input'];

// One curve per row: the colour shows the operand, the dash the role.
function precisionCurves({of, role}, measures) {
  const run = runAt(of), {steps, rows, of: sampled} = run.precision;
  const roles = [...new Set(rows.map((row) => row.role))];
  return rows.filter((row) => role === 'all' || row.role === role).flatMap((row) => measures.filter(({name}) => row.values[name]).map(({name, style = {}}) => ({
    run, of: [row.role, row.operand, row.format, name].join(' '),
    name: (role === 'all' ? row.role.replace(/_/g, ' ') + ' ' : '') + `${row.operand}, ${row.format}`,
    series: {step: steps, value: row.values[name], of: sampled},
    style: {paint: {colour: colourAt(operandNames.indexOf(row.operand))}, line: {dash: role === 'all' ? ['solid', 'dash', 'dot', 'dashdot'][roles.indexOf(row.role)] : 'solid', ...style}},
  })));
}
function precisionChart(values, measures, more) {
  if (withPrecision().length === 0 || !precisionOf(values)) return {missing: noPrecision()};
  const {steps, of} = precisionOf(values);
  const chosen = of > steps.length ? `${steps.length} of ${grouped(of)} sampled steps, evenly chosen.` : '';
  const built = curveChart(precisionCurves(values, measures), {unit: '', legend: true, banded: false, ...more});
  return {...built, note: [more.note, chosen].filter(Boolean).join(' ')};
}

const precisionLayout = ({name, logY}) => (logY ? {} : {yaxis: {title: precisionWords[name]?.label, rangemode: 'tozero', tickformat: '.1~%'}});
function lostChart(values) {
  const words = precisionWords[values.name] || {};
  return precisionChart(values, [{name: values.name}], {y: words.label, logY: values.logY, height: isNarrow() ? 300 : 400, layout: precisionLayout(values), note: `${words.label}: ${words.says}.`});
}
const scalesChart = (values) => precisionChart(values, [{name: 'scale_max', style: {width: 2.4}}, {name: 'scale_min', style: {width: 1}}], {y: 'scale of a block', logY: true,
  note: 'For a tensor without block scales: 1 / S. A scale of 0 is missing on the logarithmic axis; the CSV has it.'});

function addPrecision() {
  const run = {id: 'of', label: 'run', options: precisionRuns}, role = {id: 'role', label: 'role', options: precisionRoles};
  addSection({id: 'precision', title: 'Number formats', present: () => runs.some((one) => one.precision), how: 'What the operands of products lose when they are quantised, as means over the weights that have them; ' +
    'assay precision prints the same numbers for one step, with the worst weight.', charts: [
    {id: 'precision', title: 'What the formats lose', wide: true, how: 'One line per operand of a product: its colour shows the operand, its dash the role.',
      controls: [run, role, {id: 'name', label: 'show', options: precisionMeasures}, {id: 'logY', label: 'log y', toggle: false}], build: lostChart},
    {id: 'scales', title: 'Range of the scales', wide: true, how: 'The largest (thick) and the smallest (thin) decoded scale of the blocks that are not all 0.',
      controls: [run, role], build: scalesChart},
  ]});
}
