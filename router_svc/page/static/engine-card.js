// The live view's card of one engine.

import { duration, el, number, percent } from "./dom.js";
import { SPAN } from "./fleet.js";
import { Plot } from "./plot.js";

const tokensPerSecond = (value) => (Number.isFinite(value) ? `${number(value)}/s` : "–");

const FACTS = [
  ["running", "Running", number],
  ["waiting", "Waiting", number],
  ["generated", "Generated", tokensPerSecond],
  ["prompt", "Prompts", tokensPerSecond],
  ["firstToken", "First token", duration],
  ["hits", "Cache hits", percent],
  ["preemptions", "Preemptions", number],
];

/** The card of one engine. */
export class EngineCard {
  constructor(engine) {
    this._state = el("span", { class: "chip" });
    this._since = el("span", { class: "help" });
    this._about = el("p", { class: "help" });
    this._facts = new Map(FACTS.map(([name]) => [name, el("dd", {})]));
    this._inFlight = el("dd", {});
    this._kvText = el("dd", {});
    this._plots = [
      new Plot({ label: "Running and waiting", names: ["running", "waiting"], span: SPAN, format: number }),
      new Plot({
        label: "Generated tokens a second",
        names: ["generated"],
        span: SPAN,
        format: number,
        floor: 10,
      }),
      new Plot({ label: "KV cache in use", names: ["kv"], span: SPAN, format: percent, top: 1 }),
    ];
    const legends = [
      el("span", {}, el("i", { class: "key-0" }), "running ", el("i", { class: "key-1" }), "waiting"),
      el("span", {}, "generated tokens/s"),
      el("span", {}, "KV cache"),
    ];
    const fact = (label, value) => el("div", {}, el("dt", {}, label), value);
    this.element = el(
      "li",
      { class: "engine card", "data-target": engine.target },
      el(
        "div",
        { class: "engine-head" },
        el("h3", { title: engine.target }, shortName(engine.target)),
        this._state,
      ),
      el("div", { class: "engine-about" }, this._about, this._since),
      el(
        "div",
        { class: "engine-plots" },
        ...this._plots.map((plot, index) =>
          el("figure", {}, plot.element, el("figcaption", {}, legends[index])),
        ),
      ),
      el(
        "dl",
        { class: "facts" },
        fact("In flight", this._inFlight),
        ...FACTS.map(([name, label]) => fact(label, this._facts.get(name))),
        fact("KV cache", this._kvText),
      ),
    );
  }

  show(engine, now) {
    this.element.dataset.state = engine.state;
    this._state.textContent = engine.label;
    this._state.dataset.state = engine.state;
    this._since.textContent = engine.state === "ok" ? "" : `for ${ago(now - engine.since)}`;
    this._about.textContent = [engine.model, engine.id].filter(Boolean).join(" · ") || "not met yet";
    this._inFlight.textContent = number(engine.inFlight);
    this._kvText.textContent = percent(engine.values.kv);
    for (const [name, , format] of FACTS) this._facts.get(name).textContent = format(engine.values[name]);
    for (const plot of this._plots) plot.draw(engine.history, now);
  }
}

/** A target without what is the same for all. */
function shortName(target) {
  return target.startsWith("unix:") ? target.split("/").slice(-2).join("/") : target;
}

const ago = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`);
