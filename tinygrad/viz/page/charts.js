// What happened when: launches, compilation, spans and memory over time.
"use strict";
import {bytes, colour, make, showTip, time, times} from "./parts.js";
import {table} from "./tables.js";

const kGutter = 132, kRow = 20, kGap = 8, kMemory = 84, kAxis = 24, kLetter = 6.1;
const kHues = [217, 262, 172, 32, 330, 95, 195, 285, 12, 150, 48, 240];

/** A colour for each name, the same in every run. */
function tint(name, dark) {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
  return `hsl(${kHues[hash % kHues.length]} ${dark ? 42 : 62}% ${(dark ? 36 : 72) + (hash >>> 8) % 9}%)`;
}

/** Sorts bars into as many rows as overlap. */
function pack(bars) {
  const rows = [];
  bars.sort((a, b) => a.begin - b.begin || b.end - a.end);
  for (const bar of bars) {
    let row = rows.findIndex(r => r[r.length - 1].end <= bar.begin);
    if (row < 0) row = rows.push([]) - 1;
    rows[row].push(bar);
  }
  return rows;
}

export class TimelineView {
  constructor(main, app) {
    this.app = app;
    this.canvas = make("canvas", {id: "timeline", tabIndex: 0, ariaLabel: "Timeline"});
    this.range = make("span", {class: "note", id: "range"});
    this.paper = make("div", {class: "paper"}, this.canvas);
    main.replaceChildren(make("div", {class: "timeline"}, make("div", {class: "bar-tools"}, make("b", {}, "Timeline"), this.range,
      make("span", {class: "note"}, "wheel zooms, drag moves, a click opens the kernel"),
      make("button", {type: "button", onclick: () => this.set(0, this.length)}, "All"),
      make("a", {class: "link", href: `api/trace?file=${app.state.file}`, download: "trace.json", title: "For ui.perfetto.dev"}, "Save for Perfetto")), this.paper));
    this.x = d3.scale.linear();
    this.zoom = d3.behavior.zoom().scaleExtent([1, 1e7]).on("zoom", () => this.moved());
    d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("pointermove", event => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => showTip(null, null));
    let down = 0;
    this.canvas.addEventListener("pointerdown", event => down = event.clientX);
    this.canvas.addEventListener("click", event => {
      const bar = Math.abs(event.clientX - down) < 4 ? this.at(event) : null;
      const span = bar?.key ? app.kernel_of(bar.key)?.id : bar?.span;
      if (span) app.go({view: "graphs", span, node: null, graph: null, step: null, text: null});
    });
    this.resizer = new ResizeObserver(() => this.resize());
    this.resizer.observe(this.paper);
  }
  close() {
    this.resizer.disconnect();
    showTip(null, null);
  }
  recolour() { this.draw(); }
  refresh() {
    this.read = null;
    this.show();
  }

  show() {
    if (this.read !== this.app.overview) {
      this.read = this.app.overview;
      this.length = Math.max(1, this.read.nanoseconds);
      this.sections = [...this.tracks(), ...this.flames()];
      this.resize();
    }
    const {begin, end} = this.app.state;
    if (end > begin) this.set(begin, end);
    else this.draw();
  }

  tracks() {
    const lanes = new Map();
    for (const [track, lane, name, begin, end, span, details] of this.app.timeline.events) {
      const title = lane ? `${track} ${lane}` : track;
      if (!lanes.has(title)) lanes.set(title, []);
      lanes.get(title).push({name, begin, end, span, details, key: this.app.key_of(name, details)});
    }
    const place = title => title === "host" ? 1 : title.startsWith("compile") ? 2 : 0;  // devices first
    return [...lanes].sort((a, b) => place(a[0]) - place(b[0]) || (a[0] < b[0] ? -1 : 1)).map(([title, bars]) => ({title, rows: pack(bars)}));
  }
  /** Spans within spans, for each thread: a flame graph over time. */
  flames() {
    const depth = new Map(), threads = new Map();
    for (const s of [...this.app.overview.spans].sort((a, b) => a.id - b.id)) {
      const parent = this.app.span_of(s.parent);
      const d = parent && parent.thread === s.thread ? depth.get(parent.id) + 1 : 0;
      depth.set(s.id, d);
      if (!threads.has(s.thread)) threads.set(s.thread, []);
      const rows = threads.get(s.thread);
      (rows[d] ??= []).push({name: s.name && s.kind !== "pass" ? `${s.kind} ${s.name}` : s.name || s.kind, begin: s.begin, end: s.end, span: s.id,
        details: s.rewrites ? `${s.rewrites} rewrites` : ""});
    }
    return [...threads].sort((a, b) => a[0] - b[0]).map(([thread, rows]) => ({title: `thread ${thread}`,
      rows: rows.map(row => row.sort((a, b) => a.begin - b.begin))}));
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.paper.clientWidth, wanted = this.height_of(), height = Math.max(this.paper.clientHeight, wanted);
    if (!width || !this.sections) return;
    this.paper.style.overflowY = wanted > this.paper.clientHeight ? "auto" : "hidden";
    Object.assign(this.canvas.style, {position: "relative", height: `${height}px`, width: `${width}px`});
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const [begin, end] = this.x.domain(), was = this.width ? [begin, end] : [0, this.length];
    Object.assign(this, {width, height, ratio});
    this.set(...was);
  }
  height_of() {
    return kAxis + (this.sections ?? []).reduce((sum, s) => sum + s.rows.length * kRow + kGap, 0) + (this.app.overview?.memory.length ?? 0) * (kMemory + kGap) + 8;
  }

  /** Shows the time from `begin` to `end`. */
  set(begin, end) {
    end = Math.max(end, begin + 10);
    this.x.range([kGutter, this.width]).domain([0, this.length]);
    this.zoom.x(this.x);
    const k = Math.min(1e7, this.length / (end - begin)), whole = this.width - kGutter;
    this.zoom.scale(k).translate([kGutter - (kGutter + begin / this.length * whole) * k, 0]);
    this.draw();
  }
  moved() {
    const [begin, end] = this.x.domain(), margin = (end - begin) / 2;
    if (begin < -margin || end > this.length + margin) {
      const shift = begin < -margin ? -margin - begin : this.length + margin - end;
      return this.set(begin + shift, end + shift);
    }
    this.draw();
    clearTimeout(this.saving);
    this.saving = setTimeout(() => {
      const [from, to] = this.x.domain().map(t => Math.round(Math.max(0, Math.min(this.length, t))));
      const state = this.app.state;
      if (state.view !== "timeline") return;
      Object.assign(state, {begin: from, end: to});
      history.replaceState(null, "", `#${new URLSearchParams(Object.entries(state))}`);
    }, 300);
  }

  draw() {
    if (this.waiting || !this.width) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }
  paint() {
    const c = this.canvas.getContext("2d"), {x, width, height} = this, [begin, end] = x.domain();
    const dark = document.documentElement.dataset.theme === "dark", text = colour("text"), dim = colour("dim"), line = colour("line");
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    const ticks = x.ticks(Math.max(2, Math.floor((width - kGutter) / 110))), step = ticks.length > 1 ? ticks[1] - ticks[0] : end - begin;
    const labels = times(ticks, step);
    this.range.textContent = times([Math.max(0, begin), end], step).join(" to ");
    ticks.forEach((t, i) => {
      c.fillStyle = line;
      c.fillRect(x(t), kAxis - 6, 1, height);
      c.fillStyle = dim;
      c.fillText(labels[i], x(t) + 4, 10);
    });
    this.shown = [];
    let y = kAxis;
    for (const section of this.sections) {
      c.fillStyle = line;
      c.fillRect(0, y - kGap / 2, width, 1);
      c.save();
      c.beginPath();
      c.rect(kGutter, y, width - kGutter, section.rows.length * kRow);
      c.clip();
      for (const row of section.rows) {
        this.shown.push({y, row});
        this.bars(c, row, y, dark, text, begin, end);
        y += kRow;
      }
      c.restore();
      c.fillStyle = text;
      c.fillText(section.title, 12, y - section.rows.length * kRow + kRow / 2);
      y += kGap;
    }
    for (const curve of this.app.overview.memory) y = this.memory(c, curve, y, text, dim, line);
  }
  /** Draws the bars in view; of those within one pixel, the first. */
  bars(c, row, y, dark, text, begin, end) {
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row[middle].end >= begin) high = middle;
      else low = middle + 1;
    }
    let drawn = -1;
    for (let i = low; i < row.length && row[i].begin <= end; i++) {
      const bar = row[i], from = Math.max(kGutter - 2, this.x(bar.begin)), to = Math.min(this.width + 2, this.x(bar.end));
      if (to < drawn + 0.5) continue;
      c.fillStyle = tint(bar.name, dark);
      const w = Math.max(1, to - from - (to - from > 3 ? 1 : 0));
      c.fillRect(from, y + 1, w, kRow - 2);
      drawn = from + w;
      const letters = Math.floor((w - 8) / kLetter);
      if (letters < 3) continue;
      c.fillStyle = text;
      c.fillText(bar.name.length > letters ? `${bar.name.slice(0, letters - 1)}…` : bar.name, from + 4, y + kRow / 2 + 0.5);
    }
  }
  memory(c, curve, y, text, dim, line) {
    const height = kMemory - 10, peak = Math.max(1, curve.peak), place = v => y + height - height * v / peak;
    c.fillStyle = line;
    c.fillRect(0, y - kGap / 2, this.width, 1);
    c.save();
    c.beginPath();
    c.rect(kGutter, y, this.width - kGutter, kMemory);
    c.clip();
    c.beginPath();
    c.moveTo(kGutter, place(0));
    let last = 0, pixel = -1e9;
    for (const [t, v] of curve.points) {
      const at = Math.max(kGutter - 5, Math.min(this.width + 5, this.x(t)));
      if (at - pixel > 0.3) c.lineTo(at, place(last));
      c.lineTo(at, place(v));
      [last, pixel] = [v, at];
    }
    c.lineTo(this.width + 5, place(last));
    c.lineTo(this.width + 5, place(0));
    c.closePath();
    c.globalAlpha = 0.25;
    c.fillStyle = colour("accent");
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = colour("accent");
    c.stroke();
    c.restore();
    c.fillStyle = text;
    c.fillText(`${curve.device} memory`, 12, y + 10);
    c.fillStyle = dim;
    c.fillText(`most ${bytes(curve.peak)}`, 12, y + 26);
    return y + kMemory + kGap;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect(), px = event.clientX - box.left, y = event.clientY - box.top;
    const found = px < kGutter ? null : (this.shown ?? []).find(r => y >= r.y && y < r.y + kRow);
    if (!found) return null;
    const near = this.x.invert(px + 1.5), t = this.x.invert(px - 1.5);
    let low = 0, high = found.row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (found.row[middle].end >= t) high = middle;
      else low = middle + 1;
    }
    const bar = found.row[low];
    return bar && bar.begin <= near ? bar : null;
  }
  hover(event) {
    const bar = this.at(event);
    this.canvas.style.cursor = bar ? "pointer" : "crosshair";
    showTip(event, bar ? [bar.name, time(bar.end - bar.begin), `at ${time(bar.begin)}`, bar.details.replace(/(^|; )kernel \w+$/, "")] : null);
  }
  key(key) {
    const [begin, end] = this.x.domain(), w = end - begin;
    const acts = {"+": [begin + w / 4, end - w / 4], "-": [begin - w / 2, end + w / 2], f: [0, this.length],
      ArrowLeft: [begin - w / 5, end - w / 5], ArrowRight: [begin + w / 5, end + w / 5]};
    if (!acts[key]) return false;
    const [from, to] = acts[key], width = Math.min(this.length, to - from), start = Math.max(0, Math.min(this.length - width, from));
    this.set(start, start + width);
    this.moved();
    return true;
  }
}

export class MemoryView {
  constructor(main, app) {
    this.main = main;
    this.app = app;
  }
  recolour() {}
  show() {
    const {app} = this, {overview} = app;
    const cards = overview.memory.map(curve => {
      const plot = make("div"), rows = curve.owners.map(([span, held]) => ({span, held}));
      const columns = [
        {title: "taken in", value: r => r.span, cell: r => {
          const span = app.span_of(r.span), owner = span && app.owner_of(r.span);
          return owner ? make("button", {type: "button", class: "link", onclick: () => app.go({view: "graphs", span: r.span, node: null, graph: null, step: null, text: null})},
            `${span.kind} ${span.name} #${r.span}`) : "outside of all spans";
        }},
        {title: "bytes", value: r => r.held, cell: r => bytes(r.held)},
        {title: "share", value: r => r.held, cell: r => `${(100 * r.held / Math.max(1, curve.peak)).toFixed(1)} %`},
      ];
      return [plot, curve, make("section", {class: "card"}, make("h2", {}, `${curve.device}: most ${bytes(curve.peak)} at ${time(curve.peak_time)}`),
        make("p", {}, "Who held it then:"), plot, table(columns, rows, {sort: 1}))];
    });
    this.main.replaceChildren(make("div", {class: "page"}, ...cards.map(c => c[2]),
      ...(cards.length ? [] : [make("section", {class: "card"}, make("h2", {}, "Memory"), make("p", {}, "No device took memory."))])));
    for (const [plot, curve] of cards) chart(plot, curve, overview.nanoseconds);
  }
}

/** Draws how much memory is held over time; points within a pixel become the most of them. */
function chart(box, curve, length) {
  const width = Math.max(320, box.clientWidth || 900), height = 210, edge = {left: 70, right: 14, top: 12, bottom: 26};
  const x = d3.scale.linear().domain([0, Math.max(1, length)]).range([edge.left, width - edge.right]);
  const y = d3.scale.linear().domain([0, Math.max(1, curve.peak)]).nice(4).range([height - edge.bottom, edge.top]);
  const points = [[0, 0]];
  for (const [t, v] of curve.points) {
    const last = points[points.length - 1];
    if (x(t) - x(last[0]) < 0.4 && points.length > 1) last[1] = Math.max(last[1], v);
    else points.push([t, v]);
  }
  points.push([length, curve.points.length ? curve.points[curve.points.length - 1][1] : 0]);
  const svg = d3.select(box).append("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("height", height).attr("role", "img").attr("aria-label", "Memory over time");
  svg.append("g").attr("class", "axis grid").attr("transform", `translate(${edge.left} 0)`)
    .call(d3.svg.axis().scale(y).orient("left").ticks(4).tickSize(-(width - edge.left - edge.right)).tickFormat(bytes));
  svg.append("g").attr("class", "axis").attr("transform", `translate(0 ${height - edge.bottom})`).call(d3.svg.axis().scale(x).orient("bottom").ticks(7).tickSize(4).tickFormat(t => t ? time(t) : "0"));
  const area = d3.svg.area().x(p => x(p[0])).y0(y(0)).y1(p => y(p[1])).interpolate("step-after");
  svg.append("path").attr("d", area(points)).attr("fill", "var(--accent)").attr("fill-opacity", 0.25).attr("stroke", "var(--accent)");
}
