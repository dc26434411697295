"""Tensors and NumPy arrays handed back and forth during training: numbers of NumPy on either side of operators, memory
views and DLPack looked at before and after an update, iteration, printing, sorting, formatting, pickles and deep copies
in the middle, a thread that reads while the main one trains."""

import copy
import pickle
import threading

import numpy as np
from common import initial, log, normal
from tinygrad_cpp import Context, Tensor, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict


class Net:
    def __init__(self):
        self.layers = [nn.Linear(3, 6), Tensor.gelu, nn.LayerNorm(6), Tensor.relu, nn.Linear(6, 2)]
        self.gain = np.sqrt(2.0)

    def __call__(self, x):
        return np.float32(0.5) * (np.float64(self.gain) * x.sequential(self.layers)) / np.sqrt(2)


net = Net()
load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
opt = nn.optim.Adam(get_parameters(net), lr=0.02)
weight = net.layers[0].weight.realize()
view, copied, shared = np.asarray(memoryview(weight)), weight.numpy(), np.from_dlpack(weight)
start = copied.copy()
best, kept, seen = None, [], []
with Context(TRAINING=1):
    for i in range(8):
        x, y = normal(10, 3, seed=i), normal(10, 2, seed=30 + i)
        opt.zero_grad()
        out = net(Tensor(x))
        loss = (out - Tensor(y)).square().mean(axis=1)
        rows = [float(row) for row in loss]
        log("rows", rows)
        worst = np.argsort(rows)[-5:]
        picked = loss[Tensor(worst.astype(np.int32))].mean() * np.float64(1.5)
        picked.backward()
        gradient = weight.grad.numpy()
        weight.grad = Tensor(np.clip(gradient, -0.05, 0.05))
        opt.step()
        value = picked.item()
        log("loss", f"{value:.2f}")
        log("order", np.sort(rows).argsort())
        if best is None or value < best[0]:
            best = value, pickle.dumps(net), copy.deepcopy(net)
        kept.append(out[0])
        if i == 3:
            t = threading.Thread(target=lambda: seen.append(net(Tensor(x)).numpy()))
            t.start()
            t.join()
log("best", best[0])
log("from thread", seen[0])
log("copied stays", bool((copied == start).all()))
log("pickled as copied", bool((pickle.loads(best[1])(Tensor(x)).numpy() == best[2](Tensor(x)).numpy()).all()))
log("kept outputs", np.stack([k.numpy() for k in kept]))
log("weight", np.array(weight.tolist()))
first, *rest = net.layers[4].weight
log("first row", first.numpy())
log("rest", len(rest))
log("lengths", [len(weight), weight.ndim, weight.numel(), weight.nbytes()])
log("half", weight.half().numpy().astype(np.float32), rtol=1e-3)
log("bytes", np.frombuffer(weight.cast(dtypes.float16).bitcast(dtypes.uint8).data(), np.uint8).size)
