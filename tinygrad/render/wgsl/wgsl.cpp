/// \file WGSL: names, values, loops, the kernel as a whole. Arithmetic and memory have files of their own.
#include "tinygrad/render/wgsl/wgsl.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/error.h"
#include "tinygrad/render/wgsl/wgsl_names.h"
#include "tinygrad/render/wgsl/wgsl_writer.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/variables.h"

namespace tg {
namespace {
constexpr size_t kLongest = 96;  ///< characters of an expression that gets no name
}

// ---- the header ----

std::string WgslHeader::line() const {
  std::string text = "// " + name + " buffers";
  for (int64_t n : buffer_bytes) text += str(" ", n);
  return text + str(" variables ", variables, "\n");
}

WgslHeader WgslHeader::parse(std::string_view source) {
  std::istringstream in{std::string(source.substr(0, source.find('\n')))};
  WgslHeader h;
  std::string word;
  const bool begins = in >> word && word == "//" && in >> h.name && in >> word && word == "buffers";
  TG_CHECK(FormatError, begins, "[wgsl] got bytes that are no kernel: the first line is not '// NAME buffers ...'");
  while (in >> word && word != "variables") {
    int64_t n = -1;
    const std::from_chars_result r = std::from_chars(word.data(), word.data() + word.size(), n);
    TG_CHECK(FormatError, r.ptr == word.data() + word.size() && n >= 0, "[wgsl] got a kernel with a buffer of '", word,
             "' bytes");
    h.buffer_bytes.push_back(n);
  }
  TG_CHECK(FormatError, in >> h.variables && h.variables >= 0 && h.variables < (1 << 16),
           "[wgsl] got a kernel that does not say how many variables it has");
  return h;
}

// ---- the renderer ----

OpSet WgslRenderer::ops() const {
  using enum Ops;
  return ADD | MUL | SUB | NEG | FDIV | SHL | SHR | CDIV | CMOD | MAX | CMPLT | CMPNE | CMPEQ | XOR | OR | AND | WHERE |
         SQRT | TRUNC;
}
bool WgslRenderer::supports(DType d) const {
  return d.is_bool() || (d.is_int() && d.itemsize() <= 4) || d == dtypes::float32;
}
std::string WgslRenderer::render(const Program& p) const {
  ArenaScope scope(*p.arena);
  return WgslWriter(p, target()).write();
}

std::string wgsl_type(DType d) {
  if (d.is_bool()) return "bool";
  if (d == dtypes::float32) return "f32";
  TG_CHECK(DTypeError, !d.is_int() || d.itemsize() <= 4,
           "[render] got an index or a variable that needs 64 bits, WGSL has integers of 32 bits");
  TG_CHECK(DTypeError, d.is_int(), "[render] got a value of ", d, ", WGSL computes in float32");
  return d.is_unsigned() ? "u32" : "i32";
}
std::string wgsl_tag(DType d) {
  return d.is_bool() ? "bool" : str(d.is_float() ? "f" : d.is_unsigned() ? "u" : "i", d.bitsize());
}

// ---- text ----

void WgslWriter::line(const std::string& text) {
  body_ += std::string(static_cast<size_t>(depth_) * 2, ' ') + text + "\n";
}
std::string WgslWriter::fresh(const std::string& prefix) {
  auto it = std::find_if(counters_.begin(), counters_.end(), [&](const auto& c) { return c.first == prefix; });
  if (it == counters_.end()) it = counters_.insert(counters_.end(), {prefix, 0});
  return prefix + std::to_string(it->second++);
}
WgslWriter::Expr WgslWriter::join(std::string text, bool atom, std::initializer_list<const Expr*> parts) {
  Expr e{std::move(text), atom, false, {}};
  for (const Expr* p : parts) e.reads.insert(e.reads.end(), p->reads.begin(), p->reads.end());
  return e;
}
/// The language has little precedence between operators: everything but names and calls gets parentheses.
WgslWriter::Expr WgslWriter::infix(const char* op, const Expr& a, const Expr& b) {
  return join(wrap(a) + " " + op + " " + wrap(b), false, {&a, &b});
}
WgslWriter::Expr WgslWriter::call(const std::string& function, std::initializer_list<const Expr*> args) {
  std::string text = function + "(";
  for (const Expr* a : args) text += (a == *args.begin() ? "" : ", ") + a->text;
  return join(text + ")", true, args);
}

WgslWriter::Expr WgslWriter::literal(const ConstValue& v, DType d) {
  if (d.is_bool()) return named(v.as_double() != 0 ? "true" : "false");
  if (d.is_int()) {
    const int128 i = truncate_int(v.is_int() ? v.i : static_cast<int128>(v.f), d);
    if (d.is_unsigned()) return named(str(static_cast<uint64_t>(i), "u"));
    if (i == int_min(dtypes::int32)) return named("(-2147483647i - 1i)");
    Expr e = named(str(static_cast<int64_t>(i), "i"));
    e.atom = i >= 0;
    return e;
  }
  wgsl_type(d);
  const double f = truncate_float(v.as_double(), d);
  if (f != f) return named(from_bits() + "(0x7fc00000u)");
  if (std::isinf(f)) return named(from_bits() + (f < 0 ? "(0xff800000u)" : "(0x7f800000u)"));
  char text[40];
  const std::to_chars_result r = std::to_chars(text, text + sizeof text, static_cast<float>(f));
  std::string s(text, r.ptr);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  Expr e = named(s + "f");
  e.atom = s[0] != '-';
  return e;
}

/// Returns the function that makes a float of its bits, which a compiler refuses to do itself for what is no number.
std::string WgslWriter::from_bits() {
  if (helper("from_bits"))
    helper_text("fn from_bits(bits: u32) -> f32 {\n  return bitcast<f32>(bits ^ given.zero);\n}\n");
  return "from_bits";
}

// ---- values ----

WgslWriter::Expr WgslWriter::use(UOp u) {
  u = strip_after(u);
  if (u.is_const()) return literal(u.const_value(), u.dtype());
  if (word_of_variable(u)) return variable_word(u);
  Slot& s = values_[static_cast<size_t>(view_.position(u))];
  TG_ASSERT(!s.expr.text.empty(), "a value that was not written: ", u);
  Expr e = s.expr;
  if (--s.uses <= 0) std::erase(open_, &s);
  return e;
}
void WgslWriter::give_name(Slot& s) {
  std::erase(open_, &s);
  const std::string name = fresh(s.prefix);
  if (s.escapes) escaped_ += "  var " + name + ": " + s.type + ";\n";
  line((s.escapes ? name : "let " + name) + " = " + s.expr.text + ";");
  s.expr = named(name);
}
/// Defines a value: it gets a name of its own when `name`, when it is long or used more than once; else it waits to
/// become part of its user.
void WgslWriter::define(UOp u, Expr e, const std::string& type, const char* prefix, bool name) {
  Slot& s = values_[static_cast<size_t>(view_.position(u))];
  s.expr = std::move(e);
  s.type = type;
  s.prefix = prefix;
  if (s.uses <= 0 || (s.expr.free && s.expr.reads.empty())) return;
  if (name || s.escapes || (!s.expr.free && (s.uses > 1 || s.expr.text.size() > kLongest))) give_name(s);
  else open_.push_back(&s);
}
/// Names the expressions that read a register before it changes.
void WgslWriter::settle(int reg) {
  for (Slot* s : std::vector<Slot*>(open_))
    if (contains(s->expr.reads, reg)) give_name(*s);
}

/// Returns the values that an instruction reads.
std::vector<UOp> WgslWriter::operands(const Inst& in) const {
  UOp u = in.u;
  if (u.in(Ops::LOAD | Ops::STORE)) {
    std::vector<UOp> out{view_.access(u.src(0)).index};
    for (size_t i = 1; i < u.nsrc(); i++) out.push_back(u.src(i));
    return out;
  }
  if (u.is(Ops::RANGE)) return {u.src(0)};
  if (u.in(groups::kElementwise)) return {u.srcs().begin(), u.srcs().end()};
  return {};
}
/// Counts the uses of each value, and whether one is outside of the loop that encloses it.
void WgslWriter::count_uses() {
  std::vector<int> loop_of(view_.insts().size()), outer{-1};  // the loop an instruction is in; the loop around a loop
  std::vector<bool> closed{false};
  int now = 0;
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    if (u.is(Ops::END)) {
      for (UOp r : u.srcs().subspan(1)) {
        if (!r.is(Ops::RANGE)) continue;
        closed[static_cast<size_t>(now)] = true;
        now = outer[static_cast<size_t>(now)];
      }
    }
    loop_of[static_cast<size_t>(view_.position(u))] = now;
    for (UOp x : operands(in)) {
      const size_t at = static_cast<size_t>(view_.position(strip_after(x)));
      values_[at].uses++;
      values_[at].escapes = values_[at].escapes || closed[static_cast<size_t>(loop_of[at])];
    }
    if (u.is(Ops::RANGE)) {
      outer.push_back(now);
      closed.push_back(false);
      now = static_cast<int>(outer.size()) - 1;
    }
  }
}

/// Returns which half of a variable of 64 bits `u` begins with: PARAM and its casts have the low word, shifted by 32
/// they have the high one. Empty for everything else.
std::optional<int> WgslWriter::word_of_variable(UOp u) const {
  if (!u.dtype().is_int() || u.dtype().itemsize() != 8) return {};
  if (is_variable(u)) return 0;
  if (u.in(Ops::CAST | Ops::BITCAST)) return word_of_variable(u.src(0));
  if (u.is(Ops::SHR) && u.src(1).is_const_int(32) && word_of_variable(u.src(0)) == 0) return 1;
  return {};
}
/// Returns a word of a variable of 64 bits.
WgslWriter::Expr WgslWriter::variable_word(UOp u) const {
  const int word = *word_of_variable(u);
  while (!is_variable(u)) u = u.src(0);
  return named("given." + variables_[static_cast<size_t>(view_.var_slot(u))] + (word ? "_high" : ""));
}

// ---- the kernel ----

WgslWriter::WgslWriter(const Program& p, const Target& target) : p_(p), target_(target), view_(p) {
  values_.resize(view_.insts().size());
  storage_.resize(view_.insts().size());
  for (const Inst& in : view_.insts()) TG_ASSERT(in.lanes == 1, "a vector in WGSL: ", in.u);
  count_uses();
}

void WgslWriter::open_loop(UOp r) {
  for (Slot* s : std::vector<Slot*>(open_)) give_name(*s);  // not once for each iteration
  const RangeArg& arg = r.arg<RangeArg>();
  std::string name = arg.type == AxisType::kReduce || arg.type == AxisType::kGroupReduce ? "ridx" : "idx";
  for (size_t i = 0; i < arg.id.size(); i++) name += str(i ? "_" : "", arg.id[i]);
  const Expr end = use(r.src(0));
  const std::string t = wgsl_type(r.dtype());
  values_[static_cast<size_t>(view_.position(r))].expr = named(name);
  loops_.push_back(r);
  line("for (var " + name + ": " + t + " = 0; " + name + " < " + wrap(end) + "; " + name + "++) {");
  depth_++;
}
void WgslWriter::close_loops(UOp end) {
  for (size_t i = end.nsrc(); i-- > 1;) {
    if (!end.src(i).is(Ops::RANGE)) continue;
    TG_ASSERT(!loops_.empty() && loops_.back() == end.src(i), "END of a loop that is not the innermost: ", end);
    loops_.pop_back();
    depth_--;
    line("}");
  }
}

void WgslWriter::grid_index(UOp u) {
  const std::string& arg = u.arg<std::string>();
  TG_ASSERT(!arg.empty() && arg.back() >= '0' && arg.back() <= '2', "an index of a grid of more dimensions: ", u);
  const bool group = arg[0] == 'g';
  (group ? uses_gid_ : uses_lid_) = true;
  line(str("let ", arg, " = ", wgsl_type(u.dtype()), "(", group ? "gid" : "lid", ".", "xyz"[arg.back() - '0'], ");"));
  values_[static_cast<size_t>(view_.position(u))].expr = named(arg);
}

void WgslWriter::instruction(const Inst& in) {
  UOp u = in.u;
  switch (u.op()) {
    case Ops::CONST:
    case Ops::STACK:
    case Ops::SINK:
    case Ops::GROUP:
    case Ops::NOOP:
    case Ops::INDEX:
    case Ops::AFTER:
    case Ops::PARAM:
    case Ops::BUFFER: return;  // nothing to do, or declared
    case Ops::SPECIAL: return grid_index(u);
    case Ops::BARRIER: return line("workgroupBarrier();");
    case Ops::RANGE: return open_loop(u);
    case Ops::END: return close_loops(u);
    case Ops::LOAD: return load(u);
    case Ops::STORE: return store(u);
    default: break;
  }
  TG_ASSERT(u.in(groups::kElementwise), "WGSL does not know ", u);
  if (word_of_variable(u)) return;  // becomes part of its user
  std::vector<Expr> s;
  for (uint32_t i = 0; i < u.nsrc(); i++) s.push_back(guarded(u, i, use(u.src(i))));
  define(u, alu(u, s), wgsl_type(u.dtype()));
}

/// Throws CompileError for a kernel whose loops the driver would stop.
void WgslWriter::check_iterations() const {
  if (!target_.has(kBoundedLoops)) return;
  int128 total = 0;
  std::vector<int128> around{1};  // iterations of the loops that are open, together
  for (const Inst& in : view_.insts()) {
    if (in.u.is(Ops::RANGE)) {
      around.push_back(std::min(around.back() * (bounds_of(in.u).hi + 1), int128{1} << 62));
      total = std::min(total + around.back(), int128{1} << 62);
    } else if (in.u.is(Ops::END)) {
      for (UOp r : in.u.srcs().subspan(1))
        if (r.is(Ops::RANGE)) around.pop_back();
    }
  }
  TG_CHECK(CompileError, total <= kMostIterations, "[render] kernel ", p_.name, " has ", static_cast<int64_t>(total),
           " iterations of loops in a thread, ", target_.cpu, " stops after ", kMostIterations);
}

std::string WgslWriter::write() {
  check_iterations();
  find_bindings();
  declare_buffers();
  for (const Inst& in : view_.insts()) instruction(in);
  TG_ASSERT(loops_.empty(), "a loop without END: ", loops_.back());

  WgslHeader header{p_.name, {}, static_cast<int>(p_.vars.size())};
  for (const Binding& b : bindings_) header.buffer_bytes.push_back(b.bytes);
  std::string given = "struct Given {\n  zero: u32,\n";
  for (size_t i = 0; i < bindings_.size(); i++) given += str("  offset", i, ": i32,\n");
  for (const std::string& v : variables_) given += "  " + v + ": i32,\n  " + v + "_high: i32,\n";
  given += "}\n@group(0) @binding(0) var<uniform> given: Given;\n";

  std::string size, indices;
  for (const UOp& n : p_.local_size) {
    TG_ASSERT(!n || n.is_const(), "a group of a size that is not known: ", n);
    size += str(size.empty() ? "" : ", ", n ? static_cast<int64_t>(n.const_int()) : 1);
  }
  if (uses_gid_) indices = "@builtin(workgroup_id) gid: vec3<u32>";
  if (uses_lid_) indices += str(indices.empty() ? "" : ", ", "@builtin(local_invocation_id) lid: vec3<u32>");
  return str(header.line(), given, declared_bindings(), shared_, "\n", helpers_, "@compute @workgroup_size(", size,
             ")\nfn ", WgslHeader::kEntryPoint, "(", indices, ") {\n", escaped_, body_, "}\n");
}

}  // namespace tg
