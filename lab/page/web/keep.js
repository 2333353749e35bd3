// Replaces parts of the page without losing the reader's place in them: focus, open details,
// sideways scroll of tables.

const contents = new WeakMap();  // of a container: the HTML it was last filled with
const focusable = 'button, select, input, summary, a';

function keptState(container) {
  const keyed = (selector, read) => new Map([...container.querySelectorAll(selector)].map((node) => [node.dataset.key, read(node)]));
  const active = container.contains(document.activeElement) ? document.activeElement : null;
  return {
    open: keyed('details[data-key]', (node) => node.open), scroll: keyed('.scroller[data-key]', (node) => node.scrollLeft),
    focus: active && {key: active.dataset.key, place: [...container.querySelectorAll(focusable)].indexOf(active)},
  };
}

function restoreState(container, {open, scroll, focus}) {
  for (const node of container.querySelectorAll('details[data-key]')) if (open.has(node.dataset.key)) node.open = open.get(node.dataset.key);
  for (const node of container.querySelectorAll('.scroller[data-key]')) node.scrollLeft = scroll.get(node.dataset.key) || 0;
  if (!focus) return;
  const all = [...container.querySelectorAll(focusable)];
  const node = all.find((one) => focus.key && one.dataset.key === focus.key) || all[Math.min(focus.place, all.length - 1)];
  if (node) node.focus({preventScroll: true});
}

// Nodes are replaced only if they differ, so a selection of text survives an update that changes
// nothing. Handlers of the nodes have to look up the data when they are called.
function refill(container, nodes) {
  const next = element('div', {}, ...nodes);
  if (contents.get(container) === next.innerHTML) return;
  contents.set(container, next.innerHTML);
  const state = keptState(container);
  container.replaceChildren(...next.childNodes);
  restoreState(container, state);
  for (const scroller of container.querySelectorAll('.scroller')) markEdges(scroller);
  for (const details of container.querySelectorAll('details')) details.addEventListener('toggle', markAllEdges);
}

// Shadows at the edges behind which a table continues.
function markEdges(scroller) {
  const rest = scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft;
  scroller.parentNode.classList.toggle('more-right', rest > 1);
  scroller.parentNode.classList.toggle('more-left', scroller.scrollLeft > 1);
}
function markAllEdges() {
  for (const scroller of document.querySelectorAll('.scroller')) markEdges(scroller);
}

// Runs `change` and moves the page so that what was at the top of the window stays there.
function keepingPlace(change) {
  const anchor = [...document.querySelectorAll('figure, .panel, h2, .run')].find((node) => node.getBoundingClientRect().bottom > 60);
  const before = anchor ? anchor.getBoundingClientRect().top : 0;
  change();
  if (!anchor || !anchor.isConnected || window.scrollY === 0) return;
  const moved = anchor.getBoundingClientRect().top - before;
  if (Math.abs(moved) > 1) window.scrollBy(0, moved);
}
