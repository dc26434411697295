"""Parameters by name, and files of them."""
from __future__ import annotations
import functools, io, json, os, pathlib, pickle, tarfile, zipfile
from collections import OrderedDict
from typing import Any, BinaryIO, Callable, Iterable
from .. import _core
from ..dtype import dtypes
from ..helpers import DEBUG, GlobalCounters, Timing, prod, tqdm
from ..tensor import Tensor


# *** state dicts ***

def get_state_dict(obj: Any, prefix: str = "", tensor_type: type = Tensor) -> dict[str, Tensor]:
  """The tensors an object holds in attributes, lists, tuples, dicts and named tuples, under names such as
  "layers.0.weight"."""
  found: dict[str, Tensor] = {}
  pending: list[tuple[Any, str]] = [(obj, prefix)]  # the next one is at the end
  while pending:
    o, at = pending.pop()
    if isinstance(o, tensor_type):
      found[at.strip(".")] = o
      continue
    if hasattr(o, "_asdict"): o = o._asdict()
    elif isinstance(o, OrderedDict): o = dict(o)
    elif hasattr(o, "__dict__"): o = o.__dict__
    if isinstance(o, (list, tuple)): o = dict(enumerate(o))
    if isinstance(o, dict): pending += [(v, f"{at}{k}.") for k, v in reversed(o.items())]
  return found


def get_parameters(obj: Any) -> list[Tensor]:
  """All tensors of an object's state, statistics included."""
  return list(get_state_dict(obj).values())


def _some(names: Iterable[str], most: int = 10) -> str:
  names = list(names)
  return ", ".join(map(repr, names[:most])) + (f", ... ({len(names)})" if len(names) > most else "")


def load_state_dict(model: Any, state_dict: dict[str, Tensor], strict=True, verbose=True, consume=False,
                    realize=True) -> list[Tensor]:
  """Gives the tensors of a model the values of the same names, and returns those that were loaded. Nothing is changed
  when it raises:
  KeyError that lists the names the dictionary lacks (strict), ValueError that lists shapes that differ ((1,) and () are
  taken for one another). Names that only the dictionary has are reported with DEBUG=1. Storage that no other tensor
  shows is written to, so captured functions see the values.
  Values are loaded in their own dtype; packed ones, as in quantized files, stay packed and are unpacked where they are
  used.
  consume: values are given away, and entries removed as they are loaded."""
  own = get_state_dict(model)
  missing = [k for k in own if k not in state_dict]
  unexpected = [k for k in state_dict if k not in own]
  if strict and missing:
    raise KeyError(f"missing in the state dict: {_some(missing)}"
                   + (f"; not in the model: {_some(unexpected)}" if unexpected else "") +
                   " (strict=False loads what both have)")
  wrong = [f"Shape mismatch in layer `{k}`: Expected shape {v.shape}, but found {state_dict[k].shape} in state dict."
           for k, v in own.items()
           if k in state_dict and v.shape != state_dict[k].shape and {(), (1,)} != {v.shape, state_dict[k].shape}]
  if wrong: raise ValueError("\n".join(wrong))
  if DEBUG >= 1:
    if unexpected: print("WARNING: unused weights in state_dict", sorted(unexpected))
    for k in missing: print(f"WARNING: not loading {k}")
  loaded, before = [], GlobalCounters.mem_used
  in_place = dict(zip(own, _core.written_in_place(list(own.values()))))
  def speed(ns: int) -> str:
    return f", {(size := GlobalCounters.mem_used - before) / 1e9:.2f} GB loaded at {size / ns:.2f} GB/s"
  with Timing("loaded weights in ", speed, enabled=verbose):
    for k, v in (t := tqdm(own.items(), disable=None if verbose else True)):
      t.desc = f"ram used: {GlobalCounters.mem_used / 1e9:5.2f} GB, {k:50s}: "
      if k not in state_dict: continue
      value = state_dict[k] if v.shape == state_dict[k].shape else state_dict[k].reshape(v.shape)
      packed = value.device == v.device and _core.is_packed(value)
      if packed: v.replace(value)
      elif isinstance(v.device, tuple) and not isinstance(value.device, tuple):
        v.replace(value.shard(v.device, v.uop.axis))
      elif in_place[k] and not consume and not isinstance(value.device, tuple) and value.dtype == v.dtype:
        v.assign(value.to(v.device).detach())
      else:
        there = value if isinstance(v.device, tuple) else value.to(v.device)
        # Training goes on in storage of its own; what is consumed is given away.
        v.replace(there.clone() if value.device == v.device and not consume else there)
      if realize and not packed: v.realize()
      if consume: del state_dict[k]
      loaded.append(v)
  return loaded


# *** files ***

class TensorIO(io.RawIOBase, BinaryIO):
  """A tensor of bytes as a file to read."""
  def __init__(self, t: Tensor):
    if t.ndim != 1 or t.dtype != dtypes.uint8:
      raise ValueError(f"[TensorIO] got shape {t.shape} of {t.dtype}, expected one axis of uint8")
    self._position, self._tensor = 0, t

  def readable(self) -> bool: return True
  def seekable(self) -> bool: return True
  def __enter__(self): return self
  def read(self, size: int = -1) -> bytes: return super().read(size) or b""
  def readinto(self, buffer: Any) -> int:
    n = min(len(buffer), len(self._tensor) - self._position)
    if n > 0: buffer[:n] = memoryview(self._tensor[self._position:self._position + n])
    self._position += max(n, 0)
    return max(n, 0)
  def seek(self, offset: int, whence: int = 0) -> int:
    self._position = min(len(self._tensor), max(0, (0, self._position, len(self._tensor))[whence] + offset))
    return self._position
  def write(self, s: Any): raise io.UnsupportedOperation("a TensorIO is only read")
  def writelines(self, lines: Iterable[Any]): raise io.UnsupportedOperation("a TensorIO is only read")


def accept_filename(func: Callable) -> Callable:
  """Lets a function of a tensor of bytes also take the name of a file."""
  @functools.wraps(func)
  def wrapper(fn: Tensor | str | pathlib.Path): return func(fn if isinstance(fn, Tensor) else Tensor(pathlib.Path(fn)))
  return wrapper


safe_dtypes = {"BOOL": dtypes.bool, "I8": dtypes.int8, "U8": dtypes.uint8, "I16": dtypes.int16, "U16": dtypes.uint16,
               "I32": dtypes.int32,
               "U32": dtypes.uint32, "I64": dtypes.int64, "U64": dtypes.uint64, "F8_E4M3": dtypes.fp8e4m3,
               "F8_E5M2": dtypes.fp8e5m2,
               "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64}
inverse_safe_dtypes = {v: k for k, v in safe_dtypes.items()}


def _on_host(t: Tensor) -> Tensor:
  return t.to("CPU") if isinstance(t.device, str) and t.device.startswith("DISK") else t


def _file_path(name: str, fn) -> str:
  if isinstance(fn, (str, os.PathLike)): return os.fspath(fn)
  raise TypeError(f"[{name}] got {'None' if fn is None else 'an object of type ' + type(fn).__name__}, expected the "
                  f"path of a file")


@accept_filename
def safe_load_metadata(t: Tensor) -> tuple[Tensor, int, dict[str, Any]]:
  """The bytes of a safetensors file, where the data starts, and the header. FormatError (a ValueError) when the header
  is not one to be trusted."""
  raw = bytes(memoryview(_on_host(t)))
  start, _ = _core.safetensors_header(raw, len(raw), "safe_load_metadata")
  return t, start, json.loads(raw[8:start])


def safe_load(fn: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
  """The tensors of a safetensors file. Those of a file are its pages, read when they are used."""
  if not isinstance(fn, Tensor): return _core.safe_load(_file_path("safe_load", fn))
  t = _on_host(fn)
  raw = bytes(memoryview(t))
  start, entries = _core.safetensors_header(raw, len(raw), "safe_load")
  return {name: t[start + begin:start + end].bitcast(dtype).reshape(tuple(shape)) for name, dtype, shape, begin,
          end in entries}


def fs_store(t: Tensor) -> Tensor:
  """Stores the bytes of a tensor in the store TINYFS_ENDPOINT names, host:port of a server or a folder, and gives their
  address: 16 bytes."""
  return _core.fs_store(t)


def fs_load(t: Tensor, size: int) -> Tensor:
  """`size` bytes behind an address that fs_store gave, every chunk checked against its address."""
  return _core.fs_load(t, size)


def safe_save(tensors: dict[str, Tensor], fn: str | pathlib.Path, metadata: dict[str, Any] | None = None):
  """Writes a safetensors file; an old one is replaced when the new one is complete."""
  if not hasattr(tensors, "items"):
    raise TypeError(f"[safe_save] got an object of type {type(tensors).__name__}, expected a dict of tensors: write "
                    "safe_save(get_state_dict(model), path)")
  for name, t in tensors.items():
    if not isinstance(name, str): raise TypeError(f"[safe_save] got the key {name!r}, expected names of tensors")
    if not isinstance(t, Tensor):
      raise TypeError(f"[safe_save] got an object of type {type(t).__name__} for {name!r}, expected a Tensor")
  text = [(str(k), v if isinstance(v, str) else json.dumps(v)) for k, v in (metadata or {}).items()]
  _core.safe_save(list(tensors.items()), _file_path("safe_save", fn), text)


@accept_filename
def tar_extract(t: Tensor) -> dict[str, Tensor]:
  """The regular files of a tar archive by name, as parts of its bytes."""
  t = _on_host(t)
  try: entries = _core.tar_entries(bytes(memoryview(t)), "tar_extract")
  except _core.FormatError as e: raise tarfile.ReadError(str(e)) from e
  return {name: t[at:at + size] for name, at, size in entries}


@accept_filename
def zip_extract(t: Tensor) -> dict[str, Tensor]:
  """The files of a zip archive by name, as bytes."""
  with zipfile.ZipFile(TensorIO(_on_host(t))) as z:
    return {i.filename: Tensor(z.read(i)) for i in z.infolist() if not i.is_dir()}


# *** PyTorch's files ***

class _Inert:
  """Stands for any class a pickle names: nothing of it is run."""
  def __init__(self, *args, **kwargs): pass
  def __setstate__(self, state): pass
  def __call__(self, *args, **kwargs): return _Inert()
  def append(self, x): pass
  def extend(self, x): pass
  def __setitem__(self, k, v): pass


class _Storage:
  """Elements of one type that tensors share; `data` comes after the pickle in old files."""
  def __init__(self, dtype, numel: int): self.dtype, self.numel, self.data = dtype, numel, None


class _View:
  """A tensor of a storage."""
  def __init__(self, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]):
    self.storage, self.offset, self.size, self.stride = storage, offset, tuple(size), tuple(stride)

  def tensor(self) -> Tensor:
    count, last = prod(self.size), self.offset + sum((n - 1) * st for n, st in zip(self.size, self.stride))
    if self.offset < 0 or any(n < 0 for n in self.size) or any(st < 0 for st in self.stride) or (count
        and last >= self.storage.numel):
      raise _core.FormatError(f"[torch_load] got a tensor of shape {self.size} beyond the {self.storage.numel} "
                              f"elements of its storage")
    if count == 0: return Tensor.empty(*self.size, dtype=self.storage.dtype)
    flat = self.storage.data.bitcast(self.storage.dtype)
    axes = sorted((i for i, n in enumerate(self.size) if n != 1), key=lambda i: -self.stride[i])
    dense, step = True, 1
    for i in reversed(axes):
      dense, step = dense and self.stride[i] == step, step * self.size[i]
    if not dense:  # any strides: each element by its number
      where = Tensor([self.offset], dtype=dtypes.int64).reshape((1,) * len(self.size))
      for i, (n, st) in enumerate(zip(self.size, self.stride)):
        where = where + (Tensor.arange(n,
                                       dtype=dtypes.int64) * st).reshape(tuple(n if i == j else 1
                                           for j in range(len(self.size))))
      return flat[where]
    order = tuple(axes.index(i) for i in sorted(axes))
    return flat[self.offset:self.offset
                + count].reshape(tuple(self.size[i] for i in axes)).permute(order).reshape(self.size)


def _rebuild_tensor(storage, offset, size, stride, *_): return _View(storage, offset, size, stride)
def _rebuild_parameter(data, *_): return data


_storages = {"DoubleStorage": dtypes.float64, "FloatStorage": dtypes.float32, "HalfStorage": dtypes.float16,
             "BFloat16Storage": dtypes.bfloat16,
             "LongStorage": dtypes.int64, "IntStorage": dtypes.int32, "ShortStorage": dtypes.int16,
             "CharStorage": dtypes.int8,
             "ByteStorage": dtypes.uint8, "BoolStorage": dtypes.bool}
_classes = {("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): _rebuild_parameter, ("collections", "OrderedDict"): OrderedDict}


class _Unpickler(pickle.Unpickler):
  """Knows tensors and plain containers only; every other class becomes an _Inert."""
  def __init__(self, file, storages: dict): super().__init__(file); self.storages = storages
  def find_class(self, module, name):
    if module == "torch" and name in _storages: return _storages[name]
    return _classes.get((module, name), _Inert)
  def persistent_load(self, pid):
    if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
      raise _core.FormatError(f"[torch_load] got a reference {pid!r:.80}, expected a storage")
    _, dtype, key, _, numel = pid[:5]
    if not isinstance(numel, int) or numel < 0 or not isinstance(dtype, type(dtypes.uint8)):
      raise _core.FormatError(f"[torch_load] got a storage of {numel!r:.40} elements of {dtype!r:.40}")
    return self.storages.setdefault(str(key), _Storage(dtype, numel))


def _tensors(x: Any) -> Any:
  """x with every _View in it as a tensor."""
  if isinstance(x, _View): return x.tensor()
  if isinstance(x, dict): return type(x)((k, _tensors(v)) for k, v in x.items())
  if isinstance(x, (list, tuple)): return type(x)(_tensors(v) for v in x)
  return x


@accept_filename
def torch_load(t: Tensor) -> dict[str, Tensor]:
  """What torch.save wrote, usually a state dict. No class of the file's is run. Also takes the format from before
  PyTorch 1.6."""
  t = _on_host(t)
  storages: dict[str, _Storage] = {}
  file = io.BufferedReader(TensorIO(t), 1 << 20)
  is_zip = zipfile.is_zipfile(file)
  file.seek(0)
  try:
    if is_zip:
      files = zip_extract(t)
      name = next((n for n in files if n.endswith("data.pkl")), None)
      if name is None:
        raise _core.FormatError("[torch_load] got a zip archive without data.pkl, expected what torch.save writes")
      found = _Unpickler(io.BytesIO(bytes(memoryview(files[name]))), storages).load()
      for key, s in storages.items():
        part = f"{name[:-len('data.pkl')]}data/{key}"
        if part not in files: raise _core.FormatError(f"[torch_load] got no {part} in the archive")
        s.data = files[part]
    else:
      if _Unpickler(file, storages).load() != 0x1950a86a20f9469cfc6c:
        raise _core.FormatError("[torch_load] got neither a zip archive nor the number old files begin with")
      for _ in range(2): _Unpickler(file, storages).load()  # the version of the format; the machine's sizes of numbers
      found, keys = _Unpickler(file, storages).load(), _Unpickler(file, storages).load()
      at = file.tell()
      for key in keys:
        s, count = storages[str(key)], int.from_bytes(bytes(memoryview(t[at:at + 8])), "little")
        if count != s.numel: raise _core.FormatError(f"[torch_load] got {count} elements of a storage of {s.numel}")
        s.data = t[at + 8:at + 8 + count * s.dtype.itemsize]
        at += 8 + count * s.dtype.itemsize
  except (pickle.UnpicklingError, EOFError, KeyError, IndexError, AttributeError, TypeError) as e:
    if isinstance(e, _core.Error): raise
    raise _core.FormatError(f"[torch_load] the file is corrupt: {e}") from e
  for s in storages.values():
    if s.data is None or s.data.shape[0] < s.numel * s.dtype.itemsize:
      raise _core.FormatError(f"[torch_load] got a storage without its {s.numel} elements")
    s.data = s.data[:s.numel * s.dtype.itemsize]
  return _tensors(found)
