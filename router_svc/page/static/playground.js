// The playground: a conversation, the settings of its requests, and the same as code.

import { Answer } from "./answer.js";
import { ApiError } from "./api.js";
import { announce, byId, copy, el } from "./dom.js";
import { EXAMPLES, SCHEMA, TOOLS } from "./examples.js";
import { clearInvalid, controlOf, markInvalid, readSettings } from "./request.js";
import { curl, python } from "./snippets.js";
import { dataOf } from "./sse.js";
import { hide } from "./tokens.js";

const ROUTE = "v1/chat/completions";

const broken = () => new ApiError(0, { message: "The stream broke off before its end." });

/** Wires the playground's part of the document. */
export class Playground {
  constructor(api) {
    this._api = api;
    this._turns = []; // {message, element}; of an answer that failed, message is null
    this._running = null;
    this._form = byId("settings");
    this._draft = byId("draft");
    this._listen();
    this._showExamples();
    this._settle();
  }

  /** Whether the list of models has come. */
  get hasModels() {
    return byId("model").options.length > 0;
  }

  /** Lists the models that are served. */
  async loadModels() {
    let found;
    try {
      found = (await (await this._api.get("v1/models")).json()).data;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      byId("model-help").textContent = error.status === 401 ? "Needs a key." : error.message;
      return;
    }
    const select = byId("model");
    const before = select.value;
    select.replaceChildren(...found.map((model) => el("option", { value: model.id }, model.id)));
    if (found.some((model) => model.id === before)) select.value = before;
    this._contexts = new Map(found.map((model) => [model.id, model.max_model_len]));
    this._sayModel();
  }

  _sayModel() {
    const context = this._contexts?.get(byId("model").value);
    byId("model-help").textContent = context ? `Context of ${context.toLocaleString("en")} tokens` : "";
  }

  _listen() {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this._send();
    });
    this._draft.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this._send();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.stop();
    });
    byId("stop").addEventListener("click", () => this.stop());
    byId("clear").addEventListener("click", () => this._clear());
    byId("defaults").addEventListener("click", () => this._reset());
    byId("model").addEventListener("change", () => this._sayModel());
    byId("tint").addEventListener("change", () => this._tint());
    byId("scroll").addEventListener("scroll", hide, { passive: true });
    this._form.addEventListener("submit", (event) => event.preventDefault());
    for (const source of [this._form, this._draft]) source.addEventListener("input", () => this.showCode());
    byId("code").addEventListener("toggle", () => this.showCode());
    for (const button of document.querySelectorAll("[data-copy]")) {
      button.addEventListener("click", () => copy(button, byId(button.dataset.copy).textContent));
    }
    for (const button of document.querySelectorAll("[data-example]")) {
      button.addEventListener("click", () => this._fill({ [button.dataset.example]: true }));
    }
    this._tint();
  }

  _tint() {
    byId("turns").classList.toggle("tinted", byId("tint").checked);
  }

  _showExamples() {
    const buttons = EXAMPLES.map((example) => {
      const start = () => {
        this._reset();
        this._fill(example);
        this._draft.value = example.text;
        this.showCode();
        this._draft.focus();
      };
      return el("button", { type: "button", click: start }, example.title);
    });
    byId("examples").replaceChildren(...buttons);
  }

  _fill({ tools, schema, logprobs }) {
    if (tools) {
      byId("tools").value = JSON.stringify(TOOLS, null, 2);
      byId("tool_choice").value = "required";
      byId("one_call").checked = true;
    }
    if (schema) {
      byId("schema").value = JSON.stringify(SCHEMA, null, 2);
      byId("format").value = "json_schema";
    }
    if (logprobs) byId("logprobs").checked = true;
    for (const id of [tools && "tools", schema && "schema", logprobs && "logprobs"]) {
      if (id) byId(id).closest("details").open = true;
    }
    this.showCode();
  }

  _reset() {
    const model = byId("model").value;
    this._form.reset();
    byId("model").value = model;
    clearInvalid(this._form);
    for (const details of this._form.querySelectorAll("details")) details.open = false;
    this._tint();
    this.showCode();
  }

  _messages(draft) {
    const messages = this._turns.flatMap((turn) => (turn.message ? [turn.message] : []));
    const system = byId("system").value.trim();
    if (system) messages.unshift({ role: "system", content: system });
    if (draft) messages.push({ role: "user", content: draft });
    return messages;
  }

  _request(settings, messages) {
    return {
      ...settings,
      messages,
      stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
    };
  }

  /** Writes the request as it would be sent now. */
  showCode() {
    if (!byId("code").open) return;
    const { body } = readSettings(this._form);
    const messages = this._messages(this._draft.value.trim());
    while (messages.at(-1)?.role === "assistant") messages.pop(); // nothing new yet: what was asked last
    const request = { ...body, messages, stream: true };
    const needsKey = this._api.key !== "";
    byId("curl").textContent = curl(this._api.url(ROUTE), request, needsKey);
    byId("python").textContent = python(this._api.url("v1"), request, needsKey);
  }

  _send() {
    const text = this._draft.value.trim();
    if (this._running || !text || !this._checked()) return;
    this._dropFailed();
    this._draft.value = "";
    this._addUser(text);
    this._answer();
  }

  /** The settings if they can be read; otherwise shows why not. */
  _checked() {
    clearInvalid(this._form);
    const { body, problems } = readSettings(this._form);
    for (const { control, message } of problems) markInvalid(control, message);
    if (!problems.length) return body;
    problems[0].control.focus();
    announce(problems[0].message);
    return null;
  }

  /** A message without an answer is not left behind: its sender has said it anew. */
  _dropFailed() {
    if (this._turns.at(-1)?.message !== null) return;
    this._cut(this._turns.length - (this._turns.at(-2)?.message?.role === "user" ? 2 : 1));
  }

  _addUser(text) {
    const turn = { message: { role: "user", content: text } };
    const edit = () => {
      this.stop();
      this._cut(this._turns.indexOf(turn));
      this._draft.value = text;
      this._draft.focus();
    };
    turn.element = el(
      "li",
      { class: "turn user" },
      el(
        "div",
        { class: "turn-head" },
        el("h3", {}, "You"),
        el("button", { type: "button", class: "quiet", click: edit }, "Edit"),
      ),
      el("div", { class: "said text" }, text),
    );
    this._add(turn);
  }

  _add(turn) {
    this._turns.push(turn);
    byId("turns").append(turn.element);
    this._settle();
    this._scrollDown(true);
  }

  /** Takes the turns from here on away. */
  _cut(from) {
    for (const turn of this._turns.splice(from)) turn.element.remove();
    this._settle();
  }

  _clear() {
    this.stop();
    this._cut(0);
    this._draft.focus();
  }

  /** Shows what fits the state: nothing said yet, or an answer under way. */
  _settle() {
    byId("empty").hidden = this._turns.length > 0;
    byId("clear").disabled = !this._turns.length;
    this._swap(byId("stop"), byId("send"), Boolean(this._running));
    this.showCode();
  }

  /** Shows one of two buttons in one place; the focus does not get lost with the other. */
  _swap(one, other, isFirst) {
    const focused = [one, other].includes(document.activeElement);
    one.hidden = !isFirst;
    other.hidden = isFirst;
    if (focused) (isFirst ? one : other).focus();
  }

  /** Ends the answer that is under way, if one is. */
  stop() {
    this._running?.abort();
  }

  async _answer() {
    const settings = this._checked();
    if (!settings) return;
    const request = this._request(settings, this._messages(""));
    const running = (this._running = new AbortController());
    const answer = new Answer();
    const turn = { message: null, element: answer.element };
    this._add(turn);
    let said;
    try {
      await this._stream(request, answer, running.signal);
      said = answer.end(false);
    } catch (error) {
      if (running.signal.aborted) {
        said = answer.end(true);
      } else {
        const known = error instanceof ApiError ? error : broken();
        said = answer.fail(known, () => this._retry(turn));
        const control = controlOf(this._form, known.param);
        if (control) markInvalid(control, known.message);
      }
    }
    this._running = null;
    turn.message = answer.message;
    if (this._turns.includes(turn)) this._finish(turn, answer);
    this._settle();
    announce(said);
  }

  async _stream(request, answer, signal) {
    const response = await this._api.post(ROUTE, request, signal);
    for await (const data of dataOf(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(response.status, chunk.error, response.headers);
      answer.take(chunk);
      this._scrollDown();
    }
    throw broken();
  }

  _finish(turn, answer) {
    if (turn.message && answer.reason === "tool_calls") this._askResults(turn, answer.calls);
    if (!turn.message && !this._draft.value) {
      const asked = this._turns.at(-2)?.message;
      if (asked?.role === "user") this._draft.value = asked.content;
    }
    this._scrollDown(true);
  }

  _retry(turn) {
    if (this._running) return;
    this._cut(this._turns.indexOf(turn));
    if (this._draft.value === this._turns.at(-1)?.message?.content) this._draft.value = "";
    this._draft.focus();
    this._answer();
  }

  /** A form for what the called functions return, with which the conversation goes on. */
  _askResults(turn, calls) {
    const inputs = calls.map(({ id, name }, index) => {
      const label = `Result of ${name}`;
      return {
        id,
        name,
        input: el("input", { id: `result-${this._turns.length}-${index}`, value: "" }),
        label,
      };
    });
    const send = (event) => {
      event.preventDefault();
      if (this._running) return;
      form.remove();
      this._draft.focus();
      for (const { id, name, input } of inputs) this._addResult(id, name, input.value);
      this._answer();
    };
    const form = el(
      "form",
      { class: "results", submit: send },
      ...inputs.map(({ input, label }) =>
        el("div", { class: "field" }, el("label", { for: input.id }, label), input),
      ),
      el("button", { type: "submit" }, inputs.length > 1 ? "Send the results" : "Send the result"),
    );
    turn.element.append(form);
  }

  _addResult(id, name, content) {
    const element = el(
      "li",
      { class: "turn tool" },
      el("div", { class: "turn-head" }, el("h3", {}, "Result of ", el("code", {}, name))),
      el("div", { class: "said text" }, content),
    );
    this._add({ message: { role: "tool", tool_call_id: id, content }, element });
  }

  /** Follows the answer, unless the reader has scrolled up. */
  _scrollDown(always = false) {
    const box = byId("scroll");
    const isLow = box.scrollHeight - box.scrollTop - box.clientHeight < 120;
    if (always || isLow) box.scrollTop = box.scrollHeight;
  }
}
