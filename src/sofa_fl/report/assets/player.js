// The slider over rounds, its play button, and the keys that do the same.

const PACE = 1300; // milliseconds a round

function player(app) {
  const button = h("button", { type: "button", id: "play", "aria-label": "Play", onclick: toggle });
  const slider = h("input", { type: "range", id: "slider", min: 0, step: 1, "aria-label": "Round", title: "A tick below marks an edit of the tree. A dot above marks a change of data, or clients that joined or left.", oninput: slide });
  const ticks = h("div", { class: "ticks", "aria-hidden": "true" });
  const label = h("output", { id: "round", for: "slider" });
  const state = h("span", { id: "state" });
  const element = h("div", { class: "player" }, button, h("div", { class: "rail" }, ticks, slider), label, state);
  let timer = 0;
  let playing = false;

  function toggle() {
    if (playing) return pause();
    if (app.at >= app.numFrames() - 1) app.goTo(0);
    playing = true;
    timer = setTimeout(next, PACE / 2);
    draw();
  }

  function next() {
    if (app.at < app.numFrames() - 1) app.advance(() => (timer = setTimeout(next, PACE)));
    else pause();
  }

  function slide() {
    const to = Number(slider.value); // before `pause` draws it where it was
    pause();
    app.goTo(to);
  }

  function pause() {
    clearTimeout(timer);
    playing = false;
    if (app.stage) app.goTo(app.at + 1); // not halfway: the round that was being shown
    draw();
  }

  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, textarea, button, summary") && event.target !== slider) return;
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const where = { ArrowLeft: () => app.at - 1, ArrowRight: () => app.at + 1, Home: () => 0, End: () => app.numFrames() - 1 }[event.key];
    if (event.key === " ") {
      toggle();
    } else if (where) {
      pause();
      app.goTo(where());
    } else {
      return;
    }
    event.preventDefault();
  });

  function draw() {
    const num = app.numFrames();
    slider.max = Math.max(0, num - 1);
    slider.value = app.at;
    button.textContent = playing ? "❚❚" : "▶";
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
    const frame = app.stage ? app.stage.after : app.frame();
    label.textContent = frame ? `${nameOfRound(frame.round)}${frame.round ? ` of ${app.run.rounds}` : ""}` : "";
    slider.setAttribute("aria-valuetext", label.textContent);
    state.textContent = app.status;
    state.hidden = !app.status;
    drawTicks(num);
  }

  // A tick where the tree was edited, and a dot where data changed: there is something to see.
  function drawTicks(num) {
    if (!app.edits || ticks.dataset.of === String(num)) return;
    ticks.dataset.of = num;
    const mark = (i, kind) => {
      const made = h("i", kind ? { class: kind } : {});
      made.style.left = `${num > 1 ? (100 * i) / (num - 1) : 0}%`;
      return made;
    };
    ticks.replaceChildren(...app.run.frames.flatMap((frame, i) => {
      const tick = mark(i);
      tick.style.height = `${Math.min(9, 2 * Math.ceil(Math.sqrt(editsOf(app.run, i).length)))}px`;
      return dataNews(app.run, frame) ? [tick, mark(i, "data")] : [tick];
    }));
  }

  return { element, draw, pause };
}
