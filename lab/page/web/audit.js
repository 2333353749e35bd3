// What the models are: parameters by role, FLOPs, bytes; how their configurations differ.

const auditRows = [['embedding', 'embedding'], ['head', 'head'], ['norms', 'norms'], ['attention', 'attention'], ['dense feed-forward', 'dense_ffn'], ['router', 'router'],
  ['routed experts', 'routed_experts'], ['shared experts', 'shared_experts'], ['P_total', 'total'], ['P_active', 'active'], ['active feed-forward width', 'ffn_active_width'],
  ['FLOPs per token', 'flops_per_token'], ['weights', 'weight_bytes'], ['masters', 'master_bytes'], ['gradients', 'gradient_bytes'], ['moments', 'moment_bytes']];

// The seeds of a model have one column; its tokens are those of the seed that is furthest.
function auditTable() {
  const columns = ['', ...models.map((model) => model.name)];
  const furthest = models.map((model) => model.runs.reduce((a, b) => ((b.tokens || 0) > (a.tokens || 0) ? b : a)));
  const isBytes = (key) => key.endsWith('_bytes');
  const rows = auditRows.map(([name, key]) => [name, ...furthest.map((run) => (isBytes(key) ? bytesText(run.audit[key]) : grouped(run.audit[key])))]);
  const raw = auditRows.map(([name, key]) => [name + (isBytes(key) ? ' (bytes)' : ''), ...furthest.map((run) => run.audit[key])]);
  const add = (name, value, text = (v) => digits(v)) => {
    const values = furthest.map((run) => (run.problem ? null : value(run)));
    rows.push([name, ...values.map((v) => (v === null ? null : text(v)))]);
    raw.push([name, ...values]);
  };
  add('tokens trained', (run) => run.tokens, grouped);
  add('tokens / P_total', (run) => run.tokens / run.audit.total);
  add('tokens / P_active', (run) => run.tokens / run.audit.active);
  add('tokens per routed expert', (run) => (run.moe ? run.tokens * run.moe.top_k / run.moe.experts : null), grouped);
  add('FLOPs trained', (run) => flopsAt(run, run.steps_done), flopsText);
  return turned({columns, rows, raw: {columns, rows: raw}, sums: ['P_total', 'P_active']});
}

// Only the fields that differ between models.
const differenceTable = () => ({columns: ['field', ...models.map((model) => model.name)], rows: report.differences.map(({field, values}) => [field, ...values])});

function configurations() {
  return runs.map((run) => detailsNode('config ' + run.path, 'configuration of ' + run.label, element('pre', {textContent: run.config})));
}

function addAudit() {
  addSection({id: 'audit', title: 'Audit', how: 'Counted from the parameter tables of the models: parameters by role, training FLOPs per token, bytes held.',
    top: () => [tablePanel('audit', 'By model', auditTable)]});
  addSection({id: 'configurations', title: 'Configurations', top: () => [
    models.length > 1 && report.differences.length > 0 ? tablePanel('differences', 'Fields that differ', differenceTable) : null,
    models.length > 1 && report.differences.length === 0 ? element('p', {className: 'soft', textContent: 'The configurations differ only in folders.'}) : null,
    ...(runs.length > 3 ? [detailsNode('configurations', `whole configurations of the ${runs.length} runs`, ...configurations())] : configurations())]});
}
