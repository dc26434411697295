/// \file Decodes and executes linear programs.
#include "tinygrad/runtime/interp.h"

#include <algorithm>
#include <cstring>

#include "tinygrad/render/program_view.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/variables.h"

namespace tg {
namespace {
constexpr size_t kAlign = 16;

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
    for (const Inst& in : view_.insts()) literals(in);
    to_.image_.resize(next_);
    for (const Inst& in : view_.insts()) fill(in);
    for (const Inst& in : view_.insts()) instruction(in);
    TG_ASSERT(open_.empty(), "a loop without END: ", open_.back());
    to_.frame_bytes_ = next_;
  }

 private:
  size_t reserve(size_t bytes) {
    const size_t at = next_;
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
    unsigned char* at = to_.image_.data() + place(in.u);
    if (in.u.is_const()) store_const(at, in.u.const_value(), in.u.dtype());
    else if (is_lane(in.u))
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
      case Ops::BUFFER: place(u) = reserve(static_cast<size_t>(storage_size(u)) * item(u)); return;
      case Ops::RANGE:
        if (!is_lane(u)) open(u);
        return;
      case Ops::END:
        for (size_t i = u.nsrc(); i-- > 1;)
          if (u.src(i).is(Ops::RANGE) && !is_lane(u.src(i))) close(u.src(i));
        return;
      case Ops::LOAD:
      case Ops::STORE: return access(u);
      case Ops::REDUCE: return reduce(u);
      default:
        TG_ASSERT(u.in(groups::kElementwise), "not an instruction of a linear program: ", u);
        return arithmetic(u, in.lanes);
    }
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
    TG_ASSERT(a.base.dtype().itemsize() == d.itemsize(), "access of ", d, " to ", a.base.dtype(), ": ", u);
    s.index_type = a.index.dtype();
    s.index_item = static_cast<uint8_t>(item(a.index));
    s.size = a.size;
    s.buffer_in_frame = a.base.is(Ops::BUFFER);
    s.base = s.buffer_in_frame ? static_cast<int64_t>(place(a.base)) : a.base.arg<ParamArg>().slot;
    TG_ASSERT(s.buffer_in_frame || (s.base >= 0 && s.base < p_.nbuffers), "parameter ", s.base, " of ", p_.nbuffers);
    s.in[0] = operand(a.index, lanes);
    if (u.nsrc() > 1) s.in[1] = operand(u.src(1), lanes);
    if (u.nsrc() > 2) {
      s.in[2] = operand(u.src(2), lanes);
      s.gated = true;
    }
    if (is_load) s.out = place(u) = reserve(s.item * static_cast<size_t>(lanes));
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
  UOps open_;
  size_t next_ = 0;
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
int64_t Interpreter::checked_index(const Step& s, const unsigned char* frame, int lane) const {
  const int64_t i = read_int(frame + s.in[0] + static_cast<size_t>(lane) * s.index_item, s.index_type);
  if (i < 0 || i >= s.size) [[unlikely]]
    out_of_bounds(s, lane, i);
  return i;
}

void Interpreter::load(const Step& s, unsigned char* frame, void* const* buffers) const {
  const unsigned char* base = s.buffer_in_frame ? frame + s.base : static_cast<const unsigned char*>(buffers[s.base]);
  unsigned char* out = frame + s.out;
  const size_t item = s.item;
  if (s.affine) {
    const int64_t first = checked_index(s, frame, 0);
    checked_index(s, frame, s.lanes - 1);
    std::memcpy(out, base + static_cast<size_t>(first) * item, item * static_cast<size_t>(s.lanes));
    return;
  }
  for (int l = 0; l < s.lanes; l++) {
    const size_t at = static_cast<size_t>(l) * item;
    if (s.gated && !frame[s.in[2] + static_cast<size_t>(l)]) copy_item(out + at, frame + s.in[1] + at, s.item);
    else copy_item(out + at, base + static_cast<size_t>(checked_index(s, frame, l)) * item, s.item);
  }
}

void Interpreter::store(const Step& s, unsigned char* frame, void* const* buffers) const {
  unsigned char* base = s.buffer_in_frame ? frame + s.base : static_cast<unsigned char*>(buffers[s.base]);
  const unsigned char* value = frame + s.in[1];
  const size_t item = s.item;
  if (s.affine) {
    const int64_t first = checked_index(s, frame, 0);
    checked_index(s, frame, s.lanes - 1);
    std::memcpy(base + static_cast<size_t>(first) * item, value, item * static_cast<size_t>(s.lanes));
    return;
  }
  for (int l = 0; l < s.lanes; l++)
    if (!s.gated || frame[s.in[2] + static_cast<size_t>(l)])
      copy_item(base + static_cast<size_t>(checked_index(s, frame, l)) * item, value + static_cast<size_t>(l) * item,
                s.item);
}

/// Combines lanes i and i + half, until one is left; the middle lane of an odd count waits.
void Interpreter::reduce(const Step& s, unsigned char* frame) const {
  unsigned char* v = frame + s.in[1];
  std::memcpy(v, frame + s.in[0], static_cast<size_t>(s.lanes) * s.item);
  for (int n = s.lanes; n > 1;) {
    const int half = (n + 1) / 2;
    const void* in[2] = {v, v + static_cast<size_t>(half) * s.item};
    s.fn(v, in, static_cast<size_t>(n - half));
    n = half;
  }
  std::memcpy(frame + s.out, v, s.item);
}

void Interpreter::run(void* const* buffers, const int64_t* vars, int64_t begin, int64_t end) const {
  const std::unique_ptr<unsigned char[]> memory(new unsigned char[frame_bytes_ + 16]);
  unsigned char* frame = memory.get();
  std::memcpy(frame, image_.data(), image_.size());
  for (size_t pc = 0; pc < steps_.size();) {
    const Step& s = steps_[pc];
    unsigned char* out = frame + s.out;
    switch (s.kind) {
      case Kind::kAlu: {
        const void* in[3] = {frame + s.in[0], frame + s.in[1], frame + s.in[2]};
        s.fn(out, in, static_cast<size_t>(s.lanes));
        break;
      }
      case Kind::kSplat:
        for (int l = 0; l < s.lanes; l++) copy_item(out + l * s.item, frame + s.in[0], s.item);
        break;
      case Kind::kCopy: std::memcpy(out, frame + s.in[0], static_cast<size_t>(s.lanes) * s.item); break;
      case Kind::kToBool:
        for (int l = 0; l < s.lanes; l++) out[l] = frame[s.in[0] + static_cast<size_t>(l)] != 0;
        break;
      case Kind::kVar: write_int(out, s.index_type, vars[s.size]); break;
      case Kind::kLoop:
      case Kind::kThreadLoop: {
        int64_t state[2] = {0, 0};
        if (s.kind == Kind::kThreadLoop) {
          state[0] = begin;
          state[1] = end;
        } else state[1] = read_int(frame + s.in[0], s.u.src(0).dtype());
        std::memcpy(frame + s.in[1], state, sizeof state);
        write_int(out, s.index_type, state[0]);
        if (state[0] >= state[1]) {
          pc = static_cast<size_t>(s.base);
          continue;
        }
        break;
      }
      case Kind::kEnd: {
        int64_t state[2];
        std::memcpy(state, frame + s.in[1], sizeof state);
        std::memcpy(frame + s.in[1], &++state[0], sizeof state[0]);
        write_int(out, s.index_type, state[0]);
        if (state[0] < state[1]) {
          pc = static_cast<size_t>(s.base);
          continue;
        }
        break;
      }
      case Kind::kLoad: load(s, frame, buffers); break;
      case Kind::kStore: store(s, frame, buffers); break;
      case Kind::kReduce: reduce(s, frame); break;
    }
    pc++;
  }
}

}  // namespace tg
