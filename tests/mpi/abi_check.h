/// \file Compares a table of MPI's functions with an implementation's mpi.h, which the including file has included.
#pragma once
#include <type_traits>

#include "tinygrad/runtime/world/mpi_abi.h"

namespace tg {
/// Whether two parameters are passed alike: pointers, or values of one size.
template <class A, class B> constexpr bool passed_alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) return true;
  return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
}
template <class R, class... A, class S, class... B> constexpr bool called_alike(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) return false;
  else return std::is_same_v<R, S> && (passed_alike<A, B>() && ...);
}
}  // namespace tg

#define TG_CHECK_MPI(Abi)                                                                          \
  static_assert(sizeof(MPI_Comm) == sizeof(Abi::H) && sizeof(MPI_Request) == sizeof(Abi::H));      \
  static_assert(sizeof(MPI_Status) == sizeof(Abi::S));                                             \
  static_assert(offsetof(MPI_Status, MPI_SOURCE) == offsetof(Abi::S, source));                     \
  static_assert(offsetof(MPI_Status, MPI_TAG) == offsetof(Abi::S, tag));                           \
  static_assert(MPI_ANY_SOURCE == Abi::any_source && MPI_TAG_UB == Abi::tag_limit);                \
  static_assert(MPI_THREAD_SERIALIZED == Abi::serialized && MPI_THREAD_MULTIPLE == Abi::multiple); \
  static_assert(MPI_SUCCESS == 0 && MPI_MAX_ERROR_STRING <= 8192 && MPI_MAX_LIBRARY_VERSION_STRING <= 8192);
