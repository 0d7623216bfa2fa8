// The way from one round's tree to the next, edit by edit, for who plays them.

const MOST_STAGES = 24; // of more edits nobody wants to see each

// The tree after every edit but the last, which gives the next frame; none if there is nothing to see.
function stagesTo(run, index) {
  const [before, after] = [run.frames[index - 1], run.frames[index]];
  const edits = editsOf(run, index);
  if (edits.length < 2 || edits.length > MOST_STAGES) return [];
  const parent = new Map([...before.raw.clients, ...before.raw.clusters].map((node) => [node, before.parent(node)]));
  const stages = [];
  let last = before;
  for (const [i, edit] of edits.slice(0, -1).entries()) {
    const frame = applyEdit(parent, edit) ? stageFrame(parent, last, before, after) : null;
    if (!frame) return []; // edits of another version: the next frame shows what they did
    stages.push({ frame, after, edits: [edit], index: i, count: edits.length });
    last = frame;
  }
  return stages;
}

// As the edits of `sofa_fl.topology.edits`, on a map of parents; false for one that is not known.
function applyEdit(parent, edit) {
  const below = (node) => [...parent].filter(([, up]) => up === node).map(([child]) => child);
  const known = (...nodes) => nodes.every((node) => parent.has(node));
  if (edit.edit === "graft" && known(edit.node, edit.onto)) {
    parent.set(edit.node, edit.onto);
  } else if (edit.edit === "prune" && known(edit.node)) {
    for (const child of below(edit.node)) parent.set(child, parent.get(edit.node));
    parent.delete(edit.node);
  } else if (edit.edit === "merge" && known(...edit.nodes)) {
    parent.set(edit.into, parent.get(edit.nodes[0]));
    for (const child of edit.nodes.flatMap(below)) parent.set(child, edit.into);
    for (const node of edit.nodes) parent.delete(node);
  } else if (edit.edit === "split" && known(edit.node)) {
    const up = parent.get(edit.node);
    const stays = up === null || edit.groups.flat().length < below(edit.node).length;
    edit.into.forEach((part, i) => {
      parent.set(part, stays ? edit.node : up);
      for (const child of edit.groups[i]) parent.set(child, part);
    });
    if (!stays) parent.delete(edit.node);
  } else if (edit.edit === "join" && known(edit.onto)) {
    // Beside a client alone, under a new root, or under a cluster.
    const up = edit.above ?? edit.onto;
    if (up !== edit.onto) parent.set(up, null).set(edit.onto, up);
    parent.set(edit.node, up);
  } else if (edit.edit === "leave" && known(edit.node)) {
    parent.delete(edit.node);
  } else {
    return false;
  }
  return true;
}

// A frame with this tree, and what is known of its clients from the frames around it.
function stageFrame(parent, last, before, after) {
  const children = new Map();
  for (const [node, up] of parent) children.set(up, [...(children.get(up) || []), node]);
  const from = (client) => (after.isClient(client) ? after : before.isClient(client) ? before : null);
  const [clients, clusters] = [[], []];
  const queue = [...(children.get(null) || [])];
  if (queue.length !== 1) return null;
  while (queue.length) {
    const node = queue.shift();
    (from(node) ? clients : clusters).push(node);
    queue.push(...(children.get(node) || []));
  }
  if (clients.length + clusters.length < parent.size || clients.some((client) => children.has(client))) return null;
  const of = (name) => (after.raw[name] ? clients.map((client) => from(client)[name](client) ?? null) : undefined);
  const raw = {
    clients, clusters, up: clients.map((client) => parent.get(client)), above: clusters.map((cluster) => parent.get(cluster)),
    accuracy: of("accuracy"), samples: of("samples"), disclosed: of("disclosed"),
  };
  return makeFrame(after, { ...after.record, frame: raw }, last);
}
