/// \file Forward pass of Mamba.
#include "models/mamba.h"

#include <cmath>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::models {
namespace {

int64_t rank_of(const MambaOptions& o) { return o.rank > 0 ? o.rank : (o.dim + 15) / 16; }

const MambaOptions& checked(const MambaOptions& o) {
  for (const int64_t size : {o.vocab_size, o.dim, o.layers, o.state, o.conv, o.expand})
    TG_CHECK(ValueError, size > 0, "[Mamba] got size ", size, ", expected positive sizes");
  return o;
}

/// Adds zeros behind axis 1 and cuts it into pieces: (batch, pieces, size, ...).
Tensor pieces_of(const Tensor& x, int64_t pieces, int64_t size) {
  std::vector<std::pair<int64_t, int64_t>> padding(static_cast<size_t>(x.ndim()), {0, 0});
  padding[1].second = pieces * size - x.shape(1);
  return x.pad(padding).unflatten(1, {pieces, size});
}

/// Bias whose softplus is spread between 0.001 and 0.1 evenly in its logarithm.
Tensor step_bias(int64_t channels) {
  const Tensor step = Tensor::uniform({channels}, {.low = std::log(0.001), .high = std::log(0.1)}).exp();
  return (step + (1 - (-step).exp()).log()).is_param_();
}

}  // namespace

MambaOptions mamba_options(std::string_view name) {
  if (name == "130m") return {};
  if (name == "370m") return {.dim = 1024, .layers = 48};
  if (name == "790m") return {.dim = 1536, .layers = 48};
  if (name == "1.4b") return {.dim = 2048, .layers = 48};
  TG_CHECK(ValueError, name == "2.8b", "[mamba_options] got \"", name,
           "\", expected \"130m\", \"370m\", \"790m\", \"1.4b\" or \"2.8b\"");
  return {.dim = 2560, .layers = 64};
}

MambaMixer::MambaMixer(const MambaOptions& o)
    : in_proj(o.dim, 2 * o.expand * o.dim, false),
      conv1d(nn::Conv1d(o.expand * o.dim, o.expand * o.dim, o.conv, {.groups = o.expand * o.dim})),
      x_proj(o.expand * o.dim, rank_of(o) + 2 * o.state, false),
      dt_proj(rank_of(o), o.expand * o.dim),
      a_log(Tensor::arange(1, o.state + 1, dtypes::float32).log().expand(o.expand * o.dim, o.state).contiguous()),
      d(Tensor::ones(Shape{o.expand * o.dim}).is_param_()),
      out_proj(o.expand * o.dim, o.dim, false) {
  a_log.is_param_();
  const double bound = 1 / std::sqrt(static_cast<double>(rank_of(o)));
  dt_proj.weight = Tensor::uniform(dt_proj.weight.shape(), {.low = -bound, .high = bound}).is_param_();
  dt_proj.bias = step_bias(o.expand * o.dim);
}

Tensor MambaMixer::operator()(const Tensor& x, MambaLayerState& state) const {
  const int64_t time = x.shape(1), channels = d.shape(0), size = a_log.shape(1), width = conv1d.weight.shape(2);
  const Tensors halves = in_proj(x).chunk(2, -1);
  const Tensor seen = state.inputs.cat(halves[0].transpose(1, 2), -1).contiguous();
  state.inputs = seen.slice(2, time, time + width - 1).contiguous();
  const Tensor mixed = seen.conv2d(conv1d.weight, conv1d.bias, {.groups = channels}).transpose(1, 2).silu();
  const Tensors parts = x_proj(mixed).split({dt_proj.weight.shape(1), size, size}, -1);
  const Tensor step = dt_proj(parts[0]).softplus();
  const Tensor y = scan(mixed.contiguous(), step.contiguous(), parts[1], parts[2], state.states);
  return out_proj((y + mixed * d) * halves[1].silu());
}

/// Computes h_t = exp(a step_t) h_{t-1} + step_t x_t write_t and returns h_t . read_t for each channel. Time is cut
/// into about as many pieces as each is long; they advance side by side from zero, then each receives what the pieces
/// before it hand on. That is about 2 sqrt(time) operations one after the other, instead of time.
Tensor MambaMixer::scan(const Tensor& x, const Tensor& step, const Tensor& write, const Tensor& read,
                        Tensor& states) const {
  const int64_t time = x.shape(1);
  const auto size = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(time))));
  const int64_t pieces = (time + size - 1) / size;
  const Tensor a = -a_log.exp();
  const Tensor steps = pieces_of(step, pieces, size), changes = pieces_of(step * x, pieces, size);
  const Tensor writes = pieces_of(write, pieces, size).unsqueeze(-2),
               reads = pieces_of(read, pieces, size).unsqueeze(-2);
  auto at = [](const Tensor& t, int64_t i) { return t.slice(2, i, i + 1).squeeze(2); };
  Tensor local;
  Tensors locals;
  for (int64_t i = 0; i < size; i++) {
    const Tensor change = at(changes, i).unsqueeze(-1) * at(writes, i);
    local = local.defined() ? (at(steps, i).unsqueeze(-1) * a).exp() * local + change : change;
    local = local.contiguous();
    locals.push_back(local);
  }
  const Tensor passed = steps.cumsum(2).contiguous();
  const Tensor kept = (at(passed, size - 1).unsqueeze(-1) * a).exp();
  Tensor carry = states;
  Tensors carries;
  for (int64_t k = 0; k < pieces; k++) {
    carries.push_back(carry);
    carry = (kept(Slice(), k) * carry + local(Slice(), k)).contiguous();
  }
  states = carry;
  const Tensor before = Tensor::stack(carries, 1).contiguous();
  Tensors out;
  for (int64_t i = 0; i < size; i++) {
    const Tensor h = locals[static_cast<size_t>(i)] + (at(passed, i).unsqueeze(-1) * a).exp() * before;
    out.push_back((h * at(reads, i)).sum(-1));
  }
  return Tensor::stack(out, 2).flatten(1, 2).slice(1, 0, time);
}

void MambaMixer::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("in_proj, conv1d, x_proj, dt_proj, A_log, D, out_proj", in_proj, conv1d, x_proj, dt_proj, a_log, d,
                  out_proj);
}

Mamba::Mamba(const MambaOptions& o)
    : embedding(checked(o).vocab_size, o.dim),
      norm_f(o.dim, {.eps = o.eps}),
      lm_head(o.dim, o.vocab_size, false),
      options(o) {
  for (int64_t i = 0; i < o.layers; i++) layers.emplace_back(o);
}

MambaState Mamba::start(int64_t batch) const {
  const TensorOptions like{.dtype = embedding.weight.dtype(), .device = embedding.weight.device()};
  const int64_t channels = options.expand * options.dim;
  MambaState out;
  for (size_t i = 0; i < layers.size(); i++)
    out.push_back({Tensor::zeros({batch, channels, options.conv - 1}, like),
                   Tensor::zeros({batch, channels, options.state}, like)});
  return out;
}

Mamba::Step Mamba::step(const Tensor& tokens, const MambaState& state) const {
  TG_CHECK(ShapeError, tokens.ndim() == 2, "[Mamba] got tokens ", tokens.shape(), ", expected (batch, time)");
  TG_CHECK(ShapeError, state.size() == layers.size() && state[0].states.shape(0) == tokens.shape(0),
           "[Mamba] got a state of ", state.size(), " layers for tokens ", tokens.shape(), ", expected ", layers.size(),
           " layers of that batch");
  Step out{{}, state};
  Tensor x = embedding(tokens);
  for (size_t i = 0; i < layers.size(); i++) x = x + layers[i].mixer(layers[i].norm(x), out.state[i]);
  out.logits = lm_head(norm_f(x));
  return out;
}

Tensor Mamba::operator()(const Tensor& tokens) const { return step(tokens, start(tokens.shape(0))).logits; }

std::vector<int32_t> Mamba::greedy(const std::vector<int32_t>& prompt, int64_t count) const {
  TG_CHECK(ValueError, !prompt.empty(), "[Mamba] got no prompt, expected a token at least");
  auto next = [this](const Tensor& tokens, const MambaState& state) {
    Step out = step(tokens, state);
    out.logits = out.logits(Slice(), -1).argmax(-1).cast(dtypes::int32).unsqueeze(1);
    return out;
  };
  const auto captured = jit(next, {.name = "next token"});
  Step last = next(Tensor::from(prompt).unsqueeze(0), start(1));
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; i++) {
    Tensors pending = {last.logits};
    for (const MambaLayerState& s : last.state) pending.insert(pending.end(), {s.inputs, s.states});
    realize(pending);
    out.push_back(last.logits.item<int32_t>());
    if (i + 1 < count) last = captured(last.logits, last.state);
  }
  return out;
}

void Mamba::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("backbone.embedding, backbone.layers, backbone.norm_f, lm_head", embedding, layers, norm_f, lm_head);
}

nn::StateDict mamba_weights(const nn::StateDict& file) {
  const std::string theirs = "backbone.embeddings.weight", mine = "backbone.embedding.weight";
  nn::StateDict out;
  for (const auto& [name, t] : file) out.emplace_back(name == theirs ? mine : name, t);
  if (!out.contains("lm_head.weight") && out.contains(mine)) out.emplace_back("lm_head.weight", Tensor(out.at(mine)));
  return out;
}

}  // namespace tg::models
