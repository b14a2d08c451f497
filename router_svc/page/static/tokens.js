// Tokens with their log-probabilities: shown on hover, on touch, and on keyboard focus.
//
//   delta.content " a fox"  +  logprobs.content [" a", " fox"]  →  <span>" a"</span><span>" fox"</span>

import { announce, byId, el, percent } from "./dom.js";

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Cuts a delta's text at its tokens: [{text, entries}]; tokens that share a character stay together. */
export function align(text, entries) {
  const runs = [];
  let at = 0;
  let pending = [];
  for (const entry of entries) {
    pending.push(entry);
    const piece = textOf(pending);
    if (piece && text.startsWith(piece, at)) {
      runs.push({ text: piece, entries: pending });
      at += piece.length;
      pending = [];
    }
  }
  if (at < text.length) runs.push({ text: text.slice(at), entries: pending });
  else if (pending.length) runs.push({ text: "", entries: pending });
  return runs;
}

function textOf(entries) {
  try {
    return decoder.decode(Uint8Array.from(entries.flatMap((entry) => entry.bytes ?? [])));
  } catch {
    return ""; // half a character
  }
}

/** A token as it is told apart from its neighbours: with its spaces and breaks to be seen. */
export function visible(token) {
  const shown = token.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "␣");
  return shown || "(nothing)";
}

/** The tokens of one text: one of them can be reached with Tab, the others with the arrow keys. */
export class TokenRow {
  constructor(parent) {
    this._parent = parent;
    this.count = 0;
    parent.addEventListener("keydown", (event) => this._move(event));
  }

  /** Adds a delta with the tokens it is made of. */
  add(text, entries) {
    for (const run of align(text, entries)) {
      const span = el("span", { class: "token", tabindex: this.count ? "-1" : "0" }, run.text);
      if (!run.text) span.classList.add("unseen");
      if (run.entries.length) {
        const likely = Math.exp(Math.min(...run.entries.map((entry) => entry.logprob)));
        span.style.setProperty("--unlikely", `${Math.round((1 - likely) * 100)}%`);
      }
      span.addEventListener("pointerenter", () => show(span, run.entries));
      span.addEventListener("pointerleave", hide);
      span.addEventListener("focus", () => {
        show(span, run.entries);
        if (span.matches(":focus-visible")) announce(spoken(run.entries));
      });
      span.addEventListener("blur", hide);
      span.addEventListener("click", () => span.focus());
      this._parent.append(span);
      this.count += run.entries.length;
    }
  }

  _move(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const tokens = [...this._parent.querySelectorAll(".token")];
    const now = tokens.indexOf(document.activeElement);
    if (event.key === "Escape") hide();
    if (now < 0 || (!step && event.key !== "Home" && event.key !== "End")) return;
    event.preventDefault();
    const next = { Home: 0, End: tokens.length - 1 }[event.key] ?? now + step;
    const target = tokens[Math.max(0, Math.min(tokens.length - 1, next))];
    tokens[now].tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }
}

function spoken(entries) {
  const sentences = entries.map((entry) => {
    const others = (entry.top_logprobs ?? []).filter((other) => other.token !== entry.token);
    const list = others.map((other) => `${visible(other.token)} ${chance(other)}`).join(", ");
    return `${visible(entry.token)}, ${chance(entry)}.${list ? ` Others: ${list}.` : ""}`;
  });
  return sentences.join(" ") || "No log-probability.";
}

const chance = (entry) => percent(Math.exp(entry.logprob));

function show(span, entries) {
  if (!entries.length) return;
  const tip = byId("tip");
  tip.replaceChildren(...entries.map(card));
  tip.hidden = false;
  span.setAttribute("aria-describedby", "tip");
  place(tip, span.getClientRects()[0] ?? span.getBoundingClientRect());
}

function place(tip, box) {
  const gap = 8;
  const width = document.documentElement.clientWidth;
  const left = Math.max(gap, Math.min(box.left, width - tip.offsetWidth - gap));
  const below = box.bottom + gap + tip.offsetHeight < window.innerHeight;
  const top = below ? box.bottom + gap : Math.max(gap, box.top - gap - tip.offsetHeight);
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}

/** Takes the details away. */
export function hide() {
  byId("tip").hidden = true;
  for (const span of document.querySelectorAll(".token[aria-describedby]"))
    span.removeAttribute("aria-describedby");
}

function card(entry) {
  const listed = [...(entry.top_logprobs ?? [])];
  if (!listed.some((other) => other.token === entry.token)) listed.push(entry);
  const rows = listed.map((other) => {
    const bar = el("span", { class: "chance-bar" });
    bar.style.setProperty("--share", `${Math.exp(other.logprob) * 100}%`);
    const taken = other.token === entry.token;
    return el(
      "tr",
      { class: taken ? "taken" : null },
      el("th", { scope: "row" }, visible(other.token)),
      el("td", {}, bar),
      el("td", {}, chance(other)),
    );
  });
  return el(
    "div",
    { class: "chance" },
    el(
      "p",
      {},
      el("code", {}, visible(entry.token)),
      el("span", {}, `log-probability ${entry.logprob.toFixed(3)}`),
    ),
    el("table", {}, el("tbody", {}, ...rows)),
  );
}
