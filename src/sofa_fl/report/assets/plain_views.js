// The simpler cards: time and bytes, the objective, known groups, clients set aside, the configuration.

function costView(app) {
  const perRound = (keys) => () => {
    const before = Object.fromEntries(keys.map((key) => [key, 0]));
    return app.run.history.map((record) => ({
      round: record.round,
      parts: keys.map((key) => {
        const part = (record[key] || 0) - before[key];
        before[key] = record[key] || 0;
        return Math.max(0, part); // a resumed run counts on, it never goes back
      }),
    }));
  };
  const time = barChart(app, { label: "Seconds per round", rows: perRound(["seconds"]), names: ["time"], format: duration, tick: clock, hue: 4 });
  const traffic = barChart(app, { label: "Bytes per round", rows: perRound(["down", "up"]), names: ["to clients", "from clients"], format: bytes });
  const total = h("p", { class: "note" });
  const key = h("p", { class: "key" }, h("i", { class: "hue-0" }), "to clients ", h("i", { class: "hue-1" }), "from clients");
  const element = h("div", {}, h("div", { class: "halves" },
    h("div", {}, h("h3", {}, "Time per round"), time.element),
    h("div", {}, h("h3", {}, "Bytes a network would carry, per round"), traffic.element, key)), total);

  function draw() {
    time.draw();
    traffic.draw();
    const record = app.frame() && app.frame().record;
    if (!record) return;
    total.textContent = `Up to this round: ${duration(record.seconds)}, ${bytes(record.down)} to clients, ` +
      `${bytes(record.up)} from clients, ${count(record.trained)} samples trained.`;
  }

  return { element, draw };
}

// The paper's objective L: what all terms add up to, and each of them.
const TERMS = [["value", "L", "strong"], ["loss", "loss", ""], ["siblings", "siblings", "dashed"], ["parent", "parent", "dashed"]];

function objectiveView(app) {
  const chart = lineChart(app, { label: "The objective over rounds", height: 200, named: true, content });

  function content() {
    const history = app.run.history.filter((record) => record.objective);
    const lines = TERMS.map(([key, name, kind], i) => ({ name, kind, colour: hue(i), points: history.map((r) => [r.round, r.objective[key]]) }));
    const values = lines.flatMap((line) => line.points.map(([, value]) => value));
    return { lines, axis: linearAxis(values, anyNumber, true) };
  }

  return { element: chart.element, draw: chart.draw };
}

// How well the tree agrees with groups that the data are known to have.
function groupsView(app) {
  const chart = lineChart(app, { label: "Agreement of the tree with the known groups", height: 200, named: true, content });

  function content() {
    const history = app.run.history.filter((record) => record.groups);
    const lines = [];
    for (const [key, kind] of [["ari", ""], ["purity", "dashed"]]) {
      const num = Math.max(0, ...history.map((record) => (record.groups[key] || []).length));
      for (let level = 0; level < num; level++) {
        const name = `${key === "ari" ? "ARI" : key}${num > 1 ? `, level ${level + 1}` : ""}`;
        lines.push({ name, colour: hue(level), kind, points: history.map((r) => [r.round, (r.groups[key] || [])[level]]) });
      }
    }
    const values = lines.flatMap((line) => line.points.map(([, value]) => value));
    return { lines, axis: linearAxis([...values, 1], (x) => decimal(x, 1), true) };
  }

  return { element: chart.element, draw: chart.draw };
}

// Who did not take part as others did, and why.
function asideView(app) {
  const element = h("div", { class: "aside-list" });

  function draw() {
    const frame = app.frame();
    if (!frame) return;
    const rows = [...frame.aside].map(([client, why]) => [clientName(frame, client), String(why)]);
    const absent = [...frame.absent];
    if (absent.length) rows.push(["absent", `${absent.slice(0, 100).join(", ")}${absent.length > 100 ? " …" : ""}`]);
    element.replaceChildren(rows.length ? table(rows) : h("p", { class: "note" }, "None in this round."));
  }

  return { element, draw };
}

// What has left each site of a deployment, as far as the server received it.
const LEFT = [["models", "models"], ["masked_models", "masked models"], ["scores", "scores"], ["embeds", "features"], ["samples", "samples, counting repeats"]];

function leftView(app) {
  const spent = (epsilon) => Object.entries(epsilon || {}).map(([part, value]) => `${part} ${decimal(value, 2)}`).join(", ") || "no noise";
  const head = ["site", ...LEFT.map(([, name]) => name), "bytes", "epsilon spent"];
  const rows = Object.entries(app.run.left).map(([client, left]) =>
    [clientName(app.run, Number(client)), ...LEFT.map(([key]) => count(left[key] || 0)), bytes(left.bytes || 0), spent(left.epsilon)]);
  return { element: h("div", { class: "aside-list" }, table([head, ...rows])), draw() {} };
}

const table = (rows) => h("table", {}, h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, i) => h(i ? "td" : "th", i ? {} : { scope: "row" }, cell))))));

// Nested keys with dots, as `--set` takes them.
function flatten(value, prefix = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value) || !Object.keys(value).length) {
    return [[prefix, typeof value === "string" ? value : JSON.stringify(value)]];
  }
  return Object.entries(value).flatMap(([key, item]) => flatten(item, prefix ? `${prefix}.${key}` : key));
}

function configView(app) {
  const rows = flatten(app.run.config);
  const body = h("div", { class: "config" });
  const search = h("input", { type: "search", placeholder: "find a key or a value", "aria-label": "Find in the configuration", oninput: draw });

  function draw() {
    const wanted = search.value.toLowerCase();
    body.replaceChildren(table(rows.filter((row) => row.join(" ").toLowerCase().includes(wanted))));
  }

  draw();
  return { element: h("details", {}, h("summary", {}, number(rows.length, "key")), search, body), draw() {} };
}
