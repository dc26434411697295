/// \file LLVM IR: values, arithmetic, loops. Memory accesses are in llvmir_memory.cpp.
#include "tinygrad/render/llvmir/llvmir.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "tinygrad/render/llvmir/llvmir_writer.h"
#include "tinygrad/render/llvmir/ptx.h"
#include "tinygrad/uop/facts.h"

namespace tg {

OpSet LlvmRenderer::ops() const {
  using enum Ops;
  OpSet s = ADD | MUL | SUB | NEG | FDIV | SHL | SHR | CDIV | CMOD | MAX | CMPLT | CMPNE | CMPEQ | XOR | OR | AND |
            WHERE | SQRT | TRUNC;
  if (target().has_fma()) s |= MULACC;
  return s;
}
bool LlvmRenderer::supports(DType d) const {
  return d != dtypes::bfloat16 && !d.is_fp8() && !d.is_weak() && !d.is_void();
}

std::string LlvmRenderer::render(const Program& p) const {
  ArenaScope scope(*p.arena);
  return LlvmWriter(p, target()).write();
}

namespace {
const char* scalar_name(DType d) {
  switch (d.id()) {
    case DTypeId::kBool: return "i1";
    case DTypeId::kInt8:
    case DTypeId::kUInt8: return "i8";
    case DTypeId::kInt16:
    case DTypeId::kUInt16: return "i16";
    case DTypeId::kInt32:
    case DTypeId::kUInt32: return "i32";
    case DTypeId::kInt64:
    case DTypeId::kUInt64: return "i64";
    case DTypeId::kFloat16: return "half";
    case DTypeId::kFloat32: return "float";
    case DTypeId::kFloat64: return "double";
    case DTypeId::kVoid:
    case DTypeId::kWeakInt:
    case DTypeId::kWeakFloat:
    case DTypeId::kBFloat16:
    case DTypeId::kFp8E4M3:
    case DTypeId::kFp8E4M3FNUZ:
    case DTypeId::kFp8E5M2:
    case DTypeId::kFp8E5M2FNUZ:
    case DTypeId::kCount: break;
  }
  TG_ASSERT(false, "type ", d, " reached the LLVM renderer");
  return "";
}
const char* mangled(DType d) {  // as in intrinsic names
  switch (d.id()) {
    case DTypeId::kFloat16: return "f16";
    case DTypeId::kFloat32: return "f32";
    case DTypeId::kFloat64: return "f64";
    default: return scalar_name(d);
  }
}
bool is_widened_half(UOp u) {
  return u.is(Ops::CAST) && u.dtype() == dtypes::float32 && u.src(0).dtype() == dtypes::float16;
}
bool is_signed(DType d) { return d.is_int() && !d.is_unsigned(); }

bool is_number(UOp u) { return u.is_const() && u.const_float() == u.const_float(); }

/// Returns the name of a binary instruction; null where it takes several instructions.
const char* plain_word(Ops op, DType d) {
  const bool f = d.is_float(), b = d.is_bool();
  switch (op) {
    case Ops::ADD: return f ? "fadd" : b ? "or" : "add";
    case Ops::MUL: return f ? "fmul" : b ? "and" : "mul";
    case Ops::SUB: return f ? "fsub" : "sub";
    case Ops::FDIV: return "fdiv";
    case Ops::AND: return "and";
    case Ops::OR: return "or";
    case Ops::XOR: return "xor";
    case Ops::MAX: return b ? "or" : nullptr;
    case Ops::SHL: return "shl";
    case Ops::SHR: return is_signed(d) ? "ashr" : "lshr";
    case Ops::CMPLT: return f ? "fcmp olt" : is_signed(d) ? "icmp slt" : "icmp ult";
    case Ops::CMPNE: return f ? "fcmp une" : "icmp ne";
    case Ops::CMPEQ: return f ? "fcmp oeq" : "icmp eq";
    default: return nullptr;
  }
}
}  // namespace

std::string LlvmWriter::type(DType d, int lanes) {
  return lanes == 1 ? scalar_name(d) : str("<", lanes, " x ", scalar_name(d), ">");
}
std::string LlvmWriter::memory_type(DType d, int lanes) { return type(d.is_bool() ? dtypes::uint8 : d, lanes); }
std::string LlvmWriter::suffix(DType d, int lanes) { return lanes == 1 ? mangled(d) : str("v", lanes, mangled(d)); }

std::string LlvmWriter::literal(const ConstValue& v, DType d, int lanes) {
  std::string one;
  if (d.is_bool()) one = v.as_double() != 0 ? "true" : "false";
  else if (d.is_int()) one = str(static_cast<int64_t>(v.is_int() ? truncate_int(v.i, d) : static_cast<int128>(v.f)));
  else one = float_literal(v.as_double(), d);
  if (lanes == 1) return one;
  // A vector is spelled once, at the entry.
  std::string& name = literals_[str(scalar_name(d), " ", one, " x", lanes)];
  if (name.empty()) {
    const std::string t = scalar_name(d), vector = type(d, lanes);
    name = "%k" + std::to_string(literals_.size());
    entry_ += "  " + name + " = bitcast " + vector + " <";
    for (int i = 0; i < lanes; i++) entry_ += (i ? ", " : "") + t + " " + one;
    entry_ += "> to " + vector + "\n";
  }
  return name;
}

std::string LlvmWriter::float_literal(double v, DType d) {
  char text[32];
  if (d == dtypes::float16) std::snprintf(text, sizeof text, "0xH%04X", float_to_half(static_cast<float>(v)));
  else
    std::snprintf(text, sizeof text, "0x%016llX",
                  static_cast<unsigned long long>(v != v ? 0x7FF8000000000000ull : std::bit_cast<uint64_t>(v)));
  return text;
}

std::string LlvmWriter::value(UOp u, int lanes) {
  u = strip_after(u);
  if (u.is_const()) return literal(u.const_value(), u.dtype(), lanes);
  const int n = view_.lanes(u);
  const int at = view_.position(u);
  if (n == 1 && is_lane(u)) return literal(0, u.dtype(), lanes);
  const std::string name = values_[static_cast<size_t>(at)];
  TG_ASSERT(!name.empty(), "value not emitted: ", u);
  if (n == lanes) return name;
  TG_ASSERT(n == 1, "a vector of ", n, " lanes where ", lanes, " are wanted: ", u);
  auto& splat = splats_[static_cast<size_t>(at)];
  if (splat.block == block_ && splat.lanes == lanes) return splat.name;
  splat = {block_, lanes, is_widened_half(u) ? widened_splat(u, lanes) : this->splat(name, u.dtype(), lanes)};
  return splat.name;
}

/// Repeats a half and widens it in all lanes: both take one instruction of a vector unit, the repetition straight from
/// memory.
std::string LlvmWriter::widened_splat(UOp u, int lanes) {
  const DType half = dtypes::float16;
  const std::string v = splat(value(u.src(0), 1), half, lanes);
  return emit("fpext " + type(half, lanes) + " " + v + " to " + type(u.dtype(), lanes));
}

std::string LlvmWriter::splat(const std::string& scalar, DType d, int lanes) {
  const std::string t = type(d, lanes);
  std::string one = emit("insertelement " + t + " poison, " + type(d) + " " + scalar + ", i64 0");
  return emit("shufflevector " + t + " " + one + ", " + t + " poison, <" + str(lanes) + " x i32> zeroinitializer");
}

std::string LlvmWriter::emit(const std::string& instruction) {
  std::string name = "%t" + std::to_string(next_++);
  line(name + " = " + instruction);
  return name;
}

void LlvmWriter::begin_block(const std::string& label) {
  body_ += label + ":\n";
  label_ = label;
  block_++;
}

void LlvmWriter::declare(const std::string& declaration) { declarations_.insert(declaration); }

/// Calls an intrinsic `name` whose arguments all have the type of the result.
std::string LlvmWriter::intrinsic(const std::string& name, DType d, int lanes,
                                  std::initializer_list<std::string> args) {
  const std::string t = type(d, lanes), full = "@llvm." + name + "." + suffix(d, lanes);
  std::string call = "call " + t + " " + full + "(", declaration = "declare " + t + " " + full + "(";
  size_t i = 0;
  for (const std::string& a : args) {
    call += (i ? ", " : "") + t + " " + a;
    declaration += (i++ ? ", " : "") + t;
  }
  declare(declaration + ")");
  return emit(call + ")");
}

std::string LlvmWriter::select(const std::string& cond, int cond_lanes, const std::string& yes, const std::string& no,
                               DType d, int lanes) {
  const std::string t = type(d, lanes);
  if (d == dtypes::float16 && takes_halves_apart(lanes)) {
    const DType bits = dtypes::uint16;
    return bitcast(select(cond, cond_lanes, bitcast(yes, d, bits, lanes), bitcast(no, d, bits, lanes), bits, lanes),
                   bits, d, lanes);
  }
  return emit("select " + type(dtypes::bool_, cond_lanes) + " " + cond + ", " + t + " " + yes + ", " + t + " " + no);
}

/// `number` says that b is no NaN; then one instruction of x86 does.
std::string LlvmWriter::maximum(const std::string& a, const std::string& b, DType d, int lanes, bool number) {
  const std::string t = type(d, lanes);
  if (d.is_bool()) return emit("or " + t + " " + a + ", " + b);
  std::string less = emit(std::string(plain_word(Ops::CMPLT, d)) + " " + t + " " + a + ", " + b);
  std::string r = select(less, lanes, b, a, d, lanes);
  if (!d.is_float() || number) return r;
  return select(emit("fcmp uno " + t + " " + b + ", " + b), lanes, b, r, d, lanes);
}

std::string LlvmWriter::shift(UOp u, const std::string& a, const std::string& b, int lanes) {
  const DType d = u.dtype();
  const std::string t = type(d, lanes), word = plain_word(u.op(), d);
  if (shift_in_range(u)) return emit(word + " " + t + " " + a + ", " + b);
  // An amount beyond the width shifts everything out; LLVM would call it poison.
  const std::string limit = literal(d.bitsize() - 1, d, lanes);
  std::string over = emit("icmp ugt " + t + " " + b + ", " + limit);
  std::string safe = select(over, lanes, limit, b, d, lanes);
  std::string r = emit(word + " " + t + " " + a + ", " + safe);
  return word == "ashr" ? r : select(over, lanes, literal(0, d, lanes), r, d, lanes);
}

std::string LlvmWriter::divide(UOp u, const std::string& a, const std::string& b, int lanes) {
  const DType d = u.dtype();
  const std::string t = type(d, lanes);
  const bool sign = is_signed(d);
  const std::string word = std::string(sign ? "s" : "u") + (u.is(Ops::CDIV) ? "div" : "rem");
  const Bounds by = bounds_of(u.src(1)), of = bounds_of(u.src(0));
  const bool zero = by.lo <= 0 && by.hi >= 0, overflow = sign && by.lo <= -1 && by.hi >= -1 && of.lo <= int_min(d);
  std::string divisor = b, is_zero, is_minus;
  const std::string one = literal(1, d, lanes), nil = literal(0, d, lanes);
  if (zero) {
    is_zero = emit("icmp eq " + t + " " + b + ", " + nil);
    divisor = select(is_zero, lanes, one, divisor, d, lanes);
  }
  if (overflow) {
    is_minus = emit("icmp eq " + t + " " + b + ", " + literal(-1, d, lanes));
    divisor = select(is_minus, lanes, one, divisor, d, lanes);
  }
  std::string r = emit(word + " " + t + " " + a + ", " + divisor);
  if (overflow) {
    std::string negated = u.is(Ops::CDIV) ? emit("sub " + t + " " + nil + ", " + a) : nil;
    r = select(is_minus, lanes, negated, r, d, lanes);
  }
  return zero ? select(is_zero, lanes, nil, r, d, lanes) : r;
}

std::string LlvmWriter::convert(const std::string& v, DType from, DType to, int lanes) {
  const std::string tf = type(from, lanes), tt = type(to, lanes);
  auto instr = [&](const char* word) { return emit(std::string(word) + " " + tf + " " + v + " to " + tt); };
  if (from == to) return v;
  if (to.is_bool())
    return emit(std::string(from.is_float() ? "fcmp une " : "icmp ne ") + tf + " " + v + ", " +
                literal(from.is_float() ? ConstValue(0.0) : ConstValue(0), from, lanes));
  if (from.is_bool()) return instr(to.is_float() ? "uitofp" : "zext");
  if (from.is_int() && to.is_int()) {
    if (from.itemsize() == to.itemsize()) return v;
    return instr(from.itemsize() > to.itemsize() ? "trunc" : is_signed(from) ? "sext" : "zext");
  }
  if (from.is_int()) return instr(is_signed(from) ? "sitofp" : "uitofp");
  if (from == dtypes::float16 && to == dtypes::float32) return instr_to_float(v, lanes);
  if (to.is_float()) return instr(from.itemsize() > to.itemsize() ? "fptrunc" : "fpext");
  if (from == dtypes::float16) return convert(instr_to_float(v, lanes), dtypes::float32, to, lanes);
  // Saturating, to a signed type that is wide enough, so that negative values wrap in unsigned ones.
  auto saturate = [&](DType wide) {
    const std::string tw = type(wide, lanes), name = str("@llvm.fpto", is_signed(wide) ? "s" : "u", "i.sat.",
                                                         suffix(wide, lanes), ".", suffix(from, lanes));
    declare("declare " + tw + " " + name + "(" + tf + ")");
    return emit("call " + tw + " " + name + "(" + tf + " " + v + ")");
  };
  if (to == dtypes::uint64) {
    std::string negative = emit("fcmp olt " + tf + " " + v + ", " + literal(0.0, from, lanes));
    return select(negative, lanes, saturate(dtypes::int64), saturate(to), to, lanes);
  }
  const DType wide = to.itemsize() < 4 || to == dtypes::int32 ? dtypes::int32 : dtypes::int64;
  return convert(saturate(wide), wide, to, lanes);
}
std::string LlvmWriter::instr_to_float(const std::string& v, int lanes) {
  const std::string wide =
      emit("fpext " + type(dtypes::float16, lanes) + " " + v + " to " + type(dtypes::float32, lanes));
  return takes_halves_apart(lanes) ? unseen(wide, dtypes::float32, lanes) : wide;
}

/// x86 without AVX512-FP16 converts vectors of halves but does not compare them: LLVM does that lane by lane.
bool LlvmWriter::takes_halves_apart(int lanes) const {
  return lanes >= 4 && target_.arch == "x86_64" && target_.has("f16c") && !target_.has("avx512fp16");
}

/// Hides the origin of a vector from LLVM, which would compare halves where widened halves are compared.
std::string LlvmWriter::unseen(const std::string& v, DType d, int lanes) {
  const std::string t = type(d, lanes);
  if (lanes * d.itemsize() <= std::max(target_.vector_bytes, 16)) {
    const char* registers = target_.vector_bytes == 64 ? "v" : "x";
    return emit("call " + t + " asm \"\", \"=" + registers + ",0\"(" + t + " " + v + ") nounwind memory(none)");
  }
  std::vector<int64_t> all(static_cast<size_t>(lanes));
  std::iota(all.begin(), all.end(), 0);
  const auto middle = all.begin() + lanes / 2;
  const std::string low = unseen(shuffle(t, v, "poison", {all.begin(), middle}), d, lanes / 2),
                    high = unseen(shuffle(t, v, "poison", {middle, all.end()}), d, lanes / 2);
  return shuffle(type(d, lanes / 2), low, high, all);
}

/// Computes an operation on halves in floats: with equal results, as it is exact or rounds once from twice as many
/// bits.
std::string LlvmWriter::in_float(UOp u, const std::vector<std::string>& s, int lanes) {
  const DType half = dtypes::float16, wide = dtypes::float32;
  std::vector<std::string> x;
  for (const std::string& v : s) x.push_back(convert(v, half, wide, lanes));
  if (u.in(groups::kComparison))
    return emit(std::string(plain_word(u.op(), wide)) + " " + type(wide, lanes) + " " + x[0] + ", " + x[1]);
  std::string r;
  if (u.is(Ops::MAX))
    r = is_number(u.src(0)) ? maximum(x[1], x[0], wide, lanes, true)
                            : maximum(x[0], x[1], wide, lanes, is_number(u.src(1)));
  else r = intrinsic(u.is(Ops::SQRT) ? "sqrt" : "trunc", wide, lanes, {x[0]});
  return convert(r, wide, half, lanes);
}

std::string LlvmWriter::bitcast(const std::string& v, DType from, DType to, int lanes) {
  if (type(from, lanes) == type(to, lanes)) return v;
  if (from.is_bool() || to.is_bool()) {
    DType byte = dtypes::uint8;
    if (from.is_bool()) return bitcast(convert(v, from, byte, lanes), byte, to, lanes);
    return convert(bitcast(v, from, byte, lanes), byte, to, lanes);
  }
  return emit("bitcast " + type(from, lanes) + " " + v + " to " + type(to, lanes));
}

/// One ALU, CAST or BITCAST on operands that are already text; `lanes` is the width of the result.
std::string LlvmWriter::alu(UOp u, const std::vector<std::string>& s, int lanes) {
  const DType d = u.dtype(), in = u.src(0).dtype();
  const std::string t = type(in, lanes);
  if (in == dtypes::float16 && takes_halves_apart(lanes) &&
      u.in(groups::kComparison | Ops::MAX | Ops::SQRT | Ops::TRUNC))
    return in_float(u, s, lanes);
  switch (u.op()) {
    case Ops::CAST: return convert(s[0], in, d, lanes);
    case Ops::BITCAST: return bitcast(s[0], in, d, lanes);
    case Ops::WHERE: return select(s[0], view_.lanes(u.src(0)) == 1 ? 1 : lanes, s[1], s[2], d, lanes);
    case Ops::WMMA: return dot(u, s[0], s[1], s[2], lanes);
    case Ops::MULACC:
      if (d.is_float()) return intrinsic("fma", d, lanes, {s[0], s[1], s[2]});
      return emit(str(plain_word(Ops::ADD, d), " ", t, " ",
                      emit(str(plain_word(Ops::MUL, d), " ", t, " ", s[0], ", ", s[1])), ", ", s[2]));
    case Ops::MAX:
      if (is_number(u.src(0))) return maximum(s[1], s[0], d, lanes, true);
      return maximum(s[0], s[1], d, lanes, is_number(u.src(1)));
    case Ops::SHL:
    case Ops::SHR: return shift(u, s[0], s[1], lanes);
    case Ops::CDIV:
    case Ops::CMOD: return d.is_float() ? remainder(s[0], s[1], d, lanes) : divide(u, s[0], s[1], lanes);
    case Ops::NEG:
      return emit(d.is_float() ? "fneg " + t + " " + s[0] : "sub " + t + " " + literal(0, d, lanes) + ", " + s[0]);
    case Ops::SQRT: return intrinsic("sqrt", d, lanes, {s[0]});
    case Ops::TRUNC: return d.is_float() ? intrinsic("trunc", d, lanes, {s[0]}) : s[0];
    case Ops::RECIPROCAL: return emit("fdiv " + t + " " + literal(1.0, d, lanes) + ", " + s[0]);
    default: break;
  }
  const char* word = plain_word(u.op(), in);
  TG_ASSERT(word && s.size() == 2, "the LLVM renderer does not know ", u);
  const bool wraps = u.in(Ops::ADD | Ops::SUB | Ops::MUL) && is_signed(d) && never_wraps(u);
  return emit(std::string(word) + (wraps ? " nsw " : " ") + t + " " + s[0] + ", " + s[1]);
}

/// Lane 0 of an affine vector, computed in scalars: the address of a vector access.
std::string LlvmWriter::lane0(UOp u) {
  u = strip_after(u);
  if (view_.lanes(u) == 1) return value(u, 1);
  if (is_lane(u)) return "0";
  const std::string& name = lane0_[static_cast<size_t>(view_.position(u))];
  TG_ASSERT(!name.empty(), "address not emitted: ", u);
  return name;
}

/// True for values whose low 16 bits are zero.
static bool is_short(const std::array<ConstValue, 16>& values) {
  return std::all_of(values.begin(), values.end(), [](const ConstValue& v) {
    return !(std::bit_cast<uint32_t>(static_cast<float>(v.as_double())) & 0xffff);
  });
}

/// Returns the name of a constant vector that is to stay in a register.
std::string LlvmWriter::constant(const std::string& vector, const std::string& text) {
  std::string& name = literals_[text];
  if (name.empty()) {
    name = "%k" + std::to_string(literals_.size());
    entry_ += "  " + name + " = bitcast " + vector + " " + text + " to " + vector + "\n";
  }
  return name;
}

/// A float for bits 16 to 19 of each word, with zeros in its low half: the high halves of a permutation of halves. Its
/// indices have a fifth bit, the values are there twice. So two groups of bits, 16 apart, share a shift.
std::string LlvmWriter::lookup_high(const std::string& words, const std::array<ConstValue, 16>& values) {
  std::string text = "<";
  for (size_t k = 0; k < 32; k++)
    text += str(k ? ", i16 " : "i16 ", std::bit_cast<uint32_t>(static_cast<float>(values[k % 16].as_double())) >> 16);
  std::string& mask = literals_["mask of high halves"];
  if (mask.empty()) {
    mask = "%k" + std::to_string(literals_.size());
    // LLVM would replace a mask that it knows by an AND.
    entry_ += "  " + mask + "i = call i32 asm \"\", \"=r,0\"(i32 -1431655766) nounwind memory(none)\n";
    entry_ += "  " + mask + " = bitcast i32 " + mask + "i to <32 x i1>\n";
  }
  declare("declare <32 x i16> @llvm.x86.avx512.permvar.hi.512(<32 x i16>, <32 x i16>)");
  const std::string halves = "<32 x i16> ", at = emit("bitcast <16 x i32> " + words + " to <32 x i16>");
  const std::string of = emit("call <32 x i16> @llvm.x86.avx512.permvar.hi.512(" + halves +
                              constant("<32 x i16>", text + ">") + ", " + halves + at + ")");
  return emit("bitcast <32 x i16> " +
              emit("select <32 x i1> " + mask + ", " + halves + of + ", " + halves + "zeroinitializer") +
              " to <16 x float>");
}

/// Looks up a float that is a function of four bits, of two operations or more, as a permutation of the sixteen values.
/// Returns "" for other values. The instructions it replaces have been written and are dead unless others use them.
std::string LlvmWriter::lookup(const Inst& in) {
  if (in.lanes != 16 || !target_.has("avx512f")) return "";
  const Table16* table = accesses_.tables.of(in.u);
  if (!table || table->ops < 2 || in.u.dtype() != dtypes::float32 || view_.lanes(table->source) != 16) return "";
  const DType d = in.u.dtype(), index = dtypes::uint32;
  int shift = table->shift;
  // Bytes that are loaded as words are shifted out of the words.
  const LaneBlock* bytes = table->source.is(Ops::LOAD) ? accesses_.blocks.of(table->source) : nullptr;
  const bool in_word = bytes && bytes->words && bytes->members.size() == 4;
  Splat& word = words_[view_.position(in_word ? bytes->first : table->source)];
  if (in_word) {
    if (word.block != block_) return "";
    shift += 8 * static_cast<int>(std::find(bytes->members.begin(), bytes->members.end(), table->source) -
                                  bytes->members.begin());
  } else if (word.block != block_)
    word = {block_, 16, convert(value(table->source, 16), table->source.dtype(), index, 16)};
  std::string i = word.name, text = "<";
  const bool high = in_word && shift >= 16 && target_.has("avx512bw") && is_short(table->values);
  if (shift - 16 * high) i = emit("lshr " + type(index, 16) + " " + i + ", " + literal(shift - 16 * high, index, 16));
  if (high) return lookup_high(i, table->values);
  for (size_t k = 0; k < 16; k++) text += str(k ? ", float " : "float ", literal(table->values[k], d));
  const std::string values = constant("<16 x float>", text + ">");
  declare("declare <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float>, <16 x i32>)");
  return emit("call <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float> " + values + ", <16 x i32> " + i + ")");
}

namespace {
/// p * 2^n as the formulas of exponentials write it, in two products whose exponents are halves of the low bits of a
/// rounded sum; `sum` is n before the rounder is taken off.
struct ScaledProduct {
  UOp factor, sum;
  double rounder;
};

bool has_literal(UOp sum, double v) {
  return sum.in(Ops::ADD | Ops::MULACC) &&
         std::any_of(sum.srcs().begin(), sum.srcs().end(), [&](UOp s) { return s.is_const() && s.const_float() == v; });
}
std::optional<ScaledProduct> match_scaled(UOp u) {
  const bool single = u.dtype() == dtypes::float32;
  const double rounder = single ? 0x1.8p23 + 254 : 0x1.8p52 + 2046;
  auto power = [&](UOp x) {  // the exponent in bits that become a float; empty: none
    const bool is = x.is(Ops::BITCAST) && x.src(0).is(Ops::SHL) && x.src(0).src(1).is_const_int(single ? 23 : 52);
    return is ? x.src(0).src(0) : UOp();
  };
  auto is_half = [](UOp x, UOp bits) { return x.is(Ops::SHR) && x.src(0) == bits && x.src(1).is_const_int(1); };
  for (size_t i = 0; i < 2; i++) {
    UOp second = power(u.src(1 - i)), inner = u.src(i);
    if (!second || !second.is(Ops::SUB) || !inner.is(Ops::MUL)) continue;
    UOp bits = second.src(0);
    if (!bits.is(Ops::BITCAST) || !has_literal(bits.src(0), rounder)) continue;
    for (size_t k = 0; k < 2; k++)
      if (UOp first = power(inner.src(1 - k)); first && second.src(1) == first && is_half(first, bits))
        return ScaledProduct{inner.src(k), bits.src(0), rounder};
  }
  return {};
}
}  // namespace

/// Returns the mask, an integer, of the lanes with n > least or NaN.
std::string LlvmWriter::mask_above(const std::string& n, double least, DType d, int lanes) {
  std::string bits = str("<", lanes, " x i1>");
  std::string above = emit("fcmp ugt " + type(d, lanes) + " " + n + ", " + literal(least, d, lanes));
  if (lanes < 8) {
    std::string order;
    for (int i = 0; i < 8; i++) order += str(i ? ", i32 " : "i32 ", std::min(i, lanes));
    above = emit("shufflevector " + bits + " " + above + ", " + bits + " zeroinitializer, <8 x i32> <" + order + ">");
    bits = "<8 x i1>";
  }
  return emit("bitcast " + bits + " " + above + str(" to i", std::max(lanes, 8)));
}

/// Scales p * 2^n: AVX-512 does it in one instruction, which takes n as a float. Lanes that are far below the least
/// number are masked, since a result that underflows takes a hundred times as long. Empty where u is anything else.
std::string LlvmWriter::scaled(UOp u, int lanes) {
  const DType d = u.dtype();
  const int bytes = lanes * d.itemsize();
  if (!u.is(Ops::MUL) || (d != dtypes::float32 && d != dtypes::float64) || lanes < 2 || !target_.has("avx512f"))
    return "";
  if (bytes != 64 && ((bytes != 16 && bytes != 32) || !target_.has("avx512vl"))) return "";
  const auto p = match_scaled(u);
  if (!p || view_.lanes(p->sum) != lanes) return "";
  const std::string t = type(d, lanes), mask = str("i", std::max(lanes, 8)), wide = str(bytes * 8);
  const std::string name = str("@llvm.x86.avx512.mask.scalef.", d == dtypes::float32 ? "ps." : "pd.", wide);
  declare("declare " + t + " " + name + "(" + t + ", " + t + ", " + t + ", " + mask +
          (bytes == 64 ? ", i32 immarg" : "") + ")");
  const std::string n = emit("fadd " + t + " " + value(p->sum, lanes) + ", " + literal(-p->rounder, d, lanes));
  const double zero = d == dtypes::float32 ? -200 : -1200;  // from there on the result is 0
  const std::string above = mask_above(n, zero, d, lanes);
  return emit("call " + t + " " + name + "(" + t + " " + value(p->factor, lanes) + ", " + t + " " + n + ", " + t +
              " zeroinitializer, " + mask + " " + above + (bytes == 64 ? ", i32 4" : "") + ")");
}

void LlvmWriter::arithmetic(const Inst& in) {
  const size_t at = static_cast<size_t>(view_.position(in.u));
  if (wide_used_[at] && is_wide_sum(in.u)) {
    const std::string a = wide(in.u.src(0)), b = wide(in.u.src(1));
    wide_[at] = emit((in.u.is(Ops::ADD) ? "add nsw i64 " : "mul nsw i64 ") + a + ", " + b);
  }
  if (!used_[at]) return;
  std::vector<std::string> s;
  if (in.need_value) values_[at] = lookup(in);
  if (in.need_value && values_[at].empty()) values_[at] = scaled(in.u, in.lanes);
  if (in.need_value && values_[at].empty()) values_[at] = grouped_half(in.u, in.lanes);
  if (in.need_value && values_[at].empty()) {
    for (uint32_t i = 0; i < in.u.nsrc(); i++)
      s.push_back(value(in.u.src(i), i == 0 && in.u.is(Ops::WHERE) ? view_.lanes(in.u.src(0)) : in.lanes));
    values_[at] = alu(in.u, s, in.lanes);
  }
  if (in.need_lane0 && in.lanes > 1) {
    s.clear();
    for (UOp x : in.u.srcs()) s.push_back(lane0(x));
    lane0_[at] = alu(in.u, s, 1);
  }
}

/// Reduces lanes: i and i + half, until one is left.
void LlvmWriter::reduce(const Inst& in) {
  UOp u = in.u;
  for (size_t i = 1; i < u.nsrc(); i++) TG_ASSERT(is_lane(u.src(i)), "a reduce over a loop reached the renderer: ", u);
  const DType d = u.dtype();
  int n = view_.lanes(u.src(0));
  TG_ASSERT(n > 1, "a reduce of what is the same in every lane reached the renderer: ", u);
  std::string v = value(u.src(0), n);
  const Ops op = u.arg<ReduceArg>().op;
  while (n > 1) {
    const int half = (n + 1) / 2;
    auto part = [&](int from) {
      std::string mask;
      for (int i = 0; i < half; i++) mask += str(i ? ", " : "", "i32 ", from + i < n ? str(from + i) : "poison");
      const std::string t = type(d, n);
      return emit("shufflevector " + t + " " + v + ", " + t + " poison, <" + str(half) + " x i32> <" + mask + ">");
    };
    auto lane = [&](int i) { return emit("extractelement " + type(d, n) + " " + v + ", i64 " + str(i)); };
    std::string lo = half == 1 ? lane(0) : part(0), hi = half == 1 ? lane(1) : part(half), r;
    if (op == Ops::MAX) r = maximum(lo, hi, d, half, false);
    else r = emit(std::string(plain_word(op, d)) + " " + type(d, half) + " " + lo + ", " + hi);
    if (n % 2 && half > 1) {  // the lane without a partner stays as it is
      std::string keep = lane(half - 1);
      r = emit("insertelement " + type(d, half) + " " + r + ", " + type(d) + " " + keep + ", i64 " + str(half - 1));
    }
    v = r;
    n = half;
  }
  values_[static_cast<size_t>(view_.position(u))] = v;
}

/// Finds the arithmetic that only the last source of a rare choice needs.
void LlvmWriter::find_rare() {
  const auto& insts = view_.insts();
  const auto size = static_cast<int>(insts.size());
  rarely_.assign(insts.size(), -1);
  const auto is_rare = [](const Inst& in) { return in.u.is(Ops::WHERE) && in.u.tag() == Renderer::kRarelyElse; };
  if (std::none_of(insts.begin(), insts.end(), is_rare)) return;
  std::vector<std::vector<int>> users(insts.size());
  for (int i = 0; i < size; i++)
    for (UOp s : insts[static_cast<size_t>(i)].u.srcs())
      if (s.in(groups::kElementwise)) users[static_cast<size_t>(view_.position(s))].push_back(i);
  for (int w = 0; w < size; w++) {
    UOp choice = insts[static_cast<size_t>(w)].u;
    if (!is_rare(insts[static_cast<size_t>(w)])) continue;
    for (int i = w; i-- > 0;) {
      const auto at = static_cast<size_t>(i);
      if (!insts[at].u.in(groups::kElementwise) || users[at].empty() || rarely_[at] >= 0) continue;
      if (std::all_of(users[at].begin(), users[at].end(), [&](int user) {
            return rarely_[static_cast<size_t>(user)] == w ||
                   (user == w && view_.position(choice.src(2)) == i && view_.position(choice.src(0)) != i &&
                    view_.position(choice.src(1)) != i);
          }))
        rarely_[at] = w;
    }
  }
}

void LlvmWriter::rare_choice(const Inst& in) {
  UOp u = in.u;
  const int at = view_.position(u), lanes = in.lanes, wide = view_.lanes(u.src(0));
  const std::string id = std::to_string(next_++), t = type(u.dtype(), lanes);
  const std::string cond = value(u.src(0), wide), usual = value(u.src(1), lanes);
  const std::string all = wide > 1 ? all_lanes(cond, wide) : cond, before = label_;
  const int weights = metadata("!{!\"branch_weights\", i32 2000, i32 1}");
  line("br i1 " + all + ", label %J" + id + ", label %F" + id + ", !prof !" + str(weights));
  begin_block("F" + id);
  for (size_t i = 0; i < static_cast<size_t>(at); i++)
    if (rarely_[i] == at) instruction(view_.insts()[i]);
  const std::string rare = value(u.src(2), lanes), chosen = select(cond, wide, usual, rare, u.dtype(), lanes),
                    after = label_;
  line("br label %J" + id);
  begin_block("J" + id);
  values_[static_cast<size_t>(at)] =
      emit("phi " + t + " [ " + usual + ", %" + before + " ], [ " + chosen + ", %" + after + " ]");
}

void LlvmWriter::open_loop(UOp r) {
  const size_t at = static_cast<size_t>(view_.position(r));
  const std::string id = std::to_string(at) + part_, from = label_;
  const bool thread = is_thread(r);
  const std::string t = "i64", first = thread ? "%begin" : "0";
  std::string last = thread ? "%end" : value(r.src(0), 1);
  if (!thread && !r.src(0).is_const() && r.dtype().itemsize() < 8)
    last = emit("sext " + type(r.dtype()) + " " + last + " to i64");
  Loop loop{r, "L" + id, first, last, t, false};
  // A loop that may run zero times is entered on a condition; its values are never used behind it.
  std::string pre = from;
  if (thread || vmin(r.src(0)) < 1) {
    std::string enter = emit("icmp slt " + t + " " + first + ", " + last);
    line("br i1 " + enter + ", label %P" + id + ", label %X" + id);
    begin_block("P" + id);
    pre = "P" + id;
  }
  line("br label %L" + id);
  begin_block("L" + id);
  line("%i" + id + " = phi " + t + " [ " + first + ", %" + pre + " ], [ %n" + id + ", %E" + id + " ]");
  values_[at] = "%i" + id;
  if (used_[at] && r.dtype().itemsize() < 8) values_[at] = emit("trunc i64 %i" + id + " to " + type(r.dtype()));
  loops_.push_back(loop);
}

void LlvmWriter::close_loop(UOp r) {
  TG_ASSERT(!loops_.empty() && loops_.back().range == r, "END of a loop that is not the innermost: ", r);
  const Loop loop = loops_.back();
  loops_.pop_back();
  const std::string id = loop.label.substr(1);
  line("br label %E" + id);
  begin_block("E" + id);
  line("%n" + id + " = add nuw nsw " + loop.type + " %i" + id + ", 1");
  line("%c" + id + " = icmp slt " + loop.type + " %n" + id + ", " + loop.last);
  const int64_t unrolled = aligned_ || aligned_parameters_.empty() ? unrolled_iterations(view_, r, grid_ ? 4 : 1) : 1;
  const std::string repeats =
      unrolled > 1 ? str("!", metadata(str("!{!\"llvm.loop.unroll.count\", i32 ", unrolled, "}"))) : "!1";
  const int properties = metadata(str("distinct !{!", next_metadata_, ", ", repeats, ", !2}"));
  line("br i1 %c" + id + ", label %L" + id + ", label %X" + id + ", !llvm.loop !" + str(properties));
  begin_block("X" + id);
}

void LlvmWriter::read(UOp u) {
  if (grid_ && is_copied(view_, u)) return;  // with the store
  if (const LaneBlock* run = accesses_.runs.of(u)) {
    if (run->first == u) load_run(*run);
    return read_member(*run, u);
  }
  if (const LaneBlock* b = accesses_.blocks.of(u)) return block(u, *b);
  values_[static_cast<size_t>(view_.position(u))] = load(u);
}

void LlvmWriter::write_to(UOp u) {
  if (grid_ && is_copied(view_, strip_after(u.src(1)))) return copy(u);
  if (const LaneBlock* run = accesses_.runs.of(u)) {
    if (run->last == u) store_run(*run);
    return;
  }
  if (const LaneBlock* b = accesses_.blocks.of(u)) return block(u, *b);
  store(u);
}

void LlvmWriter::instruction(const Inst& in) {
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
    case Ops::BUFFER: return;  // at the entry
    case Ops::RANGE:
      if (!is_lane(u)) return open_loop(u);
      if (in.lanes > 1 && in.need_value) {
        std::string v = "<";
        for (int i = 0; i < in.lanes; i++) v += str(i ? ", " : "", type(u.dtype()), " ", i);
        values_[static_cast<size_t>(view_.position(u))] = v + ">";
      }
      return;
    case Ops::END:
      for (size_t i = u.nsrc(); i-- > 1;)
        if (u.src(i).is(Ops::RANGE) && !is_lane(u.src(i))) close_loop(u.src(i));
      return;
    case Ops::LOAD: return read(u);
    case Ops::STORE: return write_to(u);
    case Ops::CUSTOM: return prefetch(u);
    case Ops::SPECIAL: return grid_index(u);
    case Ops::BARRIER: return barrier(u);
    case Ops::REDUCE: return reduce(in);
    case Ops::CUSTOMI: return is_matrix_load(u) ? matrix_load(u) : shuffle_across(u);
    case Ops::GETTUPLE: return element(u);
    case Ops::WMMA: return u.nsrc() > 3 ? product(u) : arithmetic(in);
    default:
      TG_ASSERT(u.in(groups::kElementwise), "the LLVM renderer does not know ", u);
      return u.is(Ops::WHERE) && u.tag() == Renderer::kRarelyElse ? rare_choice(in) : arithmetic(in);
  }
}

LlvmWriter::LlvmWriter(const Program& p, const Target& target, bool grid)
    : p_(p),
      target_(target),
      grid_(grid),
      view_(p),
      accesses_(view_, target,
                {.transposes = !grid,
                 .words = target.has("avx512bw"),
                 .tables = target.has("avx512f"),
                 .run_bytes = grid ? kRunBytes : 0}) {
  values_.resize(view_.insts().size());
  lane0_.resize(view_.insts().size());
  splats_.resize(view_.insts().size());
  pointers_.resize(view_.insts().size());
  wide_.resize(view_.insts().size());
  find_used();
  find_rare();
}

void LlvmWriter::write_body() {
  for (size_t i = 0; i < view_.insts().size(); i++) {
    if (rarely_[i] >= 0) continue;
    const size_t together = reduces_side_by_side(i);
    if (together > 1) reduce_side_by_side(i, together);
    else instruction(view_.insts()[i]);
    i += together - 1;
  }
  TG_ASSERT(loops_.empty(), "a loop without END: ", loops_.back().range);
}

std::string LlvmWriter::write() {
  label_ = "entry";
  entry();
  grid_ ? write_grid() : write_body();
  if (accesses_.hints.any_nontemporal()) {
    declare("declare void @llvm.x86.sse.sfence()");  // others see the stores before the kernel ends
    line("call void @llvm.x86.sse.sfence()");
  }
  const std::string head =
      grid_ ? grid_head() : "define void @" + p_.name + "(ptr %buffers, ptr %vars, i64 %begin, i64 %end)";
  std::string out = (newest_ ? str(kNeedsNewPtx, "\n") : "") + globals_ + head + " #0 {\nentry:\n" + entry_ + body_ +
                    "  ret void\n}\n";
  for (const std::string& d : declarations_) out += d + "\n";
  out +=
      str("attributes #0 = { nounwind \"no-builtins\" \"prefer-vector-width\"=\"", target_.vector_bytes * 8, "\" }\n");
  out +=
      "!0 = distinct !{!0}\n!1 = !{!\"llvm.loop.unroll.disable\"}\n!2 = !{!\"llvm.loop.vectorize.enable\", i1 "
      "false}\n" +
      metadata_;
  return grid_ ? out + grid_metadata() : out;
}

}  // namespace tg
