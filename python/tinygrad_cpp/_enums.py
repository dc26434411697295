"""The closed lists of the graph: operations and their groups, kinds of ranges."""
from __future__ import annotations
import enum
from typing import Any

from . import _core


class _Named(enum.IntEnum):
  """Prints as Class.NAME; members of one list are ordered."""
  def __str__(self) -> str: return f"{type(self).__name__}.{self.name}"
  __repr__ = __str__
  def __reduce_ex__(self, proto: Any) -> tuple: return getattr, (type(self), self.name)


Ops = _Named("Ops", {name: i + 1 for i, name in enumerate(_core.op_names())}, module=__name__)
_axes = {name: i + 1 for i, name in enumerate(_core.axis_names())}
AxisType = _Named("AxisType", {**_axes, "WEAK": _axes["LOOP"]}, module=__name__)


class GroupOp:
  """Sets of operations."""


for _name, _members in _core.op_groups().items(): setattr(GroupOp, _name, {Ops[op] for op in _members})
