"""Writes layers_reference.inc: values and gradients of PyTorch's layers, optimizers and schedulers, and first weights
of tinygrad's layers.
Run it with both installed: python3 layers_reference.py > layers_reference.inc"""
import numpy as np, torch
import tinygrad
from tinygrad import Tensor, nn
from tinygrad.helpers import Context

out = ["// Made by layers_reference.py from PyTorch " + torch.__version__.split("+")[0] + " and tinygrad 0.14.0."]


def put(name, values):
  flat = np.asarray(values, dtype=np.float32).reshape(-1)
  out.append(f"constexpr float {name}[] = {{" + ", ".join(repr(float(v)) + "f" for v in flat) + "};")


def ramp(shape, scale, shift=0.0):
  """The same numbers in C++: scale * ((7 * i) % 19 - 9) + shift, exact in float32 for scales that are powers of two."""
  i = np.arange(int(np.prod(shape)))
  return (scale * ((7 * i) % 19 - 9) + shift).astype(np.float32).reshape(shape)


def param(shape, scale, shift=0.0): return torch.nn.Parameter(torch.tensor(ramp(shape, scale, shift)))


def record(name, y, x, *params):
  """Values, and gradients of sum(y * (1, 2, 3, ... / 16 in turn)) by x and by the parameters."""
  seed = torch.tensor((np.arange(y.numel()) % 5 - 2).astype(np.float32).reshape(tuple(y.shape)) / 4)
  grads = torch.autograd.grad((y * seed).sum(), [x, *params])
  put(f"k{name}", y.detach())
  put(f"k{name}Grads", np.concatenate([g.numpy().reshape(-1) for g in grads]))


def fill(module, scale=0.125):
  for p in module.parameters(): p.data = torch.tensor(ramp(tuple(p.shape), scale))
  return module


# ---- layers ----
x = torch.tensor(ramp((2, 4, 3, 3), 0.25, 0.5), requires_grad=True)
ct = fill(torch.nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), output_padding=(1, 0), dilation=(1, 2),
                                   groups=2))
record("ConvTranspose", ct(x), x, ct.weight, ct.bias)
for name, layer in {"GroupNorm": torch.nn.GroupNorm(2, 4),
                    "InstanceNorm": torch.nn.InstanceNorm2d(4, affine=True)}.items():
  layer.weight.data, layer.bias.data = torch.tensor(ramp((4,), 0.25, 1.0)), torch.tensor(ramp((4,), 0.5))
  record(name, layer(x), x, layer.weight, layer.bias)
ln = torch.nn.LayerNorm(4)
ln.weight.data, ln.bias.data = torch.tensor(ramp((4,), 0.25, 1.0)), torch.tensor(ramp((4,), 0.5))
record("LayerNorm2d", ln(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), x, ln.weight, ln.bias)
rms = torch.nn.RMSNorm(3, eps=1e-6)
rms.weight.data = torch.tensor(ramp((3,), 0.25, 1.0))
record("RmsNorm", rms(x), x, rms.weight)

# ---- recurrent ----
x2, h2, c2 = (torch.tensor(ramp(s, 0.125, 0.1), requires_grad=True) for s in ((3, 5), (3, 4), (3, 4)))
cell = fill(torch.nn.LSTMCell(5, 4), 0.0625)
h, c = cell(x2, (h2, c2))
record("LstmCell", torch.cat([h, c]), x2, h2, c2, *cell.parameters())
cell = fill(torch.nn.GRUCell(5, 4), 0.0625)
record("GruCell", cell(x2, h2), x2, h2, *cell.parameters())
seq = torch.tensor(ramp((4, 3, 5), 0.125), requires_grad=True)
for name, make in {"Lstm": torch.nn.LSTM, "Gru": torch.nn.GRU}.items():
  net = fill(make(5, 4, num_layers=2, bidirectional=True), 0.0625)
  y, last = net(seq)
  flat = torch.cat([t.reshape(-1) for t in ((y, *last) if name == "Lstm" else (y, last))])
  record(name, flat, seq, *net.parameters())
  one = fill(make(5, 4, batch_first=True, bias=False), 0.0625)
  start = torch.tensor(ramp((1, 4, 4), 0.125))
  put(f"k{name}BatchFirst", one(seq, (start, start) if name == "Lstm" else start)[0].detach())

# ---- attention ----
q, kv = torch.tensor(ramp((2, 3, 8), 0.125), requires_grad=True), torch.tensor(ramp((2, 5, 8), 0.125, 0.25),
    requires_grad=True)
mha = fill(torch.nn.MultiheadAttention(8, 2, batch_first=True), 0.0625)
y, w = mha(q, kv, kv, average_attn_weights=False)
record("Attention", y, q, kv, *mha.parameters())
put("kAttentionWeights", w.detach())
key_mask = torch.tensor([[True, True, True, False, False], [True, True, True, True, True]])
y, _ = mha(q, kv, kv, key_padding_mask=~key_mask)
put("kAttentionKeyMask", y.detach())
y, _ = mha(q, q, q, attn_mask=torch.triu(torch.ones(3, 3, dtype=torch.bool), 1), is_causal=True)
put("kAttentionCausal", y.detach())


# ---- optimizers: three steps on the loss sum((tanh(x @ w) - m)^2), two parameters ----
def torch_steps(make, steps=3):
  x, w = param((2, 4), 0.125), param((4, 3), 0.0625, 0.25)
  m, opt = torch.tensor(ramp((2, 3), 0.25)), make([x, w])
  for _ in range(steps):
    opt.zero_grad()
    (torch.tanh(x @ w) - m).square().sum().backward()
    opt.step()
  return np.concatenate([x.detach().numpy().reshape(-1), w.detach().numpy().reshape(-1)])


def tiny_steps(make, steps=3):
  x, w, m = Tensor(ramp((2, 4), 0.125)), Tensor(ramp((4, 3), 0.0625, 0.25)), Tensor(ramp((2, 3), 0.25))
  opt = make([x, w])
  with Context(TRAINING=1):
    for _ in range(steps):
      opt.zero_grad()
      (x.matmul(w).tanh() - m).square().sum().backward()
      opt.step()
  return np.concatenate([x.numpy().reshape(-1), w.numpy().reshape(-1)])


put("kLars", tiny_steps(lambda p: nn.optim.LARS(p, lr=0.5)))
put("kLarsNesterov", tiny_steps(lambda p: nn.optim.LARS(p, lr=0.5, momentum=0.5, weight_decay=0.01, nesterov=True,
                                                        classic=False, tcoef=0.1)))
put("kLarsFused", tiny_steps(lambda p: nn.optim.LARS(p, lr=0.5, fused=True)))
put("kSgdClassic", tiny_steps(lambda p: nn.optim.SGD(p, lr=0.125, momentum=0.9, weight_decay=0.1, classic=True)))
put("kLamb", tiny_steps(lambda p: nn.optim.LAMB(p, lr=0.01, weight_decay=0.1)))
put("kLambFused", tiny_steps(lambda p: nn.optim.LAMB(p, lr=0.01, fused=True)))
put("kMuon", tiny_steps(lambda p: nn.optim.Muon(p, lr=0.01, weight_decay=0.0)))
put("kMuonPlain", tiny_steps(lambda p: nn.optim.Muon(p, lr=0.01, weight_decay=0.0, nesterov=False, ns_steps=3,
                                                     ns_coefficients=(2.0, -1.5, 0.5))))


# ---- schedulers: the rate of each of 12 steps ----
def rates(make, steps=12, metrics=None):
  opt = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
  s, got = make(opt), []
  for i in range(steps):
    got.append(opt.param_groups[0]["lr"])
    opt.step()
    s.step(metrics[i]) if metrics else s.step()
  return got


S = torch.optim.lr_scheduler
put("kStepLr", rates(lambda o: S.StepLR(o, 3, 0.5)))
put("kMultiStepLr", rates(lambda o: S.MultiStepLR(o, [2, 5, 5, 9], 0.5)))
put("kExponentialLr", rates(lambda o: S.ExponentialLR(o, 0.9)))
put("kLinearLr", rates(lambda o: S.LinearLR(o, 0.25, 1.0, 4)))
put("kPolynomialLr", rates(lambda o: S.PolynomialLR(o, 8, 2.0)))
put("kCosineLr", rates(lambda o: S.CosineAnnealingLR(o, 11, 0.125)))
put("kOneCycleCosine", rates(lambda o: S.OneCycleLR(o, 0.5, total_steps=12, pct_start=0.3, cycle_momentum=False)))
put("kOneCycleLinear", rates(lambda o: S.OneCycleLR(o, 0.5, total_steps=12, pct_start=0.25, anneal_strategy="linear",
                                                    div_factor=10, final_div_factor=100, cycle_momentum=False)))
losses = [1.0, 0.9, 0.9, 0.95, 0.9, 0.9, 0.5, 0.49999, 0.6, 0.6, 0.6, 0.4]
put("kPlateau", rates(lambda o: S.ReduceLROnPlateau(o, factor=0.5, patience=2), metrics=losses))
put("kPlateauMax", rates(lambda o: S.ReduceLROnPlateau(o, mode="max", factor=0.5, patience=1, threshold=0.05,
                                                       threshold_mode="abs", cooldown=2, min_lr=0.1), metrics=losses))

# ---- initial values at a seed ----
Tensor.manual_seed(7)
for name, layer in {"InitTransposed": nn.ConvTranspose2d(2, 4, (2, 3), groups=2),
                    "InitCell": nn.LSTMCell(3, 2)}.items():
  state = nn.state.get_state_dict(layer)
  # in the order of their making: there, values depend on the order in which tensors are computed
  Tensor.realize(*reversed(state.values()))
  put(f"k{name}", np.concatenate([t.numpy().reshape(-1) for t in state.values()]))

print("\n".join(out))
