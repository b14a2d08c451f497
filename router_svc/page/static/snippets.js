// A request as a command and as code, to take elsewhere. Neither holds the key: it is in a variable.

// What OpenAI's Python client takes as an argument; the rest goes into extra_body.
const ARGUMENTS = new Set([
  "messages",
  "model",
  "frequency_penalty",
  "presence_penalty",
  "logit_bias",
  "logprobs",
  "top_logprobs",
  "max_tokens",
  "max_completion_tokens",
  "n",
  "seed",
  "stop",
  "stream",
  "stream_options",
  "temperature",
  "top_p",
  "user",
  "metadata",
  "response_format",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "reasoning_effort",
  "service_tier",
  "verbosity",
]);

/** A command for a POSIX shell. */
export function curl(url, body, needsKey) {
  const text = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  const lines = [`curl --no-buffer '${url}' \\`, "  -H 'Content-Type: application/json' \\"];
  if (needsKey) lines.push('  -H "Authorization: Bearer $OCTAVO_KEY" \\');
  return [...lines, `  -d '${text}'`].join("\n");
}

/** A program for OpenAI's client. */
export function python(url, body, needsKey) {
  const given = Object.entries(body).filter(([name]) => ARGUMENTS.has(name));
  const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !ARGUMENTS.has(name)));
  const lines = given.map(([name, value]) => `    ${name}=${literal(value, 1)},`);
  if (Object.keys(extra).length) lines.push(`    extra_body=${literal(extra, 1)},`);
  const key = needsKey ? 'os.environ["OCTAVO_KEY"]' : '"unused"';
  return [
    ...(needsKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${literal(url)}, api_key=${key})`,
    "for chunk in client.chat.completions.create(",
    ...lines,
    "):",
    "    if chunk.choices:",
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
  ].join("\n");
}

/** A JSON value as Python writes it. */
export function literal(value, depth = 0) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const items = Array.isArray(value)
    ? value.map((item) => literal(item, depth + 1))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${literal(item, depth + 1)}`);
  const short = open + items.join(", ") + close;
  if (short.length + 4 * depth < 80 && !short.includes("\n")) return short;
  const indent = "    ".repeat(depth + 1);
  return `${open}\n${items.map((item) => `${indent}${item},\n`).join("")}${"    ".repeat(depth)}${close}`;
}
