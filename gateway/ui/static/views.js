// The parts of the page. Each is made once and then only told what is new.

import { Chart } from "./chart.js";
import { clock, count, element, rate, say, seconds, share } from "./dom.js";

const STAGES = {
  read: "read",
  tokenize: "tokenize",
  queue: "wait for a backend",
  connect: "connect",
  backend: "engine: first token",
};

/** One class: its figures, the waterfall of its TTFT, and its last fifteen minutes. */
export class ClassCard {
  constructor(name) {
    this.chart = new Chart(name);
    this.figures = Object.fromEntries(
      ["p50", "p95", "rate", "flight", "queue"].map((key) => [key, element("dd")]),
    );
    this.about = element("span", { class: "about" });
    this.verdict = element("span", { class: "verdict" });
    this.rows = element("tbody");
    this.total = element("td", { class: "number" });
    this.empty = element("p", { class: "empty" }, "no streamed answer in the last minute");
    this.table = element(
      "table",
      { class: "waterfall" },
      element("caption", {}, "Mean of each stage over the last minute"),
      this.rows,
      element("tfoot", {}, element("tr", {}, element("th", { scope: "row" }, "together"), element("td"), this.total)),
    );
    const titles = { p50: "TTFT p50", p95: "TTFT p95", rate: "requests/s", flight: "in flight", queue: "waiting" };
    this.node = element(
      "article",
      { class: "card", "data-class": name },
      element("h3", {}, name, " ", this.about),
      element(
        "dl",
        { class: "figures" },
        ...Object.entries(titles).map(([key, title]) =>
          element("div", {}, element("dt", {}, title), this.figures[key], key === "p95" ? this.verdict : null),
        ),
      ),
      this.table,
      this.empty,
      this.chart.node,
    );
  }

  show(state, columns, width) {
    say(this.about, state.longest ? `up to ${count(state.longest)} tokens` : "every longer prompt");
    say(this.figures.p50, seconds(state.p50));
    say(this.figures.p95, seconds(state.p95));
    say(this.figures.rate, rate(state.rate));
    say(this.figures.flight, `${state.in_flight} / ${state.limit_effective}`);
    say(this.figures.queue, state.queued ? `${state.queued} (${count(state.queued_tokens)} tok)` : "0");
    this.node.classList.toggle("halved", state.limit_effective < state.limit_configured);
    this.judge(state);
    this.fall(state.stages);
    if (columns) this.chart.draw(columns, width);
  }

  judge(state) {
    const late = state.p95 !== null && state.target !== null && state.p95 > state.target;
    this.verdict.classList.toggle("late", late);
    say(this.verdict, state.target === null ? "" : `${late ? "over" : "target"} ${seconds(state.target)}`);
  }

  fall(stages) {
    const total = stages.reduce((sum, stage) => sum + stage.seconds, 0);
    this.table.hidden = total === 0;
    this.empty.hidden = total !== 0;
    if (total === 0) return;
    say(this.total, seconds(total));
    let before = 0;
    const rows = stages.map((stage) => {
      const left = (before / total) * 100;
      const width = (stage.seconds / total) * 100;
      before += stage.seconds;
      return element(
        "tr",
        {},
        element("th", { scope: "row" }, STAGES[stage.name] ?? stage.name),
        element("td", { class: "track" }, bar(left, width, `bar stage-${stage.name}`)),
        element("td", { class: "number" }, seconds(stage.seconds)),
      );
    });
    this.rows.replaceChildren(...rows);
  }
}

function bar(left, width, kind) {
  const made = element("span", { class: kind });
  made.style.setProperty("--left", `${left.toFixed(2)}%`);
  made.style.setProperty("--width", `${width.toFixed(2)}%`);
  return made;
}

const SIGNS = { ready: "●", warming: "◐", probing: "◌", draining: "◓", down: "✕" };

/** One row of the table of backends. */
export class BackendRow {
  constructor(name) {
    const cell = (kind) => element("td", kind ? { class: kind } : {});
    this.state = element("span", { class: "pill" });
    this.meter = bar(0, 0, "bar level");
    this.load = element("span", { class: "load" });
    this.backlog = cell("number");
    this.speed = cell("number");
    this.kv = cell("number");
    this.warmth = cell("note");
    this.prompts = cell("note");
    this.about = element("span", { class: "about" });
    this.node = element(
      "tr",
      { "data-backend": name },
      element("th", { scope: "row" }, name, this.about),
      element("td", {}, this.state),
      element("td", { class: "flight" }, this.load, element("span", { class: "track" }, this.meter)),
      this.backlog,
      this.speed,
      this.kv,
      this.warmth,
      this.prompts,
    );
  }

  show(state) {
    say(this.about, `${state.classes.join(", ") || "every class"} · ${state.url.replace(/^https?:\/\//, "")}`);
    this.state.className = `pill state-${state.state}`;
    say(this.state, `${SIGNS[state.state]} ${state.state}`);
    say(this.load, `${state.in_flight} / ${state.limit}`);
    const level = state.limit ? Math.min(state.in_flight / state.limit, 1) : 0;
    this.meter.style.setProperty("--width", `${level * 100}%`);
    say(this.backlog, `${count(state.backlog)} tok`);
    say(this.speed, state.prefill_rate ? `${count(state.prefill_rate)} tok/s` : "–");
    say(this.kv, `${share(state.kv)}${advised(state.memory)}`);
    this.kv.title = state.memory ? `gpu_memory_utilization ${state.memory.present}: ${state.memory.why}` : "";
    const warmth = `${state.reason} · ${count(state.warm_requests)} warm-up requests so far`;
    say(this.warmth, [warmth, ...state.findings.map((finding) => finding.text)].join(" · "));
    say(this.prompts, channels(state.channels));
  }
}

/** What an engine should take of its GPU's memory, where that is not what it takes. */
function advised(memory) {
  return memory && memory.wanted !== memory.present ? ` · GPU memory: ${memory.wanted} advised, takes ${memory.present}` : "";
}

function channels(models) {
  const entries = Object.entries(models);
  if (!entries.length) return "–";
  return entries.map(([model, channel]) => `${model} as ${channel}`).join(", ");
}

const CAUSES = {
  arrived: "when request % arrived",
  first_token: "when request % had its first token",
  progress: "while request % went on",
  finished: "when request % ended",
  failed: "when request % failed",
  abandoned: "when the client of request % left",
  backend_changed: "when backend % changed",
  backend_removed: "when backend % was removed",
  load_seen: "when backend % told its load",
  settings_changed: "when the settings changed",
  drain: "when the drain began",
  woke: "as time passed",
};

/** The scheduler's own word for an event, such as `arrived:17`, as a person says it. */
export function because(cause) {
  const [event, whom] = cause.split(/:(.*)/s);
  return CAUSES[event] ? CAUSES[event].replace("%", whom ?? "") : cause;
}

const FILTERS = { limit: ["limit", "burst"], backend: ["backend", "channel"], settings: ["settings", "tuning"] };

export function newsItem(item) {
  return element(
    "li",
    { class: `item item-${item.kind}`, "data-kind": item.kind },
    element("time", { datetime: new Date(item.time * 1e3).toISOString() }, clock(item.time)),
    element("strong", {}, item.subject),
    element("span", {}, item.text),
    item.cause ? element("span", { class: "cause" }, because(item.cause)) : null,
  );
}

export function filtered(list, filter) {
  for (const item of list.children) {
    item.hidden = filter !== "all" && !FILTERS[filter].includes(item.dataset.kind);
  }
}

export function historyItem(entry) {
  const changes = entry.changes.map(([key, field, before, after]) =>
    element("code", {}, `${key.replace(/^forebay:/, "")} ${field}: ${before ?? "file"} → ${after ?? "file"}`),
  );
  return element(
    "li",
    { class: "item" },
    element("time", { datetime: entry.time }, entry.time.slice(0, 19).replace("T", " ")),
    element("strong", {}, `version ${entry.version}`),
    element("span", {}, `by ${entry.by}${entry.note ? `: ${entry.note}` : ""}`),
    ...changes,
  );
}

export function rejectedBox(reasons) {
  const entries = Object.entries(reasons);
  if (!entries.length) return [];
  return [
    element("h3", {}, "Refused; the last good settings stay in force"),
    element("dl", { class: "refused" }, ...entries.flatMap(([key, reason]) => [element("dt", {}, key), element("dd", {}, reason)])),
  ];
}
