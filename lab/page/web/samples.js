// Texts that the runs generated while they trained.

const sampleRuns = () => visible().filter(({run}) => run.samples && run.samples.length);
const sampleChoice = {step: null};  // null: the last

function sampleNodes() {
  const having = sampleRuns();
  if (having.length === 0) {
    return [element('p', {className: 'missing', id: 'no-samples', textContent: runs.some((run) => run.samples && run.samples.length) ? 'The runs with samples are hidden.' :
      'No samples were recorded. To record some, train with --set \'eval.samples.prompts=["Once upon a time"]\'; assay sample RUN writes one now.'})];
  }
  const steps = [...new Set(having.flatMap(({run}) => run.samples.map((at) => at.step)))].sort((a, b) => a - b);
  return [sampleSteps(steps), element('div', {className: 'samples'}, ...having.map(({run}) => sampleCard(run, sampleChoice.step ?? last(steps))))];
}

function sampleSteps(steps) {
  const choice = element('select', {id: 'samples-step'}, ...steps.map((step) => element('option', {value: step, textContent: 'step ' + grouped(step), selected: step === (sampleChoice.step ?? last(steps))})));
  choice.dataset.key = 'samples-step';
  choice.addEventListener('change', () => {
    sampleChoice.step = choice.selectedIndex === choice.options.length - 1 ? null : Number(choice.value);
    drawAll();
  });
  return element('div', {className: 'controls'}, element('label', {}, 'at', choice));
}

// The samples of a run at the step, or at its last one before.
function sampleCard(run, step) {
  const at = [...run.samples].reverse().find((one) => one.step <= step) || run.samples[0];
  return element('article', {className: 'run'},
    element('div', {className: 'run-head'}, swatchOf(run), element('h3', {textContent: run.label}), element('span', {className: 'soft', textContent: 'step ' + grouped(at.step)})),
    ...at.texts.map(({prompt, text}) => element('p', {className: 'sample'}, element('b', {textContent: prompt}), text)));
}

function addSamples() {
  addSection({id: 'samples', title: 'Samples', how: 'Texts that the runs wrote while they trained; the prompt is bold. Draws depend only on prompt and position.', top: sampleNodes});
}
