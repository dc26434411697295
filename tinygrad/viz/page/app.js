// The page: what is shown stands in the address behind #, so that a link shows the same.
"use strict";
import {ask, bytes, count, make, time} from "./parts.js";
import {GraphView} from "./graph_view.js";
import {MemoryView, TimelineView} from "./charts.js";
import {all_origins, ProgramView} from "./program.js";
import {CompareView, KernelView, RuleView} from "./tables.js";

const kViews = [["graphs", "Graphs", GraphView], ["timeline", "Timeline", TimelineView], ["kernels", "Kernels", KernelView],
  ["program", "Program", ProgramView], ["memory", "Memory", MemoryView], ["rules", "Rules", RuleView], ["compare", "Compare", CompareView]];
const kPoll = 1500;  // milliseconds between looks at whether the file grew
const kNumbers = ["file", "span", "graph", "step", "node", "constants", "begin", "end"];
const at = id => document.getElementById(id);

class App {
  constructor() {
    this.state = {view: "graphs", file: 0};
    this.version = 0;
  }

  async start() {
    this.theme(localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
    at("theme").addEventListener("click", () => this.key("t"));
    at("help").addEventListener("click", () => this.key("?"));
    addEventListener("hashchange", () => this.read_address());
    addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
      if (at("keys").open) return;  // the dialog has keys of its own: Esc closes it
      if (this.key(event.key)) event.preventDefault();
    });
    this.files = await ask("files");
    this.state = this.address();
    await this.read();
    await this.show();
    setInterval(() => this.look().catch(() => {}), kPoll);
  }

  // ---- the recording ----

  async read() {
    this.file_read = this.state.file;
    const read = await this.index_of(this.state.file), {overview} = read;
    Object.assign(this, read);
    this.version = this.files[this.state.file].version;
    const file = this.files[this.state.file];
    at("file").textContent = file.file;
    document.title = `${file.file} · tg viz`;
    at("summary").textContent = [`${count(overview.schedules)} schedules`, `${count(overview.kernels)} kernels`, `${count(overview.rewrites)} rewrites`,
      `${count(overview.launches)} launches`, time(overview.nanoseconds), bytes(file.bytes)].join(" · ") + (overview.broken ? " · running" : "");
  }
  async index_of(file) {
    const [overview, timeline] = await Promise.all([ask("overview", {file}), ask("timeline", {file})]);
    return {overview, timeline, ...index(overview, timeline)};
  }
  /** Reads what a program that still runs has written meanwhile. */
  async look() {
    const files = await ask("files");
    const grew = files[this.state.file].version !== this.version;
    this.files = files;
    if (!grew) return;
    await this.read();
    if (this.view.refresh) this.view.refresh();
    else await this.view.show();
  }

  key_of(name, details) { return key_of(name, details, this.named); }
  kernel_of(key) { return this.kernels.get(key); }
  span_of(id) { return this.spans.get(id); }
  /** What a kernel was made for: words that the filter of the list looks at. */
  label_of(kernel) { return this.launches.get(kernel.key)?.what ?? ""; }
  /** The schedule, run or kernel that a span belongs to, itself included. */
  owner_of(id) {
    let span = this.spans.get(Number(id)) ?? this.spans.get(this.view?.span?.parent);
    while (span && (span.kind === "pass" || span.kind === "plan")) span = this.spans.get(span.parent);
    return span;
  }
  /** Asks once what this machine can do; the server measures it then. */
  machine() { return this.limits ??= ask("machine"); }
  parts_owner(span) { return this.spans.get(span.parent); }

  // ---- state ----

  address() {
    const state = {view: "graphs", file: 0};
    for (const [key, value] of new URLSearchParams(location.hash.slice(1)))
      state[key] = kNumbers.includes(key) ? Math.max(0, Number(value) || 0) : value;
    if (!kViews.some(([name]) => name === state.view)) state.view = "graphs";
    state.file = Math.min(state.file, this.files.length - 1);
    return state;
  }
  /** Changes what is shown. Small steps replace the entry in the history, others can be undone by Back. */
  go(change, small = false) {
    for (const [key, value] of Object.entries(change)) {
      if (value === null) delete this.state[key];
      else this.state[key] = value;
    }
    const hash = `#${new URLSearchParams(Object.entries(this.state))}`;
    if (hash !== location.hash) history[small ? "replaceState" : "pushState"](null, "", hash);
    this.show();
  }
  read_address() {
    this.state = this.address();
    this.show();
  }

  async show() {
    try {
      if (this.state.file !== this.file_read) await this.read();
      if (this.shown !== this.state.view) {
        this.shown = this.state.view;
        this.view?.close?.();
        this.view = new (kViews.find(([name]) => name === this.state.view)[2])(at("main"), this);
      }
      const views = kViews.filter(([name]) => name !== "compare" || this.files.length > 1);
      at("views").replaceChildren(...views.map(([name, title], i) => make("button", {type: "button", class: name === this.state.view ? "on" : "",
        title: `${title} (${i + 1})`, onclick: () => this.go({view: name})}, title)));
      await this.view.show();
      document.body.dataset.shown = this.state.view;
    } catch (error) {
      at("main").replaceChildren(make("div", {class: "failed"}, error.message));
      this.shown = null;
    }
  }

  theme(name) {
    document.documentElement.dataset.theme = name;
    localStorage.setItem("theme", name);
    this.view?.recolour?.();
  }

  key(key) {
    if (key === "t") this.theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    else if (key === "?") this.help();
    else if (/^[1-7]$/.test(key) && kViews[key - 1] && (key < 7 || this.files.length > 1)) this.go({view: kViews[key - 1][0]});
    else return this.view?.key?.(key) ?? false;
    return true;
  }
  help() {
    const keys = [["1 … 7", "views"], ["↓ ↑ or j k", "next and last in the list"], ["← →", "step through rewrites"], ["Home End", "first and last step"],
      ["/", "find a node"], ["Enter, n N", "next and last one found"], ["f", "whole graph"], ["+ −", "zoom (also the wheel)"], ["c", "constants as nodes"],
      ["Esc", "select nothing"], ["t", "dark or light"], ["?", "this list"]];
    at("keys").replaceChildren(make("h3", {}, "Keys"), make("dl", {}, ...keys.flatMap(([key, what]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)])),
      make("p", {class: "note"}, "A link to this page shows what you see."), make("form", {method: "dialog"}, make("button", {}, "Close")));
    at("keys").showModal();
  }
}

/** Returns the key of the kernel that a launch ran; replays know the name alone. */
function key_of(name, details, named) {
  if (!/(?:^|; )\S+ operations, /.test(details)) return undefined;
  return /; kernel (\w+)$/.exec(details)?.[1] ?? named.get(name);
}

/** What is looked up often: spans by number, their parts, kernels by key, launches of each kernel. */
function index(overview, timeline) {
  const spans = new Map(overview.spans.map(s => [s.id, s])), parts = new Map(), kernels = new Map(), launches = new Map();
  for (const s of overview.spans) {
    if (!parts.has(s.parent)) parts.set(s.parent, []);
    parts.get(s.parent).push(s);
    if (s.kind === "kernel") kernels.set(s.key, s);
  }
  const named = new Map([...kernels].map(([key, kernel]) => [kernel.name, key]));
  for (const [track, , name, begin, end, , details] of timeline.events) {
    const key = key_of(name, details, named);
    if (!key) continue;
    let l = launches.get(key);
    if (!l) launches.set(key, l = {name, track, count: 0, total: 0, fastest: Infinity, what: /^(?:(.*?); )?\S+ operations, /.exec(details)?.[1] ?? ""});
    l.count++;
    l.total += end - begin;
    l.fastest = Math.min(l.fastest, end - begin);
  }
  return {spans, parts, kernels, launches, named, origins: all_origins(overview, launches)};
}

const app = new App();
window.tgviz = app;  // for tests and the console
app.start().catch(error => at("main").replaceChildren(make("div", {class: "failed"}, error.message)));
