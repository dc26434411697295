/// \file Every operation of the IR gives literals what it gives buffers, and what the reference evaluator gives both,
/// at the values where types end.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device_facts.h"
#include "tinygrad/tinygrad.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/symbolic.h"
#include "tinygrad/uop/transcendental.h"

namespace tg {
namespace {
using Values = std::vector<ConstValue>;

std::string text(const ConstValue& v) { return v.is_int() ? std::to_string(v.as_double()) : str(v.f); }

std::vector<DType> types() {
  std::vector<DType> all;
  for (int i = 0; i < static_cast<int>(DTypeId::kCount); i++) {
    const DType d(static_cast<DTypeId>(i));
    if (!d.is_void() && !d.is_weak() && has_type(d)) all.push_back(d);
  }
  return all;
}
uint32_t operands(Ops op) { return groups::kTernary.has(op) ? 3 : groups::kBinary.has(op) ? 2 : 1; }

/// Values of a type: zeros, ones, limits, what is next to them, and some between.
Values values_of(DType d) {
  Values out;
  if (d.is_float()) {
    const double inf = std::numeric_limits<double>::infinity(), largest = -lowest_float(d);
    for (double v : {0.0,  1.0,  0.5,  0.1,   1.5,   2.0,   3.0,    41.0,    300.7, 1e5,         3e9,
                     1e10, 1e20, 1e-3, 1e-38, 1e-40, 1e-45, 1e-310, largest, inf,   std::nan("")})
      for (double s : {1.0, -1.0}) out.emplace_back(truncate_float(s * v, d));
    return out;
  }
  if (d.is_bool()) return {ConstValue(0), ConstValue(1)};
  for (int128 v : {int128(0), int128(1), int128(-1), int128(2), int128(3), int128(7), int128(-7), int128(8), int128(31),
                   int128(41), int128(64), int128(100), int_min(d), int_min(d) + 1, int_max(d), int_max(d) - 1})
    if (v >= int_min(d) && v <= int_max(d)) out.emplace_back(v);
  return out;
}

/// All tuples of values for the operands of an operation, by operand; conditions of a WHERE are bool.
std::vector<Values> tuples(Ops op, DType d) {
  std::vector<Values> of(operands(op), values_of(d)), out(operands(op));
  if (op == Ops::WHERE) of[0] = values_of(dtypes::bool_);
  if (op == Ops::MULACC && of[2].size() > 8) of[2].erase(of[2].begin() + 1, of[2].end() - 7);
  size_t n = 1;
  for (const Values& v : of) n *= v.size();
  for (size_t i = 0; i < n; i++) {
    size_t rest = i;
    for (size_t k = 0; k < of.size(); k++) {
      out[k].push_back(of[k][rest % of[k].size()]);
      rest /= of[k].size();
    }
  }
  return out;
}

DType bits_of(DType d) {
  return d.itemsize() == 1   ? dtypes::uint8
         : d.itemsize() == 2 ? dtypes::uint16
         : d.itemsize() == 4 ? dtypes::uint32
                             : dtypes::uint64;
}
/// Returns a tensor of the values, from their bits.
Tensor stored(const Values& v, DType d, const std::string& device) {
  std::vector<uint64_t> bits(v.size());
  for (size_t i = 0; i < v.size(); i++) store_const(&bits[i], v[i], d);
  const Tensor t = Tensor::from(bits, {.device = "CPU"}).cast(bits_of(d));
  return (d.is_bool() ? t.cast(d) : t.bitcast(d)).contiguous().to(device).contiguous().realize();
}
Values read(const Tensor& t) {
  const DType d = t.dtype();
  const Tensor host = t.contiguous().realize().to("CPU");
  const std::vector<uint64_t> bits =
      (d.is_bool() ? host.cast(dtypes::uint8) : host.bitcast(bits_of(d))).cast(dtypes::uint64).to_vector<uint64_t>();
  Values out;
  for (uint64_t b : bits) out.push_back(load_const(&b, d));
  return out;
}

/// Whether two values are equal bit by bit, NaN aside.
bool same(const ConstValue& a, const ConstValue& b) {
  if (a.is_int() != b.is_int()) return false;
  if (a.is_int()) return a.i == b.i;
  return std::isnan(a.f) ? std::isnan(b.f) : a.f == b.f && std::signbit(a.f) == std::signbit(b.f);
}
/// Whether two floats are at most so many units in the last place apart; infinities, NaN and zeros as `same`.
bool close(const ConstValue& a, const ConstValue& b, DType d, double units = 4) {
  if (same(a, b)) return true;
  if (a.is_int() || !std::isfinite(a.f) || !std::isfinite(b.f) || (a.f < 0) != (b.f < 0)) return false;
  const double epsilon = d == dtypes::float64    ? 0x1p-52
                         : d == dtypes::float32  ? 0x1p-23
                         : d == dtypes::float16  ? 0x1p-10
                         : d == dtypes::bfloat16 ? 0x1p-7
                                                 : 0x1p-2,
               least = d == dtypes::float64   ? 0x1p-1074
                       : d == dtypes::float16 ? 0x1p-24
                                              : 0x1p-149;
  return std::abs(a.f - b.f) <= units * std::max(epsilon * std::abs(b.f), d.is_fp8() ? 0x1p-16 : least);
}

/// An operation on tuples of operands, and its values by each way.
struct Case {
  Ops op;
  DType from, to;
  std::vector<Values> in;

  size_t size() const { return in[0].size(); }
  DType type_of(size_t k) const { return op == Ops::WHERE && k == 0 ? dtypes::bool_ : from; }
  UOp literal(size_t k, size_t i) const { return UOp::constant(in[k][i], type_of(k)); }
  UOp of_literals(size_t i) const {
    if (op == Ops::CAST) return UOp::make(Ops::CAST, to, {literal(0, i)});
    if (op == Ops::BITCAST) return literal(0, i).bitcast(to);
    UOps src;
    for (size_t k = 0; k < in.size(); k++) src.push_back(literal(k, i));
    return UOp::alu(op, src);
  }
  Values on(const std::string& device) const {
    std::vector<Tensor> t;
    for (size_t k = 0; k < in.size(); k++) t.push_back(stored(in[k], type_of(k), device));
    if (op == Ops::CAST) return read(t[0].cast(to));
    if (op == Ops::BITCAST) return read(t[0].bitcast(to));
    return read(t[0].alu(op, {t.begin() + 1, t.end()}));
  }
  /// Literals as algebra folds them.
  Values folded() const {
    Arena arena;
    ArenaScope scope(arena);
    Values out;
    for (size_t i = 0; i < size(); i++) {
      const UOp u = graph_rewrite(of_literals(i), sym());
      EXPECT_TRUE(u.is_const()) << u;
      out.push_back(u.is_const() ? u.const_value() : ConstValue::invalid());
    }
    return out;
  }
  /// Literals in a kernel.
  Values compiled() const {
    const GraphScope graph;
    const auto n = static_cast<int64_t>(size());
    const Tensor r = custom_kernel({Tensor::empty({n}, {.dtype = of_literals(0).dtype()})}, [&](const UOps& p) {
      UOps effects;
      for (size_t i = 0; i < size(); i++)
        effects.push_back(p[0].index({UOp::constant(static_cast<int64_t>(i))}).store(of_literals(i)));
      return UOp::sink(effects, KernelInfo{});
    })[0];
    return read(r);
  }
  std::string at(size_t i) const {
    std::string s = str(name_of(op), " of ", from, op == Ops::CAST || op == Ops::BITCAST ? str(" to ", to) : "", " at");
    for (const Values& v : in) s += " " + text(v[i]);
    return s;
  }
  /// Whether all values are such that the device keeps them.
  bool kept(size_t i, const ConstValue& want) const {
    if (has_denormals()) return true;
    const auto normal = [](const ConstValue& v) { return v.is_int() || v.f == 0 || !(std::abs(v.f) < 0x1p-126); };
    bool all = normal(want);
    for (const Values& v : in) all &= normal(v[i]);
    return all;
  }
};

void check(const Case& c) {
  const bool by_formula = c.op != Ops::CAST && c.from.is_float() && kTranscendental.has(c.op);
  const bool exact = !by_formula && !(Device::get().kind() == "WEBGPU" &&
                                      OpSet(Ops::FDIV | Ops::RECIPROCAL | Ops::SQRT | Ops::FLOORDIV).has(c.op));
  const Values buffer = c.on(Device::get().name()), reference = c.on("INTERP"),
               literal = by_formula ? c.compiled() : c.folded();
  ASSERT_EQ(buffer.size(), c.size());
  int differ = 0;
  for (size_t i = 0; i < c.size(); i++) {
    if (!c.kept(i, reference[i])) continue;
    if (c.op == Ops::MAX && buffer[i].as_double() == 0 && reference[i].as_double() == 0) continue;  // of either sign
    const bool equals_reference = exact ? same(buffer[i], reference[i]) : close(buffer[i], reference[i], c.from);
    // Powers by literals are products, each of which rounds.
    const bool equals_literal = c.op == Ops::POW
                                    ? close(buffer[i], literal[i], c.from, 4 + std::abs(c.in[1][i].as_double()))
                                : exact || by_formula ? same(buffer[i], literal[i])
                                                      : close(buffer[i], literal[i], c.from);
    if ((!equals_reference || !equals_literal) && differ++ < 4)
      ADD_FAILURE() << c.at(i) << ": buffer " << text(buffer[i]) << ", reference " << text(reference[i]) << ", literal "
                    << text(literal[i]);
  }
  EXPECT_EQ(differ, 0) << c.at(0) << "...";
}

class ConstantValues : public testing::TestWithParam<Ops> {};
std::vector<Ops> elementwise() {
  std::vector<Ops> found;
#define X(name) \
  if (groups::kElementwise.has(Ops::name)) found.push_back(Ops::name);
  TG_FOR_EACH_OP(X)
#undef X
  return found;
}
INSTANTIATE_TEST_SUITE_P(Ops, ConstantValues, testing::ValuesIn(elementwise()),
                         [](const auto& i) { return std::string(name_of(i.param)); });

TEST_P(ConstantValues, AreThoseOfBuffers) {
  TG_NEEDS_VALUES();
  const Ops op = GetParam();
  for (DType d : types()) {
    if (op == Ops::CAST || op == Ops::BITCAST) {
      for (DType to : types())
        if (to != d && (op == Ops::CAST || (to.itemsize() == d.itemsize() && !to.is_bool() && !d.is_bool())))
          check({op, d, to, {values_of(d)}});
    } else if (alu_loop(op, d)) check({op, d, d, tuples(op, d)});
  }
}

}  // namespace
}  // namespace tg
