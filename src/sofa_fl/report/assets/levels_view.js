// What each level is good for: its held-out loss over rounds, and for how many clients it is best.

const levelName = (level, depth) => (level === 0 ? "clients" : level === depth ? "root" : `level ${level}`);

function levelsView(app) {
  const chart = lineChart(app, { label: "Held-out loss of the models of each level", height: 240, named: true, content });
  const best = h("div", {});
  const element = h("div", { class: "split" }, chart.element,
    h("div", {}, h("h3", {}, "Best model, by level, in this round"), best));

  function content() {
    const history = app.run.history;
    const depth = Math.max(...history.map((record) => record.depth), 0);
    const lines = [];
    for (let level = 0; level <= depth; level++) {
      const points = history.map((record) => [record.round, (record.levels.find((row) => row.level === level) || {}).loss]);
      // the top of a tree that gets higher or lower is the root, whatever its level
      if (points.some(([, loss]) => isNumber(loss))) lines.push({ name: level ? `level ${level}` : "clients", colour: hue(level), points });
    }
    const values = lines.flatMap((line) => line.points.map(([, loss]) => loss));
    return { lines, axis: linearAxis(values, (x) => decimal(x, 2), true) };
  }

  function draw() {
    chart.draw();
    const frame = app.frame();
    if (!frame) return;
    const { levels, depth } = frame.record;
    const all = levels.reduce((sum, row) => sum + row.best, 0);
    best.replaceChildren(rankBars([...levels].reverse().map((row) => ({
      name: levelName(row.level, depth), share: all ? row.best / all : 0, colour: hue(row.level),
      value: `${count(row.best)} of ${count(all)}`,
    }))));
  }

  return { element, draw };
}
