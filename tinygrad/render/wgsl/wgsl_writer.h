/// \file The state of writing one kernel in WGSL; private to its renderer.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/render/program_view.h"
#include "tinygrad/render/wgsl/wgsl.h"

namespace tg {

class WgslWriter {
 public:
  WgslWriter(const Program& p, const Target& target);
  std::string write();

 private:
  struct Expr {
    std::string text;
    bool atom = true;        ///< needs no parentheses
    bool free = false;       ///< a name or literal: repeating it costs nothing
    std::vector<int> reads;  ///< registers the text names
  };
  /// State of an instruction's value.
  struct Slot {
    Expr expr;
    int uses = 0;          ///< still to come
    bool escapes = false;  ///< some use is behind the loop it is computed in
    std::string type;
    const char* prefix = "alu";
  };
  /// A parameter of the kernel: one binding, whatever the types that it is looked at with.
  struct Binding {
    std::vector<UOp> views;
    DType dtype = dtypes::uint32;  ///< of the array's elements, words
    bool atomic = false;           ///< threads store parts of a word
    int64_t bytes = 0;
  };

  // text
  void line(const std::string& text);
  std::string fresh(const std::string& prefix);
  static Expr named(std::string name) { return {std::move(name), true, true, {}}; }
  static Expr join(std::string text, bool atom, std::initializer_list<const Expr*> parts);
  static std::string wrap(const Expr& e) { return e.atom ? e.text : "(" + e.text + ")"; }
  static Expr infix(const char* op, const Expr& a, const Expr& b);
  static Expr call(const std::string& function, std::initializer_list<const Expr*> args);
  Expr literal(const ConstValue& v, DType d);
  bool helper(const std::string& name) { return helper_names_.insert(name).second; }
  void helper_text(const std::string& text) { helpers_ += text + "\n"; }
  std::string from_bits();

  // values
  Expr use(UOp u);
  void define(UOp u, Expr e, const std::string& type, const char* prefix = "alu", bool name = false);
  void give_name(Slot& s);
  void settle(int reg);
  void count_uses();
  std::vector<UOp> operands(const Inst& in) const;
  std::optional<int> word_of_variable(UOp u) const;
  Expr variable_word(UOp u) const;

  // arithmetic
  Expr alu(UOp u, const std::vector<Expr>& s);
  Expr boolean(UOp u, const std::vector<Expr>& s);
  Expr integer(UOp u, const std::vector<Expr>& s);
  Expr product(UOp u, const std::vector<Expr>& s);
  Expr floating(UOp u, const std::vector<Expr>& s);
  Expr guarded(UOp u, size_t i, const Expr& e);
  Expr shift(UOp u, const Expr& a, const Expr& b);
  Expr divide(UOp u, const Expr& a, const Expr& b);
  Expr maximum(UOp u, const std::vector<Expr>& s);
  Expr convert(const Expr& v, DType from, DType to);
  Expr bitcast(const Expr& v, DType from, DType to);
  Expr cut(const Expr& v, DType d) const;
  static Expr unequal(const Expr& a, const Expr& b);
  Expr is_nan(const Expr& x);
  std::string integer_from_float(DType d);
  std::string fmod_helper();

  // memory
  void find_bindings();
  void declare_buffers();
  std::string declared_bindings() const;
  Expr element(UOp base, const Expr& index) const;
  Expr word_at(const Binding& b, int64_t slot, const Expr& at) const;
  std::string load_helper(const Binding& b, int64_t slot, DType d);
  std::string store_helper(int64_t slot, DType d);
  void load(UOp u);
  void store(UOp u);

  // instructions
  void instruction(const Inst& in);
  void check_iterations() const;
  void open_loop(UOp range);
  void close_loops(UOp end);
  void grid_index(UOp u);

  const Program& p_;
  const Target& target_;
  ProgramView view_;
  std::vector<Slot> values_;          // by position
  std::vector<Slot*> open_;           // inline expressions with uses to come
  std::vector<std::string> storage_;  // by position: names of buffers
  std::vector<Binding> bindings_;     // by parameter
  std::vector<std::string> variables_;
  std::set<std::string> helper_names_;
  std::vector<std::pair<std::string, int>> counters_;
  std::vector<UOp> loops_;
  std::string shared_, helpers_, escaped_, body_;
  int depth_ = 1;
  bool uses_gid_ = false, uses_lid_ = false;
};

}  // namespace tg
