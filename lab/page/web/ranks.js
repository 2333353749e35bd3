// Ranks: which one holds the others up, and what each did in a step. The sentence is the program's.

const withRanks = () => runs.filter((run) => run.ranks);
const mostRankRows = 16;  // on the page; the CSV has all

// All ranks of a run, or those that wait least and most, in the order of ranks.
function shownRanks({ranks}) {
  if (ranks.length <= mostRankRows) return ranks;
  const sorted = [...ranks].sort((a, b) => a.wait_share - b.wait_share), half = mostRankRows / 2;
  const kept = new Set([...sorted.slice(0, half), ...sorted.slice(-half)]);
  return ranks.filter((rank) => kept.has(rank));
}

function rankTable(run) {
  const row = ({rank, step_ms: step, wait_ms: wait, wait_share: share, bytes_sent: sent, peak_rss_bytes: peak}) =>
    [`rank ${rank}`, digits(step), digits(wait), (100 * share).toFixed(1) + '%', bytesText(sent), bytesText(peak)];
  return {columns: ['', 'step (ms)', 'waiting (ms)', 'waiting', 'sent in a step', 'peak host memory'], rows: shownRanks(run.ranks).map(row),
    sums: [`rank ${run.ranks.slow}`],
    raw: {columns: Object.keys(run.ranks.ranks[0]), rows: run.ranks.ranks.map(Object.values)}};
}

function rankPanel(run) {
  const {says, first_step: first, last_step: end, steps, ranks} = run.ranks, few = shownRanks(run.ranks).length;
  const note = `Medians over ${grouped(steps)} logged ${steps === 1 ? 'step' : 'steps'} (${grouped(first)} to ${grouped(end)}); peak host memory: the largest. ` +
    (few < ranks.length ? `Of ${grouped(ranks.length)} ranks the ${few / 2} that wait least and the ${few / 2} that wait most; the CSV has all.` : '');
  const panel = tablePanel('ranks-' + run.slot, run.label, () => rankTable(runAt(run.slot)), element('p', {className: 'note', textContent: note}));
  panel.querySelector('.chart-head').after(element('p', {textContent: says}));
  return panel;
}

function addRanks() {
  addSection({id: 'ranks', title: 'Ranks', present: () => withRanks().length > 0, how: 'Ranks meet in every step, so all take as long as the slowest. It comes last, so it is the one that waits least.',
    top: () => withRanks().map(rankPanel)});
}
