"""Writes recordings for tests of the page: large ones, and ones with hostile names. tinygrad/base/recording_format.h
says what is in them."""
import struct
import zlib

MAGIC = b"TGVIZ\r\n\x01"
NAME, TOTAL, NODE, OPEN, CLOSE, VALUE, TEXT, GRAPH, REWRITE, EVENT, MEMORY = range(1, 12)


def number(v):
  out = bytearray()
  while v >= 0x80:
    out.append(v & 0x7f | 0x80)
    v >>= 7
  out.append(v)
  return bytes(out)


class RecordingWriter:
  def __init__(self):
    self.records, self.names, self.blocks = bytearray(), {}, []

  def record(self, kind, *fields):
    body = bytes([kind]) + b"".join(f if isinstance(f, bytes) else number(f) for f in fields)
    self.records += number(len(body)) + body
    if len(self.records) > 1 << 20: self.end_block()

  def text(self, s):
    raw = s.encode()
    return number(len(raw)) + raw

  def name(self, s):
    if not s: return 0
    if s not in self.names:
      self.names[s] = len(self.names) + 1
      self.record(NAME, self.names[s], self.text(s))
    return self.names[s]

  def node(self, graph, index, op, dtype, sources, argument="", origin=""):
    op, dtype, origin = self.name(op), self.name(dtype), self.name(origin)
    back = [index - s for s in sources]
    self.record(NODE, graph, index, op, dtype, 0, origin, len(back), *back, self.text(argument))

  def open(self, span, parent, kind, name, begin):
    kind, name = self.name(kind), self.name(name)
    self.record(OPEN, span, parent, kind, name, begin)

  def close(self, span, end): self.record(CLOSE, span, end)

  def value(self, span, key, text):
    key = self.name(key)
    self.record(VALUE, span, key, self.text(text))

  def source(self, span, title, text):
    title = self.name(title)
    self.record(TEXT, span, title, 0, self.text(text))

  def graph(self, span, title, graph, roots):
    title = self.name(title)
    self.record(GRAPH, span, title, graph, len(roots), *roots)

  def rewrite(self, span, rule, graph, before, after):
    rule = self.name(rule)
    self.record(REWRITE, span, rule, graph, before, after, 100)

  def event(self, track, name, span, begin, end, details):
    track, name = self.name(track), self.name(name)
    self.record(EVENT, track, 0, name, span, begin, end, self.text(details))

  def memory(self, device, span, address, size, when):
    device = self.name(device)
    self.record(MEMORY, device, span, address, size << 1 if size >= 0 else (-size << 1) - 1, when)

  def end_block(self):
    if not self.records: return
    packed = zlib.compress(bytes(self.records), 1)
    self.blocks.append(struct.pack("<QIIII", 0, len(packed), len(self.records), zlib.crc32(packed), 0) + packed)
    self.records = bytearray()

  def write(self, path):
    self.end_block()
    with open(path, "wb") as f: f.write(MAGIC + b"".join(self.blocks))


def write_large(path, nodes):
  """A kernel whose graph has so many nodes: chains that use each other's values, as unrolled kernels do."""
  w, state = RecordingWriter(), 1
  w.open(1, 0, "kernel", "large", 1000)
  w.value(1, "name", "large")
  for i in range(1, nodes + 1):
    state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
    lane, step = (i - 1) % 400, (i - 1) // 400
    if step == 0: w.node(1, i, "PARAM", "float32", [], f"slot={lane}")
    else:
      near = i - 400 + min(400 - lane - 1, (state >> 33) % 5)
      sources = [i - 400] if (state >> 40) % 3 else sorted({i - 400, near})
      w.node(1, i, ("ADD", "MUL", "LOAD", "WHERE")[(state >> 50) % 4], "float32", sources)
  roots = list(range(max(1, nodes - 399), nodes + 1))
  w.node(1, nodes + 1, "SINK", "void", roots)
  w.graph(1, "kernel", 1, [nodes + 1])
  w.close(1, 2000)
  w.write(path)


def write_hostile(path, script):
  """Every text of the recording is markup that would run `script`."""
  bad = f"<img src=x onerror=\"{script}\"><script>{script}</script>'\"&"
  w = RecordingWriter()
  w.open(1, 0, "schedule", bad, 1000)
  w.value(1, bad, bad)
  w.open(2, 1, "kernel", bad, 1100)
  for key in ("name", "target", "opts", bad): w.value(2, key, bad)
  w.source(2, bad, bad)
  w.node(1, 1, bad, bad, [], bad, bad)
  w.node(1, 2, bad, bad, [1, 1], bad, bad)
  w.graph(2, bad, 1, [2])
  w.graph(2, bad + "2", 1, [1])
  w.open(3, 2, "pass", bad, 1200)
  w.open(4, 3, "rewrite", bad, 1200)
  w.graph(4, "before", 1, [2])
  w.rewrite(4, bad, 1, 1, 2)
  for span in (4, 3, 2, 1): w.close(span, 1300)
  w.event(bad, bad, 2, 1400, 1500, bad)
  w.memory(bad, 2, 1, 1000, 1400)
  w.record(TOTAL, w.name(bad), 3, 2, 1)
  w.write(path)
