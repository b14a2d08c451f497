// Reads Prometheus' text format, as far as the page needs it: names, labels, values.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { "\\\\": "\\", '\\"': '"', "\\n": "\n" };

/** The samples of the wanted names: a map of name to [{labels, value}]. */
export function parseExposition(text, wanted) {
  const samples = new Map([...wanted].map((name) => [name, []]));
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue;
    const [, name, inside, value] = LINE.exec(line) ?? [];
    samples.get(name)?.push({ labels: labelsOf(inside ?? ""), value: valueOf(value) });
  }
  return samples;
}

function labelsOf(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(LABEL)) {
    labels[name] = value.replace(/\\[\\"n]/g, (found) => ESCAPED[found]);
  }
  return labels;
}

function valueOf(text) {
  if (text === "+Inf") return Infinity;
  return text === "-Inf" ? -Infinity : Number(text);
}
