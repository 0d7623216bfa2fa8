// Lines over rounds. Lines are named at their ends, a cursor marks the round that is shown.
// With `still`, over something else: no cursor, and a click goes nowhere.

const BOX = { top: 10, bottom: 24, left: 52 };

function niceTicks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  const unit = [1, 2, 5, 10].find((step) => step * power >= raw) * power;
  const ticks = [];
  for (let tick = Math.ceil(low / unit - 1e-9) * unit; tick <= high + 1e-9 * unit; tick += unit) ticks.push(Math.round(tick / unit) * unit);
  return { ticks, unit };
}

// A linear axis over `values`, from zero if `zero`.
function linearAxis(values, format, zero = false) {
  const known = values.filter(isNumber);
  let low = known.length ? least(known) : 0;
  let high = known.length ? most(known) : 1;
  if (zero) low = Math.min(0, low);
  if (high - low < 1e-9) [low, high] = zero ? [low, high + 1] : [low - 0.5, high + 0.5];
  const { ticks } = niceTicks(low, high, 4);
  return { share: (value) => (value - low) / (high - low), ticks, format };
}

function scoreAxis(values, score) {
  const scale = scoreScale(values);
  return { share: scale.share, ticks: apart(scale.ticks, scale.share, 0.075), format: score.tick };
}

// Ticks that do not touch, the highest first: there the scale has more room, and more to tell.
function apart(ticks, share, gap) {
  const kept = [];
  for (const tick of [...ticks].reverse()) {
    if (!kept.length || share(kept[kept.length - 1]) - share(tick) >= gap) kept.push(tick);
  }
  return kept.reverse();
}

// `lines`: {name, colour, points: [[round, value]], kind}; `bands`: {name, points: [[round, low, high]]}.
function lineChart(app, options) {
  const svg = s("svg", { class: "chart", role: "img", "aria-label": options.label });
  const element = h("div", { class: "plot" }, svg);
  let room = 0;
  let at = null; // the geometry of the last drawing

  function draw() {
    if (!room) return;
    const { lines, bands = [], axis } = options.content();
    const height = options.height || 220;
    const named = lines.filter((line) => line.name);
    const longest = Math.max(0, ...named.map((line) => line.name.length));
    const right = named.length > 1 || options.named ? Math.min(0.36 * room, 16 + 7.5 * longest) : 14;
    const last = Math.max(1, options.still ? options.still.last : app.lastRound());
    const x = (round) => BOX.left + (round / last) * (room - BOX.left - right);
    const y = (value) => BOX.top + (1 - axis.share(value)) * (height - BOX.top - BOX.bottom);
    at = { x, y, last, lines: named, axis, right, height };
    svg.setAttribute("viewBox", `0 0 ${room} ${height}`);
    svg.style.height = `${height}px`;
    svg.replaceChildren(...axes(axis, x, y, last, room - right, height),
      ...bands.map((band) => s("path", { class: "band", d: bandPath(band.points, x, y) })),
      ...lines.map((line) => s("path", {
        class: `line ${line.kind || ""}`, d: linePath(line.points, x, y), style: line.colour && `stroke: ${line.colour}`,
      })),
      ...endLabels(named, y, room - right + 6, height));
    drawCursor();
  }

  function drawCursor() {
    for (const old of svg.querySelectorAll(".cursor")) old.remove();
    if (!at || options.still || !app.frame()) return;
    const round = app.frame().round;
    svg.append(s("path", { class: "cursor", d: `M${at.x(round)} ${BOX.top}V${at.height - BOX.bottom}` }));
    for (const line of at.lines) {
      const point = line.points.find(([r]) => r === round);
      if (point && isNumber(point[1])) {
        svg.append(s("circle", { class: "cursor", cx: at.x(round), cy: at.y(point[1]), r: 3.2, style: line.colour && `fill: ${line.colour}` }));
      }
    }
  }

  const roundAt = (event) => {
    const left = svg.getBoundingClientRect().left;
    const share = (event.clientX - left - BOX.left) / (room - BOX.left - at.right);
    return Math.round(Math.min(1, Math.max(0, share)) * at.last);
  };
  svg.addEventListener("pointermove", (event) => {
    if (!at) return;
    const round = roundAt(event);
    const rows = at.lines.map((line) => [line.name, line.points.find(([r]) => r === round)]);
    const known = rows.filter(([, point]) => point && isNumber(point[1]));
    const format = options.format || at.axis.format;
    const title = options.still ? options.still.name(round) : nameOfRound(round);
    if (known.length) tip.show(event, title, known.map(([name, point]) => [name, format(point[1])]));
    else tip.hide();
  });
  svg.addEventListener("pointerleave", () => tip.hide());
  svg.addEventListener("click", (event) => at && !options.still && app.goToRound(roundAt(event)));
  onWidth(element, (width) => {
    room = width;
    draw();
  });
  return { element, draw, drawCursor };
}

function axes(axis, x, y, last, right, height) {
  const parts = axis.ticks.flatMap((tick) => [
    s("path", { class: "grid", d: `M${BOX.left} ${y(tick).toFixed(1)}H${right}` }),
    s("text", { class: "tick", x: BOX.left - 6, y: y(tick) + 4, "text-anchor": "end" }, axis.format(tick)),
  ]);
  const { ticks } = niceTicks(0, last, Math.max(2, Math.floor((right - BOX.left) / 60)));
  for (const tick of ticks.filter(Number.isInteger)) {
    parts.push(s("text", { class: "tick", x: x(tick), y: height - 6, "text-anchor": "middle" }, String(tick)));
  }
  return parts;
}

function linePath(points, x, y) {
  let path = "";
  let pen = false; // a gap where nothing is known
  for (const [round, value] of points) {
    if (isNumber(value)) path += `${pen ? "L" : "M"}${x(round).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = isNumber(value);
  }
  if (points.length === 1 && path) path += "h3";
  return path;
}

function bandPath(points, x, y) {
  const known = points.filter(([, low, high]) => isNumber(low) && isNumber(high));
  const there = known.map(([round, , high]) => `${x(round).toFixed(1)} ${y(high).toFixed(1)}`);
  const back = known.map(([round, low]) => `${x(round).toFixed(1)} ${y(low).toFixed(1)}`).reverse();
  return known.length ? `M${[...there, ...back].join("L")}Z` : "";
}

// The names of lines where they end, moved apart where they would touch.
function endLabels(lines, y, x, height) {
  if (lines.length < 2) return [];
  const ends = lines.map((line) => {
    const known = line.points.filter(([, value]) => isNumber(value));
    return { line, y: known.length ? y(known[known.length - 1][1]) : null };
  }).filter((end) => end.y !== null).sort((a, b) => a.y - b.y);
  const step = Math.min(14, (height - BOX.top - 10) / Math.max(1, ends.length));
  let floor = BOX.top;
  for (const end of ends) floor = (end.at = Math.max(end.y, floor)) + step;
  let roof = height - BOX.bottom + 8;
  for (const end of [...ends].reverse()) roof = (end.at = Math.min(end.at, roof)) - step;
  return ends.map(({ line, at }) =>
    s("text", { class: "name", x, y: at + 4, style: line.colour && `fill: ${line.colour}` }, line.name));
}
