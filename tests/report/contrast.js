// The texts of the page whose contrast with what is behind them is below 4.5 (WCAG 2, level AA).
(() => {
  const rgb = (color) => color.match(/[\d.]+/g).map(Number);
  const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = (color) => {
    const [r, g, b] = rgb(color).slice(0, 3).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if ((rgb(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const hidden = "script, style, noscript, .off, .skip, option, svg, :disabled";
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!text || element.closest(hidden) || !element.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${element.tagName}.${element.className} ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return bad;
})()
