/// \file Errors. User mistakes are tg::Error subclasses with a message `[op] got X, expected Y`; InternalError is a bug
/// in the library.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace tg {

// clang-format off
/// Base of every error a user can cause or meet.
struct Error : std::runtime_error { using std::runtime_error::runtime_error; };
struct ShapeError : Error { using Error::Error; };        ///< shapes, axes or sizes that do not fit
struct DTypeError : Error { using Error::Error; };        ///< a type the operation does not take
struct DeviceError : Error { using Error::Error; };       ///< unknown, unavailable or mixed devices
struct IndexError : Error { using Error::Error; };        ///< an index or axis out of range
struct ValueError : Error { using Error::Error; };        ///< an argument outside its domain
struct OverflowError : ValueError { using ValueError::ValueError; };  ///< a number a type cannot hold
struct FormatError : Error { using Error::Error; };       ///< a file that is corrupt or of another kind
struct FileError : Error { using Error::Error; };         ///< a file or program that is missing or inaccessible
struct CompileError : Error { using Error::Error; };      ///< a kernel the target's compiler rejected
struct OutOfMemoryError : Error { using Error::Error; };  ///< an allocation that failed after caches were freed
struct GradientError : Error { using Error::Error; };     ///< a gradient that does not exist
struct JitError : Error { using Error::Error; };          ///< a function that cannot be captured or replayed faithfully
struct Cancelled : Error { using Error::Error; };         ///< work that ended because a stop was requested
/// A process of the world that failed, or does not do what this one does. `rank`: which; -1: nobody knows.
struct PeerError : Error {
  explicit PeerError(const std::string& what, int culprit = -1) : Error(what), rank(culprit) {}
  int rank;
};
/// A bug in the library: the message carries file, line and condition.
struct InternalError : std::logic_error { using std::logic_error::logic_error; };
// clang-format on

/// Concatenates anything that prints.
template <class... A> std::string str(const A&... a) {
  std::ostringstream s;
  static_cast<void>((s << ... << a));
  return s.str();
}

/// Throws the error of a broken invariant of the library, with the place of the assertion; TG_ASSERT calls it.
[[noreturn]] void internal_error(const char* file, int line, const char* condition, const std::string& what);

}  // namespace tg

/// Checks user input: TG_CHECK(ShapeError, n > 0, "[full] got ", n, ", expected a positive size"). The message is built
/// only on failure.
#define TG_CHECK(ErrorType, condition, ...)          \
  do {                                               \
    if (!(condition)) [[unlikely]]                   \
      throw ::tg::ErrorType(::tg::str(__VA_ARGS__)); \
  } while (0)
/// Checks an invariant of the library.
#define TG_ASSERT(condition, ...)                                                   \
  do {                                                                              \
    if (!(condition)) [[unlikely]]                                                  \
      ::tg::internal_error(__FILE__, __LINE__, #condition, ::tg::str(__VA_ARGS__)); \
  } while (0)
