/// \file Parts of weights as processes that share a model take them.
#include "tinygrad/llm/model_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "tinygrad/io/ggml_types.h"
#include "tinygrad/llm/weights.h"
#include "tinygrad/tinygrad.h"

namespace tg::llm {
namespace {

using ::testing::ElementsAreArray;

/// A matrix of Q8_0: blocks of 32 numbers of 8 bits behind a factor of 16.
PackedMatrix q8_matrix(int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 32, kBytes = 34;
  std::vector<uint8_t> bytes;
  for (int64_t b = 0; b < rows * columns / kBlock; b++) {
    bytes.insert(bytes.end(), {0x00, static_cast<uint8_t>(0x30 + b % 7)});
    for (int64_t i = 2; i < kBytes; i++) bytes.push_back(static_cast<uint8_t>((b * 31 + i * 7) % 251));
  }
  const Tensor blocks = Tensor::from(bytes, {rows, columns / kBlock, kBytes}, {.dtype = dtypes::uint8});
  return {blocks.realize(), io::GgmlType::kQ8_0, {rows, columns}};
}

std::vector<float> values_of(const Tensor& t) { return t.contiguous().to_vector<float>(); }

TEST(PackedParts, RowsAndColumnsAreThoseOfTheWhole) {
  const PackedMatrix m = q8_matrix(12, 128);
  const Tensor all = m.values();
  const AxisRange rows[] = {{1, 3}, {8, 9}}, few[] = {{4, 7}}, blocks[] = {{32, 96}}, uneven[] = {{16, 80}};
  const PackedMatrix joined = m.part(0, rows), view = m.part(0, few), columns = m.part(1, blocks),
                     unpacked = m.part(1, uneven);
  EXPECT_EQ(joined.shape, Shape({3, 128}));
  EXPECT_THAT(values_of(joined.values()),
              ElementsAreArray(values_of(Tensor::cat({all.slice(0, 1, 3), all.slice(0, 8, 9)}, 0))));
  EXPECT_THAT(values_of(view.values()), ElementsAreArray(values_of(all.slice(0, 4, 7))));
  EXPECT_EQ(columns.type, io::GgmlType::kQ8_0);
  EXPECT_EQ(columns.blocks.shape(), Shape({12, 2, 34}));
  EXPECT_THAT(values_of(columns.values()), ElementsAreArray(values_of(all.slice(1, 32, 96))));
  EXPECT_EQ(unpacked.type, io::GgmlType::kF32) << "ranges that end within blocks";
  EXPECT_THAT(values_of(unpacked.values()), ElementsAreArray(values_of(all.slice(1, 16, 80))));
  const Tensor chosen = Tensor::from(std::vector<int32_t>{2, 0}, {2});
  EXPECT_THAT(values_of(view.rows(chosen)),
              ElementsAreArray(values_of(Tensor::cat({all.slice(0, 6, 7), all.slice(0, 4, 5)}, 0))));
}

TEST(PackedParts, ExpertsAreDividedWithinEach) {
  PackedMatrix m = q8_matrix(12, 128);
  m.blocks = m.blocks.reshape(Shape{3, 4, 4, 34}).contiguous().realize();
  m.shape = {3, 4, 128};
  const AxisRange rows{1, 3}, columns{64, 128};
  EXPECT_THAT(values_of(m.part(1, {&rows, 1}).values()), ElementsAreArray(values_of(m.values().slice(1, 1, 3))));
  EXPECT_THAT(values_of(m.part(2, {&columns, 1}).values()), ElementsAreArray(values_of(m.values().slice(2, 64, 128))));
}

TEST(PackedParts, ARangeOfEverythingIsTheMatrixItself) {
  const PackedMatrix m = q8_matrix(2, 64);
  const AxisRange all{0, 2};
  EXPECT_EQ(m.part(0, {&all, 1}).blocks.uop(), m.blocks.uop());
}

TEST(PackedParts, RangesThatAreEverythingKeepTheAdapter) {  // gate and hidden layer in one matrix, undivided
  Projection p{q8_matrix(4, 64)};
  p.adapter = std::make_shared<LowRankAdapter>();
  const Projection both = p.outputs_of({{0, 2}, {2, 4}}), swapped = p.outputs_of({{2, 4}, {0, 2}});
  EXPECT_EQ(both.weight.blocks.uop(), p.weight.blocks.uop()) << "the file's pages, not a copy";
  EXPECT_EQ(both.adapter, p.adapter);
  EXPECT_THAT(values_of(swapped.weight.values().slice(0, 0, 2)),
              ElementsAreArray(values_of(p.weight.values().slice(0, 2, 4))));
}

TEST(PackedParts, InputsHaveTheBiasOnce) {
  const Projection p{q8_matrix(4, 64), Tensor::from(std::vector<float>{1, 2, 3, 4}, {4}).realize()};
  const Tensor x = Tensor::arange(64).to_float().reshape(Shape{1, 64}) / 64;
  const Tensor sum = p.inputs_of({0, 32})(x.slice(1, 0, 32)) + p.inputs_of({32, 64})(x.slice(1, 32, 64));
  const std::vector<float> got = values_of(sum), want = values_of(p(x));
  for (size_t i = 0; i < want.size(); i++) EXPECT_NEAR(got[i], want[i], 1e-4 * std::abs(want[i]));
  EXPECT_THAT(values_of(p.outputs_of({{0, 1}, {2, 4}})(x)), ElementsAreArray({want[0], want[2], want[3]}));
}

TEST(ModelShare, OneProcessHasEverything) {
  const ModelShare s = ModelShare::of_world();
  EXPECT_TRUE(s.whole());
  EXPECT_EQ(s.heads(9, 3).queries.size(), 9);
  EXPECT_EQ(s.heads(9, 3).keys.size(), 3);
  EXPECT_EQ(s.of(7, "units").size(), 7);
  EXPECT_EQ(s.padded_rows(13).size(), 13);
  EXPECT_EQ(s.of(0, "units").size(), 0) << "what a file lacks is named by who reads it";
}

}  // namespace
}  // namespace tg::llm
