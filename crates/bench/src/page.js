// Draws the charts whose data stands in the page: see chart.rs.
"use strict";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [560, 300, 80, 12, 10, 34];
const STEPS_PER_NINE = 40;
const ROW = 34; // of a histogram
const N_STEPS = 48;

function scaled(value, units) {
  const [factor, unit] = units.find(([factor]) => value < factor * 1000) ?? units.at(-1);
  return `${Math.round(value / factor)} ${unit}`.trim();
}
const time = (ns) => scaled(ns, [[1, "ns"], [1e3, "us"], [1e6, "ms"], [1e9, "s"]]);
const count = (n) => scaled(n, [[1, ""], [1e3, "k"], [1e6, "M"]]);

const line = (kind, x1, y1, x2, y2) =>
  `<line class="${kind}" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`;
const text = (kind, x, y, anchor, words) =>
  `<text class="${kind}" x="${x}" y="${y}" text-anchor="${anchor}">${words}</text>`;
const polyline = (name, points) =>
  `<polyline class="curve ${name}" points="${points.join(" ")}"><title>${name}</title></polyline>`;
const svg = (height, parts) =>
  `<svg viewBox="0 0 ${WIDTH} ${height}" role="img">${parts.join("")}</svg>`;

// Where values lie between `low` and `high`, both logarithms, and the lines of 1, 2 and 5.
function logarithmic(low, high, label) {
  const y = (value) =>
    TOP + ((high - Math.log10(Math.max(value, 1))) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const lines = [];
  for (let decade = Math.floor(low); decade <= Math.ceil(high); decade++) {
    for (const factor of [1, 2, 5]) {
      const value = factor * 10 ** decade;
      if (Math.log10(value) < low || Math.log10(value) > high) continue;
      const kind = factor === 1 ? "major" : "minor";
      lines.push(line(kind, LEFT, y(value), WIDTH - RIGHT, y(value)));
      lines.push(text(kind, LEFT - 6, y(value) + 3.5, "end", label(value)));
    }
  }
  return { y, lines };
}

function percentiles({ curves, levels }) {
  const times = curves.flatMap(([, times]) => times).concat(levels.map(([, ns]) => ns));
  const ends = times.map((ns) => Math.log10(Math.max(ns, 1)));
  const low = Math.floor(ends.reduce((a, b) => Math.min(a, b)));
  const high = Math.max(Math.ceil(ends.reduce((a, b) => Math.max(a, b))), low + 1);
  const { y, lines } = logarithmic(low, high, time);
  const steps = Math.max(...curves.map(([, times]) => times.length)) - 1;
  const nines = Math.max(steps / STEPS_PER_NINE, 1);
  const x = (nine) => LEFT + (nine / nines) * (WIDTH - LEFT - RIGHT);
  const shares = { "0 %": 0, 50: Math.log10(2), 90: 1, 99: 2, 99.9: 3, 99.99: 4, 99.999: 5 };
  for (const [label, nine] of Object.entries(shares).filter(([, nine]) => nine <= nines)) {
    lines.push(line("minor", x(nine), TOP, x(nine), HEIGHT - BOTTOM));
    lines.push(text("major", x(nine), HEIGHT - BOTTOM + 16, "middle", label));
  }
  for (const [name, ns] of levels) {
    lines.push(line(`level ${name}`, LEFT, y(ns), WIDTH - RIGHT, y(ns)));
  }
  // Those that come first are drawn last, over others.
  for (const [name, times] of curves.toReversed()) {
    lines.push(polyline(name, times.map((ns, step) => [x(step / STEPS_PER_NINE), y(ns)])));
  }
  return svg(HEIGHT, lines);
}

function byNumber({ unit, lines: systems }) {
  const points = systems.flatMap(([, points]) => points);
  const numbers = [...new Set(points.map(([number]) => number))].sort((a, b) => a - b);
  const values = points.flatMap(([, values]) => values);
  const ends = values.map((value) => Math.log10(Math.max(value, 1)));
  const label = unit === "nanoseconds" ? time : count;
  const { y, lines } = logarithmic(Math.min(...ends) - 0.1, Math.max(...ends) + 0.1, label);
  const x = (number) =>
    LEFT + ((numbers.indexOf(number) + 0.5) / numbers.length) * (WIDTH - LEFT - RIGHT);
  for (const number of numbers) {
    lines.push(text("major", x(number), HEIGHT - BOTTOM + 16, "middle", number));
  }
  for (const [name, points] of systems.toReversed()) {
    const marks = points.map(([number, [median, least, greatest]]) =>
      `<path class="whisker" d="M${x(number)} ${y(least)}V${y(greatest)}"/>` +
      `<circle class="dot" cx="${x(number)}" cy="${y(median)}" r="2.5"/>`);
    const corners = points.map(([number, [median]]) => [x(number), y(median)]);
    lines.push(`<g class="${name}">${marks.join("")}${polyline(name, corners)}</g>`);
  }
  return svg(HEIGHT, lines);
}

function histograms({ rows }) {
  const [left, bottom] = [80, ROW * rows.length];
  const x = (step) => left + (step / N_STEPS) * (WIDTH - left - RIGHT);
  const parts = [];
  for (let step = 0; step <= N_STEPS; step += 12) {
    parts.push(line("major", x(step), 0, x(step), bottom));
    parts.push(text("major", x(step), bottom + 13, "middle", time(100 * 10 ** (step / 12))));
  }
  rows.forEach(([name, shares], number) => {
    const floor = ROW * (number + 1);
    parts.push(text("major", 2, floor - 6, "start", name));
    const greatest = Math.max(...shares);
    shares.forEach((share, step) => {
      if (share === 0) return;
      // One of a thousand is to be seen, too.
      const height = Math.max((share / greatest) * (ROW - 6), 1);
      const width = x(step + 1) - x(step) - 0.6;
      parts.push(`<rect x="${x(step)}" y="${floor - height}" width="${width}"` +
        ` height="${height}" fill="currentColor"/>`);
    });
  });
  return svg(bottom + 20, parts);
}

const draw = { percentiles, "by-number": byNumber, histograms };
const charts = JSON.parse(document.getElementById("data").textContent);
document.getElementById("charts").innerHTML = charts
  .map((chart) => `<figure><h2>${chart.title}</h2>${draw[chart.kind](chart)}</figure>`)
  .join("");
