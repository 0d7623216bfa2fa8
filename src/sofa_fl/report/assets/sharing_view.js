// Who has how many samples of whom, as a matrix in the order of the tree, and what was disclosed.

const MOST_ROWS = 1000; // of the matrix; more would be finer than any screen

function sharingView(app) {
  const canvas = h("canvas", { class: "matrix", role: "img", "aria-label": "Samples shared, by owner and receiver" });
  const words = h("p", { class: "note" });
  const chart = lineChart(app, { label: "Disclosed so far", height: 190, named: true, content });
  const ranks = h("div", {});
  const matrix = h("div", {}, h("h3", {}, "Which client has samples of which, in this round"), canvas, words);
  const element = h("div", { class: "halves" }, matrix,
    h("div", {}, h("h3", {}, "Fraction of each client's samples disclosed so far"), chart.element, h("h3", {}, "Most disclosed"), ranks));
  let order = [];

  function content() {
    const history = app.run.history;
    const lines = [
      { name: "mean", kind: "strong", points: history.map((r) => [r.round, (r.disclosed || {}).mean]) },
      { name: "most", colour: hue(3), points: history.map((r) => [r.round, (r.disclosed || {}).max]) },
    ];
    if (app.picked !== null) {
      const points = app.run.frames.map((frame) => [frame.round, frame.disclosed(app.picked)]);
      if (points.some(([, value]) => isNumber(value))) lines.push({ name: clientName(app.run, app.picked), colour: "var(--accent)", points });
    }
    const values = lines.flatMap((line) => line.points.map(([, value]) => value));
    return { lines, axis: linearAxis(values, (x) => percent(x, x < 0.1 && x > 0 ? 1 : 0), true) };
  }

  // Of `owner`'s samples, those that `receiver` gets: what the lowest pool above both holds.
  function given(frame, owner, receiver) {
    if (owner === receiver) return 0;
    const counts = frame.shared(owner) || [];
    const others = new Set(pathOf(frame, receiver));
    const above = pathOf(frame, owner).reverse().slice(1);
    const meet = above.findIndex((node) => others.has(node));
    return counts[meet] || 0;
  }

  function paint() {
    const frame = app.frame();
    if (!frame) return;
    const all = blocksOf(frame).flatMap((block) => block.clients);
    order = all.filter((_, i) => i % Math.ceil(all.length / MOST_ROWS) === 0);
    const n = order.length;
    canvas.width = canvas.height = n;
    const context = canvas.getContext("2d");
    const image = context.createImageData(n, n);
    const pixels = new Uint32Array(image.data.buffer); // a million of them: filled by runs
    const spans = spansOf(frame, order);
    let largest = 1;
    for (const client of order) for (const x of frame.shared(client) || []) largest = Math.max(largest, x);
    const [dark, full] = [theme.get() === "dark", Math.log1p(largest)];
    const empty = pixel(dark ? [30, 36, 44] : [238, 241, 245]);
    order.forEach((owner, row) => {
      const counts = frame.shared(owner) || [];
      const above = pathOf(frame, owner).reverse().slice(1);
      // From the root down: what is shared within a smaller cluster goes over it.
      for (let i = above.length - 1; i >= 0; i--) {
        const [from, to] = spans.get(above[i]);
        const colour = counts[i] ? pixel(shade(Math.log1p(counts[i]) / full, dark)) : empty;
        pixels.fill(colour, row * n + from, row * n + to);
      }
      pixels[row * n + row] = empty;
    });
    context.putImageData(image, 0, 0);
    const total = all.reduce((sum, client) => sum + ((frame.shared(client) || [])[0] || 0), 0);
    words.textContent = frame.raw.shared
      ? `A row is the owner of the samples and a column their receiver, in the order of the tree; a stronger colour means more samples, up to ${number(largest, "sample")}. ${count(total)} samples are in a pool.${n < all.length ? ` Of ${count(all.length)} clients ${count(n)} are drawn.` : ""}`
      : "Nothing is shared.";
  }

  canvas.addEventListener("pointermove", (event) => {
    const [box, frame] = [canvas.getBoundingClientRect(), app.frame()];
    const cell = (x, size) => order[Math.min(order.length - 1, Math.max(0, Math.floor((x / size) * order.length)))];
    const owner = cell(event.clientY - box.top, box.height);
    const receiver = cell(event.clientX - box.left, box.width);
    if (!frame || !frame.has(owner)) return;
    const rows = owner === receiver ? [["", "its own samples"]]
      : [["has", `${count(given(frame, owner, receiver))} of ${count(frame.samples(owner))}`], ["of", clientName(frame, owner)]];
    tip.show(event, nodeName(frame, receiver), rows);
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    app.pick(order[Math.floor(((event.clientY - box.top) / box.height) * order.length)]);
  });

  function draw() {
    const frame = app.frame();
    if (!frame) return;
    paint();
    chart.draw();
    const known = frame.raw.clients.filter((client) => isNumber(frame.disclosed(client)));
    known.sort((a, b) => frame.disclosed(b) - frame.disclosed(a) || a - b);
    ranks.replaceChildren(rankBars(known.slice(0, 5).map((client) => ({
      name: clientName(frame, client), share: frame.disclosed(client), value: percent(frame.disclosed(client), 1), colour: hue(3),
      kind: app.picked === client ? "picked" : "", pick: () => app.pick(client),
    }))));
  }

  return { element, draw };
}

// Of every cluster, where the first of its clients is in `order`, and the one after its last.
function spansOf(frame, order) {
  const spans = new Map();
  order.forEach((client, i) => {
    for (const up of pathOf(frame, client).slice(0, -1)) spans.set(up, [(spans.get(up) || [i])[0], i + 1]);
  });
  return spans;
}

// As a canvas keeps it, on machines that keep the low byte first, which is all there are.
const pixel = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

// One hue from pale to deep, so that it reads in either theme.
function shade(share, dark) {
  const [pale, deep] = dark ? [[38, 56, 72], [140, 205, 255]] : [[214, 228, 240], [0, 82, 136]];
  return pale.map((low, i) => Math.round(low + (deep[i] - low) * share));
}
