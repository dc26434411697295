/// \file Fourier transforms, windows and filters of sounds.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

/// A sum of cosines over one period: a0 - a1 cos(t) + a2 cos(2 t).
Values window(const NodeContext& c, double a0, double a1, double a2) {
  const int64_t size = c.integer(0);
  const DType d = c.dtype_of(static_cast<ElemType>(c.attr("output_datatype", int64_t{1})));
  const int64_t period = c.flag("periodic", true) ? size : size - 1;
  const DType wide = wide_float(d);
  const Tensor t = Tensor::arange(0, size, 1, {.dtype = wide, .device = c.device()}) *
                   (2 * std::numbers::pi / static_cast<double>(std::max<int64_t>(period, 1)));
  return {(t.cos() * -a1 + (t * 2).cos() * a2 + a0).cast(d)};
}
Values hann(NodeContext& c) { return window(c, 0.5, 0.5, 0); }
Values hamming(NodeContext& c) { return window(c, 25.0 / 46, 1 - 25.0 / 46, 0); }
Values blackman(NodeContext& c) { return window(c, 0.42, 0.5, 0.08); }

/// Cosines and sines of a Fourier transform: (n, m), exact for integers that are reduced modulo n first.
struct Waves {
  Tensor cos, sin;
};
Waves waves(const NodeContext& c, int64_t n, int64_t m, DType d) {
  const Tensor turn =
      (count_along(n, 0, 2, dtypes::int64, c.device()) * count_along(m, 1, 2, dtypes::int64, c.device()))
          .mod(Tensor(n));
  const Tensor angle = turn.cast(d) * (2 * std::numbers::pi / static_cast<double>(n));
  return {angle.cos(), angle.sin()};
}

/// Transforms rows of real and imaginary parts (the second may be undefined) of length n to m frequencies, in float64.
std::pair<Tensor, Tensor> transformed(const NodeContext& c, const Tensor& real, const Tensor& imaginary, int64_t m,
                                      bool inverse) {
  const Tensor re = real.cast(dtypes::float64), im = imaginary.defined() ? imaginary.cast(dtypes::float64) : imaginary;
  const int64_t n = re.shape(-1);
  const Waves w = waves(c, n, m, dtypes::float64);
  const double sign = inverse ? 1 : -1;
  Tensor out_re = re.dot(w.cos), out_im = re.dot(w.sin) * sign;
  if (im.defined()) {
    out_re = out_re - im.dot(w.sin) * sign;
    out_im = out_im + im.dot(w.cos);
  }
  if (!inverse) return {out_re, out_im};
  const auto size = static_cast<double>(n);
  return {out_re / size, out_im / size};
}

/// Cuts or pads an axis at its end.
Tensor with_length(const Tensor& x, int axis, int64_t n) {
  if (x.shape(axis) >= n) return x.slice(axis, 0, n);
  std::vector<std::pair<int64_t, int64_t>> amounts(static_cast<size_t>(x.ndim()), {0, 0});
  amounts[static_cast<size_t>(axis)].second = n - x.shape(axis);
  return x.pad(amounts);
}

/// (..., 1) is real, (..., 2) complex. One-sided: the first half of the frequencies, or back to real numbers.
Values dft(NodeContext& c) {
  Tensor x = c.tensor(0);
  const int64_t rank = x.ndim();
  const int64_t named = c.opset() >= 20 ? c.integer_or(2, -2) : c.attr("axis", int64_t{1});
  const int axis = normal_axis(named, rank);
  c.check(axis != rank - 1, "axis ", axis, " is that of real and imaginary parts");
  const bool inverse = c.flag("inverse"), half = c.flag("onesided");
  const int64_t length = c.has(1) ? c.integer(1) : inverse && half ? 2 * (x.shape(axis) - 1) : x.shape(axis);
  if (!(inverse && half)) x = with_length(x, axis, length);
  const std::vector<int> order = moved_axis(rank, axis, rank - 2);
  x = x.permute(order);
  if (inverse && half) {  // the other half is the conjugate of the first
    const int64_t have = length / 2 + 1;
    x = with_length(x, static_cast<int>(rank) - 2, have);
    const Tensor mirror = x.slice(-2, 1, length - have + 1).flip(static_cast<int>(rank) - 2);
    const Tensor conjugate = mirror.slice(-1, 0, 1).cat(-mirror.slice(-1, 1, 2), static_cast<int>(rank) - 1);
    x = x.cat(conjugate, static_cast<int>(rank) - 2);
  }
  const Tensor re = x.slice(-1, 0, 1).squeeze(-1), im = x.shape(-1) == 2 ? x.slice(-1, 1, 2).squeeze(-1) : Tensor();
  const auto [out_re, out_im] = transformed(c, re, im, half && !inverse ? length / 2 + 1 : length, inverse);
  const Tensor out = inverse && half ? out_re.unsqueeze(-1) : Tensor::stack({out_re, out_im}, -1);
  return {out.permute(moved_axis(rank, rank - 2, axis)).cast(c.tensor(0).dtype())};
}

/// Transforms frames of a signal, (batch, samples, 1 or 2), times a window.
Values stft(NodeContext& c) {
  const Tensor signal = c.tensor(0);
  const int64_t step = c.integer(1);
  const int64_t length = c.has(3) ? c.integer(3) : c.has(2) ? c.tensor(2).shape(0) : signal.shape(1);
  const bool half = c.flag("onesided", true);
  const auto part = [&](int64_t i) {
    const Tensor frames = signal.slice(2, i, i + 1).squeeze(2).unfold(1, length, step);  // (batch, frames, length)
    return c.has(2) ? frames * c.tensor(2) : frames;
  };
  const Tensor im = signal.shape(2) == 2 ? part(1) : Tensor();
  const auto [out_re, out_im] = transformed(c, part(0), im, half ? length / 2 + 1 : length, false);
  return {Tensor::stack({out_re, out_im}, -1).cast(signal.dtype())};
}

/// Triangular filters that sum frequencies to bands of the mel scale.
Values mel_weights(NodeContext& c) {
  const int64_t bands = c.integer(0), length = c.integer(1), rate = c.integer(2), columns = length / 2 + 1;
  const double low = c.number(3), high = c.number(4);
  const DType d = c.dtype_of(static_cast<ElemType>(c.attr("output_datatype", int64_t{1})));
  const auto mel = [](double hz) { return 2595 * std::log10(1 + hz / 700); };
  const auto hertz = [](double m) { return 700 * (std::pow(10, m / 2595) - 1); };
  c.check(bands > 0 && columns > 0 && rate > 0 && bands < 1 << 16 && columns < 1 << 16, "got ", bands, " bands of ",
          columns, " frequencies");
  std::vector<int64_t> edges;
  const double from = mel(low), step = (mel(high) - from) / static_cast<double>(bands + 2);
  for (int64_t i = 0; i < bands + 2; i++)
    edges.push_back(whole(std::floor(static_cast<double>(length + 1) * hertz(static_cast<double>(i) * step + from) /
                                     static_cast<double>(rate))));
  c.run().count_bytes(columns * bands, sizeof(double));
  std::vector<double> out(static_cast<size_t>(columns * bands), 0);
  const auto at = [&](int64_t row, int64_t band) -> double& { return out.at(static_cast<size_t>(row * bands + band)); };
  for (int64_t b = 0; b < bands; b++) {
    const int64_t lower = edges[static_cast<size_t>(b)], center = edges[static_cast<size_t>(b) + 1],
                  upper = edges[static_cast<size_t>(b) + 2];
    c.check(lower >= 0 && upper <= columns && (center > lower || center < columns),
            "the edges of the bands are outside of the spectrum");
    if (center == lower) at(center, b) = 1;
    else
      for (int64_t j = lower; j <= center; j++)
        at(j, b) = static_cast<double>(j - lower) / static_cast<double>(center - lower);
    for (int64_t j = center; j < upper; j++)
      at(j, b) = static_cast<double>(upper - j) / static_cast<double>(upper - center);
  }
  return {Tensor::from(out, {columns, bands}, {.device = c.device()}).cast(d)};
}

const OperatorRow kRows[] = {
    {"", "HannWindow", 17, hann},
    {"", "HammingWindow", 17, hamming},
    {"", "BlackmanWindow", 17, blackman},
    {"", "DFT", 17, dft},
    {"", "STFT", 17, stft},
    {"", "MelWeightMatrix", 17, mel_weights},
};

}  // namespace

OperatorRows signal_operators() { return kRows; }

}  // namespace tg::onnx
