// A run as the page works with it: its rounds, and those of them that can be drawn, by client id.

function makeRun(raw) {
  const run = { ...raw, history: [], frames: [], names: new Map(), scale: null, score: SCORES.accuracy };
  addRounds(run, raw.history);
  return run;
}

function addRounds(run, records) {
  for (const record of records) {
    run.history.push(record);
    for (const [client, name] of Object.entries(record.names || {})) run.names.set(Number(client), name);
    if (record.frame) run.frames.push(makeFrame(run, record, run.frames[run.frames.length - 1]));
  }
  run.score = scoreOf(run.history[run.history.length - 1]);
  run.scale = scoreScale(withoutEnds(run.frames.flatMap((frame) => frame.raw.accuracy || [])));
  const sizes = run.frames.flatMap((frame) => frame.record.frame.samples || []).filter(isNumber);
  run.largest = sizes.length ? most(sizes) : 1;
}

// All but the worst and the best fiftieth: those few need no colours of their own.
function withoutEnds(values) {
  const sorted = values.filter(isNumber).sort((a, b) => a - b);
  const few = Math.floor(sorted.length / 50);
  return sorted.slice(few, sorted.length - few);
}

// All edits since the frame before: where only some rounds are drawn, those of the others too.
function editsOf(run, index) {
  const frame = run.frames[index];
  const last = index ? run.frames[index - 1].round : -1;
  return run.history
    .filter((record) => record.round > last && record.round <= frame.round)
    .flatMap((record) => record.edits.map((edit) => ({ ...edit, round: record.round })));
}

function makeFrame(run, record, before) {
  const raw = record.frame;
  const index = new Map(raw.clients.map((client, i) => [client, i]));
  const at = new Map(raw.clusters.map((cluster, i) => [cluster, i]));
  const frame = { record, raw, index, at, names: run.names, round: record.round, before, _grown: null, _ranked: null };
  const list = (name) => (client) => (raw[name] ? raw[name][index.get(client)] : undefined);
  frame.isClient = (node) => index.has(node);
  frame.has = (node) => index.has(node) || at.has(node);
  frame.accuracy = list("accuracy");
  frame.samples = list("samples");
  frame.disclosed = list("disclosed");
  frame.place = list("positions");
  frame.losses = list("losses");
  frame.shared = list("shared");
  frame.parent = (node) => (index.has(node) ? raw.up[index.get(node)] : raw.above[at.get(node)]);
  frame.loss = (cluster) => (raw.loss ? raw.loss[at.get(cluster)] : undefined);
  frame.pool = (cluster) => (raw.pool ? raw.pool[at.get(cluster)] : undefined);
  frame.absent = new Set(record.absent || []);
  frame.aside = new Map(Object.entries(record.set_aside || {}).map(([id, why]) => [Number(id), why]));
  for (const id of record.quarantined || []) if (!frame.aside.has(id)) frame.aside.set(id, "quarantined");
  return frame;
}

// What is worked out of a frame when it is first looked at: children, levels, order, sums.
function grown(frame) {
  if (frame._grown) return frame._grown;
  const { raw } = frame;
  const children = new Map(raw.clusters.map((cluster) => [cluster, []]));
  const first = new Map(raw.clients.map((client) => [client, client]));
  const level = new Map(raw.clients.map((client) => [client, 0]));
  const clients = new Map(raw.clients.map((client) => [client, 1]));
  const samples = new Map(raw.clients.map((client) => [client, frame.samples(client) || 1]));
  const sums = new Map();
  for (const client of raw.clients) {
    const value = frame.accuracy(client);
    sums.set(client, isNumber(value) ? [value, 1] : [0, 0]);
    if (raw.up[frame.index.get(client)] !== null) children.get(frame.parent(client)).push(client);
  }
  // Parents come before their children, so going back every child is done before its parent.
  for (let i = raw.clusters.length - 1; i >= 0; i--) {
    const [cluster, below] = [raw.clusters[i], children.get(raw.clusters[i])];
    const total = (map) => below.reduce((sum, child) => sum + map.get(child), 0);
    first.set(cluster, below.reduce((low, child) => Math.min(low, first.get(child)), Infinity));
    level.set(cluster, 1 + below.reduce((high, child) => Math.max(high, level.get(child)), 0));
    clients.set(cluster, total(clients));
    samples.set(cluster, total(samples));
    sums.set(cluster, below.reduce(([a, n], c) => [a + sums.get(c)[0], n + sums.get(c)[1]], [0, 0]));
    below.sort((a, b) => first.get(a) - first.get(b));
    if (raw.above[i] !== null) children.get(raw.above[i]).push(cluster);
  }
  const root = raw.clusters.length ? raw.clusters[0] : raw.clients[0];
  const mean = (node) => (sums.get(node)[1] ? sums.get(node)[0] / sums.get(node)[1] : undefined);
  frame._grown = { children, level, clients, samples, mean, root, depth: level.get(root) };
  return frame._grown;
}

const pathOf = (frame, node) => {
  const path = [];
  for (let up = node; up !== null && up !== undefined; up = frame.parent(up)) path.unshift(up);
  return path;
};

// Clients of a round, the worst first; those without test samples have no place in it.
function byScore(frame) {
  if (!frame._ranked) {
    const known = frame.raw.clients.filter((client) => isNumber(frame.accuracy(client)));
    frame._ranked = known.sort((a, b) => frame.accuracy(a) - frame.accuracy(b) || a - b);
  }
  return frame._ranked;
}

// A client's name, or its number if it has none; `of` is a run or a frame.
const clientName = (of, client) => of.names.get(client) ?? `client ${client}`;
const nodeName = (frame, node) => capital(frame.isClient(node) ? clientName(frame, node) : `cluster ${node}`);
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// What the tooltip says of a node.
function nodeFacts(frame, node) {
  const g = grown(frame);
  const score = scoreOf(frame.record);
  const rows = [[score.name, score.format(frame.isClient(node) ? frame.accuracy(node) : g.mean(node))]];
  if (!frame.isClient(node)) {
    rows.unshift(["clients", count(g.clients.get(node))]);
    if (frame.raw.samples) rows.push(["samples", count(g.samples.get(node))]);
    if (isNumber(frame.loss(node))) rows.push(["held-out loss", decimal(frame.loss(node))]);
    if (isNumber(frame.pool(node))) rows.push(["pool", number(frame.pool(node), "sample")]);
    rows.push(["level", String(g.level.get(node))]);
    return rows;
  }
  if (isNumber(frame.samples(node))) rows.push(["samples", count(frame.samples(node))]);
  if (isNumber(frame.disclosed(node))) rows.push(["disclosed", percent(frame.disclosed(node), 1)]);
  const [path, losses] = [pathOf(frame, node), frame.losses(node) || []];
  const skipped = Math.max(0, path.length - 6); // of a deep tree the root and what is near
  rows.push(["path", path.slice(0, -1).filter((_, i) => !i || i > skipped).join(skipped ? " … " : " › ") || NONE]);
  path.forEach((up, i) => {
    if (!isNumber(losses[i]) || (i && i <= skipped)) return;
    rows.push([up === node ? "loss of its own" : `loss of ${up}`, decimal(losses[i])]);
  });
  if (frame.absent.has(node)) rows.push(["absent", "in this round"]);
  if (frame.aside.has(node)) rows.push(["set aside", String(frame.aside.get(node))]);
  return rows;
}
