/// \file Rule tables and the engine that applies them.
#pragma once
#include <array>
#include <atomic>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/upat.h"

namespace tg {

/// Attempts and applications of one rule and the time they took, counted while `track_match_stats` is set.
struct MatchStats {
  upat::Loc at;
  std::atomic<uint64_t> tries{0}, hits{0}, nanoseconds{0};
};
/// Whether rules count: TRACK_MATCH_STATS at the start of the program; tests set it. The counts are printed at exit
/// when the variable asked for them.
extern std::atomic<bool> track_match_stats;
/// The counters of a new rule; they live as long as the program.
MatchStats* new_match_stats(upat::Loc at);
/// All rules that were tried, the most expensive first: tries, hits, time, file:line.
std::string match_stats_table();
/// Counts one attempt that began at `begin` (match_clock()) and, with TRACK_MATCH_STATS=2, records what it did to
/// `before`.
void count_match(MatchStats& stats, uint64_t begin, bool hit, UOp before, UOp after);
uint64_t match_clock();

/// One rule, erased. `fn` returns an empty Result to decline.
template <class Result> struct Rule {
  OpSet roots;     ///< ops the root may have
  OpSet children;  ///< ops that must be among the root's direct sources
  Result (*fn)(const void* pattern, UOp u, void* ctx);
  std::shared_ptr<const void> pattern;
  const std::type_info* ctx;  ///< type of the context the body takes, or null
  MatchStats* stats;          ///< with its place in the source
};

namespace upat {
template <class P> constexpr OpSet children_of(const P&) { return {}; }
template <Ops O, class... S> constexpr OpSet children_of(const OpP<O, S...>&) {
  OpSet r;
  ((r |= S::ops), ...);
  return r;
}
template <class... S> constexpr OpSet children_of(const AnyOf<S...>&) {
  OpSet r;
  ((r |= S::ops), ...);
  return r;
}
template <class P, int I> constexpr OpSet children_of(const As<P, I>& p) { return children_of(p.p); }
template <class P, class F> constexpr OpSet children_of(const When<P, F>& p) { return children_of(p.p); }

/// A body's result counts unless it is empty: UOp{}, false, "", {}.
template <class R> bool has_result(const R& r) {
  if constexpr (requires { static_cast<bool>(r); }) return static_cast<bool>(r);
  else return !r.empty();
}

template <class T>
concept Capture = requires { std::remove_cvref_t<T>::slot; };
template <class... A> struct Sig {};
template <class R, class T, class... A> Sig<A...> sig_of(R (T::*)(A...) const);
template <class R, class T, class... A> R result_of(R (T::*)(A...) const);
template <class T, uint32_t binds> constexpr bool bound() {
  if constexpr (Capture<T>) return binds >> std::remove_cvref_t<T>::slot & 1;
  else return std::is_reference_v<T>;
}

template <class Result, Pat P, class Fn, class... A> Rule<Result> make_rule(P p, Fn, Sig<A...>, Loc at) {
  static_assert((bound<A, P::binds>() && ...),
                "a rule body names a capture its pattern does not bind (or takes its context by value)");
  const std::type_info* ctx = nullptr;
  ((Capture<A> ? void() : void(ctx = &typeid(std::remove_cvref_t<A>))), ...);
  return {p.roots(),
          children_of(p),
          [](const void* q, UOp u, void* c) -> Result {
            UOp s[kSlots];
            Result out{};
            match<0>(*static_cast<const P*>(q), u, s, [&] {
              out = Fn{}([&]() -> A {
                if constexpr (Capture<A>) return A(s[std::remove_cvref_t<A>::slot]);
                else return *static_cast<std::remove_cvref_t<A>*>(c);
              }()...);
              return has_result(out);
            });
            return out;
          },
          std::make_shared<P>(p),
          ctx,
          new_match_stats(at)};
}
/// A rule with a body. The body is a captureless lambda; its Result decides which tables take it.
template <Pat P, class Fn>
  requires requires { &Fn::operator(); }
auto rule(P p, Fn fn, Loc at = Loc()) {
  using Result = decltype(result_of(&Fn::operator()));
  using Plain = std::conditional_t<std::is_base_of_v<UOp, Result>, UOp, Result>;
  return make_rule<Plain>(p, fn, decltype(sig_of(&Fn::operator())){}, at);
}
/// An algebraic rule: both sides are patterns.
template <Pat P, Pat Q> Rule<UOp> rule(P p, Q q, Loc at = Loc()) {
  static_assert((P::binds & Q::binds) == Q::binds, "the result uses a name its pattern does not bind");
  struct Both {
    P p;
    Q q;
  };
  return {p.roots(),
          children_of(p),
          [](const void* v, UOp u, void*) -> UOp {
            UOp s[kSlots], out;
            auto* both = static_cast<const Both*>(v);
            match<0>(both->p, u, s, [&] {
              out = make(both->q, s, u.dtype());
              return true;
            });
            return out;
          },
          std::make_shared<Both>(Both{p, q}),
          nullptr,
          new_match_stats(at)};
}
template <Pat P, class L>
  requires std::is_arithmetic_v<L>
Rule<UOp> rule(P p, L v, Loc at = Loc()) {
  return rule(p, Lit{{}, ConstValue(v)}, at);
}
}  // namespace upat

/// A table of rules: a value; `a + b` tries a's rules first. Tables are functions returning a static, so that none is
/// used before it is made.
template <class Result = UOp> class PatternMatcher {
 public:
  PatternMatcher() = default;
  PatternMatcher(std::initializer_list<Rule<Result>> rules) {
    for (auto& r : rules) add(r);
  }
  PatternMatcher operator+(const PatternMatcher& o) const {
    PatternMatcher m(*this);
    for (auto& r : o.rules_) m.add(*r);
    return m;
  }

  /// Returns the first non-empty result, other than the node itself, of the rules in table order. `ctx` must be of the
  /// type the bodies take.
  Result rewrite(UOp u, void* ctx = nullptr) const { return first<false>(u, ctx); }
  /// Returns the first non-empty result, which may be the node itself: for tables that translate.
  Result translate(UOp u, void* ctx) const { return first<true>(u, ctx); }
  const std::vector<std::shared_ptr<const Rule<Result>>>& rules() const { return rules_; }
  OpSet roots() const { return roots_; }  ///< ops some rule starts at
  /// Context type the bodies take; null when none.
  const std::type_info* ctx_type() const { return ctx_; }

 private:
  template <bool kSame> Result first(UOp u, void* ctx) const {
    const bool track = track_match_stats.load(std::memory_order_relaxed);
    const OpSet children = u.src_ops();
    for (const Rule<Result>* r : by_op_[static_cast<size_t>(u.op())]) {
      if (!r->children.subset_of(children)) continue;
      const uint64_t begin = track ? match_clock() : 0;
      Result out = r->fn(r->pattern.get(), u, ctx);
      bool hit = upat::has_result(out);
      if constexpr (std::is_same_v<Result, UOp> && !kSame) hit = out && out != u;
      if (track) [[unlikely]] {
        if constexpr (std::is_same_v<Result, UOp>) count_match(*r->stats, begin, hit, u, out);
        else count_match(*r->stats, begin, hit, u, UOp());
      }
      if (hit) return out;
    }
    return Result{};
  }
  void add(const Rule<Result>& r) { add(std::make_shared<const Rule<Result>>(r)); }
  void add(std::shared_ptr<const Rule<Result>> r) {
    for (int o = 0; o < kOpCount; o++)
      if (r->roots.has(static_cast<Ops>(o))) by_op_[static_cast<size_t>(o)].push_back(r.get());
    if (r->ctx) {
      TG_ASSERT(!ctx_ || *ctx_ == *r->ctx, "rules of one table take different contexts: ", ctx_->name(), " and ",
                r->ctx->name());
      ctx_ = r->ctx;
    }
    roots_ |= r->roots;
    rules_.push_back(std::move(r));
  }
  std::vector<std::shared_ptr<const Rule<Result>>> rules_;
  std::array<std::vector<const Rule<Result>*>, kOpCount> by_op_;
  const std::type_info* ctx_ = nullptr;
  OpSet roots_;
};

struct RewriteOptions {
  const char* name = "";
};

/// Counts of the engine on this thread since start, for `rewrite_nodes_per_s` and statistics.
struct RewriteCounters {
  uint64_t visited = 0, fired = 0;
};
RewriteCounters& rewrite_counters();

/// Applies a table to everything `root` depends on (nodes of the current graph): sources, then the node; a result is
/// rewritten again until nothing fires. InternalError when rules chase each other, or grow the graph without end
/// (REWRITE_STACK_LIMIT).
UOp graph_rewrite(UOp root, const PatternMatcher<UOp>& pm, const RewriteOptions& options, void* ctx,
                  const std::type_info* ctx_type);
inline UOp graph_rewrite(UOp root, const PatternMatcher<UOp>& pm, const RewriteOptions& options = {}) {
  return graph_rewrite(root, pm, options, nullptr, nullptr);
}
template <class Ctx>
UOp graph_rewrite(UOp root, const PatternMatcher<UOp>& pm, Ctx& ctx, const RewriteOptions& options = {}) {
  return graph_rewrite(root, pm, options, const_cast<std::remove_const_t<Ctx>*>(&ctx), &typeid(Ctx));
}

/// The base of the contexts of tables that translate. A pattern matches the old node, with its old types and bounds;
/// its body reads here what the sources have become.
struct Translation {
  UOps src;              ///< the new sources
  bool changed = false;  ///< whether one of them is new
  /// Returns the node over its new sources, as a value of type `d`.
  UOp over(UOp u, DType d) const { return UOp::make(u.op(), d, src, u.arg(), u.tag()); }
  UOp over(UOp u) const { return same_or_with(u, src); }
  /// Whether the rules are asked about a node whose sources stay as they are. Contexts may have their own.
  bool concerns(UOp) const { return true; }
};
/// Translates a graph: each node once, sources first; results are final. A node that no rule translates keeps its type
/// over its new sources.
template <std::derived_from<Translation> Ctx> UOp translate(UOp root, const PatternMatcher<UOp>& pm, Ctx& ctx) {
  TG_ASSERT(!pm.ctx_type() || *pm.ctx_type() == typeid(Ctx), "the table needs a context of type ",
            pm.ctx_type()->name());
  return translate(root, [&](UOp u, const UOps& src) {
    ctx.changed = !has_srcs(u, src);
    if (!ctx.changed && (!pm.roots().has(u.op()) || !ctx.concerns(u))) return u;
    ctx.src = src;
    const UOp v = pm.translate(u, &ctx);
    return v ? v : ctx.over(u);
  });
}

}  // namespace tg
