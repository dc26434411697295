// Schedules, kernels and passes in a list; the graph of the chosen one, its rewrites step by step, and what is known of
// it and of its nodes.
"use strict";
import {ask, code, count, kClassNames, make, showTip, time, valueOf} from "./parts.js";
import {GraphCanvas} from "./graph_canvas.js";
import {table} from "./tables.js";

const kMostRows = 4000, kMostSearched = 2000, kRemoved = 2, kTried = ["heuristic", "candidate", "chosen"];

export class GraphView {
  constructor(main, app) {
    this.app = app;
    this.filter = make("input", {type: "search", placeholder: "Filter kernels", ariaLabel: "Filter kernels",
      oninput: () => this.show_list()});
    this.list = make("div", {class: "list", id: "list"});
    const canvas = make("canvas", {id: "graph", tabIndex: 0, ariaLabel: "Graph"});
    this.title = make("span", {class: "title", id: "title"});
    this.find = make("input", {type: "search", id: "find", placeholder: "Find node (/)", ariaLabel: "Find node",
      oninput: () => this.search(), onkeydown: event => this.find_key(event)});
    this.found = make("span", {class: "found", id: "found"});
    this.graphs = make("span", {class: "group", id: "graphs"});
    this.constants = make("button", {type: "button", title: "Constants as nodes of their own (c)", onclick: () => this.key("c")},
      "Constants");
    const tool = (text, title, act) => make("button", {type: "button", title, ariaLabel: title, onclick: act}, text);
    this.legend = make("div", {class: "legend"});
    this.stepper = make("div", {class: "stepper", id: "stepper", hidden: true});
    this.tabs = make("div", {class: "tabs"});
    this.content = make("div", {class: "content", id: "content"});
    main.replaceChildren(make("div", {class: "split"},
      make("div", {class: "side"}, this.filter, this.list),
      make("div", {class: "stage"},
        make("div", {class: "paper"}, canvas, this.legend,
          make("div", {class: "tools"}, this.title, this.graphs, make("span", {class: "gap"}), this.find, this.found, this.constants,
            make("span", {class: "group"}, tool("−", "Smaller (-)", () => this.canvas.scale_by(0.8)),
              tool("+", "Larger (+)", () => this.canvas.scale_by(1.25)), tool("Fit", "Whole graph (f)", () => this.canvas.fit())))),
        this.stepper),
      make("div", {class: "aside"}, this.tabs, this.content)));
    this.canvas = new GraphCanvas(canvas, {
      onselect: node => app.go({node: node < 0 ? null : node}),
      onhover: (node, event) => showTip(event, node < 0 ? null : this.tip_of(node)),
    });
  }
  close() {
    this.canvas.close();
    showTip(null, null);
  }
  recolour() {
    this.canvas.recolour();
    this.show_legend();
  }

  // ---- the list ----

  show_list() {
    const {overview} = this.app, wanted = this.filter.value.trim().toLowerCase(), rows = [];
    const opened = this.app.owner_of(this.app.state.span);
    const row = (span, kind, name, what, busy) => {
      const element = make("button", {type: "button", class: `row ${kind}${busy ? " busy" : ""}`, title: name,
        onclick: () => this.app.go({span: span.id, graph: null, step: null, node: null, text: null})},
        make("span", {class: "name"}, name), make("span", {class: "what"}, what));
      element.dataset.span = span.id;
      rows.push(element);
    };
    const parts = span => {
      for (const part of this.app.parts.get(span.id) ?? []) {
        if (part.kind === "kernel" || part.kind === "plan") continue;
        row(part, "pass", part.name, part.rewrites ? `${count(part.rewrites)} rewrites` : time(part.end - part.begin), part.rewrites);
        if (this.span && (this.span.id === part.id || this.span.parent === part.id))
          for (const rewrite of this.rewrites ?? [])
            row(rewrite, "rewrite", rewrite.name, `${count(rewrite.rewrites)} steps`, true);
      }
    };
    let hidden = 0;
    for (const span of overview.spans) {
      if (span.kind === "pass" || span.kind === "plan") continue;
      const kernel = span.kind === "kernel", name = kernel ? span.name : `${span.kind} ${span.name}`.trim();
      if (wanted && !(kernel && (span.name.toLowerCase().includes(wanted) || this.app.label_of(span).toLowerCase().includes(wanted))))
        continue;
      if (rows.length >= kMostRows) {
        hidden++;
        continue;
      }
      const launched = this.app.launches.get(span.key);
      const what = kernel ? launched ? `${time(launched.total)}${launched.count > 1 ? ` · ${launched.count}×` : ""}` : time(span.end - span.begin)
        : span.kind === "schedule" ? `${valueOf(span, "nodes")} nodes${valueOf(span, "cache") === "hit" ? " · cached" : ""}` : time(span.end - span.begin);
      row(span, kernel ? "kernel" : span.kind, name, what, true);
      if (opened && opened.id === span.id) parts(span);
    }
    if (hidden) rows.push(make("div", {class: "row note"}, `${hidden} more: filter them`));
    if (!rows.length) rows.push(make("div", {class: "row note"}, wanted ? "No such kernel" : "Nothing was recorded"));
    const top = this.list.scrollTop;
    this.list.replaceChildren(...rows);
    this.list.scrollTop = top;
    this.mark_row();
  }
  mark_row() {
    for (const element of this.list.querySelectorAll(".on")) element.classList.remove("on");
    const mine = this.list.querySelector(`[data-span="${Number(this.app.state.span)}"]`);
    if (!mine) return;
    mine.classList.add("on");
    mine.scrollIntoView({block: "nearest"});
  }

  // ---- the chosen span ----

  /** Shows what the state says; asks only for what changed. */
  async show() {
    const {state, overview} = this.app;
    if (!state.span) {
      const first = overview.spans.find(s => s.kind === "kernel") ?? overview.spans.find(s => s.kind === "schedule") ?? overview.spans[0];
      if (!first) return this.show_list();
      state.span = first.id;
    }
    const version = `${state.file}/${state.span}/${this.app.version}`;
    if (this.version !== version) {
      this.version = version;
      const turn = this.turn = (this.turn ?? 0) + 1;
      const span = await ask("span", {file: state.file, span: state.span});
      if (turn !== this.turn) return;
      const listed = span.kind === "rewrite" && span.parent ? await ask("span", {file: state.file, span: span.parent}) : span;
      if (turn !== this.turn) return;
      this.span = span;
      this.rewrites = listed.parts.filter(p => p.kind === "rewrite");
      this.drawn = null;
      this.make_stepper();
      this.show_list();
    }
    this.mark_row();
    await this.show_graph();
    this.show_content();
  }

  /** Returns where in the graphs of the span the state is; a kernel shows its first one. */
  place() {
    const {state} = this.app, last = Math.max(0, this.span.graphs.length - 1);
    const steps = this.span.rewrites.length;
    return {graph: steps ? 0 : Math.min(state.graph ?? 0, last), step: Math.min(state.step ?? 0, steps), steps};
  }

  async show_graph() {
    const {state} = this.app, span = this.span, {graph, step, steps} = this.place();
    this.graphs.replaceChildren(...(steps || span.graphs.length < 2 ? [] : span.graphs.map((g, i) =>
      make("button", {type: "button", class: i === graph ? "on" : "", onclick: () => this.app.go({graph: i, node: null})}, g.title))));
    this.show_step(step, steps);
    // A schedule is shown by the graph its first stage has left.
    const part = span.graphs.length ? null : span.parts.find(p => p.kind === "pass" && p.graphs);
    if (!span.graphs.length && !part) {
      this.drawn = null;
      this.canvas.load(kNothing);
      this.title.replaceChildren(make("b", {}, span.name || span.kind), " has no graph");
      this.show_legend();
      return;
    }
    const query = {file: state.file, span: part ? part.id : span.id, graph, step, ...(steps && step ? {since: step - 1} : {}),
      ...(state.constants ? {constants: 1} : {})};
    const key = `${JSON.stringify(query)}/${this.app.version}`;
    if (this.drawn !== key) {
      const turn = this.graph_turn = (this.graph_turn ?? 0) + 1;
      const began = performance.now();
      const g = await ask("graph", query);
      if (turn !== this.graph_turn) return;
      const follows = steps && this.drawn_span === span.id ? this.anchor(g) : null;
      this.drawn = key;
      this.drawn_span = span.id;
      this.canvas.load(g, Boolean(follows));
      if (follows) this.canvas.go(follows, false);
      else if (steps && step) this.show_changed();
      this.took = performance.now() - began;
      this.search();
      this.show_legend();
    }
    const g = this.canvas.graph;
    this.title.replaceChildren(make("b", {}, span.name || span.kind), part ? ` after ${part.name}` : "", ` · ${g.nodes} nodes`,
      g.all_nodes > g.nodes ? ` and ${g.all_nodes - g.nodes} constants` : "");
    const node = state.node === null || state.node === undefined || state.node >= g.nodes ? -1 : Number(state.node);
    if (node !== this.canvas.selected) this.canvas.select(node);
  }
  /** Returns a view in which the node that stays on the screen through the step is where it was. */
  anchor(g) {
    const old = this.canvas.graph, {view} = this.canvas;
    if (!old) return null;
    const focus = changed_of(g);
    const [width, height] = [this.canvas.canvas.clientWidth, this.canvas.canvas.clientHeight];
    const place = focus >= 0 ? {x: g.x[focus], y: g.y[focus]} : {x: g.width / 2, y: g.height / 2};
    const numbers = new Map(g.number.map((n, i) => [n, i]));
    let best = null, least = Infinity;
    for (let i = 0; i < old.nodes; i++) {
      const now = old.number[i] ? numbers.get(old.number[i]) : undefined;
      if (now === undefined) continue;
      const d = Math.hypot(g.x[now] - place.x, g.y[now] - place.y);
      if (d < least) [best, least] = [[i, now], d];
    }
    if (!best) return null;
    const to = {k: view.k, x: view.x + (old.x[best[0]] - g.x[best[1]]) * view.k, y: view.y + (old.y[best[0]] - g.y[best[1]]) * view.k};
    const [x, y] = [place.x * to.k + to.x, place.y * to.k + to.y];
    if (x > 60 && x < width - 60 && y > 70 && y < height - 60) return to;
    return {k: to.k, x: width / 2 - place.x * to.k, y: height / 2 - place.y * to.k};
  }
  show_changed() {
    const node = changed_of(this.canvas.graph);
    if (node >= 0 && this.canvas.view.k < 0.5) this.canvas.center(node, false);
  }

  show_legend() {
    const g = this.canvas.graph, entry = (name, text) => {
      const box = make("i");
      box.style.background = this.canvas.colours[name];
      return make("span", {}, box, text);
    };
    if (!g) return;
    const kinds = new Set(g.op.map(op => g.classes[op]));
    this.legend.replaceChildren(...kClassNames.filter(name => kinds.has(name)).map(name => entry(name, name)),
      ...(g.state.length ? [entry("good", "added"), entry("bad", "removed"), entry("warn", "over changed sources")] : []));
  }

  tip_of(node) {
    const g = this.canvas.graph;
    return [`${g.texts[g.op[node]]} ${g.texts[g.type[node]]}`, g.texts[g.argument[node]].slice(0, 300),
      g.texts[g.origin[node]] && `made by ${g.texts[g.origin[node]]}`, g.state[node] === kRemoved ? "removed by this rewrite" : ""];
  }

  // ---- rewrites ----

  make_stepper() {
    const steps = this.span.rewrites.length;
    this.stepper.hidden = !steps;
    if (!steps) return;
    const button = (text, title, by) => make("button", {type: "button", title, ariaLabel: title, onclick: () => this.step(by)}, text);
    this.slider = make("input", {type: "range", min: 0, max: steps, id: "step", ariaLabel: "Rewrite",
      oninput: () => this.app.go({step: Number(this.slider.value), node: null}, true)});
    this.step_count = make("span", {class: "count", id: "count"});
    this.change = make("div", {class: "change", id: "change"});
    this.stepper.replaceChildren(make("span", {class: "group"}, button("|◀", "First graph (Home)", -Infinity),
      button("◀", "Rewrite before (←)", -1), button("▶", "Next rewrite (→)", 1), button("▶|", "Last rewrite (End)", Infinity)),
      this.slider, this.step_count, this.change);
  }
  show_step(step, steps) {
    if (!steps) return;
    this.slider.value = step;
    this.step_count.textContent = `${step} of ${steps}`;
    const rewrite = step ? this.span.rewrites[step - 1] : null;
    this.change.replaceChildren(...(rewrite ? [
      make("span", {class: "note"}, "rule"), make("span", {}, rewrite.rule, make("span", {class: "note"}, ` · ${time(rewrite.nanoseconds)}`)),
      make("span", {class: "minus"}, "−"), make("span", {class: "minus"}, rewrite.before),
      make("span", {class: "plus"}, "+"), make("span", {class: "plus"}, rewrite.after)] :
      [make("span", {class: "note"}, "→"), make("span", {class: "note"}, `The graph before ${steps} rewrites; step with the arrow keys`)]));
  }
  step(by) {
    const {step, steps} = this.place();
    if (!steps) return;
    this.app.go({step: Math.max(0, Math.min(steps, step + by)), node: null}, true);
  }

  // ---- what is known ----

  show_content() {
    const {state} = this.app, span = this.span;
    const tabs = [["about", "About"], ...span.texts.map((t, i) => [`text${i}`, t.title])];
    if (span.kind === "kernel" && span.texts.length) tabs.push(["assembly", "assembly"]);
    if (span.rewrites.length) tabs.push(["steps", "Rewrites"]);
    if (this.canvas.selected >= 0) tabs.unshift(["node", "Node"]);
    const wanted = this.canvas.selected >= 0 && !/^text|assembly/.test(state.text ?? "") ? "node" : state.text;
    const open = tabs.some(([name]) => name === wanted) ? wanted : span.texts.length && span.kind === "kernel" ? "text0" : "about";
    this.tabs.replaceChildren(...tabs.map(([name, title]) => make("button", {type: "button", class: name === open ? "on" : "",
      onclick: () => this.app.go({text: name, ...(name === "node" ? {} : {node: null})})}, title)));
    if (open === "node") this.content.replaceChildren(...this.about_node(this.canvas.selected));
    else if (open === "steps") this.content.replaceChildren(...this.all_steps());
    else if (open === "about") this.content.replaceChildren(...this.about());
    else if (open === "assembly") this.show_assembly();
    else this.content.replaceChildren(code(span.texts[Number(open.slice(4))].text));
  }

  about_node(node) {
    const g = this.canvas.graph, text = column => g.texts[g[column][node]];
    const link = other => make("button", {type: "button", class: "link", onclick: () => {
      this.app.go({node: other});
      this.canvas.center(other);
    }}, `${g.texts[g.op[other]]} ${g.texts[g.line[other]]}`.trim());
    const users = [];
    for (let i = 0; i < g.nodes; i++) if (g.sources[i].includes(node)) users.push(i);
    const lines = [["operation", text("op")], ["type", text("type")], ["argument", text("argument")], ["rule that made it", text("origin")],
      ["number", g.number[node] ? `%${g.number[node]}` : ""], ["in this step", ["", "added", "removed", "over changed sources"][g.state[node] ?? 0]]];
    const list = nodes => make("div", {class: "nodes"}, ...nodes.slice(0, 200).map(link), nodes.length > 200 ? `and ${nodes.length - 200} more` : null);
    return [make("h3", {}, "Node"), about_list(lines), make("h3", {}, `Sources (${g.sources[node].length})`), list(g.sources[node]),
      make("h3", {}, `Users (${users.length})`), list(users)];
  }

  /** Asks for the machine code, which the server compiles from the recorded source. */
  async show_assembly() {
    const {span} = this;
    this.content.replaceChildren(make("p", {class: "note"}, "Compiling…"));
    const text = await ask("assembly", {file: this.app.state.file, span: span.id}).then(a => code(a.assembly), e => make("p", {class: "note"}, e.message));
    if (this.span === span && this.app.state.text === "assembly") this.content.replaceChildren(text);
  }

  all_steps() {
    const {step} = this.place();
    return [make("h3", {}, `${this.span.rewrites.length} rewrites`), make("div", {class: "nodes"}, ...this.span.rewrites.slice(0, kMostRows).map((r, i) =>
      make("button", {type: "button", class: "link", title: `${r.before}\n→ ${r.after}`, onclick: () => this.app.go({step: i + 1, node: null, text: "steps"})},
        `${i + 1 === step ? "▸ " : ""}${i + 1}  ${r.rule}`)))];
  }

  about() {
    const span = this.span, launched = this.app.launches.get(span.key), lines = [["kind", span.kind], ["took", time(span.end - span.begin)]];
    const origins = this.app.origins.get(span.key) ?? [];
    if (launched) lines.push(["launches", `${launched.count}, ${time(launched.total)} in all`], ["fastest", time(launched.fastest)], ["computes", [...new Set(origins.map(o => o.method))].join(", ")]);
    const made = [];
    for (const [key, value] of span.values) {
      if (kTried.includes(key)) continue;
      if (!key.startsWith("kernel ")) {
        lines.push([key, key === "target" ? value.split(/[,;]\+|;/)[0] : value]);
        continue;
      }
      const kernel = this.app.kernel_of(key.slice(7));
      made.push(make("button", {type: "button", class: "link", disabled: !kernel, title: value,
        onclick: () => this.app.go({span: kernel.id, node: null, graph: null, step: null, text: null})}, `${kernel ? kernel.name : key.slice(7, 15)}${value ? ` · ${value}` : ""}`));
    }
    const owner = this.app.parts_owner(span);
    return [make("h3", {}, span.kind), about_list(lines),
      ...(owner ? [make("h3", {}, "Part of"), make("button", {type: "button", class: "link",
        onclick: () => this.app.go({span: owner.id, node: null, graph: null, step: null, text: null})}, `${owner.kind} ${owner.name}`)] : []),
      ...this.made_for(origins), ...this.tried(),
      ...(made.length ? [make("h3", {}, `Calls (${made.length})`), make("div", {class: "nodes"}, ...made)] : [])];
  }

  /** Lines of the program that a kernel was made for. */
  made_for(origins) {
    const lines = origins.filter(o => o.file);
    if (this.span.kind !== "kernel" || !lines.length) return [];
    return [make("h3", {}, "Made for"), make("div", {class: "nodes"}, ...lines.map(o => make("button", {type: "button", class: "link",
      onclick: () => this.app.go({view: "program", line: `${o.file}:${o.line}`})}, `${o.file}:${o.line} · ${o.method}`)))];
  }
  /** What a search has measured. */
  tried() {
    const rows = this.span.values.filter(([key]) => kTried.includes(key)).map(([key, value]) => {
      const [, cycles, microseconds, opts] = /^(\S+) cycles predicted, (\S+) us measured: (.*)$/.exec(value) ?? [0, 0, 0, value];
      return {key, cycles: Number(cycles), took: Number(microseconds), opts};
    });
    if (!rows.length) return [];
    return [make("h3", {}, `Tried (${rows.length})`), table([
      {title: "measured", value: r => -r.took, cell: r => time(1000 * r.took)}, {title: "predicted", value: r => -r.cycles, cell: r => r.cycles ? `${count(r.cycles)} cycles` : "–"},
      {title: "", value: r => r.key, cell: r => r.key === "candidate" ? "" : r.key}, {title: "opts", value: r => r.opts, class: "mono"}], rows)];
  }

  // ---- search and keys ----

  search() {
    const g = this.canvas.graph, wanted = this.find.value.trim().toLowerCase();
    this.matches = [];
    if (g && wanted) {
      const hit = g.texts.map(text => text.toLowerCase().includes(wanted));
      for (let i = 0; i < g.nodes && this.matches.length < kMostSearched; i++)
        if (hit[g.op[i]] || hit[g.type[i]] || hit[g.argument[i]] || hit[g.line[i]] || hit[g.origin[i]] || `%${g.number[i]}` === wanted) this.matches.push(i);
    }
    this.match = -1;
    this.found.textContent = wanted ? `${this.matches.length} found` : "";
    this.canvas.mark(this.matches);
  }
  next_match(by) {
    if (!this.matches.length) return;
    this.match = (this.match + by + this.matches.length) % this.matches.length;
    this.found.textContent = `${this.match + 1} of ${this.matches.length}`;
    this.app.go({node: this.matches[this.match]}, true);
    this.canvas.center(this.matches[this.match]);
  }
  find_key(event) {
    if (event.key === "Enter") this.next_match(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      this.find.value = "";
      this.search();
      this.find.blur();
    }
  }

  key(key) {
    const rows = [...this.list.querySelectorAll("[data-span]")], at = rows.findIndex(r => r.classList.contains("on"));
    const acts = {
      "/": () => this.find.focus(), f: () => this.canvas.fit(), "+": () => this.canvas.scale_by(1.25), "=": () => this.canvas.scale_by(1.25),
      "-": () => this.canvas.scale_by(0.8), c: () => {
        this.app.go({constants: this.app.state.constants ? null : 1, node: null});
        this.constants.classList.toggle("on", Boolean(this.app.state.constants));
      },
      n: () => this.next_match(1), N: () => this.next_match(-1), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      Home: () => this.step(-Infinity), End: () => this.step(Infinity), Escape: () => this.app.go({node: null}),
      ArrowDown: () => rows[Math.min(rows.length - 1, at + 1)]?.click(), ArrowUp: () => rows[Math.max(0, at - 1)]?.click(),
    };
    acts.j = acts.ArrowDown;
    acts.k = acts.ArrowUp;
    if (!acts[key]) return false;
    acts[key]();
    return true;
  }
}

const kNothing = {nodes: 0, all_nodes: 0, width: 1, height: 1, changed: null, op: [], type: [], line: [], argument: [], origin: [], number: [],
  w: [], h: [], state: [], sources: [], x: [], y: [], layer: [], links: [], texts: []};

/** The node that a step is about: what it made, or else the first that it added or removed. */
function changed_of(g) {
  if (g.changed !== null) return g.changed;
  const added = g.state.indexOf(1);
  return added >= 0 ? added : g.state.indexOf(kRemoved);
}

function about_list(lines) {
  return make("dl", {}, ...lines.filter(([, value]) => value !== "" && value !== undefined).flatMap(([key, value]) =>
    [make("dt", {}, key), make("dd", {}, value)]));
}
