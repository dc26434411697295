"""Devices and raw buffers."""
import subprocess, sys, os, pickle
import numpy as np
import pytest
from tinygrad_cpp import Context, Device, FormatError, Tensor, dtypes
from tinygrad_cpp.device import Buffer, BufferSpec, Compiler, canonicalize_device, enumerate_devices_str
from tinygrad_cpp.helpers import mv_address


def test_names():
  assert Device.canonicalize(None) == Device.DEFAULT
  assert Device.canonicalize("cpu:0") == "CPU" and Device.canonicalize("cl:1") == "CL:1" and Device.canonicalize(
      "disk:/a/B") == "DISK:/a/B"
  assert Device.canonicalize("llvm") == "CPU" and Device.canonicalize("PYTHON") == "INTERP"
  assert Device.canonicalize("NPY") == "CPU" and Tensor(np.ones(3), device="NPY").device == "CPU"
  assert canonicalize_device(["CPU:0", "CPU:1"]) == ("CPU", "CPU:1") and canonicalize_device(("cpu",)) == "CPU"
  assert Device["CPU:0"] is Device["CPU"] and Device["CPU:1"].device_id == 1
  with pytest.raises(ModuleNotFoundError): Device["TYPO"]
  with pytest.raises(AttributeError, match="DEV.value"): Device.DEFAULT = "CPU"


def test_older_names_compute():
  for name in ("GPU", "CLANG", "LLVM", "PYTHON"): assert (Tensor([1, 2], device=name) + 1).tolist() == [2, 3]


def test_capabilities():
  r = Device["CPU"].renderer
  assert r is Device["CPU"].renderer and r.supports_float4 and not r.has_local and not r.has_shared
  assert {dtypes.half, dtypes.bfloat16, dtypes.double, dtypes.long} <= r.supported_dtypes()
  with Context(EMULATED_DTYPES="long"): assert dtypes.double not in r.supported_dtypes()
  assert r.target.device == "CPU" and r.target.arch
  with pytest.raises(RuntimeError, match="no renderer 'TYPO'"):
    with Context(DEV="CPU:TYPO"): Device["CPU"].renderer


def test_compiler():
  with Context(DEV="CPU:CLANG"):
    c = Device["CPU"].compiler
    assert isinstance(c, Compiler) and c is Device["CPU"].compiler
    assert c.compile("void f(void) {}")[:4] == b"\x7fELF" and c.compile_cached("void f(void) {}")[:4] == b"\x7fELF"
    with pytest.raises(RuntimeError): c.compile("not C")
  assert Compiler().compile_cached("text") == b"text"


def test_buffers():
  b = Buffer("CPU", 4, dtypes.float)
  assert not b.is_allocated() and b.nbytes == 16 and b.allocate() is b and b.is_allocated()
  b.copyin(memoryview(bytearray(range(16))))
  assert bytes(b.as_memoryview()) == bytes(range(16))
  b.as_memoryview(force_zero_copy=True)[0] = 99
  v = b.view(2, dtypes.uint8, 0)
  assert v.base is b and list(v.as_memoryview()) == [99, 1]
  with pytest.raises(AssertionError): b.view(1, dtypes.uint8, 16)
  c = Buffer("INTERP", 4, dtypes.float, initial_value=bytes(16)).copy_from(b)
  assert bytes(c.as_memoryview()) == bytes(b.as_memoryview()) and bytes(
      pickle.loads(pickle.dumps(c)).as_memoryview()) == bytes(b.as_memoryview())
  mv = memoryview(bytearray(b"\1\2\3\4"))
  e = Buffer("CPU", 4, dtypes.uint8, options=BufferSpec(external_ptr=mv_address(mv)))
  assert e.as_memoryview().tolist() == [1, 2, 3, 4]
  with pytest.raises(AssertionError): c.copy_from(e)


def test_listing():
  lines = list(enumerate_devices_str())
  assert any(line.startswith("*") for line in lines) and "PASS" in next(line for line in lines if " CPU " in line)
  assert "CPU" in list(Device.get_available_devices())


def test_deprecated_environment():
  env = {**os.environ, "CPU": "1", "DEV": "", "PYTHONPATH": os.pathsep.join(sys.path)}
  r = subprocess.run([sys.executable, "-c", "from tinygrad_cpp import Device; Device.DEFAULT"], env=env,
                     capture_output=True)
  assert r.returncode != 0 and b"deprecated" in r.stderr


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="it needs memory between processes as files")
def test_shared_memory_grows_to_what_it_is_to_hold(tmp_path):
  name = f"/dev/shm/tinygrad_cpp_test_{os.getpid()}"
  try:
    with open(name, "wb") as f: f.write(bytes([7] * 8))
    t = Tensor.empty(4, 4, dtype=dtypes.float32, device=f"disk:{name}")
    t[1].flatten().assign(np.arange(4, dtype=np.float32).tobytes())
    assert t[1].tolist() == [0, 1, 2, 3] and os.stat(name).st_size == 64
    assert list(open(name, "rb").read(8)) == [7] * 8
  finally: os.unlink(name)
  (tmp_path / "short").write_bytes(bytes(8))  # another file has been cut off
  with pytest.raises(FormatError, match="of 8 bytes, expected 64"):
    Tensor.empty(4, 4, device=f"disk:{tmp_path / 'short'}").tolist()
