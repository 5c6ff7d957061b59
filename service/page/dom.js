// Elements in one call, and numbers as people read them.

/** An element with attributes (`class`, `aria-...`; true is a bare attribute, false and null none) and children. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** "1 text", "2 texts". */
export const counted = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

/** A probability as a percentage; no model is certain. */
export function percent(probability) {
  if (probability > 0.999) return "> 99.9 %";
  if (probability < 0.001) return "< 0.1 %";
  return `${(100 * probability).toFixed(1)} %`;
}

export const milliseconds = (ms) => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;

export const megabytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MB`;

/** A number with its sign, for differences. */
export const signed = (value, digits) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(digits)}`;
