"""Programs of several processes, started by mpirun or srun: docs/distributed.md."""
from __future__ import annotations
import sys, traceback

from . import _core
from ._core import PeerError  # noqa: F401
from ._core.distributed import (  # noqa: F401
  Mesh, all_gather, all_reduce, all_to_all, barrier, broadcast, devices, fail, finalize, is_initialized, library,
  local_rank, local_size, rank, receive, reduce_scatter, send, size)

_shown = sys.excepthook


def _tell_others(kind, value, trace):
  """Shows an exception that ends this process, then tells the others, which wait for it."""
  _shown(kind, value, trace)
  if not isinstance(value, PeerError): fail("ended with an exception: " + "".join(traceback.format_exception_only(kind, value)).strip())


def init(timeout: float = 0.0) -> None:
  """Joins the processes that the launcher started, waiting for all of them; without a launcher the world is this
  process alone. PeerError when the world does not form within `timeout` seconds (0: WORLD_TIMEOUT)."""
  global _shown
  _core.distributed.init(timeout)
  if size() > 1 and sys.excepthook is not _tell_others: _shown, sys.excepthook = sys.excepthook, _tell_others
