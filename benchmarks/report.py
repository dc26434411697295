"""docs/performance.md and its figures from a stored comparison: tables, bars of ratios, a roofline. Drawn as SVG by
hand; nothing here measures."""
import json, math, pathlib
from rows import BY_NAME, Row

TITLES = {"matmul": "Products of matrices", "conv": "Convolutions",
          "memory": "Elementwise work, reductions, rows of a matrix", "models": "Attention and models",
          "quantized": "Quantized products", "zoo": "Networks", "collective": "Several processes"}
OURS = "tg"
STYLE = "font-family='sans-serif' font-size='11'"


def load(path: pathlib.Path) -> tuple[dict, list[dict]]:
  """The machine and the rows of a file of JSON lines."""
  machine, rows = {}, []
  for number, line in enumerate(path.read_text().splitlines(), 1):
    if not line.strip(): continue
    try: value = json.loads(line)
    except json.JSONDecodeError as e: raise SystemExit(f"{path}:{number}: {e}") from None
    if "machine" in value: machine = value
    elif value.get("name") in BY_NAME: rows.append(value)
    else: raise SystemExit(f"{path}:{number}: {value.get('name')!r} is no row")
  if not rows: raise SystemExit(f"{path} holds no rows")
  return machine, rows


def rate(row: Row, ms: float) -> str:
  """GFLOP/s of rows that compute, GB/s of rows that move memory."""
  if row.flops and row.kind != "gemv": return f"{row.flops / ms / 1e6:.3g} GFLOP/s"
  return f"{row.bytes / ms / 1e6:.3g} GB/s" if row.bytes else ""


def peak_fraction(row: Row, ms: float, peaks: dict) -> float | None:
  """Of the roof that binds: arithmetic or memory."""
  if not peaks or not (row.flops or row.bytes): return None
  memory = peaks["read"] if row.group == "quantized" or row.kind in ("gemv", "sum", "max",
                                                                     "mean") else max(peaks["triad"],
                                                                         peaks["triad_stream"])
  return max(row.flops / ms / 1e6 / peaks["fma"],
             row.bytes / ms / 1e6 / memory if row.group in ("memory", "quantized") or row.kind == "gemv" else 0)


# ---- figures ----

def svg(width: float, height: float, body: list[str]) -> str:
  return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' width='{width:g}' "
                    f"height='{height:g}' {STYLE}>",
                    f"<rect width='{width:g}' height='{height:g}' fill='white'/>", *body, "</svg>", ""])


def text(x: float, y: float, value: str, anchor: str = "start", more: str = "") -> str:
  value = value.replace("&", "&amp;").replace("<", "&lt;")
  return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' {more}>{value}</text>"


def line(x0: float, y0: float, x1: float, y1: float, colour: str = "#bbb", more: str = "") -> str:
  return f"<line x1='{x0:.1f}' y1='{y0:.1f}' x2='{x1:.1f}' y2='{y1:.1f}' stroke='{colour}' {more}/>"


def bars(rows: list[dict]) -> str:
  """Our time as a fraction of the best peer's, with its quartiles; a line at one."""
  left, right, step, width = 250, 60, 17, 760
  top = max(1.5, min(4, max(r["spread"][OURS][1] / r["ours"] * r["ratio"] for r in rows)))
  def x(v: float) -> float: return left + (width - left - right) * min(v, top) / top
  height, body = 30 + step * len(rows), []
  for tick in [t / 2 for t in range(int(top * 2) + 1)]:
    body += [line(x(tick), 18, x(tick), height - 6, "#222" if tick == 1 else "#ddd"),
             text(x(tick), 13, f"{tick:g}", "middle")]
  for i, r in enumerate(rows):
    y, ratio = 22 + step * i, r["ratio"]
    low, high = (q / r["ours"] * ratio for q in r["spread"][OURS])
    body += [text(left - 8, y + 11, r["name"], "end"),
             f"<rect x='{left}' y='{y}' width='{x(ratio) - left:.1f}' height='{step - 5}' "
             f"fill='{'#27ae60' if ratio <= 1 else '#e67e22' if ratio <= 1.2 else '#c0392b'}'/>",
             line(x(low), y + 6, x(high), y + 6, "#222"), text(x(ratio) + 5, y + 10, f"{ratio:.2f} {r['best']}")]
  return svg(width, height, body)


def roofline(rows: list[dict], peaks: dict) -> str:
  """Arithmetic rate over flops per byte, ours and the best peer's, under the machine's measured limits."""
  left, top, width, height = 55, 15, 760, 400
  points = [(BY_NAME[r["name"]], r) for r in rows if BY_NAME[r["name"]].flops and BY_NAME[r["name"]].bytes]
  low, high = -1.0, 3.2   # powers of ten: flops per byte
  memory, fma = max(peaks["read"], peaks["triad"], peaks["triad_stream"]), peaks["fma"]
  floor, ceiling = math.log10(memory) + low, math.log10(fma) + 0.3
  def x(v: float) -> float: return left + (width - left - 20) * (math.log10(v) - low) / (high - low)
  def y(v: float) -> float: return height - 35 - (height - 35 - top) * (math.log10(v) - floor) / (ceiling - floor)
  knee, body = fma / memory, []
  for power in range(math.ceil(low), math.floor(high) + 1):
    body += [line(x(10 ** power), top, x(10 ** power), height - 35, "#eee"),
             text(x(10 ** power), height - 20, f"{10.0 ** power:g}", "middle")]
  for power in range(math.ceil(floor), math.floor(ceiling) + 1):
    body += [line(left, y(10 ** power), width - 20, y(10 ** power), "#eee"),
             text(left - 6, y(10 ** power) + 4, f"{10.0 ** power:g}", "end")]
  body += [line(x(10 ** low), y(memory * 10 ** low), x(knee), y(fma), "#222", "stroke-width='2'"),
           line(x(knee), y(fma), x(10 ** high), y(fma), "#222", "stroke-width='2'"),
           text(x(knee) + 10, y(fma) - 5, f"{fma:.0f} GFLOP/s fused multiply-add"),
           text(x(0.13), y(memory * 0.2), f"{memory:.0f} GB/s memory"),
           text((left + width) / 2, height - 5, "flops per byte of operands and results", "middle"),
           text(4, 11, "GFLOP/s")]
  for row, r in points:
    for value, colour in ((min(r["peers"].values(), default=0), "#2980b9"), (r["ours"], "#c0392b")):
      if value:
        gflops = max(row.flops / value / 1e6, 10 ** floor)
        body.append(f"<circle cx='{x(row.flops / row.bytes):.1f}' cy='{y(gflops):.1f}' r='4' fill='{colour}' fill-opacity='0.75'>"
                    f"<title>{row.name}: {row.flops / value / 1e6:.3g} GFLOP/s</title></circle>")
  for i, (label, colour) in enumerate((("tinygrad.cpp", "#c0392b"), ("the best peer", "#2980b9"))):
    body += [f"<circle cx='{width - 130}' cy='{height - 70 + 16 * i}' r='4' fill='{colour}'/>",
             text(width - 120, height - 66 + 16 * i, label)]
  return svg(width, height, body)


# ---- the document ----

def table(rows: list[dict], peers: list[str], peaks: dict) -> list[str]:
  peers = [p for p in peers if any(p in r["peers"] for r in rows)]
  out = ["| work | ours, ms | quartiles | rate | of peak | " + " | ".join(peers) + " | ratio |",
         "|---" * (6 + len(peers)) + "|"]
  for r in rows:
    row, fraction = BY_NAME[r["name"]], peak_fraction(BY_NAME[r["name"]], r["ours"], peaks)
    low, high = r["spread"][OURS]
    cells = [f"`{r['name']}`", f"{r['ours']:.4g}", f"{low:.4g} .. {high:.4g}", rate(row, r["ours"]),
             f"{100 * fraction:.0f} %" if fraction else "",
             *(f"{r['peers'][p]:.4g}" if p in r["peers"] else "" for p in peers),
             f"**{r['ratio']:.2f}**" if r["ratio"] else ""]
    out.append("| " + " | ".join(cells) + " |")
  return out


def document(machine: dict, rows: list[dict], figures: str) -> tuple[str, dict[str, str]]:
  """The text, and the figures by file name."""
  order = {name: i for i, name in enumerate(BY_NAME)}
  rows = sorted(rows, key=lambda r: (r["threads"], order[r["name"]]))
  versions = {p: v for r in rows for p, v in r.get("versions", {}).items()}
  peers = sorted(versions)
  pairs = min(r["pairs"] for r in rows)
  out = ["# Performance", "",
         f"Made by `benchmarks/compare.py --store FILE` and `--store FILE --markdown docs/performance.md`; do not "
         f"edit. Machine: {machine.get('machine', 'unknown')}. Peers: "
         + ", ".join(f"{p} {versions[p]}" for p in peers) + ".", "",
         f"Times are medians in milliseconds of at least {pairs} rounds in which all programs took turns, each a "
         f"process of its own on the same processors with as many threads, "
         "which wait passively; a peer more than four times slower than the best has fewer samples. The ratio is our "
         "time to the best peer's: below one we are faster. Quartiles "
         "are ours. Rates count the arithmetic and the operands of the task, not what a program does beyond.", ""]
  drawings: dict[str, str] = {}
  for threads in sorted({r["threads"] for r in rows}):
    mine, peaks = [r for r in rows if r["threads"] == threads], machine.get("peaks", {}).get(str(threads), {})
    out += [f"## {threads} thread{'s' if threads > 1 else ''}", ""]
    if peaks:
      out += [f"Measured limits: {peaks['fma']:.0f} GFLOP/s of fused multiply-add, {peaks['read']:.0f} GB/s reading, "
              f"{peaks['triad']:.0f} GB/s triad, "
              f"{peaks['triad_stream']:.0f} with stores past the caches.", ""]
      drawings[f"roofline_{threads}.svg"] = roofline(mine, peaks)
      out += [f"![Roofline]({figures}/roofline_{threads}.svg)", ""]
    for group, title in TITLES.items():
      if not (some := [r for r in mine if BY_NAME[r["name"]].group == group]): continue
      out += [f"### {title}", ""]
      if drawn := [r for r in some if r["ratio"]]:
        drawings[f"{group}_{threads}.svg"] = bars(drawn)
        out += [f"![{title}: our time to the best peer's]({figures}/{group}_{threads}.svg)", ""]
      out += [*table(some, peers, peaks), ""]
  return "\n".join(out), drawings


def write(store: pathlib.Path, markdown: pathlib.Path) -> None:
  """The document, and its figures in a folder of its name beside it."""
  body, drawings = document(*load(store), markdown.stem)
  folder = markdown.with_suffix("")
  folder.mkdir(parents=True, exist_ok=True)
  markdown.write_text(body)
  for name, drawing in drawings.items(): (folder / name).write_text(drawing)
