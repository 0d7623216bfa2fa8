// Runs compared by their clients, by their trees and by their configurations.

function rankView(app) {
  const still = { last: 100, name: (x) => `the client at ${x}%` };
  const chart = lineChart(app, {
    label: `${app.score.title} of the clients from worst to best`, height: 260, named: true, still, format: app.score.format,
    content() {
      const lines = app.runs.map((run) => {
        const frame = frameAt(run, app.at);
        const order = frame ? byScore(frame) : [];
        const points = Array.from({ length: 101 }, (_, x) => [x, frame && frame.accuracy(order[Math.round((x / 100) * (order.length - 1))])]);
        return { name: run.short, colour: run.colour, points };
      });
      return { lines, axis: scoreAxis(valuesOf(lines), app.score) };
    },
  });
  return { element: chart.element, draw: chart.draw };
}

// The clients that both have, by how much their scores differ; ids mean the same client only for
// the same data and seed, so where these differ nothing is said.
function differenceView(app) {
  const element = h("div", {});
  const [base, ...others] = app.runs;

  function draw() {
    const first = frameAt(base, app.at);
    element.replaceChildren(...others.map((run) => {
      const title = h("h3", {}, h("i", { class: "swatch", style: `background: ${run.colour}` }), run.short);
      const frame = frameAt(run, app.at);
      if (!first || !frame) return title;
      if (run.seed !== base.seed || run.data !== base.data) return h("div", {}, title, h("p", { class: "note" }, "Other data or another seed: its clients are others."));
      const known = first.raw.clients.filter((c) => frame.has(c) && isNumber(frame.accuracy(c)) && isNumber(first.accuracy(c)));
      const gain = (client) => frame.accuracy(client) - first.accuracy(client);
      known.sort((a, b) => gain(a) - gain(b));
      const better = known.filter((client) => gain(client) > 0).length;
      const worse = known.filter((client) => gain(client) < 0).length;
      const ends = known.length > 6 ? [...known.slice(0, 3), ...known.slice(-3)] : known;
      const most = Math.max(1e-9, ...ends.map((client) => Math.abs(gain(client))));
      return h("div", {}, title, h("p", { class: "note" }, `${count(better)} better, ${count(worse)} worse, ${count(known.length - better - worse)} alike`),
        rankBars(ends.map((client) => ({
          name: clientName(frame, client), share: Math.abs(gain(client)) / most, colour: gain(client) < 0 ? "var(--hue-5)" : "var(--hue-0)",
          value: app.score.change(gain(client)),
        }))));
    }));
  }

  return { element, draw };
}

function treesView(app) {
  const views = app.runs.map((run) => {
    const own = {
      run, picked: null, pick() {},
      frame: () => frameAt(run, app.at),
      shown: () => ({ frame: own.frame(), edits: own.edits() }),
      edits: () => (own.frame() ? editsOf(run, run.frames.indexOf(own.frame())) : []),
    };
    return { run, own, tree: treeView(own), note: h("p", { class: "note" }) };
  });
  const element = h("div", { class: "trees" }, ...views.map(({ run, tree, note }) => h("div", {},
    h("h3", {}, h("i", { class: "swatch", style: `background: ${run.colour}` }), run.short), tree.element, note)));

  function draw(animate) {
    for (const { own, tree, note } of views) {
      tree.draw(animate);
      const frame = own.frame();
      const edits = own.edits();
      note.textContent = frame ? `${nameOfRound(frame.round)}: ${edits.length ? tally(edits) : "no edit"}` : "No round yet.";
    }
  }

  return { element, draw };
}

function configDifferences(runs) {
  const all = runs.map((run) => new Map(flatten(run.config)));
  const keys = [...new Set(all.flatMap((config) => [...config.keys()]))].filter((key) => key !== "out");
  const differ = keys.filter((key) => new Set(all.map((config) => config.get(key))).size > 1);
  if (!differ.length) return h("p", { class: "note" }, "Nothing.");
  const top = h("tr", {}, h("th", {}, "key"), ...runs.map((run) => h("th", { scope: "col" }, run.short)));
  const rows = differ.map((key) => h("tr", {}, h("th", { scope: "row" }, key), ...all.map((config) => h("td", {}, config.get(key) ?? NONE))));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, top), h("tbody", {}, ...rows)));
}
