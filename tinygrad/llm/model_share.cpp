/// \file Parts of a model, and what the processes exchange.
#include "tinygrad/llm/model_share.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/tensor/multi/collectives.h"

namespace tg::llm {
namespace {

constexpr const char* kAxis = "tensor";

/// Part `index` of `count` near-equal parts.
AxisRange part_of(int64_t units, int64_t index, int64_t count) {
  return {units * index / count, units * (index + 1) / count};
}

}  // namespace

ModelShare ModelShare::of_world() {
  ModelShare s;
  s.index_ = distributed::rank();
  s.count_ = distributed::size();
  if (s.count_ > 1) s.mesh_ = std::make_shared<const Mesh>(std::vector<MeshAxis>{{kAxis, s.count_}});
  return s;
}

AxisRange ModelShare::of(int64_t units, const char* what) const {
  TG_CHECK(ValueError, whole() || units >= count_, "[llm] got ", count_, " processes for ", units, " ", what,
           ", expected at most as many");
  return part_of(units, index_, count_);
}

ModelShare::Heads ModelShare::heads(int64_t queries, int64_t keys) const {
  if (whole()) return {{0, queries}, {0, keys}};
  const int64_t group = queries / keys;
  if (keys >= count_) {
    const AxisRange k = of(keys, "heads of keys");
    return {k.scaled(group), k};
  }
  const int64_t sharers = count_ / keys;  // of one head of keys
  TG_CHECK(ValueError, count_ % keys == 0 && sharers <= group, "[llm] got ", count_, " processes for ", queries,
           " heads of queries and ", keys, " of keys, expected at most ", keys, ", or a multiple of it up to ",
           queries);
  const int64_t k = index_ / sharers;
  return {part_of(group, index_ % sharers, sharers).moved(k * group), {k, k + 1}, sharers};
}

Tensor ModelShare::sum(const Tensor& part) const {
  return whole() ? part : distributed::all_reduce(part, *mesh_, {kAxis});
}

AxisRange ModelShare::padded_rows(int64_t rows) const {
  const int64_t each = padded_size(rows);
  if (each * (count_ - 1) >= rows) return {0, rows};
  return {each * index_, std::min(each * (index_ + 1), rows)};
}

Tensor ModelShare::join(const Tensor& part, int64_t size) const {
  const int64_t each = padded_size(size), mine = part.shape(-1);
  if (whole() || mine == size) return part;
  std::vector<std::pair<SInt, SInt>> missing(part.shape().size(), {0, 0});
  missing.back() = {0, each - mine};
  return distributed::all_gather(part.pad(missing), *mesh_, kAxis, -1).slice(-1, 0, size);
}

}  // namespace tg::llm
