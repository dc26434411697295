/// \file Text of listings: names, numbers and spelled instructions put together without a stream.
#pragma once
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

#include "tinygrad/base/error.h"

namespace tg {

template <class T>
concept ListingText =
    std::convertible_to<const T&, std::string_view> || std::same_as<T, char> || (std::integral<T> && sizeof(T) > 1);

/// As in base/error.h, for strings and integers alone.
template <ListingText... A> std::string str(const A&... a) {
  std::string out;
  auto add = [&]<class T>(const T& v) {
    if constexpr (std::convertible_to<const T&, std::string_view>) {
      out += std::string_view(v);
    } else if constexpr (std::same_as<T, char>) {
      out += v;
    } else {
      char digits[24];
      out.append(digits, std::to_chars(digits, digits + sizeof digits, v).ptr);
    }
  };
  (add(a), ...);
  return out;
}

}  // namespace tg
