// The live view: what all engines do now and did in the last minutes, and each of them.

import { ApiError } from "./api.js";
import { byId, duration, el, number, percent } from "./dom.js";
import { parseExposition } from "./exposition.js";
import { Fleet, SPAN, WANTED } from "./fleet.js";
import { Plot } from "./plot.js";

const POLL_SECONDS = 1;
const TIMEOUT_SECONDS = 5;

// Of a scale, which has round values.
const roundDuration = (seconds) => (seconds < 1 ? duration(seconds) : `${Math.round(seconds)} s`);
const tokensPerSecond = (value) => `${number(value)}/s`;

// Each tile: its label, the values that are plotted, and the words for the others.
const TILES = [
  { label: "Running", names: ["running"], format: number, unit: "requests", more: (v, peak) => `at most ${number(peak)}` },
  { label: "Waiting", names: ["waiting"], format: number, unit: "requests", more: (v, peak) => `at most ${number(peak)}` },
  { label: "KV cache", names: ["kv"], format: percent, top: 1, unit: "in use", more: (v, peak) => `at most ${percent(peak)}` },
  { label: "Preemptions", names: ["preempted"], value: "preemptions", format: number, unit: "since the start", more: (v) => `${number(v.recentPreemptions)} in 3 minutes` },
  { label: "Generated", names: ["generated"], format: number, unit: "tokens/s", floor: 10, more: (v, peak) => `at most ${number(peak)}` },
  { label: "Prompts", names: ["prompt"], format: number, unit: "tokens/s", floor: 10, more: (v, peak) => `at most ${number(peak)}` },
  { label: "First token", names: ["firstToken", "firstTokenSlow"], format: duration, scaleFormat: roundDuration, unit: "median of a minute", floor: 0.01, more: (v) => `95 % within ${duration(v.firstTokenSlow)}` },
  { label: "Prefix cache hits", names: ["hits"], format: percent, top: 1, unit: "of prompt tokens", more: () => "in the last minute" },
];

class Tile {
  constructor(settings) {
    this._settings = settings;
    this._plot = new Plot({ span: SPAN, ...settings });
    this._value = el("strong", {});
    this._more = el("span", { class: "tile-more" });
    const unit = el("span", { class: "tile-unit" }, settings.unit);
    this.element = el(
      "div",
      { class: "tile card", role: "group", "aria-label": settings.label, "data-tile": settings.value ?? settings.names[0] },
      el("h3", {}, settings.label),
      el("p", { class: "tile-value" }, this._value, " ", unit),
      this._plot.element,
      this._more,
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
class EngineCard {
  constructor(engine) {
    this._state = el("span", { class: "chip" });
    this._since = el("span", { class: "help" });
    this._about = el("p", { class: "help" });
    this._facts = new Map(FACTS.map(([name]) => [name, el("dd", {})]));
    this._inFlight = el("dd", {});
    this._kv = el("span", { class: "meter-fill" });
    this._kvText = el("dd", {});
    this._plots = [
      new Plot({ label: "Running and waiting", names: ["running", "waiting"], span: SPAN, format: number }),
      new Plot({ label: "Generated tokens a second", names: ["generated"], span: SPAN, format: number, floor: 10 }),
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
      el("div", { class: "engine-head" }, el("h3", { title: engine.target }, shortName(engine.target)), this._state),
      el("div", { class: "engine-about" }, this._about, this._since),
      el("div", { class: "engine-plots" }, ...this._plots.map((plot, index) => el("figure", {}, plot.element, el("figcaption", {}, legends[index])))),
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

/** Asks for /metrics every second while the page can be seen, and shows what it says. */
export class Live {
  constructor(api, onState) {
    this._api = api;
    this._onState = onState;
    this._fleet = new Fleet();
    this._tiles = TILES.map((settings) => new Tile(settings));
    this._cards = new Map();
    this._paused = false;
    this._timer = null;
    this._isAsking = false;
    byId("totals").append(...this._tiles.map((tile) => tile.element));
    byId("pause").addEventListener("click", () => this._pause(!this._paused));
    document.addEventListener("visibilitychange", () => this.poll());
  }

  _pause(paused) {
    this._paused = paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    if (paused) byId("updated").textContent = "Paused";
    else this.poll();
  }

  /** Asks now, and from now on. */
  async poll() {
    clearTimeout(this._timer);
    if (this._isAsking || this._paused || document.visibilityState !== "visible") return;
    this._isAsking = true;
    const begin = performance.now();
    const again = await this._ask();
    this._isAsking = false;
    const rest = POLL_SECONDS * 1000 - (performance.now() - begin);
    if (again) this._timer = setTimeout(() => this.poll(), Math.max(100, rest));
  }

  /** Whether asking again makes sense: not before there is another key. */
  async _ask() {
    let text;
    try {
      const response = await this._api.get("metrics", AbortSignal.timeout(TIMEOUT_SECONDS * 1000));
      text = await response.text();
    } catch (error) {
      const needsKey = error instanceof ApiError && error.status === 401;
      byId("updated").textContent = needsKey ? "Needs an API key" : "No answer; what is shown is old";
      document.body.classList.add("stale");
      this._onState(needsKey ? { state: "warn", text: "API key needed" } : { state: "down", text: "Server not reachable" });
      return !needsKey;
    }
    document.body.classList.remove("stale");
    const now = performance.now() / 1000;
    this._show(this._fleet.update(parseExposition(text, WANTED), now), now);
    return true;
  }

  _show({ total, engines }, now) {
    const ready = engines.filter((engine) => engine.state === "ok").length;
    const state = ready === engines.length && ready ? "ok" : ready ? "warn" : "down";
    this._onState({ state, text: engines.length === 1 ? (ready ? "Ready" : engines[0].label) : `${ready} of ${engines.length} engines ready` });
    if (byId("live").hidden) return;
    const failed = `${number(total.failovers)} failovers, ${number(total.retries)} retries since the start`;
    byId("updated").textContent = `Every second, ${SPAN / 60} minutes back · ${failed}`;
    for (const tile of this._tiles) tile.show(total, this._fleet.history, now);
    byId("no-engines").hidden = engines.length > 0;
    for (const [target, card] of this._cards) {
      if (engines.some((engine) => engine.target === target)) continue;
      card.element.remove();
      this._cards.delete(target);
    }
    for (const engine of engines) {
      if (!this._cards.has(engine.target)) {
        const card = new EngineCard(engine);
        this._cards.set(engine.target, card);
        byId("engines").append(card.element);
      }
      this._cards.get(engine.target).show(engine, now);
    }
  }
}
