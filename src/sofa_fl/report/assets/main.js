// One run, or several: builds the page out of its cards and keeps them at one round.

const STAGE_PACE = 750; // milliseconds an edit
const ALL_STAGES = 6000; // and no more than this for all of a round

function makeApp(run, live) {
  const app = {
    run, live, at: Math.max(0, run.frames.length - 1), picked: null, status: statusOf(run, live), cards: [], kinds: "", bar: null, stage: null, timer: 0,
    body: h("main", {}),
    numFrames: () => run.frames.length,
    frame: () => run.frames[app.at] || null,
    edits: () => (run.frames.length ? editsOf(run, app.at) : []),
    lastRound: () => Math.max(run.rounds, run.history.length ? run.history[run.history.length - 1].round : 0),
    // The cards for what there is to show; of a run that is going on, that may become more.
    build() {
      app.cards = [];
      app.kinds = kindsOf(run).join();
      app.body.replaceChildren(...cardsFor(app, new Set(kindsOf(run))));
    },
    goTo(index) {
      const to = Math.min(Math.max(index, 0), run.frames.length - 1);
      const staged = app.endStages();
      if (to === app.at && !staged) return;
      const near = Math.abs(to - app.at) <= 1;
      app.at = to;
      app.draw(near);
    },
    // To the next round, edit by edit; `then` is called once it is there.
    advance(then) {
      const left = stagesTo(run, app.at + 1);
      const pace = Math.min(STAGE_PACE, ALL_STAGES / left.length);
      const next = () => {
        app.stage = left.shift() || null;
        if (app.stage) {
          app.timer = setTimeout(next, pace);
          for (const view of app.cards.filter((card) => card.staged)) view.draw(true);
          app.bar.draw();
        } else {
          app.goTo(app.at + 1);
          then();
        }
      };
      next();
    },
    endStages() {
      const staged = Boolean(app.stage);
      clearTimeout(app.timer);
      app.stage = null;
      return staged;
    },
    shown: () => app.stage || { frame: app.frame(), edits: app.edits() },
    goToRound(round) {
      app.bar.pause();
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
    // There are more rounds; who looked at the last one is taken along, edit by edit if it is one.
    grow(follow) {
      const last = Math.max(0, run.frames.length - 1);
      const staged = app.endStages();
      if (follow && !staged && app.at === last - 1 && app.cards.length) return app.advance(() => {});
      app.at = follow ? last : Math.min(app.at, last);
      app.draw(false);
    },
    draw(animate) {
      if (app.kinds !== kindsOf(run).join()) app.build();
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
  const { format, name } = run.score;
  const told = frame ? [["mean", frame.record.client.mean], ["worst client", frame.record.client.min]] : [];
  const scores = told.map(([what, value]) =>
    h("span", {}, h("b", {}, format(value)), ` ${what === "mean" ? `mean ${name}` : what}${isScored(frame.record) ? "" : `, of round ${frame.record.evaluated}`}`));
  // What sharing disclosed stands beside what it brought.
  const most = frame && frame.record.disclosed ? frame.record.disclosed.max : 0;
  if (most) scores.push(h("span", {}, h("b", {}, percent(most, 1)), " of a client's samples disclosed (maximum)"));
  document.getElementById("headline").replaceChildren(...scores);
}

function legend(run, score = run.score) {
  const stops = VIRIDIS.map((code, i) => `#${code} ${((100 * i) / (VIRIDIS.length - 1)).toFixed(0)}%`);
  const ramp = h("i", { class: "ramp" });
  ramp.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
  const ticks = h("span", { class: "ramp-ticks" });
  for (const tick of apart(run.scale.ticks, run.scale.share, 0.19)) {
    const mark = h("span", {}, score.tick(tick));
    mark.style.left = `${100 * Math.min(1, Math.max(0, run.scale.share(tick)))}%`;
    ticks.append(mark);
  }
  return h("div", { class: "legend" }, h("span", {}, `colour: ${score.name}`), h("span", { class: "ramp-box" }, ramp, ticks),
    h("span", {}, "size: samples"), h("span", {}, "number in a cluster: how many clients it has"), h("span", { class: "ring changed" }, "just changed"), h("span", { class: "ring worst" }, "worst"),
    run.frames.some((frame) => frame.absent.size) ? h("span", { class: "ring hollow" }, "absent") : null);
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
    h("div", { id: "headline" }), themeButton(() => app.draw(false)));
  const told = (run.remarks || []).map((remark) => h("p", { class: "remark" }, remark));
  root.replaceChildren(head, ...told, app.bar.element, app.body);
  app.draw(false);
  if (live) watchLive(app);
}

function kindsOf(run) {
  if (!run.frames.length) return ["nothing"];
  const some = (test) => run.history.some(test);
  return ["main", run.frames.length < run.history.length && "thinned", some((r) => r.levels.length) && "levels",
    run.frames.some((frame) => frame.raw.positions) && "map", some((r) => (r.disclosed || {}).max) && "sharing",
    some((r) => r.metrics) && `metrics ${metricsOf(run.history)}`, some((r) => r.objective) && "objective", some((r) => r.groups) && "groups", some((r) => r.absent || r.set_aside || r.quarantined) && "aside"].filter(Boolean);
}

function cardsFor(app, kinds) {
  if (kinds.has("nothing")) return [h("p", { class: "empty" }, "No round has been recorded yet: the warm-up is in progress.")];
  const add = (view) => {
    app.cards.push(view);
    return view.element;
  };
  const tree = card("tree-card", "The tree", null, legend(app.run), add(treeView(app)));
  const edits = card("edits-card", "Edits", null, add(editsView(app)));
  const found = [
    h("div", { class: "row wide-left" }, tree, edits),
    card("clients-card", "Clients", app.run.score.note, add(clientsView(app))),
    card("fairness-card", "Fairness", null, add(fairnessView(app))),
  ];
  if (metricsOf(app.run.history).length) {
    found.push(card("metrics-card", "Own metrics", "The mean and the range over the clients, each on its own test samples.", add(metricsView(app))));
  }
  const levels = kinds.has("levels")
    ? card("levels-card", "Levels", "The held-out loss of the models on clients' paths shows how useful each level is.", add(levelsView(app))) : null;
  const map = kinds.has("map") ? card("map-card", "Map", null, add(mapView(app))) : null;
  if (levels || map) found.push(h("div", { class: "row" }, levels, map));
  if (kinds.has("sharing")) {
    found.push(card("sharing-card", "Sharing", null, add(sharingView(app))));
  }
  if (kinds.has("objective")) {
    found.push(card("objective-card", "Objective", "The paper's objective L, which training should lower: the held-out loss of every node, and the distance of nodes from their siblings and parents.", add(objectiveView(app))));
  }
  if (kinds.has("groups")) {
    found.push(card("groups-card", "Known groups", "How well the tree agrees with the true groups, which only the oracle knows; 1 means that it agrees exactly.", add(groupsView(app))));
  }
  if (kinds.has("aside")) {
    found.push(card("aside-card", "Absent and set aside", "Clients that did not take part normally, and why.", add(asideView(app))));
  }
  if (Object.keys(app.run.left || {}).length) {
    found.push(card("left-card", "What left each site", "What the server received in this run; each site's own audit log covers all runs.", add(leftView(app))));
  }
  found.push(card("cost-card", "Cost", null, add(costView(app))), card("config-card", "Configuration", null, add(configView(app))));
  if (kinds.has("thinned")) {
    found.unshift(h("p", { class: "note" }, "With this many clients and rounds, only some rounds are drawn, to keep the page small; edits and means are complete."));
  }
  return found;
}
