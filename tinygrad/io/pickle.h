/// \file Python's pickles as plain data: a closed set of opcodes builds a table of objects, and nothing is run. A class
/// or a function is its name, a call is a record of what would be called with what.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tg::io {

enum class PickleKind : uint8_t {
  kNone,
  kBool,     ///< `integer`
  kInt,      ///< `integer`
  kLongInt,  ///< `text`: more than 64 bits, little-endian two's complement
  kFloat,    ///< `number`
  kString,   ///< `text`, UTF-8 unless written by Python 2
  kBytes,    ///< `text`
  kList,     ///< `items`, as of a tuple or set
  kTuple,
  kSet,
  kDict,       ///< `items`: key, value, key, value, ...
  kName,       ///< `items`: module and name, two strings
  kCall,       ///< `items`: function, arguments (a tuple), then keys and values that were set; `state`
  kReference,  ///< `items`: the persistent id
};

using PickleId = uint32_t;
inline constexpr PickleId kNoPickle = std::numeric_limits<PickleId>::max();

/// One object. Objects are numbered in the order they were made, so parts that existed at that time come first.
struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  PickleId state = kNoPickle;  ///< what __setstate__ would be given
  uint32_t offset = 0;         ///< of the opcode
  union {
    int64_t integer = 0;
    double number;
  };
  std::string_view text;  ///< of the pickle's own bytes
  std::vector<PickleId> items;
};

struct Pickle {
  std::vector<PickleNode> nodes;
  PickleId root = kNoPickle;
  uint64_t size = 0;  ///< bytes read, the last opcode included

  const PickleNode& operator[](PickleId id) const { return nodes[id]; }
  /// Whether the object is the class or function of that name.
  bool is_name(PickleId id, std::string_view module, std::string_view name) const;
};

/// Module and name of a class or function.
using PickleName = std::pair<std::string_view, std::string_view>;

inline constexpr uint64_t kMaxPickleBytes = uint64_t{1} << 30;
inline constexpr size_t kMaxPickleNodes = size_t{1} << 22;
inline constexpr size_t kMaxPickleItems = size_t{1} << 24;  ///< in all objects and on the stack together
inline constexpr size_t kMaxPickleMemo = size_t{1} << 22;
inline constexpr int kMaxPickleDepth = 200;

/// Parses the pickle at the beginning of `bytes` (protocols 2 to 5). Names other than `known` are refused, unless
/// `any`: then calls of them are kept as records too, whose parts may contain them. `base` is added to the offsets of
/// messages. Throws FormatError that begins with `what` and names the byte: for other opcodes (a pickle that needs them
/// holds more than plain data), an early end, an empty stack, unknown names, objects that contain themselves, and more
/// than the limits above. The objects' texts are part of `bytes`.
Pickle parse_pickle(std::span<const uint8_t> bytes, std::span<const PickleName> known, std::string_view what,
                    uint64_t base = 0, bool any = false);

}  // namespace tg::io
