// A small plot of the last minutes, drawn as SVG so that it takes its colours from the style sheet.

import { el } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 60;
const GAP_SECONDS = 5; // without a value for longer, the line is broken

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** Lines over time. `names` are of values in the history, the first is filled; `top` fixes the scale. */
export class Plot {
  constructor({ label, names, span, format, scaleFormat = format, top = 0, floor = 1 }) {
    Object.assign(this, {
      _label: label,
      _names: names,
      _span: span,
      _format: format,
      _round: scaleFormat,
      _top: top,
      _floor: floor,
    });
    this._area = shape("path", { class: "area" });
    this._lines = names.map((_, index) => shape("path", { class: `line line-${index}` }));
    this._svg = shape("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    });
    const grid = shape("path", { class: "grid", d: `M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT - 0.5}H${WIDTH}` });
    this._svg.append(grid, this._area, ...this._lines);
    this._scale = el("span", {});
    const scale = el("div", { class: "plot-scale", "aria-hidden": "true" }, this._scale, el("span", {}, "0"));
    this.element = el("div", { class: "plot" }, this._svg, scale);
  }

  /** Draws a history, a list of {t, …}, as it is at `now`. */
  draw(history, now) {
    const known = this._names.flatMap((name) => history.map((point) => point[name]).filter(Number.isFinite));
    const most = Math.max(0, ...known);
    const top = this._top || nice(Math.max(most, this._floor));
    const x = (t) => (WIDTH * (1 - (now - t) / this._span)).toFixed(1);
    const y = (value) => (HEIGHT - 1 - (HEIGHT - 3) * Math.min(1, value / top)).toFixed(1);
    this._names.forEach((name, index) => {
      const runs = unbroken(history, name);
      const line = runs.map((run) => `M${run.map((point) => `${x(point.t)} ${y(point[name])}`).join("L")}`);
      this._lines[index].setAttribute("d", line.join(""));
      if (index > 0) return;
      const closed = runs.map((run, at) => `${line[at]}V${HEIGHT}H${x(run[0].t)}Z`);
      this._area.setAttribute(
        "d",
        closed.map((path, at) => path.replace("V", `L${x(runs[at].at(-1).t)} ${HEIGHT}V`)).join(""),
      );
    });
    this._scale.textContent = this._round(top);
    const said = known.length ? `at most ${this._format(most)}` : "no values";
    this._svg.setAttribute(
      "aria-label",
      `${this._label}, last ${Math.round(this._span / 60)} minutes: ${said}`,
    );
  }
}

function unbroken(history, name) {
  const runs = [];
  let before = -Infinity;
  for (const point of history) {
    if (!Number.isFinite(point[name])) continue;
    if (point.t - before > GAP_SECONDS) runs.push([]);
    runs.at(-1).push(point);
    before = point.t;
  }
  return runs;
}

/** The next round number that is not below. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const digits = power >= 10 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : [1, 2, 3, 4, 5, 6, 8];
  return digits.map((digit) => digit * power).find((step) => step >= value * 0.999) ?? 10 * power;
}
