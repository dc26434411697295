/// \file Memory that leaves the library and memory that comes in: who keeps it, who sees writes to it.
#include "tinygrad/tensor/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "device_facts.h"
#include "several_devices.h"
#include "temp_dir.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::StartsWith;
using Access = HostBytes::Access;

constexpr int64_t kSize = 1000;

Tensor filled(float v, int64_t n = kSize) { return Tensor::full({n}, v).contiguous().realize(); }
std::vector<float> floats(std::span<const std::byte> b) {
  std::vector<float> out(b.size() / sizeof(float));
  std::memcpy(out.data(), b.data(), b.size());
  return out;
}
std::vector<float> floats(const HostBytes& h) { return floats(h.bytes); }
std::vector<float> counted(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 0.0f);
  return v;
}
/// Returns tensors whose memory is what the allocator gives out next.
Tensors next_tensors(int64_t n = kSize) {
  Tensors out;
  for (int i = 0; i < 4; i++) out.push_back(filled(static_cast<float>(100 + i), n));
  return out;
}
HostBytes memory_of(std::vector<float>& v, Access access, std::shared_ptr<const void> owner = {}) {
  return {std::as_bytes(std::span(v)), std::move(owner), access};
}
/// Whether the host sees the memory of the default device.
bool is_visible() { return Device::get().host_visible(); }

TEST(HostMemory, AnExportKeepsItsMemoryWhateverBecomesOfTheTensor) {
  TG_NEEDS_VALUES();
  const std::vector<std::pair<const char*, std::function<void(Tensor&)>>> cases{
      {"replace", [](Tensor& t) { t.replace(filled(0)); }},
      {"assignment of the handle", [](Tensor& t) { t = filled(0); }},
      {"to_", [](Tensor& t) { t.to_(Device::default_name() == "CPU" ? "CPU:1" : "CPU").realize(); }},
      {"load_state_dict",
       [](Tensor& t) {
         const Tensor view = t.reshape(10, -1);  // so that the tensor gets other storage
         nn::load_state_dict({{"w", t}}, {{"w", filled(0)}});
       }},
      {"cast_parameters", [](Tensor& t) { nn::cast_parameters({t.requires_grad_()}, dtypes::float16); }},
      {"the last handle dies", [](Tensor& t) { t = Tensor(); }},
  };
  for (const auto& [name, change] : cases) {
    SCOPED_TRACE(name);
    Tensor t = filled(7);
    const HostBytes h = host_bytes(t);
    change(t);
    const Tensors others = next_tensors();
    EXPECT_THAT(floats(h), Each(7.0f));
    EXPECT_EQ(h.bytes.size(), kSize * sizeof(float));
  }
}

TEST(HostMemory, AShardedExportKeepsItsMemory) {
  TG_NEEDS_VALUES();
  if (const std::string why = several_devices_missing(2); !why.empty()) GTEST_SKIP() << why;
  const std::string d = Device::default_name();
  Tensor t = filled(7);
  const HostBytes h = host_bytes(t);
  t.shard_({d, d + ":1"}, 0).realize();
  const Tensors others = next_tensors();
  EXPECT_THAT(floats(h), Each(7.0f));
  EXPECT_EQ(host_bytes(t).access, Access::kCopy);
}

TEST(HostMemory, StorageShowsWritesAndCopiesDoNot) {
  TG_NEEDS_VALUES();
  Tensor t = filled(7);
  const HostBytes h = host_bytes(t), copy = copied_bytes(t);
  EXPECT_EQ(h.access, is_visible() ? Access::kShared : Access::kCopy);
  EXPECT_EQ(copy.access, Access::kCopy);
  t.assign(filled(8)).realize();
  EXPECT_THAT(floats(h), Each(is_visible() ? 8.0f : 7.0f));
  EXPECT_THAT(floats(copy), Each(7.0f));
}

TEST(HostMemory, WhatHasNoStorageOfItsOwnIsCopied) {
  TG_NEEDS_VALUES();
  const Tensor t = Tensor::arange(12).to_float().reshape(3, 4).contiguous().realize();
  EXPECT_EQ(host_bytes(Tensor::ones(3)).access, Access::kCopy);
  EXPECT_EQ(host_bytes(Tensor(2.5f)).access, Access::kCopy);
  EXPECT_EQ(host_bytes(t.slice(0, 1)).access, Access::kCopy);
  EXPECT_EQ(host_bytes(t.transpose()).access, Access::kCopy);
  EXPECT_EQ(host_bytes(t.reshape(2, 6).detach()).access, is_visible() ? Access::kShared : Access::kCopy);
  EXPECT_EQ(host_bytes(Tensor::zeros(0, 3)).bytes.size(), 0u);
}

TEST(HostMemory, ASecondReadLeavesTheFirstAlone) {
  TG_NEEDS_VALUES();
  const testing::TempDir folder;
  const std::vector<float> numbers = counted(kSize);
  const Tensor t = Tensor::from(numbers).realize();
  const std::string path = folder / "x";
  Tensor::empty({kSize}, {.dtype = dtypes::float32, .device = "DISK:" + path}).assign(t.to("CPU"));
  const Tensor file = Tensor::from_file(path, {.dtype = dtypes::float32});
  const BoundVariable n = Variable("n", 1, kSize).bind(900);
  std::vector<std::pair<std::string, Tensor>> cases{
      {"storage", t},
      {"a view", t.slice(0, 10)},
      {"every other element", t.slice(0, None, None, 2)},
      {"an expression", t * 1},
      {"a literal", Tensor::full({kSize}, 3.0f)},
      {"a part of a file", file.slice(0, 100)},
      {"every other element of a file", file.slice(0, None, None, 2)},
      {"a symbolic size", t.shrink({{0, n.uop()}}).contiguous()},
  };
  const std::string d = Device::default_name();
  if (several_devices_missing(2).empty()) cases.emplace_back("shards", t.shard({d, d + ":1"}, 0).realize());
  for (const auto& [name, x] : cases) {
    SCOPED_TRACE(name);
    const std::span<const float> first = x.data<float>();
    const std::vector<float> before(first.begin(), first.end());
    const std::span<const float> second = x.data<float>();
    x.to_vector<float>();
    const Tensors others = next_tensors(static_cast<int64_t>(first.size()));
    EXPECT_EQ(first.data(), second.data());
    EXPECT_THAT(before, ElementsAreArray(first.begin(), first.end()));
  }
}

TEST(HostMemory, SpansStayWhenTheHandleMovesToItsStorage) {
  TG_NEEDS_VALUES();
  const Tensor x = filled(3).requires_grad_(), y = x * 2;
  const std::span<const float> span = y.data<float>();  // y keeps its expression
  y.realize();
  y.sum().backward();
  realize(x.grad());
  const Tensors others = next_tensors();
  EXPECT_THAT(std::vector<float>(span.begin(), span.end()), Each(6.0f));
}

TEST(HostMemory, ASpanIsReadAgainAfterAWrite) {
  TG_NEEDS_VALUES();
  const Tensor t = filled(1), view = t.slice(0, 10);
  EXPECT_EQ(view.data<float>()[0], 1.0f);
  Tensor(t) += 1;
  EXPECT_EQ(t.data<float>()[0], 2.0f);
  EXPECT_EQ(view.data<float>()[0], 2.0f);
}

// ---- imports ----

TEST(HostMemory, AnImportSharesMemory) {
  std::vector<float> memory{1, 2, 3, 4};
  bool gone = false;
  {
    Tensor t =
        from_host_bytes(memory_of(memory, Access::kShared, std::shared_ptr<void>(nullptr, [&](void*) { gone = true; })),
                        {2, 2}, dtypes::float32);
    EXPECT_EQ(t.device(), "CPU");
    EXPECT_EQ(host_bytes(t).bytes.data(), static_cast<const void*>(memory.data()));
    EXPECT_EQ(host_bytes(t).access, Access::kShared);
    t += 1;
    t.realize();
    EXPECT_THAT(memory, ElementsAre(2, 3, 4, 5));
    memory[0] = 9;
    EXPECT_EQ(t(0, 0).item<float>(), 9);
    EXPECT_FALSE(gone);
  }
  EXPECT_TRUE(gone);
}

TEST(HostMemory, AReadOnlyImportIsNeverWritten) {
  const std::vector<float> before = counted(6);
  const std::vector<std::pair<const char*, std::function<void(Tensor&)>>> writes{
      {"+=", [](Tensor& t) { t += 1; }},
      {"assign", [](Tensor& t) { t.assign(Tensor::full({2, 3}, 5.0f)); }},
      {"an element", [](Tensor& t) { t.at(0, 0) = 5; }},
      {"a view", [](Tensor& t) { t.slice(0, 1).assign(Tensor::full({1, 3}, 5.0f, {.device = "CPU"})); }},
      {"an optimizer",
       [](Tensor& t) {
         t.requires_grad_();
         nn::SGD opt({t}, {.lr = 0.5});
         const nn::Training mode;
         t.sum().backward();
         opt.step();
       }},
      {"zero_", [](Tensor& t) { t.assign(t.zeros_like()); }},
  };
  for (const auto& [name, write] : writes) {
    SCOPED_TRACE(name);
    std::vector<float> memory = before;
    Tensor t = from_host_bytes(memory_of(memory, Access::kReadOnly), {2, 3}, dtypes::float32);
    const Tensor view = t.slice(0, 1, 2), old = t * 10;
    EXPECT_EQ(host_bytes(t).access, Access::kReadOnly);
    EXPECT_EQ(host_bytes(t).bytes.data(), static_cast<const void*>(memory.data()));
    write(t);
    EXPECT_THAT(old.to_vector<float>(), ElementsAre(0, 10, 20, 30, 40, 50));
    t.realize();
    EXPECT_EQ(memory, before);
    EXPECT_NE(t.to_vector<float>(), before);
    EXPECT_NE(host_bytes(t).bytes.data(), static_cast<const void*>(memory.data()));
    EXPECT_EQ(host_bytes(t).access, Access::kShared);
    EXPECT_EQ(view.to_vector<float>(), t.slice(0, 1, 2).to_vector<float>());
  }
}

TEST(HostMemory, ACapturedFunctionNeverWritesAReadOnlyInput) {
  std::vector<float> memory(4, 1.0f);
  auto add = jit([](Tensor x) {
    x += 1;
    return x * 2;
  });
  const auto shared = [] { return filled(1, 4).to("CPU").contiguous().realize(); };
  for (int i = 0; i < 3; i++) {
    const Tensor x = shared();
    EXPECT_THAT(add(x).to_vector<float>(), Each(4.0f));
    EXPECT_THAT(x.to_vector<float>(), Each(2.0f));
  }
  const Tensor x = from_host_bytes(memory_of(memory, Access::kReadOnly), {4}, dtypes::float32);
  EXPECT_THAT(add(x).to_vector<float>(), Each(4.0f));
  EXPECT_THAT(x.to_vector<float>(), Each(2.0f));
  EXPECT_THAT(memory, Each(1.0f));
}

TEST(HostMemory, AFunctionCapturedWithAReadOnlyInputNeverWritesIt) {
  std::vector<float> memory(4, 1.0f);
  auto add = jit([](Tensor x) {
    x += 1;
    return x * 2;
  });
  for (int i = 0; i < 4; i++) {
    const Tensor x = from_host_bytes(memory_of(memory, Access::kReadOnly), {4}, dtypes::float32);
    EXPECT_THAT(add(x).to_vector<float>(), Each(4.0f)) << i;
    EXPECT_THAT(x.to_vector<float>(), Each(2.0f)) << i;
    EXPECT_THAT(memory, Each(1.0f)) << i;
  }
}

TEST(HostMemory, RefusedImports) {
  std::vector<float> memory(4);
  const auto message = [](const auto& f) {
    try {
      f();
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string("no error");
  };
  const auto whole = [&] { return memory_of(memory, Access::kShared); };
  EXPECT_THROW(from_host_bytes(whole(), {5}, dtypes::float32), ShapeError);
  EXPECT_THROW(from_host_bytes(whole(), {2}, dtypes::weakfloat), DTypeError);
  HostBytes odd = whole();
  odd.bytes = odd.bytes.subspan(1, 4);
  EXPECT_THROW(from_host_bytes(odd, {1}, dtypes::float32), ValueError);
  const BufferRef fixed = Buffer::from_host("CPU", memory_of(memory, Access::kReadOnly), 4, dtypes::float32);
  EXPECT_THAT(message([&] { fixed->copy_in(std::as_bytes(std::span(memory))); }),
              StartsWith("[copy_in] got a buffer of 16 bytes over memory of somebody else"));
  EXPECT_THROW(fixed->view(2, dtypes::float32, 8)->copy_in(std::as_bytes(std::span(memory)).first(8)), ValueError);
}

TEST(HostMemory, ABufferWhoseMemoryWasGivenOutIsNotFreed) {
  const BufferRef b = Buffer::create("CPU", 4, dtypes::float32);
  const std::vector<float> v{1, 2, 3, 4};
  b->copy_in(std::as_bytes(std::span(v)));
  {
    const HostBytes part = b->view(2, dtypes::float32, 8)->host_bytes();
    b->deallocate();
    EXPECT_TRUE(b->is_allocated());
    EXPECT_THAT(floats(part), ElementsAre(3, 4));
  }
  b->deallocate();
  EXPECT_FALSE(b->is_allocated());
}

// ---- threads ----

TEST(HostMemory, ThreadsThatReadOneTensor) {
  TG_NEEDS_VALUES();
  for (int round = 0; round < 20; round++) {
    const Tensor t = Tensor::full({kSize}, static_cast<float>(round)).contiguous(), part = t.slice(0, 5);
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int i = 0; i < 4; i++)
      threads.emplace_back([&, i] {
        const auto expected = static_cast<float>(round);
        for (float v : t.data<float>()) wrong += v != expected;
        for (float v : i % 2 ? part.to_vector<float>() : t.to_vector<float>()) wrong += v != expected;
      });
    for (std::thread& th : threads) th.join();
    ASSERT_EQ(wrong, 0);
  }
}

TEST(HostMemory, AReadIsNeverHalfOfAnUpdate) {
  TG_NEEDS_VALUES();
  if (env::EAGER) GTEST_SKIP() << "an operation that realizes holds the graph, so that it cannot wait for readers";
  constexpr int64_t kMany = 200000;
  const Tensor t = filled(0, interprets_kernels() ? kSize : kMany);
  std::atomic<bool> done = false;
  std::atomic<int> torn = 0;
  std::thread reader([&] {
    while (!done) {
      const std::vector<float> v = t.to_vector<float>();
      torn += std::any_of(v.begin(), v.end(), [&](float x) { return x != v[0]; });
    }
  });
  Tensor own = t;
  for (int i = 0; i < 50; i++) {
    own += 1;
    own.realize();
  }
  done = true;
  reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_THAT(t.to_vector<float>(), Each(50.0f));
}

}  // namespace
}  // namespace tg
