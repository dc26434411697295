"""Training on uint8 images: flips, padded crops and brightness done by tensor operations from given draws, batch norm
in both modes, a checkpoint in the middle, a step that is abandoned by an exception between backward() and step(), bad
batches that raise, and a second run from the checkpoint that must give the same losses."""

import os
import tempfile

import numpy as np
from common import initial, integers, log, uniform
from tinygrad_cpp import Context, Tensor, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save


class Net:
    def __init__(self):
        self.c1, self.b1, self.c2, self.b2, self.out = nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm(6), nn.Conv2d(6, 8,
                3, bias=False), nn.BatchNorm(8), nn.Linear(8, 4)

    def __call__(self, x):
        x = self.b1(self.c1(x)).relu().max_pool2d()
        return self.out(self.b2(self.c2(x)).relu().mean((2, 3)))


images = Tensor(integers(256, 40, 3, 10, 10, seed=1).astype(np.uint8))
labels = Tensor(integers(4, 40, seed=2))


def augment(batch, seed):
    draws = uniform(4, batch.shape[0], seed=seed)
    flip = Tensor(draws[0] < 0.5).reshape(-1, 1, 1, 1)
    batch = flip.where(batch.flip(3), batch)
    padded = batch.pad((1, 1, 1, 1))
    rows = Tensor((draws[1] * 3).astype(np.int32)).reshape(-1, 1) + Tensor.arange(10)
    cols = Tensor((draws[2] * 3).astype(np.int32)).reshape(-1, 1) + Tensor.arange(10)
    n = Tensor.arange(batch.shape[0]).reshape(-1, 1, 1, 1)
    cropped = padded[n, Tensor.arange(3).reshape(1, 3, 1, 1), rows.reshape(-1, 1, 10, 1), cols.reshape(-1, 1, 1, 10)]
    assert cropped.dtype == dtypes.uint8
    bright = (cropped.float() * Tensor(0.8 + 0.4 * draws[3]).reshape(-1, 1, 1, 1)).clip(0, 255).cast(dtypes.uint8)
    return (bright.float() / 255.0 - 0.45) / 0.25


def build():
    net = Net()
    state = initial(get_state_dict(net))
    load_state_dict(net, {k: Tensor(v) for k, v in state.items() if "num_batches" not in k}, strict=False,
                    verbose=False)
    return net, nn.optim.Adam(get_parameters(net), lr=0.01)


def train(net, opt, steps, aborted=()):
    for i in steps:
        rows = Tensor(integers(40, 12, seed=100 + i))
        x, y = augment(images[rows], 200 + i), labels[rows]
        for attempt in range(2 if i in aborted else 1):
            with Context(TRAINING=1):
                opt.zero_grad()
                try:
                    out = net(x)
                    if i in aborted and attempt == 0:
                        (out + Tensor.ones(5, 7)).sum().backward()
                    loss = out.sparse_categorical_crossentropy(y, label_smoothing=0.1)
                    loss.backward()
                except (ValueError, RuntimeError) as e:
                    log("abandoned", type(e).__name__ in ("ShapeError", "ValueError", "IndexError"))
                    continue
                opt.step()
            log("loss", loss.item())
        log("evaluated", (net((images[:6].float() / 255 - 0.45) / 0.25).argmax(1) == labels[:6]).float().mean().item())


net, opt = build()
log("augmented", augment(images[:4], 5).numpy())
train(net, opt, range(4), aborted=(2,))
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.safetensors")
    safe_save({**get_state_dict(net, "net."), **get_state_dict(opt, "opt.")}, path)
    train(net, opt, range(4, 7))
    log("weight", net.c1.weight.numpy())
    net, opt = build()
    saved = safe_load(path)
    load_state_dict(net, {k[4:]: v for k, v in saved.items() if k.startswith("net.")}, verbose=False)
    load_state_dict(opt, {k[4:]: v for k, v in saved.items() if k.startswith("opt.")}, verbose=False)
    train(net, opt, range(4, 7))
    log("weight", net.c1.weight.numpy())
log("running", net.b2.running_var.numpy())
