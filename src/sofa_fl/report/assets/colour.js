// Colours: scores by a fixed scale over all rounds, names by a palette for the colour-blind.

// Viridis: even in lightness, and the same to the colour-blind.
const VIRIDIS = ["440154", "46327e", "365c8d", "277f8e", "1fa187", "4ac16d", "a0da39", "fde725"];
const FLOOR = 0.002; // of errors: what is better looks the same

const hex = (code, i) => parseInt(code.slice(2 * i, 2 * i + 2), 16);

function viridis(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const part = [0, 1, 2].map((i) =>
    Math.round(hex(VIRIDIS[low], i) * (1 - place + low) + hex(VIRIDIS[low + 1], i) * (place - low)));
  return `rgb(${part.join(" ")})`;
}

// A score as a place in 0 … 1, by the logarithm of the errors: the distance from 90 to 95% equals that from 98 to 99%.
// R² may be negative: its errors, the share of the variance that is left, are then above 1.
function scoreScale(values) {
  const known = values.filter(isNumber);
  const [worst, best] = known.length ? [least(known), most(known)] : [0, 1];
  // Nobody is infinitely good: no error at all counts as somewhat fewer than the fewest there are.
  const errors = known.map((score) => 1 - score).filter((error) => error > 1e-9);
  const floor = errors.length ? Math.max(FLOOR, (best >= 1 ? 0.7 : 1) * least(errors)) : FLOOR;
  const error = (score) => Math.log(Math.max(floor, 1 - score));
  let [low, high] = [error(worst), error(best)];
  if (low - high < 0.2) [low, high] = [low + 0.1, high - 0.1];
  const share = (score) => (low - error(score)) / (low - high);
  const marks = [-1000, -300, -100, -30, -10, -5, -2, -1, -0.5, 0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998];
  const ticks = marks.filter((mark) => share(mark) >= -0.001 && share(mark) <= 1.001 && 1 - mark >= 0.99 * floor);
  if (best >= 1) ticks.push(1);
  return { share, ticks: ticks.length > 1 ? ticks : [worst, best], worst, best };
}

// As Math.min and Math.max, of any number of values: spread, a million would overflow the stack.
const least = (values) => values.reduce((a, b) => (b < a ? b : a));
const most = (values) => values.reduce((a, b) => (b > a ? b : a));

// Okabe and Ito's colours, as the style sheet has them for either theme.
const hue = (i) => `var(--hue-${i % 7})`;

const theme = {
  get() {
    return document.documentElement.dataset.theme;
  },
  set(name) {
    document.documentElement.dataset.theme = name;
    try {
      localStorage.setItem("sofa-fl-theme", name);
    } catch {
      // a page from a file may have no storage: the choice then lasts until it is closed
    }
  },
  start() {
    let chosen = null;
    try {
      chosen = localStorage.getItem("sofa-fl-theme");
    } catch {
      // as above
    }
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = chosen || (dark ? "dark" : "light");
  },
};
