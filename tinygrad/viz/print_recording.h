/// \file Recordings as text, for terminals and scripts.
#pragma once
#include <iosfwd>

#include "tinygrad/viz/recording_data.h"

namespace tg::viz {

/// Prints what the recording is about: schedules, kernels and runs in their order, with times.
void print_summary(std::ostream& os, const Recording& r);
/// Prints one span: its values, its parts, the rules that fired in it, its texts.
void print_span(std::ostream& os, const Recording& r, const Span& s);
/// Prints the rewrites of a span and its parts, each as `rule: before -> after`.
void print_rewrites(std::ostream& os, const Recording& r, const Span& s);
/// Prints a graph, a node a line, sources first.
void print_snapshot(std::ostream& os, const Recording& r, const Snapshot& g);
/// Prints rules, the most expensive first: tries, hits, time.
void print_rules(std::ostream& os, const Recording& r);
/// Prints kernels by name, the most expensive first: launches, time, share.
void print_launches(std::ostream& os, const Recording& r);
/// Prints lines of the program, the most expensive first: time of the kernels made for them, their methods, names.
void print_lines(std::ostream& os, const Recording& r);
/// Prints the most memory that each device held, and which spans it was taken in.
void print_memory(std::ostream& os, const Recording& r);

}  // namespace tg::viz
