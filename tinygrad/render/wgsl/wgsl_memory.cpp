/// \file WGSL: bindings, registers, a group's memory, loads and stores, and narrow elements as parts of words.
#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/render/wgsl/wgsl_names.h"
#include "tinygrad/render/wgsl/wgsl_writer.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/variables.h"

namespace tg {
namespace {
/// Returns the bytes that an element has in a buffer.
int bytes_of(DType d) { return d.is_bool() ? 1 : d.itemsize(); }
bool is_narrow(DType d) { return bytes_of(d) < 4; }
/// Returns whether a register is one variable; else an array.
bool holds_one(UOp buffer) { return storage_size(buffer) == 1; }
std::string data_name(int64_t slot) { return str("data", slot); }
}  // namespace

/// Collects the parameters: buffers by their slot, variables by the order they are passed in.
void WgslWriter::find_bindings() {
  bindings_.resize(static_cast<size_t>(p_.nbuffers));
  variables_.resize(p_.vars.size());
  for (size_t i = 0; i < variables_.size(); i++) variables_[i] = str("var", i);
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    if (u.is(Ops::STORE)) {
      const UOp base = view_.access(u.src(0)).base;
      if (base.is(Ops::PARAM) && is_narrow(base.dtype()))
        bindings_.at(static_cast<size_t>(base.arg<ParamArg>().slot)).atomic = true;
    }
    if (!u.is(Ops::PARAM)) continue;
    if (is_variable(u)) {
      std::string& name = variables_[static_cast<size_t>(view_.var_slot(u))];
      for (char c : "_" + u.arg<ParamArg>().name)
        if (c) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      values_[static_cast<size_t>(view_.position(u))].expr = named("given." + name);
      continue;
    }
    Binding& b = bindings_.at(static_cast<size_t>(u.arg<ParamArg>().slot));
    wgsl_type(u.dtype());
    b.dtype = b.views.empty() || b.dtype == u.dtype() ? u.dtype() : dtypes::uint32;
    b.views.push_back(u);
    b.bytes = std::max(b.bytes, storage_size(u) * bytes_of(u.dtype()));
  }
  for (Binding& b : bindings_)
    if (std::any_of(b.views.begin(), b.views.end(), [](UOp v) { return is_narrow(v.dtype()); }))
      b.dtype = dtypes::uint32;
}

std::string WgslWriter::declared_bindings() const {
  std::string text;
  for (size_t slot = 0; slot < bindings_.size(); slot++) {
    const Binding& b = bindings_[slot];
    if (b.views.empty()) continue;
    const std::string t = b.atomic ? "atomic<u32>" : wgsl_type(b.dtype);
    text += str("@group(0) @binding(", WgslHeader::kFirstBuffer + static_cast<int>(slot), ") var<storage, read_write> ",
                data_name(static_cast<int64_t>(slot)), ": array<", t, ">;\n");
  }
  return text;
}

/// Declares where parameters begin, registers, and the memory of the group.
void WgslWriter::declare_buffers() {
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    if (!u.is(Ops::PARAM) || is_variable(u)) continue;
    const int64_t slot = u.arg<ParamArg>().slot;
    const int width = bytes_of(u.dtype());
    std::string& name = storage_[static_cast<size_t>(view_.position(u))];
    name = bindings_[static_cast<size_t>(slot)].views.size() == 1 ? str("begin", slot) : fresh(str("begin", slot, "_"));
    line(str("let ", name, " = given.offset", slot, width == 1 ? "" : width == 2 ? " / 2" : " / 4", ";"));
  }
  int64_t bytes = 0;
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    std::string& name = storage_[static_cast<size_t>(view_.position(u))];
    if (!u.is(Ops::BUFFER)) continue;
    const std::string t = wgsl_type(u.dtype());
    if (u.arg<ParamArg>().addrspace == AddrSpace::kReg) {
      name = fresh("acc");
      line("var " + name + ": " + (holds_one(u) ? t : str("array<", t, ", ", storage_size(u), ">")) + ";");
      continue;
    }
    name = fresh("buf");
    bytes += storage_size(u) * 4;
    TG_CHECK(CompileError, bytes <= target_.shared_bytes, "[render] kernel ", p_.name, " needs ", bytes,
             " bytes of its group's memory, ", target_.device, " has ", target_.shared_bytes);
    shared_ += str("var<workgroup> ", name, ": array<", t, ", ", storage_size(u), ">;\n");
  }
}

/// Returns the number of an element of a parameter, counted from where its buffer is bound.
WgslWriter::Expr WgslWriter::element(UOp base, const Expr& index) const {
  const Expr begin = named(storage_[static_cast<size_t>(view_.position(base))]);
  return index.text == "0i" ? begin : infix("+", begin, index);
}
/// Returns a word of a buffer.
WgslWriter::Expr WgslWriter::word_at(const Binding& b, int64_t slot, const Expr& at) const {
  const std::string place = data_name(slot) + "[" + at.text + "]";
  return join(b.atomic ? "atomicLoad(&" + place + ")" : place, true, {&at});
}

/// A function that returns a narrow element of a buffer.
std::string WgslWriter::load_helper(const Binding& b, int64_t slot, DType d) {
  const std::string name = str("load", slot, "_", wgsl_tag(d));
  if (!helper(name)) return name;
  const int bits = bytes_of(d) * 8;
  const std::string word = word_at(b, slot, named(bits == 8 ? "u32(i) >> 2u" : "u32(i) >> 1u")).text;
  const std::string place = bits == 8 ? "(u32(i) & 3u) * 8u" : "(u32(i) & 1u) * 16u";
  const bool is_signed = d.is_int() && !d.is_unsigned();
  const std::string part =
      str("extractBits(", is_signed ? "bitcast<i32>(" + word + ")" : word, ", ", place, ", ", bits, "u)");
  helper_text("fn " + name + "(i: i32) -> " + wgsl_type(d) + " {\n  return " + part + (d.is_bool() ? " != 0u" : "") +
              ";\n}\n");
  return name;
}
/// A function that changes a narrow element of a buffer and nothing else of its word, which other threads may change
/// at the same time.
std::string WgslWriter::store_helper(int64_t slot, DType d) {
  const std::string name = str("store", slot, "_", wgsl_tag(d));
  if (!helper(name)) return name;
  const bool bytes = bytes_of(d) == 1;
  helper_text("fn " + name + "(i: i32, v: " + wgsl_type(d) + ") {\n  let word = u32(i) >> " + (bytes ? "2u" : "1u") +
              ";\n  let place = " + (bytes ? "(u32(i) & 3u) * 8u" : "(u32(i) & 1u) * 16u") +
              ";\n  let old = atomicLoad(&" + data_name(slot) + "[word]) >> place;\n  atomicXor(&" + data_name(slot) +
              "[word], ((old ^ u32(v)) & " + (bytes ? "0xffu" : "0xffffu") + ") << place);\n}\n");
  return name;
}

void WgslWriter::load(UOp u) {
  const DType d = u.dtype();
  const MemAccess a = view_.access(u.src(0));
  const std::string& name = storage_[static_cast<size_t>(view_.position(a.base))];
  const std::string t = wgsl_type(d);
  const Expr index = use(a.index);
  if (a.space == AddrSpace::kReg && holds_one(a.base)) {
    TG_ASSERT(u.nsrc() == 1, "a gated load of a register: ", u);
    return define(u, {name, true, true, {view_.position(a.base)}}, t, "val");
  }
  Expr e;
  if (!a.base.is(Ops::PARAM)) {
    e = join(name + "[" + index.text + "]", true, {&index});
  } else {
    const int64_t slot = a.base.arg<ParamArg>().slot;
    const Binding& b = bindings_[static_cast<size_t>(slot)];
    const Expr at = element(a.base, index);
    if (is_narrow(d)) {
      e = call(load_helper(b, slot, d), {&at});
    } else {
      e = word_at(b, slot, at);
      const DType held = b.atomic ? dtypes::uint32 : b.dtype;
      if (held != d) e = call("bitcast<" + t + ">", {&e});
    }
  }
  if (u.nsrc() > 2) {  // what is read outside of a buffer is some value, and not taken
    const Expr other = use(u.src(1)), gate = use(u.src(2));
    e = call("select", {&other, &e, &gate});
  }
  define(u, std::move(e), t, "val", true);
}

void WgslWriter::store(UOp u) {
  const MemAccess a = view_.access(u.src(0));
  const DType d = u.src(1).dtype();
  const std::string& name = storage_[static_cast<size_t>(view_.position(a.base))];
  const Expr index = use(a.index);
  Expr v = use(u.src(1));
  const bool gated = u.nsrc() > 2;
  const Expr gate = gated ? use(u.src(2)) : Expr();
  if (a.space == AddrSpace::kReg && holds_one(a.base)) {
    settle(view_.position(a.base));
    if (gated) v = join("select(" + name + ", " + v.text + ", " + gate.text + ")", true, {&v, &gate});
    return line(name + " = " + v.text + ";");
  }
  std::string statement = name + "[" + index.text + "] = " + v.text;
  if (a.base.is(Ops::PARAM)) {
    const int64_t slot = a.base.arg<ParamArg>().slot;
    const Binding& b = bindings_[static_cast<size_t>(slot)];
    const std::string at = element(a.base, index).text;
    const DType held = b.atomic ? dtypes::uint32 : b.dtype;
    const std::string bits = held == d ? v.text : "bitcast<" + wgsl_type(held) + ">(" + v.text + ")";
    if (is_narrow(d)) statement = store_helper(slot, d) + "(" + at + ", " + v.text + ")";
    else if (b.atomic) statement = "atomicStore(&" + data_name(slot) + "[" + at + "], " + bits + ")";
    else statement = data_name(slot) + "[" + at + "] = " + bits;
  }
  line(gated ? "if (" + gate.text + ") { " + statement + "; }" : statement + ";");
}

}  // namespace tg
