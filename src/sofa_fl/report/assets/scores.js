// What the clients' scores are called and how they are written: the only place that tells them apart.

const signed = (x, digits) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(digits)}`;
const real = (x, digits) => decimal(x, digits).replace("-", "−");
// As short as "87.3%", however far below zero it is: 0.87, −4.4, −15.
const shortReal = (x, digits) => real(x, Math.abs(x) < 1 ? 1 + digits : Math.abs(x) < 10 ? 1 : 0);

const SCORES = {
  accuracy: {
    name: "accuracy", title: "Accuracy", format: percent,
    // Where "99.6%" has no room; only what is all right is 100.
    tight: (x) => (!isNumber(x) ? NONE : x < 1 ? decimal(Math.min(99.9, 100 * x), 1) : "100"),
    change: (x, digits = 2) => signed(100 * x, digits),
    tick: (x) => percent(x, x > 0.99 && x < 1 ? 1 : 0),
    note: "Accuracy on each client's own test samples. The axis is logarithmic in the error: the distance from 90 to 95% equals that from 98 to 99%.",
  },
  // Of regression: the share of the variance that is explained, below zero if the mean would be a better answer.
  r2: {
    name: "R²", title: "R²", format: (x, digits = 2) => (digits < 2 ? shortReal(x, digits) : real(x, 3)),
    tight: (x) => shortReal(x, 0),
    change: (x) => signed(x, 3),
    tick: (x) => String(+x.toFixed(3)).replace("-", "−"),
    note: "R² on each client's own test samples: 1 is exact, 0 is no better than the mean. The axis is logarithmic in the error: the distance from 0.90 to 0.95 equals that from 0.98 to 0.99.",
  },
};
// Of runs that were scored in different ways, side by side, or by what another version knows.
SCORES.mixed = { ...SCORES.r2, name: "score", title: "Score", note: "Scores on each client's own test samples." };

function scoreOf(record) {
  const kind = (record && record.metric) || "accuracy";
  return Object.hasOwn(SCORES, kind) ? SCORES[kind] : SCORES.mixed;
}

// What a round says of all clients. Jain's index is one of shares: of scores below zero it says nothing.
const factOf = (client, key) => (key === "jain" && client.min < 0 ? undefined : client[key]);

// Whether the scores of a round were taken in it, and are not older.
const isScored = (record) => record.evaluated === undefined || record.evaluated === record.round;

function commonScore(runs) {
  const kinds = new Set(runs.map((run) => run.score));
  return kinds.size === 1 ? runs[0].score : SCORES.mixed;
}
