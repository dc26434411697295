/// \file Which values of a tensor graph are stored, and the indices that every value is read at.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "tinygrad/schedule/schedule.h"

namespace tg {

/// One access pattern of a value: at these indices, where `valid`. Values computed in place have as many as there are
/// different reads.
struct Read {
  uint32_t node = 0;  ///< position in Ranged::nodes
  int32_t next = -1;  ///< next read of the same node
  int32_t scope = 0;
  Ops outer_reduce = Ops::NOOP;         ///< the reduction that reads this through nothing but movement ops
  uint32_t src_begin = 0, src_end = 0;  ///< Ranged::sources: the reads of the node's sources
  UOp idx;                              ///< STACK of weakint expressions, one per axis
  UOp valid;                            ///< empty: always
  UOp value;                            ///< set by lower()
};
/// Loops around a value.
struct Scope {
  int32_t kernel = 0;
  int32_t ranges = 0, reduces = 0;
  double volume = 1;
};
/// Why a value is stored, or that it is not.
enum class Storing : uint8_t {
  kNo,            ///< computed wherever it is read
  kAsked,         ///< by CONTIGUOUS, a copy, or a call that needs it in memory
  kLongIndex,     ///< index arithmetic through its views would cost more than memory
  kManyReads,     ///< more access patterns than a kernel should have
  kReduceReread,  ///< a reduction that would be done again: read in several ways, in a loop, or under a mask
  kReduceApart,   ///< a reduction whose reader has one already, or would lose by it
  kCostly         ///< computing it again costs more than memory
};
const char* reason_of(Storing why);

/// How a value would be evaluated if it were computed in place.
struct Recomputation {
  double times = 0;        ///< per element, over all kernels
  bool reuse = false;      ///< many times, or in loops that do not index it
  bool in_reduce = false;  ///< those loops reduce
  bool masked = false;     ///< some read has a condition
};

/// A value or an effect that becomes a kernel (or a copy, or an operation of several processes).
struct Region {
  enum Kind : uint8_t { kValue, kStore, kCopy, kCall } kind = kValue;
  uint32_t node = 0;           ///< the value, the STORE, the COPY, the COLLECTIVE or the CALL
  int32_t body = -1;           ///< read that is stored
  UOps ranges;                 ///< loops of the result
  int32_t buffer = -1;         ///< kValue and kCopy: index into buffers; -1: the destination of a STORE
  std::string device;          ///< where its kernel runs; "": anywhere
  int32_t store = -1;          ///< kCopy straight into the destination of this STORE (position), else -1
  Storing why = Storing::kNo;  ///< kValue: the rule that stores it
  Recomputation instead = {};  ///< what storing it saves
};
struct Ranged {
  UOps nodes;                       ///< of the arena, sources before users
  std::vector<uint32_t> position;   ///< by node id
  std::vector<int32_t> first_read;  ///< by position; -1: none
  std::vector<int32_t> region;      ///< by position: region that stores the value, -1: computed in place
  std::vector<Read> reads;
  std::vector<int32_t> sources;  ///< -1: not needed
  std::vector<Scope> scopes;
  std::vector<Region> regions;   ///< users before their sources
  std::vector<int32_t> gathers;  ///< by number of a gather_placeholder: the read whose value is the index
  int32_t next_range = 0;
};
/// Adds the buffers of the values that are stored.
Ranged rangeify(UOp sink, std::vector<ScheduleBuffer>& buffers);

/// Lists the values that are read, `*` those that are stored.
void print_ranged(std::ostream& os, const Ranged& r);

}  // namespace tg
