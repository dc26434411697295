/// \file The table of NCCL's functions against nccl.h: comparing them is compiling them.
#include <gtest/gtest.h>
#include <nccl.h>

#include <type_traits>

#include "tinygrad/runtime/nccl_abi.h"

namespace tg {
namespace {
/// Whether two parameters are passed alike: pointers, numbers of one size, or structures of one size.
template <class A, class B> constexpr bool passed_alike() {
  return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
         std::is_class_v<A> == std::is_class_v<B>;
}
template <class R, class... A, class S, class... B> constexpr bool called_alike(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) return false;
  else return passed_alike<R, S>() && (passed_alike<A, B>() && ...);
}
#define FUNCTION(name, parameters, names) \
  static_assert(called_alike(decltype(NcclFunctions::name){}, decltype(&nccl##name){}), #name);
#include "tinygrad/runtime/nccl_functions.inc"
#undef FUNCTION
static_assert(called_alike(decltype(NcclFunctions::GetErrorString){}, decltype(&ncclGetErrorString){}));
static_assert(called_alike(decltype(NcclFunctions::GetLastError){}, decltype(&ncclGetLastError){}));

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId) && std::is_trivially_copyable_v<NcclId>);
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(NCCL_VERSION(2, 14, 0) == nccl::kOldest);
static_assert(nccl::kSuccess == ncclSuccess && nccl::kInProgress == ncclInProgress);
static_assert(nccl::kInt8 == ncclInt8 && nccl::kUint8 == ncclUint8 && nccl::kInt32 == ncclInt32 &&
              nccl::kUint32 == ncclUint32 && nccl::kInt64 == ncclInt64 && nccl::kUint64 == ncclUint64 &&
              nccl::kFloat16 == ncclFloat16 && nccl::kFloat32 == ncclFloat32 && nccl::kFloat64 == ncclFloat64 &&
              nccl::kBfloat16 == static_cast<int>(ncclFloat64) + 1);
static_assert(nccl::kSum == ncclSum && nccl::kProd == ncclProd && nccl::kMax == ncclMax);

TEST(NcclSignatures, AreThoseOfItsHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig{}.magic, theirs.magic);
}
}  // namespace
}  // namespace tg
