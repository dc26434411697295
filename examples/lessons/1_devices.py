"""Lesson 1: a first tensor, lazy evaluation, and devices."""
from tinygrad_cpp import Context, Device, DeviceError, GlobalCounters, Tensor

# ---- 1. An expression is a graph. Nothing runs until somebody asks for a value. ----
a, b = Tensor([1.0, 2.0, 3.0]), Tensor([10.0, 20.0, 30.0])
total = a + b
print("the sum is computed:", "yes" if total.is_realized else "no")
for v in total.tolist(): print(f"{v:.0f} ", end="")  # asks
print()

# ---- 2. Everything that is pending is fused: three operations and a reduction are one kernel. ----
data = Tensor.arange(6).float().contiguous().realize()
GlobalCounters.reset()
norm = (data * 2 + 1).square().sum().item()
print(f"sum of squares {norm:.0f} in {GlobalCounters.kernel_count} kernel")

# ---- 3. A device is chosen by name: DEV in the environment, an argument, or a Context. ----
here = Tensor([1.0, 2.0])
there = here.to("INTERP")  # the interpreter: slow, the reference for others
print(f"{here.device}, {there.device}")
print(f"the same on both: {here.sum().item():.0f} {there.sum().item():.0f}")
with Context(DEV="INTERP"):
  print("inside of the context:", Tensor.ones(2).contiguous().device)

# ---- 4. Values do not move by themselves. Mixing devices is an error of the line that does it. ----
try: here + there
except DeviceError: print("mixing devices: DeviceError")
print(f"moved first: {(here + there.to('CPU')).sum().item():.0f}")

# ---- 5. Two devices of one kind: pieces of memory and queues of their own. ----
second = here.to("CPU:1")
print(f"{second.device}: {second.sum().item():.0f}")
assert Device.DEFAULT == "CPU"
