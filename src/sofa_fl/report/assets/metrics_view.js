// A user's own metrics: mean and range over the clients, a chart each.

const KINDS = [["max", "faint"], ["mean", "strong"], ["min", "faint"]];
const COMPACT = { notation: "compact", maximumSignificantDigits: 4 };

// Metrics may be of any size.
function anyNumber(x) {
  if (!isNumber(x)) return NONE;
  const size = Math.abs(x);
  const words = size >= 1e5 ? x.toLocaleString("en", COMPACT) : size && size < 1e-3 ? x.toExponential(1) : String(+x.toPrecision(4));
  return words.replace(/^-/, "−");
}

const metricsOf = (history) => [...new Set(history.flatMap((record) => Object.keys(record.metrics || {})))];
const metricIn = (record, name, key) => ((record.metrics || {})[name] || {})[key];

function metricsView(app) {
  const charts = metricsOf(app.run.history).map((name) => ({ name, chart: lineChart(app, { label: `${name} over rounds`, height: 200, content: () => content(name) }) }));
  const element = h("div", { class: "halves" }, ...charts.map(({ name, chart }) => h("div", {}, h("h3", {}, name), chart.element)));

  function content(name) {
    const { history } = app.run;
    const lines = KINDS.map(([key, kind]) => ({ name: key, kind, points: history.map((r) => [r.round, metricIn(r, name, key)]) }));
    const bands = [{ points: history.map((r) => [r.round, metricIn(r, name, "min"), metricIn(r, name, "max")]) }];
    return { lines, bands, axis: linearAxis(lines.flatMap((line) => line.points.map(([, value]) => value)), anyNumber) };
  }

  return { element, draw: () => charts.forEach(({ chart }) => chart.draw()) };
}
