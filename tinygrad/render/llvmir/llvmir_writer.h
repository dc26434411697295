/// \file The state of writing one function as LLVM IR; private to the LLVM renderer.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tinygrad/render/access_plan.h"
#include "tinygrad/render/listing_text.h"
#include "tinygrad/render/program_view.h"

namespace tg {

class LlvmWriter {
 public:
  /// `grid`: a kernel of a grid for NVIDIA's GPUs; its values are scalars.
  LlvmWriter(const Program& p, const Target& target, bool grid = false);
  std::string write();

 private:
  struct Splat {
    int block = -1, lanes = 0;
    std::string name;
  };
  struct Loop {
    UOp range;
    std::string label, first, last, type;
    bool thread;
  };

  // text
  static std::string type(DType d, int lanes = 1);
  static std::string memory_type(DType d, int lanes = 1);
  static std::string suffix(DType d, int lanes);  ///< "v8f32"
  std::string literal(const ConstValue& v, DType d, int lanes = 1);
  static std::string float_literal(double v, DType d);
  void line(const std::string& text) {
    body_ += "  ";
    body_ += text;
    body_ += '\n';
  }
  std::string emit(const std::string& instruction);
  void begin_block(const std::string& label);
  void declare(const std::string& declaration);
  int metadata(const std::string& text);
  void branch(const std::string& condition, const std::string& id, const std::function<void()>& holds,
              const std::function<void()>& fails);
  std::string join(const std::string& t, const std::string& id, const std::string& holds, const std::string& fails);

  // values
  std::string value(UOp u, int lanes);
  std::string lane0(UOp u);
  std::string splat(const std::string& scalar, DType d, int lanes);
  std::string widened_splat(UOp u, int lanes);
  std::string intrinsic(const std::string& name, DType d, int lanes, std::initializer_list<std::string> args);
  std::string select(const std::string& cond, int cond_lanes, const std::string& yes, const std::string& no, DType d,
                     int lanes);
  std::string maximum(const std::string& a, const std::string& b, DType d, int lanes, bool number);
  std::string shift(UOp u, const std::string& a, const std::string& b, int lanes);
  std::string divide(UOp u, const std::string& a, const std::string& b, int lanes);
  std::string convert(const std::string& v, DType from, DType to, int lanes);
  /// Emits the remainder of a division of floats, with the sign of x.
  std::string remainder(const std::string& x, const std::string& y, DType d, int lanes);
  std::string instr_to_float(const std::string& v, int lanes);
  bool takes_halves_apart(int lanes) const;
  std::string unseen(const std::string& v, DType d, int lanes);
  std::string in_float(UOp u, const std::vector<std::string>& s, int lanes);
  std::string bitcast(const std::string& v, DType from, DType to, int lanes);
  std::string dot(UOp u, const std::string& a, const std::string& b, const std::string& sum, int lanes);
  std::string scaled(UOp u, int lanes);
  std::string mask_above(const std::string& n, double least, DType d, int lanes);
  std::string alu(UOp u, const std::vector<std::string>& s, int lanes);

  // instructions
  void entry();
  void declare_alias_scopes();
  std::string declare_buffer(UOp u, std::optional<int64_t> offset);
  std::string read_variable(UOp u);
  std::string read_parameter(UOp u);
  void instruction(const Inst& in);
  /// Write a LOAD and a STORE, where it is part of a run, a block or a copy with the others of that.
  void read(UOp u);
  void write_to(UOp u);

  // grids
  std::string grid_head() const;
  std::string grid_metadata();
  int64_t group_bytes() const;
  std::string group_buffer(UOp u);
  void grid_index(UOp u);
  void barrier(UOp u);
  void write_body();
  void write_grid();

  // matrices and what threads give each other, on grids
  std::pair<std::string, int64_t> group_address(const MemAccess& a, DType d);
  void shuffle_across(UOp u);
  void matrix_load(UOp u);
  void product(UOp u);
  void element(UOp u);

  // adjacent elements that are one access, and copies, on grids
  std::string alignment_test();
  std::string either(const std::string& condition, const std::string& t, const std::function<std::string()>& holds,
                     const std::function<std::string()>& fails);
  void on(const std::string& condition, const std::function<void()>& then);
  std::string is_multiple(const std::string& at, int64_t bytes);
  std::string run_address(const LaneBlock& b, UOp member);
  std::string load_unaligned(const MemAccess& a, DType d, int n, const std::string& at);
  void load_run(const LaneBlock& b);
  void read_member(const LaneBlock& b, UOp u);
  void store_run(const LaneBlock& b);
  void copy(UOp store);

  void arithmetic(const Inst& in);
  std::string lookup(const Inst& in);
  std::string lookup_high(const std::string& words, const std::array<ConstValue, 16>& values);
  std::string constant(const std::string& vector, const std::string& text);
  void reduce(const Inst& in);
  size_t reduces_side_by_side(size_t first) const;
  void reduce_side_by_side(size_t first, size_t count);
  void find_rare();
  void rare_choice(const Inst& in);
  void open_loop(UOp range);
  void close_loop(UOp range);

  // memory
  std::string load(UOp u);
  std::string load_scalar(UOp u, const MemAccess& a, int lanes);
  std::string load_gated(UOp u, const MemAccess& a, bool near);
  void store(UOp u);
  void prefetch(UOp u);
  std::string from_memory(const std::string& v, DType d, int lanes);
  std::string to_memory(const std::string& v, DType d, int lanes);
  std::pair<UOp, int64_t> split_index(UOp index) const;
  static bool is_wide_sum(UOp u);
  void find_used();
  std::string wide(UOp u);
  std::pair<std::string, int64_t> start(const MemAccess& a, DType d);
  std::string address(const MemAccess& a, DType d, int64_t offset = 0);
  std::string addresses(const MemAccess& a, DType d, int64_t offset = 0);
  std::string load_plain(const MemAccess& a, DType d, const std::string& address, int lanes);
  std::string load_strided(const MemAccess& a, DType d, const std::string& first, const std::string& lane_mask = {});
  std::string load_near(const MemAccess& a, DType d);
  std::string load_masked(const MemAccess& a, DType d, const std::string& mask, const std::string& alt,
                          int64_t offset = 0);
  void scatter(const MemAccess& a, DType d, const std::string& v, const std::string& mask, int64_t offset = 0);
  std::string aliasing(const MemAccess& a) const;  ///< metadata of an access
  int alignment(const MemAccess& a, DType d) const;
  void prefetch_ahead(UOp load, DType d, const std::string& address);
  void nontemporal_store(const MemAccess& a, const std::string& text, int bytes);

  // transposed blocks
  void block(UOp u, const LaneBlock& b);
  void load_bytes(const LaneBlock& b);
  void load_members(const LaneBlock& b, const std::string& id);
  void store_members(const LaneBlock& b, const std::string& id);
  std::vector<std::string> load_block(const LaneBlock& b, DType d);
  std::string load_words(const LaneBlock& b);
  std::string load_group(const LaneBlock& b);
  std::string grouped_half(UOp u, int lanes);
  void store_block(const LaneBlock& b, DType d, const std::vector<std::string>& columns);
  void store_interleaved(const LaneBlock& b, DType d, const std::vector<std::string>& columns,
                         const std::vector<std::string>& masks);
  std::string block_address(const LaneBlock& b, DType d);
  std::vector<std::string> exchange(std::vector<std::string> v, const std::string& t, int lanes, int itemsize);
  bool simplifies_shuffles(int bytes) const;
  std::string shuffle(const std::string& t, const std::string& a, const std::string& b,
                      const std::vector<int64_t>& mask);
  std::string all_lanes(const std::string& mask, int lanes);

  const Program& p_;
  const Target& target_;
  const bool grid_;
  ProgramView view_;
  AccessPlan accesses_;
  std::string entry_, body_, metadata_, label_;
  std::string globals_;  // memory of a group
  std::set<std::string> declarations_;
  std::map<std::string, std::string> literals_;
  std::vector<std::string> values_, lane0_, pointers_;
  std::vector<Splat> splats_;
  std::map<std::array<int, 3>, Splat>
      starts_;  // by positions of memory and index, and size: where elements at constant distances are counted from
  std::vector<std::string> wide_;  // by position: scalars, or lane 0, in 64 bits
  std::map<int, Splat> widened_;   // by position: other values in 64 bits, once a block
  std::vector<bool> wide_used_;    // by position: a part of addresses
  std::vector<int> rarely_;        // by position: that of the choice that alone needs it, rarely; -1: none
  std::vector<bool> used_;         // by position: not only a part of addresses that constants were taken out of
  std::map<int, Splat>
      words_;  // by position: an integer widened to an index of a table; by the first of its bytes: a word
  struct GroupOfHalves {
    Splat halves, floats;  ///< all words of a group, and as numbers
  };
  std::map<int, GroupOfHalves> word_groups_;  // by number
  std::vector<Loop> loops_;
  std::vector<int> scope_lists_;     // by slot: metadata id of the list with this slot's own scope; 0: none
  std::vector<int> others_lists_;    // by slot: metadata id of the scopes of all other written slots; 0: none
  UOps aligned_parameters_;          // of grids: whose alignment the kernel asks for
  std::map<int, std::string> runs_;  // by position of the first member: what was loaded
  std::string part_;                 // in the names of loops: which of two bodies they are in
  int64_t group_offset_ = 0;         // bytes of the group's memory that have been given to buffers
  bool aligned_ = false;             // the body that is written is that of aligned parameters
  bool copies_later_ = false, newest_ = false;
  int next_ = 0, next_metadata_ = 3, block_ = 0;
  int nontemporal_ = 0;  // metadata of such stores; 0: none
  bool needs_dummy_ = false;
};

}  // namespace tg
