// The live view: what all engines do now and did in the last minutes, and each of them.

import { ApiError } from "./api.js";
import { byId, number } from "./dom.js";
import { EngineCard } from "./engine-card.js";
import { parseExposition } from "./exposition.js";
import { Fleet, SPAN, WANTED } from "./fleet.js";
import { TILES, Tile } from "./tiles.js";

const POLL_SECONDS = 1;
const AGAIN_SECONDS = 3; // after a failure
const TIMEOUT_SECONDS = 5;
// No more than is read: a whole exposition of many engines would be work for the router.
const SCRAPE = `metrics?${new URLSearchParams(WANTED.map((name) => ["name[]", name]))}`;

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
    this._isWanted = false;
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
    if (this._paused || document.visibilityState !== "visible") return;
    this._isWanted = this._isAsking; // what is under way may have begun with another key
    if (this._isAsking) return;
    this._isAsking = true;
    const begin = performance.now();
    const seconds = await this._ask();
    this._isAsking = false;
    const rest = this._isWanted ? 0 : seconds * 1000 - (performance.now() - begin);
    if (seconds || this._isWanted) this._timer = setTimeout(() => this.poll(), Math.max(100, rest));
  }

  /** In how many seconds to ask again; 0 is not before there is another key. */
  async _ask() {
    let text;
    try {
      const response = await this._api.get(SCRAPE, AbortSignal.timeout(TIMEOUT_SECONDS * 1000));
      text = await response.text();
    } catch (error) {
      const status = error instanceof ApiError ? error.status : 0;
      const said = status === 401 ? "API key needed" : status ? `Error ${status}` : "Server not reachable";
      byId("updated").textContent = `${said}; what is shown is old`;
      document.body.classList.add("stale");
      this._onState({ state: status === 401 ? "warn" : "down", text: said });
      return status === 401 ? 0 : AGAIN_SECONDS;
    }
    document.body.classList.remove("stale");
    const now = performance.now() / 1000;
    this._show(this._fleet.update(parseExposition(text, WANTED), now), now);
    return POLL_SECONDS;
  }

  _show({ total, engines }, now) {
    const ready = engines.filter((engine) => engine.state === "ok").length;
    const state = ready === engines.length && ready ? "ok" : ready ? "warn" : "down";
    const text = engines.length === 1 ? engines[0].label : `${ready} of ${engines.length} engines ready`;
    this._onState({ state, text, serves: ready > 0 });
    if (byId("live").hidden) return;
    const failed = `${number(total.failovers)} failovers, ${number(total.retries)} retries since the start`;
    if (!this._paused) byId("updated").textContent = `Every second, ${SPAN / 60} minutes back · ${failed}`;
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
