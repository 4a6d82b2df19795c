// One class over the last fifteen minutes: what is in flight and what waits, under its limit.
// The drawing is a picture; what it says now, and its extremes, stand in its label as words.

import { count, drawn, element, say } from "./dom.js";

export const SECONDS = 900;
const HEIGHT = 100;
const TICKS = 4;

/** The least of 1, 2, 5, 10, 20, … that is not less than the value. */
export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value);
}

/** A line of steps that ends at `width` seconds: a count holds until it changes. */
export function steps(values, top, width) {
  const start = width - values.length;
  const y = (value) => (HEIGHT - (value / top) * HEIGHT).toFixed(2);
  const points = [];
  values.forEach((value, index) => {
    if (index && value === values[index - 1] && index < values.length - 1) return;
    if (index) points.push(`${start + index},${y(values[index - 1])}`);
    points.push(`${start + index},${y(value)}`);
  });
  return points.join(" ");
}

/** The spans in which the limit in effect was below the configured one: [from, to) in seconds. */
export function bursts(effective, configured) {
  const found = [];
  let from = null;
  effective.forEach((limit, index) => {
    const low = limit < configured[index];
    if (low && from === null) from = index;
    if (!low && from !== null) {
      found.push([from, index]);
      from = null;
    }
  });
  if (from !== null) found.push([from, effective.length]);
  return found;
}

export class Chart {
  constructor(name) {
    this.name = name;
    this.width = 0;
    this.shades = drawn("g", { class: "shades" });
    this.area = drawn("polygon", { class: "area-flight" });
    this.lines = Object.fromEntries(
      ["configured", "limit", "queue", "flight"].map((kind) => [
        kind,
        drawn("polyline", { class: `line line-${kind}`, "vector-effect": "non-scaling-stroke" }),
      ]),
    );
    this.hand = drawn("line", { class: "hand", y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke" });
    this.picture = drawn(
      "svg",
      { preserveAspectRatio: "none", role: "img" },
      ...[1, 2, 3].map((n) => drawn("line", { class: "grid", x1: 0, x2: SECONDS, y1: n * 25, y2: n * 25, "vector-effect": "non-scaling-stroke" })),
      this.shades,
      this.area,
      ...Object.values(this.lines),
      this.hand,
    );
    this.top = element("span", { class: "top" });
    this.readout = element("span", { class: "readout", "aria-hidden": "true" });
    this.ticks = Array.from({ length: TICKS }, () => element("span"));
    this.node = element(
      "figure",
      { class: "chart" },
      element("div", { class: "plot" }, this.top, this.picture, this.readout),
      element(
        "div",
        { class: "axis", "aria-hidden": "true" },
        ...this.ticks,
      ),
    );
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.unpoint());
  }

  /** Draw the newest `width` seconds of the columns. */
  draw(columns, width) {
    this.scale(width);
    this.columns = Object.fromEntries(
      Object.entries(columns).map(([name, values]) => [name, values.slice(-width)]),
    );
    const { queued, in_flight: flight, effective, configured } = this.columns;
    const top = nice(Math.max(1, ...queued, ...flight, ...effective));
    say(this.top, count(top));
    // A class without a limit of its own has that of its backends together: far above the rest.
    this.lines.configured.setAttribute("points", steps(configured.map((v) => Math.min(v, top * 2)), top, width));
    this.lines.limit.setAttribute("points", steps(effective, top, width));
    this.lines.queue.setAttribute("points", steps(queued, top, width));
    const line = steps(flight, top, width);
    this.lines.flight.setAttribute("points", line);
    const start = width - flight.length;
    this.area.setAttribute("points", line && `${start},${HEIGHT} ${line} ${width - 1},${HEIGHT}`);
    this.shade(bursts(effective, configured), start);
    this.describe();
  }

  scale(width) {
    if (width === this.width) return;
    this.width = width;
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.ticks.forEach((tick, index) => {
      const ago = (width * (TICKS - 1 - index)) / (TICKS - 1);
      say(tick, ago === 0 ? "now" : ago >= 60 * 5 ? `${ago / 60} min ago` : `${ago} s ago`);
    });
  }

  shade(spans, start) {
    this.shades.replaceChildren(
      ...spans.map(([from, to]) =>
        drawn("rect", { x: start + from, width: Math.max(to - from, this.width / 450), y: 0, height: HEIGHT }),
      ),
    );
  }

  describe() {
    const { queued, in_flight: flight, effective, configured } = this.columns;
    const last = flight.length - 1;
    if (last < 0) return;
    const words =
      `${this.name}, last ${flight.length} seconds: now ${flight[last]} in flight ` +
      `(at most ${Math.max(...flight)}), ${queued[last]} waiting (at most ${Math.max(...queued)}), ` +
      `limit ${effective[last]} of ${configured[last]}, ${bursts(effective, configured).length} bursts`;
    this.picture.setAttribute("aria-label", words);
  }

  point(event) {
    const box = this.picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.width;
    const index = Math.round(x) - (this.width - this.columns.queued.length);
    if (index < 0 || index >= this.columns.queued.length) return this.unpoint();
    const { queued, in_flight: flight, effective } = this.columns;
    const ago = this.columns.queued.length - 1 - index;
    this.hand.setAttribute("x1", x);
    this.hand.setAttribute("x2", x);
    this.hand.classList.add("shown");
    say(this.readout, `${ago} s ago: ${flight[index]} in flight, ${queued[index]} waiting, limit ${effective[index]}`);
    return undefined;
  }

  unpoint() {
    this.hand.classList.remove("shown");
    say(this.readout, "");
  }
}
