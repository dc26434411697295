/// \file C-like languages of grids: elements side by side that a thread reads or writes at once.
///
/// Parameters may be views that begin at any element. Where a word needs alignment, the kernel asks once for that of
/// the parameters whose indices are multiples of a word (body()); any other address is asked where it is used.
#include "tinygrad/base/contains.h"
#include "tinygrad/base/math.h"
#include "tinygrad/render/cstyle/cstyle_writer.h"

namespace tg {
namespace {
int64_t length(const LaneBlock& b) { return static_cast<int64_t>(b.members.size()); }
int64_t bytes_of(const LaneBlock& b) { return length(b) * b.access.base.dtype().itemsize(); }
}  // namespace

/// Returns the access whose index is the address of what `u` belongs to.
UOp CStyleWriter::addressed(UOp u) const {
  const LaneBlock* run = u.in(Ops::LOAD | Ops::STORE) ? run_of(u) : nullptr;
  if (!run) return u;
  return u.is(Ops::LOAD) ? run->first : run->members[0];
}

/// Returns the type of adjacent elements: one of the language, or a struct of an array called v.
std::string CStyleWriter::run_type(const LaneBlock& b) {
  const DType d = stored(b.access.base.dtype());
  const auto n = static_cast<int>(length(b));
  if (!has_words()) return vector(d, n);
  const std::string name = "run_" + tag(d, n);
  if (helper(name)) helpers_ += str("struct ", name, " {\n  ", scalar(d), " v[", n, "];\n};\n\n");
  return name;
}

std::string CStyleWriter::run_address(const LaneBlock& b, UOp member) {
  const Expr index = value(view_.access(member.src(0)).index, 1);
  const int64_t ahead = b.members[0] == member ? 0 : b.first_at;
  return storage_[static_cast<size_t>(view_.position(b.access.base))] + " + " + wrap(index, kAdd) +
         (ahead ? str(" - ", ahead) : "");
}

/// Returns the condition under which words may be used at an address.
std::string CStyleWriter::is_aligned(const LaneBlock& b, const std::string& at) const {
  if (!style_.aligned_copies) return "true";
  return b.aligned ? "aligned" : str("(", scalar(dtypes::uint64), ")(", at, ") % ", bytes_of(b), " == 0");
}

/// Returns a function that reads or writes adjacent elements. Where words need no alignment, there are no others.
std::string CStyleWriter::run_helper(const LaneBlock& b, bool store) {
  const std::string t = run_type(b), name = (store ? "store_" : "load_") + t;
  if (!helper(name)) return name;
  const std::string element = scalar(stored(b.access.base.dtype())),
                    word(style_.words[static_cast<size_t>(floor_log2(static_cast<int>(bytes_of(b))) - 2)]),
                    move = filled_in(store ? style_.store_run : style_.load_run, {{'w', word}}),
                    each =
                        str("for (int i = 0; i < ", length(b), "; i++) ", store ? "p[i] = v.v[i];" : "r.v[i] = p[i];");
  const std::string body =
      style_.aligned_copies ? "  if (aligned) { " + move + " }\n  else " + each + "\n" : "  " + move + "\n";
  if (store) helper_text("void " + name + "(" + element + "* p, bool aligned, " + t + " v)", body);
  else
    helper_text(t + " " + name + "(const " + element + "* p, bool aligned)",
                "  " + t + " r;\n" + body + "  return r;\n");
  return name;
}

/// Reads all members where the first of them stands; with their gate, if they have one.
void CStyleWriter::load_run(const LaneBlock& b) {
  const std::string t = run_type(b), at = run_address(b, b.first), name = fresh("run");
  const bool gated = b.first.nsrc() > 2;
  run_names_[static_cast<size_t>(view_.position(b.first))] = name;
  const bool escapes = std::any_of(b.members.begin(), b.members.end(),
                                   [&](UOp m) { return values_[static_cast<size_t>(view_.position(m))].escapes; });
  const std::string read = has_words() ? run_helper(b, false) + "(" + at + ", " + is_aligned(b, at) + ")"
                                       : str("vload", length(b), "(0, ", at, ")");
  if (escapes) escaped_ += "  " + t + " " + name + ";\n";
  else if (gated) line(t + " " + name + ";");
  if (gated) line("if (" + value(b.first.src(2), 1).text + ") " + name + " = " + read + ";");
  else line((escapes ? "" : t + " ") + name + " = " + read + ";");
}

/// Defines a member as its part of what was read.
void CStyleWriter::read_member(const LaneBlock& b, UOp u) {
  const std::string& name = run_names_[static_cast<size_t>(view_.position(b.first))];
  const auto i = static_cast<int>(std::find(b.members.begin(), b.members.end(), u) - b.members.begin());
  const Expr e{has_words() ? str(name, ".v[", i, "]") : lane_of(name, i), kPostfix, true, {}};
  if (u.nsrc() <= 2) return define(u, false, e, scalar(u.dtype()), "val");
  define(u, false, choose(value(u.src(2), 1), e, value(u.src(1), 1)), scalar(u.dtype()), "val", true);
}

/// Writes all members where the last of them stands: at once where the gates of all hold, else one by one.
void CStyleWriter::store_run(const LaneBlock& b) {
  const std::string t = run_type(b), at = run_address(b, b.members[0]), name = fresh("run");
  UOps gates;
  for (UOp m : b.members)
    if (m.nsrc() > 2) add_once(gates, m.src(2));
  std::vector<std::string> elements, gate_of;
  for (UOp m : b.members) {
    const Expr element = value(m.src(1), 1);
    const DType d = stored(m.src(1).dtype());
    elements.push_back(d.itemsize() < 4 ? cast(scalar(d), element).text : element.text);
    if (m.nsrc() > 2) gate_of.push_back(wrap(value(m.src(2), 1), kUnary));
  }
  std::string all, list;
  for (size_t i = 0; i < gate_of.size(); i++)
    if (b.members[i].src(2) != (i ? b.members[i - 1].src(2) : UOp())) all += (all.empty() ? "" : " & ") + gate_of[i];
  for (const std::string& e : elements) list += (list.empty() ? "" : ", ") + e;
  const std::string write = has_words() ? run_helper(b, true) + "(" + at + ", " + is_aligned(b, at) + ", " + name + ");"
                                        : str("vstore", elements.size(), "(", name, ", 0, ", at, ");");
  line("const " + t + " " + name + " = " +
       (has_words() ? "{{" + list + "}}" : vector_of(stored(b.access.base.dtype()), elements)) + ";");
  if (gates.empty()) return line(write);
  if (gates.size() == 1) return line("if (" + gate_of[0] + ") " + write);
  line("if (" + all + ") " + write);
  line("else {");
  depth_++;
  for (size_t i = 0; i < elements.size(); i++)
    line("if (" + gate_of[i] + ") (" + at + ")[" + std::to_string(i) +
         "] = " + (has_words() ? str(name, ".v[", i, "]") : lane_of(name, static_cast<int>(i))) + ";");
  depth_--;
  line("}");
}

}  // namespace tg
