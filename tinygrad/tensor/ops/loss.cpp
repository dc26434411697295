/// \file Losses.
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops/elementary.h"

namespace tg {
using namespace tensor_detail;

namespace {
Tensor finished(const Tensor& t, Reduction r) {
  return r == Reduction::kMean ? t.mean() : r == Reduction::kSum ? t.sum() : t;
}

void check_smoothing(double v, const char* op) {
  TG_CHECK(ValueError, v >= 0 && v <= 1, "[", op, "] got label_smoothing ", v, ", expected 0 to 1");
}
void check_labels(const Tensor& y, const Shape& want, const char* op, const Shape& logits) {
  TG_CHECK(ShapeError, y.shape() == want, "[", op, "] got labels ", y.shape(), " for logits ", logits, ", expected ",
           want);
}
}  // namespace

Tensor Tensor::sparse_categorical_crossentropy(const Tensor& y, const CrossEntropyOptions& o) const {
  OpScope s;
  const char* op = "sparse_categorical_crossentropy";
  const Shape sh = shape();
  check_smoothing(o.label_smoothing, op);
  TG_CHECK(ShapeError, !sh.empty(), "[", op, "] got logits without axes, expected classes on the last one");
  TG_CHECK(DTypeError, y.dtype().is_int(), "[", op, "] got labels of ", y.dtype(), ", expected integers");
  const Shape lead(sh.begin(), sh.end() - 1), ys = y.shape();
  const Shape* both[] = {&lead, &ys};
  TG_CHECK(ShapeError, lead == ys || broadcast_shapes(both, op) == ys, "[", op, "] got labels ", ys, " for logits ", sh,
           ", expected ", lead, " or what that broadcasts to");
  int64_t classes = sh.back().value();
  Tensor logp = log_softmax(-1);
  Tensor hit = y.unsqueeze(-1) == arange(classes);
  Tensor counts;
  if (o.ignore_index) {
    counts = y != *o.ignore_index;
    hit = hit & counts.unsqueeze(-1);
  }
  Tensor loss = (logp * hit.cast(logp.dtype())).sum(-1);
  if (o.label_smoothing > 0) {
    Tensor even = logp.mean(-1);
    if (counts.defined()) even = even * counts;
    loss = (1 - o.label_smoothing) * loss + o.label_smoothing * even;
  }
  if (o.reduction == Reduction::kMean && counts.defined()) return s(-(loss.sum() / counts.sum()));
  return s(-finished(loss, o.reduction));
}

Tensor Tensor::cross_entropy(const Tensor& y, const CrossEntropyOptions& o) const {
  OpScope s;
  const Shape sh = shape();
  check_smoothing(o.label_smoothing, "cross_entropy");
  TG_CHECK(ShapeError, !sh.empty(), "[cross_entropy] got logits without axes, expected classes");
  int axis = sh.size() == 1 ? 0 : 1;
  int64_t classes = sh[static_cast<size_t>(axis)].value();
  Shape labels = sh;
  labels.erase(labels.begin() + axis);
  Tensor p = y, counts;
  if (y.shape() == labels && y.shape() != sh) {
    TG_CHECK(DTypeError, y.dtype().is_int(), "[cross_entropy] got labels of ", y.dtype(), ", expected integers");
    if (o.ignore_index) counts = y != *o.ignore_index;
    Shape line(sh.size(), SInt(1));
    line[static_cast<size_t>(axis)] = classes;
    p = y.unsqueeze(axis) == arange(classes).reshape(line);
    if (counts.defined()) p = p & counts.unsqueeze(axis);
  } else check_labels(y, sh, "cross_entropy", sh);
  Tensor logp = log_softmax(axis);
  p = p.cast(logp.dtype());
  if (o.label_smoothing > 0) {
    p = (1 - o.label_smoothing) * p + o.label_smoothing / static_cast<double>(classes);
    if (counts.defined()) p = p * counts.unsqueeze(axis);
  }
  Tensor loss = -(logp * p).sum(axis);
  if (counts.defined() && o.reduction == Reduction::kMean) return s(loss.sum() / counts.sum());
  return s(finished(loss, o.reduction));
}

Tensor Tensor::nll_loss(const Tensor& y, const Tensor& weight, const CrossEntropyOptions& o) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, sh.size() >= 2, "[nll_loss] got shape ", sh, ", expected (batch, classes, ...)");
  Shape labels = sh;
  labels.erase(labels.begin() + 1);
  check_labels(y, labels, "nll_loss", sh);
  TG_CHECK(DTypeError, y.dtype().is_int(), "[nll_loss] got labels of ", y.dtype(), ", expected integers");
  if (weight.defined())
    TG_CHECK(ShapeError, weight.shape() == Shape{sh[1].value()}, "[nll_loss] got weight ", weight.shape(),
             ", expected (", sh[1], ",)");
  Tensor w = weight.defined() ? weight[y] : Tensor();
  if (o.ignore_index) {
    Tensor counts = (y != *o.ignore_index).cast(as_float(*this).dtype());
    w = w.defined() ? w * counts : counts;
  }
  Tensor loss = -as_float(gather(1, y.unsqueeze(1)).squeeze(1));
  if (w.defined()) loss = loss * w;
  if (w.defined() && o.reduction == Reduction::kMean) return s(loss.sum() / w.sum());
  return s(finished(loss, o.reduction));
}

Tensor Tensor::binary_crossentropy(const Tensor& y, Reduction r) const {
  OpScope s;
  Tensor x = as_float(*this), want = as_float(y);
  return s(finished(-(want * x.log()) - (1 - want) * (1 - x).log(), r));
}
Tensor Tensor::binary_crossentropy_logits(const Tensor& y, Reduction r, const Tensor& pos_weight) const {
  OpScope s;
  Tensor x = as_float(*this), want = as_float(y), yes = want * x.logsigmoid();
  if (pos_weight.defined()) yes = yes * pos_weight;
  return s(finished(-(yes + (1 - want) * (-x).logsigmoid()), r));
}
Tensor Tensor::mse_loss(const Tensor& y, Reduction r) const {
  OpScope s;
  // The mean of integers is a float; other results keep their type.
  if (r == Reduction::kMean) return s((as_float(*this) - as_float(y)).square().mean());
  return s(finished((*this - y).square(), r));
}

}  // namespace tg
