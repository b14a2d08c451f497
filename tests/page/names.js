() => {
  const controls = document.querySelectorAll("input, select, textarea, button, a, summary");
  const name = (each) => each.labels?.[0]?.textContent || each.getAttribute("aria-label") || each.textContent;
  return [...controls].map((each) => [each.outerHTML.slice(0, 90), name(each).trim()]);
};
