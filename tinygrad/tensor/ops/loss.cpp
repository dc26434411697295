/// \file Losses.
#include <limits>

#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops/elementary.h"
#include "tinygrad/tensor/ops/index_range.h"
#include "tinygrad/tensor/ops/product.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr double kLeastLog = -100;        // of a probability, as in PyTorch
constexpr double kLeastVariance = 1e-12;  // of a yes or no, in the gradient

/// Returns t as floats of the type that losses are computed in: narrow ones are rounded once, when the loss is done.
Tensor wide_floats(const Tensor& t) {
  const Tensor f = as_float(t);
  return f.cast(wide_dtype(f.dtype()));
}
DType float_type(const Tensor& t) { return least_upper_float(t.dtype()); }
/// Reduces losses that were computed in the wide type of `d`, and rounds them to `d`.
Tensor finished(const Tensor& t, Reduction r, DType d) {
  const Tensor loss = r == Reduction::kMean ? t.mean() : r == Reduction::kSum ? t.sum() : t;
  return d.is_float() && wide_dtype(d) != d ? loss.cast(d) : loss;
}
/// Reduces losses of which some are not counted, or count more than others.
Tensor finished(const Tensor& t, const Tensor& weight, Reduction r, DType d) {
  if (!weight.defined() || r != Reduction::kMean) return finished(t, r, d);
  return finished(t.sum() / weight.sum(), Reduction::kNone, d);
}

void check_smoothing(double v, const char* op) {
  TG_CHECK(ValueError, v >= 0 && v <= 1, "[", op, "] got label_smoothing ", v, ", expected 0 to 1");
}
void check_labels(const Tensor& y, const Shape& want, const char* op, const Shape& logits) {
  TG_CHECK(ShapeError, y.shape() == want, "[", op, "] got labels ", y.shape(), " for logits ", logits, ", expected ",
           want);
}

/// PyTorch's default of ignore_index, with which its programs pad labels.
constexpr int64_t kPaddingLabel = -100;

/// Labels of classes: which count, and which are wrong. A tensor is undefined where the type leaves no other labels.
struct Labels {
  Tensor counts, wrong;
  /// Returns `loss`, one for each label, with 0 for labels that do not count and NaN for wrong ones.
  Tensor checked(const Tensor& loss) const {
    const Tensor counted = counts.defined() ? counts.where(loss, 0) : loss;
    return wrong.defined() ? wrong.where(std::numeric_limits<double>::quiet_NaN(), counted) : counted;
  }
};
Labels labels_of(const Tensor& y, int64_t classes, const CrossEntropyOptions& o, const char* op) {
  TG_CHECK(DTypeError, y.dtype().is_int(), "[", op, "] got labels of ", y.dtype(), ", expected integers");
  const Bounds b = bounds_of(y.uop());
  std::vector<int64_t> ignored{kPaddingLabel};
  if (o.ignore_index) ignored.push_back(*o.ignore_index);
  std::erase_if(ignored, [&](int64_t i) { return i < b.lo || i > b.hi; });
  check_labels_of(y, classes, ignored, op);
  Labels l;
  for (const int64_t i : ignored) l.counts = l.counts.defined() ? l.counts & (y != i) : y != i;
  if (b.hi >= classes) l.wrong = y >= classes;
  if (b.lo < 0) l.wrong = l.wrong.defined() ? l.wrong | (y < 0) : y < 0;
  if (l.wrong.defined() && l.counts.defined()) l.wrong = l.wrong & l.counts;
  return l;
}
}  // namespace

Tensor Tensor::sparse_categorical_crossentropy(const Tensor& y, const CrossEntropyOptions& o) const {
  OpScope s;
  const char* op = "sparse_categorical_crossentropy";
  const Shape sh = shape();
  check_smoothing(o.label_smoothing, op);
  TG_CHECK(ShapeError, !sh.empty(), "[", op, "] got logits without axes, expected classes on the last one");
  const Shape lead(sh.begin(), sh.end() - 1), ys = y.shape();
  const Shape* both[] = {&lead, &ys};
  TG_CHECK(ShapeError, lead == ys || broadcast_shapes(both, op) == ys, "[", op, "] got labels ", ys, " for logits ", sh,
           ", expected ", lead, " or what that broadcasts to");
  int64_t classes = sh.back().value();
  Tensor logp = wide_floats(*this).log_softmax(-1);
  const Labels labels = labels_of(y, classes, o, op);
  // Chosen, not multiplied by 1 and 0: a class that is masked by a logit of -inf is no part of the loss of others.
  Tensor loss = (y.unsqueeze(-1) == arange(classes)).where(logp, 0).sum(-1);
  if (o.label_smoothing > 0) loss = (1 - o.label_smoothing) * loss + o.label_smoothing * logp.mean(-1);
  return s(-finished(labels.checked(loss), labels.counts, o.reduction, float_type(*this)));
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
  const double smoothing = o.label_smoothing, each = smoothing / static_cast<double>(classes);
  const Tensor logp = wide_floats(*this).log_softmax(axis);
  Tensor terms;
  Labels given;
  if (y.shape() == labels && y.shape() != sh) {
    given = labels_of(y, classes, o, "cross_entropy");
    Shape line(sh.size(), SInt(1));
    line[static_cast<size_t>(axis)] = classes;
    terms = (y.unsqueeze(axis) == arange(classes).reshape(line)).where(logp, 0);
    if (smoothing > 0) terms = (1 - smoothing) * terms + each * logp;
  } else {
    check_labels(y, sh, "cross_entropy", sh);
    Tensor p = y.cast(logp.dtype());
    if (smoothing > 0) p = (1 - smoothing) * p + each;
    terms = logp * p;
  }
  return s(finished(given.checked(-terms.sum(axis)), given.counts, o.reduction, float_type(*this)));
}

Tensor Tensor::nll_loss(const Tensor& y, const Tensor& weight, const CrossEntropyOptions& o) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, sh.size() >= 2, "[nll_loss] got shape ", sh, ", expected (batch, classes, ...)");
  Shape labels = sh;
  labels.erase(labels.begin() + 1);
  check_labels(y, labels, "nll_loss", sh);
  const Labels given = labels_of(y, sh[1].value(), o, "nll_loss");
  if (weight.defined())
    TG_CHECK(ShapeError, weight.shape() == Shape{sh[1].value()}, "[nll_loss] got weight ", weight.shape(),
             ", expected (", sh[1], ",)");
  Tensor at = y;  // 0 for those that are no class
  if (given.counts.defined()) at = given.counts.where(at, 0);
  if (given.wrong.defined()) at = given.wrong.where(0, at);
  Tensor w = weight.defined() ? wide_floats(weight[at]) : Tensor(),
         loss = -wide_floats(gather(1, at.unsqueeze(1)).squeeze(1));
  if (w.defined()) loss = loss * w;
  loss = given.checked(loss);
  if (given.counts.defined()) w = w.defined() ? given.counts.where(w, 0) : given.counts;
  return s(finished(loss, w, o.reduction, float_type(*this)));
}

namespace {
/// The cross entropy of probabilities y and x, elementwise. The logarithm of 0 is -100, and the gradient is that of a
/// variance that is not 0: a saturated sigmoid gives probabilities of exactly 0 and 1.
Tensor cross_entropies(const Tensor& x, const Tensor& y) {
  const auto log = [](const Tensor& p) { return p.log().maximum(kLeastLog); };
  const auto entropy = custom_gradient(
      [log](const Tensor& p, const Tensor& want) { return -(want * log(p)) - (1 - want) * log(1 - p); },
      [log](const Tensor& g, const Tensor& p, const Tensor& want) {
        return Tensors{g * (p - want) / ((1 - p) * p).maximum(kLeastVariance), g * (log(1 - p) - log(p))};
      });
  return entropy(x, y);
}
}  // namespace

Tensor Tensor::binary_crossentropy(const Tensor& y, Reduction r) const {
  OpScope s;
  const DType out = strong_dtype(least_upper_dtype(float_type(*this), float_type(y))), wide = wide_dtype(out);
  const Shape x_shape = shape(), y_shape = y.shape();
  const Shape* both[] = {&x_shape, &y_shape};
  const Shape all = broadcast_shapes(both, "binary_crossentropy");
  return s(finished(cross_entropies(cast(wide).expand(all), y.cast(wide).expand(all)), r, out));
}
Tensor Tensor::binary_crossentropy_logits(const Tensor& y, Reduction r, const Tensor& pos_weight) const {
  OpScope s;
  DType out = least_upper_dtype(float_type(*this), float_type(y));
  const Tensor x = wide_floats(*this), want = as_float(y);
  Tensor yes = want * x.logsigmoid();
  if (pos_weight.defined()) {
    out = least_upper_dtype(out, pos_weight.dtype());
    yes = yes * pos_weight;
  }
  return s(finished(-(yes + (1 - want) * (-x).logsigmoid()), r, out));
}
Tensor Tensor::mse_loss(const Tensor& y, Reduction r) const {
  OpScope s;
  // The mean of integers is a float; other results keep their type.
  const DType out = r == Reduction::kMean ? least_upper_dtype(float_type(*this), float_type(y))
                                          : least_upper_dtype(dtype(), y.dtype());
  if (out.is_float()) return s(finished((wide_floats(*this) - wide_floats(y)).square(), r, out));
  return s(finished((*this - y).square(), r, out));
}

}  // namespace tg
