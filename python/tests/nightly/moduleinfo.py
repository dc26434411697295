"""PyTorch's module database against the module: outputs, gradients and running statistics of every layer, activation,
pooling and loss that has a counterpart.

    PYTHONPATH=build/dev/python python python/tests/nightly/moduleinfo.py              # all modules, a minute
    PYTHONPATH=build/dev/python python python/tests/nightly/moduleinfo.py 'Conv|LSTM'  # those whose name matches

It needs torch and expecttest, and is no part of the normal test run. `moduleinfo_known.tsv` lists what differs and why,
as `opinfo_known.tsv` does for operations: module, kind of difference, reason. Arguments that have no counterpart are
skipped; a module all of whose samples are skipped is a failure.
"""
import argparse
import collections
import os
import re
import sys
import warnings

import numpy as np
import torch
from torch.testing._internal.common_modules import module_db

import tinygrad_cpp as tg
from opinfo import Skip, as_array, close, flat, in_child, known_differences, to_ours, wide
from tinygrad_cpp import Context, Tensor, dtypes, nn

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "moduleinfo_known.tsv")


# ---- the counterpart of a module of torch, made from the module itself: a callable whose attributes are its parameters
# ----

class Method:
    """A method of Tensor with the settings of a module."""

    def __init__(self, run):
        self.run = run

    def __call__(self, *args):
        return self.run(*args)


def plain(name, **fixed):
    return lambda m: Method(lambda x: getattr(x, name)(**{k: getattr(m, v) for k, v in fixed.items()}))


def needs(condition):
    if not condition:
        raise Skip


def conv(layer):
    def make(m):
        needs(m.padding_mode == "zeros")
        rank = len(m.kernel_size)
        padding = {"same": "same", "valid": 0}[m.padding] if isinstance(m.padding, str) else tuple(m.padding)
        kw = {"output_padding": tuple(m.output_padding)} if m.transposed else {}
        ours = layer(m.in_channels, m.out_channels, tuple(m.kernel_size), stride=tuple(m.stride), padding=padding,
                     dilation=tuple(m.dilation), groups=m.groups,
                     bias=m.bias is not None, **kw)

        def run(x):  # one image without an axis for the batch
            return ours(x) if x.ndim == rank + 2 else ours(x.unsqueeze(0)).squeeze(0)
        return ours, run
    return make


def batch_norm(m):
    needs(m.momentum is not None)
    ours = nn.BatchNorm(m.num_features, eps=m.eps, affine=m.affine, track_running_stats=m.track_running_stats,
                        momentum=m.momentum)
    return ours, lambda x: ours(x) if x.ndim != 2 else ours(x.unsqueeze(-1)).squeeze(-1)


def instance_norm(m):
    needs(not m.track_running_stats)
    ours, rank = nn.InstanceNorm(m.num_features, eps=m.eps, affine=m.affine), int(type(m).__name__[-2])
    return ours, lambda x: ours(x) if x.ndim == rank + 2 else ours(x.unsqueeze(0)).squeeze(0)


def layer_norm(m):
    needs(m.bias is not None or not m.elementwise_affine)
    return nn.LayerNorm(tuple(m.normalized_shape), eps=m.eps, elementwise_affine=m.elementwise_affine)


def rms_norm(m):
    needs(len(m.normalized_shape) == 1)
    return nn.RMSNorm(m.normalized_shape[0], eps=m.eps if m.eps is not None else 2.220446049250313e-16,
                      elementwise_affine=m.elementwise_affine)


def embedding(m):
    needs(m.padding_idx is None and m.max_norm is None and not m.scale_grad_by_freq)
    return nn.Embedding(m.num_embeddings, m.embedding_dim)


def cell(layer):
    def make(m):
        ours = layer(m.input_size, m.hidden_size, bias=m.bias)

        def run(x, state=None):
            if x.ndim == 2:
                return ours(x, state)
            lift = lambda t: tuple(v.unsqueeze(0) for v in t) if isinstance(t,
                    (tuple, list)) else None if t is None else t.unsqueeze(0)
            out = ours(x.unsqueeze(0), lift(state))
            return tuple(v.squeeze(0) for v in out) if isinstance(out, tuple) else out.squeeze(0)
        return ours, run
    return make


def recurrent(layer):
    def make(m):
        needs(not m.proj_size)
        ours = layer(m.input_size, m.hidden_size, m.num_layers, bias=m.bias, batch_first=m.batch_first,
                     bidirectional=m.bidirectional)

        def run(x, state=None):  # one sequence without an axis for the batch
            lift = lambda t: tuple(v.unsqueeze(1) for v in t) if isinstance(t,
                    (tuple, list)) else None if t is None else t.unsqueeze(1)
            out, last = ours(x.unsqueeze(0 if m.batch_first else 1), lift(state))
            return out.squeeze(0 if m.batch_first else 1), tuple(v.squeeze(1) for v in last) if isinstance(last,
                    tuple) else last.squeeze(1)
        return ours, run
    return make


def attention(m):
    needs(m.bias_k is None and not m.add_zero_attn)
    ours = nn.MultiheadAttention(m.embed_dim, m.num_heads, bias=m.in_proj_bias is not None, batch_first=m.batch_first)

    def run(q, k, v, key_padding_mask=None, attn_mask=None):  # one sequence without an axis for the batch
        batch = 0 if m.batch_first else 1
        seen = None if attn_mask is None else attn_mask.logical_not().unsqueeze(0)  # torch: True may not be seen
        keys = None if key_padding_mask is None else key_padding_mask.logical_not().unsqueeze(0)
        out, weights = ours(*(t.unsqueeze(batch) for t in (q, k, v)), mask=seen, key_mask=keys, need_weights=True)
        return out.squeeze(batch), weights.mean(1).squeeze(0)
    return ours, run


def pool(name, rank, **names):
    def make(m):
        def run(x):
            kw = {k: wide(getattr(m, v), rank) if k in ("kernel_size", "stride", "padding", "dilation")
                  else getattr(m, v) for k, v in names.items()}
            needs(getattr(m, "divisor_override", None) is None)
            one = x.ndim == rank + 1
            r = getattr(x.unsqueeze(0) if one else x, name)(**kw)
            return tuple(t.squeeze(0) for t in r) if one and isinstance(r, tuple) else r.squeeze(0) if one else r
        return Method(run)
    return make


def pad(mode):
    def make(m):
        value = getattr(m, "value", 0.0)
        return Method(lambda x: x.pad(tuple(m.padding), mode=mode, value=value))
    return make


def cross_entropy(m):
    needs(m.weight is None)

    def run(x, y):
        classes = 1 if x.ndim > 1 else 0
        if m.ignore_index >= 0 and dtypes.is_int(y.dtype):
            needs(not m.label_smoothing)
            return x.log_softmax(classes).nll_loss(y, None, m.ignore_index, m.reduction)
        return x.cross_entropy(y, m.reduction, m.label_smoothing)
    return Method(run)


def nll(m):
    return Method(lambda x, y: x.nll_loss(y, None if m.weight is None else to_ours(m.weight, []),
                                          m.ignore_index if m.ignore_index >= 0 else None, m.reduction))


def reduced(m, loss):
    return {"mean": lambda: loss.mean(), "sum": lambda: loss.sum(), "none": lambda: loss}[m.reduction]()


def bce(m):
    needs(m.weight is None)
    return Method(lambda x, y: x.binary_crossentropy(y, m.reduction))


def bce_logits(m):
    needs(m.weight is None)
    return Method(lambda x, y: x.binary_crossentropy_logits(y, m.reduction,
                                                            None if m.pos_weight is None
                                                            else to_ours(m.pos_weight, [])))


def gelu(m):
    return Method(lambda x: x.gelu() if m.approximate == "tanh" else x * 0.5 * (1 + (x / 2**0.5).erf()))


SPATIAL = {"kernel_size": "kernel_size", "stride": "stride", "padding": "padding", "ceil_mode": "ceil_mode"}
MODULES = {
    "Linear": lambda m: nn.Linear(m.in_features, m.out_features, bias=m.bias is not None), "Embedding": embedding,
    **{f"Conv{r}d": conv(nn.Conv2d) for r in (1, 2, 3)},
    **{f"ConvTranspose{r}d": conv(nn.ConvTranspose2d) for r in (1, 2, 3)},
    **{f"LazyConv{r}d": conv(nn.Conv2d) for r in (1, 2, 3)},
    **{f"LazyConvTranspose{r}d": conv(nn.ConvTranspose2d) for r in (1, 2, 3)},
    **{f"BatchNorm{r}d": batch_norm for r in (1, 2, 3)}, **{f"InstanceNorm{r}d": instance_norm for r in (1, 2, 3)},
    "GroupNorm": lambda m: nn.GroupNorm(m.num_groups, m.num_channels, eps=m.eps, affine=m.affine),
    "LayerNorm": layer_norm, "RMSNorm": rms_norm,
    "LSTMCell": cell(nn.LSTMCell), "GRUCell": cell(nn.GRUCell), "LSTM": recurrent(nn.LSTM), "GRU": recurrent(nn.GRU),
    "MultiheadAttention": attention,
    **{f"MaxPool{r}d": pool("max_pool2d", r, **SPATIAL, dilation="dilation", return_indices="return_indices")
       for r in (1, 2, 3)},
    **{f"AvgPool{r}d": pool("avg_pool2d", r, **SPATIAL, count_include_pad="count_include_pad") for r in (1, 2, 3)},
    **{f"{k}Pad{r}d": pad(mode) for k,
       mode in (("Zero", "constant"), ("Constant", "constant"), ("Reflection", "reflect"), ("Replication", "replicate"),
                ("Circular", "circular"))
       for r in (1, 2, 3)},
    "ReLU": plain("relu"), "ReLU6": plain("relu6"), "Sigmoid": plain("sigmoid"), "Tanh": plain("tanh"),
    "SiLU": plain("silu"), "Mish": plain("mish"), "SELU": plain("selu"),
    "Softsign": plain("softsign"), "LogSigmoid": plain("logsigmoid"), "Hardswish": plain("hardswish"), "GELU": gelu,
    "ELU": plain("elu", alpha="alpha"),
    "CELU": plain("celu", alpha="alpha"), "LeakyReLU": plain("leaky_relu", neg_slope="negative_slope"),
    "Hardtanh": plain("hardtanh", min_val="min_val", max_val="max_val"),
    "Softplus": plain("softplus", beta="beta"), "Softmax": plain("softmax", axis="dim"),
    "LogSoftmax": plain("log_softmax", axis="dim"),
    "Softmax2d": lambda m: Method(lambda x: x.softmax(-3)), "Softmin": lambda m: Method(lambda x: (-x).softmax(m.dim)),
    "Tanhshrink": lambda m: Method(lambda x: x - x.tanh()),
    "CrossEntropyLoss": cross_entropy, "NLLLoss": nll, "BCELoss": bce, "BCEWithLogitsLoss": bce_logits,
    "L1Loss": lambda m: Method(lambda x, y: reduced(m, (x - y).abs())),
    "MSELoss": lambda m: Method(lambda x, y: reduced(m, (x - y).square())),
}


# ---- one sample ----

def made(name, module):
    ours = MODULES[name](module)
    return ours if isinstance(ours, tuple) else (ours, ours)


def copy_parameters(layer, module):
    """Gives our layer torch's parameters and statistics; pairs of torch's and our parameters."""
    ours, pairs = nn.state.get_state_dict(layer), []
    for name, p in [*module.named_parameters(), *module.named_buffers()]:
        if name not in ours:
            continue
        ours[name].replace(to_ours(p, []).reshape(ours[name].shape))
        if p.requires_grad:
            pairs.append((p, ours[name]))
    missing = [n for n, _ in module.named_parameters() if n not in ours]
    if missing and not isinstance(layer, Method):
        raise AssertionError(f"no parameter {missing}")
    return pairs


def compare(name, module, sample, dtype, training):
    """The kind of difference and what differs, or None."""
    kw = dict(sample.forward_input.kwargs)
    args = [*sample.forward_input.args, *([kw.pop("input")] if "input" in kw else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
            module(*args, **kw)  # it takes its sizes from the first input
        layer, run = made(name, module)
        pairs, leaves = copy_parameters(layer, module), []
        ours = [to_ours(a, leaves) for a in args]
        ours_kw = {k: to_ours(v, leaves) for k, v in kw.items()}
        want = [w for w in flat(module(*args, **kw)) if w is not None]
    with Context(TRAINING=int(training)):
        try:
            got = flat(run(*ours, **ours_kw))
        except tg.Error as e:
            return "error", f"{type(e).__name__}: {e}"
    for g, w in zip(got, want, strict=True):
        if tuple(g.shape) != tuple(w.shape):
            return "shape", f"got {tuple(g.shape)}, expected {tuple(w.shape)}"
        if not close((g.cast(dtypes.float64) if w.dtype.is_floating_point else g).numpy(), as_array(w), w.dtype):
            return "value", f"got {g.numpy().ravel()[:6]}, expected {as_array(w).ravel()[:6]}"
    for n, b in module.named_buffers():
        ours_b = nn.state.get_state_dict(layer).get(n)
        if ours_b is not None and not close(ours_b.numpy().reshape(b.shape), as_array(b), b.dtype):
            return "statistics", f"{n}: got {ours_b.numpy().ravel()[:6]}, expected {as_array(b).ravel()[:6]}"
    pairs = [*leaves, *pairs]
    differentiable = [i for i, w in enumerate(want) if w.requires_grad and w.numel()]
    if not pairs or not differentiable:
        return None
    seeds = [torch.rand_like(want[i]) for i in differentiable]
    theirs = torch.autograd.grad([want[i] for i in differentiable], [p for p, _ in pairs], seeds, allow_unused=True)
    loss = sum(((got[i] * Tensor(s.numpy())).sum() for i, s in zip(differentiable, seeds)),
               start=Tensor(0.0, dtype=dtypes.float64))
    for (p, t), wanted, g in zip(pairs, theirs, loss.gradient(*[t for _, t in pairs])):
        w = np.zeros(p.shape) if wanted is None else as_array(wanted)
        if not close(g.numpy().reshape(w.shape), w, dtype):
            return "gradient", f"got {g.numpy().ravel()[:6]}, expected {w.ravel()[:6]}"
    return None


def run_module(name, infos, options):
    counts, found = collections.Counter(), []
    for info in infos:
        for dtype in (torch.float64, torch.float32):
            for training in (False, True):
                torch.manual_seed(0)
                for sample in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True,
                                                      training=training):
                    c = sample.constructor_input
                    module = info.module_cls(*c.args, **c.kwargs).to(dtype).train(training)
                    try:
                        r = compare(name, module, sample, dtype, training)
                    except Skip:
                        counts["skipped"] += 1
                        continue
                    counts[r[0] if r else "pass"] += 1
                    if r:
                        found.append((r[0], dtype, r[1], f"{module} {sample.desc} training={training}"))
    return counts, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="?", default="", help="a regular expression")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    known, total, new = known_differences(KNOWN), collections.Counter(), 0
    seen = set()
    for name in MODULES:
        if not re.search(options.modules, name):
            continue
        counts, found = in_child(run_module, name, [i for i in module_db if i.module_cls.__name__ == name], options)
        total += counts
        fresh = [f for f in found if (name, f[0]) not in known]
        seen |= {(name, f[0]) for f in found}
        if not counts["pass"]:
            fresh.append(("none", None, "no sample passes", ""))
        new += len(fresh)
        print(f"{name}: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items())), flush=True)
        for kind, dtype, what, sample in fresh[:5]:
            print(f"  NEW {kind} {dtype}: {what}\n      {sample}", flush=True)
    if not options.modules:
        without = sorted({i.module_cls.__name__ for i in module_db} - MODULES.keys())
        print("without a counterpart: " + ", ".join(without))
        for k in sorted(known.keys() - seen):
            print(f"  no longer different, take it off the list: {k}")
        new += len(known.keys() - seen)
    print("total: " + ", ".join(f"{n} {k}" for k, n in sorted(total.items())) + f"; {new} that are not listed")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
