"""Lesson 7: operations of one's own from primitives: GELU, LayerNorm, attention, losses, a gradient, a kernel."""
import math

from tinygrad_cpp import Tensor, dtypes
from tinygrad_cpp.uop.ops import KernelInfo, UOp


def agree(what, ours, library):
  worst = (ours - library).abs().max().item()
  print(f"{what}:", "as the library's" if worst < 1e-5 else "DIFFERENT")


# ---- 1. GELU by the error function, and the approximation by tanh. ----
def gelu(x): return x * 0.5 * (1 + (x / math.sqrt(2)).erf())
def gelu_tanh(x): return x * 0.5 * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())


# ---- 2. LayerNorm: an object with weights of its own. ----
class MyLayerNorm:
  def __init__(self, n): self.weight, self.bias = Tensor.ones(n).contiguous(), Tensor.zeros(n).contiguous()
  def __call__(self, x):
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred * (variance + 1e-5).rsqrt() * self.weight + self.bias


# ---- 3. Attention: softmax(q k^T / sqrt(d)) v, with a causal mask. (batch, heads, time, d) ----
def attention(q, k, v):
  n = q.shape[-2]
  scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
  allowed = Tensor.ones(n, n, dtype=dtypes.bool).tril()
  return allowed.where(scores, float("-inf")).softmax(-1) @ v


# ---- 4. Losses. Cross entropy of logits: log of the sum of exponentials, less the logit of the label. ----
def cross_entropy(logits, labels):
  greatest = logits.max(1, keepdim=True)  # exponentials stay finite
  log_sum = (logits - greatest).exp().sum(1).log() + greatest.squeeze(1)
  return (log_sum - logits.gather(1, labels.unsqueeze(1)).squeeze(1)).mean()


def huber(x, y):
  d = (x - y).abs()
  return (d < 1).where(d.square() * 0.5, d - 0.5).mean()


Tensor.manual_seed(3)
x = Tensor.randn(4, 8).realize()
agree("gelu", gelu(x), Tensor([[v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in row] for row in x.tolist()]))
agree("gelu with tanh", gelu_tanh(x), x.gelu())
agree("layer norm", MyLayerNorm(8)(x), x.layernorm())

q, k, v = (Tensor.randn(2, 2, 6, 4).realize() for _ in range(3))
agree("attention", attention(q, k, v), q.scaled_dot_product_attention(k, v, is_causal=True))

labels = Tensor([1, 7, 0, 3])
agree("cross entropy", cross_entropy(x, labels), x.sparse_categorical_crossentropy(labels))
print(f"huber: {huber(Tensor([0.0, 3.0]), Tensor([0.5, 0.0])).item():g}")


# ---- 5. A gradient of one's own: rounding that lets gradients through, x + stop(round(x) - x). ----
def straight(t): return t + (t.round() - t).detach()


r = Tensor([0.4, 1.6])
rounded = straight(r)
rounded.sum().backward()
(a, b), (ga, gb) = rounded.tolist(), r.grad.tolist()
print(f"round: {a:g} {b:g}, gradient {ga:g} {gb:g}")


# ---- 6. A kernel of one's own, in the IR: out[i] = x[i] * x[i] + 1. It is optimised like any other. ----
def square_and_one(out, x):
  i = UOp.range(x.shape[0], 0)
  return out[i].store(x[i] * x[i] + 1).end(i).sink(arg=KernelInfo(name="square_and_one"))


out = Tensor.empty(3).custom_kernel(Tensor([1.0, 2.0, 3.0]), fxn=square_and_one)[0]
print("kernel:", *(f"{e:g}" for e in out.tolist()))
