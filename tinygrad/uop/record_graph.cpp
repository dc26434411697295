/// \file Writes nodes, graphs and rewrites to the recording.
#include "tinygrad/uop/record_graph.h"

#include <atomic>
#include <sstream>

#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/owner.h"
#include "tinygrad/uop/walk.h"

namespace tg {
namespace {
using recording::Kind;
using recording::Record;

thread_local RewriteSpan* t_innermost = nullptr;

/// Tells the recording of nodes of the thread's current graph.
class NodeWriter {
 public:
  NodeWriter() : graph_(Graph::current()), told_(graph_.recorded()) {
    if (told_.generation == recording::generation()) return;
    static std::atomic<uint64_t> graphs{0};
    told_ = {.generation = recording::generation(), .graph = ++graphs, .nodes = 0, .number = {}};
  }

  uint64_t graph() const { return told_.graph; }

  /// Returns the number of a node; 0: it is not of this graph.
  uint64_t operator()(UOp u) {
    if (!u || !graph_.owns(u)) return 0;
    walk(u, [&](UOp n) { return number_of(n) != 0; }, [&](UOp n) { write(n); });
    return number_of(u);
  }

 private:
  /// Ids of the global graph are used again: the content says which node was meant.
  static Hash128 content(UOp u) {
    Hash128 h = u.key();
    if (u.tag()) h.add(u.tag());
    return h;
  }
  uint64_t number_of(UOp u) const {
    if (u.id() >= told_.number.size()) return 0;
    const auto& [known, number] = told_.number[u.id()];
    return number && known == content(u) ? number : 0;
  }

  void write(UOp u) {
    if (u.id() >= told_.number.size()) told_.number.resize(graph_.id_limit());
    const uint64_t number = ++told_.nodes;
    const char* origin = graph_.origin(u);
    const uint64_t op = recording::name(name_of(u.op())), type = recording::name(u.dtype().name()),
                   made_by = recording::name(origin ? origin : "");
    Record r(Kind::kNode);
    r.number(told_.graph).number(number).number(op).number(type).number(mark_of(u)).number(made_by).number(u.nsrc());
    for (UOp s : u.srcs()) r.number(number - number_of(s));
    r.text(argument(u));
    told_.number[u.id()] = {content(u), number};
  }

  std::string_view argument(UOp u) {
    if (u.arg_kind() == ArgKind::kNone) return {};
    text_.str({});
    Arg::print(text_, u.arg_kind(), u.node()->arg_bits);
    return text_.view();
  }

  Graph& graph_;
  Graph::Recorded& told_;
  std::ostringstream text_;
};
}  // namespace

void record_graph(std::string_view title, UOp root) { record_program(title, {&root, 1}); }

void record_program(std::string_view title, std::span<const UOp> instructions) {
  if (!recording::on()) return;
  NodeWriter node;
  std::vector<uint64_t> numbers;
  for (UOp u : instructions) numbers.push_back(node(u));
  const uint64_t name = recording::name(title);
  Record r(Kind::kGraph);
  r.number(recording::Span::current()).number(name).number(node.graph()).number(numbers.size());
  for (uint64_t n : numbers) r.number(n);
}

void record_rewrite(std::string_view rule, UOp before, UOp after, uint64_t nanoseconds) {
  if (t_innermost) t_innermost->open();
  NodeWriter node;
  const uint64_t from = node(before), to = node(after), name = recording::name(rule);
  Record(Kind::kRewrite)
      .number(recording::Span::current())
      .number(name)
      .number(node.graph())
      .number(from)
      .number(to)
      .number(nanoseconds);
}

RewriteSpan::RewriteSpan(const char* name, UOp root) : name_(name), root_(root), on_(recording::on()) {
  if (!on_) return;
  outer_ = std::exchange(t_innermost, this);
}
RewriteSpan::~RewriteSpan() {
  if (on_) t_innermost = outer_;
}
void RewriteSpan::open() {
  if (span_) return;
  span_.emplace("rewrite", name_);
  record_graph("before", root_);
}
void RewriteSpan::result(UOp root) const {
  if (span_) record_graph("after", root);
}

}  // namespace tg
