"""Importing the module does nothing but that: no driver is opened, no thread is started."""
import json
import subprocess
import sys

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
