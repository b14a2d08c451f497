// The live view's numbers of all engines together, each with its plot.

import { duration, el, number, percent } from "./dom.js";
import { SPAN } from "./fleet.js";
import { Plot } from "./plot.js";

// Of a scale, which has round values.
const roundDuration = (seconds) => (seconds < 1 ? duration(seconds) : `${Math.round(seconds)} s`);

// Each tile: its label, the values that are plotted, and the words for the others.
export const TILES = [
  {
    label: "Running",
    names: ["running"],
    format: number,
    unit: "requests",
    more: (v, peak) => `at most ${number(peak)}`,
  },
  {
    label: "Waiting",
    names: ["waiting"],
    format: number,
    unit: "requests",
    more: (v, peak) => `at most ${number(peak)}`,
  },
  {
    label: "KV cache",
    names: ["kv"],
    format: percent,
    top: 1,
    unit: "in use",
    more: (v, peak) => `at most ${percent(peak)}`,
  },
  {
    label: "Preemptions",
    names: ["preempted"],
    value: "preemptions",
    format: number,
    unit: "since the start",
    more: (v) => `${number(v.recentPreemptions)} in 3 minutes`,
  },
  {
    label: "Generated",
    names: ["generated"],
    format: number,
    unit: "tokens/s",
    floor: 10,
    more: (v, peak) => `at most ${number(peak)}`,
  },
  {
    label: "Prompts",
    names: ["prompt"],
    format: number,
    unit: "tokens/s",
    floor: 10,
    more: (v, peak) => `at most ${number(peak)}`,
  },
  {
    label: "First token",
    names: ["firstToken", "firstTokenSlow"],
    format: duration,
    scaleFormat: roundDuration,
    unit: "median of a minute",
    floor: 0.01,
    more: (v) => `95 % within ${duration(v.firstTokenSlow)}`,
  },
  {
    label: "Prefix cache hits",
    names: ["hits"],
    format: percent,
    top: 1,
    unit: "of prompt tokens",
    more: () => "in the last minute",
  },
];

/** One of them. */
export class Tile {
  constructor(settings) {
    this._settings = settings;
    this._plot = new Plot({ span: SPAN, ...settings });
    this._value = el("strong", {});
    this._more = el("span", {});
    const key = settings.names.length > 1 ? el("i", { class: "key-1" }) : null;
    const unit = el("span", { class: "tile-unit" }, settings.unit);
    this.element = el(
      "div",
      {
        class: "tile card",
        role: "group",
        "aria-label": settings.label,
        "data-tile": settings.value ?? settings.names[0],
      },
      el("h3", {}, settings.label),
      el("p", { class: "tile-value" }, this._value, " ", unit),
      this._plot.element,
      el("p", { class: "tile-more" }, key, this._more),
    );
  }

  show(values, history, now) {
    const { names, value, format, more } = this._settings;
    this._value.textContent = format(values[value ?? names[0]]);
    const peak = Math.max(...history.map((point) => point[names[0]]).filter(Number.isFinite));
    this._more.textContent = more(values, peak);
    this._plot.draw(history, now);
  }
}
