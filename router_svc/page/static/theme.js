// Runs before the first paint: a chosen theme must not flash. Later choices: see setTheme in main.js.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("octavo.theme");
  } catch {
    // Storage may be forbidden; the system's theme is right then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
