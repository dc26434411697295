/// \file Operators of ai.onnx.ml: support vectors.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tinygrad/onnx/ml_scores.h"
#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

using Doubles = std::vector<double>;

/// Returns rows of features. All is computed in float64: coefficients of hard problems are large, and what they weigh
/// nearly cancels.
Tensor as_rows(const NodeContext& c) {
  const Tensor x = c.tensor(0).cast(dtypes::float64);
  return x.ndim() == 1 ? x.unsqueeze(0) : x;
}
Tensor matrix(const NodeContext& c, const Doubles& v, size_t rows) {
  c.check(rows > 0 && !v.empty() && v.size() % rows == 0, "got ", v.size(), " numbers for ", rows, " rows");
  return Tensor::from(v, Shape{static_cast<int64_t>(rows), -1}, {.device = c.device()});
}

/// Computes the kernel of rows of x and of support vectors.
Tensor kernel(const NodeContext& c, const Tensor& x, const Tensor& vectors) {
  const std::string type = c.choice("kernel_type", "LINEAR", {"LINEAR", "POLY", "RBF", "SIGMOID"});
  Doubles p = c.attr_floats("kernel_params", {0, 0, 0});
  p.resize(3, 0);
  if (type == "RBF") {  // of differences: squares of large features would cancel each other
    const Tensor far = x.unsqueeze(1) - vectors.unsqueeze(0);
    return ((far * far).sum(2) * -p[0]).exp();
  }
  const Tensor product = x.dot(vectors.transpose());
  if (type == "POLY") return (product * p[0] + p[1]).pow(Tensor(p[2]));
  if (type == "SIGMOID") return (product * p[0] + p[1]).tanh();
  return product;
}

Values regressor(NodeContext& c) {
  const Tensor x = as_rows(c);
  const Doubles weights = c.attr_floats("coefficients");
  const int64_t supports = c.attr("n_supports", int64_t{0});
  const Doubles rho = c.attr_floats("rho", {0});
  Tensor out;
  if (supports > 0) {
    c.check(static_cast<size_t>(supports) == weights.size(), "got ", weights.size(), " coefficients for ", supports,
            " support vectors");
    const Tensor k = kernel(c, x, matrix(c, c.attr_floats("support_vectors"), weights.size()));
    out = k.dot(matrix(c, weights, weights.size()));
  } else {
    out = kernel(c, x, matrix(c, weights, 1));
  }
  out = out + rho.at(0);
  if (c.flag("one_class")) out = out.gt(Tensor(0.0)).where(Tensor(1.0), Tensor(-1.0));
  return {post_transformed(c, out).cast(dtypes::float32)};
}

/// A classifier of support vectors: each pair of classes i < j has one of its own, in the order (0, 1), (0, 2), ...
struct PairClassifiers {
  size_t classes = 0, vectors = 0;
  Doubles rho, a, b;  ///< of each pair; a and b make its probability, empty: there is none
  std::vector<std::pair<size_t, size_t>> pairs;
  Doubles weights;  ///< (vectors, pairs)
};

/// Reads the attributes. A row of coefficients is shared: row j - 1 has those of class i against j > i, row i those of
/// class j against i.
PairClassifiers classifiers_of(const NodeContext& c, size_t classes, const std::vector<int64_t>& counts) {
  PairClassifiers p;
  p.classes = classes;
  p.rho = c.attr_floats("rho");
  p.a = c.attr_floats("prob_a");
  p.b = c.attr_floats("prob_b");
  constexpr int64_t kMostVectors = 1 << 24;
  std::vector<size_t> start{0};
  for (const int64_t n : counts) {
    c.check(n >= 0 && n <= kMostVectors, "vectors_per_class has ", n);
    start.push_back(start.back() + static_cast<size_t>(n));
  }
  p.vectors = start.back();
  const Doubles coefficients = c.attr_floats("coefficients");
  c.check(counts.size() == classes, "got ", counts.size(), " numbers of vectors for ", classes, " classes");
  c.check(coefficients.size() == (classes - 1) * p.vectors, "got ", coefficients.size(), " coefficients for ",
          p.vectors, " vectors and ", classes, " classes");
  const size_t pairs = classes * (classes - 1) / 2;
  c.check(p.rho.size() == pairs, "got ", p.rho.size(), " values of rho for ", pairs, " pairs of classes");
  c.check(p.a.size() == p.b.size() && (p.a.empty() || p.a.size() == pairs), "got ", p.a.size(), " and ", p.b.size(),
          " values of prob_a and prob_b for ", pairs, " pairs of classes");
  c.check(pairs * p.vectors <= size_t{kMostVectors}, "got ", pairs, " pairs of classes and ", p.vectors, " vectors");
  p.weights.assign(p.vectors * pairs, 0);
  for (size_t i = 0; i < classes; i++)
    for (size_t j = i + 1; j < classes; j++) {
      const size_t pair = p.pairs.size();
      p.pairs.emplace_back(i, j);
      for (size_t v = start[i]; v < start[i + 1]; v++)
        p.weights[v * pairs + pair] = coefficients[(j - 1) * p.vectors + v];
      for (size_t v = start[j]; v < start[j + 1]; v++) p.weights[v * pairs + pair] = coefficients[i * p.vectors + v];
    }
  return p;
}

/// Returns the number of the class that wins most pairs, the first one of equals: of a score above 0 the first of the
/// pair wins.
Tensor most_votes(const NodeContext& c, const PairClassifiers& p, const Tensor& scores) {
  Doubles first(p.pairs.size() * p.classes, 0), change(first);
  Doubles lost(p.classes, 0);
  for (size_t k = 0; k < p.pairs.size(); k++) {
    const auto [i, j] = p.pairs[k];
    change[k * p.classes + i] = 1;
    change[k * p.classes + j] = -1;
    lost[j]++;
  }
  const Tensor wins = scores.gt(Tensor(0.0)).cast(dtypes::float64);
  return (wins.dot(matrix(c, change, p.pairs.size())) + matrix(c, lost, 1)).argmax(1);
}

/// Solves for the probabilities of k classes that fit those of pairs best (`r`, k x k: of a class against another), as
/// libsvm does: T.-F. Wu, C.-J. Lin, R. C. Weng, Probability Estimates for Multi-class Classification by Pairwise
/// Coupling, 2004, algorithm 2. It ends where libsvm ends, since results are compared.
Doubles coupled(const Doubles& r, size_t k) {
  const auto n = static_cast<double>(k);
  Doubles p(k, 1 / n), q(k * k, 0), qp(k);
  for (size_t t = 0; t < k; t++)
    for (size_t j = 0; j < k; j++) {
      if (j == t) continue;
      q[t * k + t] += r[j * k + t] * r[j * k + t];
      q[t * k + j] = -r[j * k + t] * r[t * k + j];
    }
  for (size_t round = 0; round < std::max<size_t>(100, k); round++) {
    double pqp = 0, error = 0;
    for (size_t t = 0; t < k; t++) {
      qp[t] = std::inner_product(p.begin(), p.end(), q.begin() + static_cast<long>(t * k), 0.0);
      pqp += p[t] * qp[t];
    }
    for (size_t t = 0; t < k; t++) error = std::max(error, std::abs(qp[t] - pqp));
    if (error < 0.005 / n) break;
    for (size_t t = 0; t < k; t++) {
      const double by = (pqp - qp[t]) / q[t * k + t];
      p[t] += by;
      pqp = (pqp + by * (by * q[t * k + t] + 2 * qp[t])) / (1 + by) / (1 + by);
      for (size_t j = 0; j < k; j++) {
        qp[j] = (qp[j] + by * q[t * k + j]) / (1 + by);
        p[j] /= 1 + by;
      }
    }
  }
  return p;
}

/// Returns the probability of each class for rows of scores of pairs. They are read: the solver decides when it ends.
Tensor probabilities(const NodeContext& c, const PairClassifiers& p, const Tensor& scores) {
  const HostRef h = c.run().read_data(scores);
  const size_t k = p.classes, rows = p.pairs.empty() ? 0 : h->count() / p.pairs.size();
  Doubles out, r(k * k, 0);
  for (size_t row = 0; row < rows; row++) {
    for (size_t n = 0; n < p.pairs.size(); n++) {
      const auto [i, j] = p.pairs[n];
      const double v = 1 / (1 + std::exp(h->number(row * p.pairs.size() + n) * p.a[n] + p.b[n]));
      r[i * k + j] = std::clamp(v, 1e-7, 1 - 1e-7);
      r[j * k + i] = 1 - r[i * k + j];
    }
    const Doubles one = coupled(r, k);
    out.insert(out.end(), one.begin(), one.end());
  }
  return Tensor::from(out, Shape{static_cast<int64_t>(rows), static_cast<int64_t>(k)}, {.device = c.device()});
}

/// Returns the scores as results. The one score of two classes becomes two of opposite signs, as in the standard's
/// reference, which leaves it alone for PROBIT: that is undefined for one of them.
Tensor shown_scores(const NodeContext& c, const Tensor& scores) {
  const bool both = scores.shape(1) == 1 && c.attr("post_transform", "NONE") != "PROBIT";
  return post_transformed(c, both ? (-scores).cat(scores, 1) : scores).cast(dtypes::float32);
}

/// Classifies by one row of coefficients for each class. Of two classes the second is taken if any score is high.
Values linear(NodeContext& c, const Tensor& x, size_t classes, const Doubles& rho) {
  const Doubles weights = c.attr_floats("coefficients");
  const Tensor scores = x.dot(matrix(c, weights, classes).transpose()) + rho.at(0);
  Tensor best = scores.argmax(1);
  if (classes == 2) {
    const bool positive = std::ranges::all_of(weights, [](double w) { return w >= 0; });
    const Tensor top = scores.max(1);
    best = (positive ? top.ge(Tensor(0.5)) : top.gt(Tensor(0.0))).where(Tensor(1), best);
  }
  const Value labels = labels_of(c, best, "classlabels_ints", "classlabels_strings");
  return {labels, post_transformed(c, scores).cast(dtypes::float32)};
}

Values classifier(NodeContext& c) {
  const Tensor x = as_rows(c);
  const size_t classes = std::max(c.attr_ints("classlabels_ints").size(), c.attr_strings("classlabels_strings").size());
  c.check(classes > 0 && classes < 1 << 16, "got ", classes, " labels");
  const std::vector<int64_t> counts = c.attr_ints("vectors_per_class");
  if (std::ranges::all_of(counts, [](int64_t n) { return n == 0; })) return linear(c, x, classes, c.attr_floats("rho"));
  c.check(classes > 1, "got one class with support vectors, expected two or more");
  const PairClassifiers p = classifiers_of(c, classes, counts);
  const Tensor k = kernel(c, x, matrix(c, c.attr_floats("support_vectors"), p.vectors));
  const Tensor scores = k.dot(matrix(c, p.weights, p.vectors)) + matrix(c, p.rho, 1);
  const Value labels = labels_of(c, most_votes(c, p, scores), "classlabels_ints", "classlabels_strings");
  if (p.a.empty()) return {labels, shown_scores(c, scores)};
  return {labels, post_transformed(c, probabilities(c, p, scores)).cast(dtypes::float32)};
}

const OperatorRow kRows[] = {
    {"ai.onnx.ml", "SVMRegressor", 1, regressor},
    {"ai.onnx.ml", "SVMClassifier", 1, classifier},
};

}  // namespace

OperatorRows svm_operators() { return kRows; }

}  // namespace tg::onnx
