"""Files of tensors beside the libraries that define them: torch.save, numpy.save, zipfile, tarfile, safetensors."""
import argparse
import collections
import enum
import gzip
import io
import json
import os
import pathlib
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest

import tinygrad_cpp
from tinygrad_cpp import Tensor, dtypes
from tinygrad_cpp.nn import state

torch = pytest.importorskip("torch", reason="needs torch to write its files")


def bits(x):
  """The bytes of a tensor or array, whatever its type."""
  if 0 in x.shape: return b""
  if isinstance(x, Tensor): return bytes(memoryview(x.contiguous().flatten().bitcast(dtypes.uint8)))
  if isinstance(x, torch.Tensor): return x.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
  return np.ascontiguousarray(x).tobytes()


def same(a, b):
  assert tuple(a.shape) == tuple(b.shape)
  assert bits(a) == bits(b)


TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
         torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
         torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
NAMES = {"float64": "double", "float32": "float", "float16": "half", "int64": "long", "int32": "int", "int16": "short",
         "int8": "char", "uint8": "uchar", "uint16": "ushort", "uint32": "uint", "uint64": "ulong",
         "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2", "float8_e4m3fnuz": "fp8e4m3fnuz",
         "float8_e5m2fnuz": "fp8e5m2fnuz"}


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def save(request, tmp_path):
  def run(obj, name="x.pt", **options):
    path = tmp_path / name
    torch.save(obj, path, _use_new_zipfile_serialization=request.param, **options)
    return path
  return run


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_torch_types(save, dtype):
  torch.manual_seed(0)
  t = (torch.randn(5, 7) * 3).abs().to(dtype)
  if dtype == torch.float32: t[0, 0], t[0, 1], t[0, 2] = float("nan"), float("inf"), -0.0
  obj = {"t": t, "empty": torch.zeros(0, 3).to(dtype), "scalar": t[1, 1].clone()}
  got = state.torch_load(save(obj))
  assert list(got) == ["t", "empty", "scalar"]
  for k, v in obj.items(): same(got[k], v)
  name = str(dtype).split(".")[1]
  assert got["t"].dtype == getattr(dtypes, NAMES.get(name, name))


def test_torch_views(save):
  a = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
  views = {
    "whole": a.clone(), "permuted": a.clone().permute(3, 0, 2, 1), "transposed": a.clone().transpose(1, 3),
    "rows": a.clone()[1:], "columns": a.clone()[..., 1:4], "box": a.clone()[:, 1:, 1:3, 2:],
    "every second": a.clone()[..., ::2], "every second row": a.clone()[:, :, 1::2], "one": a.clone()[1, 2, 3, 4],
    "expanded": torch.arange(3.).reshape(3, 1).expand(2, 3, 4), "diagonal": torch.arange(16.).reshape(4, 4).diagonal(),
    "windows": torch.arange(10.).unfold(0, 4, 1), "channels last": a.clone().to(memory_format=torch.channels_last),
    "permuted box": a.clone()[:, 1:, 1:3].permute(2, 0, 3, 1), "last column": a.clone()[..., -1],
    "empty": a.clone()[:, :0], "strided": torch.as_strided(torch.arange(30.), (3, 2), (7, 3), 4),
    "half": a.half().permute(1, 0, 3, 2), "bfloat16": a.bfloat16()[:, 1].permute(2, 1, 0),
  }
  path = save(views)
  got = state.torch_load(path)
  for k, v in views.items(): same(got[k], v)


def test_torch_shared_storage(save):
  a = torch.randn(100)
  path = save({"a": a, "b": a[5:], "c": a[10:20].reshape(2, 5).T, "tied": a})
  got = state.torch_load(path)
  for k, v in torch.load(path).items(): same(got[k], v)
  assert got["tied"] is got["a"] or (got["tied"].numpy() == got["a"].numpy()).all()


def test_torch_containers(save):
  t = torch.arange(3.)
  obj = {"none": None, "true": True, "int": -5, "large": 2**100, "negative": -2**70, "64 bits": 2**63, "float": 1.5,
         "text": "grün", "bytes": b"ab\xff\x00", "empty bytes": b"", "list": [1, [2, (3, t)]], "set": {1, 2},
         "bytearray": bytearray(b"xy"),
         "ordered": collections.OrderedDict(a=1, b=t), "default": collections.defaultdict(list, {"k": [t]}),
         "counter": collections.Counter("aab"), 5: t, (1, "a"): 2, "size": t.shape, "dtype": torch.float16,
         "device": torch.device("cpu"), "parameter": torch.nn.Parameter(t), "buffer": torch.nn.Buffer(t),
         "np float": np.float64(2.5), "np int": np.int16(-3), "np bool": np.bool_(True),
         "np uint64": np.uint64(2**64 - 1), "np float32": np.float32(0.1),
         "np half": np.float16(0.5), "array": np.arange(6, dtype=np.int32).reshape(2, 3),
         "fortran": np.asfortranarray(np.arange(6.).reshape(2, 3)),
         "storage": torch.arange(4.).untyped_storage()}
  with_state = torch.nn.Parameter(t.clone())
  with_state.note = "x"
  with_attribute = torch.arange(2.)
  with_attribute.note = 1
  obj |= {"with state": with_state, "with attribute": with_attribute}
  got = state.torch_load(save(obj))
  assert list(got) == list(obj)
  for k, v in obj.items():
    if isinstance(v, (torch.Tensor, np.ndarray)): same(got[k], v)
    elif k == "storage": assert bits(got[k]) == bytes(v)
    elif k in ("list", "ordered", "default"): assert len(got[k]) == len(v)
    elif k == "dtype": assert got[k] == "torch.float16"
    elif k == "device": assert got[k] == "cpu"
    elif k == "size": assert got[k] == (3,)
    else: assert got[k] == v and (type(got[k]) is type(v) or type(v).__module__ != "builtins" or k == "bytearray"), k
  assert got["list"][:1] == [1] and got["list"][1][0] == 2 and got["list"][1][1][0] == 3
  same(got["list"][1][1][1], t)
  same(got["ordered"]["b"], t)


def test_torch_checkpoint_of_an_optimizer(save):
  torch.manual_seed(0)
  model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
  optimizer = torch.optim.Adam(model.parameters())
  model(torch.randn(2, 1, 8, 8)).sum().backward()
  optimizer.step()
  obj = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
  got = state.torch_load(save(obj))
  assert got["epoch"] == 3 and got["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)
  flat = state.get_state_dict(got)
  for k, v in model.state_dict().items(): same(flat["model." + k], v)
  same(flat["optimizer.state.0.exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_torch_pickle_protocols(save, protocol):
  obj = collections.OrderedDict(a=torch.arange(3.), b=[b"xyz", "text", {1, 2}, frozenset({3}), 2**80])
  got = state.torch_load(save(obj, pickle_protocol=protocol))
  same(got["a"], obj["a"])
  assert got["b"] == [b"xyz", "text", {1, 2}, {3}, 2**80]


def test_torch_negated_view(save):
  t = torch.complex(torch.arange(3.), torch.arange(3.) + 1).conj().imag
  assert t.is_neg()
  np.testing.assert_array_equal(state.torch_load(save({"t": t}))["t"].numpy(), t.resolve_neg().numpy())


def test_torch_without_checksums(tmp_path):
  path = tmp_path / "x.pt"
  before = torch.serialization.get_crc32_options()
  torch.serialization.set_crc32_options(False)
  try: torch.save({"t": torch.arange(5.)}, path)
  finally: torch.serialization.set_crc32_options(before)
  assert state.torch_load(path)["t"].tolist() == [0, 1, 2, 3, 4]


def test_torch_deflated_archive(tmp_path):
  path = tmp_path / "x.pt"
  torch.save({"t": torch.arange(500.), "text": "x" * 300}, path)
  with zipfile.ZipFile(path) as z, zipfile.ZipFile(tmp_path / "y.pt", "w", zipfile.ZIP_DEFLATED) as y:
    for n in z.namelist(): y.writestr(n, z.read(n))
  got = state.torch_load(tmp_path / "y.pt")
  assert got["t"].tolist() == list(range(500)) and got["text"] == "x" * 300


def test_torch_from_a_tensor_of_bytes(save):
  data = save({"t": torch.arange(6.).reshape(2, 3).T, "h": torch.arange(3).half()}).read_bytes()
  for source in (Tensor(data), Tensor(b"x" + data)[1:]):
    got = state.torch_load(source)
    assert got["t"].tolist() == [[0, 3], [1, 4], [2, 5]] and got["h"].tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make, reason", [
  (lambda: torch.quantize_per_tensor(torch.randn(3), .1, 0, torch.qint8), "quantized"),
  (lambda: torch.eye(3).to_sparse(), "sparse"),
  (lambda: torch.empty(2, device="meta"), "without data"),
  (lambda: torch.zeros(2, dtype=torch.complex64), "complex"),
  (lambda: 1 + 2j, "complex"),
  (lambda: np.array([{}], dtype=object), "objects"),
  (lambda: np.zeros(2, dtype=">f4"), "big-endian"),
  (lambda: slice(1, 2), "slice"),
  (lambda: torch.nn.Linear(2, 2), "torch.nn.modules"),
])
def test_torch_refused_by_name(save, make, reason):
  path = save({"ok": torch.zeros(2), "x": make()})
  with pytest.raises(tinygrad_cpp.FormatError, match=reason) as e: state.torch_load(path, keep_opaque=False)
  assert "byte" in str(e.value) and str(path) in str(e.value)


class Runs:
  def __reduce__(self): return os.system, ("touch /tmp/should_not_be_there",)


def test_torch_nothing_is_run(save, tmp_path):
  path = save({"x": Runs()})
  with pytest.raises(tinygrad_cpp.FormatError, match="posix.system"): state.torch_load(path, keep_opaque=False)
  with pytest.raises(tinygrad_cpp.FormatError, match="posix.system as a whole"):
    state.torch_load(Tensor(pickle.dumps(0x1950a86a20f9469cfc6c, 2) + pickle.dumps(1001, 2) +
                            pickle.dumps({"little_endian": True}, 2) + pickle.dumps(Runs(), 2)))
  assert state.torch_load(path)["x"] == "<posix.system>"
  assert not os.path.exists("/tmp/should_not_be_there")


class Node:
  """An object that knows what it is part of, as those of configuration libraries do."""
  def __init__(self, parent=None): self.parent, self.child = parent, None if parent else Node(self)


class Color(enum.Enum): RED = 1


class Ordered(collections.OrderedDict): pass


def test_torch_objects_of_other_libraries_are_skipped(save, capfd):
  path = save({"args": argparse.Namespace(lr=0.1), "config": Node(),
               "kind": Color.RED, Color.RED: 3, "path": pathlib.PurePosixPath("a/b"), "lr": np.float64(0.5),
               "rng": np.arange(3), "t": torch.arange(2.), "own": Ordered(w=torch.ones(1))})
  capfd.readouterr()
  got = state.torch_load(path)
  said = capfd.readouterr().err
  assert got["t"].tolist() == [0, 1] and got["lr"] == 0.5 and got["rng"].tolist() == [0, 1, 2]
  assert got["args"] == "<argparse.Namespace>" and got["config"] == f"<{__name__}.Node>"
  assert got["kind"] == f"<{__name__}.Color>"
  assert said.count("\n") == 1 and f"[torch_load] {path}: left out objects of " in said
  for name in ("argparse.Namespace", f"{__name__}.Node", f"{__name__}.Color", f"{__name__}.Ordered"):
    assert name in said
  with pytest.raises(tinygrad_cpp.FormatError, match="which is not among those"):
    state.torch_load(path, keep_opaque=False)


def test_torch_whole_module(tmp_path):
  torch.save(torch.nn.Linear(2, 2), tmp_path / "x.pt")
  with pytest.raises(tinygrad_cpp.FormatError, match="an object of torch.nn.modules.linear.Linear as a whole"):
    state.torch_load(tmp_path / "x.pt")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.bool])
def test_torch_big_endian(tmp_path, dtype):
  """torch reads such files as well, which is the oracle."""
  little, path = tmp_path / "little.pt", tmp_path / "big.pt"
  t = (torch.arange(24) % 7 - 3).to(dtype)
  torch.save({"t": t, "view": t.reshape(4, 6)[1:, ::2].T}, little)
  with zipfile.ZipFile(little) as z, zipfile.ZipFile(path, "w") as y:
    for n in z.namelist():
      data = z.read(n)
      if n.endswith("byteorder"): data = b"big"
      if "/data/" in n: data = np.frombuffer(data, f"V{t.element_size()}").view(np.uint8).reshape(
          -1, t.element_size())[:, ::-1].tobytes()
      y.writestr(n, data)
  got, want = state.torch_load(path), torch.load(path)
  for k, v in want.items(): same(got[k], v)
  same(got["t"], t)


def test_torch_tied_weights_stay_tied(save):
  a = torch.arange(6.).reshape(2, 3)
  got = state.torch_load(save({"embed": a, "head": a}))
  got["embed"].assign(got["embed"] * 10).realize()
  assert got["head"].tolist() == [[0, 10, 20], [30, 40, 50]]


def test_torch_views_of_tied_weights_stay_tied(tmp_path):
  a = torch.arange(6.).reshape(2, 3)
  torch.save({"embed": a, "row": a[1], "all": a.reshape(-1)}, tmp_path / "x.pt")
  got = state.torch_load(tmp_path / "x.pt")
  got["embed"].assign(got["embed"] * 10).realize()
  assert got["row"].tolist() == [30, 40, 50] and got["all"].tolist() == [0, 10, 20, 30, 40, 50]


def test_torch_copies_are_counted(tmp_path):
  n, calls = 200000, 2000
  p = (b"\x80\x02c__builtin__\nset\nq\x010]q\x02(" + b"N" * n + b"e0h\x02\x85q\x030" + b"h\x01h\x03R0" * calls + b"}.")
  with zipfile.ZipFile(tmp_path / "x.pt", "w") as z: z.writestr("a/data.pkl", p)
  assert state.torch_load(tmp_path / "x.pt") == {}  # nothing that is not part of the result is made
  with zipfile.ZipFile(tmp_path / "x.pt", "w") as z:
    z.writestr("a/data.pkl", p[:p.index(b"h\x01h\x03R0")] + b"]q\x04(" + b"h\x01h\x03R" * calls + b"e.")
  with pytest.raises(tinygrad_cpp.FormatError, match="more copies of objects than 33554432 bytes"):
    state.torch_load(tmp_path / "x.pt")


def test_torch_tar_format(tmp_path):
  """What PyTorch 0.1 wrote; torch can still read it."""
  storages, tensors = io.BytesIO(), io.BytesIO()
  pickle.dump(2, storages, 2)
  a, b = np.arange(6, dtype=np.float32), np.arange(4, dtype=np.int64)
  for key, data, kind in ((11, a, torch.FloatStorage), (12, b, torch.LongStorage)):
    pickle.dump((key, "cpu", kind), storages, 2)
    storages.write(struct.pack("<q", data.size) + data.tobytes())
  pickle.dump([], storages, 2)
  pickle.dump(2, tensors, 2)
  for key, storage, kind, size, stride, offset in ((1, 11, torch.FloatTensor, (2, 2), (3, 1), 1),
                                                   (2, 12, torch.LongTensor, (4,), (1,), 0)):
    pickle.dump((key, storage, kind), tensors, 2)
    tensors.write(struct.pack("<ii", len(size), 0) + struct.pack(f"<{len(size)}q", *size) +
                  struct.pack(f"<{len(size)}q", *stride) + struct.pack("<q", offset))
  class P(pickle.Pickler):
    def persistent_id(self, obj): return obj[1] if isinstance(obj, tuple) and obj[:1] == ("tensor",) else None
  content = io.BytesIO()
  P(content, 2).dump(collections.OrderedDict(w=("tensor", "1"), n=("tensor", "2")))
  path = tmp_path / "old.pth"
  with tarfile.open(path, "w") as t:
    for name, data in (("sys_info", pickle.dumps({"protocol_version": 1000, "little_endian": True}, 2)),
                       ("pickle", content.getvalue()), ("tensors", tensors.getvalue()),
                       ("storages", storages.getvalue())):
      info = tarfile.TarInfo(name)
      info.size = len(data)
      t.addfile(info, io.BytesIO(data))
  got, want = state.torch_load(path), torch.load(path, weights_only=False)
  assert list(got) == ["w", "n"]
  for k, v in want.items(): same(got[k], v)


# ---- NumPy ----

NUMPY_TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
               "float64"]


@pytest.mark.parametrize("name", NUMPY_TYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3, 4)])
def test_npy_types(tmp_path, name, shape):
  a = (np.random.default_rng(0).normal(size=shape) * 5).astype(name)
  for layout in (a, np.array(a, order="F"), a.astype(a.dtype.newbyteorder(">"))):
    np.save(tmp_path / "x.npy", layout)
    got = state.npy_load(tmp_path / "x.npy")
    np.testing.assert_array_equal(got.numpy(), a, strict=True)
  state.npy_save(Tensor(a), tmp_path / "y.npy")
  np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), a, strict=True)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(tmp_path, version):
  with open(tmp_path / "x.npy", "wb") as f: np.lib.format.write_array(f, np.arange(6).reshape(2, 3), version)
  assert state.npy_load(tmp_path / "x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("array, reason", [
  (np.array([{}, None], dtype=object), "objects"), (np.zeros(2, dtype=[("a", "f4")]), "records"),
  (np.array(["x"]), "texts"), (np.zeros(2, "c8"), "complex"), (np.zeros(1, "M8[s]"), "times"),
  (np.zeros(2, "V3"), "raw bytes"),
], ids=str)
def test_npy_refused_by_name(tmp_path, array, reason):
  np.save(tmp_path / "x.npy", array, allow_pickle=True)
  with pytest.raises(tinygrad_cpp.FormatError, match=reason): state.npy_load(tmp_path / "x.npy")
  np.savez(tmp_path / "x.npz", x=array)
  with pytest.raises(tinygrad_cpp.FormatError, match=reason): state.npz_load(tmp_path / "x.npz")


def test_npz(tmp_path):
  arrays = {"a": np.arange(5, dtype=np.float32), "b/c": np.arange(6).reshape(2, 3).T, "s": np.float64(3)}
  for write in (np.savez, np.savez_compressed):
    write(tmp_path / "x.npz", **arrays)
    got = state.npz_load(tmp_path / "x.npz")
    assert list(got) == list(arrays)
    for k, v in arrays.items(): np.testing.assert_array_equal(got[k].numpy(), v)
    for k, v in state.npz_load(Tensor((tmp_path / "x.npz").read_bytes())).items():
      np.testing.assert_array_equal(v.numpy(), arrays[k])
  state.npz_save({k: Tensor(v) for k, v in arrays.items()}, tmp_path / "y.npz")
  with np.load(tmp_path / "y.npz") as z:
    assert z.files == list(arrays) and z.zip.testzip() is None
    for k, v in arrays.items(): np.testing.assert_array_equal(z[k], v)
  for k, v in state.npz_load(tmp_path / "y.npz").items(): np.testing.assert_array_equal(v.numpy(), arrays[k])
  with pytest.raises(TypeError): state.npz_save({"x": Tensor([1.0]).cast("bfloat16")}, tmp_path / "z.npz")


# ---- archives ----


def test_zip_extract(tmp_path):
  path = tmp_path / "x.zip"
  with zipfile.ZipFile(path, "w") as z:
    z.writestr("stored", b"abc")
    z.writestr("packed", bytes(10000), zipfile.ZIP_DEFLATED)
    z.writestr("empty", b"")
    z.writestr("dir/é", b"1")
    z.mkdir("folder")
    z.comment = b"PK\5\6 a comment"
  got = state.zip_extract(path)
  assert {k: bytes(memoryview(v)) if v.numel() else b"" for k, v in got.items()} == {
    "stored": b"abc", "packed": bytes(10000), "empty": b"", "dir/é": b"1"}
  with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as z: z.writestr("x", b"abc")
  with pytest.raises(tinygrad_cpp.FormatError, match="method 12"): state.zip_extract(path)


def test_zip_streamed_and_large_fields(tmp_path):
  class Pipe(io.RawIOBase):
    """A file without seek, for which zipfile writes sizes behind the content."""
    def __init__(self, f): self.f = f
    def writable(self): return True
    def write(self, b): return self.f.write(b)
  path = tmp_path / "x.zip"
  with open(path, "wb") as f, zipfile.ZipFile(Pipe(f), "w") as z:
    with z.open("a", "w", force_zip64=True) as e: e.write(b"hello")
    with z.open(zipfile.ZipInfo("b"), "w") as e: e.write(b"world")
  got = state.zip_extract(path)
  assert {k: bytes(memoryview(v)) for k, v in got.items()} == {"a": b"hello", "b": b"world"}


def test_zip64_directory(tmp_path):
  path = tmp_path / "x.zip"
  with zipfile.ZipFile(path, "w") as z:
    for i in range(70000): z.writestr(str(i), b"")
    z.writestr("last", b"end")
  got = state.zip_extract(path)
  assert len(got) == 70001 and bytes(memoryview(got["last"])) == b"end"


def test_gzip_and_tar_gz(tmp_path):
  (tmp_path / "x.gz").write_bytes(gzip.compress(b"content"))
  assert bytes(memoryview(state.gz_extract(tmp_path / "x.gz"))) == b"content"
  with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as t:
    info = tarfile.TarInfo("f")
    info.size = 3
    t.addfile(info, io.BytesIO(b"abc"))
  assert bytes(memoryview(state.tar_extract(tmp_path / "x.tar.gz")["f"])) == b"abc"


def test_tensor_io():
  f = state.TensorIO(Tensor(b"Hello World!"))
  assert f.read(5) == b"Hello" and f.seek(-1, 2) == 11 and f.read() == b"!" and f.read() == b"" and f.seek(-100, 1) == 0
  assert io.BufferedReader(state.TensorIO(Tensor(b"a\nb"))).readlines() == [b"a\n", b"b"]
  with pytest.raises(ValueError): state.TensorIO(Tensor([1.0]))


# ---- safetensors ----


def test_sharded(tmp_path):
  model = {f"layer.{i}": Tensor.full((10,), float(i)).contiguous() for i in range(7)}
  state.safe_save_sharded(model, tmp_path, max_bytes=100, metadata={"by": "test"})
  files = sorted(p.name for p in tmp_path.iterdir())
  assert files == [f"model-0000{i}-of-00004.safetensors" for i in range(1, 5)] + ["model.safetensors.index.json"]
  index = json.loads((tmp_path / files[-1]).read_text())
  assert index["metadata"]["total_size"] == 280 and index["weight_map"]["layer.6"] == files[3]
  for path in (tmp_path, tmp_path / files[-1]):
    got = state.safe_load(path)
    assert list(got) == list(model) and all(got[k].tolist() == [float(k[-1])] * 10 for k in got)
  for bad in ("../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", 5, "a\\b"):
    (tmp_path / files[-1]).write_text(json.dumps({"weight_map": {"x": bad}}))
    with pytest.raises(tinygrad_cpp.FormatError, match="index's folder"): state.safe_load(tmp_path)
  (tmp_path / files[-1]).write_text(json.dumps({"weight_map": {"layer.0": files[1]}}))
  with pytest.raises(tinygrad_cpp.FormatError, match="has no layer.0"): state.safe_load(tmp_path)
  (tmp_path / files[-1]).write_text(json.dumps({"weight_map": {"layer.2": files[1]}}))
  assert list(state.safe_load(tmp_path)) == ["layer.2"]


def test_safetensors_beside_the_reference(tmp_path):
  safetensors = pytest.importorskip("safetensors.torch")
  skip = {torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
  tensors = {str(d): torch.arange(6).reshape(2, 3).to(d) for d in TYPES if d not in skip}
  safetensors.save_file(tensors, tmp_path / "x.safetensors", {"by": "them"})
  got = state.safe_load(tmp_path / "x.safetensors")
  for k, v in tensors.items(): same(got[k], v)
  state.safe_save(got, tmp_path / "y.safetensors", {"by": "us"})
  for k, v in safetensors.load_file(tmp_path / "y.safetensors").items(): same(got[k], v)


# ---- checkpoints ----


class Net:
  def __init__(self): self.a, self.b = tinygrad_cpp.nn.Linear(4, 8), tinygrad_cpp.nn.Linear(8, 2)
  def __call__(self, x): return self.b(self.a(x).relu().dropout(0.3))


def training_run(fused=False):
  net = Net()
  optim = tinygrad_cpp.nn.optim
  return net, optim.OptimizerGroup(optim.Adam(state.get_parameters(net.a), lr=0.01, fused=fused),
                                   optim.SGD(state.get_parameters(net.b), lr=0.1, momentum=0.9, fused=fused))


def train(net, optimizer, steps):
  with tinygrad_cpp.Context(TRAINING=1):
    for _ in range(steps):
      optimizer.zero_grad()
      net(Tensor.randn(16, 4)).square().mean().backward()
      optimizer.step()


@pytest.mark.parametrize("fused", [False, True])
def test_resumed_run_is_the_same(tmp_path, fused):
  path = tmp_path / "c.safetensors"
  Tensor.manual_seed(7)
  net, optimizer = training_run(fused)
  train(net, optimizer, 3)
  state.save_checkpoint(path, net, optimizer, step=3, metadata={"note": "half"})
  train(net, optimizer, 3)
  Tensor.manual_seed(99)
  again, other = training_run(fused)
  assert state.load_checkpoint(path, again, other) == (3, {"note": "half"})
  train(again, other, 3)
  for k, v in state.get_state_dict(net).items():
    np.testing.assert_array_equal(state.get_state_dict(again)[k].numpy(), v.numpy())


def test_sharded_checkpoint(tmp_path):
  net, optimizer = training_run()
  train(net, optimizer, 2)
  for step in (1, 2): state.save_sharded_checkpoint(tmp_path / "run", net, optimizer, step=step, metadata={"n": 1})
  files = sorted(p.name for p in (tmp_path / "run").iterdir())
  assert len(files) == 2 and files[1] == "model.safetensors.index.json", "the parts of the first are removed"
  index = json.loads((tmp_path / "run" / files[1]).read_text())
  assert set(index["weight_map"].values()) == {files[0]}
  assert index["metadata"]["total_size"] == sum(t.nbytes() for t in state.safe_load(tmp_path / "run").values())
  again, other = training_run()
  assert state.load_checkpoint(tmp_path / "run", again, other) == (2, {"n": "1"})
  for k, v in state.get_state_dict(net).items():
    np.testing.assert_array_equal(state.get_state_dict(again)[k].numpy(), v.numpy())
  (tmp_path / "run" / files[0]).write_bytes(b"damaged")
  with pytest.raises(tinygrad_cpp.FormatError): state.load_checkpoint(tmp_path / "run", again, other)
  (tmp_path / "run" / files[0]).unlink()
  with pytest.raises(tinygrad_cpp.FileError): state.load_checkpoint(tmp_path / "run", again, other)


def test_checkpoint_that_does_not_fit(tmp_path):
  net, optimizer = training_run()
  state.safe_save(state.get_state_dict(net), tmp_path / "weights")
  with pytest.raises(tinygrad_cpp.FormatError): state.load_checkpoint(tmp_path / "weights", net, optimizer)
  state.save_checkpoint(tmp_path / "c", net, optimizer)
  assert "optimizer.0.m.a.weight" in state.safe_load(tmp_path / "c")
  before = net.a.weight.numpy()
  with pytest.raises(KeyError): state.load_checkpoint(tmp_path / "c", net)
  other = Net()
  other.b = tinygrad_cpp.nn.Linear(8, 3)
  with pytest.raises((ValueError, KeyError)): state.load_checkpoint(tmp_path / "c", other)
  np.testing.assert_array_equal(net.a.weight.numpy(), before)
