// What was done to the tree, round by round; the round shown is marked and scrolled to.

const MANY_IN_A_ROUND = 60;

function editsView(app) {
  const list = h("ol", { class: "edits", "aria-label": "Edits by round" });
  const now = h("div", { class: "edits-now", "aria-live": "polite" });
  const none = h("p", { class: "note" }, "The tree has not changed since the warm-up.");
  const data = h("p", { class: "data-news" });
  const element = h("div", { class: "edits-box" }, data, now, none, list);
  let built = -1;

  function build() {
    const rounds = app.run.history.filter((record) => record.edits.length);
    list.replaceChildren(...rounds.map((record) => {
      const shown = record.edits.slice(0, MANY_IN_A_ROUND);
      const rest = record.edits.length - shown.length;
      return h("li", { "data-round": record.round },
        h("button", { type: "button", onclick: () => app.goToRound(record.round) },
          h("b", {}, nameOfRound(record.round)), ` ${tally(record.edits)}`),
        h("ul", {}, ...shown.map((edit) => sentence(edit, record.round)), rest ? h("li", {}, `and ${number(rest, "more edit")}`) : null));
    }));
    built = app.run.history.length;
  }

  // A click goes to the round, and picks the node that the edit is about.
  function sentence(edit, round) {
    const go = () => {
      app.goToRound(round);
      const [node] = nodesOf(edit);
      if (node !== undefined && app.picked !== node) app.pick(node);
    };
    return h("li", { role: "button", tabindex: 0, onclick: go, onkeydown: (event) => event.key === "Enter" && go(), onpointerenter: () => app.point(nodesOf(edit)), onpointerleave: () => app.point([]) },
      h("span", { class: "kind" }, edit.edit), ` ${edit.told}`);
  }

  function draw() {
    if (built !== app.run.history.length) build();
    const { stage } = app;
    const frame = stage ? stage.after : app.frame();
    const edits = app.edits();
    const first = frame && frame.round === 0;
    const start = app.run.method === "sofa" ? "The tree as DMAC built it after the warm-up." : "The tree after the warm-up.";
    const news = frame && !stage ? dataNews(app.run, frame) : "";
    data.textContent = news;
    data.hidden = !news;
    now.replaceChildren(stage ? `${nameOfRound(frame.round)}: edit ${stage.index + 1} of ${stage.count}.`
      : first ? start : edits.length ? `In this round: ${tally(edits)}.` : "No edits in this round.");
    const since = frame && frame.before ? frame.before.round : -1;
    let shown = null;
    for (const item of list.children) {
      const round = Number(item.dataset.round);
      const isNow = frame && round > since && round <= frame.round;
      item.classList.toggle("now", isNow);
      item.classList.toggle("later", frame && round > frame.round);
      if (isNow) shown = shown || item;
    }
    list.querySelectorAll("li.now ul > li").forEach((item, i) => {
      item.classList.toggle("doing", Boolean(stage) && i === stage.index);
      item.classList.toggle("later", Boolean(stage) && i > stage.index);
      if (stage && i === stage.index) shown = item;
    });
    // When all is drawn: asking for a place now would lay the page out twice.
    if (shown) requestAnimationFrame(() => list.scrollTo({ top: shown.offsetTop - list.offsetTop - 4, behavior: calm.matches ? "auto" : "smooth" }));
    none.hidden = list.children.length > 0 || !frame || frame.round === 0;
  }

  return { element, draw, staged: true };
}

// Whose data changed, who joined and who left since the frame before.
function dataNews(run, frame) {
  const since = frame.before ? frame.before.round : -1;
  const records = run.history.filter((record) => record.data && record.round > since && record.round <= frame.round);
  const listed = (clients) => (clients.length > 4 ? number(clients.length, "client") : clients.map((client) => clientName(run, client)).join(", "));
  const said = [["changed", (who) => `the data of ${who} changed`], ["joined", (who) => `${who} joined`], ["left", (who) => `${who} left`]];
  const parts = said.flatMap(([key, words]) => {
    const clients = records.flatMap((record) => record.data[key] || []);
    return clients.length ? [words(listed(clients))] : [];
  });
  return parts.length ? `${capital(parts.join("; "))}.` : "";
}

function tally(edits) {
  const counts = new Map();
  for (const edit of edits) counts.set(edit.edit, (counts.get(edit.edit) || 0) + 1);
  return [...counts].map(([kind, n]) => number(n, kind)).join(", ");
}
