/// \file Environment variables: parsing, older spellings, overrides and the printed table.
#include "tinygrad/base/env.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

#include "tinygrad/base/env_parse.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/output.h"
#include "tinygrad/base/text.h"

namespace tg::env {

namespace {

enum class Kind : uint8_t { kGroup, kInt, kStr };
struct Entry {
  Kind kind;
  const char *name, *fallback, *help;
  int index;
  int64_t min, max;
};

// clang-format off
// Order of the table, groups included.
constexpr Entry kTable[] = {
#define GROUP(title) {Kind::kGroup, title, "", "", 0, 0, 0},
#define INT(name, fallback, min, max, help) {Kind::kInt, #name, #fallback, help, int_index::name, min, max},
#define STR(name, fallback, help) {Kind::kStr, #name, fallback, help, str_index::name, 0, 0},
#include "tinygrad/base/env_table.inc"
#undef GROUP
#undef INT
#undef STR
};
// clang-format on

std::optional<int64_t> parse_int(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  if (s.starts_with('+')) s.remove_prefix(1);
  int64_t v = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), v);
  return ec == std::errc{} && end == s.data() + s.size() && !s.empty() && v != Values::kBad ? std::optional(v)
                                                                                            : std::nullopt;
}

const Entry* find_entry(std::string_view name) {
  // Looked up several times by each call of a captured function: names with the lengths known when the table is
  // compiled.
  static constexpr auto names = [] {
    std::array<std::string_view, std::size(kTable)> out;
    for (size_t i = 0; i < out.size(); i++)
      if (kTable[i].kind != Kind::kGroup) out[i] = kTable[i].name;
    return out;
  }();
  for (size_t i = 0; i < names.size(); i++)
    if (name == names[i] && !name.empty()) return &kTable[i];
  return nullptr;
}

const char* name_of(Kind kind, int index) {
  for (const Entry& e : kTable)
    if (e.kind == kind && e.index == index) return e.name;
  return "?";
}

// The variables used before there was DEV. A flag counts if it is a non-zero integer; the first set one wins.
struct OldFlag {
  const char *name, *dev;
};
constexpr OldFlag kOldFlags[] = {
    {"CPU_LLVM", "CPU:LLVM"}, {"CLANG", "CPU:CLANG"}, {"LLVM", "CPU:LLVM"}, {"INTERP", "INTERP"},
    {"PYTHON", "INTERP"},     {"CUDA", "CUDA"},       {"NV", "CUDA"},       {"AMD", "AMD"},
    {"HIP", "AMD"},           {"METAL", "METAL"},     {"OPENCL", "CL"},     {"CL", "CL"},
    {"WEBGPU", "WEBGPU"},     {"NULL", "NULL"},       {"GPU", "GPU"},       {"CPU", "CPU"},
};

using Lookup = std::function<const char*(const char*)>;

std::string old_spelling_of_dev(const Lookup& lookup) {
  if (const char* v = lookup("DEVICE"); v && *v) return v;
  for (const OldFlag& f : kOldFlags)
    if (const char* v = lookup(f.name); v && parse_int(v).value_or(0) != 0) return f.dev;
  return "";
}

std::string range_of(const Entry& e) {
  if (e.kind == Kind::kStr) return "text";
  if (e.min == INT64_MIN) return "any";
  if (e.max == INT64_MAX) return str("from ", e.min);
  return str(e.min, e.max == e.min + 1 ? " or " : " to ", e.max);
}

// Returns the effective value of a variable: within its range the value itself. Above the range the maximum is what was
// meant; below it (a negative size, say) there is no sensible nearest value, so the default applies.
int64_t in_range(const Entry& e, int64_t v) {
  if (v >= e.min && v <= e.max) return v;
  const int64_t used = v > e.max ? e.max : *parse_int(e.fallback);
  not_honoured(e.name, str("got ", v, ", expected ", range_of(e), ": taken as ", used));
  return used;
}

// NO_COLOR is a convention of many programs: any value turns colours off.
int64_t parse_env_int(const Entry& e, const char* v) {
  const std::optional<int64_t> parsed = parse_int(v);
  if (!parsed) return e.index == int_index::NO_COLOR ? 1 : Values::kBad;
  return in_range(e, *parsed);
}

const Values& process_values() {
  static const Values& values = *new Values(detail::parse([](const char* name) {
    return std::getenv(name);
  }));  // never destroyed: destructors of other statics may still read
  return values;
}

std::string nearest(std::string_view name) {
  std::vector<std::string> known;
  for (const Entry& e : kTable)
    if (e.kind != Kind::kGroup) known.emplace_back(e.name);
  return nearest_name(name, known);
}

void apply(Values& values, const Context::Setting& s) {
  const Entry* e = find_entry(s.name == "DEVICE" ? "DEV" : s.name);
  TG_CHECK(ValueError, e, "[Context] got unknown variable '", s.name,
           "', expected one of the table that `tg env` prints; the nearest is ", nearest(s.name));
  const int64_t* number = std::get_if<int64_t>(&s.value);
  if (e->kind == Kind::kStr) {
    TG_CHECK(ValueError, !number, "[Context] got ", s.name, "=", *number, ", expected a string");
    values.strs[e->index] = std::get<std::string>(s.value);
    return;
  }
  const std::optional<int64_t> v = number ? std::optional(*number) : parse_int(std::get<std::string>(s.value));
  TG_CHECK(ValueError, v, "[Context] got ", s.name, "='", std::get<std::string>(s.value), "', expected an integer");
  values.ints[e->index] = in_range(*e, *v);
}

}  // namespace

namespace detail {

constinit thread_local const Values* current = nullptr;

Values parse(const Lookup& lookup) {
  Values values;
  for (const Entry& e : kTable) {
    if (e.kind == Kind::kGroup) continue;
    const char* v = lookup(e.name);
    const bool set = v && *v;
    if (e.kind == Kind::kInt) values.ints[e.index] = set ? parse_env_int(e, v) : *parse_int(e.fallback);
    else values.strs[e.index] = set ? v : e.fallback;
  }
  std::string& dev = values.strs[str_index::DEV];
  if (dev.empty()) dev = old_spelling_of_dev(lookup);
  // The viewer needs all records; each of them can be asked for alone.
  const auto set = [&](int index) { return values.ints[index] != 0 && values.ints[index] != Values::kBad; };
  if (values.ints[int_index::TRACK_MATCH_STATS] == 2 && !lookup("VIZ")) values.ints[int_index::VIZ] = 1;
  if (set(int_index::VIZ) && !lookup("PROFILE")) values.ints[int_index::PROFILE] = 1;
  if (set(int_index::VIZ) && !lookup("TRACK_MATCH_STATS")) values.ints[int_index::TRACK_MATCH_STATS] = 2;
  return values;
}

const Values& first_use() {
  current = &process_values();
  return *current;
}

void bad_int(int index) {
  const char* name = name_of(Kind::kInt, index);
  const char* v = std::getenv(name);
  throw ValueError(str("[", name, "] got '", v ? v : "", "' in the environment, expected an integer"));
}

}  // namespace detail

std::string_view Int::name() const { return name_of(Kind::kInt, index_); }
std::string_view Str::name() const { return name_of(Kind::kStr, index_); }

Snapshot::Snapshot() {
  const Values& now = detail::values();
  // The process's own values live forever and need no copy.
  if (&now == &process_values()) {
    values_ = std::shared_ptr<const Values>(std::shared_ptr<void>(), &now);
    return;
  }
  auto copy = std::make_shared<Values>(now);
  copy->shared = true;
  values_ = std::move(copy);
}

Adopt::Adopt(const Snapshot& s) : mine_(s), before_(detail::current) { detail::current = &mine_.values(); }
Adopt::~Adopt() { detail::current = before_; }

std::optional<std::variant<int64_t, std::string>> find(std::string_view name) {
  const Entry* e = find_entry(name);
  if (!e) return std::nullopt;
  if (e->kind == Kind::kInt) return Int(e->index).get();
  return Str(e->index).get();
}

void set(const Context::Setting& setting) {
  if (const Values& now = detail::values(); now.shared) {
    // Kept until the thread ends: an open Context or Adopt may go back to an earlier one.
    static thread_local std::vector<std::unique_ptr<Values>> own;
    auto copy = std::make_unique<Values>(now);
    copy->shared = false;
    apply(*copy, setting);
    own.push_back(std::move(copy));
    detail::current = own.back().get();
    return;
  }
  apply(const_cast<Values&>(*detail::current), setting);  // made by a Context or by us, private to this thread
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> result;
  for (const Entry& e : kTable)
    if (e.kind != Kind::kGroup) result.push_back(e.name);
  return result;
}

void not_honoured(std::string_view name, const std::string& why) {
  static std::mutex& mutex = *new std::mutex;  // never destroyed: a program may read its variables until it ends
  static auto& said = *new std::set<std::string>;
  const std::string line = str("tinygrad: [", name, "] ", why, "\n");
  std::lock_guard lock(mutex);
  if (said.insert(line).second) note_lines(line);
}

int num_cpu_threads() {
  static const int allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    std::ifstream quota_file("/sys/fs/cgroup/cpu.max");  // "max 100000" or "150000 100000": microseconds per period
    double quota = 0, period = 0;
    if (quota_file >> quota >> period && quota > 0 && period > 0)
      n = std::min(n, static_cast<int>(quota / period + 0.999));
    return std::max(n, 1);
  }();
  const int64_t asked = NUM_CPU_THREADS.get();
  if (asked == 0) return allowed;
  const int most = std::max(64, 8 * allowed);
  if (asked <= most) return static_cast<int>(asked);
  not_honoured("NUM_CPU_THREADS", str("got ", asked, " with ", allowed, " processors: taken as ", most));
  return most;
}

std::string range_text(std::string_view name) {
  const Entry* e = find_entry(name);
  return e ? range_of(*e) : std::string();
}

void print(std::ostream& os) {
  const Values& values = detail::values();
  size_t width = 0;
  for (const Entry& e : kTable)
    if (e.kind != Kind::kGroup) width = std::max(width, std::string_view(e.name).size());
  for (const Entry& e : kTable) {
    if (e.kind == Kind::kGroup) {
      os << (&e == kTable ? "" : "\n") << e.name << "\n";
      continue;
    }
    const bool bad = e.kind == Kind::kInt && values.ints[e.index] == Values::kBad;
    const char* raw = bad ? std::getenv(e.name) : nullptr;
    const std::string value = bad                    ? str(raw ? raw : "", " (not an integer)")
                              : e.kind == Kind::kInt ? std::to_string(values.ints[e.index])
                                                     : values.strs[e.index];
    os << (value == e.fallback ? "  " : "* ") << std::left << std::setw(static_cast<int>(width)) << e.name << " = "
       << std::setw(10) << value << "  " << e.help << " (" << range_of(e)
       << (value == e.fallback || !*e.fallback ? "" : str("; default ", e.fallback)) << ")\n";
  }
}

static constexpr const char* kMarkdownHeader = R"(# Environment variables

Generated by `tg env --markdown` from `tinygrad/base/env_table.inc`. `tg env` prints the values in force;
`Context ctx{{"DEBUG", 2}};` overrides one for a scope of a C++ program, `with Context(DEBUG=2):` in Python. The
environment is read once, when the first variable is used: `setenv` after that changes nothing.

`DEV="CUDA;CPU:CLANG"` makes CUDA the default device and compiles what runs on the CPU by a C compiler. A device that is
not there is a DeviceError that says what is missing; no other one takes its place.

A value out of range is reported on stderr, once: below the range the default is used, above it the maximum. Text where
an integer belongs is a ValueError when the variable is first used. What a device cannot do (`BEAM` where kernels cannot
be timed, a plugin that is missing) is reported in the same way.

Older spellings are understood where `DEV` is not set: `DEVICE=CUDA`, and
)";

void print_markdown(std::ostream& os) {
  os << kMarkdownHeader;
  for (const OldFlag& f : kOldFlags) {
    const auto i = &f - kOldFlags;
    os << (i == 0                           ? ""
           : i == std::ssize(kOldFlags) - 1 ? " and "
           : i % 10 == 0                    ? ",\n"
                                            : ", ")
       << "`" << f.name << "=1`";
  }
  os << ".\n";
  for (const Entry& e : kTable) {
    if (e.kind == Kind::kGroup) {
      os << "\n## " << e.name << "\n\n| variable | default | values | meaning |\n|---|---|---|---|\n";
      continue;
    }
    const std::string fallback = e.kind == Kind::kInt ? e.fallback : str("\"", e.fallback, "\"");
    os << "| `" << e.name << "` | `" << fallback << "` | " << range_of(e) << " | " << e.help << " |\n";
  }
}

}  // namespace tg::env

namespace tg {

Context::Context(std::initializer_list<Setting> settings) : before_(env::detail::current) {
  auto values = std::make_unique<env::Values>(env::detail::values());
  values->shared = false;
  for (const Setting& s : settings) env::apply(*values, s);
  mine_ = std::move(values);
  env::detail::current = mine_.get();
}

Context::~Context() { env::detail::current = before_; }

}  // namespace tg
