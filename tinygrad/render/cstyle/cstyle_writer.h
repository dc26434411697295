/// \file The state of writing one function in a C-like language; private to those renderers.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/render/access_plan.h"
#include "tinygrad/render/cstyle/cstyle.h"
#include "tinygrad/render/program_view.h"
#include "tinygrad/target/tensor_core.h"

namespace tg {

class CStyleWriter {
 public:
  CStyleWriter(const Program& p, const Target& target, const CStyle& style);
  std::string write();

 private:
  /// How tightly the outermost operator of an expression binds.
  enum Prec { kNone, kTernary, kOr, kXor, kAnd, kEqual, kLess, kShift, kAdd, kMul, kUnary, kPostfix };
  struct Expr {
    std::string text;
    Prec prec = kPostfix;
    bool atom = false;       ///< a name or literal: repeating it costs nothing
    std::vector<int> reads;  ///< registers the text names
  };
  /// State of an instruction's value, or of its lane 0.
  struct Slot {
    Expr expr;
    int uses = 0;          ///< still to come
    bool escapes = false;  ///< some use is behind the loop it is computed in
    std::string type;      ///< for when it gets a name
    const char* prefix = "alu";
  };

  // text
  static std::string filled_in(std::string_view pattern, std::initializer_list<std::pair<char, std::string>> names);
  void line(const std::string& text);
  std::string fresh(const std::string& prefix);
  std::string unique(std::string name);
  static std::string wrap(const Expr& e, Prec least);
  static Expr join(std::string text, Prec prec, std::initializer_list<const Expr*> parts);
  static Expr infix(const char* op, Prec prec, const Expr& a, const Expr& b);
  static Expr call(const std::string& function, std::initializer_list<const Expr*> args);
  static Expr cast(const std::string& type, const Expr& e);
  Expr choose(const Expr& cond, const Expr& yes, const Expr& no) const;

  // types
  std::string scalar(DType d) const;
  std::string vector(DType d, int lanes);
  std::string unaligned(DType d, int lanes);
  std::string type(DType d, int lanes) { return lanes == 1 ? scalar(d) : vector(d, lanes); }
  std::string mask(int bytes, int lanes) { return vector(mask_type(bytes), lanes); }
  std::string memory_type(DType d) const {
    return std::string(d.is_bool() ? style_.byte : std::string_view(scalar(d)));
  }
  static DType mask_type(int bytes);
  static DType stored(DType d) { return d.is_bool() ? dtypes::uint8 : d; }
  static std::string tag(DType d, int lanes);  ///< "f32x8", for names
  int mask_bytes(UOp u) const;                 ///< width of the lanes of a vector of bools
  std::string register_type(UOp buffer);

  // values
  Expr literal(const ConstValue& v, DType d) const;
  Expr splat(const Expr& e, DType d, int lanes, int bytes);
  Expr value(UOp u, int lanes, int bytes = 0);
  Expr converted(const Expr& v, DType d, int lanes);
  Expr reinterpreted(const Expr& v, DType d, int lanes);
  std::string vector_of(DType d, const std::vector<std::string>& lanes);
  std::string lane_of(const std::string& v, int i) const;
  Expr convert_mask(const Expr& m, int from, int to, int lanes);
  Expr lane0(UOp u);
  void define(UOp u, bool first_lane, Expr e, const std::string& type, const char* prefix = "alu", bool name = false);
  void give_name(Slot& s);
  void settle(int reg);
  Expr use(Slot& s);

  // arithmetic
  Expr alu(UOp u, const std::vector<Expr>& s, int lanes);
  Expr integer(Ops op, DType d, const Expr& a, const Expr& b, int lanes, bool wraps) const;
  Expr boolean(UOp u, const std::vector<Expr>& s, int lanes) const;
  Expr shift(UOp u, const Expr& a, const Expr& b, int lanes);
  Expr negate(const Expr& a, DType d, int lanes) const;
  Expr math(const char* what, DType d, int lanes, std::initializer_list<const Expr*> args);
  Expr of_floats(std::string_view function, DType d, const Expr& x, int lanes);
  Expr half_math(const char* what, int lanes, std::initializer_list<const Expr*> args);
  Expr convert(const Expr& v, DType from, DType to, int lanes);
  Expr bitcast(const Expr& v, DType from, DType to, int lanes);
  Expr maximum(UOp u, const std::vector<Expr>& s, int lanes);
  Expr divide(UOp u, const Expr& a, const Expr& b, int lanes);

  // functions the kernel calls, written once each; the result is the name
  bool helper(const std::string& name);
  void helper_text(const std::string& head, const std::string& body);
  std::string max_helper(DType d, int lanes, bool number);
  std::string widening_helper(int lanes);
  bool takes_halves_apart(int lanes) const;
  Expr in_float(UOp u, const std::vector<Expr>& s, int lanes);
  std::string divide_helper(Ops op, DType d, int lanes);
  std::string shift_helper(Ops op, DType d, int lanes);
  std::string math_helper(const char* what, DType d, int lanes, int args);
  std::string remainder_helper(int lanes);
  std::string saturate_helper(DType from, DType to, int lanes);
  std::string bits_helper(DType from, DType to);
  std::string dot_helper(const std::string& instruction, DType d, int lanes);
  std::string reduce_helper(Ops op, DType d, int lanes);
  std::string shuffle_helper(DType d, int lanes, int64_t stride, const std::string& space);
  std::string picked(DType d, int lanes, const std::vector<std::pair<std::string, int>>& from);
  std::string reverse_helper(DType d, int lanes);
  std::string memory_helper(const char* verb, DType d, const char* form, const MemAccess& a, bool masked);
  std::string masked_avx512(DType d, int lanes, bool store);
  std::string masked_whole(DType d, int lanes, bool store, const std::string& space);
  std::string masked_words(DType d, int lanes, bool store);
  std::string combine(Ops op, DType d, const std::string& a, const std::string& b, int lanes);

  /// Whether a thread runs an iteration of the outermost loop, with vectors.
  bool kernel_of_host() const {
    return style_.host_entry || (!style_.thread_index.empty() && !target_.has("workgroups"));
  }

  // instructions
  template <class Count> void count_access(UOp u, const Count& count);
  void count_uses();
  void declare_variable(UOp u);
  void declare_parameters();
  std::string pointer_to(UOp param) const;
  std::string name_parameter(UOp param, const std::vector<int>& nodes);
  std::string name_image(UOp param);
  void declare_grid_parameters(const UOps& params, const std::vector<int>& nodes);
  std::string kernel_head() const;
  std::string declared_types() const;
  bool declare_group_memory();
  int64_t place_in_group(UOp buffer) const;
  void declare_buffers();
  void instruction(const Inst& in);
  void arithmetic(const Inst& in);
  void reduce(const Inst& in);
  void product(UOp u);
  void shuffle(UOp u);
  void matrix_load(UOp u);
  void declare_matrices();
  std::string first_matrix(UOp u) const;
  void matrix_descriptor(UOp u);
  void product_of_memory(UOp u, const TensorCore& core, const std::string& name,
                         const std::vector<std::string>& operands);
  void wait_for_products(UOp u);
  void barrier(UOp u);
  // copies in boxes (cstyle_boxes.cpp)
  int64_t cluster_groups() const;
  std::string cluster_barrier() const;
  void declare_maps();
  void declare_first_warp();
  std::string gate_text(UOp gate);
  std::string address_text(UOp index);
  void memory_barrier(UOp u);
  void begin_barriers(UOp u, const std::string& at);
  void release_room(UOp u, const std::string& at);
  void give_commands(const std::string& gate);
  std::string box_helper(int64_t groups);
  std::string copy_helper(const TensorMap& map, int64_t groups);
  void copy_box(UOp u);
  std::string scratch_alignment() const;
  void product_in_assembly(const TensorCore& core, const std::string& name, const std::vector<std::string>& operands,
                           DType d);
  void product_by_multiply_adds(const TensorCore& core, const std::string& name,
                                const std::vector<std::string>& operands);
  void product_by_function(const TensorCore& core, const std::string& name, const std::vector<std::string>& operands,
                           DType d);
  void product_of_simdgroup(const TensorCore& core, const std::string& name, const std::vector<std::string>& operands);
  bool is_copied(UOp load) const;
  bool reads_wide(UOp load) const;
  void declare_alignment(const UOps& params);
  std::string body() const;
  std::string word_helper(DType element);
  Expr word_load(const MemAccess& a);
  /// The address of a load of a parameter in bytes: what threads of a group share, what a thread adds, without a sign,
  /// a constant, and what an iteration of a loop adds to the one before, where that is asked for.
  struct AddressParts {
    std::string shared, own;
    int64_t constant = 0, step = 0;
    bool short_range = false;  ///< 32 bits without a sign hold the sum
  };
  bool steps_with(UOp index, UOp loop) const;
  AddressParts address_parts(const MemAccess& a, DType wide, UOp loop);
  std::pair<std::string, int64_t> kept_pointer(const MemAccess& a, const AddressParts& parts);
  std::string address_of(const MemAccess& a, const AddressParts& parts) const;
  void copy(const MemAccess& to, UOp load, const std::string& before);
  // adjacent elements that are one access (cstyle_runs.cpp)
  const LaneBlock* run_of(UOp u) const { return accesses_.runs.of(u); }
  bool has_words() const { return !style_.words[0].empty(); }
  UOp addressed(UOp u) const;
  std::string run_type(const LaneBlock& b);
  std::string run_address(const LaneBlock& b, UOp member);
  std::string is_aligned(const LaneBlock& b, const std::string& at) const;
  std::string run_helper(const LaneBlock& b, bool store);
  void load_run(const LaneBlock& b);
  void read_member(const LaneBlock& b, UOp u);
  void store_run(const LaneBlock& b);
  std::string matrix_type(const std::string& element, size_t n);
  void open_loop(UOp range);
  void close_loops(UOp end);
  void element(UOp u);
  bool is_same_in_warp(size_t axis) const;
  void grid_index(UOp u);

  // memory
  void load(UOp u);
  void store(UOp u);
  std::string at_pixel(std::string_view pattern, const MemAccess& a, const std::string& vector);
  void read_pixel(UOp u, const MemAccess& a);
  void write_pixel(UOp u, const MemAccess& a);
  void prefetch(UOp u);
  void prefetch_ahead(const Expr& at, int64_t ahead);
  void nontemporal_store(const MemAccess& a, DType d, const Expr& v);
  bool in_register(UOp buffer) const;
  std::string storage(const MemAccess& a, DType d);
  Expr address(const MemAccess& a, DType d, const Expr& index);
  std::string space(const MemAccess& a) const;
  std::string read_vector(DType d, int lanes, const Expr& at, const std::string& space);
  std::string write_vector(DType d, int lanes, const Expr& at, const std::string& space, const std::string& v);
  Expr vector_load(const MemAccess& a, DType d, const Expr* gate, const Expr* alt, int64_t ahead = 0);
  void vector_store(const MemAccess& a, DType d, const Expr& v, const Expr* gate, const std::string& before);
  Expr from_memory(const Expr& e, DType d, int lanes);
  Expr to_memory(const Expr& e, DType d, int lanes);

  const Program& p_;
  const Target& target_;
  const CStyle& style_;
  ProgramView view_;
  AccessPlan accesses_;
  std::vector<TensorMap> maps_;                     // what is copied in boxes
  std::vector<std::string> commands_, by_threads_;  // statements of one thread, of all where there is no copy engine
  std::vector<Slot> values_, first_;                // by position: the value, its lane 0
  std::vector<Slot*> open_;                         // inline expressions with uses to come
  std::vector<std::string> storage_;                // by position: names of parameters and buffers
  std::vector<int> mask_bytes_;                     // by position, 0: not a vector of bools
  std::vector<bool> plain_;                         // by position: BUFFERs that are one variable
  std::vector<bool> written_;                       // by position: parameters
  std::set<std::pair<DTypeId, int>> vectors_, unaligned_;
  std::set<std::string> names_, helper_names_;
  std::string helpers_, escaped_, body_;
  std::vector<std::pair<std::string, std::string>> parameters_;  // declaration, what the entry passes
  std::vector<std::string> given_;                               // by variable: its parameter
  /// A pointer that moves on with a loop: its name, and where it begins.
  struct KeptPointer {
    std::string address, name;
    int64_t constant, step;
  };
  /// A loop that is being written.
  struct OpenLoop {
    UOp range;
    size_t at;                         ///< where its text begins in the body
    std::vector<std::string> moves{};  ///< statements at its end
    std::vector<KeptPointer> kept{};
  };
  std::vector<OpenLoop> loops_;
  int depth_ = 1;
  UOps wide_;                           // parameters that are read in words or copies
  std::vector<std::string> run_names_;  // by position of the first member: the variable that holds what was loaded
  size_t kernel_at_ = 0;                // where the body begins behind its declarations
  bool threaded_ = false, words_ = false, copies_later_ = false, images_ = false;
  bool reads_matrices_ = false;       // some instruction reads matrices from the memory of the group
  bool products_run_ = false;         // some of them have been started since the last wait
  std::vector<std::string> running_;  // operands of assembly: the registers that they still write
  std::vector<std::pair<std::string, std::string>> matrices_;  // first descriptors of memory, and their names
  std::vector<std::pair<std::string, int>> counters_;
};

}  // namespace tg
