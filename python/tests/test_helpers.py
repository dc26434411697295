"""Settings, counters, caches and small tools."""
import gc, io, os, pathlib, pickle, subprocess, sys, threading
import pytest
from tinygrad_cpp import Context, Device, GlobalCounters, Tensor, dtypes, getenv
from tinygrad_cpp import helpers
from tinygrad_cpp.helpers import ContextVar, DEBUG, DEV, EMULATED_DTYPES, NOOPT, TRAINING, Target
from tinygrad_cpp.helpers import diskcache, diskcache_get, diskcache_put, fetch, tqdm, trange


def test_context_sets_and_restores():
  before = DEBUG.value
  with Context(DEBUG=7, NOOPT=1):
    assert DEBUG == 7 and DEBUG >= 2 and DEBUG > 6 and not DEBUG < 7 and DEBUG <= 7 and NOOPT and int(DEBUG) == 7
    with Context(DEBUG=0): assert not DEBUG
    assert DEBUG.value == 7
  assert DEBUG.value == before


def test_context_is_a_decorator_and_may_recurse():
  seen = []
  @Context(DEBUG=3)
  def f(n):
    DEBUG.value = n
    if n: f(n - 1)
    seen.append(DEBUG.value)
  before = DEBUG.value
  f(2)
  assert seen == [0, 1, 2] and DEBUG.value == before


def test_context_reaches_the_library():
  with Context(DEFAULT_FLOAT=dtypes.half): assert Tensor([1.0]).dtype == dtypes.half
  with Context(DEFAULT_FLOAT="double"): assert Tensor([1.0]).dtype == dtypes.double
  assert Tensor([1.0]).dtype == dtypes.float
  with Context(DEV="NULL"): assert Tensor([1.0]).device == "NULL"
  with Context(DEV="INTERP"): assert Device.DEFAULT == "INTERP" and (Tensor([1.0]) + 1).tolist() == [2.0]
  with Context(EMULATED_DTYPES="half,long"): assert EMULATED_DTYPES.tolist(dtypes) == [dtypes.half, dtypes.long]
  with Context(TRAINING=1): assert TRAINING.value == 1


def test_unknown_and_bad_values():
  before = DEBUG.value
  with pytest.raises(KeyError):
    with Context(DEBUG=9, SOMETHING_ELSE=1): pass
  with pytest.raises(ValueError):
    with Context(DEBUG="many"): pass
  assert DEBUG.value == before


def test_own_variables():
  v = ContextVar("TEST_HELPERS_OWN", 5)
  with pytest.raises(RuntimeError): ContextVar("TEST_HELPERS_OWN", 6)
  with pytest.raises(RuntimeError): ContextVar("DEBUG", 0)
  with Context(TEST_HELPERS_OWN=8): assert v == 8
  assert v == 5


def test_context_belongs_to_its_thread():
  other = []
  with Context(DEBUG=6):
    t = threading.Thread(target=lambda: other.append(DEBUG.value))
    t.start()
    t.join()
  assert other == [0 if "DEBUG" not in os.environ else int(os.environ["DEBUG"])]


def test_target():
  assert Target.parse("pci:0,1+AMD:llvm:gfx1100") == Target("AMD", "LLVM", "gfx1100", "pci", "0,1")
  for bad in ("A+B+C", "A:B:C:D"):
    with pytest.raises(RuntimeError): Target.parse(bad)
  with Context(DEV="NULL:CLANG;CPU:LLVM"):
    assert DEV.device == "NULL" and DEV.renderer == "CLANG" and str(DEV) == "NULL:CLANG;CPU:LLVM"
    assert DEV.target("CPU") == Target("CPU", "LLVM") and DEV.target("AMD", arch="x").arch == "x"
  with Context(DEV="LLVM"): assert Device.DEFAULT == "CPU" and Device.default.renderer.target.renderer == "LLVM"


def test_counters():
  GlobalCounters.reset()
  x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
  used = GlobalCounters.mem_used
  y = (x + 1).realize()
  assert GlobalCounters.kernel_count == 1 and GlobalCounters.global_ops == 4 and GlobalCounters.global_mem == 32
  assert GlobalCounters.mem_used == used + 16 and GlobalCounters.mem_used_per_device[Device.DEFAULT] >= used + 16
  assert GlobalCounters.mem_used_per_device["NO_SUCH"] == 0
  GlobalCounters.global_ops = 100
  assert GlobalCounters.global_ops == 100
  GlobalCounters.reset()
  assert (GlobalCounters.kernel_count, GlobalCounters.global_ops, GlobalCounters.global_mem,
          GlobalCounters.time_sum_s) == (0, 0, 0, 0.0)
  assert y.tolist() == [2, 3, 4, 5]


def test_disk_cache(tmp_path):
  code = """
from tinygrad_cpp.helpers import *
calls = []
@diskcache
def f(x):
  calls.append(x)
  return x * 2
assert diskcache_get("t", "k") is None
assert diskcache_put("t", {"a": 1, "b": b"x"}, [1, "two"]) == [1, "two"]
assert diskcache_get("t", {"a": 1, "b": b"x"}) == [1, "two"] and diskcache_get("t", {"a": 1, "b": b"y"}) is None
assert f(4) == 8 and f(4) == 8 and calls == [4]
with Context(CACHELEVEL=0): assert diskcache_get("t", {"a": 1, "b": b"x"}) is None
diskcache_clear()
assert diskcache_get("t", {"a": 1, "b": b"x"}) is None
"""
  subprocess.run([sys.executable, "-c", code], check=True,
                 env={**os.environ, "CACHEDB": str(tmp_path / "c.db"), "PYTHONPATH": os.pathsep.join(sys.path)})


def test_fetch_local_and_kept(tmp_path, monkeypatch):
  import hashlib, tarfile
  assert fetch("./here") == pathlib.Path("./here")
  source = tmp_path / "served"
  source.write_bytes(b"contents")
  good = hashlib.sha256(b"contents").hexdigest()
  class Response(io.BytesIO):
    status, headers = 200, {"content-length": "8"}
  asked = []
  def urlopen(request, timeout):
    asked.append(request.full_url)
    return Response(source.read_bytes())
  monkeypatch.setattr("urllib.request.urlopen", urlopen)
  kept = tmp_path / "cache" / "file"
  assert fetch("http://x/y", name=kept, sha256=good).read_bytes() == b"contents" and len(asked) == 1
  assert fetch("http://x/y", name=kept, sha256=good) == kept and len(asked) == 1
  kept.write_bytes(b"spoilt")
  assert fetch("http://x/y", name=kept, sha256=good).read_bytes() == b"contents" and len(asked) == 2
  with pytest.raises(RuntimeError, match="sha mismatch"): fetch("http://x/y", name=tmp_path / "other", sha256="0" * 64)
  Response.headers = {"content-length": "80"}
  with pytest.raises(RuntimeError, match="incomplete"): fetch("http://x/y", name=tmp_path / "other")
  assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "served"]
  with tarfile.open(tmp_path / "a.tar", "w") as t: t.add(source, "inner/served")
  Response.headers = {}
  source.write_bytes((tmp_path / "a.tar").read_bytes())
  folder = fetch("http://x/tar", name=tmp_path / "cache" / "tar", extract=True)
  assert (folder / "inner" / "served").read_bytes() == b"contents"


def test_progress_bar(capsys):
  assert list(trange(3, desc="work")) == [0, 1, 2]
  last = capsys.readouterr().err.split("\r")[-1]
  assert last.startswith("work: 100%|") and "| 3/3 [00:00<00:00," in last and last.endswith("it/s]\n")
  with tqdm(total=2000, unit="B", unit_scale=True) as bar: bar.update(1500)
  assert "1.50k/2.00k" in capsys.readouterr().err.split("\r")[-1]
  list(tqdm(range(3), disable=True))
  assert capsys.readouterr().err == ""


def test_small_tools():
  h = helpers
  assert h.argfix(1, 2) == h.argfix((1, 2)) == h.argfix([1, 2]) == (1, 2)
  with pytest.raises(ValueError): h.argfix([1], 2)
  assert h.prod([]) == 1 and h.dedup([2, 1, 2]) == [2, 1] and h.flatten([[1], [2, 3]]) == [1, 2, 3]
  assert h.argsort([3, 1, 2]) == [1, 2, 0] and h.partition([1, 2, 3], lambda x: x > 1) == ([2, 3], [1])
  assert h.flat_to_grouped([1, 2, 3, 4]) == ((3, 4), (1, 2)) and h.resolve_pool_pads([1, 2], 2) == [2, 2, 1, 1]
  assert h.strides_for_shape((2, 1, 3)) == (3, 0, 1) and h.canonicalize_strides((1, 2), (5, 6)) == (0, 6)
  assert h.round_down(-3, 4) == -4 and h.round_up(5, 4) == 8 and h.next_power2(5) == 8 and h.ceildiv(7.0, 2) == 4
  assert h.to_be32(0x01020304) == 0x04030201 and h.to_be64(1) == 1 << 56 and h.i2u(8, -1) == 255
  assert h.data64(0x100000002) == (1, 2) and h.data64_le(0x100000002) == (2, 1)
  assert h.size_to_str(1536) == "1.50 KB" and h.pluralize("x", 2) == "2 xs" and h.pad_bytes(b"abc", 4) == b"abc\0"
  assert h.strip_parens("(a)+(b)") == "(a)+(b)" and h.strip_parens("((a)+(b))") == "(a)+(b)"
  assert h.ansistrip(h.colored("x", "RED", True)) == "x" and h.ansilen(h.ansipad(h.colored("x", "red"), 4)) == 4
  assert h.to_function_name("a b") == "a20b" and h.getenv("NOT_SET_AT_ALL",
                                                          1.5) == 1.5 and getenv("NOT_SET_AT_ALL") == 0
  assert h.get_child({"a": [1, {"b": 2}]}, "a.1.b") == 2 and h.unwrap(3) == 3 and h.get_single_element([4]) == 4
  with pytest.raises(AssertionError): h.get_single_element([1, 2])
  with pytest.raises(RuntimeError, match="did you mean: 'CLANG'"): h.select_by_name(["CLANG"], str, "CLAN", "no such")
  with pytest.raises(TimeoutError): h.wait_cond(lambda: 1, value=2, timeout_ms=5)
  assert h.system("echo hello") == "hello"
  with pytest.raises(RuntimeError, match="exit code 1"): h.system("false")
  mv = memoryview(bytearray(b"abcd"))
  assert bytes(h.to_mv(h.mv_address(mv), 4)) == b"abcd" and bytes(h.from_mv(mv)) == b"abcd"
  f = pickle.loads(pickle.dumps((lambda x: x + 1).__code__))
  assert f.co_argcount == 1 and pickle.loads(pickle.dumps(os)) is os
  before = gc.isenabled()
  with h.disable_gc(): assert not gc.isenabled()
  assert gc.isenabled() == before


def test_timing_and_profiles(capsys):
  with helpers.Timing("took ", lambda ns: f", {ns > 0}") as t: pass
  assert capsys.readouterr().out.startswith("took ") and t.et > 0
  with helpers.Profiling(frac=1.0): sorted(range(10), key=lambda x: -x)
  assert "tot:" in capsys.readouterr().out
  with Context(PROFILE=1):
    with helpers.cpu_profile("block"): pass
  event = helpers.cpu_events.pop()
  assert event.name == "block" and event.en >= event.st
