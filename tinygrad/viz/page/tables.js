// Kernels with their roofline, rules, and two recordings next to each other.
"use strict";
import {ask, bytes, code, count, make, rate, showTip, time, valueOf} from "./parts.js";

const kMostRows = 1500;

/** Makes a table that is sorted by the column whose head is clicked. Columns: title, value to sort by, text or element. */
export function table(columns, rows, {sort = 0, onclick = null} = {}) {
  let by = sort, down = true;
  const head = make("tr"), body = make("tbody");
  const fill = () => {
    const {value} = columns[by], sign = down ? -1 : 1;
    const order = (a, b) => sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
    const sorted = [...rows].sort((a, b) => order(value(a), value(b)));
    head.replaceChildren(...columns.map((c, i) => make("th", {class: c.class ?? ""}, make("button", {type: "button", onclick: () => {
      down = by === i ? !down : true;
      by = i;
      fill();
    }}, `${c.title}${by === i ? down ? " ↓" : " ↑" : ""}`))));
    body.replaceChildren(...sorted.slice(0, kMostRows).map(row => {
      const line = make("tr", onclick ? {onclick: () => onclick(row), tabIndex: 0, onkeydown: e => e.key === "Enter" && onclick(row)} : {},
        ...columns.map(c => make("td", {class: c.class ?? ""}, c.cell ? c.cell(row) : String(c.value(row)))));
      if (onclick) line.style.cursor = "pointer";
      return line;
    }));
    if (rows.length > kMostRows) body.append(make("tr", {}, make("td", {class: "note"}, `${rows.length - kMostRows} more`)));
  };
  fill();
  return make("table", {}, make("thead", {}, head), body);
}

const card = (title, note, ...children) => make("section", {class: "card"}, make("h2", {}, title), note ? make("p", {}, note) : null, ...children);

/** Returns what ran, by kernel: how often, how long, what that is a second. */
function measured({overview, timeline, kernels, launches}) {
  const rows = [];
  for (const [key, l] of launches) {
    const kernel = kernels.get(key), operations = kernel ? Number(valueOf(kernel, "operations")) : NaN;
    const moved = kernel ? Number(valueOf(kernel, "bytes")) : NaN;
    rows.push({key, kernel, device: l.track, name: l.name, what: l.what, launches: l.count, total: l.total, fastest: l.fastest,
      operations, moved, flops: operations / l.fastest * 1e9, bandwidth: moved / l.fastest * 1e9});
  }
  return rows.sort((a, b) => b.total - a.total);
}

export class KernelView {
  constructor(main, app) {
    this.main = main;
    this.app = app;
  }
  close() { showTip(null, null); }
  recolour() { this.show(); }

  async show() {
    const app = this.app, {overview} = app, rows = measured(app), all = rows.reduce((sum, r) => sum + r.total, 0);
    const open = row => row.kernel && app.go({view: "graphs", span: row.kernel.id, node: null, graph: null, step: null, text: null});
    const tile = (value, what) => make("div", {class: "tile"}, make("b", {}, value), make("span", {}, what));
    const plot = make("div");
    const columns = [
      {title: "kernel", value: r => r.name, class: "mono"},
      {title: "computes", value: r => r.what, class: "mono"},
      {title: "time", value: r => r.total, cell: r => time(r.total)},
      {title: "share", value: r => r.total, cell: r => {
        const bar = make("span", {class: "bar"});
        bar.style.width = `${Math.max(1, 70 * r.total / rows[0].total)}px`;
        return make("span", {}, bar, ` ${(100 * r.total / all).toFixed(1)} %`);
      }},
      {title: "launches", value: r => r.launches},
      {title: "fastest", value: r => r.fastest, cell: r => time(r.fastest)},
      {title: "operations/s", value: r => r.flops || 0, cell: r => Number.isFinite(r.flops) ? rate(r.flops, "") : "?"},
      {title: "memory/s", value: r => r.bandwidth || 0, cell: r => Number.isFinite(r.bandwidth) ? bytes(r.bandwidth) : "?"},
    ];
    this.main.replaceChildren(make("div", {class: "page"},
      make("div", {class: "tiles"}, tile(time(all), "in kernels"), tile(count(rows.reduce((sum, r) => sum + r.launches, 0)), "launches of kernels"),
        tile(count(overview.kernels), "kernels compiled"), tile(count(overview.rewrites), "rewrites"), tile(time(overview.nanoseconds), "whole recording")),
      card("Roofline", "", plot),
      card("Kernels", "", rows.length ? table(columns, rows, {sort: 2, onclick: open}) : make("p", {class: "note"}, "Nothing was launched"))));
    const shown = rows.filter(r => r.operations > 0 && r.moved > 0 && r.fastest > 0);
    plot.replaceChildren(make("p", {class: "note"}, "Measuring what this machine can do …"));
    const roof = await roof_of(shown, app);
    plot.replaceChildren(make("p", {class: "note"}, `Each kernel at its fastest launch; the area is its share of the time. ${roof.says}`));
    if (shown.length) roofline(plot, shown, roof, all, open);
  }
}

/** Returns the limits that kernels are compared with: those of this machine's processor where they ran on one. */
async function roof_of(rows, app) {
  const machine = rows.every(r => /^CPU\b/.test(r.device)) ? await app.machine() : {operations: 0, bytes: 0};
  if (machine.operations && machine.bytes)
    return {...machine, says: "The roof is what this machine's processor can do, by measurement: multiply-adds in registers, and reading memory. Kernels above the slope find their data in caches."};
  return {operations: d3.max(rows, r => r.flops), bytes: d3.max(rows, r => r.bandwidth),
    says: "The roof is the highest rate of operations and of memory that any kernel here reached."};
}

/** Draws operations a second over operations per byte, both logarithmic. */
function roofline(box, rows, roof, all, open) {
  const width = Math.max(320, box.clientWidth || 900), height = 330, edge = {left: 62, right: 18, top: 12, bottom: 40};
  const intensity = r => r.operations / r.moved;
  const [low, high] = d3.extent(rows, intensity), [slow, fastest] = d3.extent(rows, r => r.flops);
  const memory = roof.bytes, fast = Math.max(fastest, roof.operations), peak = roof.operations;
  const x = d3.scale.log().domain([low / 2, high * 2]).range([edge.left, width - edge.right]);
  const y = d3.scale.log().domain([slow / 2, fast * 2]).range([height - edge.bottom, edge.top]);
  const svg = d3.select(box).append("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("height", height).attr("role", "img").attr("aria-label", "Roofline");
  // A label for each power of ten, where there is room.
  const axis = (scale, orient, unit, ticks) => d3.svg.axis().scale(scale).orient(orient).tickSize(4)
    .tickValues(scale.ticks(ticks).filter(v => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6)).tickFormat(unit);
  svg.append("g").attr("class", "axis").attr("transform", `translate(0 ${height - edge.bottom})`).call(axis(x, "bottom", v => String(+v.toPrecision(2)), 6));
  svg.append("g").attr("class", "axis").attr("transform", `translate(${edge.left} 0)`).call(axis(y, "left", v => rate(v, ""), 6));
  svg.append("text").attr("x", (edge.left + width - edge.right) / 2).attr("y", height - 6).attr("text-anchor", "middle").text("operations per byte");
  svg.append("text").attr("transform", `translate(14 ${(height - edge.bottom) / 2}) rotate(-90)`).attr("text-anchor", "middle").text("operations per second");
  const knee = peak / memory, points = [[low / 2, Math.min(peak, memory * low / 2)]];
  if (knee > low / 2 && knee < high * 2) points.push([knee, peak]);
  points.push([high * 2, Math.min(peak, memory * high * 2)]);
  svg.append("path").attr("class", "roof seen").attr("d", d3.svg.line().x(p => x(p[0])).y(p => y(Math.max(slow / 2, p[1])))(points));
  svg.append("text").attr("x", x(Math.min(high, Math.max(knee, low / 2))) + 8).attr("y", y(peak) - 5).text(`${rate(peak, "")} operations/s`);
  svg.append("text").attr("x", x(low / 2) + 8).attr("y", Math.max(24, y(Math.max(slow / 2, points[0][1])) - 8)).text(`${bytes(memory)}/s`);
  svg.selectAll("circle").data(rows).enter().append("circle").attr("class", "dot").attr("cx", r => x(intensity(r))).attr("cy", r => y(r.flops))
    .attr("r", r => 3 + 22 * Math.sqrt(r.total / all)).on("click", open)
    .on("mousemove", r => showTip(d3.event, [r.name, r.what, `${rate(r.flops, "")} operations/s, ${bytes(r.bandwidth)}/s`,
      `${intensity(r).toPrecision(3)} operations per byte`, `${time(r.total)} in ${r.launches} launches`]))
    .on("mouseleave", () => showTip(null, null));
}

export class RuleView {
  constructor(main, app) {
    this.main = main;
    this.app = app;
  }
  show() {
    const {rules} = this.app.overview;
    const columns = [
      {title: "rule", value: r => r.rule, class: "mono"},
      {title: "fired", value: r => r.hits, cell: r => count(r.hits)},
      {title: "tried", value: r => r.tries, cell: r => count(r.tries)},
      {title: "fires in", value: r => r.hits / Math.max(1, r.tries), cell: r => `${(100 * r.hits / Math.max(1, r.tries)).toFixed(1)} %`},
      {title: "time", value: r => r.nanoseconds, cell: r => time(r.nanoseconds)},
    ];
    this.main.replaceChildren(make("div", {class: "page"}, card("Rewrite rules", "How often each rule was tried and fired in the whole process, and what that took.",
      rules.length ? table(columns, rules, {sort: 4}) : make("p", {class: "note"}, "The totals are written when the program ends."))));
  }
}

export class CompareView {
  constructor(main, app) {
    this.main = main;
    this.app = app;
  }
  async show() {
    const {app} = this, version = app.files.map(f => f.version).join();
    if (this.version === version && this.file === app.state.file) return;
    [this.version, this.file] = [version, app.state.file];
    if (app.files.length < 2) {
      this.main.replaceChildren(make("div", {class: "page"}, card("Compare", "Give two files: tg viz before.viz after.viz")));
      return;
    }
    const sides = await Promise.all([0, 1].map(file => app.index_of(file)));
    const rows = new Map();
    sides.forEach((side, i) => {
      for (const r of measured(side)) {
        // Equal kernels have equal keys; what was compiled otherwise has its name or what it computes.
        if (!rows.has(r.key)) rows.set(r.key, {name: r.name, what: r.what, sides: [null, null]});
        rows.get(r.key).sides[i] = r;
      }
    });
    const all = [...rows.values()], total = i => d3.sum(all, r => r.sides[i]?.total ?? 0);
    const ratio = r => r.sides[0] && r.sides[1] ? r.sides[1].total / r.sides[1].launches / (r.sides[0].total / r.sides[0].launches) : NaN;
    const mean = (r, i) => r.sides[i] ? r.sides[i].total / r.sides[i].launches : -1;
    const tone = f => Number.isNaN(f) ? "note" : f < 0.95 ? "better" : f > 1.05 ? "worse" : "";
    const cell = i => r => r.sides[i] ? time(mean(r, i)) : "–";
    const columns = [
      {title: "kernel", value: r => r.name, class: "mono"}, {title: "computes", value: r => r.what, class: "mono"},
      {title: app.files[0].file, value: r => mean(r, 0), cell: cell(0)}, {title: app.files[1].file, value: r => mean(r, 1), cell: cell(1)},
      {title: "second to first", value: r => ratio(r) || -1, cell: r => make("span", {class: tone(ratio(r))}, Number.isNaN(ratio(r)) ? "only one" : `${ratio(r).toFixed(2)} ×`)},
      {title: "difference", value: r => Math.abs((r.sides[1]?.total ?? 0) - (r.sides[0]?.total ?? 0)), cell: r => {
        const d = (r.sides[1]?.total ?? 0) - (r.sides[0]?.total ?? 0);
        return `${d > 0 ? "+" : d < 0 ? "−" : ""}${time(Math.abs(d))}`;
      }},
    ];
    const beside = make("div", {id: "beside"});
    const open = async r => {
      const panes = await Promise.all(r.sides.map(async (side, i) => {
        const span = side?.kernel ? await ask("span", {file: i, span: side.kernel.id}) : null;
        return make("div", {}, make("p", {class: "note"}, side ? `${app.files[i].file}: ${side.name}, ${span ? valueOf(span, "opts") : ""}` : `not in ${app.files[i].file}`),
          ...(span?.texts.length ? [code(span.texts[0].text)] : []));
      }));
      beside.replaceChildren(card(r.name, "", make("div", {class: "two"}, ...panes)));
      beside.scrollIntoView({behavior: "smooth"});
    };
    const [a, b] = [total(0), total(1)];
    this.main.replaceChildren(make("div", {class: "page"},
      make("div", {class: "tiles"}, ...[[time(a), app.files[0].file], [time(b), app.files[1].file], [a ? `${(b / a).toFixed(2)} ×` : "–", "second to first, time in kernels"],
        [String(all.filter(r => r.sides[0] && r.sides[1]).length), "kernels in both"], [String(all.filter(r => !r.sides[0] || !r.sides[1]).length), "in one of them"]]
        .map(([value, what]) => make("div", {class: "tile"}, make("b", {}, value), make("span", {}, what)))),
      card("Kernels, mean time of a launch", "A row shows both sources.", table(columns, all, {sort: 5, onclick: open})), beside));
  }
}
