// A matrix: the gap over training, and the claims with their verdicts.

const gapContracts = () => (report.matrix ? report.matrix.contracts.filter((contract) => contract.gaps.length) : []);

// Difference of each row's validation loss to the first row's, seed by seed, with its 95% interval.
function gapChart({contract: name}) {
  const contract = gapContracts().find((one) => one.name === name) || gapContracts()[0];
  if (!contract) return {missing: 'No two models were evaluated at equal shares of their runs yet.'};
  const first = rowName(contract.rows[0]);
  const traces = contract.gaps.flatMap((gap) => {
    const row = contract.rows.find((one) => one.model === gap.model && one.precision === gap.precision), model = modelOfRow(row);
    const colour = colourAt(model ? model.slot : 6), x = gap.points.map((p) => 100 * p.share), title = rowName(row);
    const bound = (i) => gap.points.map((p) => (p.interval95 ? p.interval95[i] : p.mean));
    const edge = (i, fill) => ({type: 'scatter', mode: 'lines', x, y: bound(i), line: {width: 0}, fill, fillcolor: faded(colour, 0.18), hoverinfo: 'skip', showlegend: false, name: plain(title)});
    return [edge(0, 'none'), edge(1, 'tonexty'), {type: 'scatter', mode: 'lines+markers', x, y: gap.points.map((p) => p.mean), line: {color: colour, width: 2}, marker: {size: 6, symbol: gap.points.map((p) => (p.interpolated ? 'circle-open' : 'circle'))}, name: plain(title),
      customdata: gap.points.map((p) => [p.n, p.interval95 ? p.interval95.map((b) => signed(b)).join(' to ') : noInterval(p)]),
      hovertemplate: `<b>${plain(title)}</b> minus ${plain(first)}<br>%{x:.3~g}% of the run<br>%{y:+.4f} nats over %{customdata[0]} seeds<br>95% interval %{customdata[1]}<extra></extra>`}];
  });
  const trends = contract.gaps.filter((gap) => gap.trend_per_doubling).map((gap) =>
    `${gap.model}: ${signed(gap.trend_per_doubling.mean)} nats per doubling of the tokens` + (gap.trend_per_doubling.interval95 ? ` (${gap.trend_per_doubling.interval95.map((b) => signed(b)).join(' to ')})` : ''));
  const notes = ['Line: mean over the seeds that both have; band: Student\'s 95% interval.',
    contract.gaps.some((gap) => gap.points.some((p) => p.interpolated)) ? 'Open points: a loss was read between two evaluations.' : '',
    trends.length ? trends.join('; ') + '.' : ''];
  return {traces, layout: {xaxis: {title: 'share of the run (%)', ticksuffix: '%'}, yaxis: {title: `loss minus ${first}'s (nats per token)`},
    shapes: [{type: 'line', xref: 'paper', x0: 0, x1: 1, y0: 0, y1: 0, line: {color: css('--soft'), width: 1, dash: 'dot'}}]},
    note: notes.filter(Boolean).join(' '),
    table: () => ({columns: ['contract', 'model', 'precision', 'share', 'n', 'gap', 'low95', 'high95', 'interpolated'], rows: contract.gaps.flatMap((gap) => gap.points.map((p) =>
      [contract.name, gap.model, gap.precision, p.share, p.n, p.mean, ...(p.interval95 || [null, null]), p.interpolated ? 'yes' : 'no']))})};
}

const gapChartSpec = () => ({id: 'matrix-gap', title: 'Gap over training', wide: true, how: 'Models at equal shares of their runs, seed by seed.',
  controls: [{id: 'contract', label: 'contract', options: () => (gapContracts().length ? gapContracts().map(({name}) => [name, name]) : [['', '']])}],
  present: () => gapContracts().length > 0, build: gapChart});

const decided = (claim) => claim.verdict === 'holds' || claim.verdict === 'fails';
const verdictWords = (claim) => claim.verdict + (claim.why ? ': ' + claim.why : decided(claim) && claim.after_holm === false ? ', not after Holm' : '') +
  (decided(claim) && claim.not_held ? ', contract not kept' : '');

function claimTable() {
  const several = (key) => new Set(report.matrix.claims.map((claim) => claim[key])).size > 1;
  const more = ['contract', 'precision'].filter(several);
  const name = (claim) => claim.name + (claim.added_after_runs === null ? '' : ' (late)');
  const seeds = (claim) => (claim.validations_too_far_apart ? (claim.measure === 'first_saturation' ? 'logged steps' : 'validations') + ' too far apart' : claim.more_seeds === null ? '> 1000' : String(claim.more_seeds));
  const needed = (claim) => (claim.verdict === 'undecided' && claim.p !== null ? seeds(claim) : null);
  return {columns: ['claim', 'verdict', 'statement', ...more, 'n', 'mean', '95% interval', 'p (Holm)', 'more seeds'],
    rows: report.matrix.claims.map((claim) => [name(claim), element('span', {className: 'badge ' + claim.verdict.replace(' ', '_'), textContent: verdictWords(claim)}), claim.is, ...more.map((key) => claim[key]),
      `${claim.compared ? claim.compared.n : 0} of ${claim.planned}`, claim.compared ? digits(claim.compared.mean) : null, claim.compared && claim.compared.interval95 ? claim.compared.interval95.map((b) => digits(b)).join(' to ') : claim.counts,
      claim.p_holm === null ? null : claim.p_holm < 0.001 ? '< 0.001' : claim.p_holm.toFixed(3), needed(claim)])};
}

function claimPanels() {
  if (report.matrix.claims.length === 0) return [];
  const seal = report.matrix.claims_seal;
  return [tablePanel('claims', 'Claims', claimTable,
    element('p', {className: 'note', textContent: 'holds: the whole 95% interval over the seeds satisfies the claim; fails: no part of it does; undecided: a part of it does, there is one seed, or a few seeds are all equal. Shares of collapsed runs are judged by exact tests of their counts. ' +
      'p (Holm): of the test that the mean is on the claim\'s bound, corrected for the number of claims judged; verdicts above 0.05 are marked. More seeds: how many would decide it if mean and spread stayed as they are.'}),
    seal ? element('p', {className: 'note', textContent: seal.says}) : '')];
}
