/// \file Typed arguments of nodes: small constants inline, everything else an immutable counted box.
#pragma once
#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/uop/ops.h"
#include "tinygrad/uop/opt.h"

namespace tg {

/// Where the memory of a BUFFER or PARAM lives. kAlu marks a scalar variable, which has no memory.
enum class AddrSpace : uint8_t { kGlobal, kLocal, kReg, kAlu };

/// Kinds of RANGE. The order is the nesting order, outermost first; see docs/ir.md.
enum class AxisType : uint8_t {
  kDevice,
  kLoop,
  kThread,
  kGlobal,
  kWarp,
  kLocal,
  kGroupReduce,
  kReduce,
  kUpcast,
  kUnroll,
  kVector
};
const char* name_of(AxisType t);
std::ostream& operator<<(std::ostream&, AxisType);
std::ostream& operator<<(std::ostream&, AddrSpace);

/// Which argument a node carries.
enum class ArgKind : uint8_t {
  kNone,
  kInt,
  kFloat,
  kInvalid,
  kBigInt,
  kString,
  kInts,
  kRange,
  kParam,
  kReduce,
  kStage,
  kKernel,
  kCall,
  kCollective
};

/// Argument of RANGE: identity (`id`, then one entry per split) and purpose.
struct RangeArg {
  std::vector<int32_t> id;
  AxisType type = AxisType::kLoop;
  static constexpr ArgKind kind = ArgKind::kRange;
  bool operator==(const RangeArg&) const = default;
  Hash128 hash() const;
};

/// Argument of BUFFER and PARAM. `slot`: unique id of a BUFFER, position of a PARAM, -1 for a named scalar.
struct ParamArg {
  int64_t slot = 0;
  AddrSpace addrspace = AddrSpace::kGlobal;
  std::string device{};        ///< "" for kernel parameters, registers and variables
  std::string name{};          ///< of a variable
  int64_t vmin = 0, vmax = 0;  ///< bounds of a variable, inclusive
  static constexpr ArgKind kind = ArgKind::kParam;
  bool operator==(const ParamArg&) const = default;
  Hash128 hash() const;
};

/// Argument of REDUCE. Tensor form: `axes` (ascending) are reduced and stay as size 1; kernel form: no axes, the ranges
/// are sources.
struct ReduceArg {
  Ops op = Ops::ADD;
  std::vector<int32_t> axes;
  static constexpr ArgKind kind = ArgKind::kReduce;
  bool operator==(const ReduceArg&) const = default;
  Hash128 hash() const;
};

/// What the memory of a STAGE is for, which decides how it is laid out and filled; codegen/scratch/stage.h.
enum class StageKind : uint8_t {
  kBuffer,  ///< of a tensor graph: a buffer of its own
  kPanel,   ///< an operand packed for the loops that read it
  kWindow,  ///< an operand that slides over memory, each element once
  kTile,    ///< a panel that the threads of a workgroup share
  kPartial  ///< partial results of the threads of a workgroup
};
const char* name_of(StageKind k);

/// Argument of STAGE: where a value is materialised.
struct StageArg {
  AddrSpace addrspace = AddrSpace::kGlobal;
  std::string device{};
  bool removable = true;  ///< false when the user asked for the storage
  StageKind use = StageKind::kBuffer;
  static constexpr ArgKind kind = ArgKind::kStage;
  bool operator==(const StageArg&) const = default;
  Hash128 hash() const;
};

/// Argument of a kernel's SINK.
struct KernelInfo {
  std::string name = {};
  Opts applied_opts = {};
  std::optional<Opts> opts_to_apply = {};  ///< set: these and no heuristic
  bool attention = false;                  ///< stores the value of an AttentionForm (schedule/attention_form.h)
  static constexpr ArgKind kind = ArgKind::kKernel;
  bool operator==(const KernelInfo&) const = default;
  Hash128 hash() const;
};

/// A gradient of the user's own; tensor/grad/function.h knows what it does. Two are never equal.
struct CallGradient {
  CallGradient();
  virtual ~CallGradient() = default;
  const uint64_t id;
};

/// Argument of FUNCTION and CALL.
struct CallInfo {
  std::string name;
  bool precompile = false;  ///< FUNCTION: arguments and results are stored, so the body makes kernels of its own
  bool precompile_backward = false;  ///< the same for its gradient
  std::shared_ptr<const CallGradient> gradient{};
  std::vector<int32_t> writes{};  ///< CALL: the arguments its kernel writes, ascending
  static constexpr ArgKind kind = ArgKind::kCall;
  bool operator==(const CallInfo&) const = default;
  Hash128 hash() const;
};

/// What the n processes of a group do together. A piece has the shape that is not divided below.
enum class CollectiveKind : uint8_t {
  kAllReduce,      ///< a piece each -> all of them combined, for everybody
  kReduceScatter,  ///< n pieces each, (n, ...) -> process p gets the p-th of everybody, combined
  kAllGather,      ///< a piece each -> all n, (n, ...), for everybody
  kAllToAll,       ///< n pieces each, (n, ...) -> process p gets the p-th of everybody, (n, ...)
  kBroadcast,      ///< the piece of one for everybody
  kSend,           ///< a piece to another process; the value is the piece
  kReceive         ///< the piece that another one sends; the source only says shape, type and place
};
const char* name_of(CollectiveKind k);

/// Argument of COLLECTIVE. It is the same in all processes.
struct CollectiveArg {
  CollectiveKind what = CollectiveKind::kAllReduce;
  Ops op = Ops::ADD;      ///< of what is combined
  std::string world{};    ///< a name of devices of a world, see uop/mesh.h
  uint32_t mesh_axes{1};  ///< the axes of its mesh along which processes form a group, as bits
  int32_t root = 0;       ///< kBroadcast: position in the group; kSend, kReceive: rank of the other process
  static constexpr ArgKind kind = ArgKind::kCollective;
  bool operator==(const CollectiveArg&) const = default;
  Hash128 hash() const;
};

/// An immutable boxed argument; shared between graphs and threads.
struct ArgBox {
  std::atomic<uint32_t> refs{1};
  Hash128 hash;
  explicit ArgBox(Hash128 h) : hash(h) {}
  virtual ~ArgBox() = default;
  virtual bool equals(const ArgBox&) const = 0;
};
template <class T> struct ArgBoxOf final : ArgBox {
  /// A value of any type with equality, and its hash.
  T value;
  ArgBoxOf(T v, Hash128 h) : ArgBox(h), value(std::move(v)) {}
  bool equals(const ArgBox& o) const override { return value == static_cast<const ArgBoxOf&>(o).value; }
};

/// A node's argument: 16 bytes; integers of 64 bits, floats and Invalid inline. Floats compare by bits, every NaN being
/// the same.
class Arg {
 public:
  Arg() = default;
  Arg(int v) : Arg(static_cast<int128>(v)) {}
  Arg(int64_t v) : Arg(static_cast<int128>(v)) {}
  Arg(int128 v);
  Arg(double v);
  Arg(std::string s);
  Arg(const char* s) : Arg(std::string(s)) {}
  Arg(std::vector<int64_t> v);
  Arg(RangeArg v) { box(std::move(v)); }
  Arg(ParamArg v) { box(std::move(v)); }
  Arg(ReduceArg v) { box(std::move(v)); }
  Arg(StageArg v) { box(std::move(v)); }
  Arg(KernelInfo v) { box(std::move(v)); }
  Arg(CallInfo v) { box(std::move(v)); }
  Arg(CollectiveArg v) { box(std::move(v)); }
  static Arg invalid() {
    Arg a;
    a.kind_ = ArgKind::kInvalid;
    return a;
  }
  /// The argument a node stores, sharing its box.
  static Arg share(ArgKind k, uint64_t bits) {
    Arg a;
    a.kind_ = k;
    a.bits_ = bits;
    retain(k, bits);
    return a;
  }

  /// Copies share what is boxed.
  Arg(const Arg& o) : kind_(o.kind_), bits_(o.bits_) { retain(); }
  Arg(Arg&& o) noexcept : kind_(o.kind_), bits_(o.bits_) {
    o.kind_ = ArgKind::kNone;
    o.bits_ = 0;
  }
  Arg& operator=(Arg o) noexcept {
    std::swap(kind_, o.kind_);
    std::swap(bits_, o.bits_);
    return *this;
  }
  ~Arg() { release(); }

  /// Returns the two words an argument is stored in, and its hash, equal in every run.
  ArgKind kind() const { return kind_; }
  uint64_t bits() const { return bits_; }
  bool operator==(const Arg& o) const { return equal(kind_, bits_, o.kind_, o.bits_); }
  Hash128 hash() const { return hash(kind_, bits_); }
  /// The boxed value; InternalError when the argument is of another kind.
  template <class T> const T& as() const { return view<T>(kind_, bits_); }

  /// The same functions on the two words that a node stores.
  static bool boxed(ArgKind k) { return k >= ArgKind::kBigInt; }
  static bool equal(ArgKind ka, uint64_t a, ArgKind kb, uint64_t b) {
    if (ka != kb) return false;
    return a == b || (boxed(ka) && same_box(a, b));
  }
  static Hash128 hash(ArgKind k, uint64_t bits);
  static void retain(ArgKind k, uint64_t bits) {
    if (boxed(k)) reinterpret_cast<ArgBox*>(bits)->refs.fetch_add(1, std::memory_order_relaxed);
  }
  static void release(ArgKind k, uint64_t bits) {
    if (boxed(k) && reinterpret_cast<ArgBox*>(bits)->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete reinterpret_cast<ArgBox*>(bits);
  }
  static void print(std::ostream&, ArgKind k, uint64_t bits);
  template <class T> static const T& view(ArgKind k, uint64_t bits) {
    check_kind(k, kind_of<T>());
    return static_cast<const ArgBoxOf<T>*>(reinterpret_cast<const ArgBox*>(bits))->value;
  }
  template <class T> static constexpr ArgKind kind_of() {
    if constexpr (requires { T::kind; }) return T::kind;
    else if constexpr (std::is_same_v<T, int128>) return ArgKind::kBigInt;
    else if constexpr (std::is_same_v<T, std::string>) return ArgKind::kString;
    else return ArgKind::kInts;
  }

 private:
  template <class T> void box(T v) {
    Hash128 h = v.hash();
    kind_ = T::kind;
    bits_ = reinterpret_cast<uint64_t>(static_cast<ArgBox*>(new ArgBoxOf<T>(std::move(v), h)));
  }
  void retain() const { retain(kind_, bits_); }
  void release() const { release(kind_, bits_); }
  static bool same_box(uint64_t a, uint64_t b);
  static void check_kind(ArgKind got, ArgKind want) {
    if (got != want) [[unlikely]]
      bad_kind(got, want);
  }
  [[noreturn]] static void bad_kind(ArgKind got, ArgKind want);

  ArgKind kind_ = ArgKind::kNone;
  uint64_t bits_ = 0;
};
/// Prints the value as the pages on the graph show it.
std::ostream& operator<<(std::ostream&, const Arg&);

}  // namespace tg
