/// \file C-like languages: names, values, loops, the function as a whole. Arithmetic and memory have files of their
/// own.
#include "tinygrad/render/cstyle/cstyle.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tinygrad/base/contains.h"
#include "tinygrad/render/cstyle/cstyle_writer.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/variables.h"

namespace tg {
namespace {

constexpr size_t kLongest = 96;             ///< characters of an expression that gets no name
constexpr int64_t kScratchLimit = 4 << 20;  ///< bytes of scratch memory on a thread's stack

/// Reserved identifiers, which variables of the user must not have.
constexpr const char* kReserved[] = {
    "auto",    "break",    "case",     "char",   "const",    "continue", "default",  "do",     "double",
    "else",    "enum",     "extern",   "float",  "for",      "goto",     "if",       "inline", "int",
    "long",    "register", "restrict", "return", "short",    "signed",   "sizeof",   "static", "struct",
    "switch",  "typedef",  "typeof",   "union",  "unsigned", "void",     "volatile", "while",  "asm",
    "buffers", "vars",     "begin",    "end",    "linux",    "unix",     "INLINE",   "kernel", "aligned"};

}  // namespace

OpSet CStyleRenderer::ops() const {
  using enum Ops;
  OpSet s = ADD | MUL | SUB | NEG | FDIV | SHL | SHR | CDIV | CMOD | MAX | CMPLT | CMPNE | CMPEQ | XOR | OR | AND |
            WHERE | SQRT | TRUNC;
  if (!style_.host_entry || target().has_fma()) s |= MULACC;
  if (!style_.exp2.empty()) s |= EXP2;
  if (!style_.log2.empty()) s |= LOG2;
  if (!style_.sin.empty()) s |= SIN;
  return s;
}
bool CStyleRenderer::supports(DType d) const {
  const auto id = static_cast<size_t>(d.id());
  return !style_.types[id].empty() && (style_.needs[id].empty() || target().has(style_.needs[id]));
}
std::string CStyleRenderer::render(const Program& p) const {
  ArenaScope scope(*p.arena);
  return CStyleWriter(p, target(), style_).write();
}

int GridRenderer::max_lanes(DType d) const {
  constexpr int kMost = 16;  // of OpenCL's vectors
  return style().vectors == VectorSyntax::kNone ? 1 : std::min(Renderer::max_lanes(d), kMost);
}

// ---- text ----

/// Returns `pattern` with $ and a letter replaced by what the letter stands for.
std::string CStyleWriter::filled_in(std::string_view pattern,
                                    std::initializer_list<std::pair<char, std::string>> names) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); i++) {
    if (pattern[i] != '$') {
      out += pattern[i];
      continue;
    }
    i++;
    for (const auto& [letter, text] : names)
      if (i < pattern.size() && pattern[i] == letter) out += text;
  }
  return out;
}

void CStyleWriter::line(const std::string& text) {
  body_ += std::string(static_cast<size_t>(depth_) * 2, ' ') + text + "\n";
}

std::string CStyleWriter::unique(std::string name) {
  if (names_.insert(name).second) return name;
  for (int i = 1;; i++)
    if (std::string n = name + "_" + std::to_string(i); names_.insert(n).second) return n;
}
std::string CStyleWriter::fresh(const std::string& prefix) {
  auto it = std::find_if(counters_.begin(), counters_.end(), [&](const auto& c) { return c.first == prefix; });
  if (it == counters_.end()) it = counters_.insert(counters_.end(), {prefix, 0});
  return unique(prefix + std::to_string(it->second++));
}

std::string CStyleWriter::wrap(const Expr& e, Prec least) { return e.prec < least ? "(" + e.text + ")" : e.text; }
CStyleWriter::Expr CStyleWriter::join(std::string text, Prec prec, std::initializer_list<const Expr*> parts) {
  Expr e{std::move(text), prec, false, {}};
  for (const Expr* p : parts) e.reads.insert(e.reads.end(), p->reads.begin(), p->reads.end());
  return e;
}
/// Sums and products associate to the left; readers know no more of precedence than that, so everything else gets
/// parentheses.
CStyleWriter::Expr CStyleWriter::infix(const char* op, Prec prec, const Expr& a, const Expr& b) {
  Prec left = prec, right = static_cast<Prec>(prec + 1);
  if (prec == kLess || prec == kEqual) left = right = kAdd;
  else if (prec < kAdd) {
    left = a.prec == prec && prec != kShift ? prec : kUnary;
    right = kUnary;
  }
  return join(wrap(a, left) + " " + op + " " + wrap(b, right), prec, {&a, &b});
}
CStyleWriter::Expr CStyleWriter::call(const std::string& function, std::initializer_list<const Expr*> args) {
  std::string text = function + "(";
  for (const Expr* a : args) text += (a == *args.begin() ? "" : ", ") + a->text;
  return join(text + ")", kPostfix, args);
}
CStyleWriter::Expr CStyleWriter::cast(const std::string& type, const Expr& e) {
  return join("(" + type + ")" + wrap(e, kUnary), kUnary, {&e});
}
CStyleWriter::Expr CStyleWriter::choose(const Expr& cond, const Expr& yes, const Expr& no) const {
  return join(wrap(cond, kOr) + " ? " + wrap(yes, kOr) + " : " + wrap(no, kTernary), kTernary, {&cond, &yes, &no});
}

// ---- types ----

std::string CStyleWriter::scalar(DType d) const {
  std::string_view name = style_.types[static_cast<size_t>(d.id())];
  TG_ASSERT(!name.empty(), "the language has no type ", d);
  return std::string(name);
}
std::string CStyleWriter::tag(DType d, int lanes) {
  std::string s = d.is_bool() ? "bool" : str(d.is_float() ? "f" : d.is_unsigned() ? "u" : "i", d.bitsize());
  return lanes == 1 ? s : str(s, "x", lanes);
}
std::string CStyleWriter::vector(DType d, int lanes) {
  TG_ASSERT(!d.is_bool(), "a mask has a width");
  TG_ASSERT(style_.vectors != VectorSyntax::kNone, "the language has no vectors: ", lanes, " lanes of ", d);
  if (style_.vectors == VectorSyntax::kOpenCl) {
    TG_ASSERT(lanes == 2 || lanes == 4 || lanes == 8 || lanes == 16, "OpenCL has no vectors of ", lanes, " lanes");
    return scalar(d) + std::to_string(lanes);
  }
  vectors_.insert({d.id(), lanes});
  return tag(d, lanes);
}
std::string CStyleWriter::unaligned(DType d, int lanes) {
  vector(d, lanes);
  unaligned_.insert({d.id(), lanes});
  return tag(d, lanes) + "_u";
}
DType CStyleWriter::mask_type(int bytes) {
  return bytes == 1 ? dtypes::int8 : bytes == 2 ? dtypes::int16 : bytes == 4 ? dtypes::int32 : dtypes::int64;
}
int CStyleWriter::mask_bytes(UOp u) const {
  const int b = mask_bytes_[static_cast<size_t>(view_.position(u))];
  TG_ASSERT(b > 0, "not a vector of bools: ", u);
  return b;
}
std::string CStyleWriter::register_type(UOp buffer) {
  const int n = static_cast<int>(storage_size(buffer));
  return buffer.dtype().is_bool() && n > 1 ? mask(1, n) : type(buffer.dtype(), n);
}

// ---- values ----

CStyleWriter::Expr CStyleWriter::literal(const ConstValue& v, DType d) const {
  auto make = [](const std::string& s, bool atom = true) { return Expr{s, s[0] == '-' ? kUnary : kPostfix, atom, {}}; };
  if (d.is_bool()) return make(v.as_double() != 0 ? "1" : "0");
  if (d.is_int()) {
    const int128 i = truncate_int(v.is_int() ? v.i : static_cast<int128>(v.f), d);
    const std::string suffix(style_.long_suffix);
    if (i == int_min(dtypes::int64)) return make("(-9223372036854775807" + suffix + " - 1)");
    if (d == dtypes::int32 && i == int_min(d)) return make("(-2147483647 - 1)");
    const bool wide = d.itemsize() == 8;
    std::string s = d.is_unsigned() ? str(static_cast<uint64_t>(i)) : str(static_cast<int64_t>(i));
    return make(s + (d.is_unsigned() && d.itemsize() >= 4 ? "u" : "") + (wide ? suffix : ""));
  }
  const double f = truncate_float(v.as_double(), d);
  const bool doubled = d == dtypes::float64;
  Expr e;
  if (f != f) e = make(std::string(style_.nan[doubled]));
  else if (std::isinf(f)) e = make((f < 0 ? "-" : "") + std::string(style_.inf[doubled]));
  else {
    char text[40];
    std::to_chars_result r = doubled ? std::to_chars(text, text + sizeof text, f)
                                     : std::to_chars(text, text + sizeof text, static_cast<float>(f));
    std::string s(text, r.ptr);
    if (s.find_first_of(".e") == std::string::npos) s += ".0";
    e = make(s + (doubled ? "" : "f"));
  }
  if (d != dtypes::float16) return e;
  e = cast(scalar(d), e);
  e.atom = true;
  return e;
}

CStyleWriter::Expr CStyleWriter::splat(const Expr& e, DType d, int lanes, int bytes) {
  if (!d.is_bool()) return cast(vector(d, lanes), e);
  const std::string t = mask(bytes, lanes);
  if (e.text == "0") return cast(t, e);
  return join("(" + t + ")-" + wrap(e, kPostfix), kUnary, {&e});
}
CStyleWriter::Expr CStyleWriter::convert_mask(const Expr& m, int from, int to, int lanes) {
  if (from == to) return m;
  return converted(m, mask_type(to), lanes);
}

/// Each lane converted to `d`.
CStyleWriter::Expr CStyleWriter::converted(const Expr& v, DType d, int lanes) {
  const std::string t = vector(d, lanes);
  if (style_.vectors == VectorSyntax::kOpenCl) return call("convert_" + t, {&v});
  return join("__builtin_convertvector(" + v.text + ", " + t + ")", kPostfix, {&v});
}
/// The same bits as a vector of `d`.
CStyleWriter::Expr CStyleWriter::reinterpreted(const Expr& v, DType d, int lanes) {
  const std::string t = vector(d, lanes);
  return style_.vectors == VectorSyntax::kOpenCl ? call("as_" + t, {&v}) : cast(t, v);
}
/// A vector of these lanes.
std::string CStyleWriter::vector_of(DType d, const std::vector<std::string>& lanes) {
  const bool parentheses = style_.vectors == VectorSyntax::kOpenCl;
  std::string list;
  for (const std::string& lane : lanes) list += (list.empty() ? "" : ", ") + lane;
  return "(" + vector(d, static_cast<int>(lanes.size())) + ")" + (parentheses ? "(" + list + ")" : "{" + list + "}");
}
/// Lane `i` of the vector called `v`.
std::string CStyleWriter::lane_of(const std::string& v, int i) const {
  static constexpr char kHex[] = "0123456789abcdef";
  return style_.vectors == VectorSyntax::kOpenCl ? v + ".s" + kHex[i] : str(v, "[", i, "]");
}

CStyleWriter::Expr CStyleWriter::use(Slot& s) {
  TG_ASSERT(!s.expr.text.empty(), "a value that was not written");
  Expr e = s.expr;
  if (--s.uses <= 0) std::erase(open_, &s);
  return e;
}
/// The value in `lanes` lanes; a vector of bools as a mask of `bytes` bytes a lane.
CStyleWriter::Expr CStyleWriter::value(UOp u, int lanes, int bytes) {
  u = strip_after(u);
  const DType d = u.dtype();
  const int n = view_.lanes(u);
  const bool fixed = u.is_const() || (n == 1 && is_lane(u));
  Expr e = fixed ? literal(u.is_const() ? u.const_value() : ConstValue(0), d)
                 : use(values_[static_cast<size_t>(view_.position(u))]);
  if (n == lanes) return d.is_bool() && lanes > 1 ? convert_mask(e, mask_bytes(u), bytes, lanes) : e;
  TG_ASSERT(n == 1, "a vector of ", n, " lanes where ", lanes, " are wanted: ", u);
  return splat(e, d, lanes, bytes);
}
/// Lane 0 of an affine vector, computed in scalars: the address of a vector access.
CStyleWriter::Expr CStyleWriter::lane0(UOp u) {
  u = strip_after(u);
  if (view_.lanes(u) == 1) return value(u, 1);
  if (is_lane(u)) return {"0", kPostfix, true, {}};
  return use(first_[static_cast<size_t>(view_.position(u))]);
}

void CStyleWriter::give_name(Slot& s) {
  std::erase(open_, &s);
  const std::string name = fresh(s.prefix);
  if (s.escapes) escaped_ += "  " + s.type + " " + name + ";\n";
  line((s.escapes ? "" : s.type + " ") + name + " = " + s.expr.text + ";");
  s.expr = {name, kPostfix, true, {}};
}
/// Defines a value: it gets a name of its own when `name`, when it is long or used more than once; else it waits to
/// become part of its user.
void CStyleWriter::define(UOp u, bool first_lane, Expr e, const std::string& type, const char* prefix, bool name) {
  Slot& s = (first_lane ? first_ : values_)[static_cast<size_t>(view_.position(u))];
  s.expr = std::move(e);
  s.type = type;
  s.prefix = prefix;
  if (s.uses <= 0 || (s.expr.atom && s.expr.reads.empty())) return;
  if (name || s.escapes || (!s.expr.atom && (s.uses > 1 || s.expr.text.size() > kLongest))) give_name(s);
  else open_.push_back(&s);
}
/// Names the expressions that read a register before it changes.
void CStyleWriter::settle(int reg) {
  for (Slot* s : std::vector<Slot*>(open_))
    if (contains(s->expr.reads, reg)) give_name(*s);
}

namespace {
/// Returns how many of the first sources an instruction of whole values uses; 0 for elementwise ones.
size_t whole_sources(UOp u) {
  if (u.in(Ops::REDUCE | Ops::CUSTOMI)) return 1;
  return u.is(Ops::WMMA) && u.nsrc() > 3 ? u.nsrc() : 0;
}
}  // namespace

/// Counts the uses of each value and of each lane 0, and whether one is outside of the loop that encloses it.
/// Counts what an access uses: its index, unless that of the run it is part of is used, and its other operands.
template <class Count> void CStyleWriter::count_access(UOp u, const Count& count) {
  const MemAccess a = view_.access(u.src(0));
  if (addressed(u) == u) {
    count(a.index, a.affine);
    if (a.column) count(a.column, false);
  }
  for (size_t i = 1; i < u.nsrc(); i++)
    if (!u.src(i).dtype().is_void()) count(u.src(i), false);
}

void CStyleWriter::count_uses() {
  std::vector<int> loop_of(view_.insts().size()), outer{-1};  // the loop an instruction is in; the loop around a loop
  std::vector<bool> closed{false};
  int now = 0;
  auto count = [&](UOp u, bool first_lane) {
    const size_t at = static_cast<size_t>(view_.position(u));
    Slot& s = (first_lane && view_.lanes(u) > 1 ? first_ : values_)[at];
    s.uses++;
    s.escapes |= closed[static_cast<size_t>(loop_of[at])];
  };
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    if (u.is(Ops::END)) {
      for (UOp r : u.srcs().subspan(1)) {
        if (!r.is(Ops::RANGE) || is_lane(r)) continue;
        closed[static_cast<size_t>(now)] = true;
        now = outer[static_cast<size_t>(now)];
      }
    }
    loop_of[static_cast<size_t>(view_.position(u))] = now;
    const bool in_memory = u.is(Ops::BARRIER) && u.nsrc() && u.src(0).is(Ops::INDEX);
    if (u.in(Ops::LOAD | Ops::STORE | Ops::CUSTOM) || is_matrix_access(u) || in_memory) count_access(u, count);
    else if (u.is(Ops::RANGE)) {
      if (is_lane(u)) continue;
      count(u.src(0), false);
      outer.push_back(now);
      closed.push_back(false);
      now = static_cast<int>(outer.size()) - 1;
    } else if (const size_t whole = whole_sources(u)) {
      for (size_t i = 0; i < whole; i++) count(u.src(i), false);
    } else if (u.in(groups::kElementwise)) {
      for (UOp s : u.srcs()) {
        if (in.need_value) count(s, false);
        if (in.need_lane0 && in.lanes > 1) count(s, true);
      }
    }
  }
}

// ---- the function ----

CStyleWriter::CStyleWriter(const Program& p, const Target& target, const CStyle& style)
    : p_(p),
      target_(target),
      style_(style),
      view_(p),
      accesses_(view_, target, {.run_bytes = kernel_of_host() ? 0 : style.run_bytes}) {
  const size_t n = view_.insts().size();
  values_.resize(n);
  first_.resize(n);
  storage_.resize(n);
  mask_bytes_.resize(n);
  plain_.resize(n);
  written_.resize(n);
  run_names_.resize(n);
  for (const char* w : kReserved) names_.insert(w);
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    const size_t at = static_cast<size_t>(view_.position(u));
    reads_matrices_ |= is_matrix_descriptor(u);
    if (u.is(Ops::BUFFER)) plain_[at] = u.arg<ParamArg>().addrspace == AddrSpace::kReg;
    if (u.in(Ops::LOAD | Ops::STORE)) {
      const MemAccess a = view_.access(u.src(0));
      const size_t base = static_cast<size_t>(view_.position(a.base));
      if (u.is(Ops::STORE)) written_[base] = true;
      // A register is a variable when every access covers all of it.
      if (a.lanes != a.size || (a.lanes > 1 ? !is_lane(a.index) : !a.index.is_const_int(0))) plain_[base] = false;
    }
    if (!u.dtype().is_bool() || in.lanes == 1) continue;
    int bytes = 1;
    if (u.is(Ops::CAST) || (u.in(groups::kComparison) && !u.src(0).dtype().is_bool()))
      bytes = u.src(0).dtype().itemsize();
    else if (u.in(groups::kAlu))
      for (UOp s : u.srcs())
        if (s.dtype().is_bool() && view_.lanes(s) > 1) bytes = std::max(bytes, mask_bytes(s));
    mask_bytes_[at] = bytes;
  }
  count_uses();
}

/// Declares a variable by the name that the user gave it, as far as it is one of the language.
void CStyleWriter::declare_variable(UOp u) {
  const std::string& given = u.arg<ParamArg>().name;
  std::string name = given;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  const bool letters =
      std::all_of(given.begin(), given.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
  name = unique(letters && style_.host_entry && !names_.count(name) ? name : "var_" + name);
  values_[static_cast<size_t>(view_.position(u))].expr = {name, kPostfix, true, {}};
  const std::string declaration = "const " + scalar(u.dtype()) + " " + name;
  if (style_.host_entry) {
    parameters_.push_back({declaration, str("vars[", view_.var_slot(u), "]")});
  } else {
    given_[static_cast<size_t>(view_.var_slot(u))] = name + "_given";
    line(declaration + " = " + name + "_given;");
  }
}

/// Declares variables, whose names are the user's, and then pointers, which come before them in the list.
void CStyleWriter::declare_parameters() {
  std::vector<int> nodes(static_cast<size_t>(p_.nbuffers), 0);
  std::vector<UOp> params, variables;
  for (const Inst& in : view_.insts()) {
    if (!in.u.is(Ops::PARAM)) continue;
    if (!is_variable(in.u)) nodes.at(static_cast<size_t>(in.u.arg<ParamArg>().slot))++;
    (is_variable(in.u) ? variables : params).push_back(in.u);
  }
  auto place = [&](UOp u) {
    return std::pair(is_variable(u) ? int64_t{view_.var_slot(u)} : u.arg<ParamArg>().slot, view_.position(u));
  };
  auto before = [&](UOp a, UOp b) { return place(a) < place(b); };
  std::sort(params.begin(), params.end(), before);
  std::sort(variables.begin(), variables.end(), before);
  given_.resize(p_.vars.size());
  for (UOp u : variables) declare_variable(u);
  if (!style_.host_entry) return declare_grid_parameters(params, nodes);
  std::vector<std::pair<std::string, std::string>> pointers;
  for (UOp u : params) {
    const int64_t slot = u.arg<ParamArg>().slot;
    pointers.push_back({pointer_to(u) + name_parameter(u, nodes), str("buffers[", slot, "]")});
  }
  parameters_.insert(parameters_.begin(), pointers.begin(), pointers.end());
}

/// Returns the type of a pointer to a parameter.
std::string CStyleWriter::pointer_to(UOp param) const {
  const bool written = written_[static_cast<size_t>(view_.position(param))];
  return std::string(style_.pointer) + (written ? "" : "const ") + memory_type(param.dtype()) + "* ";
}
/// Gives a parameter a name, and returns it with the promise that nothing else points there. `nodes`: views by slot;
/// two of one parameter overlap.
std::string CStyleWriter::name_parameter(UOp param, const std::vector<int>& nodes) {
  const int64_t slot = param.arg<ParamArg>().slot;
  std::string& name = storage_[static_cast<size_t>(view_.position(param))];
  name = unique("data" + std::to_string(slot));
  return (nodes[static_cast<size_t>(slot)] == 1 ? std::string(style_.restrict_word) : "") + name;
}

/// Gives an image a name, and returns its declaration.
std::string CStyleWriter::name_image(UOp param) {
  const auto at = static_cast<size_t>(view_.position(param));
  const std::string_view type = style_.image_types[written_[at]];
  TG_ASSERT(!type.empty(), "an image in a language without them: ", param);
  images_ = true;
  return std::string(type) + (storage_[at] = unique(str("image", param.arg<ParamArg>().slot)));
}

/// Declares all buffers of the program, also those this kernel does not look at, their offsets and all variables: the
/// launch passes them in that order.
void CStyleWriter::declare_grid_parameters(const UOps& params, const std::vector<int>& nodes) {
  std::vector<std::string> pointers, offsets;
  const std::string bytes = std::string(style_.pointer) + "char*";
  for (int slot = 0; slot < p_.nbuffers; slot++) {
    const int views = nodes[static_cast<size_t>(slot)];
    const auto image = std::find_if(params.begin(), params.end(),
                                    [&](UOp u) { return u.arg<ParamArg>().slot == slot && is_image(u); });
    const bool direct = image != params.end() || (views == 1 && !style_.buffer_offsets);
    if (image != params.end()) pointers.push_back(name_image(*image));
    const std::string memory = str("memory", slot), offset = str("offset", slot);
    if (!direct) pointers.push_back(bytes + " " + memory);
    if (style_.buffer_offsets) offsets.push_back("const long " + offset);
    for (UOp u : params) {
      if (u.arg<ParamArg>().slot != slot || is_image(u)) continue;
      const std::string type = pointer_to(u), name = name_parameter(u, nodes);
      if (direct) pointers.push_back(type + name);
      else
        line(type + name + " = (" + type.substr(0, type.size() - 1) + ")" +
             (style_.buffer_offsets ? "(" + memory + " + " + offset + ")" : memory) + ";");
    }
  }
  declare_alignment(params);
  for (std::vector<std::string>* list : {&pointers, &offsets})
    for (const std::string& declaration : *list) parameters_.push_back({declaration, ""});
  for (size_t i = 0; i < given_.size(); i++) {
    const std::string name = given_[i].empty() ? str("unused", i) : given_[i];
    parameters_.push_back({filled_in(style_.variable, {{'v', name}}), ""});
  }
  declare_maps();
  if (!style_.grid_parameter.empty()) parameters_.push_back({std::string(style_.grid_parameter), ""});
}

/// Declares one block for all memory of the group, where that is more than declarations may have; false: it is not.
/// Returns text behind a declaration of the memory of a group: instructions that read it take addresses apart.
std::string CStyleWriter::scratch_alignment() const {
  return reads_matrices_ ? str(" __attribute__((aligned(", kMatrixAlignment, ")))") : std::string(style_.aligned);
}

bool CStyleWriter::declare_group_memory() {
  if (style_.host_entry || !style_.static_scratch) return false;
  const auto memory = group_memory(view_);
  if (memory.empty()) return false;
  const auto& [last, begin] = memory.back();
  if (begin + storage_size(last) * last.dtype().itemsize() <= style_.static_scratch) return false;
  line(str("extern ", style_.scratch, memory_type(dtypes::uint8), " group_memory[]", scratch_alignment(), ";"));
  return true;
}

int64_t CStyleWriter::place_in_group(UOp buffer) const {
  for (const auto& [u, at] : group_memory(view_))
    if (u == buffer) return at;
  TG_ASSERT(false, "no memory of a group: ", buffer);
  return 0;
}

/// Declares registers, and scratch memory on the stack or of the thread.
void CStyleWriter::declare_buffers() {
  int64_t on_stack = 0, offset = 0, shared = 0;
  const bool one_block = declare_group_memory();
  const int64_t of_thread = style_.host_entry ? thread_scratch_bytes(view_) : 0;
  if (of_thread) {
    helpers_ += "void* tg_scratch(long bytes) __attribute__((malloc));\n";
    line(str(memory_type(dtypes::uint8), "* scratch = tg_scratch(", of_thread, ");"));
    line("if (!scratch) return;");
  }
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    if (!u.is(Ops::BUFFER)) continue;
    std::string& name = storage_[static_cast<size_t>(view_.position(u))];
    const bool is_register = plain_[static_cast<size_t>(view_.position(u))];
    const std::string t = memory_type(u.dtype());
    if (of_thread && u.arg<ParamArg>().addrspace == AddrSpace::kLocal) {
      name = fresh("buf");
      line(str(t, "* ", name, " = (", t, "*)(scratch + ", offset, ");"));
      offset += scratch_stride(u);
      continue;
    }
    const int64_t n = storage_size(u);
    on_stack += n * u.dtype().itemsize();
    if (u.arg<ParamArg>().addrspace == AddrSpace::kLocal && !style_.host_entry) {
      shared += n * u.dtype().itemsize();
      TG_CHECK(CompileError, shared <= target_.shared_bytes, "[render] kernel ", p_.name, " needs ", shared,
               " bytes of its group's memory, ", target_.device, " has ", target_.shared_bytes);
    }
    TG_ASSERT(on_stack <= kScratchLimit, "scratch memory of ", on_stack, " bytes");
    name = fresh(is_register ? "acc" : "buf");
    if (is_register) line(register_type(u) + " " + name + ";");
    else {
      const bool shared = u.arg<ParamArg>().addrspace == AddrSpace::kLocal;
      if (shared && one_block) {
        line(str(t, "* ", name, " = (", t, "*)(group_memory + ", place_in_group(u), ");"));
        continue;
      }
      line(str(shared ? style_.scratch : "", t, " ", name, "[", n, "]",
               shared ? scratch_alignment() : std::string(style_.aligned), ";"));
    }
  }
}

void CStyleWriter::open_loop(UOp r) {
  const bool whole_thread = is_thread(r) && !style_.host_entry;
  TG_ASSERT(!whole_thread || !style_.thread_index.empty(), "a THREAD range in a language without threads");
  for (Slot* s : std::vector<Slot*>(open_)) give_name(*s);  // not once for each iteration
  const RangeArg& arg = r.arg<RangeArg>();
  const bool thread = is_thread(r);
  std::string name = thread                                                                ? "tidx"
                     : arg.type == AxisType::kReduce || arg.type == AxisType::kGroupReduce ? "ridx"
                                                                                           : "idx";
  for (size_t i = 0; i < arg.id.size(); i++) name += str(i ? "_" : "", arg.id[i]);
  name = unique(name);
  const std::string t = scalar(r.dtype());
  const Expr end = value(r.src(0), 1);
  values_[static_cast<size_t>(view_.position(r))].expr = {name, kPostfix, true, {}};
  loops_.push_back({r, body_.size()});
  if (whole_thread) return line("const " + t + " " + name + " = " + std::string(style_.thread_index) + ";");
  threaded_ |= thread;
  if (!style_.loop.empty()) line(std::string(style_.loop));
  if (const int64_t n = unrolled_iterations(view_, r, style_.unrolled); n > 1)
    line(wide_.empty() ? str("#pragma unroll ", n) : str("#pragma unroll (aligned ? ", n, " : 1)"));
  if (thread) line("for (" + t + " " + name + " = begin; " + name + " < end; " + name + "++) {");
  else line("for (" + t + " " + name + " = 0; " + name + " < " + wrap(end, kShift) + "; " + name + "++) {");
  depth_++;
}

/// True for an index of threads that all threads of a warp have in common, where instructions want what they are given
/// in registers of the warp: a compiler sees it when one thread gives it to all.
bool CStyleWriter::is_same_in_warp(size_t axis) const {
  constexpr int64_t kWarp = 32;
  int64_t below = 1;
  for (size_t i = 0; i < axis; i++) below *= p_.local_size[i] ? static_cast<int64_t>(p_.local_size[i].const_int()) : 1;
  return reads_matrices_ && below % kWarp == 0;
}

void CStyleWriter::grid_index(UOp u) {
  const std::string& arg = u.arg<std::string>();
  const size_t axis = arg.empty() ? 3 : static_cast<size_t>(arg.back() - '0');
  TG_ASSERT(axis < 3 && !style_.group_index[axis].empty(), "an index of a grid in a language without one: ", u);
  const std::string name = unique(arg);
  std::string index((arg[0] == 'g' ? style_.group_index : style_.local_index)[axis]);
  if (arg[0] == 'l' && is_same_in_warp(axis)) index = "__shfl_sync(0xffffffffu, " + index + ", 0)";
  line(scalar(u.dtype()) + " " + name + " = " + index + ";");
  values_[static_cast<size_t>(view_.position(u))].expr = {name, kPostfix, true, {}};
}

void CStyleWriter::close_loops(UOp end) {
  for (size_t i = end.nsrc(); i-- > 1;) {
    if (!end.src(i).is(Ops::RANGE) || is_lane(end.src(i))) continue;
    TG_ASSERT(!loops_.empty() && loops_.back().range == end.src(i), "END of a loop that is not the innermost: ", end);
    for (const std::string& m : loops_.back().moves) line(m);
    loops_.pop_back();
    if (is_thread(end.src(i)) && !style_.host_entry) continue;
    depth_--;
    line("}");
  }
}

/// Names an element of what a matrix instruction computed, or a number of a pixel.
void CStyleWriter::element(UOp u) {
  const std::string& name = storage_[static_cast<size_t>(view_.position(u.src(0)))];
  if (u.src(0).is(Ops::LOAD)) {
    values_[static_cast<size_t>(view_.position(u))].expr = {
        lane_of(name, static_cast<int>(u.int_arg())), kPostfix, true, {}};
    return;
  }
  const bool own = style_.matrices == MatrixSyntax::kAssembly;
  values_[static_cast<size_t>(view_.position(u))].expr = {
      own ? str(name, "_", u.int_arg()) : str(name, "[", u.int_arg(), "]"), kPostfix, true, {}};
}

void CStyleWriter::barrier(UOp u) {
  TG_ASSERT(!style_.barrier.empty(), "a BARRIER in a language without groups");
  if (ends_copies(u)) {
    if (copies_later_) line(std::string(style_.copy_end));
    return;
  }
  if (u.nsrc() && u.src(0).is(Ops::INDEX)) return memory_barrier(u);
  if (is_cluster_barrier(u)) return line(cluster_barrier());
  const int64_t n = copies_under_way(u);
  if (copies_later_ && n < 0) line(std::string(style_.copy_wait));
  if (copies_later_ && n >= 0) line(filled_in(style_.copy_wait_but, {{'n', std::to_string(n)}}));
  if (reads_matrices_) line(std::string(style_.matrix_fence));
  line(std::string(style_.barrier));
}

void CStyleWriter::instruction(const Inst& in) {
  UOp u = in.u;
  switch (u.op()) {
    case Ops::CONST:
    case Ops::STACK:
    case Ops::SINK:
    case Ops::GROUP:
    case Ops::NOOP:
    case Ops::INDEX:
    case Ops::AFTER: return;
    case Ops::PARAM:
    case Ops::BUFFER: return;  // declared
    case Ops::SPECIAL: return grid_index(u);
    case Ops::BARRIER: return is_wait_for_products(u) ? wait_for_products(u) : barrier(u);
    case Ops::RANGE:
      if (!is_lane(u)) return open_loop(u);
      if (in.lanes > 1 && in.need_value) {
        std::vector<std::string> numbers;
        for (int i = 0; i < in.lanes; i++) numbers.push_back(std::to_string(i));
        define(u, false, {vector_of(u.dtype(), numbers), kPostfix, false, {}}, vector(u.dtype(), in.lanes), "lane",
               true);
      }
      return;
    case Ops::END: return close_loops(u);
    case Ops::LOAD: return load(u);
    case Ops::STORE: return store(u);
    case Ops::CUSTOM: return is_box(u) ? copy_box(u) : prefetch(u);
    case Ops::REDUCE: return reduce(in);
    case Ops::CUSTOMI:
      return is_matrix_load(u) ? matrix_load(u) : is_matrix_descriptor(u) ? matrix_descriptor(u) : shuffle(u);
    case Ops::WMMA: return u.nsrc() > 3 ? product(u) : arithmetic(in);
    case Ops::GETTUPLE: return element(u);
    default: TG_ASSERT(u.in(groups::kElementwise), "C does not know ", u); return arithmetic(in);
  }
}

/// Text in front of the name of a kernel of a grid.
std::string CStyleWriter::kernel_head() const {
  int64_t n[3], all = 1;
  for (int i = 0; i < 3; i++) {
    const UOp size = p_.local_size[i];
    TG_ASSERT(!size || size.is_const(), "a group of a size that is not known: ", size);
    n[i] = size ? static_cast<int64_t>(size.const_int()) : 1;
    all *= n[i];
  }
  const int64_t groups = cluster_groups();
  return filled_in(style_.function, {{'x', std::to_string(n[0])},
                                     {'y', std::to_string(n[1])},
                                     {'z', std::to_string(n[2])},
                                     {'n', std::to_string(all)}}) +
         (groups > 1 ? str("__cluster_dims__(", groups, ", 1, 1) ") : "");
}

/// Returns the types that the text names.
std::string CStyleWriter::declared_types() const {
  std::string types;
  for (const auto& [d, lanes] : vectors_)
    types += str("typedef ", scalar(d), " ", tag(d, lanes), " __attribute__((ext_vector_type(", lanes, ")));\n");
  for (const auto& [d, lanes] : unaligned_) {
    const std::string t = tag(d, lanes);
    types += str("typedef ", t, " ", t, "_u __attribute__((aligned(", DType(d).itemsize(), ")));\n");
  }
  if (words_) types += str("typedef ", scalar(dtypes::uint32), " words __attribute__((aligned(1), may_alias));\n");
  return types.empty() ? "" : types + "\n";
}

std::string CStyleWriter::write() {
  declare_parameters();
  declare_buffers();
  declare_matrices();
  declare_first_warp();
  kernel_at_ = body_.size();
  for (const Inst& in : view_.insts()) instruction(in);
  TG_ASSERT(loops_.empty(), "a loop without END: ", loops_.back().range);
  // Other threads see the stored values before they are told that the kernel has ended. Drivers see to that themselves.
  if (style_.host_entry && accesses_.hints.any_nontemporal()) line("__builtin_ia32_sfence();");

  auto add = [](std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; };
  std::string declared, passed;
  for (const auto& [declaration, argument] : parameters_) {
    add(declared, declaration);
    add(passed, argument);
  }
  if (threaded_) {
    add(declared, "const long begin, const long end");
    add(passed, "begin, end");
  }
  const bool halves = std::any_of(view_.insts().begin(), view_.insts().end(),
                                  [](const Inst& in) { return in.u.dtype() == dtypes::float16; });
  const std::string head =
      str(halves ? style_.half_header : "", style_.prologue, images_ ? style_.sampler : "", declared_types(), helpers_);
  if (!style_.host_entry) return str(head, kernel_head(), p_.name, "(", declared, ") {\n", body(), "}\n");
  const std::string name = p_.name + "_body";
  const std::string out = str(head, style_.helper, "void ", name, "(", declared, ") {\n", escaped_, body_, "}\n");
  // Only arguments of a function can be declared distinct, so the kernel has one of its own.
  return out + "\nvoid " + p_.name + "(void* const* buffers, const long* vars, long begin, long end) {\n  " + name +
         "(" + passed + ");\n}\n";
}

}  // namespace tg
