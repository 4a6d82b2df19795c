// Small things that every view needs: elements, and numbers as people read them.

/** An element with attributes and children; text is always text, never markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  set(made, attributes);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  set(made, attributes);
  made.append(...children);
  return made;
}

function set(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
}

/** Change text only where it differs: a screen reader hears of a change, not of each second. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10) return `${value.toFixed(1)} s`;
  if (value >= 1) return `${value.toFixed(2)} s`;
  const ms = value * 1e3;
  return ms >= 100 ? `${ms.toFixed(0)} ms` : ms >= 1 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(2)} ms`;
}

export function count(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(0)}k`;
  return Math.round(value).toLocaleString("en");
}

export function rate(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

export function share(value) {
  return value === null || value === undefined ? "–" : `${(value * 100).toFixed(0)}%`;
}

export function clock(unix) {
  return new Date(unix * 1e3).toLocaleTimeString("en-GB");
}
