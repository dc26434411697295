/// \file Options of the scheduler.
#pragma once
#include <cstdint>

#include "tinygrad/base/hash.h"
#include "tinygrad/target/device_traits.h"

namespace tg {

/// Options that decide how a graph is split into kernels; part of the cache key.
struct ScheduleOptions {
  int64_t max_buffers = 32;  ///< buffers of one kernel, its output included
  int64_t max_alu = 1000;    ///< operations of one kernel, index arithmetic aside
  bool split_reduces = true;
  int64_t split_threshold = 32768;
  int64_t split_size = 22;  ///< log2 of the largest intermediate of a split reduction
  bool plan_memory = true;
  bool round_products = false;         ///< of narrow floats before they are summed in a wider type
  bool allow_tf32 = false;             ///< factors of float32 may be rounded to 10 bits of mantissa
  int64_t l2_bytes = kPlannedL2Bytes;  ///< of one core
  /// Bytes that are read from memory again when they are read twice, from which one pass instead of two pays.
  double beyond_cache() const { return 2.0 * static_cast<double>(l2_bytes); }
  /// Bytes of a row that are still in the cache when they are read a second time.
  double row_in_cache() const { return static_cast<double>(l2_bytes) / 4; }
  static ScheduleOptions from_env();
  Hash128 hash() const;
};

}  // namespace tg
