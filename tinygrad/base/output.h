/// \file Lines for people: what DEBUG prints, and notes. In a world of several processes each begins with the rank.
#pragma once
#include <string_view>

namespace tg {

/// Makes this process the one of that rank in a world of several: its lines begin with "[1] " from now on, and only
/// rank 0 shows how far tasks are. Called once, before threads print.
void set_output_rank(int rank);
/// Whether this process shows how far tasks are.
bool shows_progress();

/// Writes lines to standard output, in one piece; a last line without an end gets one.
void print_lines(std::string_view text);
/// Writes lines to standard error, in one piece; a last line without an end gets one.
void note_lines(std::string_view text);

}  // namespace tg
