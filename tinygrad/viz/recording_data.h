/// \file A recording as it is looked at: spans with what was noted in them, graphs, the timeline, memory.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tg::viz {

/// A node of a recorded graph. Texts are those of the UOp: the viewer needs no knowledge of operations.
struct Node {
  uint64_t number = 0;  ///< within its graph; sources have smaller ones
  uint64_t tag = 0;
  uint32_t op = 0, type = 0, origin = 0;  ///< Recording::name
  uint32_t source = 0, sources = 0;       ///< part of NodeTable::sources
  uint32_t argument = 0, argument_size = 0;
};

/// The nodes of one graph.
struct NodeTable {
  std::vector<Node> nodes;        ///< by number
  std::vector<uint64_t> sources;  ///< numbers
  std::string arguments;

  /// Returns null for a node that the recording lacks.
  const Node* find(uint64_t number) const;
  std::string_view argument(const Node& n) const {
    return std::string_view(arguments).substr(n.argument, n.argument_size);
  }
};

/// A graph, or a program, at some moment.
struct Snapshot {
  uint32_t title = 0;
  uint64_t graph = 0;
  std::vector<uint64_t> roots;
};
struct Rewrite {
  uint32_t rule = 0;
  uint64_t graph = 0, before = 0, after = 0;
  int64_t nanoseconds = 0;
};
struct Text {
  uint32_t title = 0, language = 0;
  std::string text;
};
/// A part of the work: a schedule, a kernel, a pass, a rewrite.
struct Span {
  uint64_t number = 0, parent = 0, thread = 0;
  uint32_t kind = 0, name = 0;
  int64_t begin = 0,
          end = 0;  ///< nanoseconds since the start of the recording; the end of its parent where it broke off
  std::vector<std::pair<uint32_t, std::string>> values;
  std::vector<Text> texts;
  std::vector<Snapshot> graphs;
  std::vector<Rewrite> rewrites;
  std::vector<uint32_t> children;  ///< Recording::spans
  uint64_t all_rewrites = 0;       ///< with those of its parts
};
struct Event {
  uint32_t track = 0, name = 0;
  uint64_t lane = 0, span = 0;
  int64_t begin = 0, end = 0;
  std::string details;
};
struct MemoryChange {
  uint32_t device = 0;
  uint64_t span = 0, address = 0;
  int64_t bytes = 0, time = 0;
};
struct RuleTotal {
  uint32_t rule = 0;
  uint64_t tries = 0, hits = 0;
  int64_t nanoseconds = 0;
};

/// What a file holds. Strings are numbers into `names`.
struct Recording {
  std::string file;
  std::vector<std::string> names{""};
  std::unordered_map<uint64_t, NodeTable> graphs;
  std::vector<Span> spans;      ///< by number
  std::vector<uint32_t> roots;  ///< spans that are part of none
  std::vector<Event> events;
  std::vector<MemoryChange> memory;
  std::vector<RuleTotal> rules;
  int64_t length = 0;   ///< nanoseconds
  bool broken = false;  ///< the file ends amid a block: its process was killed, or still writes

  const std::string& name(uint32_t number) const { return names[number]; }
  /// Returns null where there is none.
  const Span* span(uint64_t number) const;
  const NodeTable* graph(uint64_t number) const;
  /// Returns the value of a span, empty where it has none.
  std::string_view value(const Span& s, std::string_view key) const;
};

/// Reads a file. FileError when it cannot be read, FormatError for one that is no recording or is damaged; nothing in
/// it is trusted.
Recording read_recording(const std::string& path);
/// Reads bytes; `name` is the file in messages.
Recording parse_recording(std::string_view bytes, std::string name);

/// Returns the value of a node as an expression of at most `longest` bytes: operators where it has one, calls
/// otherwise.
std::string expression(const Recording& r, uint64_t graph, uint64_t node, size_t longest = 240);

}  // namespace tg::viz
