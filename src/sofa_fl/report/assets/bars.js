// Bars per round, stacked where there are several parts, and the small lines of the tiles.

function barChart(app, options) {
  const svg = s("svg", { class: "chart", role: "img", "aria-label": options.label });
  const element = h("div", { class: "plot" }, svg);
  let room = 0;
  let rows = [];

  const step = () => (room - BOX.left - 12) / Math.max(1, app.lastRound() + 1);

  function draw() {
    if (!room) return;
    rows = options.rows(); // {round, parts: [numbers]}
    const height = options.height || 150;
    const totals = rows.map((row) => row.parts.reduce((a, b) => a + b, 0));
    const axis = linearAxis(totals, options.tick || options.format, true);
    const y = (value) => BOX.top + (1 - axis.share(value)) * (height - BOX.top - BOX.bottom);
    const x = (round) => BOX.left + (round + 0.5) * step();
    const bars = rows.flatMap((row) => {
      let base = 0;
      return row.parts.map((part, i) => {
        const [bottom, top] = [y(base), y((base += part))];
        return s("rect", {
          class: "bar", "data-round": row.round, x: BOX.left + (row.round + 0.12) * step(), y: top,
          width: Math.max(1, 0.76 * step()), height: Math.max(0, bottom - top), style: `fill: ${hue(i + (options.hue || 0))}`,
        });
      });
    });
    svg.setAttribute("viewBox", `0 0 ${room} ${height}`);
    svg.style.height = `${height}px`;
    svg.replaceChildren(...axes(axis, x, y, Math.max(1, app.lastRound()), room - 12, height), ...bars);
    drawCursor();
  }

  function drawCursor() {
    const frame = app.frame();
    for (const bar of svg.querySelectorAll(".bar")) {
      bar.classList.toggle("now", Boolean(frame) && Number(bar.dataset.round) === frame.round);
    }
  }

  const rowAt = (event) => {
    const round = Math.floor((event.clientX - svg.getBoundingClientRect().left - BOX.left) / step());
    return rows.find((row) => row.round === round);
  };
  svg.addEventListener("pointermove", (event) => {
    const row = rowAt(event);
    if (row) tip.show(event, nameOfRound(row.round), row.parts.map((part, i) => [options.names[i], options.format(part)]));
    else tip.hide();
  });
  svg.addEventListener("pointerleave", () => tip.hide());
  svg.addEventListener("click", (event) => rowAt(event) && app.goToRound(rowAt(event).round));
  onWidth(element, (width) => {
    room = width;
    draw();
  });
  return { element, draw, drawCursor };
}

// Horizontal bars with a name and a number: for few things.
function rankBars(rows) {
  return h("div", { class: "ranks" }, ...rows.map((row) => {
    const bar = h("i", {});
    bar.style.width = `${(100 * Math.min(1, Math.max(0, row.share))).toFixed(1)}%`;
    if (row.colour) bar.style.background = row.colour;
    const attributes = { class: `rank ${row.kind || ""}`, type: row.pick ? "button" : null, onclick: row.pick };
    return h(row.pick ? "button" : "div", attributes,
      h("span", { class: "what" }, row.name), h("span", { class: "track" }, bar), h("span", { class: "value" }, row.value));
  }));
}

function sparkline(values, at, axis) {
  const [width, height] = [120, 30];
  const x = (i) => 2 + (i / Math.max(1, values.length - 1)) * (width - 4);
  const y = (value) => 3 + (1 - axis.share(value)) * (height - 6);
  const points = values.map((value, i) => [i, value]);
  const svg = s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: "line", d: linePath(points, x, y), "vector-effect": "non-scaling-stroke" }));
  if (isNumber(values[at])) svg.append(s("path", { class: "cursor", d: `M${x(at)} 0V${height}`, "vector-effect": "non-scaling-stroke" }));
  return svg;
}
