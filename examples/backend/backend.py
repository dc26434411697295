"""Computes on SIM from Python: backend.py build/dev/lib/libsim_backend.so"""
import sys

from tinygrad_cpp import Tensor
from tinygrad_cpp.device import Device, load_backend

try:
  Device["SIM"]
  sys.exit("SIM is known before its backend was loaded")
except Exception as e:
  assert "SIM" in str(e), e

try:
  load_backend("/there/is/none.so")
  sys.exit("loaded what is not there")
except Exception as e:
  assert "none.so" in str(e), e

load_backend(sys.argv[1])
a = Tensor([[1.0, 2.0], [3.0, 4.0]], device="SIM")
print((a @ a + 1).tolist())
assert (a @ a + 1).tolist() == [[8.0, 11.0], [16.0, 23.0]]
assert a.to("SIM:1").sum().item() == 10.0
