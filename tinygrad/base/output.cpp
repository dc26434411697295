/// \file Lines for people: what DEBUG prints, and notes. In a world of several processes each begins with the rank.
#include "tinygrad/base/output.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace tg {
namespace {
int g_rank = -1;  // of no world

/// Launchers forward what arrives: a line that is written in parts mixes with those of other processes.
void write_lines(std::FILE* file, std::string_view text) {
  const std::string prefix = g_rank < 0 ? "" : "[" + std::to_string(g_rank) + "] ";
  std::string out;
  out.reserve(text.size() + prefix.size() + 1);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    out += prefix;
    out += text.substr(0, end);
    text.remove_prefix(end);
  }
  if (!out.empty() && out.back() != '\n') out += '\n';
  std::fwrite(out.data(), 1, out.size(), file);
  std::fflush(file);
}
}  // namespace

void set_output_rank(int rank) { g_rank = rank; }
bool shows_progress() { return g_rank <= 0; }
void print_lines(std::string_view text) { write_lines(stdout, text); }
void note_lines(std::string_view text) { write_lines(stderr, text); }

}  // namespace tg
