// Contrast as WCAG 2.2 defines it (1.4.3), of colours as the browser paints them over each other.
() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const painted = (colours) => {
    brush.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      brush.fillStyle = colour;
      brush.fillRect(0, 0, 1, 1);
    }
    return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = ([red, green, blue]) =>
    0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);

  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { parentElement: owner, data } = texts.currentNode;
    const isShown = owner.checkVisibility() && !owner.closest(".visually-hidden, .skip, option");
    if (!data.trim() || !isShown) continue;
    const grounds = [];
    for (let each = owner; each; each = each.parentElement) {
      grounds.unshift(getComputedStyle(each).backgroundColor);
    }
    const ground = luminance(painted(grounds));
    const ink = luminance(painted([...grounds, getComputedStyle(owner).color]));
    const [low, high] = [ground, ink].sort((one, other) => one - other);
    found.push([data.trim().slice(0, 40), (high + 0.05) / (low + 0.05)]);
  }
  return found;
};
