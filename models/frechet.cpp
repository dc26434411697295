/// \file The Frechet distance by a Cholesky factor and the eigenvalues of a symmetric matrix.
#include "models/frechet.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

/// A square matrix, row-major.
struct Matrix {
  size_t n;
  std::vector<double> values;
  double& operator()(size_t row, size_t column) { return values[row * n + column]; }
  double* row(size_t i) { return &values[i * n]; }
};

double dot(const double* a, const double* b, size_t n) { return std::inner_product(a, a + n, b, 0.0); }

/// Returns L with L L^T = A up to rounding, for a symmetric A without negative eigenvalues. Columns are taken in the
/// order of what is left of the diagonal, and those of which nothing is left stay 0.
Matrix factor(Matrix a) {
  const size_t n = a.n;
  Matrix l{n, std::vector<double>(n * n)};
  std::vector<double> left(n);
  for (size_t i = 0; i < n; i++) left[i] = a(i, i);
  const double greatest = n == 0 ? 0 : *std::max_element(left.begin(), left.end());
  for (size_t k = 0; k < n; k++) {
    const size_t pivot = static_cast<size_t>(std::max_element(left.begin(), left.end()) - left.begin());
    if (left[pivot] <= greatest * static_cast<double>(n) * 1e-16) break;
    const double root = std::sqrt(left[pivot]);
    for (size_t i = 0; i < n; i++) {
      if (left[i] <= 0 && i != pivot) continue;
      const double value = (a(i, pivot) - dot(l.row(i), l.row(pivot), k)) / root;
      l(i, k) = i == pivot ? root : value;
      left[i] -= l(i, k) * l(i, k);
    }
    left[pivot] = 0;
  }
  return l;
}

/// A symmetric matrix with zeros beside its diagonal and the elements next to that.
struct Tridiagonal {
  std::vector<double> diagonal, beside;
  /// Returns how many eigenvalues are below x, by Sturm's theorem.
  size_t below(double x) const {
    size_t count = 0;
    double pivot = 1;
    for (size_t i = 0; i < diagonal.size(); i++) {
      const double square = i == 0 ? 0 : beside[i - 1] * beside[i - 1];
      pivot = diagonal[i] - x - square / pivot;
      if (pivot == 0) pivot = 1e-300;
      count += pivot < 0 ? 1 : 0;
    }
    return count;
  }
};

/// Returns a matrix with the eigenvalues of the symmetric `a`, by Householder reflections.
Tridiagonal tridiagonal(Matrix a) {
  const size_t n = a.n;
  Tridiagonal out{std::vector<double>(n), std::vector<double>(n == 0 ? 0 : n - 1)};
  for (size_t k = 0; k + 1 < n; k++) {
    const size_t rest = n - k - 1;
    std::vector<double> v(a.row(k) + k + 1, a.row(k) + n), w(rest);
    const double norm = std::sqrt(dot(v.data(), v.data(), rest));
    out.beside[k] = std::copysign(norm, -v[0]);
    v[0] -= out.beside[k];
    const double square = dot(v.data(), v.data(), rest);
    if (square == 0) continue;
    for (size_t i = 0; i < rest; i++) w[i] = 2 / square * dot(a.row(k + 1 + i) + k + 1, v.data(), rest);
    const double along = dot(w.data(), v.data(), rest) / square;
    for (size_t i = 0; i < rest; i++) w[i] -= along * v[i];
    for (size_t i = 0; i < rest; i++) {
      double* row = a.row(k + 1 + i) + k + 1;
      for (size_t j = 0; j < rest; j++) row[j] -= v[i] * w[j] + w[i] * v[j];
    }
  }
  for (size_t i = 0; i < n; i++) out.diagonal[i] = a(i, i);
  return out;
}

/// Returns the sum of the square roots of the eigenvalues, of those above 0.
double trace_of_root(const Tridiagonal& t) {
  double greatest = 0;  // by Gershgorin's theorem
  for (size_t i = 0; i < t.diagonal.size(); i++) {
    const double left = i == 0 ? 0 : std::abs(t.beside[i - 1]);
    const double right = i + 1 == t.diagonal.size() ? 0 : std::abs(t.beside[i]);
    greatest = std::max(greatest, std::abs(t.diagonal[i]) + left + right);
  }
  double sum = 0;
  for (size_t i = t.below(0); i < t.diagonal.size(); i++) {
    double low = 0, high = greatest;
    for (int step = 0; step < 60; step++) {
      const double middle = (low + high) / 2;
      (t.below(middle) <= i ? low : high) = middle;
    }
    sum += std::sqrt((low + high) / 2);
  }
  return sum;
}

Matrix matrix(const Tensor& t) { return {static_cast<size_t>(t.shape(0)), t.to_vector<double>()}; }

}  // namespace

FeatureStatistics feature_statistics(const Tensor& features) {
  TG_CHECK(ShapeError, features.ndim() == 2, "[feature_statistics] got ", features.shape(),
           ", expected (samples, features)");
  const int64_t samples = features.shape(0);
  TG_CHECK(ValueError, samples >= 2, "[feature_statistics] got ", samples, " samples, expected 2 at least");
  const Tensor x = features.to_double();
  const Tensor centered = x - x.mean(0, true);
  return {x.mean(0).realize(), (centered.transpose().dot(centered) / static_cast<double>(samples - 1)).realize()};
}

double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b) {
  const Shape shape = a.mean.shape();
  TG_CHECK(ShapeError, shape.size() == 1 && a.covariance.shape() == (Shape{shape[0], shape[0]}),
           "[frechet_distance] got a mean of shape ", shape, " and a covariance of shape ", a.covariance.shape());
  TG_CHECK(ShapeError, b.mean.shape() == shape && b.covariance.shape() == a.covariance.shape(),
           "[frechet_distance] got ", shape, " and ", b.mean.shape(), ", expected equal numbers of features");
  const Tensor first = a.covariance.to_double(), second = b.covariance.to_double();
  // A B and L^T B L have the same eigenvalues where A = L L^T, and the latter is symmetric.
  const Tensor l = Tensor::from(factor(matrix(first)).values, first.shape());
  const double root = trace_of_root(tridiagonal(matrix(l.transpose().dot(second).dot(l))));
  const Tensor means = (a.mean.to_double() - b.mean.to_double()).square().sum();
  return (means + first.diagonal().sum() + second.diagonal().sum()).item<double>() - 2 * root;
}

}  // namespace tg::models
