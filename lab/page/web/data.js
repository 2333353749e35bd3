// The data of the page and what the reader chose. Every update replaces the data; choices are kept
// by run, so a run keeps its colour and stays hidden while others come and go.

let report, runs = [], models = [];
const shown = {x: 'step', logX: false, theme: 'auto', seeds: 'band', hidden: new Set(), isUpdate: false};
const slots = {run: new Map(), model: new Map()};  // of paths and of names; a model's slot gives the colour
const dashSlots = new Map();  // of each colour: of the paths of its runs

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

// Names in them are the data's own: "constructor" is in none that has not logged it.
function forgetPrototypes(run) {
  for (const named of [run.scalars, run.spans, run.router && run.router.measures.values]) if (named) Object.setPrototypeOf(named, null);
}

function useData(data) {
  const hidden = new Set([...slots.run].filter(([, slot]) => shown.hidden.has(slot)).map(([path]) => path));
  report = data;
  runs = data.runs;
  runs.forEach(forgetPrototypes);
  assignSlots(slots.run, runs.map((run) => run.path));
  shown.hidden = new Set(runs.filter((run) => hidden.has(run.path)).map((run) => slots.run.get(run.path)));
  for (const run of runs) run.slot = slots.run.get(run.path);
  models = data.models.map(({name, runs: members}) => ({name, runs: members.map((i) => runs[i])}));
  assignSlots(slots.model, models.map((model) => model.name));
  for (const model of models) {
    model.slot = slots.model.get(model.name);
    for (const run of model.runs) run.modelOf = model;
  }
  assignDashes();
}

// Runs of one colour differ in their dash. A model has the lowest of its runs'.
function assignDashes() {
  for (let colour = 0; colour < colours; ++colour) {
    const own = models.filter(({slot}) => slot % colours === colour).sort((a, b) => a.slot - b.slot);
    if (!dashSlots.has(colour)) dashSlots.set(colour, new Map());
    const table = dashSlots.get(colour);
    assignSlots(table, [...own.map((model) => model.runs[0]), ...own.flatMap((model) => model.runs.slice(1))].map((run) => run.path));
    for (const model of own) {
      for (const run of model.runs) run.dash = table.get(run.path);
      model.dash = Math.min(...model.runs.map((run) => run.dash));
    }
  }
}

const runAt = (slot) => runs.find((run) => String(run.slot) === String(slot));
const visible = () => runs.filter((run) => !shown.hidden.has(run.slot)).map((run) => ({run, index: run.slot}));
const hasSeeds = () => models.some((model) => model.runs.length > 1);
const isBanded = () => hasSeeds() && shown.seeds === 'band';

// Okabe and Ito's palette, distinguishable with every kind of colour vision. What has the same
// colour, further models and the seeds of one, differs in its dash.
const palette = {
  light: ['#0072b2', '#d55e00', '#008f68', '#b2568f', '#b07800', '#3a9bd3', '#5c646e'],
  dark: ['#4fa8e8', '#ff8f4d', '#2fcf9f', '#ea9cca', '#f0b93c', '#9ad6f7', '#aab3bd'],
};
const colours = palette.light.length;
// Of a line, in pixels drawn and left out; from the sixth on a stroke and more and more dots.
const dashes = ['solid', '9px,9px', '3px,3px', '9px,3px,3px,3px', '15px,9px'];
const dashAt = (n) => dashes[n] || '9px,3px' + ',3px,3px'.repeat(n - dashes.length + 2);
const isDark = () => shown.theme === 'dark' ||
  (shown.theme === 'auto' && window.matchMedia('(prefers-color-scheme: dark)').matches);
const colourAt = (slot) => palette[isDark() ? 'dark' : 'light'][slot % colours];
const paintOf = (run) => ({colour: colourAt(run.modelOf.slot), dash: dashAt(run.dash)});
const paintOfModel = (model) => ({colour: colourAt(model.slot), dash: dashAt(model.dash)});
