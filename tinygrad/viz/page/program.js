// The user's program: which kernels each line became, and what they took.
"use strict";
import {ask, code, make, time} from "./parts.js";
import {table} from "./tables.js";

/** Returns what a kernel was made for, as {method, file, line}; without a file where the language has no lines. */
export function origins_of(metadata) {
  return metadata.split(", ").filter(Boolean).map(text => {
    const found = /^(.*) at (.+):(\d+)$/.exec(text);
    return found ? {method: found[1], file: found[2], line: Number(found[3])} : {method: text, file: "", line: 0};
  });
}

/** Returns what each kernel was made for, by its key. */
export function all_origins(overview, launches) {
  const origins = new Map();
  const add = (key, metadata) => {
    const known = origins.get(key) ?? [];
    for (const o of origins_of(metadata))
      if (!known.some(k => k.method === o.method && k.file === o.file && k.line === o.line)) known.push(o);
    origins.set(key, known);
  };
  for (const span of overview.spans)
    if (span.kind === "schedule")
      for (const [key, metadata] of span.values) if (key.startsWith("kernel ")) add(key.slice(7), metadata);
  for (const [key, launched] of launches) add(key, launched.what);
  return origins;
}

export class ProgramView {
  constructor(main, app) {
    this.main = main;
    this.app = app;
    this.text = make("div", {class: "listing"});
    this.files = make("div", {class: "tabs"});
    this.kernels = make("div", {class: "content"});
  }
  refresh() {
    this.read = null;
    this.show();
  }

  async show() {
    const {app} = this;
    if (this.read !== app.overview) {
      this.read = app.overview;
      this.lines = this.by_line();
      this.programs = app.overview.spans.filter(s => s.kind === "program");
      if (!this.programs.length) return this.show_methods();
      this.main.replaceChildren(make("div", {class: "split program"}, make("div", {class: "stage"}, this.files, this.text), make("div", {class: "aside"}, this.kernels)));
      this.shown_file = null;
    }
    if (!this.programs.length) return;
    const [wanted, line] = (app.state.line ?? "").split(/:(?=\d+$)/);
    const most = name => [...(this.lines.get(name)?.values() ?? [])].reduce((sum, l) => sum + l.total, 0);
    const program = this.programs.find(p => p.name === wanted) ?? [...this.programs].sort((a, b) => most(b.name) - most(a.name))[0];
    this.files.replaceChildren(...this.programs.map(p => make("button", {type: "button", class: p === program ? "on" : "",
      onclick: () => app.go({line: `${p.name}:1`})}, p.name)));
    if (this.shown_file !== program.id) {
      this.shown_file = program.id;
      const span = await ask("span", {file: app.state.file, span: program.id});
      this.list(program.name, span.texts[0]?.text ?? "");
    }
    this.choose(program.name, Number(line) || 0);
  }

  /** Returns, by file and line, the kernels made for it and their time. */
  by_line() {
    const lines = new Map();
    for (const [key, origins] of this.app.origins)
      for (const o of origins) {
        if (!lines.has(o.file)) lines.set(o.file, new Map());
        const file = lines.get(o.file), at = o.file ? o.line : o.method;
        if (!file.has(at)) file.set(at, {methods: new Set(), kernels: new Set(), total: 0});
        const l = file.get(at);
        l.methods.add(o.method);
        if (l.kernels.has(key)) continue;
        l.kernels.add(key);
        l.total += this.app.launches.get(key)?.total ?? 0;
      }
    return lines;
  }

  list(name, text) {
    const lines = this.lines.get(name) ?? new Map(), most = Math.max(1, ...[...lines.values()].map(l => l.total));
    this.text.replaceChildren(...text.split("\n").map((source, i) => {
      const known = lines.get(i + 1), bar = make("span", {class: "bar"});
      bar.style.width = known ? `${Math.max(2, 60 * known.total / most)}px` : "0";
      bar.hidden = !known;
      const row = make(known ? "button" : "div", {class: "source", ...(known ? {type: "button", onclick: () => this.app.go({line: `${name}:${i + 1}`})} : {})},
        make("span", {class: "number"}, String(i + 1)), make("span", {class: "cost"}, known && known.total ? time(known.total) : ""),
        make("span", {class: "share"}, bar), code(source));
      row.dataset.line = i + 1;
      return row;
    }));
  }

  choose(name, line) {
    for (const row of this.text.querySelectorAll(".on")) row.classList.remove("on");
    const row = line ? this.text.querySelector(`[data-line="${line}"]`) : null;
    row?.classList.add("on");
    row?.scrollIntoView({block: "nearest"});
    const known = this.lines.get(name)?.get(line);
    if (!known) {
      this.kernels.replaceChildren(make("p", {class: "note"}, "A line with a bar became kernels; click it to see them. Time of a kernel counts for every line it was made for."));
      return;
    }
    const list = [...known.kernels].map(key => ({key, kernel: this.app.kernel_of(key), launched: this.app.launches.get(key)}))
      .sort((a, b) => (b.launched?.total ?? 0) - (a.launched?.total ?? 0));
    this.kernels.replaceChildren(make("h3", {}, `${name}:${line}`), make("p", {}, [...known.methods].join(", ")),
      make("h3", {}, `Kernels (${list.length})`), make("div", {class: "nodes"}, ...list.map(k => make("button", {type: "button", class: "link", disabled: !k.kernel,
        onclick: () => this.app.go({view: "graphs", span: k.kernel.id, node: null, graph: null, step: null, text: null})},
      `${k.kernel?.name ?? k.launched?.name ?? k.key.slice(0, 8)} · ${k.launched ? `${time(k.launched.total)} in ${k.launched.count}` : "not launched"}`))));
  }

  show_methods() {
    const rows = [...this.lines].flatMap(([file, lines]) => [...lines].map(([at, l]) => ({at: file ? `${file}:${at}` : String(at), ...l})));
    const columns = [
      {title: "made for", value: r => r.at, class: "mono"},
      {title: "kernels", value: r => r.kernels.size}, {title: "time", value: r => r.total, cell: r => time(r.total)},
    ];
    this.main.replaceChildren(make("div", {class: "page"}, make("section", {class: "card"}, make("h2", {}, "What kernels were made for"),
      make("p", {}, "Methods of tensors. Programs in Python, and C++ programs compiled with -g, are shown line by line."),
      rows.length ? table(columns, rows, {sort: 2}) : make("p", {class: "note"}, "No kernel was made."))));
  }
}
