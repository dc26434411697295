#!/usr/bin/env python3
"""Writes special_reference.inc: what NumPy and PyTorch give at the ends of the range, next to zero, at infinities and
NaN.
   special_reference.py > special_reference.inc"""
import numpy as np, torch
import torch.nn.functional as F

np.seterr(all="ignore")
inf, nan = float("inf"), float("nan")
X = [0.0, -0.0, 1e-40, 1e-30, -1e-30, 1e-10, -1e-10, 1e-5, 1e-4, -1e-4, 1e-3, 0.01, 0.1, -0.1, 0.25, 0.5, -0.5, 0.51,
     0.62, 0.63, 0.75, 0.9, 0.999,
     0.999999, -0.999999, 1.0, -1.0, 1.001, 1.1, -1.5, 1.5, 2.0, 2.5, -2.5, 3.0, 5.0, 6.0, -6.0, 7.0, 8.5, 10.0, -10.0,
     20.0, -20.0, 50.0, -50.0, 80.0,
     -80.0, 87.0, 88.5, 89.0, 100.0, -100.0, 500.0, 1e3, -1e3, 1e4, 1e5, 1e6, -1e6, 1.5e7, 1e8, 1e10, 1e19, -1e19, 1e30,
     -1e30, 3.4028235e38,
     -3.4028235e38, inf, -inf, nan]
FUNCTIONS = dict(exp=np.exp, exp2=np.exp2, log=np.log, log2=np.log2, log10=np.log10, sqrt=np.sqrt,
                 rsqrt=lambda x: 1 / np.sqrt(x), reciprocal=lambda x: 1 / x,
                 sin=np.sin, cos=np.cos, tan=np.tan, asin=np.arcsin, acos=np.arccos, atan=np.arctan, sinh=np.sinh,
                 cosh=np.cosh, tanh=np.tanh,
                 asinh=np.arcsinh, acosh=np.arccosh, atanh=np.arctanh, erf=lambda x: torch.erf(torch.tensor(x)).numpy(),
                 floor=np.floor, ceil=np.ceil,
                 trunc=np.trunc, round=np.round, sign=lambda x: torch.sign(torch.tensor(x)).numpy(), abs=np.abs,
                 square=np.square)
ACTIVATIONS = dict(relu=F.relu, relu6=F.relu6, leaky_relu=F.leaky_relu, hardtanh=F.hardtanh, hardsigmoid=F.hardsigmoid,
                   hardswish=F.hardswish, elu=F.elu,
                   celu=F.celu, sigmoid=torch.sigmoid, silu=F.silu, softplus=F.softplus, softsign=F.softsign,
                   logsigmoid=F.logsigmoid, mish=F.mish)
A = [5.5, -5.5, 0.0, -0.0, 1e9, -1e9, 3e38, -3e38, 1e-30, 7.0, -4.0, 1e20, 16777219.0, 1.0, inf, -inf, nan]
B = [3.0, -3.0, 0.1, 1e-20, 7.0, -2.0, 1e30, 0.0, inf, -inf, nan]

def text(v):
  v = float(v)
  return "kNaN" if v != v else ("-kInf" if v < 0 else "kInf") if abs(v) == inf else repr(v)
def row(name, values): print(f'{{"{name}", {{{", ".join(text(v) for v in values)}}}}},')
def section(name, kind): print(f"const {kind} {name} = {{")

print("// Written by special_reference.py.")
x32 = np.array(X, np.float32).astype(np.float64)
print(f"const std::vector<double> kPoints = {{{', '.join(text(v) for v in x32)}}};")
with np.errstate(all="ignore"):
  section("kFunctions", "Table")
  for name, f in FUNCTIONS.items(): row(name, f(x32).astype(np.float32))
  print("};")
  section("kFunctionsDouble", "Table")
  for name, f in FUNCTIONS.items(): row(name, f(x32))
  print("};")
section("kActivations", "Table")
for name, f in ACTIVATIONS.items(): row(name, f(torch.tensor(x32)).float())
print("};")
pairs = [(a, b) for a in A for b in B]
for key, dtype in dict(float32=torch.float32, float64=torch.float64, float16=torch.float16,
                       bfloat16=torch.bfloat16).items():
  a, b = torch.tensor([p[0] for p in pairs], dtype=dtype), torch.tensor([p[1] for p in pairs], dtype=dtype)
  # PyTorch's vectorized fmod is NaN for large quotients; C's is exact. A zero of mod has the sign of b, as in NumPy.
  x, y = a.double().numpy(), b.double().numpy()
  with np.errstate(all="ignore"): r = np.fmod(x, y)
  m = np.where(r == 0, np.copysign(r, y), np.where((r < 0) != (y < 0), r + y, r))
  section(f"kModulo_{key}", "Table")
  row("a", a); row("b", b); row("fmod", torch.tensor(r).to(dtype)); row("mod", torch.tensor(m).to(dtype))
  print("};")
