// Elements without markup: whatever is shown becomes a text node, so nothing a model or a server
// writes is ever read as HTML.

/** An element. Functions become listeners, true an empty attribute; null, undefined, false are left out. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element of the document with this id. */
export const byId = (id) => document.getElementById(id);

/** Says a sentence to screen readers once they are free. */
export function announce(text) {
  const region = byId("announce");
  // The same sentence twice would not be a change, and not be heard.
  region.textContent = region.textContent === text ? `${text}\u00a0` : text;
}

/** Puts text on the clipboard and says so on the button for a moment. */
export async function copy(button, text) {
  const label = button.firstChild;
  try {
    await navigator.clipboard.writeText(text);
    label.data = "Copied";
  } catch {
    // Without TLS, on another host than localhost, browsers forbid it.
    label.data = "Select and copy by hand";
  }
  announce(label.data);
  setTimeout(() => {
    label.data = "Copy";
  }, 1500);
}

/** A duration as people read it; seconds. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 100 ? `${seconds.toFixed(seconds < 10 ? 2 : 1)} s` : `${Math.round(seconds)} s`;
}

/** A number with as many digits as mean something. */
export function number(value) {
  if (!Number.isFinite(value)) return "–";
  const digits = Number.isInteger(value) || value >= 100 ? 0 : 1;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A share as a percentage. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}
