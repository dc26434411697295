/// \file What the programs share: inputs that PyTorch made alike, and the values it recorded (record.py).
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "tinygrad/tinygrad.h"

namespace programs {
using namespace tg;

/// scale * sin(0.7 i + 0.011 i i + phase).
inline Tensor wave(const Shape& shape, double phase = 0, double scale = 1) {
  std::vector<float> v;
  for (int64_t n = 0; n < shape.numel(); n++) {
    const auto i = static_cast<double>(n);
    v.push_back(static_cast<float>(scale * std::sin(0.7 * i + 0.011 * i * i + phase)));
  }
  return Tensor::from(v, shape);
}

/// The values recorded for a program, in the order they were recorded in; they must be used up.
class Recorded {
 public:
  explicit Recorded(const std::string& program) : values_(all().at(program)) {}
  ~Recorded() { EXPECT_EQ(at_, values_.size()) << "recorded values nobody compared"; }

  double next() { return values_.at(at_++); }
  /// The next values are these, up to `tolerance` times 1 + their size.
  void expect(const std::vector<double>& got, double tolerance, const std::string& what) {
    for (size_t i = 0; i < got.size(); i++) {
      const double want = next();
      ASSERT_NEAR(got[i], want, tolerance * (1 + std::abs(want))) << what << " element " << i;
    }
  }
  void expect(const Tensor& got, double tolerance, const std::string& what) {
    expect(got.cast(dtypes::float64).to_vector<double>(), tolerance, what);
  }

 private:
  static const std::map<std::string, std::vector<double>>& all() {
    static const std::map<std::string, std::vector<double>> values = {
#include "recorded.inc"
    };
    return values;
  }
  const std::vector<double>& values_;
  size_t at_ = 0;
};

}  // namespace programs
