// The tree of a round. Nodes keep their identity from round to round, so that a graft is seen.

const MANY_EDITS = 40; // beyond, moves are ringed but not drawn as arrows

function treeView(app) {
  const layers = ["guides", "blocks", "edges", "moves", "dots"].map((name) => s("g", { class: name }));
  const [guides, blocks, edges, moves, dots] = layers;
  const svg = s("svg", { class: "tree", role: "img" }, ...layers);
  const scroll = h("div", { class: "scroll" }, svg);
  const marks = new Map(); // by node: its group, and where it is now
  let stop = () => {};
  let room = 0;

  dots.addEventListener("pointermove", (event) => hover(event, true));
  dots.addEventListener("pointerdown", (event) => hover(event, true));
  dots.addEventListener("pointerleave", () => hover(null, false));
  dots.addEventListener("click", (event) => {
    const node = nodeAt(event);
    if (node !== null) app.pick(node);
  });

  function nodeAt(event) {
    const group = event.target.closest("[data-node]");
    return group ? Number(group.dataset.node) : null;
  }

  function hover(event, on) {
    const node = on ? nodeAt(event) : null;
    const { frame } = app.shown();
    if (node === null || !frame.has(node)) tip.hide();
    else tip.show(event, nodeName(frame, node), nodeFacts(frame, node));
  }

  function draw(animate) {
    const { frame, edits } = app.shown();
    if (!frame || !room) return;
    const height = Math.max(300, Math.min(460, innerHeight * 0.55));
    const layout = layoutTree(frame, app.run.largest, room, height);
    svg.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    svg.style.width = `${layout.width}px`;
    svg.style.height = `${layout.height}px`;
    const size = `${number(frame.raw.clients.length, "client")} in ${number(frame.raw.clusters.length, "cluster")}`;
    svg.setAttribute("aria-label", `The tree after ${nameOfRound(frame.round).toLowerCase()}: ${size}`);
    drawGuides(layout);
    drawBlocks(layout);
    const changed = new Set(edits.flatMap(nodesOf));
    update(frame, layout, changed);
    const from = new Map([...marks].map(([node, mark]) => [node, mark.now]));
    drawMoves(frame, layout, edits);
    stop();
    stop = tween(animate ? 650 : 0, (t) => step(frame, layout, from, t));
  }

  function drawGuides(layout) {
    guides.replaceChildren(...layout.guides.flatMap(({ at, y }) => [
      s("path", { d: `M${layout.narrow ? 0 : 52} ${y}H${layout.width}` }),
      layout.narrow ? null : s("text", { x: 0, y: y + 4 }, at ? `level ${at}` : "clients"),
    ]).filter(Boolean));
  }

  function drawBlocks(layout) {
    const shown = layout.rows > 1 ? layout.blocks : [];
    blocks.replaceChildren(...shown.map((block) => s("rect", {
      x: block.x - 2, y: block.y - 2, width: block.width + 4, height: block.height + 4, rx: 4,
    })));
  }

  // Add, mark and remove dots; where they are is for `step`.
  function update(frame, layout, changed) {
    const scale = app.run.scale;
    for (const [node, mark] of marks) {
      if (!layout.nodes.has(node)) {
        mark.group.remove();
        marks.delete(node);
      }
    }
    const { mean, clients } = grown(frame);
    const [worst] = byScore(frame);
    for (const [node, goal] of layout.nodes) {
      const mark = marks.get(node) || makeMark(node, frame, goal);
      const isClient = frame.isClient(node);
      const accuracy = isClient ? frame.accuracy(node) : mean(node);
      const share = isNumber(accuracy) ? scale.share(accuracy) : null;
      const absent = frame.absent.has(node);
      mark.circle.style.fill = share === null || absent ? "" : viridis(share);
      mark.circle.style.stroke = share !== null && absent ? viridis(share) : "";
      ringWorst(mark, node === worst, goal);
      mark.group.setAttribute("class", [
        isClient ? "client" : "cluster",
        share === null && "unknown", changed.has(node) && "changed", node === worst && "worst",
        absent && "absent", frame.aside.has(node) && "aside",
        app.picked === node && "picked",
      ].filter(Boolean).join(" "));
      label(mark, node, isClient, accuracy, share, goal, layout, clients);
      if (isClient) nameClient(mark, frame.names.get(node), layout);
    }
  }

  function ringWorst(mark, isWorst, goal) {
    if (mark.ring && !isWorst) mark.ring = mark.ring.remove();
    if (!isWorst) return;
    if (!mark.ring) mark.group.append((mark.ring = s("circle", { class: "worst-ring" })));
    mark.ring.setAttribute("r", Math.max(6, goal.r + 3));
  }

  function makeMark(node, frame, goal) {
    const circle = s("circle", {});
    const group = s("g", { "data-node": node }, circle);
    const up = frame.parent(node);
    // A new node grows out of its parent.
    const at = up !== null && marks.has(up) ? marks.get(up).now : goal;
    const mark = { group, circle, text: null, below: null, name: null, now: { x: at.x, y: at.y, r: 0 } };
    if (!marks.size) mark.now = { ...goal };
    marks.set(node, mark);
    if (frame.isClient(node)) dots.append(group);
    else dots.prepend(group);
    return mark;
  }

  function label(mark, node, isClient, accuracy, share, goal, layout, clients) {
    const inside = isClient ? goal.r >= 9 && String(node) : goal.r >= 8 && String(clients.get(node));
    mark.text = write(mark, mark.text, inside, "in");
    if (mark.text) {
      mark.text.style.fontSize = `${Math.min(12, (2.3 * goal.r) / Math.max(2, inside.length)).toFixed(1)}px`;
      mark.text.classList.toggle("on-light", share !== null && share > 0.62);
    }
    const beside = isClient
      ? layout.rows === 1 && layout.size >= 30 && (layout.size >= 39 ? app.run.score.format(accuracy, 1) : app.run.score.tight(accuracy))
      : goal.r >= 8 && goal.named && goal.name;
    mark.below = write(mark, mark.below, beside, isClient ? "below" : "beside");
    if (mark.below && isClient) mark.below.setAttribute("y", Math.min(17, 0.46 * layout.size) + 14);
    if (mark.below && !isClient) {
      mark.below.setAttribute("x", goal.named === "left" ? -goal.r - 4 : goal.r + 4);
      mark.below.style.textAnchor = goal.named === "left" ? "end" : "start";
      mark.below.setAttribute("y", -goal.r * 0.55);
    }
  }

  function nameClient(mark, name, { naming, beneath }) {
    const shown = naming && name && (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);
    mark.name = write(mark, mark.name, shown, naming === "turned" ? "name turned" : "name");
    if (!mark.name) return;
    mark.name.setAttribute("class", naming === "turned" ? "name turned" : "name");
    mark.name.setAttribute("transform", naming === "turned" ? `translate(4 ${beneath}) rotate(-55)` : `translate(0 ${beneath + 8})`);
  }

  function write(mark, text, words, kind) {
    if (!words) {
      if (text) text.remove();
      return null;
    }
    if (!text) mark.group.append((text = s("text", { class: kind })));
    if (text.textContent !== words) text.textContent = words;
    return text;
  }

  function drawMoves(frame, layout, edits) {
    const grafts = edits.filter((edit) => edit.edit === "graft" && frame.before && layout.nodes.has(edit.node));
    const shown = grafts.length > MANY_EDITS ? [] : grafts;
    moves.replaceChildren(...shown.map((edit) => {
      const old = frame.before.has(edit.node) ? layout.nodes.get(frame.before.parent(edit.node)) : null;
      const now = layout.nodes.get(edit.node);
      if (!old) return null;
      const lift = (old.y + now.y) / 2 - 10;
      return s("path", { d: `M${old.x} ${old.y}Q${(old.x + now.x) / 2} ${lift} ${now.x} ${now.y}` });
    }).filter(Boolean));
  }

  function step(frame, layout, from, t) {
    for (const [node, goal] of layout.nodes) {
      const mark = marks.get(node);
      const was = from.get(node);
      const mix = (key) => was[key] + (goal[key] - was[key]) * t;
      mark.now = { x: mix("x"), y: mix("y"), r: mix("r") };
      mark.group.setAttribute("transform", `translate(${mark.now.x.toFixed(1)} ${mark.now.y.toFixed(1)})`);
      mark.circle.setAttribute("r", mark.now.r.toFixed(1));
    }
    drawEdges(frame, layout);
  }

  function drawEdges(frame, layout) {
    const paths = [];
    for (const [node] of layout.nodes) {
      const up = frame.parent(node);
      if (up === null || (frame.isClient(node) && layout.rows > 1)) continue;
      paths.push(edgePath(marks.get(up).now, marks.get(node).now));
    }
    if (layout.rows > 1) {
      for (const block of layout.blocks) {
        if (block.parent === null) continue;
        paths.push(edgePath(marks.get(block.parent).now, { x: block.x + block.width / 2, y: block.y - 2 }));
      }
    }
    if (!edges.firstChild) edges.append(s("path", {}));
    edges.firstChild.setAttribute("d", paths.join(""));
  }

  onWidth(scroll, (width) => {
    room = width;
    draw(false);
  });
  return { element: scroll, draw, staged: true };
}

// The nodes that an edit is about, as far as they are there after it.
const nodesOf = (edit) => [edit.node, edit.into].flat().filter(isNumber);
