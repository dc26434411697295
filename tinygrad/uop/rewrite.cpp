/// \file The rewrite engine: one explicit stack, one memo table by node id.
#include "tinygrad/uop/rewrite.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <mutex>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/output.h"
#include "tinygrad/uop/print.h"
#include "tinygrad/uop/record_graph.h"

namespace tg {
namespace {
/// A variable that holds no number is reported where it is read next, not while the tables are built.
bool asked_to_count() {
  try {
    return env::TRACK_MATCH_STATS && !env::VIZ;
  } catch (const ValueError&) { return false; }
}

/// Never destroyed: the recording ends at exit, too.
struct StatsRegistry {
  std::mutex mutex;
  std::deque<MatchStats> all;
  const bool print_at_exit = asked_to_count();
  StatsRegistry() {
    if (print_at_exit) std::atexit([] { note_lines(match_stats_table()); });
    recording::before_finish(record_totals);
  }
  static void record_totals();
};
StatsRegistry& registry() {
  static auto* r = new StatsRegistry;
  return *r;
}

std::string place_of(upat::Loc at) {
  std::string_view file = at.file;
  if (size_t p = file.rfind("tinygrad/"); p != file.npos) file.remove_prefix(p);
  return str(file, ':', at.line);
}

void StatsRegistry::record_totals() {
  StatsRegistry& r = registry();
  std::lock_guard lock(r.mutex);
  for (const MatchStats& s : r.all)
    if (s.tries) recording::rule_total(place_of(s.at), s.tries, s.hits, s.nanoseconds);
}
}  // namespace

std::atomic<bool> track_match_stats{false};
MatchStats* new_match_stats(upat::Loc at) {
  StatsRegistry& r = registry();
  std::lock_guard lock(r.mutex);
  if (r.print_at_exit) track_match_stats = true;
  MatchStats& s = r.all.emplace_back();
  s.at = at;
  return &s;
}
std::string match_stats_table() {
  StatsRegistry& r = registry();
  std::lock_guard lock(r.mutex);
  std::vector<const MatchStats*> tried;
  for (const MatchStats& s : r.all)
    if (s.tries) tried.push_back(&s);
  std::stable_sort(tried.begin(), tried.end(), [](auto* a, auto* b) { return a->nanoseconds > b->nanoseconds; });
  std::string out = str("     tries       hits         us  rule\n");
  for (const MatchStats* s : tried) {
    auto column = [](uint64_t v) {
      std::string t = std::to_string(v);
      return std::string(t.size() < 10 ? 10 - t.size() : 0, ' ') + t;
    };
    out +=
        column(s->tries) + " " + column(s->hits) + " " + column(s->nanoseconds / 1000) + "  " + place_of(s->at) + "\n";
  }
  return out;
}

uint64_t match_clock() { return static_cast<uint64_t>(recording::now()); }
void count_match(MatchStats& stats, uint64_t begin, bool hit, UOp before, UOp after) {
  stats.nanoseconds.fetch_add(match_clock() - begin, std::memory_order_relaxed);
  stats.tries.fetch_add(1, std::memory_order_relaxed);
  stats.hits.fetch_add(hit, std::memory_order_relaxed);
  if (hit && after && recording::on()) record_rewrite(place_of(stats.at), before, after, match_clock() - begin);
}

namespace upat {
bool literal_equals(UOp u, const ConstValue& v) {
  if (u.is_invalid()) return false;
  ConstValue c = u.const_value();
  if (c.is_int() && v.is_int()) return c.i == v.i;
  return c.as_double() == v.as_double();
}
}  // namespace upat

RewriteCounters& rewrite_counters() {
  thread_local RewriteCounters c;
  return c;
}

namespace {
constexpr uint64_t kMaxSteps = 1ull << 30;  // against rules that grow a graph for ever

struct Frame {
  UOp node;     // whose result is wanted
  UOp current;  // what it has become so far
  UOp built;    // the node over its rewritten sources, once a rule fired on it
  enum Stage : uint8_t { kEnter, kRebuild, kLink } stage;
};

/// One application of a table to a graph, node by node on a stack of its own.
class Rewriter {
 public:
  Rewriter(const PatternMatcher<UOp>& pm, void* ctx, const char* name)
      : graph_(Graph::current()), pm_(pm), ctx_(ctx), name_(name), traced_(graph_.has_origins()) {}

  UOp run(UOp root) {
    stack_.push_back({root, root, {}, Frame::kEnter});
    for (uint64_t steps = 1; !stack_.empty(); steps++) {
      TG_ASSERT(steps < kMaxSteps, "rewrite '", name_, "' does not end at ", stack_.back().node);
      if ((steps & 4095) == 0) Cancellation::check("rewrite");
      Frame& f = stack_.back();
      switch (f.stage) {
        case Frame::kEnter: enter(f); break;
        case Frame::kRebuild: rebuild(f); break;
        case Frame::kLink: link(f); break;
      }
    }
    return memo_.get(root);
  }

 private:
  /// Puts the sources that have no result yet on the stack.
  void enter(Frame& f) {
    if (memo_.has(f.node)) return stack_.pop_back();
    f.stage = Frame::kRebuild;
    const UOp n = f.current;
    for (size_t i = n.nsrc(); i-- > 0;)
      if (!memo_.has(n.src(i))) stack_.push_back({n.src(i), n.src(i), {}, Frame::kEnter});
  }

  /// Makes the node over the results of its sources and asks the rules.
  void rebuild(Frame& f) {
    const UOp n = f.current;
    bool changed = false;
    src_.clear();
    for (UOp s : n.srcs()) {
      UOp m = memo_.get(s);
      TG_ASSERT(m, "rewrite '", name_, "' does not terminate: ", s, " waits for itself");
      src_.push_back(m);
      changed |= m != s;
    }
    if (traced_) origin_.set(graph_.origin(n));
    const UOp built = changed ? n.with_srcs(src_) : n;
    if (built != f.node && memo_.has(built)) return finish(f, {}, memo_.get(built));
    counters_.visited++;
    const UOp out = pm_.rewrite(built, ctx_);
    if (!out) return finish(f, built, built);
    counters_.fired++;
    if (memo_.has(out)) return finish(f, built, memo_.get(out));
    await(f, built, out);
  }

  /// Rewrites the result of a rule before it becomes the node's.
  void await(Frame& f, UOp built, UOp out) {
    f.stage = Frame::kLink;
    f.current = out;
    f.built = built;
    const UOp node = f.node;
    // `out` in progress further down the stack would wait for itself.
    TG_ASSERT(!open_.has(out), "rewrite '", name_, "' does not terminate: ", node, " becomes ", out, "\n  ",
              render_expr(node), "\n  ", render_expr(out));
    open_.mark(node);
    open_.mark(built);
    TG_ASSERT(++pending_ <= limit_, "rewrite '", name_, "' has more than ", limit_,
              " results of rules pending (REWRITE_STACK_LIMIT) and would go on: ", node, " becomes ", out);
    stack_.push_back({out, out, {}, Frame::kEnter});
  }

  void link(Frame& f) {
    const UOp result = memo_.get(f.current);
    pending_--;
    TG_ASSERT(result, "rewrite '", name_, "' lost ", f.current);
    finish(f, f.built, result);
  }

  /// Notes the result of a node, and of the node over rewritten sources if there is one.
  void finish(const Frame& f, UOp built, UOp result) {
    memo_.set(f.node, result);
    if (built) memo_.set(built, result);
    stack_.pop_back();
  }

  const Graph& graph_;
  const PatternMatcher<UOp>& pm_;
  void* ctx_;
  const char* name_;
  const bool traced_;
  const Origin origin_{Origin::current()};
  MemoScope memo_, open_;
  RewriteCounters& counters_ = rewrite_counters();
  std::vector<Frame> stack_;
  UOps src_;
  /// Results of rules whose own results are still awaited: a chain of them that goes on and on is a graph that grows.
  int64_t pending_ = 0;
  const int64_t limit_ = env::REWRITE_STACK_LIMIT.get();
};
}  // namespace

UOp graph_rewrite(UOp root, const PatternMatcher<UOp>& pm, const RewriteOptions& o, void* ctx,
                  const std::type_info* ctx_type) {
  TG_ASSERT(!pm.ctx_type() || (ctx_type && *ctx_type == *pm.ctx_type()), "rewrite '", o.name,
            "' needs a context of type ", pm.ctx_type()->name());
  if (!recording::on()) return Rewriter(pm, ctx, o.name).run(root);
  track_match_stats = true;
  RewriteSpan span(o.name, root);
  const UOp out = Rewriter(pm, ctx, o.name).run(root);
  span.result(out);
  return out;
}

}  // namespace tg
