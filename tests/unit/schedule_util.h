/// \file For tests of the scheduler: tensor graphs by hand, their dense evaluation, and a plain evaluator of kernel
/// ASTs.
#pragma once
#include <cmath>
#include <functional>
#include <random>
#include <unordered_map>

#include "gtest/gtest.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/uop/eval.h"

namespace tg::test {

using Values = std::vector<ConstValue>;

// ---- building ----
inline UOp buffer(std::initializer_list<int64_t> shape, DType d = dtypes::float32, const char* device = "CPU") {
  return new_buffer(Shape(shape), d, device);
}
inline UOp reshape(UOp x, const Shape& s) { return UOp::make(Ops::RESHAPE, x.dtype(), {x, s.stack()}); }
inline UOp expand(UOp x, const Shape& s) { return UOp::make(Ops::EXPAND, x.dtype(), {x, s.stack()}); }
inline UOp permute(UOp x, std::vector<int64_t> p) { return UOp::make(Ops::PERMUTE, x.dtype(), {x}, p); }
inline UOp flip(UOp x, std::vector<int64_t> a) { return UOp::make(Ops::FLIP, x.dtype(), {x}, a); }
inline UOp pad(UOp x, const Shape& off, const Shape& size) {
  return UOp::make(Ops::PAD, x.dtype(), {x, off.stack(), size.stack()});
}
inline UOp shrink(UOp x, const Shape& off, const Shape& size) {
  return UOp::make(Ops::SHRINK, x.dtype(), {x, off.stack(), size.stack()});
}
inline UOp reduce(UOp x, Ops op, std::vector<int32_t> axes) {
  return UOp::make(Ops::REDUCE, x.dtype(), {x}, ReduceArg{op, std::move(axes)});
}
inline UOp sum(UOp x, std::vector<int32_t> axes) { return reduce(x, Ops::ADD, std::move(axes)); }
inline UOp contiguous(UOp x) { return UOp::make(Ops::CONTIGUOUS, x.dtype(), {x}); }
inline UOp copy_to(UOp x, const char* device) { return UOp::make(Ops::COPY, x.dtype(), {x}, device); }
inline UOp arange(int64_t n, DType d = dtypes::int32) { return UOp::make(Ops::ARANGE, d, {Shape{n}.stack()}); }
inline UOp gather(UOp x, std::initializer_list<UOp> i) {
  UOps s{x};
  s.insert(s.end(), i.begin(), i.end());
  return UOp::make(Ops::INDEX, x.dtype(), s);
}
inline UOp assign(UOp dest, UOp value) { return dest.after({dest.store(value)}); }
inline UOp unary(Ops op, UOp x) { return UOp::alu(op, {x}); }
inline UOp relu(UOp x) { return x.maximum(x.const_like(0)); }
inline UOp matmul(UOp a, UOp b) {
  int64_t m = shape_of(a)[0], k = shape_of(a)[1], n = shape_of(b)[1];
  UOp p = reshape(a, {m, 1, k}) * reshape(permute(b, {1, 0}), {1, n, k});
  return reshape(sum(p, {2}), {m, n});
}

// ---- dense evaluation of tensor graphs without effects ----
class Dense {
 public:
  std::unordered_map<UOp, Values> buffers;
  const Values& operator()(UOp root) {
    for (UOp u : root.toposort())
      if (!memo_.count(u)) memo_[u] = compute(u);
    return memo_.at(root);
  }

 private:
  static std::vector<int64_t> unflatten(int64_t i, const std::vector<int64_t>& shape) {
    std::vector<int64_t> idx(shape.size());
    for (size_t k = shape.size(); k-- > 0;) {
      idx[k] = i % shape[k];
      i /= shape[k];
    }
    return idx;
  }
  static int64_t flatten(const std::vector<int64_t>& idx, const std::vector<int64_t>& shape) {
    int64_t f = 0;
    for (size_t k = 0; k < shape.size(); k++) f = f * shape[k] + idx[k];
    return f;
  }
  /// Element of a source at an index of the (broadcast) result.
  static int64_t broadcast(const std::vector<int64_t>& idx, const std::vector<int64_t>& shape) {
    int64_t f = 0;
    for (size_t k = 0; k < shape.size(); k++)
      f = f * shape[k] + (shape[k] == 1 ? 0 : idx[idx.size() - shape.size() + k]);
    return f;
  }
  Values compute(UOp u) {
    if (u.dtype().is_void() || u.is(Ops::SINK)) return {};
    auto shape = shape_of(u).ints();
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    Values out(static_cast<size_t>(n));
    auto src = [&](size_t k) -> const Values& { return memo_.at(u.src(k)); };
    auto dims = [&](size_t k) { return shape_of(u.src(k)).ints(); };
    auto each = [&](auto f) {
      for (int64_t i = 0; i < n; i++) out[static_cast<size_t>(i)] = f(i, unflatten(i, shape));
    };
    switch (u.op()) {
      case Ops::BUFFER: return buffers.at(u);
      case Ops::CONST: each([&](int64_t, auto) { return u.const_value(); }); break;
      case Ops::ARANGE: each([&](int64_t i, auto) { return ConstValue(i); }); break;
      case Ops::RESHAPE:
      case Ops::CONTIGUOUS:
      case Ops::DETACH:
      case Ops::COPY:
      case Ops::AFTER: return src(0);
      case Ops::EXPAND:
        each([&](int64_t, auto idx) { return src(0)[static_cast<size_t>(broadcast(idx, dims(0)))]; });
        break;
      case Ops::PERMUTE: {
        const auto& p = u.arg<std::vector<int64_t>>();
        each([&](int64_t, auto idx) {
          std::vector<int64_t> in(idx.size());
          for (size_t k = 0; k < p.size(); k++) in[static_cast<size_t>(p[k])] = idx[k];
          return src(0)[static_cast<size_t>(flatten(in, dims(0)))];
        });
        break;
      }
      case Ops::FLIP:
        each([&](int64_t, auto idx) {
          for (int64_t a : u.arg<std::vector<int64_t>>())
            idx[static_cast<size_t>(a)] = shape[static_cast<size_t>(a)] - 1 - idx[static_cast<size_t>(a)];
          return src(0)[static_cast<size_t>(flatten(idx, dims(0)))];
        });
        break;
      case Ops::SHRINK:
        each([&](int64_t, auto idx) {
          for (size_t k = 0; k < idx.size(); k++) idx[k] += static_cast<int64_t>(u.src(1).src(k).const_int());
          return src(0)[static_cast<size_t>(flatten(idx, dims(0)))];
        });
        break;
      case Ops::PAD:
        each([&](int64_t, auto idx) {
          for (size_t k = 0; k < idx.size(); k++) {
            idx[k] -= static_cast<int64_t>(u.src(1).src(k).const_int());
            if (idx[k] < 0 || idx[k] >= dims(0)[k]) return u.dtype().is_float() ? ConstValue(0.0) : ConstValue(0);
          }
          return src(0)[static_cast<size_t>(flatten(idx, dims(0)))];
        });
        break;
      case Ops::STACK:
        each([&](int64_t i, auto) {
          int64_t m = n / u.nsrc();
          return src(static_cast<size_t>(i / m))[static_cast<size_t>(i % m)];
        });
        break;
      case Ops::INDEX: {
        size_t k = u.nsrc() - 1;
        std::vector<const Shape*> s;
        for (size_t j = 0; j < k; j++) s.push_back(&shape_of(u.src(j + 1)));
        size_t head = broadcast_shapes(s, "index").size();
        each([&](int64_t, auto idx) {
          std::vector<int64_t> in, at(idx.begin(), idx.begin() + static_cast<int64_t>(head));
          for (size_t j = 0; j < k; j++)
            in.push_back(static_cast<int64_t>(src(j + 1)[static_cast<size_t>(broadcast(at, dims(j + 1)))].i));
          in.insert(in.end(), idx.begin() + static_cast<int64_t>(head), idx.end());
          return src(0)[static_cast<size_t>(flatten(in, dims(0)))];
        });
        break;
      }
      case Ops::REDUCE: {
        std::vector<bool> set(out.size(), false);
        Ops op = u.arg<ReduceArg>().op;
        if (op == Ops::MUL) out.assign(out.size(), u.dtype().is_float() ? ConstValue(1.0) : ConstValue(1));
        auto in = dims(0);
        for (int64_t i = 0; i < static_cast<int64_t>(src(0).size()); i++) {
          auto o = static_cast<size_t>(broadcast(unflatten(i, in), shape));
          ConstValue pair[2] = {out[o], src(0)[static_cast<size_t>(i)]};
          out[o] = set[o] ? eval_alu(op, u.dtype(), pair, u.dtype()) : pair[1];
          set[o] = true;
        }
        break;
      }
      case Ops::CAST:
        each([&](int64_t i, auto) { return eval_cast(src(0)[static_cast<size_t>(i)], u.src(0).dtype(), u.dtype()); });
        break;
      case Ops::BITCAST:
        each(
            [&](int64_t i, auto) { return eval_bitcast(src(0)[static_cast<size_t>(i)], u.src(0).dtype(), u.dtype()); });
        break;
      default:
        each([&](int64_t, auto idx) {
          ConstValue in[3];
          for (size_t k = 0; k < u.nsrc(); k++) in[k] = src(k)[static_cast<size_t>(broadcast(idx, dims(k)))];
          return eval_alu(u.op(), u.dtype(), {in, u.nsrc()}, u.src(u.nsrc() - 1).dtype());
        });
    }
    return out;
  }
  std::unordered_map<UOp, Values> memo_;
};

// ---- kernels ----
/// Runs a kernel AST over buffers given by slot.
class KernelRun {
 public:
  KernelRun(const Kernel& k, std::vector<Values*> buffers, std::vector<int64_t> vars)
      : buffers_(std::move(buffers)), vars_(std::move(vars)), scope_(*k.arena) {
    for (UOp effect : k.sink.srcs()) {
      UOps ranges;
      if (effect.is(Ops::END)) {
        ranges.assign(effect.srcs().begin() + 1, effect.srcs().end());
        effect = effect.src(0);
      }
      loop(ranges, 0, [&] {
        memo_.assign(1, {});
        ConstValue at = eval(effect.src(0).src(1)), v = eval(effect.src(1));
        if (at.kind == ConstValue::kInvalid) return;
        Values& b = *buffers_[static_cast<size_t>(effect.src(0).src(0).arg<ParamArg>().slot)];
        if (at.i < 0 || at.i >= static_cast<int128>(b.size())) {
          ADD_FAILURE() << "store out of bounds: " << static_cast<int64_t>(at.i) << " of " << b.size();
          return;
        }
        b[static_cast<size_t>(at.i)] = v;
      });
    }
  }

 private:
  void loop(const UOps& ranges, size_t k, const std::function<void()>& body) {
    if (k == ranges.size()) {
      body();
      return;
    }
    auto end = static_cast<int64_t>(eval(ranges[k].src(0)).i);
    for (int64_t i = 0; i < end; i++) {
      at_[ranges[k]] = i;
      loop(ranges, k + 1, body);
    }
    at_.erase(ranges[k]);
  }
  ConstValue eval(UOp u) {
    for (size_t k = memo_.size(); k-- > 0;)
      if (auto it = memo_[k].find(u); it != memo_[k].end()) return it->second;
    ConstValue v = compute(u);
    if (memo_.empty()) return v;
    memo_.back()[u] = v;
    return v;
  }
  ConstValue compute(UOp u) {
    switch (u.op()) {
      case Ops::CONST: return u.const_value();
      case Ops::RANGE:
        if (!at_.count(u)) {
          ADD_FAILURE() << "range used outside its loop: " << u;
          return 0;
        }
        return at_[u];
      case Ops::PARAM: return vars_.at(static_cast<size_t>(std::stoi(u.arg<ParamArg>().name.substr(1))));
      case Ops::CAST: return eval_cast(eval(u.src(0)), u.src(0).dtype(), u.dtype());
      case Ops::BITCAST: return eval_bitcast(eval(u.src(0)), u.src(0).dtype(), u.dtype());
      case Ops::LOAD: {
        ConstValue i = eval(u.src(0).src(1));
        Values& b = *buffers_[static_cast<size_t>(u.src(0).src(0).arg<ParamArg>().slot)];
        if (i.kind == ConstValue::kInvalid) return u.dtype().is_float() ? ConstValue(0.0) : ConstValue(0);
        if (i.i < 0 || i.i >= static_cast<int128>(b.size())) {
          ADD_FAILURE() << "load out of bounds: " << static_cast<int64_t>(i.i) << " of " << b.size();
          return 0;
        }
        return b[static_cast<size_t>(i.i)];
      }
      case Ops::REDUCE: {
        UOps ranges(u.srcs().begin() + 1, u.srcs().end());
        ConstValue acc;
        bool first = true;
        loop(ranges, 0, [&] {
          memo_.emplace_back();
          ConstValue pair[2] = {acc, eval(u.src(0))};
          acc = first ? pair[1] : eval_alu(u.arg<ReduceArg>().op, u.dtype(), pair, u.dtype());
          first = false;
          memo_.pop_back();
        });
        return acc;
      }
      case Ops::WHERE: return eval(u.src(0)).i ? eval(u.src(1)) : eval(u.src(2));
      default: {
        ConstValue in[3];
        for (size_t k = 0; k < u.nsrc(); k++) in[k] = eval(u.src(k));
        return eval_alu(u.op(), u.dtype(), {in, u.nsrc()}, u.src(u.nsrc() - 1).dtype());
      }
    }
  }
  std::vector<Values*> buffers_;
  std::vector<int64_t> vars_;
  std::unordered_map<UOp, int64_t> at_;
  std::vector<std::unordered_map<UOp, ConstValue>> memo_;
  ArenaScope scope_;
};

/// Memory of BUFFER nodes by slot.
using Memory = std::unordered_map<int64_t, Values>;
inline UOp buffer_under(UOp u) { return base_of(u); }

/// Runs a schedule; buffers that share an arena really share memory, so that a wrong plan shows. Unknown results are
/// poisoned with NaN.
inline void run_schedule(const BoundSchedule& b, Memory& memory) {
  const Schedule& s = *b.schedule;
  std::vector<Values> storage(s.buffers.size());
  std::vector<Values*> at(s.buffers.size());
  for (size_t i = 0; i < s.buffers.size(); i++) {
    storage[i].assign(static_cast<size_t>(s.buffers[i].size), ConstValue(std::nan("")));
    at[i] = &storage[i];
    if (i < b.inputs.size()) at[i] = &memory.at(b.inputs[i].arg<ParamArg>().slot);
  }
  for (size_t r = 0; r < b.results.size(); r++)
    if (int32_t i = s.results[r]; i >= static_cast<int32_t>(b.inputs.size()))
      at[static_cast<size_t>(i)] =
          &(memory[buffer_under(b.results[r]).arg<ParamArg>().slot] = storage[static_cast<size_t>(i)]);
  auto overlap = [&](const ScheduleBuffer& x, const ScheduleBuffer& y) {
    return x.offset >= 0 && y.offset >= 0 && x.device == y.device &&
           x.offset < y.offset + y.size * y.dtype.itemsize() && y.offset < x.offset + x.size * x.dtype.itemsize();
  };
  std::vector<int64_t> vars;
  for (const ScheduleCall& c : s.calls) {
    // A written buffer spoils all that share its bytes.
    for (size_t i = 0; i < s.buffers.size(); i++)
      if (static_cast<int32_t>(i) != c.buffers[0] &&
          overlap(s.buffers[i], s.buffers[static_cast<size_t>(c.buffers[0])]))
        storage[i].assign(storage[i].size(), ConstValue(std::nan("")));
    std::vector<Values*> args;
    for (int32_t i : c.buffers) args.push_back(at[static_cast<size_t>(i)]);
    if (c.kind == ScheduleCall::kCopy) {
      *args[0] = *args[1];
      continue;
    }
    vars.clear();
    for (int32_t v : c.vars) vars.push_back(b.vars[static_cast<size_t>(v)].second);
    KernelRun(*c.kernel, args, vars);
  }
}

/// Gives every BUFFER of the graph values, schedules, runs, and compares the results with the dense evaluation. Returns
/// the number of kernels.
inline size_t check(const UOps& r, double tolerance = 1e-5) {
  Dense dense;
  Memory memory;
  uint32_t seed = 1;
  for (UOp root : r)
    for (UOp u : root.toposort()) {
      if (!u.is(Ops::BUFFER) || dense.buffers.count(u)) continue;
      std::mt19937 rng(seed++);
      Values v(static_cast<size_t>(shape_of(u).numel()));
      for (ConstValue& x : v)
        x = u.dtype().is_float() ? ConstValue(static_cast<double>(static_cast<int>(rng() % 41) - 20) / 8)
                                 : ConstValue(static_cast<int64_t>(u.dtype().is_bool() ? rng() % 2 : rng() % 8));
      dense.buffers[u] = v;
      memory[u.arg<ParamArg>().slot] = v;
    }
  BoundSchedule s = create_schedule(r);
  run_schedule(s, memory);
  Dense after;
  for (UOp root : s.results) {
    UOp b = buffer_under(root);
    after.buffers[b] = memory.at(b.arg<ParamArg>().slot);
  }
  for (size_t i = 0; i < r.size(); i++) {
    const Values &want = dense(r[i]), &got = after(s.results[i]);
    EXPECT_EQ(want.size(), got.size());
    if (want.size() != got.size()) continue;
    for (size_t k = 0; k < want.size(); k++) {
      double w = want[k].as_double(), g = got[k].as_double();
      if (std::isnan(w) ? !std::isnan(g) : !(std::abs(w - g) <= tolerance * std::max(1.0, std::abs(w)))) {
        ADD_FAILURE() << "root " << i << " element " << k << ": got " << g << ", expected " << w;
        break;
      }
    }
  }
  return s.schedule->calls.size();
}

}  // namespace tg::test
