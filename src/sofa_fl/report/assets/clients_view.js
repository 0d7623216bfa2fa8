// Scores of the clients over rounds, the worst ones in view; a client that is picked stands out.

const MANY_LINES = 60; // beyond, a band stands for most clients
const NUM_WORST = 8;

function clientsView(app) {
  const chart = lineChart(app, { label: `${app.run.score.title} of every client over rounds`, height: 280, named: true, content });
  const worst = h("div", { class: "worst" });
  const find = h("input", {
    type: "search", placeholder: "name or number", "aria-label": "Find a client by its name or number",
    onchange: () => app.pick(clientCalled(app.run, find.value)),
  });
  const title = h("h3", {});
  const side = h("div", {}, title, worst, h("label", { class: "find" }, "Follow client ", find));
  const bandNote = h("p", { class: "note" }, "The dark band covers four fifths of the clients, the light band all of them.");
  const note = h("p", { class: "note" }, "Bars go from the worst client of the run to its best.");
  side.append(note);
  const element = h("div", { class: "split" }, h("div", {}, chart.element, bandNote), side);

  const follow = (client) => app.run.frames.map((frame) => [frame.round, frame.accuracy(client)]);

  function content() {
    const frames = app.run.frames;
    const now = app.frame() ? byScore(app.frame()) : [];
    const all = new Set(frames.flatMap((frame) => frame.raw.clients));
    const few = all.size <= MANY_LINES;
    const lines = few ? [...all].map((client) => ({ kind: "faint", points: follow(client) })) : [];
    const bands = few ? [] : [
      { points: frames.map((frame) => [frame.round, ...quantiles(frame, [0.0, 1.0])]) },
      { points: frames.map((frame) => [frame.round, ...quantiles(frame, [0.1, 0.9])]) },
    ];
    const history = app.run.history;
    lines.push({ name: "mean", kind: "strong", points: history.filter(isScored).map((r) => [r.round, r.client.mean]) });
    now.slice(0, 3).forEach((client, i) => {
      lines.push({ name: clientName(app.run, client), colour: hue(i), points: follow(client) });
    });
    if (app.picked !== null && all.has(app.picked) && !now.slice(0, 3).includes(app.picked)) {
      lines.push({ name: clientName(app.run, app.picked), colour: "var(--accent)", kind: "strong", points: follow(app.picked) });
    }
    const values = lines.concat(bands).flatMap((line) => line.points.flatMap((point) => point.slice(1)));
    return { lines, bands, axis: scoreAxis(values, app.run.score) };
  }

  function draw() {
    chart.draw();
    const frame = app.frame();
    if (!frame) return;
    const before = frame.before;
    const [shown, all] = [Math.min(NUM_WORST, byScore(frame).length), frame.raw.clients.length];
    title.textContent = shown < all ? `The worst ${shown} of ${all} in this round` : "All clients in this round, the worst first";
    bandNote.hidden = manyClients(app.run) <= MANY_LINES;
    worst.replaceChildren(rankBars(byScore(frame).slice(0, NUM_WORST).map((client, i) => {
      const [accuracy, was] = [frame.accuracy(client), before && before.has(client) ? before.accuracy(client) : null];
      const change = isNumber(was) ? ` ${app.run.score.change(accuracy - was, 1)}` : "";
      return {
        name: clientName(frame, client), share: Math.max(0.02, app.run.scale.share(accuracy)), value: `${app.run.score.format(accuracy)}${change}`,
        colour: viridis(app.run.scale.share(accuracy)), kind: app.picked === client ? "picked" : i < 3 ? `hue-${i}` : "",
        pick: () => app.pick(client),
      };
    })));
    find.value = app.picked !== null && frame.isClient(app.picked) ? app.run.names.get(app.picked) ?? app.picked : "";
  }

  return { element, draw };
}

// The client that somebody means by a name, its beginning, or a number; null for none.
function clientCalled(run, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const called = (test) => [...run.names].find(([, name]) => test(name.toLowerCase()));
  const found = called((name) => name === wanted) || called((name) => name.startsWith(wanted));
  if (found) return found[0];
  return /^\d+$/.test(wanted) ? Number(wanted) : null;
}

// How many clients there ever are.
const manyClients = (run) => new Set(run.frames.flatMap((frame) => frame.raw.clients)).size;

function quantiles(frame, shares) {
  const order = byScore(frame);
  return shares.map((share) => frame.accuracy(order[Math.round(share * (order.length - 1))]));
}

// How well and how evenly the clients are served, and how they are spread in this round.
function fairnessView(app) {
  const { score } = app.run;
  const names = [
    ["mean", "mean", score.format], ["min", "worst client", score.format], ["bottom10", "worst tenth", score.format],
    ["std", "standard deviation", score.format], ["gap", "best − worst", score.format], ["jain", "Jain's index", (x) => decimal(x, 4)],
  ];
  const tiles = h("div", { class: "tiles" });
  const strip = h("div", { class: "plot" });
  let room = 0;

  function draw() {
    const frame = app.frame();
    if (!frame) return;
    const history = app.run.history;
    const at = history.findIndex((record) => record.round === frame.round);
    tiles.replaceChildren(...names.map(([key, name, format]) => {
      const values = history.map((record) => (isScored(record) ? factOf(record.client, key) : undefined));
      const axis = ["mean", "min", "bottom10"].includes(key) ? scoreAxis(values, score) : linearAxis(values, format);
      return h("div", { class: "tile", "data-key": key }, h("span", { class: "what" }, name),
        h("strong", {}, format(factOf(frame.record.client, key))), sparkline(values, at, axis));
    }));
    if (room) strip.replaceChildren(histogram(app.run, frame, room));
  }

  onWidth(strip, (width) => {
    room = width;
    draw();
  });
  const element = h("div", {}, tiles, h("h3", {}, `Clients by ${score.name} in this round`), strip);
  return { element, draw };
}

function histogram(run, frame, width) {
  const [height, bottom] = [96, 20];
  const num = Math.max(12, Math.min(48, Math.floor(width / 22)));
  const bins = Array.from({ length: num }, () => 0);
  const order = byScore(frame);
  for (const client of order) {
    const share = Math.min(0.9999, Math.max(0, run.scale.share(frame.accuracy(client))));
    bins[Math.floor(share * num)] += 1;
  }
  const most = Math.max(1, ...bins);
  const [x, step] = [(share) => 14 + share * (width - 28), (width - 28) / num];
  return s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `How many clients have which ${run.score.name}`, style: `height: ${height}px` },
    ...bins.map((n, i) => s("rect", {
      x: x(i / num) + 1, width: step - 2, y: height - bottom - (n / most) * (height - bottom - 16),
      height: (n / most) * (height - bottom - 16), rx: 2, class: "count", style: `fill: ${viridis((i + 0.5) / num)}`,
    })),
    ...bins.map((n, i) => (n && step > 16 ? s("text", {
      class: "tick", x: x((i + 0.5) / num), y: height - bottom - 4 - (n / most) * (height - bottom - 16), "text-anchor": "middle",
    }, String(n)) : null)),
    ...apart(run.scale.ticks, run.scale.share, 34 / width).map((tick) => s("text", { class: "tick", x: x(run.scale.share(tick)), y: height - 5, "text-anchor": "middle" },
      run.score.tick(tick))));
}
