/// \file Graphs in a recording: each node is written once, when it is first spoken of.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "tinygrad/base/recording.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// Records the graph of `root` (a node of the current graph) for the innermost span.
void record_graph(std::string_view title, UOp root);
/// Records the instructions of a program, in their order.
void record_program(std::string_view title, std::span<const UOp> instructions);
/// Records that a rule (its file and line) replaced `before` by `after`.
void record_rewrite(std::string_view rule, UOp before, UOp after, uint64_t nanoseconds);

/// A rewrite of a graph as a part of the recording. It becomes one with the first rule that fires: most of them change
/// nothing.
class RewriteSpan {
 public:
  RewriteSpan(const char* name, UOp root);
  ~RewriteSpan();
  RewriteSpan(const RewriteSpan&) = delete;
  /// Records what the rewrite made of the root, where a rule fired.
  void result(UOp root) const;

 private:
  friend void record_rewrite(std::string_view, UOp, UOp, uint64_t);
  void open();
  const char* name_;
  UOp root_;
  RewriteSpan* outer_ = nullptr;
  std::optional<recording::Span> span_;
  const bool on_;
};

}  // namespace tg
