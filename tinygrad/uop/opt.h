/// \file Opt: one optimisation of a kernel; its text, its hash and its bytes.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/hash.h"

namespace tg {
class ByteReader;
class ByteWriter;

/// Kinds of kernel optimisation. codegen/opt/kernel_axes.h says what each means by `axis` and `arg`; the numbers are
/// those of python/tinygrad_cpp/uop/ops.py, one less.
enum class OptOp : uint8_t {
  kTc,
  kUpcast,
  kUnroll,
  kVector,
  kLocal,
  kThread,
  kGroup,
  kGroupTop,
  kNoLocals,
  kPadTo,
  kSwap,
  kSplit,
  kStage,
  kStageWindow,
  kPacked4
};
constexpr int kOptOpCount = 15;
const char* name_of(OptOp op);

struct Opt {
  OptOp op;
  int32_t axis = 0;
  int64_t arg = 0;
  bool operator==(const Opt&) const = default;
};
using Opts = std::vector<Opt>;

/// Prints "UPCAST(0, 4)".
std::ostream& operator<<(std::ostream&, const Opt&);
/// Returns the opts as text, separated by spaces.
std::string to_text(const Opts& opts);
/// Reads them back; nullopt for anything else.
std::optional<Opts> opts_from_text(std::string_view text);
void add_to_hash(Hash128& h, const Opts& opts);
void write_opts(ByteWriter& w, const Opts& opts);
/// Throws FormatError for bytes that are no opts.
Opts read_opts(ByteReader& r);

}  // namespace tg
