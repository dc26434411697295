"""What has run so far, as the library counts it."""
from __future__ import annotations
from typing import Any

from . import _core


class _MemoryPerDevice:
  """Bytes held by live buffers, by device; 0 for a device that is not in use."""
  def __getitem__(self, device: str) -> int: return _core.memory_used(device)
  def get(self, device: str, default: int = 0) -> int: return self[device] or default
  def keys(self) -> list[str]: return _core.opened_devices()
  def __iter__(self) -> Any: return iter(self.keys())
  def __len__(self) -> int: return len(self.keys())
  def items(self) -> list[tuple[str, int]]: return [(d, self[d]) for d in self.keys()]
  def values(self) -> list[int]: return [self[d] for d in self.keys()]
  def __repr__(self) -> str: return repr(dict(self.items()))


def _counter(name: str) -> property:
  return property(lambda cls: _core.counter_get(name), lambda cls, v: _core.counter_set(name, v))


class _Counters(type):
  """The class itself is the state: GlobalCounters.kernel_count reads and sets a counter of the library."""
  kernel_count = _counter("kernel_count")
  global_ops = _counter("global_ops")
  global_mem = _counter("global_mem")
  time_sum_s = _counter("time_sum_s")
  compile_sum_s, run_sum_s = property(lambda cls: _core.counter_get("compile_sum_s")), property(
      lambda cls: _core.counter_get("run_sum_s"))
  collectives, sent_bytes = property(lambda cls: _core.counter_get("collectives")), property(
      lambda cls: _core.counter_get("sent_bytes"))
  compiled, disk_hits = property(lambda cls: _core.counter_get("compiled")), property(
      lambda cls: _core.counter_get("disk_hits"))
  searched = property(lambda cls: _core.counter_get("searched"))
  mem_used = property(lambda cls: _core.memory_used(""))
  mem_used_per_device = _MemoryPerDevice()


class GlobalCounters(metaclass=_Counters):
  """Counters of the process: kernels and copies run (kernel_count), their estimated operations and bytes (global_ops,
  global_mem), their time (time_sum_s, measured under DEBUG=2 and PROFILE=1), kernels compiled and kernels found in the
  disk cache (compiled, disk_hits), the time until kernels were ready and the time of runs (compile_sum_s, run_sum_s),
  live tensors and nodes that were looked at to find those that a write, a realize or a gradient concerns (searched),
  and the bytes that live buffers hold (mem_used, mem_used_per_device), which reset() leaves alone."""

  @staticmethod
  def reset() -> None: _core.counters_reset()
