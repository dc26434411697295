/// \file C-like languages: loads and stores in all their forms (registers, vectors, strided, masked, gather and
/// scatter).
#include <algorithm>
#include <cstring>

#include "tinygrad/base/contains.h"
#include "tinygrad/render/cstyle/cstyle_writer.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/memory_ops.h"

namespace tg {
namespace {
/// Returns what helpers for pointers of this kind have in their names: functions take pointers of one kind each.
std::string space_name(const std::string& space) {
  std::string name;
  for (char c : space)
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name.empty() ? "" : name + "_";
}
}  // namespace

bool CStyleWriter::in_register(UOp buffer) const { return plain_[static_cast<size_t>(view_.position(buffer))]; }

/// Returns the name of a parameter or of scratch memory; of a parameter whose narrow elements are read several at once,
/// as a pointer to such words.
std::string CStyleWriter::storage(const MemAccess& a, DType d) {
  const std::string& name = storage_[static_cast<size_t>(view_.position(a.base))];
  if (!a.base.is(Ops::PARAM) || a.base.dtype().itemsize() == d.itemsize()) return name;
  TG_ASSERT(style_.host_entry, "words of narrow elements in a language that reads elements: ", a.base);
  words_ = true;
  return "((const words*)" + name + ")";
}
CStyleWriter::Expr CStyleWriter::address(const MemAccess& a, DType d, const Expr& index) {
  const Expr base{storage(a, d), kPostfix, true, {}};
  return index.text == "0" ? base : infix("+", kAdd, base, index);
}
/// Returns the qualifier of a pointer to what is accessed.
std::string CStyleWriter::space(const MemAccess& a) const {
  if (a.base.is(Ops::PARAM)) return std::string(style_.pointer);
  return std::string(a.space == AddrSpace::kLocal ? style_.scratch : "");
}
/// The vector of adjacent elements at `at`.
std::string CStyleWriter::read_vector(DType d, int lanes, const Expr& at, const std::string& space) {
  if (style_.vectors == VectorSyntax::kOpenCl) return str("vload", lanes, "(0, ", at.text, ")");
  return "*(" + space + "const " + unaligned(d, lanes) + "*)" + wrap(at, kUnary);
}
std::string CStyleWriter::write_vector(DType d, int lanes, const Expr& at, const std::string& space,
                                       const std::string& v) {
  if (style_.vectors == VectorSyntax::kOpenCl) return str("vstore", lanes, "(", v, ", 0, ", at.text, ")");
  return "*(" + space + unaligned(d, lanes) + "*)" + wrap(at, kUnary) + " = " + v;
}
/// Bools are bytes in memory.
CStyleWriter::Expr CStyleWriter::from_memory(const Expr& e, DType d, int lanes) {
  return d.is_bool() ? convert(e, dtypes::uint8, d, lanes) : e;
}
CStyleWriter::Expr CStyleWriter::to_memory(const Expr& e, DType d, int lanes) {
  return d.is_bool() && lanes > 1 ? convert(e, d, dtypes::uint8, lanes) : e;
}

/// The loaded lanes as they are in memory. `gate`: a mask as wide as an element; lanes without it are `alt` and touch
/// no memory. `ahead`: what else to fetch, that many elements further on.
CStyleWriter::Expr CStyleWriter::vector_load(const MemAccess& a, DType d, const Expr* gate, const Expr* alt,
                                             int64_t ahead) {
  const int n = a.lanes;
  const Expr index = !a.affine ? value(a.index, n) : lane0(a.index);
  const Expr at = address(a, d, a.affine ? index : Expr{"0", kPostfix, true, {}});
  const Expr stride{std::to_string(a.stride), a.stride < 0 ? kUnary : kPostfix, true, {}};
  if (!a.affine) {
    const std::string gather = memory_helper("load", d, "gather", a, gate != nullptr);
    return gate ? call(gather, {&at, &index, gate, alt}) : call(gather, {&at, &index});
  }
  if (gate) {
    if (a.stride == 1) return call(memory_helper("load", d, "", a, true), {&at, gate, alt});
    return call(memory_helper("load", d, "strided", a, true), {&at, &stride, gate, alt});
  }
  if (ahead) prefetch_ahead(at, ahead);
  if (a.stride == 1) return join(read_vector(d, n, at, space(a)), kUnary, {&at});
  if (a.stride == 0) return splat(join(storage(a, d) + "[" + index.text + "]", kPostfix, {&index}), d, n, 0);
  if (a.stride == -1) {
    const Expr first = infix("-", kAdd, at, {std::to_string(n - 1), kPostfix, true, {}});
    const Expr v = join(read_vector(d, n, first, space(a)), kUnary, {&at});
    return call(reverse_helper(d, n), {&v});
  }
  if (std::abs(a.stride) <= kShuffledStride) return call(shuffle_helper(d, n, a.stride, space(a)), {&at});
  return call(memory_helper("load", d, "strided", a, false), {&at, &stride});
}

void CStyleWriter::load(UOp u) {
  const DType d = u.dtype(), m = stored(d);
  const int lanes = view_.lanes(u);
  MemAccess a = view_.access(u.src(0));
  if (in_register(a.base)) {
    TG_ASSERT(u.nsrc() == 1, "a gated load of a register: ", u);
    const int at = view_.position(a.base);
    return define(u, false, {storage_[static_cast<size_t>(at)], kPostfix, true, {at}}, register_type(a.base), "val");
  }
  if (a.column) return read_pixel(u, a);
  if (is_copied(u)) return;  // with the store
  if (reads_wide(u)) {
    const Expr word = word_load(a);
    return define(u, false, u.nsrc() > 2 ? choose(value(u.src(2), 1), word, value(u.src(1), 1)) : word, scalar(d),
                  "val", true);
  }
  if (const LaneBlock* run = run_of(u)) {
    if (run->first == u) load_run(*run);
    return read_member(*run, u);
  }
  const bool gated = u.nsrc() > 2, vector_gate = gated && view_.lanes(u.src(2)) > 1;
  if (a.lanes == 1 && vector_gate) {
    a.lanes = lanes;
    a.affine = true;
    a.stride = 0;
  }  // one address, each lane with its own gate
  Expr e;
  if (vector_gate) {
    const Expr gate = value(u.src(2), a.lanes, m.itemsize()), alt = to_memory(value(u.src(1), a.lanes, 1), d, a.lanes);
    e = from_memory(vector_load(a, m, &gate, &alt), d, a.lanes);
  } else {
    if (a.lanes == 1) {
      const Expr index = value(a.index, 1);
      e = from_memory(join(storage(a, m) + "[" + index.text + "]", kPostfix, {&index}), d, 1);
      if (lanes > 1) e = splat(e, d, lanes, 1);
    } else {
      e = from_memory(vector_load(a, m, nullptr, nullptr, kernel_of_host() ? accesses_.hints.prefetch_distance(u) : 0),
                      d, lanes);
    }
    if (gated) e = choose(value(u.src(2), 1), e, value(u.src(1), lanes, 1));
  }
  define(u, false, std::move(e), lanes == 1 ? scalar(d) : d.is_bool() ? mask(1, lanes) : vector(d, lanes), "val", true);
}

/// Fills in the place of a pixel.
std::string CStyleWriter::at_pixel(std::string_view pattern, const MemAccess& a, const std::string& vector) {
  const auto coordinate = [&](UOp u) {
    const Expr e = value(u, 1);
    return u.dtype() == dtypes::int32 ? e.text : cast("int", e).text;
  };
  const std::string y = coordinate(a.index), x = coordinate(a.column);
  const std::string& image = storage_[static_cast<size_t>(view_.position(a.base))];
  return filled_in(pattern, {{'p', image}, {'x', x}, {'y', y}, {'v', vector}});
}

void CStyleWriter::read_pixel(UOp u, const MemAccess& a) {
  std::string text = at_pixel(style_.read_pixel, a, "");
  const std::string type = vector(dtypes::float32, 4);
  if (u.nsrc() > 1) {
    const Expr gate = value(u.src(2), 1), alt = value(u.src(1), 1);
    text = wrap(gate, kOr) + " ? " + text + " : " + cast(type, alt).text;
  }
  const std::string name = storage_[static_cast<size_t>(view_.position(u))] = fresh("pixel");
  line("const " + type + " " + name + " = " + text + ";");
}

void CStyleWriter::write_pixel(UOp u, const MemAccess& a) {
  std::vector<std::string> numbers;
  for (UOp v : stored_values(u)) numbers.push_back(value(v, 1).text);
  const std::string before = u.nsrc() > 5 ? "if (" + value(u.src(5), 1).text + ") " : "";
  line(before + at_pixel(style_.write_pixel, a, vector_of(dtypes::float32, numbers)));
}

/// Fetches what is `ahead` elements behind an address.
void CStyleWriter::prefetch_ahead(const Expr& at, int64_t ahead) {
  const std::string place = wrap(at, kAdd) + " + " + std::to_string(ahead);
  if (style_.host_entry) return line("__builtin_prefetch(" + place + ");");
  const std::string name = "fetch_line";  // OpenCL's own prefetch does nothing on processors
  if (helper(name))
    helper_text("void " + name + "(ulong p)",
                "#if __has_builtin(__builtin_prefetch)\n  __builtin_prefetch((const void*)p);\n#endif\n");
  line(name + "((ulong)(" + place + "));");
}

void CStyleWriter::prefetch(UOp u) {
  const MemAccess a = view_.access(u.src(0));
  line("__builtin_prefetch(" + address(a, u.src(0).dtype(), value(a.index, 1)).text + ");");
}

/// `before`: the text in front of the statement.
void CStyleWriter::vector_store(const MemAccess& a, DType d, const Expr& v, const Expr* gate,
                                const std::string& before) {
  const int n = a.lanes;
  const Expr index = !a.affine ? value(a.index, n) : lane0(a.index);
  const Expr at = address(a, d, a.affine ? index : Expr{"0", kPostfix, true, {}});
  const Expr stride{std::to_string(a.stride), kPostfix, true, {}};
  auto statement = [&](const Expr& e) { line(before + e.text + ";"); };
  if (!a.affine) {
    const std::string scatter = memory_helper("store", d, "scatter", a, gate != nullptr);
    return statement(gate ? call(scatter, {&at, &index, gate, &v}) : call(scatter, {&at, &index, &v}));
  }
  if (gate) {
    if (a.stride == 1) return statement(call(memory_helper("store", d, "", a, true), {&at, gate, &v}));
    return statement(call(memory_helper("store", d, "strided", a, true), {&at, &stride, gate, &v}));
  }
  if (a.stride == 1) return line(before + write_vector(d, n, at, space(a), v.text) + ";");
  if (a.stride == -1) {
    const Expr first = infix("-", kAdd, at, {std::to_string(n - 1), kPostfix, true, {}});
    return line(before + write_vector(d, n, first, space(a), call(reverse_helper(d, n), {&v}).text) + ";");
  }
  statement(call(memory_helper("store", d, "strided", a, false), {&at, &stride, &v}));
}

void CStyleWriter::store(UOp u) {
  const MemAccess a = view_.access(u.src(0));
  if (a.column) return write_pixel(u, a);
  const DType d = u.src(1).dtype(), m = stored(d);
  const int n = a.lanes;
  TG_ASSERT(view_.lanes(u) == n, "a vector stored to one address: ", u);
  const bool gated = u.nsrc() > 2, vector_gate = gated && view_.lanes(u.src(2)) > 1;
  if (const UOp from = strip_after(u.src(1)); is_copied(from)) {
    TG_ASSERT(gated ? from.nsrc() == 3 && from.src(2) == u.src(2) : from.nsrc() == 1,
              "a copy with gates of its own: ", u);
    return copy(a, from, gated ? "if (" + value(u.src(2), 1).text + ") " : "");
  }
  if (const LaneBlock* run = run_of(u)) {
    if (run->last == u) store_run(*run);
    return;
  }
  Expr v = value(u.src(1), n, 1);
  Expr gate = gated ? value(u.src(2), vector_gate ? n : 1, m.itemsize()) : Expr{};
  const std::string& name = storage_[static_cast<size_t>(view_.position(a.base))];
  if (in_register(a.base)) {
    settle(view_.position(a.base));
    if (gated) v = choose(gate, v, {name, kPostfix, true, {}});
    if (products_run_) running_.push_back(str("\"+", d.is_float() ? "f" : "r", "\"(", name, ")"));
    return line(name + " = " + v.text + ";");
  }
  const std::string before = gated && !vector_gate ? "if (" + gate.text + ") " : "";
  if (n == 1) {
    const Expr index = value(a.index, 1);
    return line(before + name + "[" + index.text + "] = " + v.text + ";");
  }
  if (kernel_of_host() && accesses_.hints.is_nontemporal(u)) return nontemporal_store(a, m, to_memory(v, d, n));
  vector_store(a, m, to_memory(v, d, n), vector_gate ? &gate : nullptr, before);
}

/// Stores past the caches, which only whole lines can; views may begin anywhere.
void CStyleWriter::nontemporal_store(const MemAccess& a, DType d, const Expr& v) {
  const std::string name = "store_past_caches_" + tag(d, a.lanes), t = vector(d, a.lanes), where = space(a);
  const std::string plain = write_vector(d, a.lanes, {"p", kPostfix, true, {}}, where, "v");
  if (helper(name))
    helper_text("void " + name + "(" + where + scalar(d) + "* p, int whole, " + t + " v)",
                str("#if __has_builtin(__builtin_nontemporal_store)\n  if (whole) __builtin_nontemporal_store(v, (",
                    where, t, "*)p);\n  else\n#endif\n  ", plain, ";\n"));
  const Expr at = address(a, d, lane0(a.index));
  const std::string base = storage_[static_cast<size_t>(view_.position(a.base))];
  line(name + "(" + at.text + ", !((unsigned long)" + base + " % " + std::to_string(CacheHints::kLine) + "), " +
       v.text + ");");
}

// ---- helpers ----

/// The vector of lanes (of a vector called so) in this order; the names of at most two vectors occur.
std::string CStyleWriter::picked(DType d, int lanes, const std::vector<std::pair<std::string, int>>& from) {
  if (style_.vectors == VectorSyntax::kOpenCl) {
    std::vector<std::string> names;
    for (const auto& [v, i] : from) names.push_back(lane_of(v, i));
    return vector_of(d, names);
  }
  const std::string& a = from[0].first;
  std::string b = a, order;
  for (const auto& [v, i] : from)
    if (v != a) b = v;
  for (const auto& [v, i] : from) order += str(", ", v == a ? i : lanes + i);
  return "__builtin_shufflevector(" + a + ", " + b + order + ")";
}

std::string CStyleWriter::reverse_helper(DType d, int lanes) {
  const std::string name = "reverse_" + tag(d, lanes), t = vector(d, lanes);
  if (!helper(name)) return name;
  std::vector<std::pair<std::string, int>> order;
  for (int i = lanes; i-- > 0;) order.emplace_back("a", i);
  helper_text(t + " " + name + "(" + t + " a)", "  return " + picked(d, lanes, order) + ";\n");
  return name;
}

/// Vectors that cover first to last lane exactly, shuffled together.
std::string CStyleWriter::shuffle_helper(DType d, int lanes, int64_t stride, const std::string& space) {
  const std::string name =
      str("load_", space_name(space), tag(d, lanes), "_every", stride < 0 ? "_back" : "", std::abs(stride));
  const std::string t = vector(d, lanes);
  if (!helper(name)) return name;
  const int64_t n = lanes, s = std::abs(stride), span = (n - 1) * s + 1, low = stride < 0 ? -(n - 1) * s : 0;
  std::vector<int64_t> starts, start_of, offset_of;
  for (int64_t lane = 0; lane < n; lane++) {
    const int64_t element = (stride < 0 ? n - 1 - lane : lane) * s, start = std::min(element / n * n, span - n);
    start_of.push_back(start);
    offset_of.push_back(element - start);
    add_once(starts, start);
  }
  std::string body;
  for (int64_t start : starts) {
    const bool first = start == starts.front();
    const Expr at{str("p + ", low + start), kAdd, false, {}};
    const std::string v = read_vector(d, lanes, at, space);
    std::vector<std::pair<std::string, int>> order;
    for (size_t lane = 0; lane < static_cast<size_t>(n); lane++) {
      if (start_of[lane] == start) order.emplace_back(first ? "r" : "v", static_cast<int>(offset_of[lane]));
      else order.emplace_back("r", first ? 0 : static_cast<int>(lane));
    }
    if (first) body += "  " + t + " r = " + v + ", v;\n";
    else body += "  v = " + v + ";\n";
    body += "  r = " + picked(d, lanes, order) + ";\n";
  }
  helper_text(t + " " + name + "(" + space + "const " + scalar(d) + "* p)", body + "  return r;\n");
  return name;
}

/// Masked loads and stores as AVX-512 has them. Where the language tells processors apart, `p` is a pointer to plain
/// memory; in OpenCL C only the compiler knows the processor, and its memory has one address space.
std::string CStyleWriter::masked_avx512(DType d, int lanes, bool store) {
  const int item = d.itemsize(), bits = item * lanes * 8;
  const int which = item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : 3;
  constexpr const char* kKind[] = {"qi", "hi", "si", "di"};
  const bool opencl = style_.vectors == VectorSyntax::kOpenCl;
  const DType word = mask_type(item);
  const std::string all = vector(word, lanes);
  const std::string builtin = str("__builtin_ia32_", store ? "store" : "load", "dqu", kKind[which], bits, "_mask");
  const Expr value{store ? "v" : "r", kPostfix, true, {}};
  const std::string call =
      str(builtin, "((", store ? "" : "const ", all, "*)", opencl ? "(ulong)" : "", "p, ",
          reinterpreted(value, word, lanes).text, ", __builtin_ia32_cvt", "bwdq"[which], "2mask", bits, "(m))");
  const std::string head = opencl
                               ? str("#if defined(__AVX512", item < 4 ? "BW" : "DQ", "__) && defined(__AVX512VL__)\n")
                               : "#if __has_builtin(" + builtin + ")\n";
  return head + "  " + (store ? call : "return " + reinterpreted({call, kPostfix, false, {}}, d, lanes).text) +
         ";\n#else\n";
}

/// Masked loads and stores as AVX-512 and AVX2 have them; empty where the target has none. The generic text stands
/// behind.
std::string CStyleWriter::masked_words(DType d, int lanes, bool store) {
  const int item = d.itemsize(), bytes = item * lanes;
  if (bytes != 16 && bytes != 32 && bytes != 64) return "";
  if (style_.vectors == VectorSyntax::kOpenCl) return kernel_of_host() ? masked_avx512(d, lanes, store) : "";
  if (target_.has("avx512f") && target_.has(item < 4 ? "avx512bw" : "avx512dq") &&
      (bytes == 64 || target_.has("avx512vl")))
    return masked_avx512(d, lanes, store);
  if (!target_.has("avx2") || item < 4) return "";
  const DType word = mask_type(item);
  const std::string all = vector(word, lanes);
  const int chunk = std::min(bytes, 32) / item;
  const std::string builtin =
      str("__builtin_ia32_mask", store ? "store" : "load", item == 4 ? "d" : "q", bytes == 16 ? "" : "256");
  const std::string w = vector(word, chunk);
  auto call = [&](int from, const std::string& mask, const std::string& value) {
    return str(builtin, "((", store ? "" : "const ", w, "*)", from ? str("(p + ", from, ")") : "p", ", ", mask, value,
               ")");
  };
  std::string body = "#if __has_builtin(" + builtin + ")\n";
  if (store) {
    body += "  " + all + " w = (" + all + ")v;\n";
    if (chunk == lanes) body += "  " + call(0, "m", ", w") + ";\n";
    else body += "  " + call(0, "m.lo", ", w.lo") + ";\n  " + call(chunk, "m.hi", ", w.hi") + ";\n";
  } else if (chunk == lanes) {
    body += "  return m ? (" + vector(d, lanes) + ")" + call(0, "m", "") + " : r;\n";
  } else {
    std::string order;
    for (int i = 0; i < lanes; i++) order += str(", ", i);
    body += "  " + w + " lo = " + call(0, "m.lo", "") + ", hi = " + call(chunk, "m.hi", "") + ";\n";
    body += "  return m ? (" + vector(d, lanes) + ")__builtin_shufflevector(lo, hi" + order + ") : r;\n";
  }
  return body + "#else\n";
}

/// A masked load or store where all lanes are wanted, as mostly.
std::string CStyleWriter::masked_whole(DType d, int lanes, bool store, const std::string& space) {
  const Expr p{"p", kPostfix, true, {}};
  const std::string head = "  if (" + reduce_helper(Ops::AND, mask_type(d.itemsize()), lanes) + "(m)) ";
  if (!store) return head + "return " + read_vector(d, lanes, p, space) + ";\n";
  return head + "{\n    " + write_vector(d, lanes, p, space, "v") + ";\n    return;\n  }\n";
}

/// Lane by lane: what no vector instruction does for all processors. `form`: "" (side by side), "strided", "gather",
/// "scatter".
std::string CStyleWriter::memory_helper(const char* verb, DType d, const char* form, const MemAccess& a, bool masked) {
  const int lanes = a.lanes;
  const DType index = a.index.dtype();
  const bool store = !std::strcmp(verb, "store"), strided = !std::strcmp(form, "strided"), indexed = *form && !strided;
  const std::string where = space(a);
  std::string name = indexed ? form : std::string(verb) + (strided ? "_strided" : "");
  if (masked) name += "_masked";
  name += "_" + space_name(where) + tag(d, lanes);
  if (indexed) name += "_" + tag(index, 1);
  if (!helper(name)) return name;
  const std::string t = vector(d, lanes), e = scalar(d);
  std::string arguments = where + (store ? "" : "const ") + e + "* p";
  if (strided) arguments += ", long stride";
  if (indexed) arguments += ", " + vector(index, lanes) + " at";
  if (masked) arguments += ", " + mask(d.itemsize(), lanes) + " m";
  if (store) arguments += ", " + t + " v";
  else if (masked) arguments += ", " + t + " r";
  // In OpenCL C lanes have names and no numbers.
  const bool loop = style_.vectors == VectorSyntax::kExtended;
  auto one = [&](int i) {
    const std::string number = loop ? "i" : std::to_string(i);
    auto lane = [&](const char* v) { return loop ? str(v, "[i]") : lane_of(v, i); };
    const std::string element = "p[" + (strided ? number + " * stride" : indexed ? lane("at") : number) + "]";
    return (masked ? "if (" + lane("m") + ") " : "") +
           (store ? element + " = " + lane("v") : lane("r") + " = " + element) + ";\n";
  };
  std::string body;
  const bool beside = masked && !strided && !indexed;
  const std::string fast = beside ? masked_words(d, lanes, store) : "";
  if (beside) body = fast + (loop ? "" : masked_whole(d, lanes, store, where));
  if (!store && !masked) body += "  " + t + " r;\n";
  if (loop) body += str("  for (int i = 0; i < ", lanes, "; i++) ", one(0));
  else
    for (int i = 0; i < lanes; i++) body += "  " + one(i);
  if (!store) body += "  return r;\n";
  if (!fast.empty()) body += "#endif\n";
  helper_text((store ? "void" : t) + " " + name + "(" + arguments + ")", body);
  return name;
}

}  // namespace tg
