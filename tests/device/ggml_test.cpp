/// \file GGML's blocks: the bits of the values of every type, as gguf-py's dequantize gave them for the same bytes, and
/// packing. python/tests/test_gguf.py compares more blocks with the package itself.
#include <gtest/gtest.h>

#include <limits>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/io/ggml_dequantize.h"
#include "tinygrad/io/ggml_quantize.h"
#include "tinygrad/nn/nn.h"

namespace tg::io {
namespace {

constexpr int64_t kBlocks = 6;

struct Recorded {
  GgmlType type;
  std::vector<size_t> limited;  ///< bytes of a block whose bits 2 and 6 are cleared: scales are finite
  uint64_t hash;                ///< FNV-1a of the values in float32, little endian
};
const Recorded kRecorded[] = {
    {GgmlType::kQ4_0, {1}, 0x74d9649ecaacb687},      {GgmlType::kQ4_1, {1, 3}, 0x3680fe2179250830},
    {GgmlType::kQ5_0, {1}, 0x84619f847b4c7dcc},      {GgmlType::kQ5_1, {1, 3}, 0x595fd3c1e14e79a8},
    {GgmlType::kQ8_0, {1}, 0x69b013254e6081ab},      {GgmlType::kQ8_1, {3}, 0x0bea8206d22afd98},
    {GgmlType::kQ2_K, {81, 83}, 0xc1c40018906e8abc}, {GgmlType::kQ3_K, {109}, 0xb9686acafe1682cf},
    {GgmlType::kQ4_K, {1, 3}, 0xba22f02acee83dbe},   {GgmlType::kQ5_K, {1, 3}, 0x57b3151080cffc49},
    {GgmlType::kQ6_K, {209}, 0x4d69f68d6442a18f},    {GgmlType::kQ8_K, {3}, 0x7ea6c76396c8d1d2},
    {GgmlType::kIQ2_XXS, {1}, 0x9475a9f3b157ec03},   {GgmlType::kIQ2_XS, {1}, 0x9cdf61db34ab8d84},
    {GgmlType::kIQ3_XXS, {1}, 0xc3afcb08187170fe},   {GgmlType::kIQ1_S, {1}, 0x14a83b33c35b1070},
    {GgmlType::kIQ4_NL, {1}, 0x8f52cbf7ec727519},    {GgmlType::kIQ3_S, {1}, 0x94880192df1d9067},
    {GgmlType::kIQ2_S, {1}, 0xb99ebe3f36f213e9},     {GgmlType::kIQ4_XS, {1}, 0x6273e3fc6e287bc8},
    {GgmlType::kIQ1_M, {55}, 0xa7490e887ae60037},    {GgmlType::kTQ1_0, {53}, 0x0c0d8d72631b0dc7},
    {GgmlType::kTQ2_0, {65}, 0x71ff1d3fe14f1324},    {GgmlType::kMXFP4, {0}, 0x3e283bffb634b006},
    {GgmlType::kNVFP4, {}, 0xe4e49f6d0cdf8e42},      {GgmlType::kQ1_0, {1}, 0xa5075527c60f84a5},
};

/// Returns the upper bytes of a linear congruential sequence.
std::vector<uint8_t> blocks_of(const Recorded& r) {
  const auto size = static_cast<size_t>(ggml_type_info(r.type).bytes);
  std::vector<uint8_t> out(kBlocks * size);
  uint64_t x = 1;
  for (uint8_t& b : out) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<uint8_t>(x >> 56);
  }
  for (size_t i = 0; i < kBlocks; i++)
    for (size_t at : r.limited) out[i * size + at] &= 0xbb;
  return out;
}
uint64_t fnv(std::span<const std::byte> bytes) {
  uint64_t h = 0xcbf29ce484222325;
  for (std::byte b : bytes) h = (h ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return h;
}

TEST(Ggml, ValuesHaveTheBitsOfTheReference) {
  size_t types = 0;
  for (const GgmlTypeInfo& t : ggml_types()) types += !t.native;
  EXPECT_EQ(types, std::size(kRecorded));
  for (const Recorded& r : kRecorded) {
    const GgmlTypeInfo& info = ggml_type_info(r.type);
    const Tensor bytes = Tensor(blocks_of(r));
    const Tensor all = ggml_data_to_tensor(bytes, kBlocks * info.elements, r.type);
    EXPECT_EQ(fnv(std::as_bytes(all.data<float>())), r.hash) << info.name;
    const Tensor rows = ggml_dequantize(bytes.reshape({2, 3, info.bytes}), r.type);
    EXPECT_EQ(rows.shape(), (Shape{2, 3, info.elements})) << info.name;
    EXPECT_EQ(fnv(std::as_bytes(rows.data<float>())), r.hash) << info.name;
  }
}

TEST(Ggml, NativeTypesAreNotWidened) {
  const Tensor bytes = Tensor(std::vector<uint8_t>(16));
  for (const GgmlTypeInfo& t : ggml_types()) {
    if (!t.native) continue;
    EXPECT_EQ(ggml_data_to_tensor(bytes, 2, t.type).dtype(), *t.native) << t.name;
    EXPECT_EQ(native_ggml_type(*t.native), t.type);
  }
}

TEST(Ggml, PackedAndUnpackedAgain) {
  std::vector<float> x(512);
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(static_cast<int>(i * 37 % 201) - 100) / 50;
  const std::pair<GgmlType, float> steps[] = {
      {GgmlType::kF16, 0.001f}, {GgmlType::kBF16, 0.005f}, {GgmlType::kQ4_0, 0.27f},  {GgmlType::kQ4_1, 0.14f},
      {GgmlType::kQ5_0, 0.14f}, {GgmlType::kQ5_1, 0.07f},  {GgmlType::kQ8_0, 0.009f}, {GgmlType::kMXFP4, 0.5f},
      {GgmlType::kTQ1_0, 1.0f}, {GgmlType::kTQ2_0, 1.0f}};
  for (const auto& [type, most] : steps) {
    const std::vector<float> y = ggml_data_to_tensor(Tensor(ggml_quantize(x, type)), 512, type).to_vector<float>();
    for (size_t i = 0; i < x.size(); i++) ASSERT_NEAR(x[i], y[i], most) << ggml_type_info(type).name << " " << i;
  }
  EXPECT_THROW(ggml_quantize(x, GgmlType::kQ6_K), ValueError);
  EXPECT_THROW(ggml_quantize(std::span(x).first(33), GgmlType::kQ8_0), ShapeError);
  x[3] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(ggml_quantize(x, GgmlType::kQ8_0), ValueError);
  EXPECT_NO_THROW(ggml_quantize(x, GgmlType::kF16));
}

TEST(Ggml, Errors) {
  const Tensor bytes = Tensor(std::vector<uint8_t>(36));
  EXPECT_THROW(ggml_dequantize(bytes, GgmlType::kQ4_0), ShapeError);
  EXPECT_THROW(ggml_dequantize(bytes.to_int(), GgmlType::kQ4_0), DTypeError);
  EXPECT_THROW(ggml_data_to_tensor(bytes, 96, GgmlType::kQ4_0), ShapeError);
  EXPECT_THROW(ggml_data_to_tensor(bytes, 33, GgmlType::kQ4_0), ShapeError);
  EXPECT_THROW(ggml_data_to_tensor(bytes, -32, GgmlType::kQ4_0), ShapeError);
  EXPECT_EQ(find_ggml_type(uint32_t{4}), nullptr);
  EXPECT_EQ(find_ggml_type("Q4_K")->type, GgmlType::kQ4_K);
}

TEST(Ggml, ModelsKeepPackedValuesPacked) {
  const bool packed = !env::EAGER;  // which computes every value at once
  const std::vector<float> x(64 * 32, 0.5f);
  const Tensor weight = ggml_data_to_tensor(Tensor(ggml_quantize(x, GgmlType::kQ8_0)), 64 * 32, GgmlType::kQ8_0);
  EXPECT_EQ(nn::is_packed(weight), packed);
  EXPECT_FALSE(nn::is_packed(Tensor::zeros(64, 32)));
  const nn::Linear layer(32, 64, false);
  nn::load_state_dict(layer, {{"weight", weight.reshape({64, 32})}});
  EXPECT_EQ(layer.weight.is_realized(), !packed);
  EXPECT_EQ(layer.weight.to_vector<float>(), weight.to_vector<float>());
  EXPECT_NEAR(layer(Tensor::ones(1, 32)).to_vector<float>()[5], 16, 0.1);
}

}  // namespace
}  // namespace tg::io
