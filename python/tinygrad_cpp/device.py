"""Devices by name, what their compilers and renderers can do, and raw buffers."""
from __future__ import annotations
import functools, os
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Iterator

from . import _core
from .dtype import DType, dtypes, _to_np_dtype
from .helpers import CCACHE, DEV, EMULATED_DTYPES, Context, ProfileEvent, Target
from .helpers import colored, diskcache_get, diskcache_put, getenv, size_to_str

ALL_DEVICES = [name for name in _core.device_kinds() if name != "DISK"]
# Names of older versions and of other runtimes for what we have.
_OTHER_NAMES = {"CLANG": "CPU", "LLVM": "CPU", "NPY": "CPU", "PYTHON": "INTERP", "NV": "CUDA", "HIP": "AMD",
                "OPENCL": "CL"}


CompileError = _core.CompileError


def load_backend(path: str | os.PathLike) -> None:
  """Loads a shared object with a backend (docs/new_backend.md); its devices can then be used by name."""
  _core.load_backend(os.fspath(path))


class Compiler:
  """Source text to bytes, remembered on disk under `cachekey` while CCACHE is on. The base class gives back the
  text."""
  def __init__(self, cachekey: str | None = None): self.cachekey = cachekey if CCACHE else None
  def compile(self, src: str) -> bytes: return src.encode()
  def compile_cached(self, src: str) -> bytes:
    if self.cachekey is not None and (lib := diskcache_get(self.cachekey, src)) is not None: return lib
    assert not getenv("ASSERT_COMPILE"), f"tried to compile with ASSERT_COMPILE set\n{src}"
    lib = self.compile(src)
    return lib if self.cachekey is None else diskcache_put(self.cachekey, src, lib)
  def disassemble(self, lib: bytes) -> None: pass


class _NativeCompiler(Compiler):
  """The compiler of a device as it was set up when this object was made."""
  def __init__(self, device: Any, key: str):
    super().__init__(f"python_{key}")
    self._device = device
  def compile(self, src: str) -> bytes: return self._device.compile(src)
  def assembly(self, src: str) -> str: return self._device.assembly(src)


def _renderer_of(device: str, target: Target) -> Renderer:
  renderer = Device[device].renderer
  if renderer.target != target:
    raise _core.DeviceError(f"[pickle] got a renderer for {target!r}, this machine has {renderer.target!r}")
  return renderer


class Renderer:
  """What the code generator of a device can do."""
  def __init__(self, device: Any, target: Target, compiler: Compiler | None):
    self._facts, self.target, self.compiler, self.device = device.renderer(), target, compiler, target.device
    self.has_local = self.has_shared = self._facts.has_local
    self.has_threads = self._facts.has_threads
    self.supports_float4 = self._facts.float_lanes >= 4
    self.tensor_cores: list = []

  @functools.cached_property
  def code_for_op(self) -> dict:
    """The ALU ops it has as instructions; others are made of these."""
    from .uop.ops import Ops
    return {Ops[name]: name for name in self._facts.ops}

  def supported_dtypes(self) -> set[DType]:
    """Types kernels compute in, by themselves or (half, bfloat16) through float32. The 8-bit floats are for storage."""
    no_double = dtypes.long in EMULATED_DTYPES.tolist(dtypes)
    return {d for d in dtypes.all if d not in dtypes.fp8s and not (no_double and d == dtypes.double)}

  def __repr__(self) -> str: return f"<renderer {self.target!r}>"
  def __reduce__(self) -> tuple: return _renderer_of, (self.device, self.target)


class Compiled:
  """An opened device."""
  profile_events: list[ProfileEvent] = []

  def __init__(self, device: str):
    self._native = _core.device_get(device)
    self.device: str = self._native.name
    index = self.device.partition(":")[2]
    self.device_id = int(index) if index.isdigit() else 0
    self.graph = None  # kernels are replayed one by one
    self.cached_renderer: dict[str, Renderer] = {}

  @property
  def renderer(self) -> Renderer:
    """By the current setting of DEV; the same object for the same setting."""
    for name in ("LLVM", "CLANG"):
      variable = f"{self.device}_{name}"
      assert not getenv(variable), f"{variable}=1 is deprecated, use DEV={self.device}:{name} instead"
    try: device, renderer, arch, key = self._native.target()
    except ValueError:
      # NULL runs nothing: it stands for processors there is no code for
      if self._native.kind != "NULL": raise
      asked = DEV.target("NULL").arch
      with Context(DEV="NULL"): return Renderer(self._native, replace(self.renderer.target, arch=asked), None)
    if key not in self.cached_renderer:
      compiler = _NativeCompiler(self._native, key) if self._native.compiles else None
      self.cached_renderer[key] = Renderer(self._native, Target(device, renderer, arch), compiler)
    return self.cached_renderer[key]

  @property
  def compiler(self) -> Compiler:
    if (c := self.renderer.compiler) is None: raise RuntimeError(f"no compiler for {self.device}")
    return c

  @property
  def arch(self) -> str: return self.renderer.target.arch
  @property
  def allocator(self) -> Allocator: return Allocator(self)

  def synchronize(self) -> None:
    """Waits for the work queued on the device."""
    self._native.synchronize()
  def count(self) -> int:
    """How many devices of this kind there are."""
    return 1
  def finalize(self) -> None: self._native.synchronize()
  def __repr__(self) -> str: return f"<device {self.device}>"


class _Device:
  """`Device["CPU:1"]` opens a device, `Device.DEFAULT` names the default: what DEV says, else the first that works."""

  def __init__(self) -> None: self._opened: dict[str, Compiled] = {}

  @property
  def DEFAULT(self) -> str:
    if not os.getenv("DEV"):
      old = next((d for d in ALL_DEVICES if getenv(d) == 1), None)
      assert old is None, f"{old}=1 is deprecated, use DEV={old} instead"
    return _core.device_default()
  @DEFAULT.setter
  def DEFAULT(self, v: str) -> None:
    raise AttributeError(f'setting Device.DEFAULT is deprecated, use "with Context(DEV={v!r})" or "DEV.value = {v!r}"')

  def canonicalize(self, device: str | None) -> str:
    """"cpu:0" as "CPU", "cl:1" as "CL:1", None as the default. A path after the colon stays as it is."""
    if device is None: return self.DEFAULT
    device = _core.device_name(device)
    kind, colon, rest = device.partition(":")
    kind = _OTHER_NAMES.get(kind.upper(), kind.upper())
    return kind if rest == "0" or not colon else f"{kind}:{rest}"

  def __getitem__(self, ix: str | None) -> Compiled:
    name = self.canonicalize(ix)
    if name not in self._opened:
      if name.partition(":")[0] not in (*ALL_DEVICES, "DISK"):
        raise ModuleNotFoundError(f"no device named {ix!r}, there are {', '.join(ALL_DEVICES)} and DISK:path")
      self._opened[name] = Compiled(name)
    return self._opened[name]

  @property
  def default(self) -> Compiled: return self[self.DEFAULT]
  @property
  def _opened_devices(self) -> set[str]: return set(_core.opened_devices())

  def get_available_devices(self) -> Iterator[str]:
    """The devices that can compute here."""
    for name, available, _ in _core.device_list():
      if available and name != "DISK": yield name


Device: _Device = _Device()


def canonicalize_device(device: Any) -> Any:
  """A name, or a tuple of names, as Device.canonicalize has it; a tuple of one is a name."""
  if not isinstance(device, (tuple, list)): return Device.canonicalize(device)
  names = tuple(map(Device.canonicalize, device))
  return names[0] if len(names) == 1 else names


def enumerate_devices_str() -> Iterator[str]:
  """One line per device: PASS where a small computation is right, else FAIL and why."""
  from .tensor import Tensor
  for name in ALL_DEVICES:
    try:
      if name != "NULL" and (got := (Tensor([1, 2, 3], device=name) * 2).tolist()) != [2, 4, 6]:
        raise ValueError(f"got {got} instead of [2, 4, 6]")
      result = f"{colored('PASS', 'green')} {Device[name].renderer.target!r}"
    except Exception as e: result = f"{colored('FAIL', 'red')} {e}"
    yield f"{'*' if name == Device.DEFAULT else ' '} {name:8s}: {result}"


# *** profile ***

@dataclass(frozen=True)
class ProfileDeviceEvent(ProfileEvent):
  """A device and the distance of its clock from the host's."""
  device: str
  tdiff: Decimal = Decimal(0)
  props: dict[str, Any] | None = None


@dataclass(frozen=True)
class ProfileProgramEvent(ProfileEvent):
  """A program that was loaded."""
  device: str
  name: str
  lib: bytes | None
  base: int | None
  tag: int | None = None
  profile_key: bytes | None = None


@dataclass(frozen=True)
class ProfileGraphEntry:
  """A kernel of a graph: indices of its begin and end among the timestamps."""
  device: str
  name: Any
  st_id: int
  en_id: int
  profile_key: bytes | None = None


@dataclass(frozen=True)
class ProfileGraphEvent(ProfileEvent):
  """Kernels that ran as one graph, who waited for whom, and the timestamps."""
  ents: list[ProfileGraphEntry]
  deps: list[list[int]]
  sigs: list[Decimal]


# *** memory ***

@dataclass(frozen=True)
class BufferSpec:
  """Wishes for memory. Only `external_ptr` matters here: the address of memory that somebody else owns."""
  uncached: bool = False
  cpu_access: bool = False
  host: bool = False
  nolru: bool = False
  zero: bool = False
  external_ptr: int | None = None


class Buffer:
  """`size` elements of a device's memory, allocated when first needed or by allocate()."""

  def __init__(self, device: str, size: int, dtype: DType, opaque: Any = None, options: BufferSpec | None = None,
               initial_value: Any = None, uop_refcount: int = 0, base: Buffer | None = None, offset: int = 0,
               preallocate: bool = False):
    assert isinstance(dtype, DType), f"expected a DType, got {dtype!r}"
    self.options, self._base, self.offset = options, base, offset
    external = options.external_ptr if options is not None else None
    if base is not None:
      assert base._base is None, "base can't have a base"
      self._native = base._native.view(size, dtype, offset)
    else:
      assert offset == 0, "base buffers can't have offset"
      device = Device.canonicalize(device)
      if isinstance(opaque, memoryview): self._native = _core.NativeBuffer.from_memory(opaque, size, dtype)
      elif external is None: self._native = _core.NativeBuffer.create(device, size, dtype)
      else: self._native = _core.NativeBuffer.from_address(device, external, size, dtype)
      if initial_value is not None:
        self._native.copy_in(initial_value)
    if preallocate: self.allocate()

  @classmethod
  def _of(cls, native: Any) -> Buffer:
    """A buffer of the library."""
    self = cls.__new__(cls)
    self.options, self._base, self.offset, self._native = None, None, native.offset, native
    return self

  @property
  def device(self) -> str: return self._native.device
  @property
  def size(self) -> int: return self._native.size
  @property
  def dtype(self) -> DType: return self._native.dtype
  @property
  def nbytes(self) -> int: return self._native.nbytes
  @property
  def base(self) -> Buffer: return self if self._base is None else self._base

  def is_allocated(self) -> bool: return self._native.is_allocated()
  is_initialized = is_allocated
  def allocate(self) -> Buffer: return self.ensure_allocated()
  def ensure_allocated(self) -> Buffer:
    self._native.ensure_allocated()
    return self
  def deallocate(self) -> None: self._native.deallocate()
  def view(self, size: int, dtype: DType, offset: int) -> Buffer:
    """Part of the memory, `offset` bytes from the begin of this buffer."""
    assert offset < self.nbytes, "offset must be less than nbytes"
    return Buffer(self.device, size, dtype, base=self.base, offset=self.offset + offset)

  def copy_from(self, src: Buffer) -> Buffer:
    assert self.nbytes == src.nbytes, f"copy size mismatch, {self.nbytes} != {src.nbytes}"
    assert self.is_allocated() and src.is_allocated(), "copy requires allocated buffers"
    self._native.copy_from(src._native)
    return self
  def copyin(self, mv: Any) -> Buffer:
    self._native.copy_in(mv)
    return self
  def copyout(self, mv: memoryview) -> memoryview:
    self._native.copy_out(mv)
    return mv
  def as_memoryview(self, allow_zero_copy: bool = False, force_zero_copy: bool = False,
                    no_sync: bool = False) -> memoryview:
    """The bytes: a copy, or the memory itself where zero copy is allowed and the host sees it. It is not freed while
    the memoryview lives."""
    if allow_zero_copy or force_zero_copy:
      if not no_sync: Device[self.device].synchronize()
      if (memory := self._native.memory()) is not None: return memoryview(memory)
      assert not force_zero_copy, "force zero copy was passed, but copy is required"
    return self.copyout(memoryview(bytearray(self.nbytes)))
  as_buffer = as_memoryview
  def numpy(self) -> Any:
    import numpy as np
    np_dtype = _to_np_dtype(self.dtype)
    assert np_dtype is not None, f"no np dtype for {self.dtype}"
    return np.frombuffer(self.as_memoryview(), dtype=np_dtype)

  def __reduce__(self) -> tuple:
    contents = bytes(self.as_memoryview()) if self.is_allocated() else None
    return Buffer, (self.device, self.size, self.dtype, None, None, contents)
  def __repr__(self) -> str:
    return f"<buf real:{self.is_allocated()} device:{self.device} size:{self.size} dtype:{self.dtype}" + \
      (f" offset:{self.offset}" if self._base is not None else "") + (f" options={self.options}"
                                                                      if self.options is not None else "") + ">"


class Allocator:
  """Memory of a device as buffers of bytes."""
  def __init__(self, dev: Compiled): self.dev = dev
  def alloc(self, size: int, options: BufferSpec | None = None) -> Buffer:
    assert size > 0, f"alloc size must be positive, getting {size}"
    try: return Buffer(self.dev.device, size, dtypes.uint8, options=options).allocate()
    except MemoryError as e:
      raise MemoryError(f"Allocation of {size_to_str(size)} failed on {self.dev.device}. {e}") from e
  def free(self, opaque: Buffer, size: int = 0, options: BufferSpec | None = None) -> None: opaque.deallocate()
  def free_cache(self) -> None: self.dev._native.free_cache()
  def _copyin(self, dest: Buffer, src: memoryview) -> None: dest.copyin(src)
  def _copyout(self, dest: memoryview, src: Buffer) -> None: src.copyout(dest)


if __name__ == "__main__":
  for line in enumerate_devices_str(): print(line)
