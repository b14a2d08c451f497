// Starts the page: its two views, the key, the theme.

import { Api } from "./api.js";
import { announce, byId } from "./dom.js";
import { Live } from "./live.js";
import { Playground } from "./playground.js";

const api = new Api();
const playground = new Playground(api);
const live = new Live(api, showState);

function showState({ state, text, serves = false }) {
  const health = byId("health");
  if (health.dataset.state !== state) announce(text);
  if (serves && !playground.hasModels) playground.loadModels(); // the engines came later
  health.dataset.state = state;
  byId("health-text").textContent = text;
}

// -- views ----------------------------------------------------------------------------------------

const VIEWS = { playground: "Playground", live: "Live" };

function showView() {
  const wanted = location.hash.slice(1);
  if (wanted && !(wanted in VIEWS)) return; // an anchor inside the page
  for (const [id, title] of Object.entries(VIEWS)) {
    const isShown = id === (wanted || "playground");
    byId(id).hidden = !isShown;
    if (isShown) byId(`to-${id}`).setAttribute("aria-current", "page");
    else byId(`to-${id}`).removeAttribute("aria-current");
    if (isShown) document.title = `${title} · Octavo`;
  }
  live.poll();
}

window.addEventListener("hashchange", showView);

// -- key ------------------------------------------------------------------------------------------

api.onKeyNeeded = (error) => {
  byId("key-notice-title").textContent = api.key ? "This key is not valid." : "This server needs an API key.";
  byId("key-notice-text").textContent = `It answered ${error.status}: ${error.message}`;
  if (byId("key-notice").hidden) announce(byId("key-notice-title").textContent);
  byId("key-notice").hidden = false;
  byId("key").setAttribute("aria-invalid", "true");
};

api.onKeyTaken = () => {
  byId("key-notice").hidden = true;
  byId("key").removeAttribute("aria-invalid");
};

function takeKey() {
  api.key = byId("key").value.trim();
  playground.showCode();
  playground.loadModels();
  live.poll();
}

byId("key").value = api.key;
byId("key").addEventListener("change", takeKey);
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  takeKey();
});
byId("key-notice-go").addEventListener("click", () => byId("key").focus());

// -- theme ----------------------------------------------------------------------------------------

const THEMES = [
  ["", "as the system"],
  ["light", "light"],
  ["dark", "dark"],
];

function showTheme() {
  const [, name] = THEMES.find(([value]) => value === (document.documentElement.dataset.theme ?? ""));
  byId("theme-text").textContent = `Theme: ${name}`;
  byId("theme").title = `Theme: ${name}`;
}

byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "";
  const [next] = THEMES[(THEMES.findIndex(([value]) => value === now) + 1) % THEMES.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  try {
    if (next) localStorage.setItem("octavo.theme", next);
    else localStorage.removeItem("octavo.theme");
  } catch {
    // Storage may be forbidden: the theme then lasts as long as the page.
  }
  showTheme();
});

showTheme();
showView();
playground.loadModels();
