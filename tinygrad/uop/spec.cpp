/// \file The spec tables. A rule names what must hold; a node no rule knows is an error too.
#include "tinygrad/uop/spec.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/print.h"

namespace tg {
namespace {
using namespace upat;

constexpr Verdict kOk{Verdict::kGood, ""};
/// Good, or the reason why not.
constexpr Verdict must(bool holds, const char* why) { return holds ? kOk : Verdict{Verdict::kBad, why}; }
/// Says something only when broken: a later rule has the last word.
constexpr Verdict unless(bool holds, const char* why) { return holds ? Verdict{} : Verdict{Verdict::kBad, why}; }

bool all_srcs(UOp u, uint32_t from, auto&& test) {
  for (uint32_t i = from; i < u.nsrc(); i++)
    if (!test(u.src(i))) return false;
  return true;
}
bool is_index(UOp u) { return u.dtype().is_int() || u.is_invalid(); }
bool is_effect(UOp u) { return u.dtype().is_void(); }
bool is_int_stack(UOp u) {
  return u.is(Ops::STACK) && all_srcs(u, 0, [](UOp s) { return s.dtype().is_int(); });
}
/// Narrow numbers of a parameter: the bits of one, or of several at once.
bool reads_words(UOp u) {
  if (u.nsrc() == 0 || !u.src(0).is(Ops::PARAM)) return false;
  const DType element = u.src(0).dtype();
  const bool words = u.dtype() == dtypes::uint32 && element.itemsize() < 4;
  return words || (u.dtype() == dtypes::uint16 && element.itemsize() == 2);
}
bool same_type(UOp u) { return u.nsrc() >= 1 && u.dtype() == u.src(0).dtype(); }

uint32_t arity(Ops op) { return groups::kUnary.has(op) ? 1 : groups::kBinary.has(op) ? 2 : 3; }
Verdict check_alu(UOp u) {
  if (u.nsrc() != arity(u.op())) return must(false, "the op takes another number of operands");
  uint32_t first = u.is(Ops::WHERE) ? 1 : 0;
  if (first && !u.src(0).dtype().is_bool()) return must(false, "the condition of a WHERE is bool");
  DType d;
  for (uint32_t i = first; i < u.nsrc(); i++) {
    if (u.src(i).is_invalid()) continue;
    if (!d.is_void() && u.src(i).dtype() != d) return must(false, "operands have one dtype");
    d = u.src(i).dtype();
  }
  if (d.is_void()) return must(u.nsrc() > 0 && u.src(u.nsrc() - 1).is_invalid(), "operands are values");
  if (!alu_loop(u.op(), d)) return must(false, "the op is not defined on operands of this type");
  if (groups::kComparison.has(u.op())) return must(u.dtype().is_bool(), "a comparison is bool");
  return must(u.dtype() == d, "the result has the type of the operands");
}
Verdict check_const(UOp u) {
  if (u.nsrc()) return must(false, "a CONST has no sources");
  switch (u.arg_kind()) {
    case ArgKind::kInvalid: return must(u.dtype().is_bool(), "Invalid is bool");
    case ArgKind::kInt:
    case ArgKind::kBigInt: {
      if (!u.dtype().is_int() && !u.dtype().is_bool()) return must(false, "an integer literal has an integer type");
      return must(u.dtype().is_weak() || truncate_int(u.const_int(), u.dtype()) == u.const_int(),
                  "a literal fits its type");
    }
    case ArgKind::kFloat: return must(u.dtype().is_float(), "a float literal has a float type");
    default: return must(false, "a CONST carries a number");
  }
}
Verdict check_pixel_store(UOp u) {
  if (u.nsrc() != 5 && u.nsrc() != 6) return must(false, "STORE(INDEX of an image, four numbers[, gate])");
  for (size_t i = 1; i < 5; i++)
    if (u.src(i).dtype() != dtypes::float32) return must(false, "a pixel is written as float32");
  return must(is_effect(u) && (u.nsrc() == 5 || u.src(5).dtype().is_bool()), "the gate is bool");
}
Verdict check_custom_value(UOp u) {
  if (u.arg_kind() == ArgKind::kString && u.dtype() == dtypes::uint64)
    return must(u.nsrc() == 1 && u.src(0).in(Ops::INDEX | Ops::LOAD) && is_well_formed_matrix(u.arg<std::string>()),
                "CUSTOMI(INDEX) or CUSTOMI(LOAD), form of a matrix in memory");
  if (u.arg_kind() == ArgKind::kString)
    return must(
        u.dtype() == dtypes::uint32 && is_well_formed_matrix_load(u.arg<std::string>()) &&
            (u.nsrc() == 1 ? u.src(0).is(Ops::INDEX) : u.nsrc() == 2 && u.src(0).is(Ops::LOAD) && is_index(u.src(1))),
        "CUSTOMI(INDEX) or CUSTOMI(LOAD, register), form of a matrix load");
  return must(u.nsrc() == 1 && same_type(u) && u.arg_kind() == ArgKind::kInt && u.int_arg() > 0,
              "CUSTOMI(value), bits in which the numbers of two threads differ");
}
Verdict check_member(UOp u) {
  const bool number = u.nsrc() == 1 && is_pixel_access(u.src(0)) && u.src(0).is(Ops::LOAD);
  const bool named = u.arg_kind() == ArgKind::kInt && u.int_arg() >= 0;
  return must(u.nsrc() == 1 && (u.src(0).in(Ops::WMMA | Ops::CUSTOMI) || number) && same_type(u) && named,
              "GETTUPLE(WMMA or CUSTOMI), register, or GETTUPLE(LOAD of a pixel), number");
}
Verdict check_index(UOp u) {
  if (u.nsrc() == 0) return must(false, "an INDEX is of storage");
  const size_t coordinates = is_image(u.src(0)) ? 2 : 1;
  const bool flat = u.nsrc() == 1 + coordinates && u.src(0).in(groups::kDefines | Ops::AFTER);
  return must(u.nsrc() >= 2 && (same_type(u) || reads_words(u)) && all_srcs(u, 1, is_index) &&
                  (u.src(0).is(Ops::STAGE) || flat),
              "INDEX(storage, one flat index), INDEX(image, y, x), INDEX(STAGE, coordinates...)");
}
Verdict check_load(UOp u) {
  if (u.nsrc() != 1 && u.nsrc() != 3) return must(false, "LOAD(INDEX) or LOAD(INDEX, alt, gate)");
  if (u.nsrc() == 3 && (u.src(1).dtype() != u.dtype() || !u.src(2).dtype().is_bool()))
    return must(false, "alt has the load's type, the gate is bool");
  if (is_pixel_access(u)) return must(u.dtype() == dtypes::float32, "a pixel is read as float32");
  return must(u.src(0).is(Ops::INDEX) && same_type(u), "a LOAD reads an INDEX");
}
Verdict check_store(UOp u) {
  if (u.nsrc() < 2) return must(false, "a STORE has a place and a value");
  if (is_pixel_access(u)) return check_pixel_store(u);
  if (u.nsrc() != 2 && u.nsrc() != 3) return must(false, "STORE(INDEX, value) or STORE(INDEX, value, gate)");
  if (u.nsrc() == 3 && !u.src(2).dtype().is_bool()) return must(false, "the gate is bool");
  return must(is_effect(u) && u.src(0).is(Ops::INDEX) && u.src(0).dtype() == u.src(1).dtype(),
              "a STORE's value has the type of its INDEX");
}
Verdict check_permute(UOp u) {
  if (u.nsrc() != 1 || u.arg_kind() != ArgKind::kInts || !same_type(u)) return must(false, "PERMUTE(x), order");
  std::vector<int64_t> order = u.arg<std::vector<int64_t>>();
  if (order.size() != shape_of(u.src(0)).size()) return must(false, "one entry of the order per axis");
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); i++)
    if (order[i] != static_cast<int64_t>(i)) return must(false, "the order is a permutation");
  return kOk;
}
Verdict check_flip(UOp u) {
  if (u.nsrc() != 1 || u.arg_kind() != ArgKind::kInts || !same_type(u)) return must(false, "FLIP(x), axes");
  for (int64_t a : u.arg<std::vector<int64_t>>())
    if (a < 0 || a >= static_cast<int64_t>(shape_of(u.src(0)).size()))
      return must(false, "axes are axes of the source");
  return kOk;
}
Verdict check_reduce_axes(UOp u) {
  if (u.nsrc() != 1 || u.arg_kind() != ArgKind::kReduce || !same_type(u)) return must(false, "REDUCE(x), {op, axes}");
  const ReduceArg& a = u.arg<ReduceArg>();
  if (!groups::kReduce.has(a.op)) return must(false, "reduces are ADD, MUL or MAX");
  for (size_t i = 0; i < a.axes.size(); i++)
    if (a.axes[i] < 0 || a.axes[i] >= static_cast<int32_t>(shape_of(u.src(0)).size()) ||
        (i && a.axes[i] <= a.axes[i - 1]))
      return must(false, "axes ascend and exist");
  return kOk;
}
Verdict check_pad(UOp u) {
  if (u.nsrc() != 3 || !same_type(u) || !is_int_stack(u.src(1)) || !is_int_stack(u.src(2)))
    return must(false, "(x, offsets, sizes)");
  size_t n = shape_of(u.src(0)).size();
  return must(u.src(1).nsrc() == n && u.src(2).nsrc() == n, "an offset and a size per axis");
}
bool same_elements(UOp u) {
  const Shape &a = shape_of(u), &b = shape_of(u.src(0));
  return a.symbolic() || b.symbolic() || a.numel() == b.numel();
}
bool is_alu_param(UOp u) {
  return u.is(Ops::PARAM) && u.arg_kind() == ArgKind::kParam && u.arg<ParamArg>().addrspace == AddrSpace::kAlu;
}

const Spec& spec_shared() {
  static const Spec s{
      rule(u = node<Ops::CONST>(), [](U u) { return check_const(u); }),
      rule(u = any_of(groups::kAlu), [](U u) { return check_alu(u); }),
      rule(u = node<Ops::CAST>(),
           [](U u) {
             return must(u.nsrc() == 1 && !u.dtype().is_void() && !u.src(0).dtype().is_void(), "CAST(value)");
           }),
      rule(u = node<Ops::BITCAST>(),
           [](U u) {
             return must(u.nsrc() == 1 && !u.dtype().is_weak() && !u.src(0).dtype().is_weak() && !is_effect(u) &&
                             !is_effect(u.src(0)) && u.dtype().itemsize() == u.src(0).dtype().itemsize(),
                         "BITCAST between types of one width");
           }),
      rule(u = node<Ops::STACK>(),
           [](U u) {
             return must(all_srcs(u, 0, [&](UOp s) { return s.dtype() == u.dtype(); }),
                         "the values of a STACK have its dtype");
           }),
      rule(u = node<Ops::RANGE>(),
           [](U u) {
             return must(u.nsrc() >= 1 && u.arg_kind() == ArgKind::kRange && u.dtype().is_int() &&
                             u.src(0).dtype() == u.dtype(),
                         "RANGE(end), RangeArg, of end's integer type");
           }),
      rule(u = node<Ops::AFTER>(), [](U u) { return must(same_type(u), "AFTER is an alias of its first source"); }),
      rule(u = any_of(Ops::GROUP | Ops::NOOP),
           [](U u) { return must(is_effect(u) && all_srcs(u, 0, is_effect), "effects only"); }),
      rule(u = node<Ops::BARRIER>(),
           [](U u) {
             if (!is_well_formed_barrier(u)) return must(false, "one of the forms of BARRIER (uop/barriers.h)");
             if (u.nsrc() && u.src(0).is(Ops::INDEX))
               return must(is_effect(u) && (begins_barriers(u) || expects_boxes(u) || awaits_boxes(u) ||
                                            awaits_room(u) || releases_room(u)),
                           "BARRIER(INDEX[, gate or parity], effects...) of a barrier in memory, form");
             return must(is_effect(u) && all_srcs(u, 0, [](UOp s) { return is_effect(s) || s.is(Ops::RANGE); }),
                         "effects, and the loop it stands in");
           }),
      rule(u = node<Ops::PARAM>(),
           [](U u) {
             return is_alu_param(u)
                        ? must(u.nsrc() == 0 && u.dtype().is_int() && u.arg<ParamArg>().vmin <= u.arg<ParamArg>().vmax,
                               "a variable is an integer with bounds")
                        : Verdict{};
           }),
      rule(u = any_of(groups::kDefines),
           [](U u) {
             return must(u.arg_kind() == ArgKind::kParam && u.nsrc() == 1 && is_int_stack(u.src(0)) && !is_effect(u),
                         "storage has a shape and ParamArg");
           }),
  };
  return s;
}
}  // namespace

const Spec& spec_tensor() {
  static const Spec s =
      Spec{
          rule(u = any_of(Ops::PARAM | Ops::BUFFER),
               [](U u) { return unless(!u.dtype().is_weak() || is_alu_param(u), "storage has a type of its own"); }),
          rule(u = any_of(Ops::RANGE | Ops::SPECIAL | Ops::END | Ops::LOAD | Ops::BARRIER),
               [](U) { return must(false, "loops and loads come with kernels"); }),
          rule(u = node<Ops::ARANGE>(),
               [](U u) {
                 return must(u.nsrc() == 1 && is_int_stack(u.src(0)) && u.src(0).nsrc() == 1 && u.dtype().is_int(),
                             "ARANGE((n,)) of an integer type");
               }),
          rule(u = node<Ops::RESHAPE>(),
               [](U u) {
                 return u.nsrc() == 2 && same_type(u) && is_int_stack(u.src(1))
                            ? must(same_elements(u), "as many elements as before")
                            : must(false, "(x, shape)");
               }),
          rule(u = node<Ops::EXPAND>(),
               [](U u) {
                 return must(u.nsrc() == 2 && same_type(u) && is_int_stack(u.src(1)) &&
                                 u.src(1).nsrc() >= shape_of(u.src(0)).size(),
                             "(x, shape)");
               }),
          rule(u = node<Ops::PERMUTE>(), [](U u) { return check_permute(u); }),
          rule(u = node<Ops::FLIP>(), [](U u) { return check_flip(u); }),
          rule(u = any_of(Ops::PAD | Ops::SHRINK), [](U u) { return check_pad(u); }),
          rule(u = node<Ops::REDUCE>(), [](U u) { return check_reduce_axes(u); }),
          rule(u = node<Ops::INDEX>(),
               [](U u) {
                 return must(u.nsrc() >= 2 && same_type(u) && all_srcs(u, 1, is_index), "INDEX(x, integers...)");
               }),
          rule(u = any_of(Ops::CONTIGUOUS | Ops::CONTIGUOUS_BACKWARD | Ops::DETACH),
               [](U u) { return must(u.nsrc() == 1 && same_type(u), "(x)"); }),
          rule(u = node<Ops::CUSTOM_GRADIENT>(),
               [](U u) { return must(u.nsrc() == 3 && same_type(u), "CUSTOM_GRADIENT(value, two inputs), form"); }),
          rule(u = node<Ops::COPY>(),
               [](U u) {
                 return must(u.nsrc() == 1 && same_type(u) && u.arg_kind() == ArgKind::kString, "COPY(x), device");
               }),
          rule(u = node<Ops::COLLECTIVE>(),
               [](U u) {
                 return must(u.nsrc() == 1 && same_type(u) && u.arg_kind() == ArgKind::kCollective,
                             "COLLECTIVE(x), operation");
               }),
          rule(u = node<Ops::STORE>(),
               [](U u) {
                 return must(u.nsrc() == 2 && is_effect(u) && u.src(0).dtype() == u.src(1).dtype() &&
                                 shape_of(u.src(0)) == shape_of(u.src(1)),
                             "a STORE's value has the destination's type and shape");
               }),
          rule(u = node<Ops::CALL>(),
               [](U u) {
                 return must(
                     is_effect(u) && (u.arg_kind() == ArgKind::kInt ||
                                      (u.arg_kind() == ArgKind::kCall && u.nsrc() > 0 && u.src(0).is(Ops::SINK))),
                     "CALL(kernel, storage...), or (storage...) and the kernel's number");
               }),
          rule(u = node<Ops::CUSTOM_FUNCTION>(),
               [](U u) {
                 return must(is_effect(u) && u.nsrc() > 0 && u.arg_kind() == ArgKind::kString,
                             "CUSTOM_FUNCTION(storage...), name");
               }),
          rule(u = node<Ops::SINK>(), [](U u) { return must(is_effect(u), "SINK is an effect"); }),
      } +
      spec_shared();
  return s;
}

const Spec& spec_kernel() {
  static const Spec s =
      Spec{
          rule(u = any_of(groups::kMovement | Ops::COPY | Ops::COLLECTIVE | Ops::CONTIGUOUS | Ops::DETACH |
                          Ops::ARANGE | Ops::CONTIGUOUS_BACKWARD | Ops::CUSTOM_GRADIENT),
               [](U) { return must(false, "no movement, no tensors"); }),
          rule(u = any_of(groups::kElementwise),
               [](U u) { return unless(u.dtype() != dtypes::weakfloat, "no weakfloat"); }),
          rule(u = node<Ops::PARAM>(),
               [](U u) {
                 const bool shaped = u.nsrc() == 1 && (u.src(0).nsrc() == 1 || is_image(u));
                 return unless(
                     is_alu_param(u) || (u.arg_kind() == ArgKind::kParam && u.arg<ParamArg>().slot >= 0 && shaped),
                     "a kernel parameter has a slot and is flat, or an image");
               }),
          rule(u = node<Ops::SPECIAL>(),
               [](U u) {
                 return must(u.nsrc() >= 1 && u.dtype().is_int() && is_well_formed_special(u),
                             "SPECIAL(size), gidx or lidx and a dimension up to 2");
               }),
          rule(u = node<Ops::WMMA>(),
               [](U u) {
                 const bool typed =
                     u.nsrc() >= 3 && u.arg_kind() == ArgKind::kString && u.src(0).dtype() == u.src(1).dtype();
                 if (!typed || u.nsrc() == 3)
                   return must(typed && u.src(2).dtype() == u.dtype(), "WMMA(a, b, sum), instruction");
                 if (u.nsrc() == 5)
                   return must(is_index(u.src(2)) && is_index(u.src(3)) && is_index(u.src(4)),
                               "WMMA(a, b, number of the register, registers of a, of b), instruction");
                 return must(u.src(u.nsrc() - 1).dtype() == u.dtype(), "WMMA(a..., b..., sum...), instruction");
               }),
          rule(u = node<Ops::CUSTOMI>(), [](U u) { return check_custom_value(u); }),
          rule(u = node<Ops::GETTUPLE>(), [](U u) { return check_member(u); }),
          rule(u = node<Ops::INDEX>(), [](U u) { return check_index(u); }),
          rule(u = node<Ops::STAGE>(),
               [](U u) {
                 return must(same_type(u) && u.arg_kind() == ArgKind::kStage &&
                                 u.arg<StageArg>().use != StageKind::kBuffer &&
                                 all_srcs(u, 1, [](UOp r) { return r.is(Ops::RANGE); }),
                             "STAGE(value, ranges...) of scratch memory");
               }),
          rule(u = node<Ops::LOAD>(), [](U u) { return check_load(u); }),
          rule(u = node<Ops::STORE>(), [](U u) { return check_store(u); }),
          rule(u = node<Ops::CUSTOM>(),
               [](U u) {
                 if (is_box(u))
                   return must(is_effect(u) && is_well_formed_box(u),
                               "CUSTOM(INDEX, barriers, number, parameter, column, row[, gate]), box");
                 return must(is_effect(u) && u.nsrc() == 1 && u.src(0).is(Ops::INDEX) &&
                                 u.arg_kind() == ArgKind::kString && u.arg<std::string>() == "prefetch",
                             "CUSTOM(INDEX), \"prefetch\"");
               }),
          rule(u = node<Ops::END>(),
               [](U u) {
                 return must(u.nsrc() >= 2 && is_effect(u) && is_effect(u.src(0)) &&
                                 all_srcs(u, 1, [](UOp r) { return r.in(Ops::RANGE | Ops::SPECIAL); }),
                             "END(effect, ranges...)");
               }),
          rule(u = node<Ops::REDUCE>(),
               [](U u) {
                 if (u.arg_kind() != ArgKind::kReduce || !u.arg<ReduceArg>().axes.empty())
                   return must(false, "a kernel's REDUCE has ranges, not axes");
                 return must(u.nsrc() >= 2 && same_type(u) && all_srcs(u, 1, [](UOp r) { return r.is(Ops::RANGE); }),
                             "REDUCE(value, ranges...)");
               }),
          rule(u = node<Ops::SINK>(),
               [](U u) {
                 return must(is_effect(u) && u.arg_kind() == ArgKind::kKernel && all_srcs(u, 0, is_effect),
                             "SINK(effects...), KernelInfo");
               }),
      } +
      spec_shared();
  return s;
}

const Spec& spec_program() {
  static const Spec s =
      Spec{
          rule(u = any_of(groups::kAlu | Ops::CAST | Ops::BITCAST | Ops::LOAD | Ops::STORE | Ops::INDEX | Ops::RANGE |
                          Ops::REDUCE),
               [](U u) {
                 bool weak = u.dtype().is_weak(), invalid = false;
                 for (UOp x : u.srcs()) {
                   weak |= x.dtype().is_weak();
                   invalid |= x.is_invalid();
                 }
                 return weak ? must(false, "no weak types in programs") : unless(!invalid, "no Invalid in programs");
               }),
          rule(u = node<Ops::PARAM>(), [](U u) { return unless(!u.dtype().is_weak(), "no weak types in programs"); }),
          rule(u = node<Ops::RANGE>(),
               [](U u) {
                 return unless(u.arg_kind() == ArgKind::kRange && u.arg<RangeArg>().type != AxisType::kUpcast &&
                                   u.arg<RangeArg>().type != AxisType::kUnroll,
                               "UPCAST and UNROLL are expanded");
               }),
          rule(u = node<Ops::END>(),
               [](U u) {
                 return unless(
                     u.nsrc() == 2 && u.src(1).is(Ops::RANGE) && u.src(1).arg<RangeArg>().type != AxisType::kVector,
                     "END closes one loop");
               }),
          rule(u = node<Ops::REDUCE>(),
               [](U u) {
                 return unless(
                     u.nsrc() == 2 && u.src(1).is(Ops::RANGE) && u.src(1).arg<RangeArg>().type == AxisType::kVector,
                     "a REDUCE left in a program is over lanes");
               }),
          rule(u = any_of(Ops::IF | Ops::ENDIF), [](U u) { return must(is_effect(u), "IF and ENDIF are effects"); }),
      } +
      spec_kernel();
  return s;
}

namespace {
[[noreturn]] void broken(UOp u, const char* why, const char* stage) {
  std::string tree;
  size_t lines = 0;
  for (char c : print_tree(u)) {
    tree += c;
    if (c == '\n' && ++lines == 24) {
      tree += "...\n";
      break;
    }
  }
  throw InternalError(
      str("after '", stage, "': ", u, "\n  ", why[0] ? why : "no rule of this level knows such a node", "\n", tree));
}
}  // namespace

void verify(UOp root, const Spec& spec, const char* stage) {
  for (UOp u : root.toposort()) {
    Verdict v = spec.rewrite(u);
    if (v.kind != Verdict::kGood) [[unlikely]]
      broken(u, v.why, stage);
  }
}

void verify_made(UOp u) {
  const Verdict v = spec_shared().rewrite(u);
  if (v.kind == Verdict::kBad) [[unlikely]]
    broken(u, v.why, "make");
}

void verify_program(std::span<const UOp> program, const char* stage) {
  std::unordered_set<UOp> seen, closed;
  std::vector<UOp> open;
  auto is_lane = [](UOp r) { return r.arg<RangeArg>().type == AxisType::kVector; };
  for (UOp u : program) {
    // Sources are verified first: rules look into them.
    for (UOp s : u.srcs()) {
      if (s.in(Ops::GROUP | Ops::NOOP)) {  // no instructions: their sources count
        for (UOp e : s.srcs())
          if (!seen.count(e)) broken(u, "an effect of its GROUP stands behind it", stage);
      } else if (!seen.count(s)) broken(u, "a source stands behind its user", stage);
      else if (s.is(Ops::RANGE) && !u.is(Ops::END) && closed.count(s) && !u.is(Ops::AFTER))
        broken(u, "it uses a range whose loop is over", stage);
    }
    const Verdict v = spec_program().rewrite(u);
    if (v.kind != Verdict::kGood) broken(u, v.why, stage);
    // A barrier orders the stores of several fills, each with lanes of its own.
    if (!u.is(Ops::BARRIER) && std::count_if(ranges_of(u).begin(), ranges_of(u).end(), is_lane) > 1)
      broken(u, "a value with lanes of two VECTOR ranges", stage);
    if (u.is(Ops::RANGE)) {
      if (!is_lane(u)) open.push_back(u);
    }
    if (u.is(Ops::END)) {
      if (open.empty() || open.back() != u.src(1)) broken(u, "it closes a loop that is not the innermost", stage);
      open.pop_back();
      closed.insert(u.src(1));
    }
    if (!seen.insert(u).second) broken(u, "it stands in the program twice", stage);
  }
  if (!open.empty()) broken(open.back(), "its loop is never closed", stage);
}

}  // namespace tg
