#!/usr/bin/env python3
"""Writes cases.tsv: for each named case its inputs, and the values and gradients PyTorch (or NumPy) computes for it.
   record.py > cases.tsv       A case of the same name in op_cases.h is checked against it."""
import hashlib
import numpy as np, torch
import torch.nn.functional as F

np.seterr(all="ignore")

def values(n, seed, lo, hi):
  i = np.arange(n, dtype=np.int64)
  return lo + (hi - lo) * (((i * 618034 + seed * 104729 + 12345) % 1000003) / 1000003.0)

def make(spec, k):
  kind, shape, lo, hi = spec
  n = int(np.prod(shape)) if shape else 1
  v = values(n, k, lo, hi)
  if kind == "f": return torch.tensor(v.astype(np.float32)).reshape(shape)
  if kind == "h": return torch.tensor(v.astype(np.float32)).half().reshape(shape)
  if kind == "d": return torch.tensor(v).reshape(shape)
  if kind == "b": return torch.tensor(np.floor(v) % 2 == 1).reshape(shape)
  dt = {"i": torch.int32, "l": torch.int64, "u": torch.uint8, "s": torch.int16}[kind]
  return torch.tensor(np.floor(v).astype(np.int64)).to(dt).reshape(shape)

def f(*shape, lo=-2.0, hi=2.0): return ("f", shape, lo, hi)
def i(*shape, lo=-9.0, hi=9.0): return ("i", shape, lo, hi)
def b(*shape): return ("b", shape, 0.0, 2.0)
POS = dict(lo=0.1, hi=3.0)
UNIT = dict(lo=-0.9, hi=0.9)

C = {}   # name -> (inputs, function)
def case(name, inputs, fn): assert name not in C, name; C[name] = (inputs, fn)

# ---- elementwise ----
UNARY = ("relu sigmoid tanh exp exp2 sin cos square abs sign ceil floor round trunc neg silu gelu_erf erf relu6 hardswish "
         "mish softplus softsign logsigmoid quick_gelu hardsigmoid celu elu selu leaky_relu hardtanh gelu sinh cosh")
for name in UNARY.split():
  fn = {"relu": F.relu, "sigmoid": torch.sigmoid, "square": torch.square, "silu": F.silu,
        "gelu_erf": lambda x: F.gelu(x), "gelu": lambda x: F.gelu(x, approximate="tanh"), "relu6": F.relu6,
        "hardswish": F.hardswish, "mish": F.mish, "softplus": F.softplus, "softsign": F.softsign,
        "logsigmoid": F.logsigmoid, "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
        "hardsigmoid": F.hardsigmoid, "celu": F.celu, "elu": F.elu,
        "selu": lambda x: 1.0507 * torch.where(x >= 0, x, 1.67326 * (x.exp() - 1)), "leaky_relu": F.leaky_relu,
        "hardtanh": F.hardtanh}.get(name) or getattr(torch, name)
  case(name, [f(3, 5, lo=-3.7, hi=4.1)], fn)
for name in "log log2 log10 sqrt rsqrt reciprocal".split(): case(name, [f(4, 4, **POS)], getattr(torch, name))
for name in "asin acos atan atanh".split(): case(name, [f(7, **UNIT)], getattr(torch, name))
case("tan", [f(9, lo=-1.2, hi=1.2)], torch.tan)
case("asinh", [f(9, lo=0.0, hi=3.0)], torch.asinh)
case("acosh", [f(9, lo=1.1, hi=4.0)], torch.acosh)
case("add_broadcast", [f(2, 3, 4), f(3, 1)], torch.add)
case("sub_broadcast", [f(4), f(2, 1)], torch.sub)
case("mul_scalar_shape", [f(), f(3)], torch.mul)
case("div", [f(3, 4), f(4, **POS)], torch.div)
case("div_int", [i(9), i(9, lo=1, hi=9)], torch.div)
case("floor_div_int", [i(20), i(20, lo=1, hi=5)], lambda x, y: torch.div(x, y, rounding_mode="floor"))
case("trunc_div_int", [i(20), i(20, lo=1, hi=5)], lambda x, y: torch.div(x, y, rounding_mode="trunc"))
case("mod_int", [i(20), i(20, lo=1, hi=5)], torch.remainder)
case("fmod_int", [i(20), i(20, lo=1, hi=5)], torch.fmod)
case("mod_float", [f(12, lo=-5, hi=5), f(12, **POS)], torch.remainder)
case("pow_tensor", [f(8, **POS), f(8)], torch.pow)
case("pow_2", [f(8)], lambda x: x ** 2)
case("pow_m3", [f(8, **POS)], lambda x: x ** -3)
case("pow_frac", [f(8, **POS)], lambda x: x ** 1.7)
case("pow_of_scalar", [f(8)], lambda x: 2.5 ** x)
case("maximum", [f(3, 4), f(4)], torch.maximum)
case("minimum", [f(3, 4), f(4)], torch.minimum)
case("maximum_int", [i(12), i(12)], torch.maximum)
case("minimum_int", [i(12), i(12)], torch.minimum)
case("minimum_u8", [("u", (9,), 0, 255), ("u", (9,), 0, 255)], torch.minimum)
case("where", [b(3, 4), f(3, 4), f(4)], torch.where)
case("where_scalar", [b(3, 4), f(3, 4)], lambda c, x: torch.where(c, x, 2.0))
case("clamp", [f(10)], lambda x: x.clamp(-0.5, 1.0))
case("clamp_min", [f(10)], lambda x: x.clamp(min=0.25))
for name, fn in dict(lt=torch.lt, gt=torch.gt, le=torch.le, ge=torch.ge, eq=torch.eq, ne=torch.ne).items():
  case(name + "_int", [i(15, lo=-3, hi=3), i(15, lo=-3, hi=3)], fn)
  case(name + "_float", [f(15), f(15)], fn)
for name, fn in {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}.items():
  case(name + "_int", [i(15), i(15)], fn)
  case(name + "_bool", [b(15), b(15)], fn)
case("not_int", [i(9)], torch.bitwise_not)
case("logical_not", [i(9, lo=-1, hi=2)], torch.logical_not)
case("lshift", [i(9), i(9, lo=0, hi=5)], torch.bitwise_left_shift)
case("rshift", [i(9, lo=-99, hi=99), i(9, lo=0, hi=5)], torch.bitwise_right_shift)
case("copysign", [f(9), f(9)], torch.copysign)
case("logaddexp", [f(9), f(9)], torch.logaddexp)
case("lerp", [f(9), f(9), f(9)], torch.lerp)
case("isnan_isinf", [f(9, lo=0, hi=2)], lambda x: torch.isfinite(x))
case("cast_float_int", [f(12, lo=-9, hi=9)], lambda x: x.int())
case("cast_half", [f(12, lo=-9, hi=9)], lambda x: x.half())
case("cast_int_bool", [i(12, lo=-1, hi=2)], lambda x: x.bool())
case("cast_half_float", [("h", (7,), -4, 4)], lambda x: x.float())
case("half_add", [("h", (7,), -4, 4), ("h", (7,), -4, 4)], torch.add)
case("bitcast_f32_i32", [f(5)], lambda x: x.view(torch.int32))
case("bitcast_f32_i16", [f(2, 3)], lambda x: x.view(torch.int16))
case("bitcast_i16_i32", [("s", (2, 4), -300, 300)], lambda x: x.view(torch.int32))
# ---- reduces ----
for name, fn in dict(sum=torch.sum, mean=torch.mean, prod=torch.prod).items():
  case(name, [f(2, 3, 4)], fn)
  case(name + "_axis", [f(2, 3, 4)], lambda x, fn=fn: fn(x, 1))
  case(name + "_keepdim", [f(2, 3, 4)], lambda x, fn=fn: fn(x, -1, keepdim=True))
case("sum_axes", [f(2, 3, 4)], lambda x: x.sum((0, 2)))
case("sum_0d", [f()], torch.sum)
case("sum_int", [i(5, 4)], lambda x: x.sum(0).int())
case("sum_bool", [b(5, 4)], lambda x: x.sum(0).int())
case("sum_half", [("h", (5, 4), -4, 4)], lambda x: x.sum(0))
case("max", [f(2, 3, 4)], torch.amax)
case("max_axis", [f(2, 3, 4)], lambda x: x.amax(1))
case("min_axis", [f(2, 3, 4)], lambda x: x.amin((0, 2), keepdim=True))
case("max_int", [i(3, 5)], lambda x: x.amax(1))
case("min_int", [i(3, 5)], lambda x: x.amin(1))
case("max_ties", [("f", (4,), 1.0, 1.0)], lambda x: x.amax())
case("any", [b(4, 3)], lambda x: x.any(1))
case("all", [b(4, 3)], lambda x: x.all(1))
case("var", [f(3, 5)], lambda x: x.var(1))
case("var_correction", [f(3, 5)], lambda x: x.var((0, 1), correction=0))
case("std", [f(3, 5)], lambda x: x.std(0))
case("logsumexp", [f(3, 5)], lambda x: x.logsumexp(1))
case("softmax", [f(3, 5)], lambda x: x.softmax(-1))
case("softmax_axis0", [f(3, 5)], lambda x: x.softmax(0))
case("log_softmax", [f(3, 5)], lambda x: x.log_softmax(1))
case("argmax", [f(3, 5)], lambda x: x.argmax().int())
case("argmax_axis", [f(3, 5)], lambda x: x.argmax(1).int())
case("argmin_axis", [f(3, 5)], lambda x: x.argmin(0).int())
case("argmax_ties", [("f", (6,), 1.0, 1.0)], lambda x: torch.tensor(0, dtype=torch.int32))
case("cumsum", [f(4, 5)], lambda x: x.cumsum(0))
case("cumsum_axis1", [f(4, 5)], lambda x: x.cumsum(1))
case("cumsum_long", [f(600, lo=0, hi=1)], lambda x: x.cumsum(0))
case("cumprod", [f(3, 5, **POS)], lambda x: x.cumprod(1))
case("cummax", [f(3, 5)], lambda x: x.cummax(1)[0])
case("logcumsumexp", [f(3, 5)], lambda x: x.logcumsumexp(1))
case("layernorm", [f(3, 8)], lambda x: F.layer_norm(x, (8,)))
case("normalize", [f(3, 8)], lambda x: F.normalize(x))
case("sort", [f(2, 7)], lambda x: x.sort(1)[0])
case("argsort_descending", [f(2, 7)], lambda x: x.sort(1, descending=True)[1].int())
case("topk", [f(2, 7)], lambda x: x.topk(3)[0])
case("sort_descending", [f(2, 7)], lambda x: x.sort(1, descending=True)[0])
case("argsort_ties", [i(3, 9, lo=-2, hi=2)], lambda x: x.sort(dim=1, stable=True)[1].int())
case("sort_long", [f(1, 1100)], lambda x: x.sort(1)[0])
case("argsort_long_ties", [i(2, 1300, lo=-20, hi=20)], lambda x: x.sort(dim=1, stable=True)[1].int())
case("argsort_long_descending", [("h", (1030,), -2, 2)], lambda x: x.sort(dim=0, stable=True, descending=True)[1].int())
# ---- movement ----
case("reshape", [f(2, 6)], lambda x: x.reshape(3, 4))
case("expand", [f(3, 1)], lambda x: x.expand(2, 3, 4))
case("permute", [f(2, 3, 4)], lambda x: x.permute(2, 0, 1))
case("transpose", [f(2, 3, 4)], lambda x: x.transpose(-1, 0))
case("shrink", [f(4, 5)], lambda x: x[1:3, 2:5])
case("pad", [f(2, 3)], lambda x: F.pad(x, (1, 2, 0, 1)))
case("pad_value", [f(2, 3)], lambda x: F.pad(x, (1, 2, 0, 1), value=2.5))
case("pad_negative", [f(4, 5)], lambda x: F.pad(x, (-1, 2, 1, -2)))
case("pad_reflect", [f(1, 2, 5)], lambda x: F.pad(x, (2, 3), mode="reflect"))
case("pad_replicate", [f(1, 2, 5)], lambda x: F.pad(x, (2, 3), mode="replicate"))
case("pad_circular", [f(1, 2, 5)], lambda x: F.pad(x, (2, 3), mode="circular"))
case("flip", [f(3, 4)], lambda x: x.flip(0, 1))
case("cat_equal", [f(2, 3), f(2, 3)], lambda x, y: torch.cat([x, y], 1))
case("cat_unequal", [f(2, 3), f(1, 3), f(4, 3)], lambda *x: torch.cat(x, 0))
case("stack", [f(2, 3), f(2, 3)], lambda *x: torch.stack(x, -1))
case("repeat", [f(2, 3)], lambda x: x.repeat(2, 1, 3))
case("repeat_interleave", [f(2, 3)], lambda x: x.repeat_interleave(2, 1))
case("split", [f(7, 2)], lambda x: x.split(3)[2])
case("chunk", [f(7, 2)], lambda x: x.chunk(3)[1])
case("unfold", [f(2, 9)], lambda x: x.unfold(1, 4, 2))
case("unfold_axis0", [f(9, 2)], lambda x: x.unfold(0, 3, 1))
case("roll", [f(3, 4)], lambda x: x.roll((1, -1), (0, 1)))
case("diagonal", [f(4, 5)], lambda x: x.diagonal(1))
case("diagonal_neg", [f(5, 3)], lambda x: x.diagonal(-1))
case("diag", [f(4)], torch.diag)
case("triu", [f(4, 5)], lambda x: x.triu(1))
case("tril", [f(2, 4, 5)], lambda x: x.tril(-1))
case("squeeze_unsqueeze", [f(2, 1, 3)], lambda x: x.squeeze(1).unsqueeze(-1))
case("flatten", [f(2, 3, 4)], lambda x: x.flatten(1))
case("movement_chain", [f(4, 6)], lambda x: F.pad(x.T.reshape(3, 8)[:, 1:7], (1, 1)).flip(1).T)
case("zero_size_sum", [f(0, 3)], lambda x: x.sum(0))
case("zero_size_add", [f(0, 3), f(1)], torch.add)
case("zero_size_cat", [f(0, 3), f(2, 3)], lambda x, y: torch.cat([x, y]))
# ---- matrices ----
case("dot_1_1", [f(5), f(5)], torch.dot)
case("dot_2_2", [f(3, 5), f(5, 4)], torch.matmul)
case("dot_1_2", [f(5), f(5, 4)], torch.matmul)
case("dot_2_1", [f(3, 5), f(5)], torch.matmul)
case("dot_3_2", [f(2, 3, 5), f(5, 4)], torch.matmul)
case("dot_3_1", [f(2, 3, 5), f(5)], torch.matmul)
case("dot_1_3", [f(5), f(2, 5, 4)], torch.matmul)
case("dot_2_3", [f(3, 5), f(2, 5, 4)], torch.matmul)
case("dot_4_3", [f(2, 1, 3, 5), f(4, 5, 2)], torch.matmul)
case("dot_int", [i(3, 4), i(4, 2)], torch.matmul)
case("linear", [f(2, 5), f(5, 4), f(4)], lambda x, w, c: x @ w + c)
case("einsum_matmul", [f(3, 4), f(4, 5)], lambda x, y: torch.einsum("ij,jk->ik", x, y))
case("einsum_batch", [f(2, 3, 4), f(2, 4, 5)], lambda x, y: torch.einsum("bij,bjk->bki", x, y))
case("einsum_implicit", [f(3, 4), f(4, 2)], lambda x, y: torch.einsum("ab,bc", x, y))
case("einsum_ellipsis", [f(2, 3, 4), f(4, 5)], lambda x, y: torch.einsum("...i,ij->...j", x, y))
case("einsum_trace", [f(4, 4)], lambda x: torch.einsum("ii->", x))
case("attention", [f(2, 3, 4), f(2, 5, 4), f(2, 5, 4)], lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
case("attention_causal", [f(2, 4, 4), f(2, 4, 4), f(2, 4, 4)],
     lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
# ---- convolution and pooling ----
case("conv2d", [f(2, 3, 6, 5), f(4, 3, 3, 2)], lambda x, w: F.conv2d(x, w))
case("conv2d_bias_pad", [f(1, 2, 5, 5), f(3, 2, 3, 3), f(3)], lambda x, w, c: F.conv2d(x, w, c, padding=1))
case("conv2d_stride", [f(1, 2, 7, 8), f(2, 2, 3, 3)], lambda x, w: F.conv2d(x, w, stride=2))
case("conv2d_stride_gap", [f(1, 1, 7, 8), f(2, 1, 2, 1)], lambda x, w: F.conv2d(x, w, stride=3))
case("conv2d_dilation", [f(1, 2, 7, 8), f(2, 2, 3, 2)], lambda x, w: F.conv2d(x, w, dilation=(2, 3)))
case("conv2d_groups", [f(2, 4, 5, 5), f(6, 2, 3, 3)], lambda x, w: F.conv2d(x, w, groups=2, padding=1, stride=2))
case("conv2d_depthwise", [f(1, 3, 5, 5), f(3, 1, 3, 3)], lambda x, w: F.conv2d(x, w, groups=3))
case("conv2d_1x1", [f(2, 3, 4, 4), f(5, 3, 1, 1)], lambda x, w: F.conv2d(x, w))
case("conv1d", [f(2, 3, 9), f(4, 3, 4)], lambda x, w: F.conv1d(x, w, padding=2, stride=2))
case("conv3d", [f(1, 2, 4, 4, 3), f(2, 2, 2, 3, 2)], lambda x, w: F.conv3d(x, w))
case("conv_transpose2d", [f(1, 3, 4, 4), f(3, 2, 3, 3)], lambda x, w: F.conv_transpose2d(x, w))
case("conv_transpose2d_options", [f(1, 4, 4, 3), f(4, 2, 3, 3)],
     lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2))
case("max_pool2d", [f(1, 2, 6, 6)], lambda x: F.max_pool2d(x, 2))
case("max_pool2d_overlap", [f(1, 2, 7, 6)], lambda x: F.max_pool2d(x, 3, stride=2, padding=1))
case("max_pool2d_ceil", [f(1, 1, 7, 6)], lambda x: F.max_pool2d(x, 3, stride=2, ceil_mode=True))
case("max_pool2d_dilation", [f(1, 1, 8, 8)], lambda x: F.max_pool2d(x, 2, stride=1, dilation=3))
case("avg_pool2d", [f(1, 2, 6, 7)], lambda x: F.avg_pool2d(x, 2))
case("avg_pool2d_pad", [f(1, 2, 6, 7)], lambda x: F.avg_pool2d(x, 3, stride=2, padding=1))
case("avg_pool2d_exclude", [f(1, 2, 6, 7)], lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False))
case("max_pool_1d", [f(2, 3, 9)], lambda x: F.max_pool1d(x, 3, stride=2, padding=1))
case("max_pool_3d", [f(1, 5, 4, 6)], lambda x: F.max_pool3d(x, 2, stride=(2, 1, 2)))
case("avg_pool_1d", [f(2, 3, 9)], lambda x: F.avg_pool1d(x, 4, stride=2, padding=1))
case("avg_pool2d_ceil", [f(1, 1, 6, 7)], lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True))
# ---- losses ----
def lab(*shape, n=5): return ("i", shape, 0.0, float(n))
case("sparse_cce", [f(4, 5), lab(4)], lambda x, y: F.cross_entropy(x, y.long()))
case("sparse_cce_smooth", [f(4, 5), lab(4)],
     lambda x, y: -((0.9 * x.log_softmax(-1).gather(-1, y.long()[:, None])[:, 0])
                    + 0.1 * x.log_softmax(-1).mean(-1)).mean())
case("sparse_cce_ignore", [f(6, 5), lab(6)], lambda x, y: F.cross_entropy(x, y.long(), ignore_index=2))
case("cross_entropy", [f(4, 5), lab(4)], lambda x, y: F.cross_entropy(x, y.long()))
case("cross_entropy_spatial", [f(2, 5, 3), lab(2, 3)], lambda x, y: F.cross_entropy(x, y.long(), reduction="none"))
case("cross_entropy_smooth", [f(4, 5), lab(4)], lambda x, y: F.cross_entropy(x, y.long(), label_smoothing=0.2))
case("cross_entropy_probabilities", [f(4, 5), f(4, 5, **POS)], lambda x, y: F.cross_entropy(x, y, reduction="sum"))
case("nll_loss", [f(4, 5), lab(4)], lambda x, y: F.nll_loss(x, y.long()))
case("nll_loss_weight", [f(6, 5), lab(6), f(5, **POS)],
     lambda x, y, w: F.nll_loss(x, y.long(), w.detach(), ignore_index=1))
case("bce", [f(9, lo=0.1, hi=0.9), f(9, lo=0, hi=1)], lambda x, y: F.binary_cross_entropy(x, y.detach()))
case("bce_logits", [f(9), f(9, lo=0, hi=1)], lambda x, y: F.binary_cross_entropy_with_logits(x, y))
case("bce_logits_weight", [f(9), f(9, lo=0, hi=1), f(9, **POS)],
     lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w.detach(), reduction="sum"))
case("mse", [f(3, 4), f(3, 4)], lambda x, y: F.mse_loss(x, y))
# ---- indexing ----
case("index_int", [f(3, 4)], lambda x: x[1])
case("index_negative", [f(3, 4)], lambda x: x[-1, -2])
case("index_slice_step", [f(9, 4)], lambda x: x[1:8:3, ::2])
case("index_slice_negative_step", [f(9, 4)], lambda x: x.flip(0)[::2][:, 1:].clone())
case("index_none_ellipsis", [f(2, 3, 4)], lambda x: x[None, ..., 1:3, None])
case("index_empty_slice", [f(5, 2)], lambda x: x[3:2])
case("index_tensor", [f(6, 3), i(4, lo=-6, hi=6)], lambda x, j: x[j.long()])
case("index_tensor_2d", [f(6, 3), i(2, 3, lo=0, hi=6)], lambda x, j: x[j.long()])
case("index_tensor_axis1", [f(2, 6, 3), i(4, lo=0, hi=6)], lambda x, j: x[:, j.long()])
case("index_two_tensors", [f(4, 5, 3), i(6, lo=0, hi=4), i(6, lo=0, hi=5)], lambda x, j, k: x[j.long(), k.long()])
case("index_two_tensors_apart", [f(4, 3, 5), i(6, lo=0, hi=4), i(6, lo=0, hi=5)],
     lambda x, j, k: x[j.long(), :, k.long()])
case("index_two_tensors_inner", [f(2, 4, 5), i(3, 1, lo=0, hi=4), i(2, lo=0, hi=5)],
     lambda x, j, k: x[:, j.long(), k.long()])
case("index_of_expression", [f(6, 3), i(4, lo=0, hi=6)], lambda x, j: (x * 2 + 1)[j.long()])
case("gather", [f(3, 5), i(3, 4, lo=0, hi=5)], lambda x, j: x.gather(1, j.long()))
case("gather_axis0", [f(5, 3), i(2, 3, lo=0, hi=5)], lambda x, j: x.gather(0, j.long()))
case("gather_smaller", [f(4, 5), i(2, 3, lo=0, hi=5)], lambda x, j: x.gather(1, j.long()))
case("scatter", [f(3, 5), f(3, 5), ("i", (3, 5), 0, 5)], lambda x, s, j: scatter_last(x, s, j))
case("scatter_add", [f(3, 5), f(3, 4), i(3, 4, lo=0, hi=5)], lambda x, s, j: x.scatter_add(1, j.long(), s))
case("one_hot", [lab(6)], lambda y: F.one_hot(y.long(), 5).int())

# ---- further methods ----
case("cummax_indices", [f(3, 6)], lambda x: x.cummax(1)[1].int())
case("cummin", [f(3, 6)], lambda x: x.cummin(1)[0])
case("softmin", [f(3, 5)], lambda x: F.softmin(x, -1))
for how in ("sum", "prod", "mean", "amax", "amin"):
  case("scatter_reduce_" + how, [f(3, 5), f(2, 4), i(2, 4, lo=0, hi=5)],
       lambda x, s, j, how=how: x.scatter_reduce(1, j.long(), s, how))
  case("scatter_reduce_" + how + "_exclude", [f(3, 5), f(2, 4), i(2, 4, lo=0, hi=5)],
       lambda x, s, j, how=how: x.scatter_reduce(1, j.long(), s, how, include_self=False))
case("masked_select", [f(4, 5), b(4, 5)], lambda x, m: x[m])
case("masked_select_size", [f(6), b(6)], lambda x, m: torch.cat([x[m], torch.full((8 - int(m.sum()),), 9.0)]))
case("nonzero", [i(4, 5, lo=-1, hi=2)], lambda x: x.nonzero().int())
case("max_pool2d_indices", [f(1, 2, 7, 6)],
     lambda x: F.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)[1].int())
case("max_unpool2d", [f(1, 2, 6, 6)], lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2))
case("interpolate_linear", [f(1, 2, 5)], lambda x: F.interpolate(x, 8, mode="linear"))
case("interpolate_bilinear_corners", [f(1, 2, 3, 4)],
     lambda x: F.interpolate(x, (5, 7), mode="bilinear", align_corners=True))
case("interpolate_nearest", [f(1, 2, 3, 4)], lambda x: F.interpolate(x, (5, 3), mode="nearest"))
case("interpolate_nearest_exact", [f(1, 2, 3, 4)], lambda x: F.interpolate(x, (5, 3), mode="nearest-exact"))
case("rearrange", [f(2, 6, 5)], lambda x: x.reshape(2, 3, 2, 5).permute(0, 3, 2, 1).reshape(2, 5, 6))
case("rearrange_ellipsis", [f(2, 3, 4)], lambda x: x.permute(2, 0, 1).reshape(4, 1, 6))
case("qr_product", [f(2, 4, 3)], lambda x: x.detach())
case("qr_orthogonal", [f(4, 4)], lambda x: torch.eye(4))
case("svd_values", [f(4, 3)], lambda x: torch.linalg.svdvals(x.detach()))
case("svd_product", [f(2, 3, 5)], lambda x: x.detach())
case("svd_full_orthogonal", [f(5, 3)], lambda x: torch.eye(5))
case("newton_schulz", [f(3, 4)], lambda x: newton_schulz(x.detach(), 3, (3.4445, -4.775, 2.0315)))
for name, fn in {"sha3_256": hashlib.sha3_256, "sha3_224": hashlib.sha3_224}.items():
  case("keccak_" + name, [("u", (2, 150), 0, 256)],
       lambda x, fn=fn: torch.stack([torch.tensor(list(fn(bytes(r.tolist())).digest()), dtype=torch.uint8) for r in x]))
case("keccak_shake_128", [("u", (1, 20), 0, 256)],
     lambda x: torch.tensor(list(hashlib.shake_128(bytes(x[0].tolist())).digest(16)), dtype=torch.uint8)[None])

# ---- creation ----
case("arange_steps", [f(1)], lambda x: torch.arange(7, -4, -3, dtype=torch.int32))
case("arange_float", [f(1)], lambda x: torch.arange(0.5, 3.0, 0.5))
case("linspace", [f(1)], lambda x: torch.linspace(-1, 2, 7))
case("linspace_one", [f(1)], lambda x: torch.linspace(3, 9, 1))
case("eye_wide", [f(1)], lambda x: torch.eye(3, 5))
case("full_like", [f(2, 3)], lambda x: torch.full_like(x, 4.5).detach())
case("constants", [f(3)], lambda x: x * torch.tensor([1.0, -2.0, 3.0]))
case("meshgrid_ij", [f(3), f(2)],
     lambda x, y: torch.meshgrid(x, y, indexing="ij")[0] * torch.meshgrid(x, y, indexing="ij")[1])
case("meshgrid_xy", [f(3), f(2)],
     lambda x, y: torch.meshgrid(x, y, indexing="xy")[0] - torch.meshgrid(x, y, indexing="xy")[1])
# ---- views as inputs, odd and empty shapes, negative axes ----
case("view_exp_flip", [f(4, 7)], lambda x: x.T.flip(0)[1:6:2].exp())
case("view_max_permuted", [f(3, 4, 5)], lambda x: x.permute(2, 0, 1)[1:4].amax(-2))
case("view_cumsum_strided", [f(9, 3)], lambda x: x[::2].T.cumsum(-1))
case("view_softmax_padded", [f(3, 5)], lambda x: F.pad(x.T, (1, 2)).softmax(-2))
case("view_dot_transposed", [f(5, 3), f(4, 5)], lambda x, y: x.T @ y.T)
case("view_sort_expanded", [f(1, 6)], lambda x: x.expand(3, 6).sort(-1)[0])
case("view_conv_flipped", [f(1, 2, 5, 6), f(3, 2, 3, 2)], lambda x, w: F.conv2d(x.flip(2), w.flip(0, 3)))
case("view_argmax_transposed", [f(3, 5)], lambda x: x.T.argmax(-1).int())
case("var_negative_axes", [f(2, 3, 4)], lambda x: x.var((-1, -3), keepdim=True))
case("std_correction_zero", [f(3, 4)], lambda x: x.std(-1, correction=0))
case("var_mean", [f(3, 4)], lambda x: torch.stack(torch.var_mean(x, 0)))
case("std_mean", [f(3, 4)], lambda x: torch.stack(torch.std_mean(x, -1)))
case("prod_zero", [("f", (2, 3), 0.0, 0.0)], lambda x: x.prod(1))
case("prod_int", [i(3, 4)], lambda x: x.prod(1).int())
case("mean_int", [i(3, 5)], lambda x: x.float().mean(0))
case("mean_zero_size_kept", [f(3, 0)], lambda x: x.sum(0))
case("zero_size_max_other", [f(0, 3, 2)], lambda x: x.amax(1))
case("zero_size_dot", [f(3, 0), f(0, 4)], torch.matmul)
case("zero_size_cumsum", [f(2, 0)], lambda x: x.cumsum(1))
case("zero_size_reshape", [f(0, 4)], lambda x: x.reshape(2, 0, 7))
case("zero_size_softmax", [f(0, 4)], lambda x: x.softmax(1))
case("scalar_reduce_keepdim", [f()], lambda x: x.sum())
case("scalar_softmax", [f()], lambda x: x.softmax(0))
case("scalar_where", [b(), f(), f(3)], torch.where)
case("scalar_cumsum", [f()], lambda x: x.cumsum(0))
case("logsumexp_axes", [f(2, 3, 4)], lambda x: x.logsumexp((0, -1), keepdim=True))
case("logcumsumexp_axis0", [f(6, 2, lo=-9, hi=9)], lambda x: x.logcumsumexp(0))
case("cummin_indices", [i(3, 7, lo=-3, hi=3)], lambda x: cum_first(x, torch.min))
case("cummax_long", [f(600)], lambda x: x.cummax(0)[0])
case("cumprod_negative_axis", [f(4, 3, lo=0.5, hi=1.5)], lambda x: x.cumprod(-2))
case("any_all_axes", [b(3, 4, 2)], lambda x: x.any(2).all(1))
case("softmax_double", [f(3, 4)], lambda x: x.softmax(1, dtype=torch.float64))
case("log_softmax_axes", [f(2, 3, 4)], lambda x: x.flatten(1).log_softmax(1).reshape(2, 3, 4))
case("argmin_keepdim", [i(4, 5)], lambda x: x.argmin(1, keepdim=True).int())
# ---- further elementwise ----
case("div_trunc", [f(9, lo=-9, hi=9), f(9, **POS)], lambda x, y: torch.div(x, y, rounding_mode="trunc").detach())
case("div_floor", [f(9, lo=-9, hi=9), f(9, **POS)], lambda x, y: torch.div(x, y, rounding_mode="floor").detach())
case("fmod_float", [f(9, lo=-9, hi=9), f(9, **POS)], torch.fmod)
case("clip_tensor_bounds", [f(3, 4), f(4, lo=-1, hi=0), f(4, lo=0, hi=1)],
     lambda x, lo, hi: torch.clamp(x, lo.detach(), hi.detach()))
case("masked_fill", [f(3, 4), b(4)], lambda x, m: x.masked_fill(m, -1.5))
case("isclose", [f(9), f(9)], lambda x, y: torch.isclose(x, y, rtol=0.5, atol=0.1))
case("allclose", [f(9)], lambda x: torch.tensor(True))
case("isnan_isinf_divided", [f(5)],
     lambda x: torch.stack([torch.isnan(x * 0 / 0), torch.isinf(x / 0), torch.isinf(-(x.abs()) / 0) & True]))
case("usum", [f(4), f(4), f(1)], lambda x, y, z: x + y + z)
case("uprod_bool", [b(6), b(6)], torch.logical_and)
case("lerp_uint8", [("u", (6,), 0, 255), ("u", (6,), 0, 255), f(6, lo=0, hi=1)], lambda x, y, w: lerp_bytes(x, y, w))
case("cast_uint8_wraps", [i(9, lo=-300, hi=300)], lambda x: x.to(torch.uint8))
case("cast_bool_float", [b(5)], lambda x: x.float())
case("double_sin", [("d", (7,), -30, 30)], torch.sin)
case("double_exp", [("d", (7,), -9, 9)], torch.exp)
case("half_softmax", [("h", (3, 5), -4, 4)], lambda x: x.float().softmax(1).half())
case("logaddexp_far", [f(5, lo=-90, hi=90), f(5, lo=-90, hi=90)], torch.logaddexp)
case("softplus_beta", [f(9, lo=-20, hi=20)], lambda x: F.softplus(x, beta=3))
case("elu_alpha", [f(9)], lambda x: F.elu(x, alpha=0.5))
case("celu_alpha", [f(9)], lambda x: F.celu(x, alpha=0.7))
case("leaky_relu_slope", [f(9)], lambda x: F.leaky_relu(x, 0.3))
case("hardtanh_bounds", [f(9)], lambda x: F.hardtanh(x, -0.5, 1.5))
# ---- further movement ----
case("pad_to", [f(2, 3)], lambda x: F.pad(x, (0, 2, 0, 1), value=1.5))
case("shrink_to", [f(4, 5)], lambda x: x[:3, :2])
case("unflatten", [f(2, 6)], lambda x: x.unflatten(-1, (3, 2)))
case("view_alias", [f(2, 6)], lambda x: x.view(-1, 4))
case("pad_reflect_2d", [f(1, 1, 4, 5)], lambda x: F.pad(x, (2, 1, 3, 0), mode="reflect"))
case("pad_reflect_rank1", [f(6)], lambda x: torch.cat([x[1:4].flip(0), x]))
case("pad_replicate_2d", [f(1, 1, 3, 4)], lambda x: F.pad(x, (2, 0, 1, 3), mode="replicate"))
case("pad_circular_2d", [f(1, 1, 3, 4)], lambda x: F.pad(x, (2, 1, 0, 3), mode="circular"))
case("pad_reflect_negative", [f(1, 2, 6)], lambda x: F.pad(x, (-1, 2), mode="reflect"))
case("repeat_new_axis", [f(3)], lambda x: x.repeat(2, 2))
case("repeat_interleave_flat", [f(2, 3)], lambda x: x.repeat_interleave(3))
case("roll_flat", [f(3, 4)], lambda x: x.roll(5))
case("roll_far", [f(3, 4)], lambda x: x.roll((-7, 9), (1, 0)))
case("diagonal_axes", [f(3, 4, 5)], lambda x: x.diagonal(-1, 2, 0))
case("triu_far", [f(3, 3)], lambda x: x.triu(4))
case("tril_wide", [f(2, 5)], lambda x: x.tril(2))
case("flip_negative", [f(2, 3, 4)], lambda x: x.flip(-1, 0))
case("chunk_uneven", [f(10, 2)], lambda x: x.chunk(4)[-1])
case("split_sizes", [f(7, 3)], lambda x: x.split([1, 4, 2])[1])
case("unfold_overlap", [f(3, 8)], lambda x: x.unfold(-1, 5, 1))
case("stack_middle", [f(2, 3), f(2, 3)], lambda *x: torch.stack(x, 1))
case("cat_promotes", [i(2, 3), f(2, 3)], lambda x, y: torch.cat([x.float(), y], -1))
# ---- further matrices ----
case("dot_broadcast_batches", [f(3, 1, 2, 4), f(2, 4, 3)], torch.matmul)
case("einsum_outer", [f(3), f(4)], lambda x, y: torch.einsum("i,j->ij", x, y))
case("einsum_diagonal", [f(2, 3, 3)], lambda x: torch.einsum("bii->bi", x))
case("einsum_bilinear", [f(2, 3), f(4, 3, 5), f(2, 5)], lambda x, w, y: torch.einsum("bn,anm,bm->ba", x, w, y))
case("einsum_ellipsis_both", [f(2, 1, 3, 4), f(5, 4, 2)], lambda x, y: torch.einsum("...ij,...jk->...ik", x, y))
case("einsum_ellipsis_implicit", [f(2, 3, 4), f(2, 4, 3)], lambda x, y: torch.einsum("...ij,...jk", x, y))
case("einsum_permute", [f(2, 3, 4)], lambda x: torch.einsum("ijk->kij", x))
case("einsum_sum", [f(2, 3)], lambda x: torch.einsum("ij->", x))
case("linear_vector", [f(2, 5), f(5), f(5)], lambda x, w, c: x * w + c)
case("image_dot", [f(3, 5), f(5, 6)], torch.matmul)
case("image_conv2d", [f(2, 3, 6, 5), f(4, 3, 3, 2), f(4)], lambda x, w, c: F.conv2d(x, w, c, padding=1))
case("image_conv2d_groups", [f(1, 8, 5, 5), f(8, 2, 3, 3)], lambda x, w: F.conv2d(x, w, groups=4, stride=2))
case("image_conv2d_depthwise", [f(1, 4, 5, 5), f(4, 1, 3, 3)], lambda x, w: F.conv2d(x, w, groups=4))
case("attention_mask", [f(2, 3, 4), f(2, 5, 4), f(2, 5, 4), b(3, 5)],
     lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m | (torch.arange(5) == 0)))
case("attention_bias", [f(2, 3, 4), f(2, 5, 4), f(2, 5, 4), f(3, 5)],
     lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m.detach()))
case("attention_causal_wide", [f(1, 3, 4), f(1, 5, 4), f(1, 5, 4)],
     lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
case("attention_gqa", [f(1, 4, 3, 2), f(1, 2, 5, 2), f(1, 2, 5, 2)],
     lambda q, k, v: F.scaled_dot_product_attention(q, k.repeat_interleave(2, -3), v.repeat_interleave(2, -3)))
case("qr_triangle", [f(3, 5)], lambda x: torch.zeros(3))
case("svd_wide_values", [f(2, 5)], lambda x: torch.linalg.svdvals(x.detach()))
# ---- further convolution and pooling ----
case("conv2d_padding_sides", [f(1, 2, 5, 6), f(3, 2, 3, 3)], lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 1)), w))
case("conv2d_padding_axes", [f(1, 2, 5, 6), f(3, 2, 3, 3)], lambda x, w: F.conv2d(x, w, padding=(2, 0)))
case("conv2d_padding_negative", [f(1, 1, 6, 7), f(2, 1, 3, 3)], lambda x, w: F.conv2d(F.pad(x, (-1, 1, 1, -2)), w))
case("conv2d_double", [f(1, 2, 4, 4), f(2, 2, 3, 3)], lambda x, w: F.conv2d(x, w).double())
case("conv_transpose1d", [f(2, 3, 5), f(3, 2, 4)],
     lambda x, w: F.conv_transpose1d(x, w, stride=3, padding=1, output_padding=2))
case("conv_transpose3d", [f(1, 2, 3, 2, 3), f(2, 2, 2, 3, 2)], lambda x, w: F.conv_transpose3d(x, w, stride=(2, 1, 2)))
case("conv_transpose2d_dilation", [f(1, 2, 4, 4), f(2, 3, 2, 3)],
     lambda x, w: F.conv_transpose2d(x, w, dilation=2, padding=1))
case("max_pool1d", [f(1, 2, 9)], lambda x: F.max_pool1d(x, 3, stride=2))
case("max_pool3d", [f(1, 1, 4, 5, 4)], lambda x: F.max_pool3d(x, 2))
case("avg_pool1d_exclude_ceil", [f(1, 2, 8)],
     lambda x: F.avg_pool1d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False))
case("avg_pool3d", [f(1, 1, 4, 4, 5)], lambda x: F.avg_pool3d(x, (2, 1, 3)))
case("max_pool2d_int", [i(1, 1, 5, 5)], lambda x: F.max_pool2d(x.float(), 2, stride=1, padding=1).int())
case("interpolate_trilinear", [f(1, 1, 2, 3, 4)], lambda x: F.interpolate(x, (3, 2, 7), mode="trilinear"))
case("interpolate_shrink", [f(1, 2, 9)], lambda x: F.interpolate(x, 4, mode="linear"))
case("layernorm_axes", [f(2, 3, 4)], lambda x: F.layer_norm(x, (3, 4), eps=1e-3))
case("batchnorm", [f(2, 3, 4), f(3), f(3), f(3), f(3, **POS)],
     lambda x, w, c, m, s: (x - m[:, None]) * w[:, None] * s[:, None] + c[:, None])
case("batchnorm_axes", [f(2, 3, 4), f(2, 4), f(2, 4, **POS)], lambda x, m, s: (x - m[:, None]) * s[:, None])
case("rms_norm", [f(3, 6)], lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt())
case("normalize_1", [f(3, 5)], lambda x: F.normalize(x, p=1, dim=-1))
case("normalize_3", [f(3, 5)], lambda x: F.normalize(x, p=3, dim=0))
# ---- reductions of losses ----
case("sparse_cce_none", [f(4, 5), lab(4)], lambda x, y: F.cross_entropy(x, y.long(), reduction="none"))
case("sparse_cce_sum_ignore", [f(6, 5), lab(6)],
     lambda x, y: F.cross_entropy(x, y.long(), reduction="sum", ignore_index=3))
case("cross_entropy_vector", [f(5), lab()], lambda x, y: F.cross_entropy(x, y.long()))
case("cross_entropy_smooth_none", [f(3, 4, 2), ("i", (3, 2), 0, 4)],
     lambda x, y: F.cross_entropy(x, y.long(), label_smoothing=0.3, reduction="none"))
case("nll_loss_spatial", [f(2, 4, 3), ("i", (2, 3), 0, 4)], lambda x, y: F.nll_loss(x, y.long(), reduction="none"))
case("nll_loss_sum", [f(4, 5), lab(4), f(5, **POS)],
     lambda x, y, w: F.nll_loss(x, y.long(), w.detach(), reduction="sum"))
case("bce_none", [f(6, lo=0.1, hi=0.9), f(6, lo=0, hi=1)],
     lambda x, y: F.binary_cross_entropy(x, y.detach(), reduction="none"))
case("bce_logits_far", [f(6, lo=-80, hi=80), f(6, lo=0, hi=1)],
     lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"))
case("topk_smallest", [f(3, 7)], lambda x: x.topk(2, dim=0, largest=False)[0])
case("topk_indices", [f(2, 9)], lambda x: x.topk(4)[1].int())
case("keccak_sponge", [("u", (1, 300), 0, 256)],
     lambda x: torch.tensor(list(hashlib.sha3_512(bytes(x[0].tolist())).digest()), dtype=torch.uint8)[None])

def cum_first(x, of):  # the first index the extreme up to each place was seen at
  out = torch.zeros_like(x)
  for r in range(x.shape[0]):
    for k in range(x.shape[1]): out[r, k] = int(np.argmin(x[r, :k + 1].numpy()))
  return out

def lerp_bytes(x, y, w):
  wi = (w.detach() * 128 + 0.5).to(torch.int16)
  return (x.int() + (((y.int() - x.int()) * wi.int() + 64) >> 7)).to(torch.uint8)

for ignored in (-1, -100):  # every third label or so
  tag = f"m{-ignored}"
  low = ("i", (8,), -2, 5)
  kept = lambda y, ignored=ignored: torch.where(y < 0, ignored, y.long())
  for r in ("mean", "sum", "none"):
    case(f"ignore_{tag}_sparse_{r}", [f(8, 5), low],
         lambda x, y, k=kept, i=ignored, r=r: F.cross_entropy(x, k(y), ignore_index=i, reduction=r))
    case(f"ignore_{tag}_smooth_{r}", [f(8, 5), low],
         lambda x, y, k=kept, i=ignored, r=r: F.cross_entropy(x, k(y), ignore_index=i, reduction=r,
                                                              label_smoothing=0.3))
    case(f"ignore_{tag}_nll_{r}", [f(8, 5), low, f(5, **POS)],
         lambda x, y, w, k=kept, i=ignored, r=r: F.nll_loss(x, k(y), w.detach(), ignore_index=i, reduction=r))

def newton_schulz(g, steps, c):
  g = g / (g.norm() + 1e-7)
  for _ in range(steps):
    a = g @ g.T
    g = c[0] * g + c[1] * a @ g + c[2] * a @ (a @ g)
  return g

def scatter_last(x, s, j):
  rows = []
  for r in range(x.shape[0]):
    row = list(x[r])
    for k in range(j.shape[1]): row[int(j[r, k])] = s[r, k]
    rows.append(torch.stack(row))
  return torch.stack(rows)

NAMES = {torch.float32: "float32", torch.float16: "float16", torch.float64: "float64", torch.int32: "int32",
         torch.int64: "int64", torch.bool: "bool", torch.uint8: "uint8", torch.int16: "int16"}
def text(t):
  return " ".join(repr(float(v)) if t.dtype.is_floating_point else str(int(v))
                  for v in t.detach().flatten().double().tolist()) if t.dtype.is_floating_point else " ".join(
                      str(int(v)) for v in t.flatten().tolist())

for name, (inputs, fn) in C.items():
  xs = [make(s, k + 1) for k, s in enumerate(inputs)]
  for x in xs:
    if x.dtype == torch.float32: x.requires_grad_(True)
  out = fn(*xs)
  grads = []
  if out.dtype == torch.float32 and out.requires_grad:
    seed = torch.tensor(values(out.numel(), 77, -1.0, 1.0).astype(np.float32)).reshape(out.shape)
    (out * seed).sum().backward()
    grads = [("-" if x.grad is None else text(x.grad)) if x.dtype == torch.float32 else "-" for x in xs]
  spec = ";".join(f"{k}:{','.join(map(str, s))}:{lo!r}:{hi!r}" for k, s, lo, hi in inputs)
  print("\t".join([name, spec, NAMES[out.dtype], ",".join(map(str, out.shape)), text(out), "|".join(grads)]))
