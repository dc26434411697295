/// \file Environment variables: typed handles for the table in env_table.inc. Parsed once; reading is a load and does
/// not call getenv.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tinygrad/base/context.h"

namespace tg::env {

// clang-format off
// Position of each variable among those of its kind.
#define GROUP(title)
#define INT(name, fallback, min, max, help) name,
#define STR(name, fallback, help)
namespace int_index { enum : int {
#include "tinygrad/base/env_table.inc"
  kCount
}; }
#undef INT
#undef STR
#define INT(name, fallback, min, max, help)
#define STR(name, fallback, help) name,
namespace str_index { enum : int {
#include "tinygrad/base/env_table.inc"
  kCount
}; }
#undef INT
#undef STR
// clang-format on

/// The values one thread sees.
struct Values {
  static constexpr int64_t kBad = INT64_MIN;  ///< stands for an environment value that is no integer; reading it throws
  int64_t ints[int_index::kCount];
  std::string strs[str_index::kCount];
  bool shared = true;  ///< other threads may read them: set() makes a copy first
};

namespace detail {
extern constinit thread_local const Values* current;
const Values& first_use();  ///< makes `current` point to the process's values
[[noreturn]] void bad_int(int index);
inline const Values& values() { return current ? *current : first_use(); }
}  // namespace detail

/// An integer variable.
class Int {
 public:
  constexpr explicit Int(int index) : index_(index) {}
  /// Returns the value on this thread. Throws ValueError naming the variable if the environment holds something other
  /// than an integer.
  int64_t get() const {
    const int64_t v = detail::values().ints[index_];
    if (v == Values::kBad) [[unlikely]]
      detail::bad_int(index_);
    return v;
  }
  explicit operator bool() const { return get() != 0; }
  std::string_view name() const;

 private:
  int index_;
};

/// A string variable. The reference is valid until the innermost Context of the thread ends.
class Str {
 public:
  constexpr explicit Str(int index) : index_(index) {}
  const std::string& get() const { return detail::values().strs[index_]; }
  std::string_view name() const;

 private:
  int index_;
};

// clang-format off
#define INT(name, fallback, min, max, help) inline constexpr Int name{int_index::name};
#define STR(name, fallback, help) inline constexpr Str name{str_index::name};
#include "tinygrad/base/env_table.inc"
#undef GROUP
#undef INT
#undef STR
// clang-format on

/// A thread's view of the variables, to be passed to a worker thread: `Snapshot s; ... on the worker: Adopt scope(s);`.
class Snapshot {
 public:
  Snapshot();
  const Values& values() const { return *values_; }

 private:
  std::shared_ptr<const Values> values_;
};

/// Makes this thread see a snapshot until the end of the scope.
class Adopt {
 public:
  explicit Adopt(const Snapshot& s);
  ~Adopt();
  Adopt(const Adopt&) = delete;
  Adopt& operator=(const Adopt&) = delete;

 private:
  Snapshot mine_;
  const Values* before_;
};

/// Returns a value by name on this thread: an integer or a string; nothing for a name that is not in the table. Throws
/// ValueError like Int::get.
std::optional<std::variant<int64_t, std::string>> find(std::string_view name);
/// Changes a variable on this thread: until the innermost Context ends, or outside of any for the rest of the thread.
/// Throws ValueError as Context does.
void set(const Context::Setting& setting);
/// Returns all names, in the order of the table.
std::vector<std::string_view> names();

/// Reports on stderr, once per process, that a variable which was set is not honoured, and why: `tinygrad: [NAME] why`.
void not_honoured(std::string_view name, const std::string& why);

/// Returns NUM_CPU_THREADS, or the number of processors this process may use (affinity and cgroup quota); at least 1.
/// Many more threads than processors would only wait for each other: the limit is 8 per processor, or 64.
int num_cpu_threads();

/// Prints the table with the values this thread sees, those that differ from the default marked by `*`.
void print(std::ostream& os);
/// The table as Markdown, without values: docs/env.md.
void print_markdown(std::ostream& os);
/// Returns the values a variable may have, as in the table: "0 or 1", "0 to 7", "from 0", "any"; "text" for strings.
/// Empty for a name not in it.
std::string range_text(std::string_view name);

}  // namespace tg::env
