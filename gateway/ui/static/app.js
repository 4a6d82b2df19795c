// Listens to the gateway and tells the views. The model is what the last messages said.

import { SECONDS } from "./chart.js";
import { count, element, say } from "./dom.js";
import { BackendRow, ClassCard, filtered, historyItem, newsItem, rejectedBox } from "./views.js";

const KEPT_NEWS = 200;
const COLUMNS = { queued: "queued", in_flight: "in_flight", effective: "limit_effective", configured: "limit_configured" };
const at = (id) => document.getElementById(id);

const model = { now: null, history: {}, settings: null, filter: "all", paused: false, release: "", range: null };
const cards = new Map();
const rows = new Map();

function listen() {
  const source = new EventSource("/ui/events");
  const on = (name, take) => source.addEventListener(name, (event) => take(JSON.parse(event.data)));
  on("hello", hello);
  on("now", (now) => {
    model.now = now;
    show();
  });
  on("second", second);
  on("news", (item) => {
    tell([item]);
  });
  on("settings", (settings) => {
    model.settings = settings;
    showSettings();
  });
  source.addEventListener("error", () => {
    connection(false);
    // A browser tries again by itself, unless it was refused.
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  });
  source.addEventListener("open", () => connection(true));
}

function hello(all) {
  model.now = all.now;
  model.history = all.history.classes;
  model.settings = all.settings;
  model.release = all.release;
  at("log").replaceChildren();
  tell(all.news);
  show();
  showSettings();
}

/** One more second: the newest in, what is older than the charts out. */
function second(now) {
  model.now = now;
  for (const state of now.classes) {
    const columns = (model.history[state.name] ??= { queued: [], in_flight: [], effective: [], configured: [] });
    for (const [column, field] of Object.entries(COLUMNS)) {
      columns[column].push(state[field]);
      if (columns[column].length > SECONDS) columns[column].shift();
    }
  }
  show();
}

function show() {
  if (model.paused || !model.now) return;
  header(model.now);
  keep(cards, model.now.classes, at("classes"), (name) => new ClassCard(name), (card, state) =>
    card.show(state, model.history[state.name], model.range ?? fitting(state)),
  );
  keep(rows, model.now.backends, at("backends").tBodies[0], (name) => new BackendRow(name), (row, state) => row.show(state));
}

/** Until somebody chooses, two minutes while there is no more to show, then all fifteen. */
function fitting(state) {
  const range = (model.history[state.name]?.queued.length ?? 0) > 240 ? SECONDS : 120;
  press("range", String(range));
  return range;
}

/** Of a group of buttons, the one with this value is pressed. */
function press(group, value) {
  for (const button of document.querySelectorAll(`[data-${group}]`)) {
    button.setAttribute("aria-pressed", String(button.dataset[group] === value));
  }
}

function choose(group, take) {
  for (const button of document.querySelectorAll(`[data-${group}]`)) {
    button.addEventListener("click", () => {
      press(group, button.dataset[group]);
      take(button.dataset[group]);
    });
  }
}

/** Views by name: made for what is new, taken away with what is gone. */
function keep(views, states, parent, make, tell) {
  const names = new Set(states.map((state) => state.name));
  for (const [name, view] of views) {
    if (!names.has(name)) {
      view.node.remove();
      views.delete(name);
    }
  }
  for (const state of states) {
    if (!views.has(state.name)) {
      views.set(state.name, make(state.name));
      parent.append(views.get(state.name).node);
    }
    tell(views.get(state.name), state);
  }
}

function header(now) {
  const [word, kind] = now.draining ? ["draining", "draining"] : now.ready ? ["ready", "ready"] : ["no backend is ready", "down"];
  at("ready").className = `pill state-${kind}`;
  say(at("ready"), word);
  const ready = now.backends.filter((backend) => backend.state === "ready").length;
  const facts = {
    backends: `${ready} of ${now.backends.length} ready`,
    settings: `version ${now.version}`,
    redis: now.redis === null ? "not used" : now.redis ? "connected" : "lost",
    release: model.release,
  };
  for (const [name, text] of Object.entries(facts)) {
    if (!at(`fact-${name}`)) {
      at("facts").append(element("div", {}, element("dt", {}, name), element("dd", { id: `fact-${name}` })));
    }
    say(at(`fact-${name}`), text);
    at(`fact-${name}`).classList.toggle("bad", text === "lost");
  }
}

function tell(items) {
  const log = at("log");
  for (const item of items) log.prepend(newsItem(item));
  while (log.children.length > KEPT_NEWS) log.lastElementChild.remove();
  filtered(log, model.filter);
}

function showSettings() {
  const { history, rejected, effective } = model.settings;
  at("history").replaceChildren(...history.map(historyItem));
  if (!history.length) {
    at("history").append(element("li", { class: "empty" }, "nothing was changed while it ran"));
  }
  at("rejected").replaceChildren(...rejectedBox(rejected));
  at("effective").tBodies[0].replaceChildren(
    ...Object.entries(effective).map(([name, value]) =>
      element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, written(value))),
    ),
  );
  find();
}

function written(value) {
  if (value === null) return "–";
  if (Array.isArray(value)) return value.join(", ") || "–";
  return typeof value === "number" ? (Number.isInteger(value) ? count(value) : String(value)) : String(value);
}

function find() {
  const wanted = at("find").value.trim().toLowerCase();
  for (const row of at("effective").rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

function connection(open) {
  at("alert").hidden = open;
  say(at("alert"), open ? "" : "The connection to the gateway is lost; what you see is the last that it said.");
  document.body.classList.toggle("stale", !open);
}

at("pause").addEventListener("click", () => {
  model.paused = !model.paused;
  at("pause").setAttribute("aria-pressed", String(model.paused));
  say(at("pause"), model.paused ? "Go on" : "Pause");
  show();
});
at("find").addEventListener("input", find);
choose("filter", (filter) => {
  model.filter = filter;
  filtered(at("log"), filter);
});
choose("range", (range) => {
  model.range = Number(range);
  show();
});
listen();
