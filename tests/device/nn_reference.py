"""Writes nn_reference.inc: what PyTorch and tinygrad give for small layers, optimizers and seeds. Run it with both
installed: python3 nn_reference.py > nn_reference.inc"""
import numpy as np, torch
import tinygrad
from tinygrad import Tensor, nn

out = ["// Made by nn_reference.py from PyTorch " + torch.__version__.split("+")[0] + " and tinygrad 0.14.0."]


def put(name, values):
  flat = np.asarray(values, dtype=np.float32).reshape(-1)
  out.append(f"constexpr float {name}[] = {{" + ", ".join(repr(float(v)) + "f" for v in flat) + "};")


def ramp(shape, scale, shift):
  """The same numbers in C++: scale * ((7 * i) % 19 - 9) + shift, exact in float32 for scales that are powers of two."""
  i = np.arange(int(np.prod(shape)))
  return (scale * ((7 * i) % 19 - 9) + shift).astype(np.float32).reshape(shape)


# ---- optimizers: three steps on the loss sum((tanh(x @ w) - m)^2), two parameters ----
def optimize(make, steps=3):
  x = torch.tensor(ramp((2, 4), 0.125, 0.0), requires_grad=True)
  w = torch.tensor(ramp((4, 3), 0.0625, 0.25), requires_grad=True)
  m = torch.tensor(ramp((2, 3), 0.25, 0.0))
  opt = make([x, w])
  for _ in range(steps):
    opt.zero_grad()
    (torch.tanh(x @ w) - m).square().sum().backward()
    opt.step()
  return np.concatenate([x.detach().numpy().reshape(-1), w.detach().numpy().reshape(-1)])


o = torch.optim
put("kSgd", optimize(lambda p: o.SGD(p, lr=0.125)))
put("kSgdDecay", optimize(lambda p: o.SGD(p, lr=0.125, weight_decay=0.1)))
put("kSgdMomentum", optimize(lambda p: o.SGD(p, lr=0.125, momentum=0.9, weight_decay=0.1)))
put("kSgdNesterov", optimize(lambda p: o.SGD(p, lr=0.125, momentum=0.9, nesterov=True)))
put("kRmsProp", optimize(lambda p: o.RMSprop(p, lr=0.01)))
put("kRmsPropMomentum", optimize(lambda p: o.RMSprop(p, lr=0.01, alpha=0.9, momentum=0.5, weight_decay=0.1)))
put("kRmsPropCentered", optimize(lambda p: o.RMSprop(p, lr=0.01, centered=True, momentum=0.5)))
put("kAdam", optimize(lambda p: o.Adam(p, lr=0.01)))
put("kAdam20", optimize(lambda p: o.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6), 20))
put("kAdamW", optimize(lambda p: o.AdamW(p, lr=0.01, weight_decay=0.1)))

# ---- layers ----
x = torch.tensor(ramp((2, 4, 5, 5), 0.25, 0.5))
conv = torch.nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)
conv.weight.data = torch.tensor(ramp((6, 2, 3, 2), 0.125, 0.0))
conv.bias.data = torch.tensor(ramp((6,), 0.5, 0.0))
put("kConv", conv(x).detach())
bn = torch.nn.BatchNorm2d(4)
bn.weight.data, bn.bias.data = torch.tensor(ramp((4,), 0.25, 1.0)), torch.tensor(ramp((4,), 0.5, 0.0))
train = bn(x)
put("kBatchNormTrain", train.detach()[:, :, 0, :])
bn(x * 2)
put("kRunningMean", bn.running_mean)
put("kRunningVar", bn.running_var)
bn.eval()
put("kBatchNormEval", bn(x).detach()[:, :, 0, :])
ln = torch.nn.LayerNorm((5, 5))
ln.weight.data, ln.bias.data = torch.tensor(ramp((5, 5), 0.25, 1.0)), torch.tensor(ramp((5, 5), 0.5, 0.0))
put("kLayerNorm", ln(x).detach()[:, :, 1, :])
lin = torch.nn.Linear(5, 3)
lin.weight.data, lin.bias.data = torch.tensor(ramp((3, 5), 0.125, 0.0)), torch.tensor(ramp((3,), 0.5, 0.0))
put("kLinear", lin(x[:, 0]).detach())

# ---- initial values at a seed ----
Tensor.manual_seed(42)
for name, layer in {"Linear": nn.Linear(3, 2), "Conv": nn.Conv2d(2, 2, (2, 3), groups=2),
                    "Embedding": nn.Embedding(3, 2)}.items():
  put(f"k{name}Weight", layer.weight.numpy())
  if name != "Embedding": put(f"k{name}Bias", layer.bias.numpy())

print("\n".join(out))
