// The data of the page and what the reader chose. Every update replaces the data; choices are kept
// by run, so a run keeps its colour and stays hidden while others come and go.

let report, runs = [], models = [];
const shown = {x: 'step', logX: false, theme: 'auto', seeds: 'band', hidden: new Set(), isUpdate: false};
const slots = {run: new Map(), model: new Map()};  // of paths and of names; a slot gives the colour

// Keeps the slots of those that stay; newcomers take the lowest free ones.
function assignSlots(table, keys) {
  for (const key of [...table.keys()]) if (!keys.includes(key)) table.delete(key);
  for (const key of keys) {
    if (table.has(key)) continue;
    const used = new Set(table.values());
    let slot = 0;
    while (used.has(slot)) ++slot;
    table.set(key, slot);
  }
}

function useData(data) {
  const hidden = new Set([...slots.run].filter(([, slot]) => shown.hidden.has(slot)).map(([path]) => path));
  report = data;
  runs = data.runs;
  assignSlots(slots.run, runs.map((run) => run.path));
  shown.hidden = new Set(runs.filter((run) => hidden.has(run.path)).map((run) => slots.run.get(run.path)));
  for (const run of runs) run.slot = slots.run.get(run.path);
  models = data.models.map(({name, runs: members}) => ({name, runs: members.map((i) => runs[i])}));
  assignSlots(slots.model, models.map((model) => model.name));
  for (const model of models) {
    model.slot = slots.model.get(model.name);
    model.runs.forEach((run, place) => Object.assign(run, {modelOf: model, place}));
  }
}

const runAt = (slot) => runs.find((run) => String(run.slot) === String(slot));
const visible = () => runs.filter((run) => !shown.hidden.has(run.slot)).map((run) => ({run, index: run.slot}));
const hasSeeds = () => models.some((model) => model.runs.length > 1);
const isBanded = () => hasSeeds() && shown.seeds === 'band';

// Okabe and Ito's palette, distinguishable with every kind of colour vision; its second round is
// dashed. The seeds of a model share its colour; as single runs they differ in their dash.
const palette = {
  light: ['#0072b2', '#d55e00', '#008f68', '#b2568f', '#b07800', '#3a9bd3', '#5c646e'],
  dark: ['#4fa8e8', '#ff8f4d', '#2fcf9f', '#ea9cca', '#f0b93c', '#9ad6f7', '#aab3bd'],
};
const dashes = ['solid', 'dash', 'dot', 'dashdot', 'longdash', 'longdashdot'];
const isDark = () => shown.theme === 'dark' ||
  (shown.theme === 'auto' && window.matchMedia('(prefers-color-scheme: dark)').matches);
function paintAt(slot, place = 0) {
  const colours = palette[isDark() ? 'dark' : 'light'];
  return {colour: colours[slot % colours.length], dash: dashes[(Math.floor(slot / colours.length) + place) % dashes.length]};
}
const paintOf = (run) => paintAt(run.modelOf.slot, isBanded() ? 0 : run.place);
