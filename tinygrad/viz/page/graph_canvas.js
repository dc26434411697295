// Draws a graph on a canvas: only what is in view, in slices that fit a frame. While a view takes several slices, the
// one before it is shown at its place in the new one.
"use strict";
import {classOf, colour, kClassNames} from "./parts.js";

const kStates = ["", "added", "removed", "rebuilt"];
const kTextScale = 0.42, kRoundScale = 0.25;  // zoom from which texts are drawn, and round corners
const kMostLinks = 24000;  // drawn at once: of more, a sample
const kFrame = 24;         // milliseconds that a slice may take, with what the browser does of it
const kLeastScale = 0.002, kMostScale = 3;

/** Whether a view shows the same as another one. */
const same = (a, b) => a.k === b.k && a.x === b.x && a.y === b.y;

export class GraphCanvas {
  constructor(canvas, {onselect, onhover}) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", {alpha: false});
    this.front = document.createElement("canvas");
    this.back = document.createElement("canvas");
    this.view = {k: 1, x: 0, y: 0};
    this.graph = null;
    this.selected = this.hovered = -1;
    this.matches = [];
    this.slice = 4000;
    this.frames = [];  // milliseconds between the last frames, for tests
    this.zoom = d3.behavior.zoom().scaleExtent([kLeastScale, kMostScale]).on("zoom", () => {
      [this.view.x, this.view.y] = this.zoom.translate();
      this.view.k = this.zoom.scale();
      this.redraw();
    });
    d3.select(canvas).call(this.zoom).on("dblclick.zoom", null);
    let down = null;
    canvas.addEventListener("pointerdown", event => down = [event.clientX, event.clientY]);
    canvas.addEventListener("click", event => {
      if (down && Math.hypot(event.clientX - down[0], event.clientY - down[1]) > 4) return;
      onselect(this.at(event));
    });
    canvas.addEventListener("pointermove", event => {
      const node = event.buttons ? -1 : this.at(event);
      if (node !== this.hovered) {
        this.hovered = node;
        this.redraw();
      }
      onhover(node, event);
    });
    canvas.addEventListener("pointerleave", event => {
      this.hovered = -1;
      onhover(-1, event);
      this.redraw();
    });
    this.resizer = new ResizeObserver(() => this.resize());
    this.resizer.observe(canvas);
    this.recolour();
    this.resize();
  }

  close() {
    this.resizer.disconnect();
    this.closed = true;
  }

  recolour() {
    this.colours = {};
    for (const name of ["back", "node", "edge", "edge-in", "edge-out", "text", "dim", "accent", "good", "bad", "warn",
      "added", "removed", "rebuilt", ...kClassNames]) this.colours[name] = colour(name);
    this.mono = colour("mono");
    this.changed();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!width || !height) return;
    this.ratio = ratio;
    for (const c of [this.canvas, this.front, this.back]) {
      c.width = Math.round(width * ratio);
      c.height = Math.round(height * ratio);
    }
    this.shown = null;
    if (this.graph && this.wants_fit) this.fit(false);
    this.changed();
  }

  /** Takes the columns of a graph and sorts nodes and links by layer and place, so that what is in view is found fast. */
  load(g, keep) {
    const layers = [];
    const n = g.nodes;
    g.classes = g.texts.map(classOf);
    for (let i = 0; i < n; i++) (layers[g.layer[i]] ??= {y: g.y[i], half: 0, nodes: [], links: []}).nodes.push(i);
    const points = g.x.length;
    for (let p = n; p < points; p++) layers[g.layer[p]] ??= {y: g.y[p], half: 0, nodes: [], links: []};
    for (const layer of layers) {
      for (const i of layer.nodes) layer.half = Math.max(layer.half, g.h[i] / 2);
      layer.nodes.sort((a, b) => g.x[a] - g.x[b]);
    }
    const links = g.links;
    const far = [];
    for (let i = 0; i < links.length; i += 3) {
      const [above, below] = [g.layer[links[i]], g.layer[links[i + 1]]];
      (below === above + 1 ? layers[above].links : far).push(i);
    }
    const left = i => Math.min(g.x[links[i]], g.x[links[i + 1]]);
    for (const layer of layers) {
      layer.links.sort((a, b) => left(a) - left(b));
      let right = -Infinity;
      layer.right = layer.links.map(i => right = Math.max(right, g.x[links[i]], g.x[links[i + 1]]));
    }
    this.layers = layers;
    this.far = far;
    this.graph = g;
    this.selected = this.hovered = -1;
    this.matches = [];
    this.shown = null;
    if (!keep) this.fit(false);
    this.changed();
  }

  /** Shows the whole graph, below the tools. */
  fit(smooth = true) {
    const g = this.graph;
    if (!g) return;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const top = (this.canvas.parentElement.querySelector(".tools")?.offsetHeight ?? 0) + 18, k = Math.min(1.25, (width - 40) / Math.max(1, g.width), (height - top - 40) / Math.max(1, g.height));
    const scale = Math.max(kLeastScale, k);
    this.go({k: scale, x: (width - g.width * scale) / 2, y: top + Math.max(0, (height - top - 30 - g.height * scale) / 2)}, smooth);
    this.wants_fit = true;
  }
  /** Brings a node to the middle, large enough to be read. */
  center(node, smooth = true) {
    const g = this.graph, k = Math.max(this.view.k, 0.8);
    this.go({k, x: this.canvas.clientWidth / 2 - g.x[node] * k, y: this.canvas.clientHeight / 2 - g.y[node] * k}, smooth);
  }
  scale_by(factor) {
    const [cx, cy] = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    const k = Math.min(kMostScale, Math.max(kLeastScale, this.view.k * factor)), f = k / this.view.k;
    this.go({k, x: cx - (cx - this.view.x) * f, y: cy - (cy - this.view.y) * f});
  }
  go(to, smooth = true) {
    this.wants_fit = false;
    const from = {...this.view}, begin = performance.now(), turn = this.turn = (this.turn ?? 0) + 1;
    const step = () => {
      if (turn !== this.turn) return;
      const t = smooth ? Math.min(1, (performance.now() - begin) / 220) : 1, e = 1 - (1 - t) ** 3;
      const k = from.k * (to.k / from.k) ** e, f = to.k === from.k ? e : (k - from.k) / (to.k - from.k);
      this.view = {k, x: from.x + (to.x - from.x) * f, y: from.y + (to.y - from.y) * f};
      this.zoom.translate([this.view.x, this.view.y]).scale(k);
      this.redraw();
      if (t < 1) requestAnimationFrame(step);
    };
    step();
  }

  at(event) {
    if (!this.graph) return -1;
    const box = this.canvas.getBoundingClientRect(), g = this.graph;
    const x = (event.clientX - box.left - this.view.x) / this.view.k;
    const y = (event.clientY - box.top - this.view.y) / this.view.k;
    const layer = this.layers[this.layer_below(y) - 1] ?? null;
    for (const l of [layer, this.layers[this.layer_below(y)]]) {
      if (!l || Math.abs(y - l.y) > l.half) continue;
      for (let i = first(l.nodes, node => g.x[node] + g.w[node] / 2 >= x); i < l.nodes.length; i++) {
        const node = l.nodes[i];
        if (g.x[node] - g.w[node] / 2 > x) break;
        if (Math.abs(y - g.y[node]) <= g.h[node] / 2) return node;
      }
    }
    return -1;
  }
  layer_below(y) { return first(this.layers, layer => layer.y >= y); }

  select(node) {
    this.selected = node;
    this.redraw();
  }
  mark(matches) {
    this.matches = matches;
    this.redraw();
  }

  /** The picture is no longer true: it is painted again. */
  changed() {
    this.painting = null;
    this.stale = true;
    this.redraw();
  }
  redraw() {
    if (this.waiting || this.closed) return;
    this.waiting = true;
    requestAnimationFrame(now => {
      this.waiting = false;
      this.frame(now);
    });
  }

  frame(now) {
    if (this.last_frame && now - this.last_frame < 1000) {
      this.frames.push(now - this.last_frame);
      if (this.frames.length > 600) this.frames.shift();
      // What the browser does with a slice comes after it: the time from frame to frame tells.
      if (this.painting) this.slice = Math.max(300, Math.min(20000, this.slice * (now - this.last_frame > kFrame ? 0.6 : 1.3)));
    }
    this.last_frame = now;
    if (!this.graph || !this.ratio) return;
    if (!this.painting && (this.stale || !this.shown || !same(this.shown, this.view))) {
      this.stale = false;
      this.painted = {...this.view};
      this.painting = this.paint(this.back.getContext("2d", {alpha: false}), this.painted);
    }
    if (this.painting && this.painting.next().done) {
      [this.front, this.back] = [this.back, this.front];
      this.shown = this.painted;
      this.painting = null;
    }
    this.compose();
    if (this.painting || this.stale || !this.shown || !same(this.shown, this.view)) this.redraw();
    else this.last_frame = 0;
  }

  /** Shows the last picture where the view has moved to, and over it what follows the pointer. */
  compose() {
    const c = this.context, ratio = this.ratio;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = this.colours.back;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    if (this.shown) {
      const f = this.view.k / this.shown.k;
      c.imageSmoothingEnabled = f !== 1;
      c.drawImage(this.front, (this.view.x - this.shown.x * f) * ratio, (this.view.y - this.shown.y * f) * ratio,
        this.front.width * f, this.front.height * f);
    }
    const {k, x, y} = this.view;
    c.setTransform(k * ratio, 0, 0, k * ratio, x * ratio, y * ratio);
    this.highlight(c);
  }

  highlight(c) {
    const g = this.graph, k = this.view.k;
    const outline = (node, name, width) => {
      c.strokeStyle = this.colours[name];
      c.lineWidth = width / k;
      c.strokeRect(g.x[node] - g.w[node] / 2 - 2 / k, g.y[node] - g.h[node] / 2 - 2 / k, g.w[node] + 4 / k, g.h[node] + 4 / k);
    };
    for (const node of this.matches.slice(0, 2000)) outline(node, "warn", 2);
    const focus = this.selected >= 0 ? this.selected : this.hovered;
    if (focus < 0) return;
    this.trace(c, focus);
    const box = [focus, ...g.sources[focus].slice(0, 200)];
    for (const node of box) if (k > kTextScale) this.node(c, node);
    if (this.hovered >= 0) outline(this.hovered, "dim", 1.5);
    if (this.selected >= 0) outline(this.selected, "accent", 2.5);
  }
  /** Draws the edges to a node and from it. */
  trace(c, focus) {
    const g = this.graph, links = g.links, sources = new Set(g.sources[focus]);
    if (this.traced !== focus || this.traced_graph !== g) {
      this.traced = focus;
      this.traced_graph = g;
      this.traced_in = [];
      this.traced_out = [];
      const ends = new Map();  // of edges with bends: which bend leads to the node
      for (let i = 0; i < links.length; i += 3) {
        if (links[i + 2] === focus) this.traced_out.push(i);
        else if (links[i + 1] === focus && sources.has(links[i + 2])) ends.set(links[i], links[i + 2]);
        if (links[i + 1] === focus && links[i + 2] !== focus) this.traced_in.push(i);
      }
      for (let i = links.length - 3; i >= 0; i -= 3) {
        if (!ends.has(links[i + 1]) || links[i + 1] < g.nodes) continue;
        this.traced_in.push(i);
        ends.set(links[i], links[i + 2]);
      }
    }
    for (const [list, name] of [[this.traced_in, "edge-in"], [this.traced_out, "edge-out"]]) {
      c.beginPath();
      for (const i of list) this.link(c, i);
      c.strokeStyle = this.colours[name];
      c.lineWidth = Math.max(1.6, 1.6 / this.view.k);
      c.stroke();
    }
  }

  link(c, i) {
    const g = this.graph, from = g.links[i], to = g.links[i + 1];
    const x0 = g.x[from], x1 = g.x[to];
    const y0 = g.y[from] + (from < g.nodes ? g.h[from] / 2 : 0), y1 = g.y[to] - (to < g.nodes ? g.h[to] / 2 : 0);
    c.moveTo(x0, y0);
    if (this.view.k < kRoundScale || Math.abs(x0 - x1) < 1) c.lineTo(x1, y1);
    else c.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
  }

  node(c, i) {
    const g = this.graph, w = g.w[i], h = g.h[i], left = g.x[i] - w / 2, top = g.y[i] - h / 2, colours = this.colours;
    const kind = colours[g.classes[g.op[i]]], state = g.state.length ? kStates[g.state[i]] : "";
    c.beginPath();
    c.roundRect(left, top, w, h, 5);
    c.fillStyle = state ? colours[state] : colours.node;
    c.fill();
    c.lineWidth = state ? 1.6 : 1;
    c.strokeStyle = state === "added" ? colours.good : state === "removed" ? colours.bad : state === "rebuilt" ? colours.warn : kind;
    if (state === "removed") c.setLineDash([5, 4]);
    c.stroke();
    c.setLineDash([]);
    c.fillStyle = kind;
    c.fillRect(left + 1, top + 5, 3, h - 10);
    const op = g.texts[g.op[i]], line = g.texts[g.line[i]];
    const y = line ? top + 17 : top + h / 2 + 4;
    c.font = `bold 12px ${this.mono}`;
    c.fillStyle = kind;
    c.fillText(op, left + 10, y);
    c.font = `10.5px ${this.mono}`;
    c.fillStyle = colours.dim;
    c.fillText(g.texts[g.type[i]], left + 10 + op.length * 7.3 + 7, y);
    if (!line) return;
    c.fillStyle = colours.text;
    c.fillText(line, left + 10, top + 34);
  }

  /** Paints a view, a slice at a time. */
  *paint(c, view) {
    const g = this.graph, {k, x, y} = view, ratio = this.ratio, layers = this.layers;
    const left = -x / k, right = (this.canvas.clientWidth - x) / k, top = -y / k, bottom = (this.canvas.clientHeight - y) / k;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = this.colours.back;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    c.setTransform(k * ratio, 0, 0, k * ratio, x * ratio, y * ratio);
    const from = Math.max(0, first(layers, layer => layer.y + layer.half >= top) - 1);
    const to = first(layers, layer => layer.y - layer.half > bottom);
    let left_of_slice = this.slice;

    // Links, a path for each slice.
    const in_view = [];
    for (let l = from; l < to; l++) {
      const {links, right: ends} = layers[l];
      for (let i = first(ends, end => end >= left); i < links.length; i++) {
        const at = links[i], a = g.x[g.links[at]], b = g.x[g.links[at + 1]];
        if (Math.min(a, b) > right) break;
        if (Math.max(a, b) >= left) in_view.push(at);
      }
    }
    for (const at of this.far) {
      const a = g.links[at], b = g.links[at + 1];
      if (g.y[b] >= top && g.y[a] <= bottom && Math.max(g.x[a], g.x[b]) >= left && Math.min(g.x[a], g.x[b]) <= right) in_view.push(at);
    }
    const stride = Math.max(1, in_view.length / kMostLinks);
    c.strokeStyle = this.colours.edge;
    c.lineWidth = Math.max(1, 0.5 / k);
    c.globalAlpha = stride > 1 ? 0.6 : 1;
    c.beginPath();
    for (let i = 0; i < in_view.length; i += stride) {
      this.link(c, in_view[Math.floor(i)]);
      if (--left_of_slice > 0) continue;
      c.stroke();
      yield;
      left_of_slice = this.slice;
      c.beginPath();
    }
    c.stroke();
    c.globalAlpha = 1;

    // Nodes: whole, or bars in the colour of their kind.
    const whole = k >= kRoundScale;
    const groups = new Map();
    const flush = () => {
      for (const [style, path] of groups) {
        c.fillStyle = style;
        c.fill(path);
      }
      groups.clear();
    };
    for (let l = from; l < to; l++) {
      const {nodes} = layers[l];
      for (let i = first(nodes, node => g.x[node] + g.w[node] / 2 >= left); i < nodes.length; i++) {
        const node = nodes[i];
        if (g.x[node] - g.w[node] / 2 > right) break;
        if (whole) {
          this.node(c, node);
          left_of_slice -= 8;
        } else {
          const state = g.state.length ? g.state[node] : 0;
          const style = state === 1 ? this.colours.good : state === 2 ? this.colours.bad : this.colours[g.classes[g.op[node]]];
          let path = groups.get(style);
          if (!path) groups.set(style, path = new Path2D());
          const w = Math.max(g.w[node], 1.2 / k), h = Math.max(g.h[node], 1.2 / k);
          path.rect(g.x[node] - w / 2, g.y[node] - h / 2, w, h);
          left_of_slice--;
        }
        if (left_of_slice > 0) continue;
        flush();
        yield;
        left_of_slice = this.slice;
      }
    }
    flush();
  }
}

/** Returns the first index for which `test` holds; it holds for all behind it. */
function first(list, test) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(list[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}
