// Several runs side by side: one table, curves over each other, trees at one slider.

function comparePage(root, runs) {
  alike(runs);
  const app = makeComparison(runs);
  app.bar = player(app);
  const head = h("header", { class: "top" },
    h("div", {}, h("h1", {}, app.hasSeeds ? `${number(app.groups.length, "method")} compared, ${number(runs.length, "run")}` : `${number(runs.length, "run")} compared`), h("p", { class: "sub" }, runs.map((run) => run.name).join(" · "))),
    themeButton(() => app.draw(false)));
  const add = (view) => {
    app.cards.push(view);
    return view.element;
  };
  const over = app.hasSeeds ? " A method's row is the mean over its seeds, ± a 95% interval; thin lines are single seeds." : "";
  const plus = runs.map((run) => run.plus).find(Boolean);
  root.replaceChildren(head, app.bar.element,
    card("table-card", "Runs in this round", `${app.score.title} of the clients, and what it took; the best of each column is bold.${over}${plus ? ` ${plus}` : ""}`, add(tableView(app))),
    h("div", { class: "row" },
      card("mean-card", `Mean ${app.score.name} over the clients`, null, add(curveView(app, "mean"))),
      card("worst-card", `The worst client's ${app.score.name}`, null, add(curveView(app, "min")))),
    ...metricsOf(runs.flatMap((run) => run.history)).map((name) =>
      card(`metric-${name}`, name, "Mean over the clients.", add(metricCurves(app, name)))),
    h("div", { class: "row" },
      card("rank-card", "Clients from worst to best, in this round", "A higher line means that these clients are served better.", add(rankView(app))),
      app.hasSeeds
        ? card("differ-card", "Seed by seed", `Mean ${app.score.name} of the clients minus that of ${app.groups[0].name} with the same seed.`, add(seedsView(app)))
        : card("differ-card", "Who gains, who loses", `Compared with ${runs[0].name}, client by client.`, add(differenceView(app)))),
    card("trees-card", "The trees", null, legend(runs[0], app.score), add(treesView(app))),
    card("config-card", "What differs in the configuration", null, configDifferences(runs)));
  app.draw(false);
}

// Runs that differ in nothing but their seed are one group; a single group is not compared with anything.
function groupsOf(runs) {
  const groups = new Map();
  for (const run of runs) {
    const settings = flatten(run.config || {}).filter(([key]) => key !== "seed" && key !== "out");
    const key = JSON.stringify([run.title, run.data, settings]);
    groups.set(key, [...(groups.get(key) || []), run]);
  }
  if (groups.size < 2) return runs.map((run) => ({ name: run.title, runs: [run] }));
  const titles = [...groups.values()].map(([first]) => first.title);
  const alone = (title) => titles.filter((other) => other === title).length === 1;
  return [...groups.values()].map((found) => ({ name: alone(found[0].title) ? found[0].title : found[0].name, runs: found }));
}

// One colour scale and one size for all.
function alike(runs) {
  const scale = scoreScale(runs.flatMap((run) => [run.scale.worst, run.scale.best]));
  const largest = Math.max(...runs.map((run) => run.largest));
  const taken = new Map();
  const groups = groupsOf(runs);
  const hasSeeds = groups.length < runs.length;
  runs.forEach((run, i) => {
    taken.set(run.name, (taken.get(run.name) || 0) + 1);
    const colour = hue(hasSeeds ? groups.findIndex((group) => group.runs.includes(run)) : i);
    Object.assign(run, { scale, largest, colour, short: shorten(run.name, taken.get(run.name)) });
  });
}

const shorten = (name, time) => `${name.length > 22 ? `${name.slice(0, 20)}…` : name}${time > 1 ? ` (${time})` : ""}`;

function makeComparison(runs) {
  const last = Math.max(...runs.map((run) => run.rounds || 0), ...runs.flatMap((run) => run.history.slice(-1).map((r) => r.round)));
  const groups = groupsOf(runs).map((group) => ({ ...group, colour: group.runs[0].colour }));
  const app = {
    runs, groups, hasSeeds: groups.length < runs.length, score: commonScore(runs), run: { rounds: last }, at: last, picked: null, status: "", cards: [], bar: null, edits: null,
    numFrames: () => last + 1,
    lastRound: () => last,
    frame: () => ({ round: app.at }),
    stage: null,
    goToRound(round) {
      app.bar.pause();
      app.goTo(round);
    },
    advance(then) {
      app.goTo(app.at + 1);
      then();
    },
    goTo(index) {
      const to = Math.min(Math.max(index, 0), last);
      if (to === app.at) return;
      const near = Math.abs(to - app.at) === 1;
      app.at = to;
      app.draw(near);
    },
    draw(animate) {
      app.bar.draw();
      for (const view of app.cards) view.draw(animate);
    },
  };
  return app;
}

const frameAt = (run, round) => [...run.frames].reverse().find((frame) => frame.round <= round) || null;
const recordAt = (run, round) => [...run.history].reverse().find((record) => record.round <= round) || null;

function tableView(app) {
  const element = h("div", { class: "scroll" });
  const { format } = app.score;
  const columns = [
    ["mean", (r) => r.client.mean, format, 1], ["worst", (r) => r.client.min, format, 1], ["worst tenth", (r) => r.client.bottom10, format, 1],
    ["std", (r) => r.client.std, format, -1], ["Jain", (r) => factOf(r.client, "jain"), (x) => decimal(x, 4), 1],
    ["most disclosed", (r) => (r.disclosed || {}).max, (x) => percent(x, 1), -1], ["clusters", (r) => r.num_clusters, count, 0],
    ["depth", (r) => r.depth, count, 0], ["time", (r) => r.seconds, duration, -1], ["bytes", (r) => (r.up || 0) + (r.down || 0), bytes, -1],
  ];

  function draw() {
    const records = app.runs.map((run) => recordAt(run, app.at));
    const best = columns.map(([, value, , sign]) => {
      const known = records.filter(Boolean).map(value).filter(isNumber);
      return sign && new Set(known).size > 1 ? Math[sign > 0 ? "max" : "min"](...known) : NaN;
    });
    const rows = app.runs.map((run, i) => h("tr", { class: app.hasSeeds ? "seed" : null },
      h("th", { scope: "row" }, app.hasSeeds ? null : h("i", { class: "swatch", style: `background: ${run.colour}` }), h("b", {}, run.short),
        h("small", {}, ` ${run.title}, ${run.data}, seed ${run.seed}${records[i] && records[i].round < app.at ? `, round ${records[i].round}` : ""}`)),
      ...columns.map(([, value, format], j) => {
        const x = records[i] ? value(records[i]) : undefined;
        return h("td", { class: !app.hasSeeds && x === best[j] ? "best" : null }, format(x));
      })));
    if (app.hasSeeds) rows.splice(0, rows.length, ...byMethod(rows));
    const top = h("tr", {}, h("th", {}, app.hasSeeds ? "method" : "run"), ...columns.map(([name]) => h("th", { scope: "col" }, name)));
    element.replaceChildren(h("table", { class: "runs" }, h("thead", {}, top), h("tbody", {}, ...rows)));
  }

  // A row per method, over the rows of its seeds.
  function byMethod(rows) {
    const means = app.groups.map((group) => columns.map(([, value]) =>
      intervalOf(group.runs.map((run) => recordAt(run, app.at)).filter(Boolean).map(value).filter(isNumber))));
    const best = columns.map(([, , , sign], j) => {
      const known = means.map((row) => row[j].mean).filter(isNumber);
      return sign && new Set(known).size > 1 ? Math[sign > 0 ? "max" : "min"](...known) : NaN;
    });
    return app.groups.flatMap((group, i) => [
      h("tr", {},
        h("th", { scope: "row" }, h("i", { class: "swatch", style: `background: ${group.colour}` }), h("b", {}, group.name), h("small", {}, ` ${number(group.runs.length, "seed")}`)),
        ...columns.map(([, , format, sign], j) => {
          const { mean, width } = means[i][j];
          const text = isNumber(width) && j < 5 ? `${format(mean)} ± ${format(width)}` : format(sign || !isNumber(mean) ? mean : Math.round(mean));
          return h("td", { class: mean === best[j] ? "best" : null }, text);
        })),
      ...group.runs.map((run) => rows[app.runs.indexOf(run)]),
    ]);
  }

  return { element, draw };
}

const valuesOf = (lines) => lines.flatMap((line) => line.points.map(([, value]) => value));
function curves(app, value) {
  const lineOf = (run) => ({ colour: run.colour, points: run.history.map((r) => [r.round, value(r)]) });
  if (!app.hasSeeds) return app.runs.map((run) => ({ name: run.short, ...lineOf(run) }));
  const means = app.groups.map((group) => ({ name: group.name, colour: group.colour, points: meanPoints(group.runs.map((run) => lineOf(run).points)) }));
  return [...app.runs.map((run) => ({ kind: "seed", ...lineOf(run) })), ...means];
}

// The mean of several lines, where all of them have a value.
function meanPoints(all) {
  const [first, ...others] = all.map((points) => new Map(points));
  const mean = (x) => all.length && [first, ...others].reduce((sum, points) => sum + points.get(x), 0) / all.length;
  return [...first.keys()].map((x) => [x, [first, ...others].every((points) => isNumber(points.get(x))) ? mean(x) : undefined]);
}

function metricCurves(app, name) {
  const chart = lineChart(app, {
    label: `${name} over rounds`, height: 220, named: true,
    content() {
      const lines = curves(app, (record) => metricIn(record, name, "mean"));
      return { lines, axis: linearAxis(valuesOf(lines), anyNumber) };
    },
  });
  return { element: chart.element, draw: chart.draw };
}

function curveView(app, key) {
  const chart = lineChart(app, {
    label: `${app.score.title} over rounds: ${key}`, height: 260, named: true, format: app.score.format,
    content() {
      const lines = curves(app, (record) => (isScored(record) ? record.client[key] : undefined));
      return { lines, axis: scoreAxis(valuesOf(lines), app.score) };
    },
  });
  return { element: chart.element, draw: chart.draw };
}
