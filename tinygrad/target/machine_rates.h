/// \file MachineRates: what instructions, memory and loops cost on one core, for the cost model
/// (codegen/cost/cost_model.h).
#pragma once
#include "tinygrad/target/target.h"

namespace tg {

/// Rates of one core. Cycles for one vector or instruction, unless a line names another unit. Where each comes from:
///
///   [arch]  a property of the processors themselves: widths, latencies, sizes of lines, pages and register files
///   [time]  from measured times of kernels in which this term decides, on one core of a Zen 5: chosen so that the
///           predictions of candidates come in the order of their times (BEAM_DEBUG=2 prints both)
struct MachineRates {
  // The machine.
  int datapath_bytes = 16;             ///< width of a vector unit, bytes [arch]
  double masked_load = 1;              ///< the mask of a load, in addition to the load [time]
  bool hoists_loads = false;           ///< loads move far ahead of their use where few instructions read memory [arch]
  static constexpr double kLine = 64;  ///< bytes of a cache line [arch]
  static constexpr int64_t kPage =
      4096;  ///< bytes of a page; of the addresses that share a set of the first level [arch]

  // Issue of arithmetic, and the latency of dependent sums.
  double issue = 0.5;                  ///< an arithmetic instruction, a load: two in a cycle [arch]
  double latency = 4;                  ///< from an addition or multiply-add to the next one that needs it [arch]
  double full_chains = 8;              ///< independent sums that keep both units busy: latency / issue [arch]
  double combine_chain = 1;            ///< setting up an accumulator and adding it to the others in the end [time]
  double fold_lanes = 2;               ///< a shuffle and an operation, for each halving of the lanes [arch]
  double shared_issue_products = 0.1;  ///< part of the shorter of arithmetic and memory that does not overlap: products
  double shared_issue = 0.25;          ///< of factors leave the loads more room than other kernels do [time]

  // Registers.
  int spare_registers = 2;        ///< that instruction schedulers keep free of more than 16 [time]
  double temporaries = 2;         ///< registers of values between two instructions [time]
  double spill = 3;               ///< a store and a load, for each register too few, each iteration [time]
  double mask_registers = 6;      ///< that hold masks made outside of the innermost loop [arch: 7]
  double masks_in_loop = 3;       ///< registers while the innermost loop makes a mask [time]
  double masks_strided = 2;       ///< registers while masks for strided lanes are made, and for each load of them
  double mask_per_strided = 1.5;  ///< in addition [time]
  double branch_over_sums = 8;    ///< a branch that accumulators live across, when they are spilled [time]

  // Loads and stores, by form.
  double load = 0.5;               ///< a vector from the first level cache, a broadcast element [arch]
  double store = 1;                ///< the same stored [arch]
  double split_window_load = 0.5;  ///< the load of a tap, at no alignment, of a vector that fills 128 bytes: 1 [arch]
  double clamped_row = 0.1;        ///< address arithmetic of a row beyond the end, which is the last one [time]
  int64_t shuffle_reach = 4;       ///< elements from lane to lane up to which neighbouring vectors are shuffled [time]
  double shuffled_load = 1.5;      ///< for each vector of those, load and shuffles [time]
  double interleaved_store = 0.5;  ///< of vectors that fill each other's gaps between lanes, once and for each [time]
  double gather_line = 3;          ///< a lane whose line, often whose page, is its own: loaded,
  double scatter_line = 10;        ///< or stored [time]
  double gather = 2;               ///< a lane closer to the next one: loaded,
  double scatter = 3;              ///< or stored [time]
  double emulated_gather = 1.5;    ///< times that, without an instruction for it [time]
  double masked_gather = 1.6;      ///< a lane of a gather under a mask, at least [time]
  double masked_shuffle = 2;       ///< the branch between plain and masked vector loads [time]
  double tail_in_loop = 0.25;      ///< masks of the last vector of an axis that is not a whole number of them,
  double tail_unrolled = 0.05;     ///< the same where the axis has no loop [time]
  double shuffled_tail = 4;        ///< a branch and the mask split among vectors; the load itself counts twice [time]
  double scalar_gate = 1.2;        ///< a single element under a mask, [time]
  double scalar_gate_each = 4;     ///< and a branch for each further one [time]

  // Blocks of strided vectors, transposed in registers.
  int64_t transposed_rows = 16;    ///< vectors of a block, at most [arch: half of the registers]
  double transposed_load = 0.5;    ///< a row of a block that is whole lines: loaded,
  double transposed_store = 1;     ///< or stored [arch]
  double partial_line_load = 2.5;  ///< in addition, a row of less than a line, by the part that is missing:
  double partial_line_store = 9;   ///< 3 and 10 cycles for a single element, as gather_line and scatter_line [time]
  double shuffle = 0.5;            ///< a shuffle of two registers [arch]
  double crowded_scatter = 4;      ///< times as long where all lanes' lines fall into one set [time]

  // Loops.
  double loop_products = 0.3;    ///< counter and branch of an iteration: sums of products hide more of it
  double loop = 0.6;             ///< than others do [time]
  double short_loop = 27;        ///< iterations (3 x 3 x 3 taps) whose end branch prediction does not foresee [time]
  double mispredict = 15;        ///< a branch that was not foreseen [arch]
  double body_growth = 0.0004;   ///< part by which each further instruction of a body slows all of it [time]
  double max_body = 300;         ///< instructions of a loop body beyond which no tile goes [time]
  double max_after_loop = 1500;  ///< instructions after the loops over terms beyond which no tile goes [time]
  double staged_operand = 8;     ///< instructions of a body that a staged operand takes, in addition [time]

  // Caches.
  double l2_bandwidth = 28;          ///< bytes a cycle from the second level [time]
  double memory_bandwidth = 10;      ///< bytes a cycle from beyond it, both ways [time]
  double l1_usable = 0.75;           ///< part of the first level that one panel can have [time]
  double l1_line = 2;                ///< a line from the second level, and in addition,
  double l1_run = 1;                 ///< a run of lines,
  double l1_far_run = 3;             ///< a run in a page of its own, [time]
  double l1_far_latency = 10;        ///< which takes at least this long [time]
  double run_jump_products = 16;     ///< bytes of a run, at least, between the jumps of a reduction,
  double run_jump = 4;               ///< or of another kernel [time]
  double jump_bytes = 400;           ///< bytes of traffic that a jump to another run costs, as time [time]
  int64_t stream_step = 16;          ///< bytes from element to element that prefetchers follow [time]
  double max_way = 64 << 10;         ///< bytes of one way of the second level, at most: 1 MiB in 16 ways [arch]
  int64_t long_stride_count = 16;    ///< elements of a stride from which on the sets it reaches matter: the ways [arch]
  double row_streams = 15;           ///< rows written at once, in addition to one, that share sets in full [time]
  double row_part = 100;             ///< bytes of one such row in a step, below which sharing sets shows [time]
  double narrow_part = 1024;         ///< bytes of a row in a step below which rows are streams of their own, [time]
  double narrow_rows = 16;           ///< of which this many are followed [arch]
  double byte_rows = 8;              ///< times as long: rows of bytes, less than a line of each in a step [time]
  double lane_rows = 1.5;            ///< the same: rows that are lanes of a sum [time]
  double stream = 0.08;              ///< part by which each further row of several passes slows all of it,
  double stream_products = 0.04;     ///< the same for rows of results of short products [time]
  double free_streams = 4;           ///< of those that cost nothing [time]
  double set_share = 0.75;           ///< part of the sets a stride reaches in which an operand stays [time]
  double block_reread = 8;           ///< times a reduction in blocks reads an operand, at most, [time]
  double block_reread_crowded = 4;   ///< and this much more where strides reach few sets [time]
  double accumulate_scattered = 3;   ///< an element added to memory, lanes apart, once more for a block,
  double accumulate_bandwidth = 12;  ///< and bytes a cycle of whole vectors, read and written [time]

  // Panels and windows: filling scratch memory, cycles for an element where no other unit is named.
  double window_wait = 1.3;           ///< times all of it: loads of a broadcast window miss the first level, [time]
  double lane_window_wait = 1.05;     ///< less where lanes walk it, or several tiles share it [time]
  double short_fill = 3;              ///< times the filling where reductions are short: nothing overlaps with it [time]
  double pack_store = 1;              ///< a vector stored [arch]
  double pack_masked = 3;             ///< a vector under a mask, in addition [time]
  int64_t min_pack_run = 4;           ///< elements along memory that are worth whole vectors [time]
  double pack_transposed = 0.6;       ///< along memory, transposed in registers,
  double pack_transposed_tile = 0.3;  ///< the same for an operand whose tile is a multiple of four [time]
  double pack_masked_element = 3;     ///< one by one: under masks,
  double pack_masked_run = 1.3;       ///< along memory under masks that do not depend on the lanes,
  double pack_element = 2.7;          ///< as they come [time]
  double window_element = 3;          ///< of a window, one by one,
  double window_run = 0.5;            ///< along memory [time]
  double window_copy = 0.2;           ///< a vector's share of an element in long runs, and
  double window_run_start = 5;        ///< cycles to begin a run [time]
  double far_fill = 2.3;              ///< times as long from memory: runs each on a page of its own [time]

  // What panels may take of a cache, and how long their loops have to be.
  double lane_window_share = 0.4;        ///< of the second level: windows together [time]
  double covered_panel_share = 1.0 / 4;  ///< of the second level: panels around windows that serve several tiles [time]
  int64_t max_window_rows = 16;          ///< steps of an axis that such a window holds, where it cannot hold all [time]
  double panel_share = 1.0 / 8;          ///< of the second level: the panels of a loop, [time]
  double repacked_panel_share = 1.0 / 64;  ///< when the other operand is packed again for each group of them [time]
  int64_t panels_at_once = 8;              ///< in a group, at most,
  int64_t repacked_panels_at_once = 32;    ///< when the other operand is packed again for each [time]
  double staged_share = 0.75;   ///< of the second level: everything staged, where a panel holds several rows [time]
  double panel_slack = 1.05;    ///< times the size above that is still taken [time]
  double min_panel_trips = 32;  ///< iterations of a block of a staged reduction, at least [time]
  double min_block_trips = 96;  ///< iterations of a block that reads operands where they lie, at least; for
  double min_near_trips = 256;  ///< blocks that the first level holds, this many [time]
  double block_share = 0.75;    ///< of the second level: operands of a block, [time]
  double crowded_block_share = 0.5;  ///< the same where strides reach few sets [time]
  double reused_part = 0.8;          ///< of the bytes without reuse: operands below that slide over themselves [time]
  double near_block = 2;             ///< times the first level: operands of a block that count as held by it [time]
  double thread_cycles = 60e3;  ///< of a kernel, about 50 us: below it a second thread costs more than it brings [time]

  /// Returns the elements from which on threads share a kernel that does little with each: four in a cycle.
  double thread_points() const { return 4 * thread_cycles; }
};

/// Returns the rates of a target; what differs between processors is set there and nowhere else.
MachineRates machine_rates(const Target& target);

}  // namespace tg
