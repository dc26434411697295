/// \file Scoped override of environment variables.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace tg {

namespace env {
struct Values;
}

/// Overrides environment variables until the end of the scope: `Context ctx{{"DEBUG", 2}, {"DEV", "INTERP"}};`. The
/// override holds on the thread that made it and nests; contexts of a thread end in reverse order of construction.
/// Throws ValueError for a name that is not in the table or a value that is not an integer where one is expected;
/// nothing is overridden then.
class Context {
 public:
  struct Setting {
    /// A variable by its name and what it is set to.
    template <std::integral T> Setting(const char* n, T v) : name(n), value(static_cast<int64_t>(v)) {}
    template <std::convertible_to<std::string_view> T>
    Setting(const char* n, const T& v) : name(n), value(std::string(std::string_view(v))) {}
    std::string name;
    std::variant<int64_t, std::string> value;
  };
  /// Sets the variables in this thread until the scope ends. Throws ValueError for a name that does not exist, or a
  /// value out of its range.
  Context(std::initializer_list<Setting> settings);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  std::unique_ptr<const env::Values> mine_;
  const env::Values* before_;
};

}  // namespace tg
