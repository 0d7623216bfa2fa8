// Where the nodes of a tree go: clusters by level, the clients of a cluster in one block of dots.

const DOT = { min: 4, good: 14, most: 40, named: 84 }; // width of a client's cell
const LETTER = 6.2; // about the width of a letter; names that do not fit across are turned
const LONGEST = 16; // letters of a name that is turned
const TURNED = 17; // cells that are smaller have no names
const GAP = 0.7; // between blocks, in cells

// A block for the clients of every cluster that has some, in the order of the tree.
function blocksOf(frame) {
  const { children, root } = grown(frame);
  if (frame.isClient(root)) return [{ parent: null, clients: [root] }];
  const blocks = [];
  const walk = (cluster) => {
    let block = null;
    for (const child of children.get(cluster)) {
      if (!frame.isClient(child)) walk(child);
      else if (block) block.clients.push(child);
      else blocks.push((block = { parent: cluster, clients: [child] }));
    }
  };
  walk(root);
  return blocks;
}

// How many rows a block has and how wide a cell is: few rows, dots large enough to be seen.
function cellsFor(blocks, width, height, widest) {
  const cell = (rows) => {
    const columns = blocks.reduce((sum, block) => sum + Math.ceil(block.clients.length / rows), 0);
    return width / (columns + GAP * (blocks.length - 1) + 0.01);
  };
  const most = Math.max(...blocks.map((block) => block.clients.length));
  let best = { rows: 1, size: cell(1) };
  for (let rows = 1; rows <= most; rows++) {
    const size = Math.min(cell(rows), widest, height / rows);
    if (size > best.size + 0.01 || rows === 1) best = { rows, size: Math.min(size, widest) };
    if (size >= DOT.good) break;
  }
  return { rows: best.rows, size: Math.max(best.size, DOT.min) };
}

function layoutTree(frame, largest, room, height) {
  const { children, level, samples, root, depth } = grown(frame);
  const narrow = room < 560;
  const pad = { left: narrow ? 8 : 58, right: narrow ? 8 : 14, top: 22 };
  const blocks = blocksOf(frame);
  const widest = frame.names.size ? DOT.named : DOT.most;
  const { rows, size } = cellsFor(blocks, room - pad.left - pad.right, 0.42 * height, widest);
  const letters = frame.raw.clients.reduce((longest, client) => Math.max(longest, (frame.names.get(client) || "").length), 0);
  const naming = !letters || rows > 1 || size < TURNED ? null : letters * LETTER <= size ? "across" : "turned";
  const nodes = new Map();
  const columns = (block) => Math.ceil(block.clients.length / rows);
  const wide = blocks.reduce((sum, block) => sum + columns(block), 0) + GAP * (blocks.length - 1);
  const width = Math.max(room, wide * size + pad.left + pad.right);
  const row = Math.min(84, Math.max(3, (height - rows * size - 40) / Math.max(1, depth)));
  const y = (at) => pad.top + (depth - at) * row;
  const under = y(0) + (rows > 1 ? size / 2 : 0);
  let x = pad.left + (width - pad.left - pad.right - wide * size) / 2;
  for (const block of blocks) {
    block.x = x;
    block.width = columns(block) * size;
    block.y = under - size / 2;
    block.height = Math.min(rows, block.clients.length) * size;
    block.clients.forEach((client, i) => {
      const share = Math.sqrt(Math.max(0, frame.samples(client) ?? largest) / largest);
      nodes.set(client, {
        x: x + (Math.floor(i / rows) + 0.5) * size,
        y: under + (i % rows) * size,
        r: Math.max(size >= 30 ? 9 : 1.4, Math.min(17, 0.46 * size) * Math.max(0.4, share)),
      });
    });
    x += block.width + GAP * size;
  }
  const spans = new Map(blocks.map((block) => [block.parent, [[block.x, block.x + block.width]]]));
  const place = (cluster) => {
    const found = spans.get(cluster) || [];
    for (const child of children.get(cluster)) if (!frame.isClient(child)) found.push(place(child));
    const left = Math.min(...found.map((span) => span[0]));
    const right = Math.max(...found.map((span) => span[1]));
    const share = samples.get(cluster) / Math.max(1, samples.get(root));
    const radius = 5 + 15 * Math.sqrt(share);
    nodes.set(cluster, {
      x: Number.isFinite(left) ? (left + right) / 2 : pad.left,
      y: y(level.get(cluster)),
      r: Math.max(2.2, Math.min(radius, 0.45 * row, 0.48 * (right - left + GAP * size) || 4)),
    });
    return Number.isFinite(left) ? [left, right] : [pad.left, pad.left];
  };
  if (!frame.isClient(root)) place(root);
  placeNames(nodes, frame, narrow ? 0 : pad.left - 8, width);
  const beneath = Math.min(17, 0.46 * size) + (rows === 1 && size >= 30 ? 20 : 6);
  const bottom = under + (rows > 1 ? (rows - 0.5) * size + 6 : beneath + { across: 14, turned: 8 + 0.82 * LETTER * Math.min(LONGEST, letters) }[naming] || beneath);
  const every = Math.ceil(15 / row); // names of levels must not touch
  const guides = Array.from({ length: depth + 1 }, (_, at) => ({ at, y: y(at) })).filter(({ at }) => at % every === 0);
  return { nodes, blocks, guides, rows, size, width, height: bottom, narrow, naming, beneath };
}

// Where the names of clusters fit: to their right, else to their left. Where they do not fit on a
// level, all of it have their numbers, and those that have no room even for that have nothing.
function placeNames(nodes, frame, left, width) {
  const levels = new Map();
  for (const [node, { y }] of nodes) {
    if (frame.isClient(node)) continue;
    if (!levels.has(y)) levels.set(y, []);
    levels.get(y).push(node);
  }
  for (const level of levels.values()) {
    level.sort((a, b) => nodes.get(a).x - nodes.get(b).x);
    if (!placeLevel(nodes, level, left, width, "cluster ")) placeLevel(nodes, level, left, width, "#");
  }
}

function placeLevel(nodes, level, left, width, words) {
  let taken = left; // up to here
  level.forEach((node, i) => {
    const at = nodes.get(node);
    at.name = `${words}${node}`;
    const needs = at.r + 4 + LETTER * at.name.length;
    const next = i + 1 < level.length ? nodes.get(level[i + 1]) : null;
    const end = next ? next.x - next.r : width;
    at.named = at.x + needs <= end ? "right" : at.x - needs >= taken ? "left" : null;
    taken = at.x + (at.named === "right" ? needs : at.r);
  });
  return level.every((node) => nodes.get(node).named);
}

// From a parent down to a node or a block: leave the parent at once, then go straight down.
function edgePath(from, to) {
  const drop = to.y - from.y;
  const bend = from.y + Math.min(drop, 60) * 0.6;
  return `M${from.x.toFixed(1)} ${from.y.toFixed(1)}C${from.x.toFixed(1)} ${bend.toFixed(1)} ` +
    `${to.x.toFixed(1)} ${(from.y + Math.min(drop, 60) * 0.4).toFixed(1)} ${to.x.toFixed(1)} ` +
    `${(from.y + Math.min(drop, 60)).toFixed(1)}V${to.y.toFixed(1)}`;
}
