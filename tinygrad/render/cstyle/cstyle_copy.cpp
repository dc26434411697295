/// \file C-like languages of grids: words of narrow elements, and copies of 16 bytes into the memory of a group.
///
/// Parameters may be views that begin at any element. Where copies need alignment, a kernel asks for that of all such
/// parameters first, and has statements for both answers.
#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/render/cstyle/cstyle_writer.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/facts.h"

namespace tg {

/// True for a load of a parameter that is not of one of its elements, in a language of grids.
bool CStyleWriter::reads_wide(UOp load) const {
  return !style_.host_entry && !style_.copy[0].empty() && tg::reads_wide(view_, load);
}
/// True for a load of 16 bytes that are stored at once.
bool CStyleWriter::is_copied(UOp load) const { return reads_wide(load) && view_.lanes(load) > 1; }

void CStyleWriter::declare_alignment(const UOps& params) {
  for (const Inst& in : view_.insts())
    if (is_box(in.u)) {
      add_once(wide_, BoxCopy{in.u}.param());
    } else if (reads_wide(in.u)) {
      const UOp base = view_.access(in.u.src(0)).base;
      if (contains(params, base)) add_once(wide_, base);
      copies_later_ |= in.lanes > 1 && target_.has("async_copy");
    } else if (const LaneBlock* run = run_of(in.u); run && run->aligned && style_.aligned_copies && has_words()) {
      add_once(wide_, run->access.base);
    }
}

/// Returns the statements of a kernel of a grid. With parameters whose alignment matters they stand there twice.
std::string CStyleWriter::body() const {
  if (wide_.empty()) return escaped_ + body_;
  const std::string head = escaped_ + body_.substr(0, kernel_at_), rest = body_.substr(kernel_at_);
  if (!style_.aligned_copies) return head + "  const bool aligned = true;\n" + rest;
  std::string bits;
  for (UOp p : wide_)
    bits += str(bits.empty() ? "" : " | ", "(", scalar(dtypes::uint64), ")",
                storage_[static_cast<size_t>(view_.position(p))]);
  return head + "  if ((" + bits + ") % 16 == 0) {\n  const bool aligned = true;\n" + rest +
         "  } else {\n  const bool aligned = false;\n" + rest + "  }\n";
}

namespace {
/// Returns the type that the bits of an element are read as.
DType raw(DType d) { return d.itemsize() == 1 ? dtypes::uint8 : d.itemsize() == 2 ? dtypes::uint16 : d; }

/// True where threads of a group have different values of `u`.
bool differs_in_group(UOp u) {
  const UOps nodes = u.toposort();
  return std::any_of(nodes.begin(), nodes.end(), [](UOp n) {
    return n.in(Ops::LOAD) || (n.is(Ops::SPECIAL) && n.arg<std::string>().starts_with("l"));
  });
}
}  // namespace

/// True where the iterations of a loop differ by a multiple of their number alone: all else is computed in front.
bool CStyleWriter::steps_with(UOp index, UOp loop) const {
  bool steps = false, other = false;
  for_each_summand(index, 1, [&](UOp u, int128) {
    const UOps nodes = u.toposort();
    steps |= u == loop;
    other |= u != loop && !is_lane(u) && std::any_of(nodes.begin(), nodes.end(), [&](UOp n) {
               return !n.is_const() && view_.position(n) >= view_.position(loop);
             });
  });
  return steps && !other;
}

/// The thread's part may stay in a register while loops change what is shared; where it may be negative, all of it is
/// one sum that counts as shared. `loop`: a loop whose number is left out.
CStyleWriter::AddressParts CStyleWriter::address_parts(const MemAccess& a, DType wide, UOp loop) {
  const int bytes = wide.itemsize();
  std::string parts[2];
  int128 low = 0, high[2] = {0, 0}, offset = 0, step = 0;
  for_each_summand(a.index, 1, [&](UOp u, int128 k) {
    if (is_lane(u) || (u.is(Ops::CAST) && is_lane(u.src(0)))) return;
    if (u.is_const()) {
      offset += k * u.const_int();
      return;
    }
    if (u == loop) {
      step += k;
      return;
    }
    const size_t part = differs_in_group(u);
    const Bounds b = bounds_of(u);
    low = std::min({low, b.lo * k, b.hi * k});
    high[part] += std::max(b.lo * k, b.hi * k);
    parts[part] += str(parts[part].empty() ? "" : " + ", wrap(value(u, 1), kUnary),
                       k == 1 ? "" : str(" * ", static_cast<int64_t>(k)));
  });
  constexpr int128 kWord = int128(1) << 32;
  AddressParts out;
  const std::string index = a.lanes > 1 ? lane0(a.index).text : value(a.index, 1).text;
  if (low < 0 || step < 0 || offset < 0 || high[1] * bytes >= kWord) {
    out.shared = str("(", scalar(dtypes::int64), ")(", index, ") * ", bytes);
    return out;
  }
  if (!parts[0].empty()) out.shared = str("(", scalar(dtypes::int64), ")(", parts[0], ") * ", bytes);
  if (!parts[1].empty()) out.own = str("(", scalar(dtypes::uint32), ")(", parts[1], ") * ", bytes, "u");
  out.constant = static_cast<int64_t>(offset) * bytes;
  out.step = static_cast<int64_t>(step) * bytes;
  out.short_range = (high[0] + high[1] + offset) * bytes < kWord;
  return out;
}
/// Returns a pointer to the elements of a parameter, without the constant.
std::string CStyleWriter::address_of(const MemAccess& a, const AddressParts& parts) const {
  const std::string qualifier = std::string(style_.global) + "const ";
  std::string text = "(" + qualifier + "char*)" + storage_[static_cast<size_t>(view_.position(a.base))];
  for (const std::string* part : {&parts.shared, &parts.own})
    if (!part->empty()) text += " + " + *part;
  return "(" + qualifier + scalar(raw(a.base.dtype())) + "*)(" + text + ")";
}

/// Returns a pointer for a copy in a loop, which moves on with each iteration and stays in registers of its own, and
/// the bytes from it to what is copied. Instructions of asynchronous copies have room for a few hundred bytes of
/// constants, so that what is derived from one register are additions of 64 bits for each copy and iteration; copies
/// that are no farther from each other share one, and so do iterations that are written out.
std::pair<std::string, int64_t> CStyleWriter::kept_pointer(const MemAccess& a, const AddressParts& parts) {
  constexpr int64_t kNear = 512;
  const std::string address = address_of(a, parts);
  std::vector<KeptPointer>& kept = loops_.back().kept;
  const auto near = std::find_if(kept.begin(), kept.end(), [&](const KeptPointer& k) {
    return k.address == address && k.step == parts.step && parts.constant >= k.constant &&
           parts.constant < k.constant + kNear;
  });
  if (near != kept.end()) return {near->name, parts.constant - near->constant};
  const std::string name = fresh("from"), indent(static_cast<size_t>(depth_ - 1) * 2, ' '),
                    type = str(style_.global, "const ", scalar(raw(a.base.dtype())), "*");
  const std::string text =
      str(indent, type, " ", name, " = ", address, " + ", parts.constant / a.base.dtype().itemsize(), ";\n", indent,
          filled_in(style_.kept_pointer, {{'p', name}}), "\n");
  body_.insert(loops_.back().at, text);
  loops_.back().at += text.size();
  loops_.back().moves.push_back(str(name, " += ", parts.step / a.base.dtype().itemsize(), ";"));
  kept.push_back({address, name, parts.constant, parts.step});
  return {name, 0};
}

/// Returns a function that reads a word of elements.
std::string CStyleWriter::word_helper(DType element) {
  const std::string name = "load_word_" + tag(raw(element), 1), word = scalar(dtypes::uint32);
  if (!helper(name)) return name;
  const int bytes = element.itemsize();
  std::string parts;
  for (int i = 0; i * bytes < 4; i++) parts += str(i ? " | " : "", "(", word, ")p[", i, "] << ", i * bytes * 8);
  helper_text(
      word + " " + name + "(" + std::string(style_.global) + "const " + scalar(raw(element)) + "* p, bool aligned)",
      "  if (aligned) return *(" + std::string(style_.global) + "const " + word + "*)p;\n  return " + parts + ";\n");
  return name;
}

CStyleWriter::Expr CStyleWriter::word_load(const MemAccess& a) {
  const AddressParts parts = address_parts(a, dtypes::uint32, UOp());
  const Expr at{address_of(a, parts) + (parts.constant ? str(" + ", parts.constant / a.base.dtype().itemsize()) : ""),
                kNone,
                true,
                {}},
      aligned{"aligned", kPostfix, true, {}};
  return call(word_helper(a.base.dtype()), {&at, &aligned});
}

/// Writes a copy of what `load` reads. `before`: text in front of the statement.
void CStyleWriter::copy(const MemAccess& to, UOp load, const std::string& before) {
  const MemAccess from = view_.access(load.src(0));
  const DType element = from.base.dtype(), word = load.dtype();
  TG_ASSERT(from.affine && from.stride == 1 && to.affine && to.stride == 1 && from.lanes * word.itemsize() == 16,
            "a copy of something else than 16 bytes: ", load);
  const bool kept =
      copies_later_ && !style_.kept_pointer.empty() && !loops_.empty() && steps_with(from.index, loops_.back().range);
  const AddressParts parts = address_parts(from, word, kept ? loops_.back().range : UOp());
  const std::string w = scalar(word), target = address(to, word, lane0(to.index)).text;
  if (!style_.buffer_copy.empty() && target_.has("buffers") && parts.short_range) {
    const std::string name = "copy_buffer";
    if (helper(name))
      helper_text("void " + name + "(void* to, const void* from, unsigned own, unsigned shared)",
                  "  " + filled_in(style_.buffer_copy, {{'p', "from"}, {'t', "own"}, {'s', "shared"}}) + "\n");
    return line(str(before, name, "(", target, ", ", storage_[static_cast<size_t>(view_.position(from.base))], ", ",
                    parts.own.empty() ? "0" : parts.own, ", ", parts.shared.empty() ? "0" : parts.shared, " + ",
                    parts.constant, ");"));
  }
  const bool narrow = element.itemsize() != word.itemsize();
  const std::string name = "copy_" + tag(raw(element), 1) + (narrow ? "_words" : "");
  const std::string one = narrow ? word_helper(element) : "";
  if (helper(name)) {
    const std::string per_word = std::to_string(word.itemsize() / element.itemsize());
    helpers_ += "template <long long offset> ";
    helper_text("void " + name + "(" + w + "* to, " + std::string(style_.global) + "const " + scalar(raw(element)) +
                    "* from, bool aligned)",
                "  if (aligned) {\n    " + std::string(style_.copy[copies_later_ ? 1 : 0]) +
                    "\n    return;\n  }\n  from += offset / sizeof *from;\n  for (int i = 0; i < " +
                    std::to_string(from.lanes) + "; i++) to[i] = " +
                    (narrow ? one + "(from + i * " + per_word + ", false)" : std::string("from[i]")) + ";\n");
  }
  auto [pointer, offset] =
      kept && parts.step ? kept_pointer(from, parts) : std::pair(address_of(from, parts), parts.constant);
  line(str(before, name, "<", offset, ">(", target, ", ", pointer, ", aligned);"));
}

}  // namespace tg
