/// \file Graphs as bytes: they come back as they were, and bytes cannot name memory.
#include "tinygrad/uop/serialize.h"

#include <gtest/gtest.h>

#include "tinygrad/base/binary.h"
#include "tinygrad/base/error.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
UOp storage(Ops op, int64_t slot, AddrSpace space) {
  return UOp::make(op, dtypes::float32, {UOp::shape_stack(std::vector<int64_t>{4})},
                   Arg(ParamArg{slot, space, "CPU", "", 0, 0}));
}
std::vector<uint8_t> bytes_of(UOp root) {
  ByteWriter w;
  write_graph(w, {root});
  return w.bytes;
}
UOp graph_of(const std::vector<uint8_t>& bytes) {
  ByteReader r(bytes, "graph");
  return read_graph(r).at(0);
}

TEST(Serialize, ComesBack) {
  Arena arena;
  ArenaScope scope(arena);
  const UOp a = storage(Ops::PARAM, 0, AddrSpace::kGlobal).index({UOp::constant(int64_t{3})}).load();
  const UOp sum = a + storage(Ops::BUFFER, 1, AddrSpace::kReg).index({UOp::constant(int64_t{0})}).load();
  EXPECT_EQ(graph_of(bytes_of(sum)), sum);
}

TEST(Serialize, NoMemoryFromBytes) {
  Arena arena;
  ArenaScope scope(arena);
  EXPECT_THROW(bytes_of(storage(Ops::BUFFER, 7, AddrSpace::kGlobal)), ValueError);
  // A parameter whose operation is changed to that of memory: another tensor's, once it were freed.
  std::vector<uint8_t> bytes = bytes_of(storage(Ops::PARAM, 7, AddrSpace::kGlobal));
  int refused = 0;
  for (uint8_t& b : bytes) {
    if (b != static_cast<uint8_t>(Ops::PARAM)) continue;
    b = static_cast<uint8_t>(Ops::BUFFER);
    try {
      for (UOp u : graph_of(bytes).toposort()) EXPECT_NE(u.op(), Ops::BUFFER);
    } catch (const FormatError&) { refused++; }
    b = static_cast<uint8_t>(Ops::PARAM);
  }
  EXPECT_GE(refused, 1);
}

}  // namespace
}  // namespace tg
