/// \file Decodes and executes linear programs.
#include "tinygrad/runtime/interp.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <unordered_map>

#include "tinygrad/render/program_view.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/variables.h"

namespace tg {
namespace {
constexpr size_t kAlign = 16;
constexpr size_t kMostFrame = size_t{1} << 31;  // bytes of a thread, and of a group's memory

int64_t read_int(const unsigned char* p, DType d) {
  switch (d.id()) {
    case DTypeId::kBool:
    case DTypeId::kUInt8: return *p;
    case DTypeId::kInt8: return *reinterpret_cast<const int8_t*>(p);
    case DTypeId::kInt16: return *reinterpret_cast<const int16_t*>(p);
    case DTypeId::kUInt16: return *reinterpret_cast<const uint16_t*>(p);
    case DTypeId::kInt32: return *reinterpret_cast<const int32_t*>(p);
    case DTypeId::kUInt32: return *reinterpret_cast<const uint32_t*>(p);
    case DTypeId::kInt64:
    case DTypeId::kUInt64: return *reinterpret_cast<const int64_t*>(p);
    default: TG_ASSERT(false, "an index of type ", d); return 0;
  }
}
void write_int(unsigned char* p, DType d, int64_t v) { store_const(p, ConstValue(v), d); }

/// Copies elements base[index]; returns the position of an index outside of `size` elements, -1 when there is none.
template <class I, class T>
int64_t gather(unsigned char* out, const unsigned char* base, const unsigned char* indices, size_t n, int64_t size) {
  for (size_t e = 0; e < n; e++) {
    I i;
    std::memcpy(&i, indices + e * sizeof i, sizeof i);
    if (i < 0 || i >= size) [[unlikely]]
      return static_cast<int64_t>(e);
    std::memcpy(out + e * sizeof(T), base + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  }
  return -1;
}
using Gather = int64_t (*)(unsigned char*, const unsigned char*, const unsigned char*, size_t, int64_t);
/// Returns the loop for these types of index and element, nullptr where there is none.
Gather gather_loop(DType index, int item) {
  const bool narrow = index == dtypes::int32;
  if (!narrow && index != dtypes::int64) return nullptr;
  switch (item) {
    case 1: return narrow ? gather<int32_t, uint8_t> : gather<int64_t, uint8_t>;
    case 2: return narrow ? gather<int32_t, uint16_t> : gather<int64_t, uint16_t>;
    case 4: return narrow ? gather<int32_t, uint32_t> : gather<int64_t, uint32_t>;
    default: return narrow ? gather<int32_t, uint64_t> : gather<int64_t, uint64_t>;
  }
}

/// Copies one element; sizes are 1, 2, 4 or 8.
void copy_item(unsigned char* dst, const unsigned char* src, int item) {
  switch (item) {
    case 1: *dst = *src; break;
    case 2: std::memcpy(dst, src, 2); break;
    case 4: std::memcpy(dst, src, 4); break;
    default: std::memcpy(dst, src, 8);
  }
}
}  // namespace

/// State needed only while decoding.
class Interpreter::Decoder {
 public:
  Decoder(Interpreter& to, const Program& p)
      : to_(to), p_(p), view_(p), places_(view_.insts().size(), 0), loop_of_(view_.insts().size(), -1) {}

  void run() {
    for (const Inst& in : view_.insts()) {
      literals(in);
      grid_ |= in.u.is(Ops::SPECIAL);
    }
    to_.needs_groups_ = grid_;
    to_.image_.resize(next_);
    for (const Inst& in : view_.insts()) fill(in);
    for (const Inst& in : view_.insts()) instruction(in);
    TG_ASSERT(open_.empty(), "a loop without END: ", open_.back());
    to_.frame_bytes_ = next_;
    to_.shared_bytes_ = shared_;
  }

 private:
  size_t reserve(size_t bytes) {
    const size_t at = next_;
    TG_ASSERT(bytes <= kMostFrame && next_ <= kMostFrame, "a frame of more than ", kMostFrame, " bytes");
    next_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return at;
  }
  size_t& place(UOp u) { return places_[static_cast<size_t>(view_.position(u))]; }
  static size_t item(UOp u) { return eval_itemsize(u.dtype()); }

  void literals(const Inst& in) {
    if (in.u.is_const()) {
      TG_ASSERT(!in.u.is_invalid(), "Invalid in a linear program");
      place(in.u) = reserve(item(in.u));
    } else if (is_lane(in.u)) {
      place(in.u) = reserve(item(in.u) * static_cast<size_t>(in.lanes));
    }
  }
  void fill(const Inst& in) {
    if (!in.u.is_const() && !is_lane(in.u)) return;
    unsigned char* at = to_.image_.data() + place(in.u);
    to_.literals_.emplace_back(place(in.u), item(in.u) * (in.u.is_const() ? 1 : static_cast<size_t>(in.lanes)));
    if (in.u.is_const()) store_const(at, in.u.const_value(), in.u.dtype());
    else
      for (int i = 0; i < in.lanes; i++) write_int(at + static_cast<size_t>(i) * item(in.u), in.u.dtype(), i);
  }

  /// Returns the operand as `lanes` elements; scalars are broadcast by a step of their own.
  size_t operand(UOp u, int lanes) {
    const int n = view_.lanes(u);
    if (n == lanes) return place(u);
    TG_ASSERT(n == 1, "a vector of ", n, " lanes where ", lanes, " are wanted: ", u);
    Step s{};
    s.kind = Kind::kSplat;
    s.lanes = lanes;
    s.item = static_cast<uint8_t>(item(u));
    s.in[0] = place(u);
    s.out = reserve(item(u) * static_cast<size_t>(lanes));
    s.u = u;
    push(s);
    return s.out;
  }
  void push(const Step& s) { to_.steps_.push_back(s); }

  void instruction(const Inst& in) {
    UOp u = in.u;
    switch (u.op()) {
      case Ops::CONST:
      case Ops::STACK:
      case Ops::SINK:
      case Ops::GROUP:
      case Ops::NOOP:
      case Ops::INDEX: return;
      case Ops::PARAM:
        if (is_variable(u)) variable(u);
        return;
      case Ops::BUFFER: return buffer(u);
      case Ops::SPECIAL: return special(u);
      case Ops::BARRIER: return barrier(u);
      case Ops::CUSTOM: return box(u);
      case Ops::RANGE:
        if (!is_lane(u)) open(u);
        return;
      case Ops::END:
        for (size_t i = u.nsrc(); i-- > 1;)
          if (u.src(i).is(Ops::RANGE) && !is_lane(u.src(i))) close(u.src(i));
        return;
      case Ops::LOAD:
      case Ops::STORE: return is_pixel_access(u) ? pixel(u) : access(u);
      case Ops::REDUCE: return reduce(u);
      case Ops::WMMA: return product(u);
      case Ops::CUSTOMI: return is_matrix_load(u) ? matrix_load(u) : is_matrix_descriptor(u) ? matrix(u) : shuffle(u);
      case Ops::GETTUPLE: return member(u);
      default:
        TG_ASSERT(u.in(groups::kElementwise), "not an instruction of a linear program: ", u);
        return arithmetic(u, in.lanes);
    }
  }

  /// Reserves the registers of a result, which follow each other; GETTUPLE names one of them.
  void reserve_registers(UOp u, int count) {
    place(u) = reserve(kAlign);
    for (int i = 1; i < count; i++) reserve(kAlign);
    registers_[u] = count;
  }
  void member(UOp u) {
    const auto from = registers_.find(strip_after(u.src(0)));
    TG_ASSERT(from != registers_.end() && u.int_arg() >= 0 && u.int_arg() < from->second,
              "a register that is not there: ", u);
    place(u) = place(u.src(0)) + static_cast<size_t>(u.int_arg()) * kAlign;
  }
  /// Returns the slot of a parameter that a whole image, or a box, is read from.
  int64_t slot_of(UOp param) const {
    TG_ASSERT(param.is(Ops::PARAM) && param.arg_kind() == ArgKind::kParam, "no parameter: ", param);
    const int64_t slot = param.arg<ParamArg>().slot;
    TG_ASSERT(slot >= 0 && slot < p_.nbuffers, "parameter ", slot, " of ", p_.nbuffers);
    return slot;
  }

  void variable(UOp u) {
    Step s{};
    s.kind = Kind::kVar;
    s.size = view_.var_slot(u);
    s.index_type = u.dtype();
    s.out = place(u) = reserve(item(u));
    s.u = u;
    push(s);
  }

  bool is_shared(UOp buffer) const { return grid_ && buffer.arg<ParamArg>().addrspace == AddrSpace::kLocal; }
  static size_t bytes_of(UOp buffer) {
    return (static_cast<size_t>(storage_size(buffer)) * item(buffer) + kAlign - 1) / kAlign * kAlign;
  }
  void buffer(UOp u) {
    if (!is_shared(u)) {
      place(u) = reserve(bytes_of(u));
      return;
    }
    for (const auto& [memory, at] : group_memory(view_)) {
      if (memory != u) continue;
      place(u) = static_cast<size_t>(at);
      shared_ = std::max(shared_, static_cast<size_t>(at) + bytes_of(u));
    }
  }

  void special(UOp u) {
    const std::string& name = u.arg<std::string>();  // gidx0, lidx1, ...
    Step s{};
    s.kind = Kind::kSpecial;
    s.size = (name[0] == 'g' ? 0 : 3) + name.back() - '0';
    TG_ASSERT(s.size >= 0 && s.size < 6, "a dimension that no grid has: ", u);
    s.index_type = u.dtype();
    s.out = place(u) = reserve(item(u));
    s.u = u;
    push(s);
  }

  void open(UOp r) {
    Step s{};
    s.kind = is_thread(r) ? Kind::kThreadLoop : Kind::kLoop;
    s.out = place(r) = reserve(8);  // the counter as the program sees it
    s.in[0] = place(r.src(0));
    s.in[1] = reserve(16);  // and as int64 with its end
    s.index_type = r.dtype();
    s.u = r;
    loop_of_[static_cast<size_t>(view_.position(r))] = static_cast<int>(to_.steps_.size());
    open_.push_back(r);
    push(s);
  }
  void close(UOp r) {
    TG_ASSERT(!open_.empty() && open_.back() == r, "END of a loop that is not the innermost: ", r);
    open_.pop_back();
    const size_t begin = static_cast<size_t>(loop_of_[static_cast<size_t>(view_.position(r))]);
    Step s = to_.steps_[begin];
    s.kind = Kind::kEnd;
    s.base = static_cast<int64_t>(begin) + 1;
    push(s);
    to_.steps_[begin].base = static_cast<int64_t>(to_.steps_.size());
  }

  void access(UOp u) {
    MemAccess a = view_.access(u.src(0));
    const bool is_load = u.is(Ops::LOAD);
    const int lanes = is_load ? view_.lanes(u) : a.lanes;
    const DType d = is_load ? u.dtype() : u.src(1).dtype();
    Step s{};
    s.kind = is_load ? Kind::kLoad : Kind::kStore;
    s.lanes = lanes;
    s.item = static_cast<uint8_t>(eval_itemsize(d));
    s.u = u;
    s.affine = a.affine && a.lanes == lanes && a.stride == 1 && u.nsrc() <= 2 && lanes > 1;
    const int from = a.base.dtype().itemsize(), to = d.itemsize();  // words of narrow elements
    TG_ASSERT(from == to || (from < to && a.base.is(Ops::PARAM) && is_load), "access of ", d, " to ", a.base.dtype(),
              ": ", u);
    s.index_type = a.index.dtype();
    s.index_item = static_cast<uint8_t>(item(a.index));
    s.size = from == 0 ? a.size : a.size * from / std::max(to, 1);
    const bool own = a.base.is(Ops::BUFFER);
    s.memory = !own ? Memory::kParam : is_shared(a.base) ? Memory::kShared : Memory::kFrame;
    if (own) s.stride = bytes_of(a.base);
    s.base = own ? static_cast<int64_t>(place(a.base)) : a.base.arg<ParamArg>().slot;
    TG_ASSERT(own || (s.base >= 0 && s.base < p_.nbuffers), "parameter ", s.base, " of ", p_.nbuffers);
    s.in[0] = operand(a.index, lanes);
    if (u.nsrc() > 1) s.in[1] = operand(u.src(1), lanes);
    if (u.nsrc() > 2) {
      s.in[2] = operand(u.src(2), lanes);
      s.gated = true;
    }
    if (is_load && !s.gated && !s.affine) s.gather = gather_loop(s.index_type, s.item);
    if (is_load) s.out = place(u) = reserve(s.item * static_cast<size_t>(lanes));
    push(s);
  }

  void pixel(UOp u) {
    const MemAccess a = view_.access(u.src(0));
    const bool is_load = u.is(Ops::LOAD);
    const UOps extents(a.base.src(0).srcs().begin(), a.base.src(0).srcs().end());
    TG_ASSERT(extents.size() >= 2 && extents[0].is_const() && extents[1].is_const(), "an image without a size: ", u);
    Pixel p{};
    p.size = {static_cast<int64_t>(extents[1].const_int()), static_cast<int64_t>(extents[0].const_int()),
              a.base.dtype().itemsize()};
    p.slot = slot_of(a.base);
    p.y = operand(a.index, 1);
    p.x = operand(a.column, 1);
    p.row_type = a.index.dtype();
    p.column_type = a.column.dtype();
    Step s{};
    s.kind = is_load ? Kind::kReadPixel : Kind::kWritePixel;
    s.item = 4;
    s.u = u;
    s.base = static_cast<int64_t>(to_.pixels_.size());
    if (is_load && u.nsrc() > 1) p.values[0] = operand(u.src(1), 1);
    for (uint32_t i = 0; !is_load && i < 4; i++) p.values[i] = operand(u.src(1 + i), 1);
    s.gated = u.nsrc() > (is_load ? 1u : 5u);
    if (s.gated) p.gate = operand(u.src(u.nsrc() - 1), 1);
    if (is_load) {
      reserve_registers(u, 4);
      s.out = place(u);
    }
    to_.pixels_.push_back(p);
    push(s);
  }

  void reduce(UOp u) {
    for (size_t i = 1; i < u.nsrc(); i++) TG_ASSERT(is_lane(u.src(i)), "a reduce over a loop in a linear program: ", u);
    Step s{};
    s.kind = Kind::kReduce;
    s.lanes = view_.lanes(u.src(0));
    s.item = static_cast<uint8_t>(item(u));
    s.in[0] = place(u.src(0));
    s.fn = alu_loop(u.arg<ReduceArg>().op, u.dtype());
    s.u = u;
    TG_ASSERT(s.fn, "reduce of ", u.dtype(), ": ", u);
    s.in[1] = reserve(s.item * static_cast<size_t>(s.lanes));
    s.out = place(u) = reserve(s.item);
    push(s);
  }

  void shuffle(UOp u) {
    Step s{};
    s.kind = Kind::kShuffle;
    s.item = static_cast<uint8_t>(item(u));
    s.base = u.int_arg();
    s.in[0] = operand(u.src(0), 1);
    s.out = place(u) = reserve(item(u));
    s.u = u;
    push(s);
  }

  void barrier(UOp u) {
    if (u.nsrc() && u.src(0).is(Ops::INDEX)) return memory_barrier(u);
    Step s{};
    s.kind = is_wait_for_products(u) ? Kind::kWaitForProducts
             : ends_copies(u)        ? Kind::kEndCopies
             : is_cluster_barrier(u) ? Kind::kClusterBarrier
                                     : Kind::kBarrier;
    to_.needs_groups_ |= is_cluster_barrier(u);
    s.base = is_wait_for_products(u) ? u.int_arg() : copies_under_way(u);
    s.u = u;
    push(s);
  }
  /// As a matrix, which is a barrier; `in[1]` is its parity, in[2] its gate, `base` the number in its argument.
  void memory_barrier(UOp u) {
    Step s = matrix_step(u, begins_barriers(u) ? Kind::kBeginBarriers
                            : expects_boxes(u) ? Kind::kExpectBoxes
                            : awaits_room(u)   ? Kind::kAwaitRoom
                            : releases_room(u) ? Kind::kReleaseRoom
                                               : Kind::kAwaitBoxes);
    if (const UOp gate = gate_of(u)) {
      s.gated = true;
      s.in[2] = operand(gate, 1);
    }
    if (awaits_boxes(u) || awaits_room(u)) {
      s.in[1] = operand(u.src(1), 1);
      s.item = static_cast<uint8_t>(item(u.src(1)));
    }
    if (begins_barriers(u)) to_.cluster_ = static_cast<size_t>(barrier_number(u, 2));
    push(s);
  }
  void box(UOp u) {
    TG_ASSERT(is_box(u), "no instruction of a kernel of groups: ", u);
    const BoxCopy c{u};
    const TensorMap map = TensorMap::from_text(c.map());
    Step s{};
    s.kind = Kind::kBox;
    s.u = u;
    s.base = static_cast<int64_t>(to_.boxes_.size());
    if (c.gate()) {
      s.gated = true;
      s.in[2] = operand(c.gate(), 1);
    }
    to_.boxes_.push_back({.map = map,
                          .groups = c.groups(),
                          .barriers = place(c.barriers()),
                          .number = operand(c.number(), 1),
                          .column = operand(c.column(), 1),
                          .row = operand(c.row(), 1),
                          .number_type = c.number().dtype(),
                          .column_type = c.column().dtype(),
                          .row_type = c.row().dtype(),
                          .to = matrix_step(u, Kind::kMatrix)});
    push(s);
  }

  /// Returns a step that is given an address in the memory of the group: of matrices, or of a row of one.
  Step matrix_step(UOp u, Kind kind) {
    TG_ASSERT(u.src(0).is(Ops::INDEX), "no place in memory: ", u);
    const MemAccess a = view_.access(u.src(0));
    to_.needs_groups_ = true;
    TG_ASSERT(a.base.is(Ops::BUFFER) && is_shared(a.base) && a.lanes == 1,
              "matrices in other memory than a group's: ", u);
    Step s{};
    s.kind = kind;
    s.item = u.dtype().is_void() ? 0 : static_cast<uint8_t>(item(u));
    s.u = u;
    s.index_type = a.index.dtype();
    s.index_item = static_cast<uint8_t>(item(a.index));
    s.stride = static_cast<size_t>(a.base.dtype().itemsize());
    s.size = a.size;
    s.memory = Memory::kShared;
    s.base = static_cast<int64_t>(place(a.base));
    s.in[0] = operand(a.index, 1);
    s.out = place(u) = reserve(kAlign);
    return s;
  }

  /// As a load, whose address is that of a row of 16 bytes.
  void matrix_load(UOp u) {
    Step s = matrix_step(u, Kind::kMatrixLoad);
    s.size -= 16 / static_cast<int64_t>(s.stride) - 1;  // rows that begin further back end outside
    for (int i = 1; i < matrix_registers(u); i++) reserve(kAlign);
    registers_[u] = matrix_registers(u);
    push(s);
  }

  /// As a load; what it gives is the address.
  void matrix(UOp u) { push(matrix_step(u, Kind::kMatrix)); }

  /// Checks that an instruction has the registers of its factors and of its sums, or the matrices of its factors.
  static void check_product(UOp u, const TensorCore& core) {
    const bool memory = core.reads_memory();
    const size_t a = memory ? 1 : static_cast<size_t>(fragment_registers(core.layout[0])),
                 b = memory ? 1 : static_cast<size_t>(fragment_registers(core.layout[1])),
                 sums = static_cast<size_t>(fragment_registers(core.layout[2]));
    TG_ASSERT(u.nsrc() == a + b + sums, "an instruction with ", u.nsrc(), " registers: ", u);
    for (uint32_t i = 0; i < u.nsrc(); i++) {
      const DType factor = i < a ? core.a : core.b;
      const size_t bytes = i >= a + b ? item(u) : static_cast<size_t>(core.pack * factor.itemsize());
      const bool fits = memory && i < 2 ? is_matrix_descriptor(u.src(i)) : item(u.src(i)) == bytes;
      TG_ASSERT(fits && item(u) == sizeof(float), "an instruction with registers of other types: ", u);
    }
  }

  void product(UOp u) {
    const TensorCore* core = find_tensor_core(u.arg<std::string>());
    const bool memory = core && core->reads_memory();
    TG_ASSERT(core && core->threads > 1 && (memory || kWarp % static_cast<size_t>(core->threads) == 0),
              "no instruction that threads share: ", u);
    check_product(u, *core);
    Product p{core, {}};
    for (UOp s : u.srcs()) p.registers.push_back(operand(s, 1));
    for (size_t i = 0; memory && i < 2; i++) p.across[i] = SharedMatrix::from_text(u.src(i).arg<std::string>()).across;
    Step s{};
    s.kind = memory ? Kind::kProductOfMemory : Kind::kProduct;
    s.item = static_cast<uint8_t>(item(u));
    s.base = static_cast<int64_t>(to_.products_.size());
    s.u = u;
    reserve_registers(u, fragment_registers(core->layout[2]));
    s.out = place(u);
    to_.products_.push_back(std::move(p));
    push(s);
  }

  void arithmetic(UOp u, int lanes) {
    Step s{};
    s.lanes = lanes;
    s.nin = static_cast<int>(u.nsrc());
    s.item = static_cast<uint8_t>(item(u));
    s.u = u;
    for (uint32_t i = 0; i < u.nsrc(); i++) s.in[i] = operand(u.src(i), lanes);
    const DType in = u.src(0).dtype();
    if (u.is(Ops::BITCAST)) {
      TG_ASSERT(in.itemsize() == u.dtype().itemsize(), "BITCAST between widths: ", u);
      s.kind = u.dtype().is_bool() ? Kind::kToBool : Kind::kCopy;
    } else {
      s.kind = Kind::kAlu;
      s.fn = u.is(Ops::CAST) ? cast_loop(in, u.dtype()) : alu_loop(u.op(), u.is(Ops::WHERE) ? u.dtype() : in);
      TG_ASSERT(s.fn, "not defined on ", in, ": ", u);
    }
    s.out = place(u) = reserve(s.item * static_cast<size_t>(lanes));
    push(s);
  }

  Interpreter& to_;
  const Program& p_;
  ProgramView view_;
  std::vector<size_t> places_;
  std::vector<int> loop_of_;
  std::unordered_map<UOp, int> registers_;  // of results that have several
  UOps open_;
  size_t next_ = 0, shared_ = 0;
  bool grid_ = false;
};

Interpreter::Interpreter(std::shared_ptr<const Program> program) : program_(std::move(program)) {
  ArenaScope scope(*program_->arena);
  Decoder(*this, *program_).run();
}

void Interpreter::out_of_bounds(const Step& s, int lane, int64_t index) const {
  throw InternalError(str("[interp] ", program_->name, ": index ", index, " (lane ", lane, ") is outside of the ",
                          s.size, " elements of ", strip_after(s.u.src(0)).src(0), ", at ", s.u, " with ",
                          strip_after(s.u.src(0))));
}
int64_t Interpreter::checked_index(const Step& s, const unsigned char* indices, size_t element) const {
  const int64_t i = read_int(indices + element * s.index_item, s.index_type);
  if (i < 0 || i >= s.size) [[unlikely]]
    out_of_bounds(s, static_cast<int>(element % static_cast<size_t>(s.lanes)), i);
  return i;
}

unsigned char* Interpreter::memory_of(const Step& s, const Warp& w, void* const* buffers, size_t thread) const {
  const auto base = static_cast<size_t>(s.base);
  switch (s.memory) {
    case Memory::kParam: return static_cast<unsigned char*>(buffers[base]);
    case Memory::kShared: return w.shared + base;
    case Memory::kFrame: break;
  }
  return w.frame + base * w.n + thread * s.stride;
}

void Interpreter::load(const Step& s, const Warp& w, void* const* buffers) const {
  const unsigned char *indices = w.frame + s.in[0] * w.n, *other = w.frame + s.in[1] * w.n,
                      *gate = w.frame + s.in[2] * w.n;
  unsigned char* out = w.frame + s.out * w.n;
  const size_t item = s.item, lanes = static_cast<size_t>(s.lanes);
  if (s.gather && (w.n == 1 || s.memory != Memory::kFrame)) {
    const int64_t bad = s.gather(out, memory_of(s, w, buffers, 0), indices, lanes * w.n, s.size);
    if (bad >= 0) checked_index(s, indices, static_cast<size_t>(bad));
    return;
  }
  for (size_t t = 0; t < w.n; t++) {
    const unsigned char* base = memory_of(s, w, buffers, t);
    const size_t first = t * lanes, end = first + lanes;
    if (s.affine) {
      const int64_t from = checked_index(s, indices, first);
      checked_index(s, indices, end - 1);
      std::memcpy(out + first * item, base + static_cast<size_t>(from) * item, item * lanes);
      continue;
    }
    for (size_t e = first; e < end; e++) {
      if (s.gated && !gate[e]) copy_item(out + e * item, other + e * item, s.item);
      else copy_item(out + e * item, base + static_cast<size_t>(checked_index(s, indices, e)) * item, s.item);
    }
  }
}

void Interpreter::store(const Step& s, const Warp& w, void* const* buffers) const {
  const unsigned char *indices = w.frame + s.in[0] * w.n, *value = w.frame + s.in[1] * w.n,
                      *gate = w.frame + s.in[2] * w.n;
  const size_t item = s.item, lanes = static_cast<size_t>(s.lanes);
  const bool noted = w.begun && s.memory == Memory::kShared;
  const auto place_of = [&](int64_t index) { return static_cast<size_t>(s.base) + static_cast<size_t>(index) * item; };
  for (size_t t = 0; t < w.n; t++) {
    unsigned char* base = memory_of(s, w, buffers, t);
    const size_t first = t * lanes, end = first + lanes;
    if (s.affine) {
      const int64_t to = checked_index(s, indices, first);
      checked_index(s, indices, end - 1);
      if (noted) note_store(s, w, place_of(to), item * lanes);
      std::memcpy(base + static_cast<size_t>(to) * item, value + first * item, item * lanes);
      continue;
    }
    for (size_t e = first; e < end; e++) {
      if (s.gated && !gate[e]) continue;
      const int64_t to = checked_index(s, indices, e);
      if (noted) note_store(s, w, place_of(to), item);
      copy_item(base + static_cast<size_t>(to) * item, value + e * item, s.item);
    }
  }
}

/// Combines lanes i and i + half, until one is left; the middle lane of an odd count waits.
void Interpreter::reduce(const Step& s, const Warp& w) const {
  const size_t bytes = static_cast<size_t>(s.lanes) * s.item;
  for (size_t t = 0; t < w.n; t++) {
    unsigned char* v = w.frame + s.in[1] * w.n;
    std::memcpy(v, w.frame + s.in[0] * w.n + t * bytes, bytes);
    for (int n = s.lanes; n > 1;) {
      const int half = (n + 1) / 2;
      const void* in[2] = {v, v + static_cast<size_t>(half) * s.item};
      s.fn(v, in, static_cast<size_t>(n - half));
      n = half;
    }
    std::memcpy(w.frame + s.out * w.n + t * s.item, v, s.item);
  }
}

namespace {
/// Returns element `i` of a register.
double element_of(const unsigned char* at, DType d, int i, bool rounds) {
  at += i * d.itemsize();
  uint32_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(d.itemsize()));
  if (d == dtypes::bfloat16) return std::bit_cast<float>(bits << 16);
  if (d == dtypes::float16) return half_to_float(static_cast<uint16_t>(bits));
  if (d.is_fp8()) return fp8_to_float(static_cast<uint8_t>(bits), d);
  if (d == dtypes::float32) return std::bit_cast<float>(rounds ? bits & ~uint32_t{0x1fff} : bits);
  return static_cast<double>(read_int(at, d));
}
/// Adds the products of two rows of factors to a sum, one by one.
void add_products(unsigned char* out, const unsigned char* sum, std::span<const double> x, std::span<const double> y,
                  DType d) {
  if (d.is_float()) {
    float v;
    std::memcpy(&v, sum, sizeof v);
    for (size_t k = 0; k < x.size(); k++) v += static_cast<float>(x[k] * y[k]);
    std::memcpy(out, &v, sizeof v);
  } else {
    auto v = static_cast<uint32_t>(read_int(sum, d));
    for (size_t k = 0; k < x.size(); k++) v += static_cast<uint32_t>(static_cast<int64_t>(x[k] * y[k]));
    std::memcpy(out, &v, sizeof v);
  }
}

/// Reads a factor from the registers of some threads: rows of a, or columns of b, of all steps of the sum. `registers`
/// gives the memory of a register of the first thread; that of the others follows.
template <class Registers>
std::vector<double> read_factor(const TensorCore& c, size_t side, const Registers& registers) {
  const FragmentLayout& layout = c.layout[side];
  const DType d = side ? c.b : c.a;
  const auto terms = static_cast<size_t>(c.k);
  std::vector<double> out(static_cast<size_t>(side ? c.n : c.m) * terms);
  for (int t = 0; t < c.threads; t++)
    for (int r = 0; r < fragment_registers(layout); r++) {
      const FragmentElement e = fragment_element(layout, t, r);
      const unsigned char* from = registers(r) + t * c.pack * d.itemsize();
      double* to = out.data() + static_cast<size_t>(side ? e.n : e.m) * terms + static_cast<size_t>(e.k * c.pack);
      for (int i = 0; i < c.pack; i++) to[i] = element_of(from, d, i, c.rounds);
    }
  return out;
}
}  // namespace

/// Gives each thread the value of the one whose number differs in some bits.
void Interpreter::shuffle(const Step& s, const Warp& w) const {
  const auto bits = static_cast<size_t>(s.base);
  for (size_t t = 0; t < w.n; t++) {
    TG_ASSERT((t ^ bits) < w.n, program_->name, ": a shuffle with a thread that is not in the warp: ", s.u);
    copy_item(w.frame + s.out * w.n + t * s.item, w.frame + s.in[0] * w.n + (t ^ bits) * s.item, s.item);
  }
}

/// Gives each thread of a warp of 32 two elements of 16 bits of each matrix. Matrix r has the rows that begin where
/// threads 8 r to 8 r + 7 say; thread t gets elements 2 (t % 4) and the next of row t / 4, or, transposed, those of
/// column t / 4.
void Interpreter::matrix_load(const Step& s, const Warp& w, void* const* buffers) const {
  constexpr size_t kThreads = 32, kRows = 8;
  TG_ASSERT(w.n % kThreads == 0, program_->name, ": ", w.n, " threads load matrices together: ", s.u);
  const unsigned char* indices = w.frame + s.in[0] * w.n;
  const bool transposed = s.u.arg<std::string>().ends_with(".trans");
  for (size_t first = 0; first < w.n; first += kThreads)
    for (size_t r = 0; r < static_cast<size_t>(matrix_registers(s.u)); r++) {
      const unsigned char* rows[kRows];
      for (size_t i = 0; i < kRows; i++) {
        const auto at = static_cast<size_t>(checked_index(s, indices, first + r * kRows + i)) * s.stride;
        TG_ASSERT(at % 16 == 0, program_->name, ": a row of a matrix at byte ", at, ": ", s.u);
        rows[i] = memory_of(s, w, buffers, 0) + at;
      }
      for (size_t t = 0; t < kThreads; t++)
        for (size_t half = 0; half < 2; half++) {
          const size_t along = t % 4 * 2 + half, across = t / 4;
          const unsigned char* from = transposed ? rows[along] + 2 * across : rows[across] + 2 * along;
          copy_item(w.frame + (s.out + r * kAlign) * w.n + (first + t) * s.item + 2 * half, from, 2);
        }
    }
}

/// Multiplies the matrices that each group of neighbouring threads holds.
void Interpreter::product(const Step& s, const Warp& w) const {
  const Product& p = products_[static_cast<size_t>(s.base)];
  const TensorCore& c = *p.core;
  const auto threads = static_cast<size_t>(c.threads), terms = static_cast<size_t>(c.k);
  TG_ASSERT(w.n % threads == 0, program_->name, ": ", w.n, " threads share an instruction of ", threads);
  const int behind[3] = {0, fragment_registers(c.layout[0]),
                         fragment_registers(c.layout[0]) + fragment_registers(c.layout[1])};
  const size_t bytes = static_cast<size_t>(c.pack) * static_cast<size_t>(c.a.itemsize());
  for (size_t first = 0; first < w.n; first += threads) {
    auto place = [&](int operand, size_t item) {
      return w.frame + p.registers[static_cast<size_t>(operand)] * w.n + first * item;
    };
    const std::vector<double> a = read_factor(c, 0, [&](int r) { return place(r, bytes); }),
                              b = read_factor(c, 1, [&](int r) { return place(behind[1] + r, bytes); });
    for (size_t t = 0; t < threads; t++)
      for (int r = 0; r < fragment_registers(c.layout[2]); r++) {
        const FragmentElement e = fragment_element(c.layout[2], static_cast<int>(t), r);
        add_products(w.frame + (s.out + static_cast<size_t>(r) * kAlign) * w.n + (first + t) * s.item,
                     place(behind[2] + r, s.item) + t * s.item,
                     std::span(a).subspan(static_cast<size_t>(e.m) * terms, terms),
                     std::span(b).subspan(static_cast<size_t>(e.n) * terms, terms), c.out);
      }
  }
}

/// Gives each thread the descriptor of a matrix that begins somewhere in the memory of the group. That begins at
/// address 0.
void Interpreter::matrix(const Step& s, const Warp& w) const {
  const SharedMatrix form = SharedMatrix::from_text(s.u.arg<std::string>());
  for (size_t t = 0; t < w.n; t++) {
    const int64_t at = s.base + checked_index(s, w.frame + s.in[0] * w.n, t) * static_cast<int64_t>(s.stride);
    TG_ASSERT(at % kMatrixPart == 0, program_->name, ": a matrix at byte ", at, ": ", s.u);
    const uint64_t descriptor = form.descriptor(at);
    std::memcpy(w.frame + s.out * w.n + t * s.item, &descriptor, sizeof descriptor);
  }
}

/// Multiplies matrices in the memory of the group, where their descriptors say; each thread adds what is its part to
/// the sums that it holds.
void Interpreter::product_of_memory(const Step& s, const Warp& w) const {
  const Product& p = products_[static_cast<size_t>(s.base)];
  const TensorCore& c = *p.core;
  const auto terms = static_cast<size_t>(c.k), threads = static_cast<size_t>(c.threads);
  std::vector<double> factors[2];
  for (size_t side = 0; side < 2; side++) {
    const unsigned char* given = w.frame + p.registers[side] * w.n;
    uint64_t descriptor;
    std::memcpy(&descriptor, given, sizeof descriptor);
    for (size_t t = 1; t < w.n; t++)
      TG_ASSERT(
          !std::memcmp(given, given + t * sizeof descriptor, sizeof descriptor) || t + w.first % threads >= threads,
          program_->name, ": threads that compute together read different matrices: ", s.u);
    const DType d = side ? c.b : c.a;
    for (int64_t i = 0; i < (side ? c.n : c.m); i++)
      for (int64_t k = 0; k < c.k; k++) {
        const int64_t at = SharedMatrix::byte_of(descriptor, p.across[side], i, k, d.itemsize());
        TG_ASSERT(at + d.itemsize() <= static_cast<int64_t>(shared_bytes_), program_->name, ": byte ", at,
                  " of the group's memory, which has ", shared_bytes_, ": ", s.u);
        note_read(s, w, static_cast<size_t>(at));
        factors[side].push_back(element_of(w.shared + at, d, 0, c.rounds));
      }
  }
  for (size_t t = 0; t < w.n; t++)
    for (int r = 0; r < fragment_registers(c.layout[2]); r++) {
      const FragmentElement e = fragment_element(c.layout[2], static_cast<int>((w.first + t) % threads), r);
      const auto row = static_cast<size_t>(e.m) * terms, column = static_cast<size_t>(e.n) * terms;
      add_products(w.frame + (s.out + static_cast<size_t>(r) * kAlign) * w.n + t * s.item,
                   w.frame + p.registers[2 + static_cast<size_t>(r)] * w.n + t * s.item,
                   std::span(factors[0]).subspan(row, terms), std::span(factors[1]).subspan(column, terms), c.out);
    }
}

void Interpreter::splat(const Step& s, const Warp& w) const {
  unsigned char* out = w.frame + s.out * w.n;
  for (size_t t = 0; t < w.n; t++)
    for (int l = 0; l < s.lanes; l++, out += s.item) copy_item(out, w.frame + s.in[0] * w.n + t * s.item, s.item);
}

void Interpreter::write_all(const Step& s, const Warp& w, int64_t value) const {
  const auto item = static_cast<size_t>(s.index_type.itemsize());
  unsigned char* out = w.frame + s.out * w.n;
  write_int(out, s.index_type, value);
  for (size_t t = 1; t < w.n; t++) copy_item(out + t * item, out, static_cast<int>(item));
}

/// Sets the counter of a loop to its first value; false when it has none. All threads make the same iterations.
bool Interpreter::begin_loop(const Step& s, const Warp& w) const {
  int64_t state[2] = {w.begin, w.end};
  if (s.kind == Kind::kLoop) {
    const DType d = s.u.src(0).dtype();
    const unsigned char* ends = w.frame + s.in[0] * w.n;
    state[0] = 0;
    state[1] = read_int(ends, d);
    for (size_t t = 1; t < w.n; t++)
      TG_ASSERT(read_int(ends + t * static_cast<size_t>(d.itemsize()), d) == state[1],
                "threads of a group with loops of different lengths: ", s.u);
  }
  std::memcpy(w.frame + s.in[1] * w.n, state, sizeof state);
  write_all(s, w, state[0]);
  return state[0] < state[1];
}
/// Counts on; true after the last value.
bool Interpreter::end_of_loop(const Step& s, const Warp& w) const {
  int64_t state[2];
  std::memcpy(state, w.frame + s.in[1] * w.n, sizeof state);
  std::memcpy(w.frame + s.in[1] * w.n, &++state[0], sizeof state[0]);
  write_all(s, w, state[0]);
  return state[0] >= state[1];
}

/// Puts the literals into the frame.
void Interpreter::start(Warp& w) const {
  w.pc = 0;
  for (const auto& [place, bytes] : literals_)
    for (size_t t = 0; t < w.n; t++) std::memcpy(w.frame + place * w.n + t * bytes, image_.data() + place, bytes);
}

/// Runs a warp to the end, past the next barrier of its group, or to something that is not there yet.
Interpreter::Stop Interpreter::run_to_barrier(Warp& w, void* const* buffers, const int64_t* vars) const {
  const size_t n = w.n;
  unsigned char* frame = w.frame;
  while (w.pc < steps_.size()) {
    const Step& s = steps_[w.pc++];
    unsigned char* out = frame + s.out * n;
    const size_t elements = static_cast<size_t>(s.lanes) * n;
    switch (s.kind) {
      case Kind::kAlu: {
        const void* in[3] = {frame + s.in[0] * n, frame + s.in[1] * n, frame + s.in[2] * n};
        s.fn(out, in, elements);
        break;
      }
      case Kind::kSplat: splat(s, w); break;
      case Kind::kCopy: std::memcpy(out, frame + s.in[0] * n, elements * s.item); break;
      case Kind::kToBool:
        for (size_t e = 0; e < elements; e++) out[e] = frame[s.in[0] * n + e] != 0;
        break;
      case Kind::kVar: write_all(s, w, vars[s.size]); break;
      case Kind::kSpecial:
        for (size_t t = 0; t < n; t++)
          write_int(out + t * static_cast<size_t>(s.index_type.itemsize()), s.index_type,
                    w.position[t * 6 + static_cast<size_t>(s.size)]);
        break;
      case Kind::kLoop:
      case Kind::kThreadLoop:
        if (!begin_loop(s, w)) w.pc = static_cast<size_t>(s.base);
        break;
      case Kind::kEnd:
        if (!end_of_loop(s, w)) w.pc = static_cast<size_t>(s.base);
        break;
      case Kind::kLoad: load(s, w, buffers); break;
      case Kind::kStore: store(s, w, buffers); break;
      case Kind::kReduce: reduce(s, w); break;
      case Kind::kProduct: product(s, w); break;
      case Kind::kShuffle: shuffle(s, w); break;
      case Kind::kMatrixLoad: matrix_load(s, w, buffers); break;
      case Kind::kMatrix: matrix(s, w); break;
      case Kind::kProductOfMemory: product_of_memory(s, w); break;
      case Kind::kReadPixel: read_pixels(s, w, buffers); break;
      case Kind::kWritePixel: write_pixels(s, w, buffers); break;
      case Kind::kWaitForProducts: {
        if (!w.begun) break;
        UnderWay::Groups& products = (*w.begun)[w.number].products;
        products.end();
        products.wait(s.base);
        break;
      }
      case Kind::kEndCopies:
        if (w.begun) (*w.begun)[w.number].copies.end();
        break;
      case Kind::kBarrier: wait_for_copies(s, w); return Stop::kBarrier;
      case Kind::kClusterBarrier: wait_for_copies(s, w); return Stop::kCluster;
      case Kind::kBeginBarriers: begin_barriers(s, w); return Stop::kCluster;
      case Kind::kExpectBoxes: expect_boxes(s, w); break;
      case Kind::kBox: copy_box(s, w, buffers); break;
      case Kind::kReleaseRoom: release_room(s, w); break;
      case Kind::kAwaitRoom:
      case Kind::kAwaitBoxes:
        if (await_phase(s, w)) break;
        w.pc--;  // asks again
        return Stop::kAwait;
    }
  }
  return Stop::kEnd;
}

void Interpreter::run(void* const* buffers, const int64_t* vars, int64_t begin, int64_t end) const {
  const std::unique_ptr<unsigned char[]> memory(new unsigned char[frame_bytes_ + shared_bytes_ + kAlign]);
  Warp w{memory.get(), memory.get() + frame_bytes_, 1, begin, end};
  start(w);
  while (run_to_barrier(w, buffers, vars) != Stop::kEnd) {}
}

}  // namespace tg
