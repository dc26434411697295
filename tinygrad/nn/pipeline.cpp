/// \file Pipelines of stages.
#include "tinygrad/nn/pipeline.h"

#include <algorithm>
#include <deque>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/multi/collectives.h"

namespace tg::nn {
namespace {
/// What a stage says of its results: type, number of axes, sizes.
constexpr size_t kMostAxes = 8, kCard = kMostAxes + 2;
constexpr DType kSent[] = {dtypes::float32, dtypes::float16, dtypes::bfloat16, dtypes::float64};

std::vector<int64_t> card_of(const Tensor& t) {
  const auto* type = std::find(std::begin(kSent), std::end(kSent), t.dtype());
  TG_CHECK(ValueError, type != std::end(kSent) && static_cast<size_t>(t.ndim()) <= kMostAxes,
           "[Pipeline] got a stage's result of type ", t.dtype(), " and shape ", t.shape(),
           ", expected floats of at most ", kMostAxes, " axes");
  std::vector<int64_t> card(kCard);
  card[0] = type - std::begin(kSent);
  card[1] = t.ndim();
  for (int64_t i = 0; i < t.ndim(); i++) card[static_cast<size_t>(i) + 2] = t.shape(static_cast<int>(i));
  return card;
}
}  // namespace

std::pair<int64_t, int64_t> stage_layers(int64_t layers, const Mesh& mesh, const std::string& axis) {
  const int64_t n = mesh.size(axis), at = mesh.position(axis), each = layers / n, more = layers % n;
  TG_CHECK(ValueError, layers >= n, "[stage_layers] got ", layers, " layers for ", n, " stages, expected one for each");
  const int64_t begin = at * each + std::min(at, more);
  return {begin, begin + each + (at < more ? 1 : 0)};
}

Pipeline::Pipeline(Stage stage, Loss loss, const Tensors& params, const Mesh& mesh, const PipelineOptions& o)
    : run_(std::move(stage)),
      loss_(std::move(loss)),
      params_(params),
      mesh_(mesh),
      o_(o),
      stage_(mesh.position(o.axis)),
      stages_(mesh.size(o.axis)) {
  TG_CHECK(ValueError, o.microbatches > 0, "[Pipeline] got ", o.microbatches,
           " microbatches, expected a positive number");
  for (const MeshAxis& a : mesh.axes())
    if (a.name == o.copies) copies_ = a.size;
  const std::vector<int> group = mesh.group({o.axis});
  if (!first()) before_ = group[static_cast<size_t>(stage_ - 1)];
  if (!last()) behind_ = group[static_cast<size_t>(stage_ + 1)];
  for (const Tensor& p : params_) {
    if (copies_ > 1) p.replace(distributed::broadcast(p, mesh_, o_.copies, 0));
    if (p.is_floating_point() && !p.requires_grad()) p.is_param_();
  }
  if (copies_ > 1 && !params_.empty()) realize(params_);
}

Tensor Pipeline::part(const Tensor& t, int64_t i) const {
  const int64_t rows = t.shape(0) / o_.microbatches;
  return t[Slice(i * rows, (i + 1) * rows)].detach().contiguous().requires_grad_(false);
}

void Pipeline::hear_shapes() {
  if (first()) return;
  const Tensor card = distributed::receive(Tensor(std::vector<int64_t>(kCard)), before_);
  card_ = card.to_vector<int64_t>();
}

void Pipeline::tell_shapes(const Tensor& result, bool heard) {
  const std::vector<int64_t> card = card_of(result);
  if (heard) {
    TG_CHECK(ShapeError, card == told_, "[Pipeline] got a stage's result of type ", result.dtype(), " and shape ",
             result.shape(),
             ", expected that of the batch before, which had the same shape: the next stage waits for it");
    return;
  }
  distributed::send(Tensor(card), behind_).realize();
  told_ = card;
}

Tensor Pipeline::placeholder() const {
  Shape shape;
  for (int64_t i = 0; i < card_[1]; i++) shape.push_back(card_[static_cast<size_t>(i) + 2]);
  return Tensor::zeros(shape, {.dtype = kSent[card_[0]]}).contiguous();
}

Tensor Pipeline::input(const Tensor& x, int64_t i) const {
  return first() ? part(x, i) : distributed::receive(placeholder(), before_);
}

Pipeline::Microbatch Pipeline::forward(const Tensor& input, const Tensor& labels, int64_t i) const {
  const Tensor in = first() ? input : input.realize().requires_grad_();
  const Tensor out = run_(in);
  return {in, last() ? loss_(out, part(labels, i)) / o_.microbatches : out};
}

void Pipeline::backward(const Microbatch& m, const Tensor& gradient, Tensors also) const {
  m.output.backward(gradient);
  for (const Tensor& p : params_)
    if (p.grad().defined()) also.push_back(p.grad());
  if (!first()) also.push_back(distributed::send(m.input.grad(), before_));
  if (last()) also.push_back(m.output);
  realize(also);
}

Tensor Pipeline::step(const Tensor& x, const Tensor& labels) {
  const int64_t n = o_.microbatches;
  for (const Tensor* t : {&x, &labels})
    TG_CHECK(ShapeError, t->ndim() > 0 && t->shape(0) % n == 0, "[Pipeline] got shape ", t->shape(), " for ", n,
             " microbatches, expected a multiple of rows");
  const bool heard = x.shape() == batch_;
  if (!heard) hear_shapes();
  batch_ = x.shape();
  std::deque<Microbatch> under_way;
  Tensors losses;
  const auto gradient_of = [&](const Microbatch& m, Tensors also) {
    if (last()) return Tensor();
    also.push_back(distributed::receive(m.output.zeros_like().contiguous(), behind_));
    realize(also);
    return also.back();
  };
  const auto finish_oldest = [&](const Tensor& gradient, const Tensors& also) {
    backward(under_way.front(), gradient, also);
    if (last()) losses.push_back(under_way.front().output.detach());
    under_way.pop_front();
  };
  const int64_t ahead = std::min(stages_ - 1 - stage_, n);
  for (int64_t i = 0; i < ahead; i++) {
    under_way.push_back(forward(input(x, i), labels, i));
    if (i == 0) tell_shapes(under_way.back().output, heard);
    distributed::send(under_way.back().output, behind_).realize();
  }
  Tensor next = ahead < n ? input(x, ahead).realize() : Tensor();
  for (int64_t i = ahead; i < n; i++) {
    under_way.push_back(forward(next, labels, i));
    // Both directions at once: neighbours wait for each other.
    const Tensor gradient = gradient_of(
        under_way.front(), last() ? Tensors() : Tensors{distributed::send(under_way.back().output, behind_)});
    next = i + 1 < n ? input(x, i + 1) : Tensor();
    finish_oldest(gradient, next.defined() ? Tensors{next} : Tensors());
  }
  while (!under_way.empty()) finish_oldest(gradient_of(under_way.front(), {}), {});
  return combined(losses);
}

Tensor Pipeline::combined(const Tensors& losses) const {
  Tensor loss = losses.empty() ? Tensor::zeros(Shape{}).contiguous() : Tensor::stack(losses).sum().to_float();
  loss = distributed::broadcast(loss, mesh_, o_.axis, static_cast<int>(stages_ - 1));
  Tensors all;
  if (copies_ > 1) {
    const auto mean = [&](const Tensor& t) { return distributed::all_reduce(t, mesh_, {o_.copies}) / copies_; };
    loss = mean(loss);
    for (const Tensor& p : params_) {
      if (!p.grad().defined()) continue;
      p.set_grad(mean(p.grad()).cast(p.grad().dtype()));
      all.push_back(p.grad());
    }
  }
  all.push_back(loss);
  realize(all);
  return loss;
}

}  // namespace tg::nn
