"""What notebooks show of tensors, schedules, kernels and graphs: tables and pictures, small ones for large things."""
from . import _core
from ._core import Tensor, UOp

ROWS = COLUMNS = 8  # of a large tensor
GRAPH = 60  # nodes of a picture below a tensor


def _table(head, rows, numbers=()):
  """A table; columns of `numbers` are aligned to the right."""
  align = lambda i: ' style="text-align:right"' if i in numbers else ' style="text-align:left"'
  cells = lambda tag, row: "".join(f"<{tag}{align(i)}>{c}</{tag}>" for i, c in enumerate(row))
  body = "".join(f"<tr>{cells('td', r)}</tr>" for r in rows)
  return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _text(x):
  import html  # takes longer than all of this module, and most programs show nothing
  return html.escape(str(x))


def _details(title, text):
  return f"<details><summary>{_text(title)}</summary><pre>{_text(text)}</pre></details>" if text else ""


def _number(v):
  if isinstance(v, bool): return str(v)
  return f"{v:.5g}" if isinstance(v, float) else str(v)


def _corner(t):
  """The first rows and columns of a stored tensor as lists, and whether that is all of it."""
  shape = t.shape
  whole = all(n <= (COLUMNS if i == len(shape) - 1 else ROWS) for i, n in enumerate(shape)) and len(shape) <= 2
  part = t.detach()
  while len(part.shape) > 2: part = part[0]
  for axis, most in zip(range(len(part.shape)), (ROWS, COLUMNS) if len(part.shape) == 2 else (COLUMNS,)):
    if part.shape[axis] > most: part = part[:most] if axis == 0 else part[:, :most]
  return part.tolist(), whole


def _values(t):
  """A table of a stored tensor's values, cut off where it is large."""
  if any(not isinstance(n, int) for n in t.shape): return ""
  if any(n == 0 for n in t.shape): return "<i>no elements</i>"
  values, whole = _corner(t)
  rows = [[values]] if not isinstance(values, list) else values if isinstance(values[0], list) else [values]
  body = "".join("<tr>" + "".join(f'<td style="text-align:right">{_text(_number(v))}</td>' for v in r) + "</tr>"
                 for r in rows)
  more = "" if whole else f"<caption>the first of {t.numel():,} values</caption>"
  return f"<table>{more}<tbody>{body}</tbody></table>"


def _tensor_html(t):
  try:
    head = f"{t.dtype.name} of shape {tuple(t.shape)}" + (f" on {t.device}" if t.device else "")
  except _core.Error:  # an undefined one
    return f"<code>{_text(repr(t))}</code>"
  head = f"<b>Tensor</b> {_text(head)}"
  if t.uop.is_realized or t.uop.op.name == "CONST" or 0 in t.shape: return head + _values(t)
  graph = t.uop._graph_svg(GRAPH)  # pylint: disable=protected-access
  return f"{head}, not computed<details><summary>graph</summary>{graph}</details>"


def _tensor_bundle(t, include=None, exclude=None):
  del include, exclude
  return {"text/plain": repr(t), "text/html": _tensor_html(t)}


def _kernel_row(step):
  name = step.ast.arg.name if step.ast.arg is not None and hasattr(step.ast.arg, "name") else ""
  kind = step.ast.op.name if step.ast.op.name != "SINK" else "kernel"
  buffers = ", ".join(f"{b.dtype.name} x {b.numel():,}" for b in step.bufs)
  return [_text(kind), _text(name), _text(step.metadata), _text(buffers)]


KERNEL_HEAD = ["", "name", "made for", "buffers, the written one first"]


class Schedule(list):
  """The kernels and copies that realize would run, in order; a table in notebooks."""

  def _repr_html_(self):
    rows = [[str(i), *_kernel_row(s)] for i, s in enumerate(self[:100])]
    more = f"<p>... and {len(self) - 100} more</p>" if len(self) > 100 else ""
    return f"<b>{len(self)} steps</b>" + _table(["", *KERNEL_HEAD], rows, numbers={0}) + more


def _step_html(step):
  graph = step.ast._graph_svg(150)  # pylint: disable=protected-access
  return _table(KERNEL_HEAD, [_kernel_row(step)]) + f"<details><summary>graph</summary>{graph}</details>"


class Inspection(dict):
  """What inspect() found: a dictionary of graph, buffers and kernels; tables in notebooks."""

  def _repr_html_(self):
    buffers = [[_text(b["kind"]), f"{b['elements']:,}", _text(b["dtype"]), _text(b["device"]), _text(b["why"])]
               for b in self["buffers"][:100]]
    out = "<b>values in memory</b>" + _table(["kind", "elements", "type", "device", "why"], buffers, numbers={1})
    kernels = [[_text(k["name"]), _text(k["origin"]), _text(k["loops"]), _text(k["variant"]),
                f"{k['operations']:,}", f"{k['bytes']:,}", f"{k['seconds'] * 1e6:.1f}" if k["seconds"] else ""]
               for k in self["kernels"][:100]]
    out += "<b>kernels</b>" + _table(["name", "made for", "loops", "chosen by", "operations", "bytes", "us"], kernels,
                                     numbers={4, 5, 6})
    for k in self["kernels"][:20]:
      out += _details(f"{k['name']}: source", k["source"]) + _details(f"{k['name']}: assembly", k["assembly"])
    return out + _details("graph", self["graph"][:20000])


def _uop_svg(u): return u._graph_svg(150)  # pylint: disable=protected-access


def install():
  """Gives the classes their methods."""
  schedule, inspect = Tensor.schedule, Tensor.inspect

  def listed(self, *lst): return Schedule(schedule(self, *lst))
  def inspected(self, *lst, measure=True, assembly=False):
    return Inspection(inspect(self, *lst, measure=measure, assembly=assembly))

  listed.__doc__, inspected.__doc__ = schedule.__doc__, inspect.__doc__
  Tensor.schedule, Tensor.inspect = listed, inspected
  Tensor._repr_mimebundle_ = _tensor_bundle
  Tensor._repr_html_ = _tensor_html
  Tensor.ScheduleItem._repr_html_ = _step_html
  UOp._repr_svg_ = _uop_svg
