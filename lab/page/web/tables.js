// Tables: the first column stays in place, and a shadow shows where there is more to the side.
//
//   {columns: [text], rows: [[cell]], raw: {columns, rows} of the CSV if they differ, sums: first cells in bold}
//   cell: text, a node, or null for a dash

const cellNode = (tag, cell) => (cell instanceof Node ? element(tag, {}, cell) : element(tag, {textContent: cell ?? '–'}));

function tableNode(key, {columns, rows, sums = []}) {
  const scroller = element('div', {className: 'scroller', tabIndex: 0}, element('table', {},
    element('thead', {}, element('tr', {}, ...columns.map((cell) => cellNode('th', cell)))),
    element('tbody', {}, ...rows.map((row) => element('tr', {className: sums.includes(row[0]) ? 'sum' : ''}, ...row.map((cell) => cellNode('td', cell)))))));
  scroller.dataset.key = key;
  scroller.setAttribute('role', 'region');
  scroller.setAttribute('aria-label', 'table, scrolls sideways');
  scroller.addEventListener('scroll', () => markEdges(scroller), {passive: true});
  return element('div', {className: 'table'}, scroller);
}

// `table`: a function, because the data may have changed when the button is pressed.
function csvButton(name, table) {
  const button = element('button', {type: 'button', className: 'csv', textContent: 'CSV', title: 'download the table'});
  button.dataset.key = 'csv-' + name;
  button.setAttribute('aria-label', `download the table ${name} as CSV`);
  button.addEventListener('click', () => {
    const built = table();
    download(name, built.raw || {columns: built.columns.map(cellText), rows: built.rows.map((row) => row.map(cellText))});
  });
  return button;
}
const cellText = (cell) => (cell instanceof Node ? cell.textContent : cell);

function tablePanel(id, title, table, ...more) {
  return element('div', {className: 'panel', id: 'table-' + id},
    element('div', {className: 'chart-head'}, element('h3', {textContent: title}), csvButton(id, table)), tableNode(id, table()), ...more);
}

// Facts of runs or models with one row per fact; with one row per run where there are many.
function turned({columns, rows, raw, sums}) {
  const turn = (head, list) => head.slice(1).map((name, i) => [name, ...list.map((row) => row[i + 1])]);
  if (columns.length <= (isNarrow() ? 3 : 6)) return {columns, rows, raw, sums};
  return {columns: [columns[0], ...rows.map((row) => row[0])], rows: turn(columns, rows), raw};
}

function detailsNode(key, summary, ...children) {
  const node = element('details', {}, element('summary', {textContent: summary}), ...children);
  node.dataset.key = key;
  return node;
}
const warning = (text) => element('p', {className: 'warning', textContent: text});
