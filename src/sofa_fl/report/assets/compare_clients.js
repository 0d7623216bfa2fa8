// Runs compared by their clients, by their trees and by their configurations.

function rankView(app) {
  const still = { last: 100, name: (x) => `the client at ${x}%` };
  const chart = lineChart(app, {
    label: `${app.score.title} of the clients from worst to best`, height: 260, named: true, still, format: app.score.format,
    content() {
      const ranked = (run) => {
        const frame = frameAt(run, app.at);
        const order = frame ? byScore(frame) : [];
        return Array.from({ length: 101 }, (_, x) => [x, frame && frame.accuracy(order[Math.round((x / 100) * (order.length - 1))])]);
      };
      const lines = app.hasSeeds
        ? app.groups.map((group) => ({ name: group.name, colour: group.colour, points: meanPoints(group.runs.map(ranked)) }))
        : app.runs.map((run) => ({ name: run.short, colour: run.colour, points: ranked(run) }));
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
      if (run.seed !== base.seed || run.data !== base.data) return h("div", {}, title, h("p", { class: "note" }, "This run has other data or another seed, so its clients are different ones."));
      const known = first.raw.clients.filter((c) => frame.has(c) && isNumber(frame.accuracy(c)) && isNumber(first.accuracy(c)));
      const gain = (client) => frame.accuracy(client) - first.accuracy(client);
      known.sort((a, b) => gain(a) - gain(b));
      const better = known.filter((client) => gain(client) > 0).length;
      const worse = known.filter((client) => gain(client) < 0).length;
      const ends = known.length > 6 ? [...known.slice(0, 3), ...known.slice(-3)] : known;
      const most = Math.max(1e-9, ...ends.map((client) => Math.abs(gain(client))));
      return h("div", {}, title, h("p", { class: "note" }, `${count(better)} better, ${count(worse)} worse, ${count(known.length - better - worse)} equal${known.length > 6 ? "; below, the three that lose most and the three that gain most" : ""}`),
        rankBars(ends.map((client) => ({
          name: clientName(frame, client), share: Math.abs(gain(client)) / most, colour: gain(client) < 0 ? "var(--hue-5)" : "var(--hue-0)",
          value: app.score.change(gain(client)),
        }))));
    }));
  }

  return { element, draw };
}

// How much better or worse each method is than the first, for every seed that both have.
function seedsView(app) {
  const element = h("div", {});
  const [base, ...others] = app.groups;

  function draw() {
    element.replaceChildren(...others.map((group) => {
      const title = h("h3", {}, h("i", { class: "swatch", style: `background: ${group.colour}` }), group.name);
      const pairs = group.runs.flatMap((run) => {
        const partner = base.runs.find((other) => other.seed === run.seed);
        const [a, b] = [recordAt(run, app.at), partner && recordAt(partner, app.at)];
        return a && b ? [{ seed: run.seed, gain: a.client.mean - b.client.mean }] : [];
      });
      if (!pairs.length) return h("div", {}, title, h("p", { class: "note" }, "These runs have no seed in common."));
      const { mean, width } = intervalOf(pairs.map((pair) => pair.gain));
      const said = `${app.score.change(mean)}${isNumber(width) ? ` ± ${app.score.change(width).replace("+", "")} (95% interval)` : ""}`;
      const most = Math.max(1e-9, ...pairs.map((pair) => Math.abs(pair.gain)));
      return h("div", {}, title, h("p", { class: "note" }, `on average ${said}`),
        rankBars(pairs.map((pair) => ({
          name: `seed ${pair.seed}`, share: Math.abs(pair.gain) / most, colour: pair.gain < 0 ? "var(--hue-5)" : "var(--hue-0)", value: app.score.change(pair.gain),
        }))));
    }));
  }

  return { element, draw };
}

// Student's t at 0.975, by degrees of freedom; beyond the table it is nearly that of the normal distribution.
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086];

// The mean of some values, and the half-width of its 95% interval if there are two or more.
function intervalOf(values) {
  const n = values.length;
  const mean = n ? values.reduce((sum, value) => sum + value, 0) / n : undefined;
  if (n < 2) return { mean, width: undefined };
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1);
  return { mean, width: (STUDENT[n - 2] || 1.96 + 2.5 / n) * Math.sqrt(variance / n) };
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
