"""A bfloat16 net with layer norm and cross entropy: AdamW straight on bfloat16 parameters, and on float32 masters
by the library's helpers."""

from common import initial, integers, log, normal
from tinygrad_cpp import Context, Tensor, dtypes, nn
from tinygrad_cpp.nn.state import get_parameters, get_state_dict, load_state_dict
from tinygrad_cpp.nn.train import MasterWeights, cast_parameters

x, y = Tensor(normal(16, 8, seed=1)).cast(dtypes.bfloat16), Tensor(integers(4, 16, seed=2))
tolerance = 3e-2  # bfloat16 has 8 bits


class Net:
    def __init__(self):
        self.l1, self.norm, self.l2 = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def __call__(self, x):
        return self.l2(self.norm(self.l1(x)).relu())


with Context(TRAINING=1):
    for style in ("straight", "masters"):
        net = Net()
        load_state_dict(net, {k: Tensor(v) for k, v in initial(get_state_dict(net)).items()}, verbose=False)
        cast_parameters(get_parameters(net), dtypes.bfloat16)
        masters = MasterWeights(get_parameters(net)) if style == "masters" else None
        opt = nn.optim.AdamW(masters.masters if masters else get_parameters(net), lr=0.05)
        for step in range(6):
            for p in get_parameters(net):
                p.grad = None
            opt.zero_grad()
            loss = net(x).float().sparse_categorical_crossentropy(y)
            loss.backward()
            if masters:
                masters.take_gradients()
            opt.step()
            if masters:
                masters.update()
            log("loss", loss.item(), rtol=tolerance)
        log("dtypes", [str(p.dtype).split(".")[-1] for p in get_parameters(net)])
        log("accuracy", (net(x).argmax(axis=1) == y).float().mean().item(), atol=0.13)  # two of 16
