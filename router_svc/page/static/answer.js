// One answer as it streams: reasoning, text, tool calls, and how fast it came.

import { duration, el, number } from "./dom.js";
import { TokenRow } from "./tokens.js";

const REASONS = {
  stop: "ended by itself",
  length: "cut at the most tokens",
  tool_calls: "calls tools",
  content_filter: "filtered",
};

/** The view of one answer. `now` gives milliseconds. */
export class Answer {
  constructor(now = () => performance.now()) {
    this._now = now;
    this._begin = now();
    this._first = null;
    this._last = null;
    this._usage = null;
    this._text = "";
    this._calls = [];
    this._parts = {};
    this._id = "";
    this.reason = "";
    this.body = el("div", { class: "said" });
    this.stats = el("dl", { class: "stats" });
    this._status = el("span", { class: "chip", "data-state": "busy" }, "waiting");
    this.element = el(
      "li",
      { class: "turn assistant", "aria-busy": "true" },
      el("div", { class: "turn-head" }, el("h3", {}, "Assistant"), this._status),
      this.body,
      this.stats,
    );
  }

  /** Whether anything of it has come. */
  get hasBegun() {
    return this._first !== null;
  }

  /** What the conversation goes on with; null if nothing came. */
  get message() {
    if (!this._text && !this._calls.length) return null;
    const message = { role: "assistant", content: this._text || null };
    if (this._calls.length) message.tool_calls = this._calls.map((call) => call.value);
    return message;
  }

  /** The calls that the answer asks for: [{id, name}]. */
  get calls() {
    return this._calls.map(({ value }) => ({ id: value.id, name: value.function.name }));
  }

  /** Adds a chunk of the stream. */
  take(chunk) {
    this._id ||= chunk.id;
    if (chunk.usage) this._usage = chunk.usage;
    const [choice] = chunk.choices;
    if (choice) {
      const { delta } = choice;
      const tokens = choice.logprobs?.content ?? [];
      if (delta.reasoning_content) this._write("reasoning", delta.reasoning_content, tokens);
      if (delta.content) {
        this._text += delta.content;
        this._write("text", delta.content, delta.reasoning_content ? [] : tokens);
      }
      for (const call of delta.tool_calls ?? []) this._call(call);
      if (delta.reasoning_content || delta.content || delta.tool_calls?.length) this._mark();
      if (choice.finish_reason) this.reason = choice.finish_reason;
    }
    this._showStats();
  }

  _mark() {
    this._last = this._now();
    if (this._first !== null) return;
    this._first = this._last;
    this._status.textContent = "answering";
  }

  _write(kind, text, tokens) {
    const part = (this._parts[kind] ??= this._open(kind));
    if (tokens.length) {
      part.row ??= new TokenRow(part.element);
      part.row.add(text, tokens);
    } else if (part.element.lastChild?.nodeType === Node.TEXT_NODE) {
      part.element.lastChild.appendData(text);
    } else {
      part.element.append(text);
    }
  }

  _open(kind) {
    const element = el("div", { class: `text ${kind}` });
    if (kind === "text") {
      this.body.append(element);
    } else {
      this.body.prepend(
        el("details", { class: "reasoning-box", open: true }, el("summary", {}, "Reasoning"), element),
      );
    }
    return { element };
  }

  _call(delta) {
    let call = this._calls[delta.index ?? 0];
    if (!call) {
      const name = el("code", { class: "call-name" });
      const args = el("pre", { tabindex: "0", "aria-label": "Arguments" });
      this.body.append(el("div", { class: "call" }, el("p", {}, "Calls ", name), args));
      const value = { id: "", type: "function", function: { name: "", arguments: "" } };
      call = this._calls[delta.index ?? 0] = { name, args, value };
    }
    call.value.id ||= delta.id ?? "";
    call.value.function.name += delta.function?.name ?? "";
    call.value.function.arguments += delta.function?.arguments ?? "";
    call.name.textContent = call.value.function.name;
    call.args.textContent = call.value.function.arguments;
  }

  /** Nothing more comes; says how it ended in a sentence. */
  end(stopped) {
    for (const call of this._calls) call.args.textContent = pretty(call.value.function.arguments);
    const how = stopped ? "stopped by you" : (REASONS[this.reason] ?? this.reason) || "ended";
    this._close(how, stopped || this.reason === "length" ? "warn" : "ok");
    if (!stopped && this.hasBegun === false)
      this.body.append(el("p", { class: "help" }, "The answer is empty."));
    const { count, perSecond } = this._measured();
    const speed = Number.isFinite(perSecond) ? `, ${number(perSecond)} tokens per second` : "";
    return `Answer ${how}: ${number(count)} tokens${speed}.`;
  }

  /** Shows an error in its place, or below what had come; says it in a sentence. */
  fail(error, retry) {
    this._close("failed", "bad");
    const facts = [
      ["Field", error.param],
      ["Code", error.code],
      ["Type", error.type],
      ["Try again after", error.retryAfter && `${error.retryAfter} s`],
      ["Request", error.requestId],
    ].filter(([, value]) => value);
    const rows = facts.map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, el("code", {}, value))),
    );
    this.body.append(
      el(
        "div",
        { class: "error" },
        el("p", { class: "error-title" }, titleOf(error)),
        el("p", {}, error.message),
        facts.length ? el("dl", {}, ...rows) : null,
        el("button", { type: "button", click: retry }, "Try again"),
      ),
    );
    return `${titleOf(error)}: ${error.message}`;
  }

  _close(label, state) {
    this.element.removeAttribute("aria-busy");
    this._status.textContent = label;
    this._status.dataset.state = state;
    this._showStats();
  }

  _measured() {
    const count = this._usage?.completion_tokens ?? NaN;
    const seconds = (this._last - this._first) / 1000;
    return { count, perSecond: count > 1 && seconds > 0 ? (count - 1) / seconds : NaN };
  }

  _showStats() {
    if (this._first === null) return;
    const { count, perSecond } = this._measured();
    const usage = this._usage;
    const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
    const reasoning = usage?.completion_tokens_details?.reasoning_tokens ?? 0;
    const facts = [
      ["First token", duration((this._first - this._begin) / 1000), "ttft"],
      ["Speed", Number.isFinite(perSecond) ? `${number(perSecond)} tokens/s` : "–", "speed"],
      ["Answer", `${number(count)} tokens${reasoning ? `, ${reasoning} of reasoning` : ""}`, "answer"],
      ["Prompt", `${number(usage?.prompt_tokens)} tokens${cached ? `, ${cached} cached` : ""}`, "prompt"],
      ["In all", duration((this._last - this._begin) / 1000), "total"],
    ];
    const rows = facts.map(([name, value, key]) =>
      el("div", {}, el("dt", {}, name), el("dd", { "data-stat": key }, value)),
    );
    this.stats.replaceChildren(...rows);
    this.stats.title = this._id;
  }
}

function titleOf({ status }) {
  if (status >= 400) return `Error ${status}`;
  return status ? "Error in the stream" : "No whole answer";
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // cut before its end
  }
}
