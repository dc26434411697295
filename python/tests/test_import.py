"""Importing the module does nothing but that: no driver is opened, no thread is started."""
import json
import os
import shutil
import subprocess
import sys

import pytest

CODE = """
import json, tinygrad_cpp
threads = [l.split()[1] for l in open('/proc/self/status') if l.startswith('Threads')]
libraries = ('pocl', 'libOpenCL', 'libcuda', 'libnvrtc', 'libLLVM', 'vulkan', 'wgpu', 'libmpi')
opened = sorted({s for s in libraries for l in open('/proc/self/maps') if s in l})
print(json.dumps([int(threads[0]), opened, tinygrad_cpp.device.ALL_DEVICES]))
"""


def test_import_opens_no_driver_and_starts_no_thread():
  out = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True).stdout
  threads, libraries, devices = json.loads(out)
  assert threads == 1
  assert libraries == []
  assert {"CPU", "CL", "CUDA", "INTERP"} <= set(devices)


KERNEL = """
import ctypes, sys
if len(sys.argv) > 1: ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
from tinygrad_cpp import Tensor
assert (Tensor([1.0, 2.0]).realize() + 1).tolist() == [2, 3]
print(next((line.split()[-1] for line in open("/proc/self/maps") if "tinygrad_llvm" in line), ""))
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("nm") or not shutil.which("cc"),
                    reason="it reads the symbols of the plugin and makes a library of others")
def test_another_copy_of_llvm_in_the_program(tmp_path):
  run = lambda *args: subprocess.run([sys.executable, "-c", KERNEL, *args], env={**os.environ, "CCACHE": "0"},
                                     text=True, capture_output=True, check=False)
  plugin = run().stdout.strip()
  if not plugin: pytest.skip("kernels are not compiled by the LLVM plugin here")
  nm = subprocess.run(["nm", "-D", "--undefined-only", plugin], text=True, capture_output=True, check=True)
  names = {line.split()[-1].split("@")[0] for line in nm.stdout.splitlines()}
  names = sorted(n for n in names if n.startswith(("LLVM", "_ZN4llvm")))
  code = "".join(f"void {n}(void) {{ __builtin_trap(); }}\n" for n in names)
  if not code: pytest.skip("the plugin contains its copy of LLVM")
  (tmp_path / "other.c").write_text(code)
  subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", tmp_path / "other.so", tmp_path / "other.c"], check=True)
  done = run(str(tmp_path / "other.so"))
  assert done.returncode == 0 and done.stdout.strip() == plugin, (done.returncode, done.stderr[-500:])
