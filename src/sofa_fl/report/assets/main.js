// One run, or several: builds the page out of its cards and keeps them at one round.

function makeApp(run, live) {
  const app = {
    run, live, at: Math.max(0, run.frames.length - 1), picked: null, status: statusOf(run, live), cards: [], bar: null,
    numFrames: () => run.frames.length,
    frame: () => run.frames[app.at] || null,
    edits: () => (run.frames.length ? editsOf(run, app.at) : []),
    lastRound: () => Math.max(run.rounds, run.history.length ? run.history[run.history.length - 1].round : 0),
    goTo(index) {
      if (index === app.at) return;
      const near = Math.abs(index - app.at) === 1;
      app.at = index;
      app.draw(near);
    },
    goToRound(round) {
      const behind = run.frames.findIndex((frame) => frame.round >= round);
      if (behind >= 0) app.goTo(behind);
    },
    pick(node) {
      app.picked = app.picked === node ? null : node;
      app.draw(false);
    },
    point(nodes) {
      const wanted = new Set(nodes.map(String));
      for (const mark of document.querySelectorAll("[data-node]")) mark.classList.toggle("pointed", wanted.has(mark.dataset.node));
    },
    setStatus(status) {
      app.status = status;
      app.bar.draw();
    },
    grow(follow) {
      if (!app.cards.length) return location.reload();
      const near = follow && app.at === run.frames.length - 2;
      if (follow || app.at >= run.frames.length) app.at = Math.max(0, run.frames.length - 1);
      app.draw(near);
    },
    draw(animate) {
      app.bar.draw();
      drawHead(app);
      for (const view of app.cards) view.draw(animate);
    },
  };
  return app;
}

function drawHead(app) {
  const { run } = app;
  const frame = app.frame();
  const facts = frame
    ? [number(frame.raw.clients.length, "client"), number(frame.raw.clusters.length, "cluster"), `depth ${frame.record.depth}`, `seed ${run.seed}`]
    : [`seed ${run.seed}`];
  document.getElementById("facts").textContent = facts.join(" · ");
}

function legend(run) {
  const stops = VIRIDIS.map((code, i) => `#${code} ${((100 * i) / (VIRIDIS.length - 1)).toFixed(0)}%`);
  const ramp = h("i", { class: "ramp" });
  ramp.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
  const ticks = h("span", { class: "ramp-ticks" });
  for (const tick of apart(run.scale.ticks, run.scale.share, 0.19)) {
    const mark = h("span", {}, percent(tick, tick > 0.99 ? 1 : 0));
    mark.style.left = `${100 * Math.min(1, Math.max(0, run.scale.share(tick)))}%`;
    ticks.append(mark);
  }
  return h("div", { class: "legend" }, h("span", {}, "colour: accuracy"), h("span", { class: "ramp-box" }, ramp, ticks),
    h("span", {}, "size: samples"), h("span", { class: "ring changed" }, "just changed"), h("span", { class: "ring worst" }, "worst"));
}

const themeButton = (redraw) => h("button", {
  type: "button", id: "theme", "aria-label": "Switch between light and dark",
  onclick: () => {
    theme.set(theme.get() === "dark" ? "light" : "dark");
    redraw();
  },
}, "◐");

function singlePage(root, run, live) {
  const app = makeApp(run, live);
  app.bar = player(app);
  const head = h("header", { class: "top" },
    h("div", {}, h("h1", {}, `${run.title} on ${run.data}`), h("p", { class: "sub" }, h("b", { id: "name" }, run.name), " · ", h("span", { id: "facts" }))),
    themeButton(() => app.draw(false)));
  root.replaceChildren(head, app.bar.element);
  app.bar.draw();
  drawHead(app);
  if (!run.frames.length) {
    root.append(h("p", { class: "empty" }, "No round is on record yet: the warm-up is under way."));
  } else {
    root.append(...cardsFor(app));
    app.draw(false);
  }
  if (live) watchLive(app);
  return app;
}

function cardsFor(app) {
  const { run } = app;
  const add = (view) => {
    app.cards.push(view);
    return view.element;
  };
  const has = (key) => run.frames.some((frame) => frame.raw[key]) || app.live;
  const tree = card("tree-card", "The tree", null, legend(run), add(treeView(app)));
  const edits = card("edits-card", "Edits", null, add(editsView(app)));
  const found = [
    h("div", { class: "row wide-left" }, tree, edits),
    card("clients-card", "Clients", "Accuracy on each client's own test samples. Every step up the scale has the same part fewer errors.", add(clientsView(app))),
    card("fairness-card", "Fairness", null, add(fairnessView(app))),
  ];
  const levels = run.history.some((record) => record.levels.length) || app.live
    ? card("levels-card", "Levels", "Held-out loss of the models on a client's path: what is each level good for?", add(levelsView(app))) : null;
  const map = has("places") ? card("map-card", "Map", null, add(mapView(app))) : null;
  found.push(h("div", { class: "row" }, levels, map));
  if (run.history.some((record) => (record.disclosed || {}).max) || app.live) {
    found.push(card("sharing-card", "Sharing", null, add(sharingView(app))));
  }
  if (run.history.some((record) => record.groups)) {
    found.push(card("groups-card", "Known groups", "How well the tree agrees with the groups in the data, which no method is told; 1 is exactly.", add(groupsView(app))));
  }
  if (run.history.some((record) => record.absent || record.set_aside || record.quarantined)) {
    found.push(card("aside-card", "Set aside", "Clients that did not take part as others did, and why.", add(asideView(app))));
  }
  found.push(card("cost-card", "Cost", null, add(costView(app))), card("config-card", "Configuration", null, add(configView(app))));
  if (run.frames.length < run.history.length) {
    found.unshift(h("p", { class: "note" }, `Of ${number(run.history.length, "round")} ${run.frames.length} are drawn, to keep the page small; edits and curves are complete.`));
  }
  return found;
}
