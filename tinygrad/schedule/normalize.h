/// \file The tensor graph with its buffers and variables numbered, so that graphs of one structure have one key.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/schedule/schedule.h"

namespace tg {

/// The plan for one root.
struct RootPlan {
  enum Kind : uint8_t {
    kStorage,  ///< a view of a buffer (which effects may write): no new storage
    kNew,      ///< computed into a new buffer
    kAlias,    ///< the same value as an earlier kNew root, perhaps in another shape
  } kind = kStorage;
  UOp root;             ///< as asked for, forwards and DETACH resolved
  UOp storage;          ///< kStorage: the view over the BUFFER
  uint32_t node = 0;    ///< position in NormalGraph::nodes: of the value that is stored (kNew), of the root (kStorage)
  int32_t output = -1;  ///< kNew, kAlias: number of the new buffer
  bool share = false;   ///< kNew: other users of the value read the new buffer
};

/// The nodes of the global graph in order, sources before users, forwarded nodes replaced.
struct NormalGraph {
  UOps nodes;
  std::vector<uint32_t> src_begin, src;  ///< sources of nodes[i]: src[src_begin[i] .. src_begin[i + 1])
  std::vector<int32_t> number;           ///< of a BUFFER, a bound variable or a CALL: its number, else -1
  UOps inputs;                           ///< BUFFERs by number, and literals that are read from memory
  std::string literal_device{};          ///< where that memory is
  std::vector<std::pair<std::string, int64_t>> vars;
  std::vector<RootPlan> roots;
  std::vector<KernelRef> kernels;           ///< of CALLs, by number
  std::vector<std::pair<UOp, UOp>> stores;  ///< every AFTER on a buffer that the schedule executes, with its storage
  int outputs = 0;
  Hash128 key;
};
/// Numbers what `roots` depend on; the key is that of `key_of` without open literals.
NormalGraph normalize(std::span<const UOp> roots);
/// Returns the key of a graph, without the values of literals that are `open` (by position; may be empty).
Hash128 key_of(const NormalGraph& g, const std::vector<bool>& open);
/// Returns the graph in the current arena: a SINK of AFTERs, PARAM{slot} for BUFFER number `slot` (new buffers follow
/// the inputs), PARAM{kAlu, slot} for variable number `slot`, CALL(storage...) with a number for a user's kernel.
/// `buffers` receives inputs and outputs.
UOp import_normal(const NormalGraph& g, std::vector<ScheduleBuffer>& buffers);

}  // namespace tg
