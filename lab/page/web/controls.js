// The controls of a chart. Their elements stay through updates; what they offer follows the data.

function addControl(chart, control) {
  const id = chart.spec.id + '-' + control.id;
  const add = control.options ? addSelect : control.positions ? addSlider : control.press ? addButton : addToggle;
  const {node, refill: follow} = add(chart, control, id);
  chart.controls.append(node);
  chart.inputs.push(follow);
}

function addSelect(chart, control, id) {
  const input = element('select', {id, 'aria-label': control.label});
  const node = element('label', {}, control.label, input);
  let listed = '';
  input.addEventListener('change', () => {
    chart.chosen[control.id] = input.value;
    draw(chart);
  });
  return {node, refill: () => {
    const options = control.options(chart.values), values = options.map(([value]) => String(value));
    // Until the reader chooses, the first option is shown, which may change with the data.
    const chosen = chart.chosen[control.id];
    chart.values[control.id] = values.includes(chosen) ? chosen : values[0];
    // An open list would close if its options were replaced.
    if (listed !== JSON.stringify(options)) input.replaceChildren(...options.map(([value, label]) => element('option', {value, textContent: label})));
    listed = JSON.stringify(options);
    input.value = chart.values[control.id];
    node.hidden = options.length < 2;
  }};
}

// A slider over positions [[key, label]]. It stays at the key that the reader chose, or, as long as
// it is at its initial position (the last unless given), at that one.
function addSlider(chart, control, id) {
  const input = element('input', {id, type: 'range', min: 0, step: 1, 'aria-label': control.label}), output = element('output');
  const node = element('label', {className: 'slider'}, control.label, input, output);
  const list = () => control.positions(chart.values);
  const initial = (positions) => (control.initial ? control.initial(chart.values, positions) : positions.length - 1);
  input.addEventListener('input', () => {
    const positions = list(), at = Number(input.value);
    chart.chosen[control.id] = at === initial(positions) ? null : positions[at][0];
    if (control.unzooms) chart.zoom = {};
    draw(chart);
  });
  return {node, refill: () => {
    const positions = list(), key = chart.chosen[control.id] ?? null;
    let at = Math.max(0, initial(positions));
    if (key !== null) at = positions.reduce((best, [other], i) => (Math.abs(other - key) < Math.abs(positions[best][0] - key) ? i : best), 0);
    chart.values[control.id] = at;
    input.max = Math.max(0, positions.length - 1);
    input.value = at;
    output.textContent = positions[at] ? positions[at][1] : '';
    input.setAttribute('aria-valuetext', output.textContent);
    node.hidden = positions.length < 2;
  }};
}

function addToggle(chart, control, id) {
  const input = element('input', {id, type: 'checkbox', checked: control.toggle});
  chart.values[control.id] = control.toggle;
  input.addEventListener('change', () => {
    chart.values[control.id] = input.checked;
    draw(chart);
  });
  return {node: element('label', {}, input, control.label), refill: () => {}};
}

function addButton(chart, control, id) {
  const button = element('button', {id, type: 'button', textContent: control.label, title: control.title || ''});
  button.addEventListener('click', () => {
    control.press(chart);
    draw(chart);
  });
  return {node: button, refill: () => { button.hidden = Boolean(control.idle && control.idle(chart)); }};
}
