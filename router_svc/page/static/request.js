// Reads the settings into a request's body.
//
//   <input data-field="temperature" data-type="number">  →  {"temperature": 0.7}
//
// An empty control is a field that is left out, so the server's own default holds.

import { el } from "./dom.js";

class Problem extends Error {}

const READERS = {
  text: (text) => text,
  flag: () => true,
  never: () => false,
  // What is no number goes as it is: the server's error names the field and its limits.
  number: (text) => (Number.isFinite(Number(text)) ? Number(text) : text),
  lines: (text) =>
    text
      .split("\n")
      .filter((line) => line)
      .map((line) => line.replaceAll("\\n", "\n")),
  json: parse,
  schema: (text) => ({
    type: "json_schema",
    json_schema: { name: "answer", strict: true, schema: parse(text) },
  }),
};

function parse(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Problem(`This is no JSON: ${error.message}`);
  }
}

function valueOf(control) {
  if (control.type === "checkbox") return control.checked ? "on" : "";
  return control.value.trim() ? control.value : "";
}

/** The form's settings as {body, problems}; a problem is {control, message}. */
export function readSettings(form) {
  const body = {};
  const problems = [];
  const format = form.elements.format.value;
  for (const control of form.querySelectorAll("[data-type]")) {
    const text = valueOf(control);
    const { field, type } = control.dataset;
    if (!text || (type === "schema" && format !== "json_schema")) continue;
    try {
      if (type === "fields") Object.assign(body, fields(text));
      else body[field] = READERS[type](text);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problems.push({ control, message: error.message });
    }
  }
  if (format === "json_object") body.response_format = { type: "json_object" };
  if (!body.logprobs) delete body.top_logprobs;
  if (!body.tools) {
    delete body.tool_choice;
    delete body.parallel_tool_calls;
  }
  return { body, problems };
}

function fields(text) {
  const found = parse(text);
  if (found === null || typeof found !== "object" || Array.isArray(found)) {
    throw new Problem("This is no JSON object.");
  }
  return found;
}

/** The control of a field that an error names by its path, such as tools[0].function.name. */
export function controlOf(form, param) {
  const [field] = param.split(/[.[]/);
  return field ? form.querySelector(`[data-field="${CSS.escape(field)}"]`) : null;
}

/** Shows what is wrong at a control; opens what hides it. */
export function markInvalid(control, message) {
  const id = `${control.id}-error`;
  document.getElementById(id)?.remove();
  control.closest("details")?.setAttribute("open", "");
  control.setAttribute("aria-invalid", "true");
  control.setAttribute("aria-errormessage", id);
  control.parentElement.append(el("p", { class: "field-error", id }, message));
}

/** Takes all such marks away. */
export function clearInvalid(form) {
  for (const control of form.querySelectorAll("[aria-invalid]")) {
    document.getElementById(`${control.id}-error`)?.remove();
    control.removeAttribute("aria-invalid");
    control.removeAttribute("aria-errormessage");
  }
}
