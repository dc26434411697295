"""PyTorch's operator database against the module: values, types, shapes and gradients of every operation that has a
counterpart.

    PYTHONPATH=build/dev/python python python/tests/nightly/opinfo.py              # all operations, some minutes
    PYTHONPATH=build/dev/python python python/tests/nightly/opinfo.py 'cum|sort'   # those whose name matches
    ... --samples 10 --seconds 5 --dtypes float32,int32                            # fewer samples, less time an
    operation, other types

It needs torch and expecttest, and is no part of the normal test run. `opinfo_known.tsv` lists what differs and why:
operation, kind of difference, reason. A difference that is not listed is printed with its arguments, and the exit
status is 1. Kinds: value, dtype, shape, gradient, error (the module refuses what torch accepts). Arguments that have no
counterpart in a method are skipped: they are TypeErrors that name the argument.
"""
import argparse
import collections
import operator
import os
import pickle
import re
import signal
import sys
import time
import warnings

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import tinygrad_cpp as tg
from tinygrad_cpp import Tensor, dtypes, nn

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "opinfo_known.tsv")
TYPES = {torch.float32: dtypes.float32, torch.float64: dtypes.float64, torch.float16: dtypes.float16,
         torch.bfloat16: dtypes.bfloat16,
         torch.int8: dtypes.int8, torch.int16: dtypes.int16, torch.int32: dtypes.int32, torch.int64: dtypes.int64,
         torch.uint8: dtypes.uint8,
         torch.bool: dtypes.bool}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


class Skip(Exception):
    """An argument with no counterpart."""


# ---- how torch's calls are written with the module's names ----

def call(name, **names):
    """The method `name`, keyword arguments renamed; one that is None is left out."""
    def run(x, *args, **kw):
        kw.pop("memory_format", None)
        kw = {names.get(k, k): v for k, v in kw.items() if v is not None}
        if any(v is Skip for v in names.values()) and any(names.get(k) is Skip for k in kw):
            raise Skip
        return getattr(x, name)(*args, **kw)
    return run


def reduced(name, **names):
    return call(name, dim="axis", **names)


def binary(name):
    def run(x, y, **kw):
        if kw:
            raise Skip
        return getattr(x, name)(y) if isinstance(x, Tensor) else getattr(y, name)(x, reverse=True)
    return run


def scaled(name):
    """add and sub multiply the second operand by alpha."""
    def run(x, y, alpha=1):
        return getattr(x, name)(y if alpha == 1 else y * alpha)
    return run


def extreme(name):
    def run(x, *args, **kw):
        r = args[0] if args else kw.get("dim")
        keep = kw.get("keepdim", args[1] if len(args) > 1 else False)
        return getattr(x, name)(axis=r if r is None else (tuple(r) if isinstance(r, (tuple, list)) else r),
                                keepdim=keep)
    return run


def spread(name):
    def run(x, dim=None, unbiased=None, correction=None, keepdim=False):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        c = correction if correction is not None else 1 if unbiased is None or unbiased else 0
        return getattr(x, name)(axis=dim, keepdim=keepdim, correction=c)
    return run


def wide(v, rank):
    """One number for each spatial axis; none of an empty list."""
    if v is None or isinstance(v, int):
        return v if v is None else (v,) * rank
    return tuple(v) * (rank if len(v) == 1 else 1) or None


def max_pooled(rank):
    def run(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        if x.ndim != rank + 2:
            raise Skip
        r = lambda v: wide(v, rank)
        return x.max_pool2d(r(kernel_size), r(stride), r(dilation), r(padding), ceil_mode, return_indices)
    return run


def avg_pooled(rank):
    def run(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        if divisor_override is not None or x.ndim != rank + 2:
            raise Skip
        r = lambda v: wide(v, rank)
        return x.avg_pool2d(r(kernel_size), r(stride), 1, r(padding), ceil_mode, count_include_pad)
    return run


def unpooled(rank):
    def run(x, indices, kernel_size, stride=None, padding=0, output_size=None):
        if x.ndim != rank + 2:
            raise Skip
        r = lambda v: wide(v, rank)
        size = None if output_size is None else tuple(output_size)[-rank:]
        return x.max_unpool2d(indices, r(kernel_size), r(stride), 1, r(padding), size)
    return run


def convolved(rank):
    def run(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        if isinstance(padding, str) or x.ndim != rank + 2:
            raise Skip
        r = lambda v: wide(v, rank)
        return x.conv2d(weight, bias, groups, r(stride), r(dilation), r(padding))
    return run


def convolved_back(rank):
    def run(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        if x.ndim != rank + 2:
            raise Skip
        r = lambda v: wide(v, rank)
        return x.conv_transpose2d(weight, bias, groups, r(stride), r(dilation), r(padding), r(output_padding))
    return run


def clamped(x, lo=None, hi=None, min=None, max=None):
    return x.clamp(lo if lo is not None else min, hi if hi is not None else max)


def padded(x, pad, mode="constant", value=None):
    return x.pad(tuple(pad), mode=mode, value=0.0 if value is None else value)


def layer_normed(x, shape, weight=None, bias=None, eps=1e-5):
    r = x.layernorm(axis=tuple(range(-len(shape), 0)), eps=eps)
    r = r if weight is None else r * weight
    return r if bias is None else r + bias


def divided(x, y, rounding_mode=None):
    return x.div(y, rounding_mode=rounding_mode)


def gelu(x, approximate="none"):
    if approximate != "tanh":
        raise Skip
    return x.gelu()


def cross_entropy_of_two(x, y, weight=None, reduction="mean"):
    if weight is not None:
        raise Skip
    return x.binary_crossentropy(y, reduction)


def at(x, dim, index):
    return x[(slice(None),) * (dim % max(x.ndim, 1)) + (index,)]


def narrowed(x, dim, start, length):
    start = int(start.item()) if isinstance(start, Tensor) else start
    start += x.shape[dim] if start < 0 else 0
    return at(x, dim, slice(start, start + length))


def looked_up(i, w):
    layer = nn.Embedding(*(max(n, 1) for n in w.shape))
    layer.weight = w
    return layer(i)


def skip():
    raise Skip


def written(x, indices, values, accumulate=False):
    """index_put: the module writes in place."""
    if accumulate:
        raise Skip
    y = x.clone()
    y[tuple(indices)] = values
    return y


def attended(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p or scale is not None:
        raise Skip
    return q.scaled_dot_product_attention(k, v, attn_mask=attn_mask, is_causal=is_causal, enable_gqa=enable_gqa)


def interpolated(x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
                 antialias=False):
    modes = {"nearest": "nearest", "nearest-exact": "nearest-exact", "linear": "linear", "bilinear": "linear",
             "trilinear": "linear"}
    if mode not in modes or scale_factor is not None or antialias:
        raise Skip
    return x.interpolate(tuple(size) if isinstance(size, (tuple, list)) else (size,) * (x.ndim - 2), mode=modes[mode],
                         align_corners=bool(align_corners))


def likelihood(x, y, weight=None, ignore_index=-100, reduction="mean"):
    if x.ndim == 1:
        raise Skip
    return x.nll_loss(y, weight, ignore_index if ignore_index >= 0 else None, reduction)


def entropy(x, y, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    if weight is not None or ignore_index >= 0:
        raise Skip
    return x.cross_entropy(y, reduction, label_smoothing)


def extremum(name):
    def run(x, *args, **kw):
        if not args and not kw:
            return getattr(x, name)()
        if len(args) == 1 and isinstance(args[0], Tensor):
            return x.maximum(args[0]) if name == "max" else x.minimum(args[0])
        dim = args[0] if args else kw["dim"]
        keep = args[1] if len(args) > 1 else kw.get("keepdim", False)
        return getattr(x, name)(axis=dim, keepdim=keep), getattr(x, "arg" + name)(axis=dim, keepdim=keep)
    return run


def both(op):
    """An operator of Python with a number or a tensor on the other side."""
    return lambda x, y: op(y, x)


UNARY = ("abs neg exp exp2 log log2 log10 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
         "sigmoid reciprocal trunc ceil floor "
         "square erf isnan isfinite logical_not bitwise_not").split()
ACTIVATIONS = "relu relu6 silu mish softsign logsigmoid elu celu selu hardswish hardsigmoid leaky_relu hardtanh".split()
OPS = {
    **{n: call(n) for n in UNARY}, "sgn": call("sign"), "sign": call("sign"), "isinf": call("isinf"),
    "round": call("round", decimals=Skip),
    **{"nn.functional." + n: call(n, negative_slope="neg_slope", inplace=Skip, threshold=Skip, scale=Skip)
       for n in ACTIVATIONS},
    "nn.functional.gelu": gelu, "nn.functional.softplus": lambda x, beta=1, threshold=20: x.softplus(beta),
    "add": scaled("add"), "sub": scaled("sub"), "mul": binary("mul"), "div": divided, "pow": binary("pow"),
    "fmod": binary("fmod"),
    "remainder": binary("mod"), "maximum": binary("maximum"), "minimum": binary("minimum"),
    "copysign": binary("copysign"),
    "logaddexp": binary("logaddexp"), "isclose": call("isclose"), "lerp": call("lerp"),
    "where": lambda x, c, y: c.where(x, y),
    **{n: binary(n) for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne")},
    **{n: (lambda op: lambda x, y: getattr(x, op)(y))(f"__{n}__") for n in ("lt", "gt", "le", "ge")},
    "clamp": clamped, "masked_fill": call("masked_fill"), "masked_select": call("masked_select"),
    "nonzero": call("nonzero", as_tuple=Skip),
    "sum": reduced("sum"), "prod": reduced("prod"), "mean": reduced("mean", dtype=Skip), "any": extreme("any"),
    "all": extreme("all"),
    "amax": extreme("max"), "amin": extreme("min"), "argmax": extreme("argmax"), "argmin": extreme("argmin"),
    "logsumexp": extreme("logsumexp"),
    "std": spread("std"), "var": spread("var"), "std_mean": spread("std_mean"), "var_mean": spread("var_mean"),
    "cumsum": reduced("cumsum", dtype=Skip), "cumprod": reduced("cumprod", dtype=Skip), "cummax": reduced("cummax"),
    "cummin": reduced("cummin"),
    "logcumsumexp": reduced("logcumsumexp"), "softmax": reduced("softmax"), "log_softmax": reduced("log_softmax"),
    "topk": call("topk", sorted=Skip), "sort": call("sort", stable=Skip), "argsort": call("argsort", stable=Skip),
    "reshape": call("reshape"), "view": call("view"), "permute": call("permute", dims="order"),
    "transpose": call("transpose"), "flip": call("flip", dims="axis"),
    "expand": call("expand"), "unsqueeze": call("unsqueeze"), "squeeze": call("squeeze"), "flatten": call("flatten"),
    "unflatten": call("unflatten"),
    "unfold": call("unfold"), "diagonal": call("diagonal"), "roll": call("roll"), "tril": call("tril"),
    "triu": call("triu"), "repeat": call("repeat"),
    "chunk": call("chunk"), "split": call("split"), "cat": lambda ts, dim=0: Tensor.cat(*ts, dim=dim),
    "stack": lambda ts, dim=0: Tensor.stack(*ts, dim=dim),
    "gather": call("gather"), "scatter": call("scatter"), "scatter_reduce": call("scatter_reduce"),
    "matmul": call("matmul"), "mm": call("matmul"), "bmm": call("matmul"), "mv": call("matmul"), "dot": call("dot"),
    "__getitem__": lambda x, index: x[index], "index_put": written, "index_select": at, "select": at,
    "narrow": narrowed, "unbind": lambda x, dim=0: tuple(x.transpose(0, dim)),
    **{f"__r{n}__": both(getattr(operator, n + ("_" if n in ("and", "or") else "")))
       for n in ("add", "sub", "mul", "mod", "pow", "matmul", "and", "or", "xor")},
    "__rdiv__": both(operator.truediv), "rsub": lambda x, y, alpha=1: y - alpha * x,
    "floor_divide": lambda x, y: x // y, "true_divide": lambda x, y: x / y,
    "logical_and": lambda x, y: x.cast(dtypes.bool) & y.cast(dtypes.bool),
    "logical_or": lambda x, y: x.cast(dtypes.bool) | y.cast(dtypes.bool),
    "logical_xor": lambda x, y: x.cast(dtypes.bool) ^ y.cast(dtypes.bool),
    **{n: call(n) for n in ("bool", "float", "half", "int", "long", "short", "double", "contiguous", "clone")},
    "max": extremum("max"), "min": extremum("min"),
    "diag": lambda x, k=0: x.diag() if k == 0 and x.ndim == 1 else skip(), "linalg.diagonal": call("diagonal"),
    "meshgrid": lambda ts, *more, indexing="ij": (ts[0] if isinstance(ts, (list, tuple))
                                                  else ts).meshgrid(*(ts[1:] if isinstance(ts, (list, tuple))
                                                                      else more), indexing=indexing),
    "repeat_interleave": lambda x, repeats, dim=None, **kw: x.repeat_interleave(repeats, dim)
    if isinstance(repeats, int) else skip(),
    "nn.functional.scaled_dot_product_attention": attended, "nn.functional.interpolate": interpolated,
    "nn.functional.nll_loss": likelihood,
    "nn.functional.cross_entropy": entropy, "nn.functional.one_hot": call("one_hot"),
    "nn.functional.softmin": lambda x, dim=None, dtype=None: (-x).softmax(dim, dtype),
    "nn.functional.embedding": lambda i, w, **kw: skip()
    if any(kw.get(k) is not None for k in ("padding_idx", "max_norm")) else looked_up(i, w),
    "nn.functional.binary_cross_entropy_with_logits": lambda x, y, weight=None, pos_weight=None, reduction="mean":
        x.binary_crossentropy_logits(y, reduction, pos_weight) if weight is None else skip(),
    "einsum": lambda ts, equation: Tensor.einsum(equation, *ts), "linalg.svdvals": lambda x: x.svd()[1],
    **{f"nn.functional.conv{r}d": convolved(r) for r in (1, 2, 3)},
    **{f"nn.functional.conv_transpose{r}d": convolved_back(r) for r in (1, 2, 3)},
    **{f"nn.functional.max_pool{r}d": max_pooled(r) for r in (1, 2, 3)},
    **{f"nn.functional.avg_pool{r}d": avg_pooled(r) for r in (1, 2, 3)},
    **{f"nn.functional.max_unpool{r}d": unpooled(r) for r in (1, 2, 3)},
    "nn.functional.linear": lambda x, w, b=None: x.linear(w.transpose(-1, -2) if w.ndim > 1 else w, b),
    "nn.functional.pad": padded,
    "nn.functional.layer_norm": layer_normed, "nn.functional.normalize": call("normalize", out=Skip),
    "nn.functional.binary_cross_entropy": cross_entropy_of_two,
    "nn.functional.mse_loss": lambda x, y, reduction="mean": {"mean": lambda d: d.mean(), "sum": lambda d: d.sum(),
                                                              "none": lambda d: d}[reduction]((x - y).square()),
}


# ---- one sample ----

def to_ours(v, leaves):
    """Arguments with the module's tensors; those of floats that want a gradient are noted."""
    if isinstance(v, torch.Tensor):
        a = v.detach()
        t = Tensor(a.float().numpy(force=True) if a.dtype == torch.bfloat16 else a.contiguous().numpy(force=True))
        t = t.cast(TYPES[a.dtype]) if a.dtype == torch.bfloat16 else t
        t = t.contiguous().realize()
        if v.requires_grad:
            leaves.append((v, t))
        return t
    if isinstance(v, (list, tuple)) and not isinstance(v, torch.Size):
        return type(v)(to_ours(x, leaves) for x in v)
    if isinstance(v, torch.Size):
        return tuple(v)
    if isinstance(v, torch.dtype):
        if v not in TYPES:
            raise Skip
        return TYPES[v]
    if isinstance(v, complex):
        raise Skip
    return v


def flat(r):
    return [x for e in r for x in flat(e)] if isinstance(r, (list, tuple)) else [r]


def as_array(t):
    return (t.detach().double() if t.dtype.is_floating_point else t.detach()).numpy(force=True)


def close(got, want, dtype):
    if not dtype.is_floating_point:
        return np.array_equal(got, want)
    tolerance = TOLERANCE[dtype]
    scale = max(1.0, float(np.max(np.abs(want), where=np.isfinite(want), initial=0)))
    return np.allclose(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


TIES = {"topk": 1, "sort": 0, "argsort": 0, "cummax": 0, "cummin": 0}  # which of the further arguments is the axis


def same_elements(name, sample, got, want):
    """Whether two lists of places name equal elements: of equal ones torch may take any, the module takes the first."""
    axis = sample.kwargs.get("dim", sample.args[TIES[name]] if len(sample.args) > TIES[name] else -1)
    x, to = sample.input.detach(), torch.from_numpy(got.astype(np.int64))
    return torch.equal(torch.take_along_dim(x, to, axis), torch.take_along_dim(x, want, axis))


def compare(name, op, sample, dtype):
    """The kind of difference and what differs, or None."""
    differentiate = dtype == torch.float64 and op.supports_autograd
    args = [sample.input, *sample.args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = flat(op.op(*args, **sample.kwargs))
        except Exception:
            return "torch", ""
    if any(not isinstance(w, torch.Tensor) or w.dtype not in TYPES for w in want):
        raise Skip
    leaves = []
    ours = [to_ours(a, leaves) for a in args]
    kw = {k: to_ours(v, leaves) for k, v in sample.kwargs.items() if k != "out"}
    try:
        got = flat(OPS[name](*ours, **kw))
    except TypeError:
        raise Skip
    except tg.Error as e:
        return "error", f"{type(e).__name__}: {e}"
    except NotImplementedError:
        raise Skip
    for g, w in zip(got, want):
        if tuple(g.shape) != tuple(w.shape):
            return "shape", f"got {tuple(g.shape)}, expected {tuple(w.shape)}"
        # places are int32 where that holds them
        index = w.dtype == torch.int64 and g.dtype in (dtypes.int32, dtypes.int64)
        if TYPES[w.dtype] != g.dtype and not index:
            return "dtype", f"got {g.dtype}, expected {w.dtype}"
        a = (g.cast(dtypes.float64) if w.dtype.is_floating_point else g).numpy()
        if not close(a, as_array(w), w.dtype) and not (index and name in TIES and same_elements(name, sample, a, w)):
            return "value", f"got {a.ravel()[:6]}, expected {as_array(w).ravel()[:6]}"
    differentiable = [i for i, w in enumerate(want) if w.requires_grad and w.numel()]
    if not (differentiate and leaves and differentiable):
        return None
    seeds = [torch.rand_like(want[i]) for i in differentiable]
    theirs = torch.autograd.grad([want[i] for i in differentiable], [v for v, _ in leaves], seeds, allow_unused=True)
    loss = sum(((got[i] * Tensor(s.numpy())).sum() for i, s in zip(differentiable, seeds)),
               start=Tensor(0.0, dtype=dtypes.float64))
    for (v, t), wanted, g in zip(leaves, theirs, loss.gradient(*[t for _, t in leaves])):
        w = np.zeros(v.shape) if wanted is None else as_array(wanted)
        if not close(g.numpy(), w, torch.float64):
            return "gradient", f"got {g.numpy().ravel()[:6]}, expected {w.ravel()[:6]}"
    return None


# ---- all samples of one operation, in a process of its own ----

def run_op(name, ops, options):
    counts, found = collections.Counter(), []
    end = time.time() + options.seconds
    for op in ops:
        for dtype in options.dtypes:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            grad = dtype == torch.float64 and op.supports_autograd
            for n, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
                if n >= options.samples or time.time() > end:
                    counts["cut"] += 1
                    break
                try:
                    r = compare(name, op, sample, dtype)
                except Skip:
                    counts["skipped"] += 1
                    continue
                counts[r[0] if r else "pass"] += 1
                if r and r[0] != "torch":
                    found.append((r[0], dtype, r[1], str(sample.summary())[:300]))
    return counts, found


def in_child(run, name, given, options):
    """run(name, given, options) in a child: a crash or a hang is a result too."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            result = run(name, given, options)
        except BaseException as e:  # the program's own mistake
            result = (collections.Counter(broken=1), [("broken", None, f"{type(e).__name__}: {e}", "")])
        with os.fdopen(write, "wb") as f:
            pickle.dump(result, f)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
        signal.alarm(int(options.seconds * 3) + 60)
        data = f.read()
        signal.alarm(0)
    _, status = os.waitpid(pid, 0)
    if not data:
        return collections.Counter(crash=1), [("crash", None, f"status {status}", "")]
    return pickle.loads(data)


def known_differences(path):
    with open(path) as f:
        rows = [line.rstrip("\n").split("\t") for line in f if line.strip() and not line.startswith("#")]
    return {(op, kind): reason for op, kind, reason in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="?", default="", help="a regular expression")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--dtypes", default="float64,float32,float16,bfloat16,int32,int64,uint8,bool")
    options = parser.parse_args()
    options.dtypes = [getattr(torch, d) for d in options.dtypes.split(",")]
    known, total, new = known_differences(KNOWN), collections.Counter(), 0
    for name in OPS:
        if not re.search(options.ops, name):
            continue
        ops = [op for op in op_db if op.name == name]
        counts, found = in_child(run_op, name, ops, options)
        total += counts
        fresh = [f for f in found if (name, f[0]) not in known]
        new += len(fresh)
        print(f"{name}: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items())), flush=True)
        for kind, dtype, what, sample in fresh[:5]:
            print(f"  NEW {kind} {dtype}: {what}\n      {sample}", flush=True)
    print("total: " + ", ".join(f"{n} {k}" for k, n in sorted(total.items())) + f"; {new} that are not listed")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
