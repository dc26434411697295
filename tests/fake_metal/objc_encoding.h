/// \file Types of methods as the Objective-C runtime writes them, without the sizes: "@@:QQ" returns an object and
/// takes two NSUIntegers.
#pragma once
#include <string>
#include <type_traits>

#include "tinygrad/runtime/metal_objc.h"

namespace tg::fake_objc {
struct Object;
struct Selector;

template <class T>
constexpr bool kIsObject = std::disjunction_v<std::is_same<T, ObjcObject>, std::is_base_of<Object, T>>;

template <class T> std::string encoding_of() {
  if constexpr (std::is_void_v<T>) return "v";
  else if constexpr (std::is_same_v<T, bool>) return "B";
  else if constexpr (std::is_same_v<T, double>) return "d";
  else if constexpr (std::is_same_v<T, MetalSize>) return "{?=QQQ}";
  else if constexpr (std::is_same_v<T, MetalRange>) return "{_NSRange=QQ}";
  else if constexpr (std::is_pointer_v<T>) {
    using To = std::remove_cv_t<std::remove_pointer_t<T>>;
    const std::string constant = std::is_const_v<std::remove_pointer_t<T>> ? "r" : "";
    if constexpr (std::is_same_v<To, char>) return constant + "*";
    else if constexpr (std::is_same_v<To, ObjcSelector> || std::is_same_v<To, Selector>) return ":";
    else if constexpr (std::is_void_v<To>) return constant + "^v";
    else if constexpr (std::is_pointer_v<To>) return constant + "^" + encoding_of<To>();
    else {
      static_assert(kIsObject<To>);
      return "@";
    }
  } else {
    static_assert(std::is_integral_v<T> && sizeof(T) == 8);
    return std::is_signed_v<T> ? "q" : "Q";
  }
}

template <class Signature> struct SignatureEncoding;
template <class R, class... A> struct SignatureEncoding<R(A...)> {
  static std::string text() { return (encoding_of<R>() + "@:") + (encoding_of<A>() + ... + std::string()); }
};

}  // namespace tg::fake_objc
