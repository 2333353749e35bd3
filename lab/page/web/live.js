'use strict';
// Only in the page that `assay watch` serves: asks its server for new data, hands it to the page,
// and says on top what each run is doing.

(() => {
  const slowMs = 30000;   // while no run is training
  const lostMs = 3000;    // while the server does not answer
  const patienceMs = 60000;
  const noted = {training: 'good', starting: 'good', ended: 'quiet', export: 'quiet', missing: 'warn', 'broken off': 'warn', unreadable: 'bad'};
  let {etag, live} = liveStart, timer = null, lost = false, asking = false, seenAt = new Date();

  const node = (tag, className, text) => {
    const made = document.createElement(tag);
    made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const style = node('style', '');
  style.textContent = `
    #live { margin: 0 0 12px; padding: 8px 12px; border: 1px solid var(--line, #888); border-radius: 8px; font-size: 14px; overflow-wrap: anywhere; }
    #live p { margin: 2px 0; }
    #live .dot::before { content: ''; display: inline-block; width: 9px; height: 9px; margin-right: 8px; border-radius: 50%; background: var(--dot); }
    #live .good { --dot: #2a9d4e; } #live .quiet { --dot: #8a8f98; } #live .warn { --dot: #d98e00; } #live .bad { --dot: #d13b3b; }
    #live .note { color: var(--soft, inherit); font-size: 13px; }
    #live[data-lost] .dot { opacity: 0.5; }`;
  const box = node('div', '');
  box.id = 'live';
  document.head.append(style);
  const heading = document.querySelector('h1');
  if (heading) heading.after(box); else document.body.prepend(box);

  const clock = (time) => time.toLocaleTimeString();
  function show(problem) {
    const lines = live.runs.map((run) => {
      const line = node('p', 'dot ' + (noted[run.state] || 'quiet'));
      line.append(node('b', '', run.path), ': ' + run.text);
      return line;
    });
    const note = problem || live.problem || (live.over ? `No run is training. Checking again every ${slowMs / 1000} s.` : '');
    if (note) {
      const line = node('p', 'note', note);
      line.setAttribute('role', 'status');
      lines.push(line);
    }
    box.replaceChildren(...lines);
    if (lost) box.dataset.lost = 'yes'; else delete box.dataset.lost;
    box.dataset.over = live.over ? 'yes' : 'no';
  }

  function take(data) {
    const other = data.live.id !== live.id;  // another server has taken its place
    live = data.live;
    seenAt = new Date();
    if (other || (data.report && !window.assayPage)) {
      location.reload();
      return '';
    }
    if (!data.report || !window.assayPage) return '';
    try {
      window.assayPage.update(data.report);
      return '';
    } catch (error) {
      return `The charts could not be updated (${error.message}). Reload the page.`;
    }
  }

  async function ask() {
    const stop = new AbortController(), patience = setTimeout(() => stop.abort(), patienceMs);
    try {
      const answer = await fetch('data.json', {headers: {'If-None-Match': etag}, cache: 'no-store', signal: stop.signal});
      if (answer.status === 200) {
        const data = await answer.json();
        etag = answer.headers.get('ETag');
        lost = false;
        show(take(data));
      } else if (answer.status !== 304) {
        throw Object.assign(new Error(`answers with status ${answer.status}` + (answer.status === 500 ? ': it could not read the runs' : '')), {answered: true});
      } else if (lost) {
        lost = false;
        show('');
      }
    } catch (error) {
      lost = true;
      const silent = error.name === 'AbortError' ? `has not answered for ${patienceMs / 1000} s: it is reading the runs` : 'does not answer: it was stopped';
      show(`assay watch ${error.answered ? error.message : silent + ', or the connection is lost'}. The page shows the data of ${clock(seenAt)} and resumes when it is back.`);
    } finally {
      clearTimeout(patience);
    }
  }

  async function poll() {
    if (asking) return;
    asking = true;
    clearTimeout(timer);
    if (!document.hidden) await ask();  // a page that nobody sees asks nothing
    asking = false;
    timer = setTimeout(poll, lost ? lostMs : live.over ? slowMs : 1000 * live.every_s);
  }
  document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
  show('');
  timer = setTimeout(poll, 1000 * Math.min(live.every_s, slowMs));
})();
