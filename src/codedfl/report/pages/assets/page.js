"use strict";
// Shared by all pages: data, theme, small builders. Text from data is only ever set as text, never as HTML.
const page = (() => {
  const block = document.getElementById("data");
  const data = block ? JSON.parse(block.textContent) : {};

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") made.className = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== false && value != null) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child != null));
    return made;
  }

  function seconds(value) {
    if (value == null) return "never";
    if (value < 1) return `${+value.toPrecision(3)} s`;
    if (value < 120) return `${value.toFixed(1)} s`;
    return value < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(2)} h`;
  }

  const number = (value) => (value == null ? "-" : Number.isInteger(value) ? value.toLocaleString("en") : String(+value.toPrecision(4)));

  // how curve or mark number i is drawn: colours repeat after 7, dashes tell them apart
  const dashes = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 2"];
  const style = (i) => ({ colour: `var(--c${i % 7})`, dash: dashes[(i + Math.floor(i / 7)) % 7] });

  function swatch(i) {
    const { colour, dash } = style(i);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of Object.entries({ width: 30, height: 12, "aria-hidden": "true" })) svg.setAttribute(key, value);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({ x1: 0, x2: 30, y1: 6, y2: 6, "stroke-width": 3, "stroke-dasharray": dash })) line.setAttribute(key, value);
    line.style.stroke = colour;
    svg.append(line);
    return svg;
  }

  function theme() {
    const root = document.documentElement;
    const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const words = () => (dark() ? "Light colours" : "Dark colours");
    const button = element("button", { class: "theme", type: "button" }, words());
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      button.textContent = words();
      document.dispatchEvent(new Event("themechange"));
    });
    document.querySelector("header").prepend(button);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      button.textContent = words();
      document.dispatchEvent(new Event("themechange"));
    });
  }

  // draws again when the width of an element or the theme changes
  function redrawn(host, draw) {
    let width = 0;
    new ResizeObserver(() => {
      if (Math.abs(host.clientWidth - width) > 1) {
        width = host.clientWidth;
        draw();
      }
    }).observe(host);
    document.addEventListener("themechange", draw);
  }

  theme();
  return { data, element, seconds, number, style, swatch, redrawn };
})();
