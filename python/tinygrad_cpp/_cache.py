"""The disk cache for Python objects, and downloads that are kept."""
from __future__ import annotations
import functools, os, pathlib, shutil, tempfile
from typing import Any, Callable

from . import _core
from ._context import CACHEDB, CACHELEVEL, getenv

cache_dir: str = _core.cache_dir()


def _key(key: dict | str | int) -> str:
  """One text per key; 4 and "4" are the same, as are equal dicts."""
  if not isinstance(key, dict): return str(key)
  return "\0".join(f"{name}\1{v.hex() if isinstance(v, bytes) else v}" for name, v in key.items())


def diskcache_get(table: str, key: dict | str | int) -> Any:
  """The object stored under (table, key), else None."""
  import pickle  # here and below: modules that most programs which import this one do not need
  stored = _core.diskcache_get(table, _key(key)) if CACHELEVEL >= 1 else None
  return None if stored is None else pickle.loads(stored)


def diskcache_put(table: str, key: dict | str | int, val: Any, prepickled: bool = False) -> Any:
  """Stores an object for all processes of this user and returns it. `prepickled`: `val` is its pickle already."""
  import pickle
  if CACHELEVEL >= 1: _core.diskcache_put(table, _key(key), val if prepickled else pickle.dumps(val))
  return val


def diskcache_clear() -> None:
  """Removes every entry of every table, compiled kernels included."""
  _core.diskcache_clear("")


def diskcache(func: Callable) -> Callable:
  """A function whose results outlive the process, by name and arguments. A result of None is recomputed."""
  @functools.wraps(func)
  def wrapper(*args: Any, **kwargs: Any) -> Any:
    import hashlib, pickle
    table, key = f"cache_{func.__name__}", hashlib.sha256(pickle.dumps((args, kwargs))).hexdigest()
    known = diskcache_get(table, key)
    return diskcache_put(table, key, func(*args, **kwargs)) if known is None else known
  return wrapper


def _ensure_downloads_dir() -> pathlib.Path: return pathlib.Path(cache_dir) / "downloads"


def _download(url: str, to: pathlib.Path, gunzip: bool, headers: dict[str, str], sha256: str | None) -> None:
  """`to` appears whole and verified, or not at all."""
  import gzip, hashlib, urllib.request
  from ._progress import tqdm
  request = urllib.request.Request(url, headers={"User-Agent": "tinygrad_cpp", **headers})
  with urllib.request.urlopen(request, timeout=10) as response:
    assert response.status in (200, 206), f"{url} answered with status {response.status}"
    length = 0 if gunzip else int(response.headers.get("content-length") or 0)
    source, digest = gzip.GzipFile(fileobj=response) if gunzip else response, hashlib.sha256()
    fd, part = tempfile.mkstemp(dir=to.parent)
    try:
      size = 0
      with os.fdopen(fd, "wb") as f, tqdm(total=length, unit="B", unit_scale=True, desc=url) as bar:
        while chunk := source.read(1 << 16):
          size += f.write(chunk)
          digest.update(chunk)
          bar.update(len(chunk))
      if size < length: raise RuntimeError(f"fetch size incomplete, {size} < {length}")
      if sha256 and digest.hexdigest() != sha256:
        raise RuntimeError(f"fetch sha mismatch, expected {sha256} but got {digest.hexdigest()}")
      os.replace(part, to)
    finally:
      if os.path.exists(part): os.unlink(part)


def _unpack(archive: pathlib.Path, to: pathlib.Path) -> None:
  """Unpacks next to the target and renames, so that nobody sees a partial folder."""
  import tarfile
  part = tempfile.mkdtemp(dir=archive.parent)
  try:
    with tarfile.open(archive) as tar:
      tar.extractall(part, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    try: os.rename(part, to)
    except OSError:
      if not to.is_dir(): raise
  finally: shutil.rmtree(part, ignore_errors=True)


def fetch(url: str, name: pathlib.Path | str | None = None, subdir: str | None = None, gunzip: bool = False,
          allow_caching: bool = not getenv("DISABLE_HTTP_CACHE"), headers: dict[str, str] = {},
          sha256: str | None = None,
          extract: bool = False) -> pathlib.Path:
  """The path of the file at `url`, downloaded the first time and kept; a local path is returned as it is.

  `name`: its name in the cache, or a path of one's own. `gunzip`: unpack while downloading. `sha256`: what the contents
  must hash to; a kept file that does not is fetched again. `extract`: unpack a tar file and return the folder.
  RuntimeError when what arrives is short or hashes otherwise.
  """
  import hashlib
  if url.startswith(("/", ".")): return pathlib.Path(url)
  if isinstance(name, pathlib.Path) or (name and "/" in name): to = pathlib.Path(name)
  else:
    md5 = lambda s: hashlib.md5(s.encode()).hexdigest()
    variant = "_" + md5("\n".join(f"{k.strip()}:{headers[k].strip()}" for k in sorted(headers))) if headers else ""
    to = _ensure_downloads_dir() / (subdir or "") / f"{name or md5(url)}{variant}{'.gunzip' if gunzip else ''}"
  folder = to.with_name(f"{to.name}.extract")
  good = to.is_file() and allow_caching and not (sha256 and hashlib.sha256(to.read_bytes()).hexdigest() != sha256)
  if not good:
    if extract: shutil.rmtree(folder, ignore_errors=True)
    to.parent.mkdir(parents=True, exist_ok=True)
    _download(url, to, gunzip, headers, sha256)
  if not extract: return to
  if not folder.is_dir(): _unpack(to, folder)
  return folder
