// Elements, numbers in words, and the one tooltip. Text only ever becomes text nodes.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const NONE = "–";
const isNumber = (x) => typeof x === "number" && Number.isFinite(x);
const percent = (x, digits = 2) => (isNumber(x) ? `${(100 * x).toFixed(digits)}%` : NONE);
const decimal = (x, digits = 3) => (isNumber(x) ? x.toFixed(digits) : NONE);
const count = (x) => (isNumber(x) ? Math.round(x).toLocaleString("en") : NONE);
const number = (n, thing) => `${count(n)} ${thing}${n === 1 ? "" : "s"}`;

function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  seconds = Math.round(seconds); // first, or there would be a minute of 60 s
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 90) return `${minutes} min ${String(seconds % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

// The same for an axis, where there is little room.
const clock = (seconds) =>
  seconds < 100
    ? `${+seconds.toPrecision(2)} s`
    : `${Math.floor(Math.round(seconds) / 60)}:${String(Math.round(seconds) % 60).padStart(2, "0")}`;

function bytes(n) {
  if (!isNumber(n)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) [n, unit] = [n / 1000, unit + 1];
  return `${unit && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

const nameOfRound = (round) => (round === 0 ? "Warm-up" : `Round ${round}`);

// A card with a heading; `note` says how to read it.
function card(id, title, note, ...children) {
  const head = h("header", {}, h("h2", {}, title), note ? h("p", { class: "note" }, note) : null);
  return h("section", { class: "card", id }, head, ...children);
}

const tip = {
  box: null,
  show(event, title, rows) {
    if (!this.box) document.body.append((this.box = h("div", { id: "tip", role: "status" })));
    const list = h("dl", {});
    for (const [key, value] of rows) list.append(h("dt", {}, key), h("dd", {}, value));
    this.box.replaceChildren(h("strong", {}, title), list);
    this.box.classList.add("on");
    const room = this.box.getBoundingClientRect();
    const x = event.clientX + 16 + room.width > innerWidth ? event.clientX - room.width - 12 : event.clientX + 16;
    const y = Math.min(event.clientY + 14, innerHeight - room.height - 8);
    this.box.style.transform = `translate(${Math.max(6, x)}px, ${Math.max(6, y)}px)`;
  },
  hide() {
    if (this.box) this.box.classList.remove("on");
  },
};

const calm = matchMedia("(prefers-reduced-motion: reduce)");

// Call `step` with 0 … 1 over `ms`; the returned function stops it.
function tween(ms, step) {
  if (ms <= 0 || calm.matches || document.hidden) {
    step(1);
    return () => {};
  }
  const began = performance.now();
  let frame = requestAnimationFrame(function next(now) {
    const t = Math.min(1, Math.max(0, (now - began) / ms));
    step(t < 0.5 ? 4 * t * t * t : 1 - (2 - 2 * t) ** 3 / 2);
    if (t < 1) frame = requestAnimationFrame(next);
  });
  return () => cancelAnimationFrame(frame);
}

// Draw again when the element gets another width.
function onWidth(element, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = Math.floor(element.clientWidth);
    if (width && width !== last) draw((last = width));
  }).observe(element);
}
