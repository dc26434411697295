/// \file Lesson 7: operations of one's own from primitives: GELU, LayerNorm, attention, losses, a gradient, a kernel.
#include <cmath>
#include <cstdio>
#include <functional>
#include <numbers>

#include "tinygrad/tinygrad.h"

using namespace tg;

static void agree(const char* what, const Tensor& ours, const Tensor& library) {
  const double worst = (ours - library).abs().max().item<double>();
  std::printf("%s: %s\n", what, worst < 1e-5 ? "as the library's" : "DIFFERENT");
}

// ---- 1. GELU by the error function, and the approximation by tanh. ----
static Tensor gelu(const Tensor& x) { return x * 0.5 * (1 + (x / std::numbers::sqrt2).erf()); }
static Tensor gelu_tanh(const Tensor& x) {
  return x * 0.5 * (1 + (std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)).tanh());
}

// ---- 2. LayerNorm: a module with weights of its own. ----
struct MyLayerNorm {
  Tensor weight, bias;
  explicit MyLayerNorm(int64_t n) : weight(Tensor::ones(n).contiguous()), bias(Tensor::zeros(n).contiguous()) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor centred = x - x.mean({.axis = -1, .keepdim = true});
    const Tensor variance = centred.square().mean({.axis = -1, .keepdim = true});
    return centred * (variance + 1e-5).rsqrt() * weight + bias;
  }
  TG_STATE(weight, bias)
};

// ---- 3. Attention: softmax(q k^T / sqrt(d)) v, with a causal mask. (batch, heads, time, d) ----
static Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t n = q.shape(-2);
  const Tensor scores = q.matmul(k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.shape(-1)));
  const Tensor allowed = Tensor::ones({n, n}, dtypes::bool_).tril();
  return allowed.where(scores, -std::numeric_limits<float>::infinity()).softmax(-1).matmul(v);
}

// ---- 4. Losses. Cross entropy of logits: log of the sum of exponentials, less the logit of the label. ----
static Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  const Tensor greatest = logits.max({.axis = 1, .keepdim = true});  // exponentials stay finite
  const Tensor log_sum = (logits - greatest).exp().sum(1).log() + greatest.squeeze(1);
  return (log_sum - logits.gather(1, labels.unsqueeze(1)).squeeze(1)).mean();
}
static Tensor huber(const Tensor& x, const Tensor& y) {
  const Tensor d = (x - y).abs();
  return (d < 1).where(d.square() * 0.5, d - 0.5).mean();
}

int main() {
  Tensor::manual_seed(3);
  const Tensor x = Tensor::randn(4, 8).realize();
  agree("gelu", gelu(x), x.gelu(false));
  agree("gelu with tanh", gelu_tanh(x), x.gelu());
  agree("layer norm", MyLayerNorm(8)(x), x.layernorm());

  const Tensor q = Tensor::randn(2, 2, 6, 4).realize(), k = Tensor::randn(2, 2, 6, 4).realize(),
               v = Tensor::randn(2, 2, 6, 4).realize();
  agree("attention", attention(q, k, v), q.scaled_dot_product_attention(k, v, {.is_causal = true}));

  const Tensor labels = Tensor({1, 7, 0, 3});
  agree("cross entropy", cross_entropy(x, labels), x.sparse_categorical_crossentropy(labels));
  std::printf("huber: %g\n", huber(Tensor({0.f, 3.f}), Tensor({0.5f, 0.f})).item<double>());

  // ---- 5. A gradient of one's own: rounding that lets gradients through. ----
  auto straight =
      custom_gradient([](const Tensor& t) { return t.round(); }, [](const Tensor& g, const Tensor&) { return g; });
  const Tensor r = Tensor({0.4f, 1.6f}).requires_grad_();
  const Tensor rounded = straight(r);
  rounded.sum().backward();
  std::printf("round: %g %g, gradient %g %g\n", rounded(0).item<double>(), rounded(1).item<double>(),
              r.grad()(0).item<double>(), r.grad()(1).item<double>());

  // ---- 6. A kernel of one's own, in the IR: out[i] = x[i] * x[i] + 1. It is optimised like any other. ----
  const Tensor in = Tensor({1.f, 2.f, 3.f});
  const Tensor out = custom_kernel({Tensor::empty(3), in}, [](const UOps& p) {
    const UOp i = UOp::range(3, 0), value = p[1].index({i});
    UOp effects[] = {p[0].index({i}).store(value * value + ConstValue(1.0)).end(UOps{i})};
    return UOp::sink(effects, KernelInfo{.name = "square_and_one"});
  })[0];
  std::printf("kernel:");
  for (const double e : out.to_vector<double>()) std::printf(" %g", e);
  std::printf("\n");
}
