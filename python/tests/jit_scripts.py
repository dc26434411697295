"""Random scripts of a captured function and a program around it. Both are drawn from a seed: what the function reads,
writes and trains, and what the program computes, keeps, drops and writes between its calls, by itself, with another
captured function or on another thread. A script gives the same values with TinyJit as without, to the last read."""
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tinygrad_cpp import Context, Tensor, TinyJit, nn

CALLS = 5

Values = dict[str, Tensor]
EXPRESSIONS: dict[str, Callable[[Values], Tensor]] = {
    "squares": lambda q: (q["w"] * q["w"]).sum(),
    "absolute": lambda q: q["v"].abs().sum(),
    "product": lambda q: q["x"] @ q["w"],
    "activation": lambda q: (q["x"] @ q["w"]).tanh(),
    "output": lambda q: (q["x"] @ q["w"]).tanh() @ q["v"],
    "loss": lambda q: ((q["x"] @ q["w"]).tanh() @ q["v"]).square().mean(),
    "twice": lambda q: q["s"] * 2,
    "columns": lambda q: q["s"] + q["w"].sum(0),
    "gram": lambda q: q["w"].T @ q["w"],
    "softmax": lambda q: q["v"].softmax(0),
    "scaled": lambda q: ((q["x"] @ q["w"]).softmax(-1) * q["s"]).sum(),
    "slice": lambda q: q["w"][1:3] * 3,
    "rows": lambda q: q["table"][q["k"]] * q["s"],
    "lookup": lambda q: (q["table"][q["k"]] @ q["v"]).sum(),
    "stored": lambda q: (q["w"] * 0.5).contiguous() + q["s"],
    "closure": lambda q: q["h"] * q["s"] + 1,
    "closure of w": lambda q: q["h"] * q["w"].sum(0),
    "position": lambda q: Tensor.arange(3) + q["s"],
}
SCALARS = ["squares", "absolute", "loss", "scaled", "lookup"]
# Of the closure h, before the first call.
CLOSURES: dict[str, Callable[[Values], Tensor]] = {
    "columns": EXPRESSIONS["columns"],
    "twice": EXPRESSIONS["twice"],
    "view": lambda q: q["w"].T[:, 1] * 1.5,
    "state": lambda q: q["s"].clone(),
}
UPDATES: dict[str, Callable[[Values], Tensor]] = {
    "decay": lambda q: q["s"] * 0.5 + 1,
    "columns": lambda q: q["s"] * 0.25 + q["w"].sum(0),
    "closure": lambda q: (q["s"] + q["h"]) * 0.5,
    "input": lambda q: q["s"] * 0.5 + (q["x"] @ q["w"]).tanh().mean(0),
}
WAYS = ["numpy", "item", "realize", "lazy", "pending use", "captured", "thread"]


@dataclass
class Look:
  """The program computes an expression between two calls."""
  expression: str
  way: str
  held: bool


@dataclass
class Script:
  seed: int
  held: float  # how likely a value is kept until after the next call
  marks: str = ""
  optimizer: str = ""
  closure: tuple[str, str] = ("", "")
  fixed_input: bool = False
  results: list[str] = field(default_factory=list)
  penalties: list[str] = field(default_factory=list)
  steps: list[str] = field(default_factory=list)
  early: bool = False  # a result is computed in the middle of the function
  update: str = ""
  writes: list[str] = field(default_factory=list)  # by the program, between two calls
  looks: list[Look] = field(default_factory=list)

  def __post_init__(self):
    r = random.Random(self.seed)
    names = list(EXPRESSIONS)
    self.marks = r.choice(["nothing", "w", "optimizer", "optimizer"])
    self.optimizer = r.choice(["sgd", "momentum", "adam"])
    self.closure = r.choice(list(CLOSURES)), r.choice(WAYS)
    self.fixed_input = r.random() < 0.4
    self.results = r.sample(names, r.randint(1, 3))
    self.penalties = r.sample(SCALARS, r.randint(0, 2))
    steps = ["write", "item", "keep", "recur", "replace w"]
    self.steps = r.sample(steps, r.choice([0, 1, 1, 2])) + (["train"] if self.marks != "nothing" else [])
    if self.marks == "optimizer" and "replace w" in self.steps: self.steps.remove("replace w")
    self.steps += ["results"]
    r.shuffle(self.steps)
    self.early = r.random() < 0.3
    self.update = r.choice(list(UPDATES))
    self.writes = r.sample(["s", "w", "h", "s in part"], r.choice([0, 0, 1, 2]))
    self.looks = [Look(r.choice(names), r.choice(WAYS), r.random() < self.held) for _ in range(r.randint(0, 3))]


def _on_thread(f: Callable[[], Tensor]) -> Tensor:
  out: list[Tensor] = []
  t = threading.Thread(target=lambda: out.append(f()))
  t.start()
  t.join()
  return out[0]


class Run:
  """One run of a script, captured or not: the log of every value it reads."""

  def __init__(self, script: Script, captured: bool, table: Tensor | None = None):
    self.script, self.captured = script, captured
    self.random = np.random.RandomState(script.seed)
    self.log: list[np.ndarray] = []
    self.e: Values = {n: self._array(*shape).realize() for n, shape in [("w", (4, 3)), ("v", (3, 2)), ("s", (3,)),
                                                                      ("m", (3,)), ("table", (6, 3))]}
    if table is not None: self.e["table"] = table
    self.x = [self._array(5, 4).realize() for _ in range(CALLS + 1)]
    self.k = [Tensor(self.random.randint(0, 6, 4).astype(np.int32)).realize() for _ in range(CALLS + 1)]
    self.opt = self._optimizer()
    self._others: dict[str, Callable] = {}

  def _array(self, *shape: int) -> Tensor: return Tensor((self.random.randn(*shape) * 0.5).astype(np.float32))

  def _optimizer(self):
    s, params = self.script, [self.e["w"], self.e["v"]]
    if s.marks == "w": self.e["w"].requires_grad_(True)
    if s.marks != "optimizer": return None
    if s.optimizer == "adam": return nn.optim.Adam(params, lr=0.05)
    return nn.optim.SGD(params, lr=0.05, momentum=0.9 if s.optimizer == "momentum" else 0.0)

  def _input(self, call: int) -> tuple[Tensor, Tensor]:
    at = 0 if self.script.fixed_input else call
    return self.x[at], self.k[at]

  def _function(self, x: Tensor, k: Tensor):
    """The function that is captured."""
    s, out = self.script, []
    for step in s.steps:
      q = dict(self.e, x=x, k=k)
      if step == "results":
        out += [EXPRESSIONS[n](q) for n in s.results]
        if s.early: out[0] = out[0].realize()
      elif step == "write": self.e["s"].assign(UPDATES[s.update](q))
      elif step == "item": self.e["s"][1] = self.e["w"].sum() * 0.1
      elif step == "keep": self.e["kept"] = EXPRESSIONS["columns"](q)
      elif step == "recur": self.e["m"] = (self.e["m"] * 0.5 + self.e["s"]).tanh()
      elif step == "replace w": self.e["w"].assign(self.e["w"].detach() * 0.9 + 0.01)
      elif step == "train": out.append(self._train(q))
    return tuple(t.realize() for t in out) + (self.e["s"].realize(),)

  def _train(self, q: Values) -> Tensor:
    loss = EXPRESSIONS["loss"](q) + sum(EXPRESSIONS[n](q) for n in self.script.penalties) * 0.1
    if self.opt is None:
      for t, g in zip((self.e["w"], self.e["v"]), loss.gradient(self.e["w"], self.e["v"])):
        t.assign(t.detach() - 0.05 * g)
      return loss
    self.opt.zero_grad()
    loss.backward()
    self.opt.step()
    return loss

  def _look(self, expression: Callable[[Values], Tensor], name: str, way: str, q: Values) -> Tensor:
    """Computes an expression of the program's in one of the ways, and reads it."""
    if way == "captured":
      def f(names: list[str], *tensors: Tensor): return expression(dict(zip(names, tensors))).realize()
      other = self._others.setdefault(name, TinyJit(f) if self.captured else f)
      value = other(list(q), *(t.detach().clone() for t in q.values()))
    elif way == "thread": value = _on_thread(lambda: expression(q).realize())
    else: value = expression(q)
    if way == "numpy": self._read(value)
    elif way == "item": self._read(value.sum())
    elif way == "realize": value.realize()
    elif way == "pending use": self._read(value * 2 + 1)
    return value

  def _read(self, t: Tensor): self.log.append(t.numpy().copy())

  def _write(self, what: str):
    if what == "s": self.e["s"].assign(self.e["s"] * 0.9 + 0.1)
    elif what == "h": self.e["h"].assign(self.e["h"] * 0.5)
    elif what == "s in part": self.e["s"][:2] = self.e["s"][1:] * 0.5
    elif what == "w": self.e["w"].assign(self.e["w"].detach() * 0.95).realize()

  def run(self) -> list[np.ndarray]:
    s = self.script
    with Context(TRAINING=1):
      self.e["h"] = self._look(CLOSURES[s.closure[0]], f"closure {s.closure[0]}", s.closure[1],
                               dict(self.e, x=self.x[CALLS], k=self.k[CALLS]))
      f = TinyJit(self._function) if self.captured else self._function
      held: list[Tensor] = []
      for call in range(CALLS):
        x, k = self._input(call)
        for t in f(x, k): self._read(t)
        for t in held: self._read(t)
        held = []
        for look in s.looks:
          value = self._look(EXPRESSIONS[look.expression], look.expression, look.way, dict(self.e, x=x, k=k))
          if look.held: held.append(value)
          del value
        for what in s.writes: self._write(what)
        for n in ("w", "v", "s", "m", "h", "kept"):
          if n in self.e: self._read(self.e[n])
      for t in held: self._read(t)
    return self.log


def difference(got: list[np.ndarray], want: list[np.ndarray]) -> str:
  """Says where two logs differ; nothing where they are equal."""
  if len(got) != len(want): return f"{len(got)} values instead of {len(want)}"
  for i, (a, b) in enumerate(zip(got, want)):
    if a.shape != b.shape or not np.allclose(a, b, rtol=1e-3, atol=1e-4):
      return f"value {i} of {len(want)}: {np.ravel(a)[:3]} instead of {np.ravel(b)[:3]}"
  return ""


def check(seed: int, held: float) -> str:
  """Runs a script with TinyJit and without; says how they differ."""
  script = Script(seed, held)
  want = Run(script, captured=False).run()
  try:
    wrong = difference(Run(script, captured=True).run(), want)
  except Exception as e:  # noqa: BLE001
    wrong = f"{type(e).__name__}: {e}"
  return f"{wrong} in {script}" if wrong else ""


def check_threads(seeds: list[int], held: float) -> list[str]:
  """Runs captured scripts at the same time, each on a thread of its own, all of which read one table."""
  scripts = [Script(seed, held) for seed in seeds]
  shared = Run(Script(seeds[0], held), captured=False).e["table"]
  values = shared.numpy().copy()
  want = [Run(s, captured=False, table=Tensor(values).realize()).run() for s in scripts]
  wrong = [""] * len(scripts)

  def work(i: int):
    try:
      wrong[i] = difference(Run(scripts[i], captured=True, table=shared).run(), want[i])
    except Exception as e:  # noqa: BLE001
      wrong[i] = f"{type(e).__name__}: {e}"

  threads = [threading.Thread(target=work, args=(i,)) for i in range(len(scripts))]
  for t in threads: t.start()
  for t in threads: t.join()
  return [f"{w} in {s}" for w, s in zip(wrong, scripts) if w]
