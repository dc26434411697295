/// \file The relocation types compilers emit for position independent code in the small model, on x86-64, AArch64 and
/// RISC-V (without linker relaxation).
#include <cstring>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/elf_loader.h"

namespace tg {
namespace {

enum X86 : uint32_t {
  kX86None = 0,
  kX86Abs64 = 1,
  kX86Pc32 = 2,
  kX86Plt32 = 4,
  kX86GotPcRel = 9,
  kX86Abs32 = 10,
  kX86Abs32S = 11,
  kX86Pc64 = 24,
  kX86GotPcRelX = 41,
  kX86RexGotPcRelX = 42
};
enum Arm : uint32_t {
  kArmNone = 0,
  kArmAbs64 = 257,
  kArmPrel64 = 260,
  kArmPrel32 = 261,
  kArmAdrPage = 275,
  kArmAddLo12 = 277,
  kArmLdst8 = 278,
  kArmJump26 = 282,
  kArmCall26 = 283,
  kArmLdst16 = 284,
  kArmLdst32 = 285,
  kArmLdst64 = 286,
  kArmLdst128 = 299,
  kArmGotPage = 311,
  kArmGotLd64 = 312
};
enum Riscv : uint32_t {
  kRiscvNone = 0,
  kRiscv32 = 1,
  kRiscv64 = 2,
  kRiscvBranch = 16,
  kRiscvJal = 17,
  kRiscvCall = 18,
  kRiscvCallPlt = 19,
  kRiscvGotHigh = 20,
  kRiscvHigh = 23,
  kRiscvLowI = 24,
  kRiscvLowS = 25,
  kRiscvAdd32 = 35,
  kRiscvAdd64 = 36,
  kRiscvSub32 = 39,
  kRiscvSub64 = 40,
  kRiscvShortBranch = 44,
  kRiscvShortJump = 45,
  kRiscv32Pc = 57
};

void need_bytes(const Relocation& r, size_t n) {
  TG_CHECK(FormatError, r.width >= n, "[elf] relocation type ", r.type, " reaches past its section");
}

template <class T> void put(const Relocation& r, T value) {
  need_bytes(r, sizeof(T));
  std::memcpy(r.place, &value, sizeof(T));
}

int32_t narrow_signed(const Relocation& r, uint64_t value) {
  auto wide = static_cast<int64_t>(value);
  TG_CHECK(FormatError, wide == static_cast<int32_t>(wide), "[elf] relocation type ", r.type,
           " does not reach its symbol");
  return static_cast<int32_t>(wide);
}

/// Replaces the bits of an instruction under `mask`.
void put_bits(const Relocation& r, uint32_t bits, uint32_t mask) {
  need_bytes(r, 4);
  uint32_t old;
  std::memcpy(&old, r.place, 4);
  put<uint32_t>(r, (old & ~mask) | (bits & mask));
}

void put_arm_branch(const Relocation& r) {
  auto delta = static_cast<int64_t>(r.symbol + r.addend - r.address);
  TG_CHECK(FormatError, delta % 4 == 0 && delta >= -(int64_t{1} << 27) && delta < (int64_t{1} << 27),
           "[elf] branch does not reach its symbol");
  put_bits(r, static_cast<uint32_t>(delta >> 2), 0x03ffffff);
}

void put_arm_page(const Relocation& r, uint64_t target) {
  auto pages = static_cast<int64_t>((target & ~uint64_t{4095}) - (r.address & ~uint64_t{4095})) >> 12;
  TG_CHECK(FormatError, pages >= -(int64_t{1} << 20) && pages < (int64_t{1} << 20),
           "[elf] page address does not reach its symbol");
  auto p = static_cast<uint32_t>(pages);
  put_bits(r, (p & 3) << 29 | ((p >> 2) & 0x7ffff) << 5, 0x60ffffe0);
}

/// Sets the low 12 bits of an address in the immediate of an add, load or store that counts in units of 1 << scale
/// bytes.
void put_arm_low(const Relocation& r, uint64_t target, int scale) {
  auto low = static_cast<uint32_t>(target & 4095);
  TG_CHECK(FormatError, (low & ((1u << scale) - 1)) == 0, "[elf] misaligned load or store");
  put_bits(r, (low >> scale) << 10, 0x003ffc00);
}

void apply_x86(const Relocation& r) {
  const uint64_t value = r.symbol + static_cast<uint64_t>(r.addend);
  switch (r.type) {
    case kX86None: return;
    case kX86Abs64: return put<uint64_t>(r, value);
    case kX86Pc64: return put<uint64_t>(r, value - r.address);
    case kX86Pc32:
    case kX86Plt32: return put<int32_t>(r, narrow_signed(r, value - r.address));
    case kX86Abs32S: return put<int32_t>(r, narrow_signed(r, value));
    case kX86Abs32:
      TG_CHECK(FormatError, value <= UINT32_MAX, "[elf] 32-bit address does not fit");
      return put<uint32_t>(r, static_cast<uint32_t>(value));
    case kX86GotPcRel:
    case kX86GotPcRelX:
    case kX86RexGotPcRelX:
      return put<int32_t>(r, narrow_signed(r, r.got_slot + static_cast<uint64_t>(r.addend) - r.address));
    default: break;
  }
  throw FormatError(str("[elf] got relocation type ", r.type, ", which the loader does not know"));
}

void apply_arm(const Relocation& r) {
  const uint64_t value = r.symbol + static_cast<uint64_t>(r.addend);
  switch (r.type) {
    case kArmNone: return;
    case kArmAbs64: return put<uint64_t>(r, value);
    case kArmPrel64: return put<uint64_t>(r, value - r.address);
    case kArmPrel32: return put<int32_t>(r, narrow_signed(r, value - r.address));
    case kArmAdrPage: return put_arm_page(r, value);
    case kArmAddLo12:
    case kArmLdst8: return put_arm_low(r, value, 0);
    case kArmLdst16: return put_arm_low(r, value, 1);
    case kArmLdst32: return put_arm_low(r, value, 2);
    case kArmLdst64: return put_arm_low(r, value, 3);
    case kArmLdst128: return put_arm_low(r, value, 4);
    case kArmJump26:
    case kArmCall26: return put_arm_branch(r);
    case kArmGotPage: return put_arm_page(r, r.got_slot + static_cast<uint64_t>(r.addend));
    case kArmGotLd64: return put_arm_low(r, r.got_slot + static_cast<uint64_t>(r.addend), 3);
    default: break;
  }
  throw FormatError(str("[elf] got relocation type ", r.type, ", which the loader does not know"));
}

template <class T> void add(const Relocation& r, T value) {
  need_bytes(r, sizeof(T));
  T old;
  std::memcpy(&old, r.place, sizeof(T));
  put<T>(r, static_cast<T>(old + value));
}

int64_t riscv_distance(const Relocation& r, uint64_t value, int bits) {
  const auto delta = static_cast<int64_t>(value - r.address);
  const int64_t reach = int64_t{1} << (bits - 1);
  TG_CHECK(FormatError, delta % 2 == 0 && delta >= -reach && delta < reach, "[elf] branch does not reach its symbol");
  return delta;
}

/// Returns the bits of `value` from `from` on, `n` of them, moved to bit `to`.
uint32_t field(int64_t value, int from, int n, int to) {
  return (static_cast<uint32_t>(value >> from) & ((1u << n) - 1)) << to;
}

/// Puts the low 12 bits of a distance into the immediate of an addi or load (type I) or of a store (type S).
void put_riscv_low_i(const Relocation& r, int64_t v) { put_bits(r, field(v, 0, 12, 20), 0xfff00000); }
void put_riscv_low_s(const Relocation& r, int64_t v) {
  put_bits(r, field(v, 0, 5, 7) | field(v, 5, 7, 25), 0xfe000f80);
}

/// Puts the upper 20 bits into an auipc: rounded, since the low 12 bits that are added to it have a sign.
void put_riscv_high(const Relocation& r, int64_t distance) {
  TG_CHECK(FormatError, distance >= -(int64_t{1} << 31) && distance < (int64_t{1} << 31) - 0x800,
           "[elf] relocation type ", r.type, " does not reach its symbol");
  put_bits(r, static_cast<uint32_t>(distance + 0x800), 0xfffff000);
}

/// Patches an auipc and the jalr behind it.
void put_riscv_call(const Relocation& r, uint64_t value) {
  need_bytes(r, 8);
  const auto distance = static_cast<int64_t>(value - r.address);
  put_riscv_high(r, distance);
  Relocation second = r;
  second.place += 4;
  second.width -= 4;
  put_riscv_low_i(second, distance);
}

void put_riscv_branch(const Relocation& r, uint64_t value) {
  const int64_t v = riscv_distance(r, value, 13);
  put_bits(r, field(v, 12, 1, 31) | field(v, 5, 6, 25) | field(v, 1, 4, 8) | field(v, 11, 1, 7), 0xfe000f80);
}

void put_riscv_jal(const Relocation& r, uint64_t value) {
  const int64_t v = riscv_distance(r, value, 21);
  put_bits(r, field(v, 20, 1, 31) | field(v, 1, 10, 21) | field(v, 11, 1, 20) | field(v, 12, 8, 12), 0xfffff000);
}

/// Replaces the bits of a 16-bit instruction under `mask`.
void put_short_bits(const Relocation& r, uint32_t bits, uint16_t mask) {
  need_bytes(r, 2);
  uint16_t old;
  std::memcpy(&old, r.place, 2);
  put<uint16_t>(r, static_cast<uint16_t>((old & ~mask) | (bits & mask)));
}

void put_riscv_short_branch(const Relocation& r, uint64_t value) {
  const int64_t v = riscv_distance(r, value, 9);
  put_short_bits(r, field(v, 8, 1, 12) | field(v, 3, 2, 10) | field(v, 6, 2, 5) | field(v, 1, 2, 3) | field(v, 5, 1, 2),
                 0x1c7c);
}

void put_riscv_short_jump(const Relocation& r, uint64_t value) {
  const int64_t v = riscv_distance(r, value, 12);
  put_short_bits(r,
                 field(v, 11, 1, 12) | field(v, 4, 1, 11) | field(v, 8, 2, 9) | field(v, 10, 1, 8) | field(v, 6, 1, 7) |
                     field(v, 7, 1, 6) | field(v, 1, 3, 3) | field(v, 5, 1, 2),
                 0x1ffc);
}

void apply_riscv(const Relocation& r) {
  const uint64_t value = r.symbol + static_cast<uint64_t>(r.addend);
  const auto distance = static_cast<int64_t>(value - r.address);
  switch (r.type) {
    case kRiscvNone: return;
    case kRiscv64: return put<uint64_t>(r, value);
    case kRiscv32:
      TG_CHECK(FormatError, value <= UINT32_MAX, "[elf] 32-bit address does not fit");
      return put<uint32_t>(r, static_cast<uint32_t>(value));
    case kRiscv32Pc: return put<int32_t>(r, narrow_signed(r, value - r.address));
    case kRiscvAdd32: return add<uint32_t>(r, static_cast<uint32_t>(value));
    case kRiscvSub32: return add<uint32_t>(r, -static_cast<uint32_t>(value));
    case kRiscvAdd64: return add<uint64_t>(r, value);
    case kRiscvSub64: return add<uint64_t>(r, -value);
    case kRiscvBranch: return put_riscv_branch(r, value);
    case kRiscvJal: return put_riscv_jal(r, value);
    case kRiscvShortBranch: return put_riscv_short_branch(r, value);
    case kRiscvShortJump: return put_riscv_short_jump(r, value);
    case kRiscvCall:
    case kRiscvCallPlt: return put_riscv_call(r, value);
    case kRiscvHigh: return put_riscv_high(r, distance);
    case kRiscvGotHigh:
      return put_riscv_high(r, static_cast<int64_t>(r.got_slot + static_cast<uint64_t>(r.addend) - r.address));
    case kRiscvLowI: return put_riscv_low_i(r, distance);
    case kRiscvLowS: return put_riscv_low_s(r, distance);
    default: break;
  }
  throw FormatError(str("[elf] got relocation type ", r.type, ", which the loader does not know"));
}

}  // namespace

RelocationNeed relocation_need(uint16_t machine, uint32_t type) {
  if (machine == kElfX86_64) switch (type) {
      case kX86GotPcRel:
      case kX86GotPcRelX:
      case kX86RexGotPcRelX: return RelocationNeed::kSlot;
      case kX86None:
      case kX86Abs64:
      case kX86Pc32:
      case kX86Plt32:
      case kX86Abs32:
      case kX86Abs32S:
      case kX86Pc64: return RelocationNeed::kNone;
      default: return RelocationNeed::kUnknown;
    }
  if (machine == kElfAArch64) switch (type) {
      case kArmGotPage:
      case kArmGotLd64: return RelocationNeed::kSlot;
      case kArmNone:
      case kArmAbs64:
      case kArmPrel64:
      case kArmPrel32:
      case kArmAdrPage:
      case kArmAddLo12:
      case kArmLdst8:
      case kArmLdst16:
      case kArmLdst32:
      case kArmLdst64:
      case kArmLdst128:
      case kArmJump26:
      case kArmCall26: return RelocationNeed::kNone;
      default: return RelocationNeed::kUnknown;
    }
  if (machine == kElfRiscV) switch (type) {
      case kRiscvGotHigh: return RelocationNeed::kSlot;
      case kRiscvLowI:
      case kRiscvLowS: return RelocationNeed::kHighPart;
      case kRiscvNone:
      case kRiscv32:
      case kRiscv64:
      case kRiscvBranch:
      case kRiscvJal:
      case kRiscvCall:
      case kRiscvCallPlt:
      case kRiscvHigh:
      case kRiscvAdd32:
      case kRiscvAdd64:
      case kRiscvSub32:
      case kRiscvSub64:
      case kRiscvShortBranch:
      case kRiscvShortJump:
      case kRiscv32Pc: return RelocationNeed::kNone;
      default: return RelocationNeed::kUnknown;
    }
  return RelocationNeed::kUnknown;
}

void apply_relocation(const Relocation& r) {
  if (r.machine == kElfX86_64) return apply_x86(r);
  if (r.machine == kElfAArch64) return apply_arm(r);
  if (r.machine == kElfRiscV) return apply_riscv(r);
  throw FormatError(str("[elf] got an object for machine ", r.machine));
}

}  // namespace tg
