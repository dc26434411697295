/// \file Two slow, independent meanings of a kernel: its AST evaluated point by point, and its linear program executed
/// lane by lane.
#pragma once
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "tinygrad/target/program.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/facts.h"

namespace tg::testing {

using Values = std::vector<ConstValue>;
using Memory = std::vector<Values>;  // by PARAM slot
using Vars = std::map<std::string, int64_t>;

inline ConstValue reduce_identity(Ops op, DType d) {
  if (op == Ops::ADD) return d.is_float() ? ConstValue(0.0) : ConstValue(0);
  if (op == Ops::MUL) return d.is_float() ? ConstValue(1.0) : ConstValue(1);
  return d.is_float() ? ConstValue(lowest_float(d)) : ConstValue(int_min(d));
}
inline ConstValue apply_op(UOp u, std::span<const ConstValue> s) {
  if (u.is(Ops::CAST)) return eval_cast(s[0], u.src(0).dtype(), u.dtype());
  if (u.is(Ops::BITCAST)) return eval_bitcast(s[0], u.src(0).dtype(), u.dtype());
  return eval_alu(u.op(), u.dtype(), s,
                  u.src(u.is(Ops::WHERE) && !u.src(1).is_invalid() ? 1
                        : u.is(Ops::WHERE)                         ? 2
                                                                   : 0)
                      .dtype());
}

/// Evaluates a kernel AST. An Invalid index or value means that nothing is stored; a load there gives its alternative,
/// or 0.
class AstEval {
 public:
  AstEval(Memory& memory, Vars vars = {}) : memory_(memory), before_(memory), vars_(std::move(vars)) {}
  /// Executes a kernel, or any effect, with these values of the ranges it does not close.
  void run(UOp effect, std::unordered_map<UOp, int64_t> ranges = {}) {
    env_ = std::move(ranges);
    memo_.clear();
    execute(effect);
  }
  /// The value of an expression.
  ConstValue value_at(UOp u, std::unordered_map<UOp, int64_t> ranges) {
    env_ = std::move(ranges);
    memo_.clear();
    return value(u);
  }

 private:
  void execute(UOp u) {
    if (u.in(Ops::SINK | Ops::GROUP | Ops::NOOP)) {
      for (UOp e : u.srcs()) execute(e);
      return;
    }
    if (u.is(Ops::END)) return loop(UOps(u.srcs().begin() + 1, u.srcs().end()), 0, [&] { execute(u.src(0)); });
    if (!u.is(Ops::STORE)) throw std::logic_error(str("no effect: ", u));
    ConstValue at = value(u.src(0).src(1));
    if (at.kind == ConstValue::kInvalid) return;
    if (u.nsrc() == 3 && value(u.src(2)).i == 0) return;
    if (ConstValue v = value(u.src(1)); v.kind != ConstValue::kInvalid)
      memory_.at(slot(u)).at(static_cast<size_t>(at.i)) = v;
  }
  static size_t slot(UOp u) { return static_cast<size_t>(u.src(0).src(0).arg<ParamArg>().slot); }
  template <class F> void loop(const UOps& ranges, size_t i, const F& body) {
    if (i == ranges.size()) return body();
    if (ranges[i].is_const()) return loop(ranges, i + 1, body);  // of size one, folded away
    auto n = static_cast<int64_t>(value(ranges[i].src(0)).i);
    for (int64_t v = 0; v < n; v++) {
      env_[ranges[i]] = v;
      memo_.clear();
      loop(ranges, i + 1, body);
    }
    env_.erase(ranges[i]);
    memo_.clear();
  }
  ConstValue value(UOp u) {
    if (auto it = memo_.find(u); it != memo_.end()) return it->second;
    ConstValue v = compute(u);
    return memo_[u] = v;
  }
  ConstValue compute(UOp u) {
    if (u.is(Ops::CONST)) return u.const_value();
    if (u.in(Ops::RANGE | Ops::SPECIAL)) return env_.at(u);
    if (u.is(Ops::AFTER)) return value(u.src(0));
    if (u.is(Ops::PARAM)) return vars_.at(u.arg<ParamArg>().name);
    if (u.is(Ops::LOAD)) {
      if (u.nsrc() == 3 && value(u.src(2)).i == 0) return value(u.src(1));
      ConstValue at = value(u.src(0).src(1));
      if (at.kind == ConstValue::kInvalid)
        return u.nsrc() == 3 ? value(u.src(1)) : u.dtype().is_float() ? ConstValue(0.0) : ConstValue(0);
      return before_.at(slot(u)).at(static_cast<size_t>(at.i));
    }
    if (u.is(Ops::REDUCE)) {
      Ops op = u.arg<ReduceArg>().op;
      ConstValue acc = reduce_identity(op, u.dtype());
      auto saved = memo_;
      loop(UOps(u.srcs().begin() + 1, u.srcs().end()), 0, [&] {
        ConstValue s[2] = {acc, value(u.src(0))};
        acc = eval_alu(op, u.dtype(), s, u.dtype());
      });
      memo_ = saved;
      return acc;
    }
    if (u.is(Ops::WHERE)) {
      const ConstValue c = value(u.src(0));
      return c.kind == ConstValue::kInvalid ? c : value(u.src(c.i ? 1 : 2));
    }
    if (u.is(Ops::BITCAST) && u.src(0).is(Ops::BITCAST))
      return value(u.src(0).src(0).bitcast(u.dtype()));  // a number in between cannot hold every NaN
    Values s;
    for (UOp x : u.srcs()) s.push_back(value(x));
    return apply_op(u, s);
  }
  Memory& memory_;
  Memory before_;
  Vars vars_;
  std::unordered_map<UOp, int64_t> env_;
  std::unordered_map<UOp, ConstValue> memo_;
};

/// Executes a linear program. begin/end: the part of the THREAD range.
class LinearEval {
 public:
  LinearEval(Memory& memory, Vars vars = {}) : memory_(memory), vars_(std::move(vars)) {}
  int64_t begin = 0, end = -1;
  std::map<std::string, int64_t> special;
  uint64_t executed = 0;

  /// Runs to the end, or past the next BARRIER; true at the end.
  bool run_part(const UOps& linear) {
    std::vector<Open>& loops = open_;
    for (size_t& pc = pc_; pc < linear.size(); pc++) {
      UOp u = linear[pc];
      executed++;
      for (UOp s : u.srcs())
        if (!val_.count(s) && !s.in(Ops::GROUP | Ops::NOOP))
          throw std::logic_error(str("source before definition at ", u, " wants ", s));
      if (u.is(Ops::RANGE) && u.arg<RangeArg>().type == AxisType::kVector) {
        Values v;
        for (int64_t i = 0; i < static_cast<int64_t>(u.src(0).const_int()); i++) v.push_back(i);
        val_[u] = v;
      } else if (u.is(Ops::RANGE)) {
        bool thread = u.arg<RangeArg>().type == AxisType::kThread;
        auto n = static_cast<int64_t>(val_.at(u.src(0))[0].i);
        int64_t first = thread ? begin : 0, last = thread && end >= 0 ? end : n;
        if (first >= last) {
          while (!(linear[pc].is(Ops::END) && linear[pc].src(1) == u)) pc++;
          val_[linear[pc]] = {0};
          continue;
        }
        loops.push_back({pc, first, last});
        val_[u] = {first};
      } else if (u.is(Ops::END)) {
        Open& l = loops.back();
        if (linear[l.at] != u.src(1)) throw std::logic_error("END of another loop");
        if (++l.i < l.n) {
          val_[linear[l.at]] = {l.i};
          pc = l.at;
        } else loops.pop_back();
        val_[u] = {0};
      } else {
        val_[u] = compute(u);
        if (u.is(Ops::BARRIER)) {
          pc++;
          return false;
        }
      }
    }
    if (!loops.empty()) throw std::logic_error("a loop is not ended");
    return true;
  }
  void run(const UOps& linear) {
    while (!run_part(linear)) {}
  }
  std::shared_ptr<std::map<int64_t, Values>> locals =
      std::make_shared<std::map<int64_t, Values>>();  ///< shared by the threads of a group

 private:
  struct Open {
    size_t at;
    int64_t i, n;
  };
  std::vector<Open> open_;
  size_t pc_ = 0;
  static size_t lanes(UOp u) { return static_cast<size_t>(lanes_of(u)); }
  static ConstValue lane(const Values& v, size_t i) { return v.size() == 1 ? v[0] : v.at(i); }
  Values& storage(UOp p) {
    while (!p.in(groups::kDefines)) p = p.src(0);
    const ParamArg& a = p.arg<ParamArg>();
    if (p.is(Ops::PARAM)) return memory_.at(static_cast<size_t>(a.slot));
    Values& r = (a.addrspace == AddrSpace::kReg ? registers_ : *locals)[a.slot];
    if (r.empty()) r.resize(static_cast<size_t>(shape_of(p)[0].value()));
    return r;
  }
  Values compute(UOp u) {
    switch (u.op()) {
      case Ops::CONST: return {u.const_value()};
      case Ops::PARAM:
        if (u.arg<ParamArg>().addrspace == AddrSpace::kAlu) return {vars_.at(u.arg<ParamArg>().name)};
        return {0};
      case Ops::SPECIAL: return {special.at(u.arg<std::string>())};
      case Ops::BUFFER:
      case Ops::STACK:
      case Ops::CUSTOM:
      case Ops::BARRIER: return {0};
      case Ops::AFTER: return val_.at(u.src(0));
      case Ops::INDEX: return val_.at(u.src(1));
      case Ops::LOAD: {
        Values& m = storage(u.src(0));
        const Values& at = val_.at(u.src(0));
        Values out;
        for (size_t i = 0; i < lanes(u); i++) {
          if (u.nsrc() == 3 && lane(val_.at(u.src(2)), i).i == 0) {
            out.push_back(lane(val_.at(u.src(1)), i));
            continue;
          }
          out.push_back(m.at(static_cast<size_t>(lane(at, i).i)));
        }
        return out;
      }
      case Ops::STORE: {
        Values& m = storage(u.src(0));
        const Values &at = val_.at(u.src(0)), &v = val_.at(u.src(1));
        for (size_t i = 0; i < std::max(at.size(), v.size()); i++) {
          if (u.nsrc() == 3 && lane(val_.at(u.src(2)), i).i == 0) continue;
          m.at(static_cast<size_t>(lane(at, i).i)) = lane(v, i);
        }
        return {0};
      }
      case Ops::REDUCE: {
        Values v = val_.at(u.src(0));
        if (v.size() == 1) throw std::logic_error("horizontal reduce of a scalar");
        for (size_t n = v.size() / 2; n; n /= 2)
          for (size_t i = 0; i < n; i++) {
            ConstValue s[2] = {v[i], v[i + n]};
            v[i] = eval_alu(u.arg<ReduceArg>().op, u.dtype(), s, u.dtype());
          }
        return {v[0]};
      }
      default: {
        size_t n = 1;
        for (UOp s : u.srcs()) n = std::max(n, val_.at(s).size());
        Values out;
        for (size_t i = 0; i < n; i++) {
          Values s;
          for (UOp x : u.srcs()) s.push_back(lane(val_.at(x), i));
          out.push_back(apply_op(u, s));
        }
        if (n != lanes(u)) throw std::logic_error(str("lanes of ", u, " are ", n));
        return out;
      }
    }
  }
  Memory& memory_;
  Vars vars_;
  std::unordered_map<UOp, Values> val_;
  std::map<int64_t, Values> registers_;
};

/// Executes a program of a grid: groups one after another, their threads in step from barrier to barrier.
inline void run_grid(const Program& p, Memory& memory, const Vars& vars = {}) {
  auto size = [](UOp u) { return u ? static_cast<int64_t>(u.const_int()) : 1; };
  int64_t g[3], l[3];
  for (int i = 0; i < 3; i++) {
    g[i] = size(p.global_size[i]);
    l[i] = size(p.local_size[i]);
  }
  for (int64_t group = 0; group < g[0] * g[1] * g[2]; group++) {
    auto locals = std::make_shared<std::map<int64_t, Values>>();
    std::vector<LinearEval> threads;
    for (int64_t t = 0; t < l[0] * l[1] * l[2]; t++) {
      threads.emplace_back(memory, vars);
      threads.back().locals = locals;
      int64_t a = group, b = t;
      for (int i = 0; i < 3; i++) {
        threads.back().special["gidx" + std::to_string(i)] = a % g[i];
        a /= g[i];
        threads.back().special["lidx" + std::to_string(i)] = b % l[i];
        b /= l[i];
      }
    }
    for (bool done = false; !done;)
      for (LinearEval& t : threads) done = t.run_part(p.insts);
  }
}

}  // namespace tg::testing
