"""Parameters by name, and files of them."""
from __future__ import annotations
import functools, io, json, os, pathlib, tarfile
from collections import OrderedDict
from typing import Any, BinaryIO, Callable, Iterable
from .. import _core
from ..dtype import dtypes
from ..helpers import DEBUG, GlobalCounters, Timing, tqdm
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
        v.replace(value.shard_like(v))
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
  def __init__(self, t: Tensor): self._io = _core.TensorIO(t)
  def readable(self) -> bool: return True
  def seekable(self) -> bool: return True
  def __enter__(self): return self
  def read(self, size: int = -1) -> bytes: return super().read(size) or b""
  def readinto(self, buffer: Any) -> int:
    found = self._io.read(len(buffer))
    buffer[:len(found)] = found
    return len(found)
  def seek(self, offset: int, whence: int = 0) -> int: return self._io.seek(offset, whence)
  def write(self, s: Any): raise io.UnsupportedOperation("a TensorIO is only read")
  def writelines(self, lines: Iterable[Any]): raise io.UnsupportedOperation("a TensorIO is only read")


def accept_filename(func: Callable) -> Callable:
  """Lets a function of a tensor of bytes also take the name of a file."""
  @functools.wraps(func)
  def wrapper(fn: Tensor | str | pathlib.Path): return func(fn if isinstance(fn, Tensor) else Tensor(pathlib.Path(fn)))
  return wrapper


safe_dtypes = {"BOOL": dtypes.bool, "I8": dtypes.int8, "U8": dtypes.uint8, "I16": dtypes.int16, "U16": dtypes.uint16,
               "I32": dtypes.int32, "U32": dtypes.uint32, "I64": dtypes.int64, "U64": dtypes.uint64,
               "F8_E4M3": dtypes.fp8e4m3, "F8_E5M2": dtypes.fp8e5m2, "F8_E4M3FNUZ": dtypes.fp8e4m3fnuz,
               "F8_E5M2FNUZ": dtypes.fp8e5m2fnuz, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
               "F32": dtypes.float32, "F64": dtypes.float64}
inverse_safe_dtypes = {v: k for k, v in safe_dtypes.items()}


def _file_path(name: str, fn) -> str:
  if isinstance(fn, (str, os.PathLike)): return os.fspath(fn)
  raise TypeError(f"[{name}] got {'None' if fn is None else 'an object of type ' + type(fn).__name__}, expected the "
                  f"path of a file")


def _source(name: str, fn) -> Tensor | str: return fn if isinstance(fn, Tensor) else _file_path(name, fn)


def _named(name: str, tensors: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
  if not hasattr(tensors, "items"):
    raise TypeError(f"[{name}] got an object of type {type(tensors).__name__}, expected a dict of tensors: write "
                    f"{name}(get_state_dict(model), path)")
  for key, t in tensors.items():
    if not isinstance(key, str): raise TypeError(f"[{name}] got the key {key!r}, expected names of tensors")
    if not isinstance(t, Tensor):
      raise TypeError(f"[{name}] got an object of type {type(t).__name__} for {key!r}, expected a Tensor")
  return list(tensors.items())


def _texts(metadata: dict[str, Any] | None) -> list[tuple[str, str]]:
  return [(str(k), v if isinstance(v, str) else json.dumps(v)) for k, v in (metadata or {}).items()]


@accept_filename
def safe_load_metadata(t: Tensor) -> tuple[Tensor, int, dict[str, Any]]:
  """The bytes of a safetensors file, where the data starts, and the header. FormatError (a ValueError) when the header
  is not one to be trusted."""
  start, header = _core.safetensors_header(t, "safe_load_metadata")
  return t, start, json.loads(header)


def safe_load(fn: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
  """The tensors of a safetensors file, of a model in several files by its index (model.safetensors.index.json), or of
  a folder with either. Those of a file are its pages, read when they are used."""
  return _core.safe_load(_source("safe_load", fn))


def safe_save(tensors: dict[str, Tensor], fn: str | pathlib.Path, metadata: dict[str, Any] | None = None):
  """Writes a safetensors file; an old one is replaced when the new one is complete and on the disk."""
  _core.safe_save(_named("safe_save", tensors), _file_path("safe_save", fn), _texts(metadata))


def safe_save_sharded(tensors: dict[str, Tensor], folder: str | pathlib.Path, max_bytes: int = 5_000_000_000,
                      name: str = "model", metadata: dict[str, Any] | None = None):
  """Writes a model into a folder as files of at most `max_bytes` each and, last, their index; as one file when that is
  enough."""
  _core.safe_save_sharded(_named("safe_save_sharded", tensors), _file_path("safe_save_sharded", folder), max_bytes,
                          name, _texts(metadata))


def npy_load(fn: Tensor | str | pathlib.Path) -> Tensor:
  """The array of a .npy file, read when it is used. Arrays of objects are a FormatError."""
  return _core.npy_load(_source("npy_load", fn))


def npy_save(t: Tensor, fn: str | pathlib.Path):
  """Writes one array as numpy.save does."""
  _core.npy_save(t, _file_path("npy_save", fn))


def npz_load(fn: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
  """The arrays of a .npz file by name. Stored ones are read when they are used, compressed ones unpacked at once."""
  return _core.npz_load(_source("npz_load", fn))


def npz_save(arrays: dict[str, Tensor], fn: str | pathlib.Path):
  """Writes arrays as numpy.savez does."""
  _core.npz_save(_named("npz_save", arrays), _file_path("npz_save", fn))


def fs_store(t: Tensor) -> Tensor:
  """Stores the bytes of a tensor in the store TINYFS_ENDPOINT names, host:port of a server or a folder, and gives their
  address: 16 bytes."""
  return _core.fs_store(t)


def fs_load(t: Tensor, size: int) -> Tensor:
  """`size` bytes behind an address that fs_store gave, every chunk checked against its address."""
  return _core.fs_load(t, size)


def tar_extract(fn: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
  """The regular files of a tar archive (also a gzipped one) by name, as parts of its bytes. Names are keys, not paths
  to be trusted."""
  try: return _core.tar_extract(_source("tar_extract", fn))
  except _core.FormatError as e: raise tarfile.ReadError(str(e)) from e


def zip_extract(fn: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
  """The files of a zip archive by name, as bytes: stored ones are parts of it, deflated ones are unpacked."""
  return _core.zip_extract(_source("zip_extract", fn))


def gz_extract(fn: Tensor | str | pathlib.Path) -> Tensor:
  """The content of a gzip file, as bytes."""
  return _core.gz_extract(_source("gz_extract", fn))


def torch_load(fn: Tensor | str | pathlib.Path, keep_opaque: bool = True) -> dict[str, Tensor]:
  """What torch.save wrote, usually a state dict, in any of its formats. Nothing in the file is run: in place of objects
  of classes other than tensors, containers and numbers stand texts such as "<argparse.Namespace>", and a line on the
  error output names the classes. Without `keep_opaque` they are a FormatError."""
  return _core.torch_load(_source("torch_load", fn), keep_opaque)


# *** checkpoints ***

def _checkpoint_tensors(model: Any, optimizers: list[Any]) -> dict[str, Tensor]:
  """All tensors of a training run, under the names of nn/checkpoint.h."""
  own = get_state_dict(model)
  names = {id(t): k for k, t in own.items()}
  found = {f"model.{k}": t for k, t in own.items()}
  for i, o in enumerate(optimizers):
    for attribute, value in vars(o).items():
      if attribute in ("params", "buffers"): continue
      if isinstance(value, Tensor): found[f"optimizer.{i}.{attribute}"] = value
      elif isinstance(value, list) and value and all(isinstance(t, Tensor) for t in value):
        if len(value) != len(o.params):
          found |= {f"optimizer.{i}.{attribute}": value[0]}
          continue
        for p, t in zip(o.params, value):
          if id(p) not in names:
            raise _core.ValueError(f"[checkpoint] got an optimizer with a parameter of shape {p.shape} that is not in "
                                   "the model, expected those of get_parameters(model)")
          found[f"optimizer.{i}.{attribute}.{names[id(p)]}"] = t
  return found


def _optimizers(optimizer: Any) -> list[Any]:
  """An optimizer, a group or several of these, one by one."""
  if optimizer is None: return []
  several = optimizer if isinstance(optimizer, (list, tuple)) else getattr(optimizer, "optimizers", None)
  return [optimizer] if several is None else [x for o in several for x in _optimizers(o)]


_CHECKPOINT = "tinygrad checkpoint 1"


def _checkpoint_texts(step: int, metadata: dict[str, Any] | None) -> list[tuple[str, str]]:
  texts = [("format", _CHECKPOINT), ("step", str(int(step))), ("random", _core.random_state())]
  return texts + [("user." + k, v) for k, v in _texts(metadata)]


def save_checkpoint(fn: str | pathlib.Path, model: Any, optimizer: Any = None, step: int = 0,
                    metadata: dict[str, Any] | None = None):
  """Writes weights, the state of optimizers by the names of their parameters, that of random numbers, and the step. The
  old file is replaced when the new one is complete and on the disk: a run that is killed has one or the other."""
  _core.safe_save(list(_checkpoint_tensors(model, _optimizers(optimizer)).items()), _file_path("save_checkpoint", fn),
                  _checkpoint_texts(step, metadata))


def save_sharded_checkpoint(folder: str | pathlib.Path, model: Any, optimizer: Any = None, step: int = 0,
                            metadata: dict[str, Any] | None = None):
  """Writes a checkpoint into a folder, all processes of the world together, each a part. The old one stays until the
  new one is complete; a world of another size, or one process, loads it. PeerError where another process failed."""
  _core.safe_save_together(list(_checkpoint_tensors(model, _optimizers(optimizer)).items()),
                           _file_path("save_sharded_checkpoint", folder), _checkpoint_texts(step, metadata))


def _together(operation: str, part):
  """Does this process' part; raises PeerError where another process could not do its own."""
  try: result = part()
  except _core.PeerError: raise
  except Exception as e:
    _core.distributed.agree(operation, str(e) or type(e).__name__)
    raise
  _core.distributed.agree(operation, "")
  return result


def _read_checkpoint(path: str) -> tuple[dict[str, str], dict[str, Tensor]]:
  texts = dict(_core.safe_metadata(path))
  if texts.get("format") != _CHECKPOINT or not {"step", "random"} <= texts.keys():
    raise _core.FormatError(f"[load_checkpoint] {path}: got a file that save_checkpoint did not write")
  return texts, _core.safe_load(path)


def load_checkpoint(fn: str | pathlib.Path, model: Any, optimizer: Any = None) -> tuple[int, dict[str, str]]:
  """Gives model, optimizers and random numbers the state of a file or folder, in a world all processes together;
  returns the step and the metadata. Also reads what C++ saved. Nothing is changed when names or shapes do not fit
  (KeyError, ValueError)."""
  path = _file_path("load_checkpoint", fn)
  def read(): return *_read_checkpoint(path), _checkpoint_tensors(model, _optimizers(optimizer))
  texts, saved, own = _together("load_checkpoint", read)
  of_all = {name for names in _core.distributed.of_all("\0".join(own)) for name in names.split("\0")}
  def load():
    if unexpected := [k for k in saved if k not in of_all]:  # stages of a pipeline have parts of a file
      raise KeyError(f"not in the model or its optimizers: {_some(unexpected)}")
    load_state_dict(own, {k: v for k, v in saved.items() if k in own}, verbose=False)
  _together("load_checkpoint", load)
  _core.set_random_state(texts["random"])
  return int(texts["step"]), {k[5:]: v for k, v in texts.items() if k.startswith("user.")}
