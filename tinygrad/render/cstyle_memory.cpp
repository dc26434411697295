/// \file C: loads and stores in all their forms.
#include "tinygrad/render/cstyle_writer.h"

namespace tg {

std::string CWriter::element(const Access& a, const std::string& index) const { return names_[static_cast<size_t>(view_.position(a.base))] + "[" + index + "]"; }

/// The index of one lane, in scalars.
std::string CWriter::index_of_lane(const Access& a, int lane) {
  if (a.lanes == 1 || (a.affine && a.stride == 0)) return lane0(a.index);
  if (!a.affine) return str(value(a.index, a.lanes), "[", lane, "]");
  const int64_t offset = a.stride * lane;
  return offset ? str(lane0(a.index), offset < 0 ? " - " : " + ", std::abs(offset)) : lane0(a.index);
}

std::string CWriter::load(UOp u) {
  Access a = view_.access(u.src(0));
  const DType d = u.dtype();
  const int lanes = view_.lanes(u);
  const bool gated = u.nsrc() > 2;
  // A stored bool may be any byte.
  auto normal = [&](const std::string& v, int n) {
    if (!d.is_bool() || !a.base.is(Ops::PARAM)) return v;
    return n == 1 ? "(" + v + " != 0)" : "(__builtin_convertvector(" + v + " != (" + type(d, n) + ")(0), " + type(d, n) + ") & (" + type(d, n) + ")(1))";
  };
  if (whole_[static_cast<size_t>(view_.position(a.base))]) return names_[static_cast<size_t>(view_.position(a.base))];
  if (lanes == 1) {
    std::string v = normal(element(a, value(a.index, 1)), 1);
    return gated ? value(u.src(2), 1) + " ? " + v + " : " + value(u.src(1), 1) : v;
  }
  if (!gated && a.lanes == 1) return "(" + type(d, lanes) + ")(" + normal(element(a, value(a.index, 1)), 1) + ")";
  if (!gated && a.affine && a.stride == 1) return normal("*(const " + packed_type(d, lanes) + "*)&" + element(a, lane0(a.index)), lanes);
  // Lane by lane; clang makes shuffles or gathers of it where it can.
  if (!a.affine) values_[static_cast<size_t>(view_.position(a.index))] = bind(a.index.dtype(), a.lanes, value(a.index, a.lanes));
  std::string gate, alt, all = "(" + type(d, lanes) + "){";
  const bool vector_gate = gated && view_.lanes(u.src(2)) > 1, vector_alt = gated && view_.lanes(u.src(1)) > 1;
  if (gated) {
    gate = bind(dtypes::bool_, vector_gate ? lanes : 1, value(u.src(2), vector_gate ? lanes : 1));
    alt = bind(d, vector_alt ? lanes : 1, value(u.src(1), vector_alt ? lanes : 1));
  }
  for (int l = 0; l < lanes; l++) {
    std::string v = normal(element(a, index_of_lane(a, l)), 1);
    if (gated) v = str(gate, vector_gate ? str("[", l, "]") : "", " ? ", v, " : ", alt, vector_alt ? str("[", l, "]") : "");
    all += (l ? ", " : "") + v;
  }
  return all + "}";
}

void CWriter::store(UOp u) {
  const Access a = view_.access(u.src(0));
  const DType d = u.src(1).dtype();
  const bool gated = u.nsrc() > 2;
  const int n = a.lanes;
  TG_ASSERT(view_.lanes(u) == n, "a vector stored to one address: ", u);
  if (whole_[static_cast<size_t>(view_.position(a.base))]) return line(names_[static_cast<size_t>(view_.position(a.base))] + " = " + value(u.src(1), n) + ";");
  if (n == 1) return line((gated ? "if (" + value(u.src(2), 1) + ") " : "") + element(a, value(a.index, 1)) + " = " + value(u.src(1), 1) + ";");
  if (!gated && a.affine && a.stride == 1) return line("*(" + packed_type(d, n) + "*)&" + element(a, lane0(a.index)) + " = " + value(u.src(1), n) + ";");
  if (!a.affine) values_[static_cast<size_t>(view_.position(a.index))] = bind(a.index.dtype(), n, value(a.index, n));
  const bool vector_value = view_.lanes(u.src(1)) > 1, vector_gate = gated && view_.lanes(u.src(2)) > 1;
  const std::string v = bind(d, vector_value ? n : 1, value(u.src(1), vector_value ? n : 1));
  const std::string gate = gated ? bind(dtypes::bool_, vector_gate ? n : 1, value(u.src(2), vector_gate ? n : 1)) : "";
  for (int l = 0; l < n; l++)
    line(str(gated ? str("if (", gate, vector_gate ? str("[", l, "]") : "", ") ") : "", element(a, index_of_lane(a, l)), " = ", v, vector_value ? str("[", l, "]") : "", ";"));
}

}  // namespace tg
