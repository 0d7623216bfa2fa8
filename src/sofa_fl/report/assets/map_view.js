// The clients' positions on a plane. It keeps what distances it can; only nearness means something.

function mapView(app) {
  const [hulls, trails, dots] = ["hulls", "trails", "dots"].map((name) => s("g", { class: name }));
  const svg = s("svg", { class: "map", role: "img", "aria-label": "Positions of the clients in two dimensions" }, hulls, trails, dots);
  const fixed = h("input", { type: "checkbox", onchange: () => draw(true) });
  const note = h("p", { class: "note" });
  const element = h("div", {}, svg, h("label", { class: "check" }, fixed, " same scale in all rounds"), note);
  const marks = new Map();
  let stop = () => {};
  let room = 0;

  svg.addEventListener("pointermove", (event) => {
    const dot = event.target.closest("[data-node]");
    if (!dot) return tip.hide();
    const [frame, node] = [app.frame(), Number(dot.dataset.node)];
    if (frame.has(node)) tip.show(event, nodeName(frame, node), nodeFacts(frame, node));
  });
  svg.addEventListener("pointerleave", () => tip.hide());
  svg.addEventListener("click", (event) => {
    const dot = event.target.closest("[data-node]");
    if (dot) app.pick(Number(dot.dataset.node));
  });

  // How far the positions of some rounds reach, each way, and where their middle is.
  function reach(frames) {
    const all = frames.flatMap((frame) => (frame.raw.positions || []).filter(Boolean));
    return [0, 1].map((axis) => {
      const values = all.map((place) => place[axis]);
      const [low, high] = [least(values), most(values)];
      return { middle: (low + high) / 2, half: Math.max(1e-9, (high - low) / 2) };
    });
  }

  function draw(animate) {
    const frame = app.frame();
    if (!frame || !room || !frame.raw.positions) {
      note.textContent = "This method records no positions.";
      return;
    }
    const height = Math.min(room, 420);
    const [wide, high] = reach(fixed.checked ? app.run.frames : [frame]);
    const size = Math.max(2.2, Math.min(9, 0.55 * Math.sqrt((room * height) / frame.raw.clients.length) / 3));
    const goals = new Map();
    let unit = 1;
    // Dots that are moved apart need more room at the edges, the more of them there are.
    for (let margin = 34, over = 1, tries = 0; over > 0 && tries < 4; margin += over, tries++) {
      unit = Math.min(Math.max(20, room / 2 - margin) / wide.half, Math.max(20, height / 2 - margin) / high.half);
      for (const client of frame.raw.clients) {
        const place = frame.place(client);
        if (place) goals.set(client, { x: room / 2 + (place[0] - wide.middle) * unit, y: height / 2 + (place[1] - high.middle) * unit });
      }
      if (goals.size <= 2000) spread([...goals.values()], 2 * size);
      const edge = size + 3;
      over = Math.max(...[...goals.values()].map(({ x, y }) => Math.max(edge - x, x - (room - edge), edge - y, y - (height - edge))));
    }
    svg.setAttribute("viewBox", `0 0 ${room} ${height}`);
    svg.style.height = `${height}px`;
    const areas = frame.raw.clusters.length > 1 ? "An area contains the clients of one cluster. " : "";
    note.textContent = `${areas}Overlapping dots are moved apart. The frame is ${(room / unit).toPrecision(3)} wide.`;
    for (const goal of goals.values()) { // where that was not enough, none is cut off
      goal.x = Math.min(room - size - 3, Math.max(size + 3, goal.x));
      goal.y = Math.min(height - size - 3, Math.max(size + 3, goal.y));
    }
    update(frame, goals, size);
    const from = new Map([...marks].map(([node, mark]) => [node, mark.now]));
    stop();
    stop = tween(animate ? 650 : 0, (t) => {
      for (const [node, goal] of goals) {
        const [mark, was] = [marks.get(node), from.get(node)];
        mark.now = { x: was.x + (goal.x - was.x) * t, y: was.y + (goal.y - was.y) * t };
        mark.circle.setAttribute("cx", mark.now.x.toFixed(1));
        mark.circle.setAttribute("cy", mark.now.y.toFixed(1));
      }
      drawHulls(frame);
    });
  }

  function update(frame, goals, size) {
    for (const [node, mark] of marks) {
      if (!goals.has(node)) {
        mark.circle.remove();
        marks.delete(node);
      }
    }
    for (const [node, goal] of goals) {
      if (!marks.has(node)) {
        const circle = s("circle", { "data-node": node });
        marks.set(node, { circle, now: goal });
        dots.append(circle);
      }
      const { circle } = marks.get(node);
      const accuracy = frame.accuracy(node);
      const share = Math.sqrt((frame.samples(node) ?? app.run.largest) / app.run.largest);
      circle.setAttribute("r", (size * Math.max(0.45, share)).toFixed(1));
      const [colour, absent] = [isNumber(accuracy) ? viridis(app.run.scale.share(accuracy)) : "", frame.absent.has(node)];
      circle.style.fill = absent ? "" : colour;
      circle.style.stroke = absent ? colour : "";
      circle.setAttribute("class", [app.picked === node && "picked", frame.absent.has(node) && "absent", frame.aside.has(node) && "aside"]
        .filter(Boolean).join(" "));
    }
  }

  function drawHulls(frame) {
    const groups = new Map();
    for (const client of frame.raw.clients) {
      const up = frame.parent(client);
      if (up === null || !marks.has(client)) continue;
      if (!groups.has(up)) groups.set(up, []);
      groups.get(up).push(marks.get(client).now);
    }
    const shown = groups.size > 1 ? [...groups.values()].filter((points) => points.length > 1) : [];
    hulls.replaceChildren(...shown.map((points) => s("path", { d: `M${hull(points).map((p) => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join("L")}Z` })));
  }

  onWidth(svg.parentNode || element, (width) => {
    room = width;
    draw(false);
  });
  return { element, draw };
}

// Move dots that would cover each other apart, a little: clients of a cluster may be all but equal.
function spread(points, gap) {
  const sweeps = points.length > 300 ? 8 : 30;
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const cells = new Map();
    const key = (x, y) => x * 100003 + y;
    points.forEach((point, i) => {
      const at = key(Math.floor(point.x / gap), Math.floor(point.y / gap));
      if (!cells.has(at)) cells.set(at, []);
      cells.get(at).push(i);
    });
    let moved = false;
    points.forEach((a, i) => {
      const [cx, cy] = [Math.floor(a.x / gap), Math.floor(a.y / gap)];
      for (let dx = -1; dx <= 1; dx++) for (let dy = -1; dy <= 1; dy++) {
        for (const j of cells.get(key(cx + dx, cy + dy)) || []) {
          if (j <= i) continue;
          const b = points[j];
          const far = Math.hypot(b.x - a.x, b.y - a.y);
          if (far >= gap) continue;
          // Equal ones go where their numbers say, so that the picture is always the same.
          const turn = far > 1e-6 ? Math.atan2(b.y - a.y, b.x - a.x) : 2.4 * j;
          const push = (gap - far) / 4;
          a.x -= push * Math.cos(turn);
          a.y -= push * Math.sin(turn);
          b.x += push * Math.cos(turn);
          b.y += push * Math.sin(turn);
          moved = true;
        }
      }
    });
    if (!moved) return;
  }
}

// Andrew's monotone chain.
function hull(points) {
  const sorted = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
  const turn = (o, a, b) => (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);
  const half = (list) => {
    const kept = [];
    for (const point of list) {
      while (kept.length > 1 && turn(kept[kept.length - 2], kept[kept.length - 1], point) <= 0) kept.pop();
      kept.push(point);
    }
    return kept.slice(0, -1);
  };
  return [...half(sorted), ...half(sorted.reverse())];
}
