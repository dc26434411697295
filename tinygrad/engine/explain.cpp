/// \file An inspection as text for people.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "tinygrad/base/text.h"
#include "tinygrad/engine/inspect.h"

namespace tg {
namespace {

/// Writes a line "  what        text"; nothing where there is no text. Further lines of the text begin below its first.
void row(std::ostream& os, std::string_view what, std::string_view text) {
  constexpr size_t kColumn = 12;
  if (text.empty()) return;
  os << "  " << what << std::string(kColumn - std::min(kColumn, what.size()), ' ');
  for (const char c : text) {
    os << c;
    if (c == '\n') os << std::string(kColumn + 2, ' ');
  }
  os << '\n';
}

/// Returns the beginning of a text that is too long for people.
std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 480;
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + " ...";
}

std::string percent(double part) { return str(static_cast<int64_t>(100 * part + 0.5), " %"); }

void print_buffers(std::ostream& os, const Inspection& in) {
  static constexpr const char* kKinds[] = {"input", "result", "stored"};
  os << "values in memory\n";
  for (size_t i = 0; i < in.buffers.size(); i++) {
    const ScheduleBuffer& b = in.buffers[i];
    std::string why = b.why;
    if (b.instead > 0) why += str(": in place ", b.instead, " times per element");
    row(os, str('b', i),
        str(kKinds[b.kind], ", ", b.size, " x ", b.dtype, " on ", b.device.empty() ? "any device" : b.device,
            why.empty() ? "" : "; " + why));
  }
}

/// Returns the buffers of a call: the written one, then those it reads.
std::string buffers_text(const InspectedKernel& k) {
  std::string text;
  for (size_t i = 0; i < k.buffers.size(); i++) text += str(i == 0 ? "" : i == 1 ? " from " : ", ", 'b', k.buffers[i]);
  return text;
}

/// Returns the terms above one per cent of the whole, and of those that overlap the longest first.
std::string account_text(const PlanSummary& p) {
  const double least = p.cycles / p.account.factor / 100;
  std::vector<CostAccount::Part> together = p.account.together;
  std::stable_sort(together.begin(), together.end(), [](const auto& a, const auto& b) { return a.cycles > b.cycles; });
  std::string text;
  for (const CostAccount::Part& part : together)
    if (part.cycles > least)
      text += str(text.empty() ? "\nthe longest of: " : ", ", part.what, ' ', human_count(part.cycles));
  std::string besides;
  for (const CostAccount::Part& part : p.account.besides)
    if (part.cycles > least)
      besides += str(besides.empty() ? "\nin addition: " : ", ", part.what, ' ', human_count(part.cycles));
  if (p.account.factor > 1.005)
    besides += str("\ntimes ", std::round(p.account.factor * 100) / 100, ": a long body, waits for panels");
  return text + besides;
}

/// Returns the seconds that a machine with these rates needs at least, and which rate says so.
std::pair<double, const char*> bound_of(const Estimates& e, const Roofline& r) {
  const double compute = r.operations > 0 ? e.ops / r.operations : 0,
               move = r.bytes > 0 && e.mem > r.cache ? e.mem / r.bytes : 0;
  return compute > move ? std::pair(compute, "arithmetic") : std::pair(move, "memory");
}

/// Returns the term of the model that most cycles go to; without a model, what the roofline says.
std::string limit_text(const InspectedKernel& k, const Roofline& roofline) {
  CostAccount::Part most{"", 0};
  for (const auto* parts : {&k.plan.account.together, &k.plan.account.besides})
    for (const CostAccount::Part& part : *parts)
      if (part.cycles > most.cycles) most = part;
  if (most.cycles > 0) return most.what;
  const auto [bound, rate] = bound_of(k.estimates, roofline);
  return bound > 0 ? rate : "";
}

void print_speed(std::ostream& os, const InspectedKernel& k, const Roofline& roofline) {
  const Estimates& e = k.estimates;
  row(os, "work",
      str(human_count(e.ops), " operations, ", human_bytes(e.mem), " in memory",
          e.mem > 0 ? str(": ", std::round(e.ops / e.mem * 100) / 100, " operations a byte") : ""));
  const auto [bound, rate] = bound_of(e, roofline);
  if (bound > 0) row(os, "roofline", str(human_seconds(bound), ", by ", rate));
  if (k.seconds > 0)
    row(os, "measured",
        str(human_seconds(k.seconds), ": ", human_count(e.ops / k.seconds), " operations/s, ",
            human_bytes(e.mem / k.seconds), "/s",
            bound > 0 ? ", " + percent(bound / k.seconds) + " of the roofline" : ""));
}

void print_kernel(std::ostream& os, const InspectedKernel& k, const Roofline& roofline, bool source) {
  os << k.name << " on " << k.device << (k.origin.empty() ? "" : ", made by " + k.origin) << '\n';
  row(os, "writes", buffers_text(k));
  if (k.stores.empty()) return;  // a copy
  row(os, "loops", k.loops);
  row(os, "stores", shortened(k.stores));
  row(os, "chosen by", str(k.plan.variant, ", ", k.plan.form));
  row(os, "opts", k.opts.empty() ? "none" : to_text(k.opts));
  if (k.plan.cycles > 0)
    row(os, "predicted", str(human_count(k.plan.cycles), " cycles of one core", account_text(k.plan)));
  row(os, "limit", limit_text(k, roofline));
  print_speed(os, k, roofline);
  if (!source) return;
  os << "\n" << k.source << (k.source.ends_with('\n') ? "" : "\n");
  if (!k.assembly.empty()) os << "\n" << k.assembly << '\n';
}

}  // namespace

std::string explain(const Inspection& in, const Roofline& roofline, bool source) {
  std::ostringstream os;
  if (!in.graph.empty()) os << "tensor expression\n" << in.graph << (in.graph.ends_with('\n') ? "\n" : "\n\n");
  print_buffers(os, in);
  double seconds = 0;
  for (size_t i = 0; i < in.kernels.size(); i++) {
    os << "\nkernel " << i + 1 << " of " << in.kernels.size() << ": ";
    print_kernel(os, in.kernels[i], roofline, source);
    seconds += in.kernels[i].seconds;
  }
  if (in.kernels.empty()) os << "\nno kernel: the values are in memory already, or literals\n";
  os << "\nmemory: results " << human_bytes(static_cast<double>(in.memory.results)) << ", intermediates "
     << human_bytes(static_cast<double>(in.memory.intermediates)) << '\n';
  if (seconds > 0) os << "time: " << human_seconds(seconds) << " in " << in.kernels.size() << " kernels\n";
  return os.str();
}

}  // namespace tg
