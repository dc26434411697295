/// \file Devices with queues: the order between two queues, staging, grids, opaque handles, batches, failures; and
/// the registries that backends add themselves to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "helpers/error_text.h"
#include "tinygrad/base/context.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/device_timer.h"
#include "tinygrad/engine/launch_batches.h"
#include "tinygrad/render/listing.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device_registry.h"
#include "tinygrad/runtime/transfers.h"

namespace tg {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Commands that wait until the test runs them; the log says in which order they ran.
struct Log {
  std::vector<std::string> lines;
};
struct ManualEvent final : Event {
  bool reached = false;
  std::function<void()> run;
  bool done() override { return reached; }
  void wait() override { run(); }
};
class ManualQueue final : public Queue {
 public:
  ManualQueue(std::string name, Log& log) : name_(std::move(name)), log_(log) {}
  void add(std::string what, std::function<void()> command) {
    commands_.push_back([this, what = std::move(what), command = std::move(command)] {
      log_.lines.push_back(name_ + " " + what);
      command();
    });
  }
  static char* at(MemoryPlace p) { return static_cast<std::vector<char>*>(p.block)->data() + p.offset; }
  void copy_in(MemoryPlace dst, const void* src, size_t n) override {
    add("in", [=] { std::memcpy(at(dst), src, n); });
  }
  void copy_out(void* dst, MemoryPlace src, size_t n) override {
    add("out", [=] { std::memcpy(dst, at(src), n); });
  }
  void copy(MemoryPlace dst, MemoryPlace src, size_t n) override {
    add("copy", [=] { std::memcpy(at(dst), at(src), n); });
  }
  EventRef record() override {
    auto event = std::make_shared<ManualEvent>();
    event->run = [this, event = event.get()] {
      while (!event->reached) run_one();
    };
    commands_.push_back([event] { event->reached = true; });
    return event;
  }
  void wait_for(const EventRef& event) override {
    commands_.push_back([event] { event->wait(); });
  }
  void flush() override { flushes++; }
  void wait() override {
    while (!commands_.empty()) run_one();
  }
  void run_one() {
    ASSERT_FALSE(commands_.empty());
    const auto command = std::move(commands_.front());
    commands_.erase(commands_.begin());
    command();
  }
  size_t pending() const { return commands_.size(); }
  int flushes = 0;

 private:
  std::string name_;
  Log& log_;
  std::vector<std::function<void()>> commands_;
};

/// Keeps what is freed, since commands may use it.
struct VectorAllocator final : Allocator {
  void* allocate(size_t bytes) override {
    if (fail) throw OutOfMemoryError("[MANUAL] blocks have at most 1 MiB");
    return blocks.emplace_back(std::make_unique<std::vector<char>>(bytes)).get();
  }
  void free(void*, size_t) noexcept override {}
  std::vector<std::unique_ptr<std::vector<char>>> blocks;
  bool fail = false;
};

struct ManualBatch final : Batch {
  explicit ManualBatch(std::span<const BatchCommand> c, std::vector<std::vector<uint32_t>>* submitted)
      : commands(c), submitted(submitted) {}
  void submit(std::span<const uint32_t> changed) override {
    submitted->emplace_back(changed.begin(), changed.end());
    for (const BatchCommand& c : commands)
      if (c.executable) c.executable->launch(c.args);
  }
  std::span<const BatchCommand> commands;
  std::vector<std::vector<uint32_t>>* submitted;
};

class ManualDevice final : public Device {
 public:
  explicit ManualDevice(const std::string& name)
      : Device(name, std::make_unique<LruAllocator>(std::make_unique<VectorAllocator>(), name, 0)) {}
  bool handles_are_addresses() const override { return false; }
  Queue& queue() override { return compute; }
  Queue& transfer_queue() override { return transfer; }
  const Target& target() override { return target_; }
  Compiler& compiler(const Target&) override { throw DeviceError("[MANUAL] no compiler"); }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t>, const std::string&) override { return {}; }
  std::unique_ptr<Batch> record_batch(std::span<const BatchCommand> c) override {
    return std::make_unique<ManualBatch>(c, &submitted);
  }
  Log log;
  ManualQueue compute{"compute", log}, transfer{"transfer", log};
  std::vector<std::vector<uint32_t>> submitted;

 private:
  Target target_;
};
const RegisterDevice registered{{.name = "manual",
                                 .open = [](const std::string& n) { return std::make_unique<ManualDevice>(n); },
                                 .describe = [] { return std::string("a device of this test"); },
                                 .aliases = {"BYHAND"},
                                 .order = 950}};
/// A device that no other case has used.
ManualDevice& fresh() {
  static int next = 0;
  return static_cast<ManualDevice&>(Device::get(str("MANUAL:", next++)));
}

/// Adds `vars[0]` to the ints of buffer 1 and stores them in buffer 0; keeps the launch's arguments.
struct AddKernel final : Executable {
  explicit AddKernel(ManualDevice& device) : device(device) {}
  void launch(const LaunchArgs& args) override {
    size = args;
    offsets.assign(args.offsets, args.offsets + args.nbuffers);
    MemoryPlace out{args.buffers[0], static_cast<size_t>(args.offsets[0])},
        in{args.buffers[1], static_cast<size_t>(args.offsets[1])};
    device.compute.add("launch", [=, add = args.nvars ? args.vars[0] : 1] {
      for (size_t i = 0; i < 4; i++) {
        int v;
        std::memcpy(&v, ManualQueue::at(in) + i * 4, 4);
        v += static_cast<int>(add);
        std::memcpy(ManualQueue::at(out) + i * 4, &v, 4);
      }
    });
  }
  ManualDevice& device;
  LaunchSize size;
  std::vector<int64_t> offsets;
};
CompiledKernelRef add_kernel(ManualDevice& device, std::vector<std::string> vars = {}) {
  auto p = std::make_shared<Program>();
  p->name = "add";
  p->nbuffers = 2;
  p->reads = {false, true};
  p->writes = {true, false};
  p->arena = std::make_shared<Arena>();
  p->vars = std::move(vars);
  return std::make_shared<CompiledKernel>(CompiledKernel{p, std::make_shared<AddKernel>(device)});
}
BufferRef ints(ManualDevice& device, int n) { return Buffer::create(device.name(), n, dtypes::int32); }
void write(Buffer& b, std::vector<int> values) { b.copy_in(std::as_bytes(std::span(values))); }
std::vector<int> read(Buffer& b) {
  std::vector<int> out(static_cast<size_t>(b.size()));
  b.copy_out(std::as_writable_bytes(std::span(out)));
  return out;
}
void run(const LaunchList& list) {
  Cancellation::Hold hold;
  list.run(0, list.launches.size(), hold, "test", true);
}

TEST(DeviceQueue, CopiesReturnBeforeTheyAreDoneAndTheSourceMayChange) {
  ManualDevice& d = fresh();
  const BufferRef b = ints(d, 4);
  {
    std::vector<int> values{1, 2, 3, 4};
    b->copy_in(std::as_bytes(std::span(values)));
    values.assign(4, 0);
  }
  EXPECT_TRUE(d.log.lines.empty());
  EXPECT_GE(d.transfer.flushes, 1) << "a copy may begin at once";
  EXPECT_THAT(read(*b), ElementsAre(1, 2, 3, 4));
}

TEST(DeviceQueue, KernelsWaitForTheCopiesOfTheirBuffersOnly) {
  ManualDevice& d = fresh();
  const BufferRef in = ints(d, 4), out = ints(d, 4), other = ints(d, 4);
  write(*in, {1, 2, 3, 4});
  LaunchList list;
  list.buffers = {out, in};
  list.append(add_kernel(d), std::vector<uint32_t>{0, 1}, {}, std::make_shared<ScheduleCall>(), list.launches);
  list.bind();
  run(list);
  EXPECT_TRUE(d.log.lines.empty()) << "nobody has asked for a value";
  EXPECT_EQ(d.compute.flushes, 1) << "at the end of the run";
  write(*other, {5, 6, 7, 8});
  d.compute.wait();
  EXPECT_THAT(d.log.lines, ElementsAre("transfer in", "compute launch"));
  EXPECT_EQ(d.transfer.pending(), 2u) << "the copy of `other` and the event behind it";
  EXPECT_THAT(read(*out), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(d.log.lines, ElementsAre("transfer in", "compute launch", "transfer in", "transfer out"));
}

TEST(DeviceQueue, ACopyWaitsForTheKernelThatReadsWhatItWrites) {
  ManualDevice& d = fresh();
  const BufferRef in = ints(d, 8), out = ints(d, 4);
  write(*in, {1, 2, 3, 4, 5, 6, 7, 8});
  LaunchList list;
  list.buffers = {out, in->view(4, dtypes::int32, 16)};
  list.append(add_kernel(d), std::vector<uint32_t>{0, 1}, {}, std::make_shared<ScheduleCall>(), list.launches);
  list.bind();
  run(list);
  write(*in->view(4, dtypes::int32, 0), {0, 0, 0, 0});  // other bytes of the allocation
  d.transfer.wait();
  EXPECT_THAT(d.log.lines, ElementsAre("transfer in", "transfer in")) << "did not wait for the kernel";
  write(*in->view(4, dtypes::int32, 16), {0, 0, 0, 0});
  EXPECT_THAT(read(*out), ElementsAre(6, 7, 8, 9)) << "what was there when the kernel was enqueued";
  EXPECT_THAT(read(*in), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(DeviceQueue, ViewsAreOneHandleWithOffsets) {
  ManualDevice& d = fresh();
  const BufferRef all = ints(d, 8);
  const BufferRef low = all->view(4, dtypes::int32, 0), high = all->view(4, dtypes::int32, 16);
  EXPECT_EQ(low->ensure_allocated(), high->ensure_allocated());
  EXPECT_EQ(high->handle_offset(), 16);
  EXPECT_FALSE(buffers_overlap(*low, *high));
  EXPECT_TRUE(buffers_overlap(*all, *high));
  EXPECT_FALSE(buffers_overlap(*low, *Buffer::create("CPU", 4, dtypes::int32)));
  const BufferRef other = ints(d, 4);
  other->ensure_allocated();
  EXPECT_FALSE(buffers_overlap(*low, *other)) << "offsets of other allocations mean nothing";
  const CompiledKernelRef k = add_kernel(d);
  LaunchList list;
  list.buffers = {high, low};
  list.append(k, std::vector<uint32_t>{0, 1}, {}, std::make_shared<ScheduleCall>(), list.launches);
  list.bind();
  write(*all, {1, 2, 3, 4, 0, 0, 0, 0});
  run(list);
  EXPECT_THAT(static_cast<AddKernel&>(*k->executable).offsets, ElementsAre(16, 0));
  EXPECT_THAT(read(*all), ElementsAre(1, 2, 3, 4, 2, 3, 4, 5));
}

TEST(DeviceQueue, OverlappingPartsAreCopiedThroughOtherMemory) {
  ManualDevice& d = fresh();
  const BufferRef all = ints(d, 6);
  write(*all, {1, 2, 3, 4, 5, 6});
  all->view(4, dtypes::int32, 8)->copy_from(*all->view(4, dtypes::int32, 0));
  EXPECT_THAT(read(*all), ElementsAre(1, 2, 1, 2, 3, 4));
}

TEST(DeviceQueue, EmptyBuffersHaveAHandleOfTheDevice) {
  ManualDevice& d = fresh();
  const BufferRef b = ints(d, 0);
  EXPECT_EQ(static_cast<std::vector<char>*>(b->ensure_allocated())->size(), 64u);
}

TEST(DeviceQueue, LaunchesHaveTheGridOfTheirVariables) {
  ManualDevice& d = fresh();
  auto p = std::make_shared<Program>(*add_kernel(d, {"n"})->program);
  {
    ArenaScope scope(*p->arena);
    const UOp n = UOp::variable("n", 1, 100);
    p->global_size[0] = n * UOp::constant(int64_t{2});
    p->global_size[1] = UOp::constant(int64_t{3});
    p->local_size[0] = UOp::constant(int64_t{32});
  }
  p->shared_bytes = 4096;
  EXPECT_TRUE(has_symbolic_size(*p));
  const int64_t values[] = {7};
  const LaunchSize size = launch_size_of(*p, values);
  EXPECT_THAT(size.global, ElementsAre(14, 3, 1));
  EXPECT_THAT(size.local, ElementsAre(32, 1, 1));
  EXPECT_EQ(size.shared_bytes, 4096);
  EXPECT_EQ(size.thread_extent, 1);
  EXPECT_FALSE(size.is_empty());
  EXPECT_FALSE(has_symbolic_size(*add_kernel(d)->program));
}

TEST(DeviceQueue, BatchesNameTheCommandsThatChanged) {
  ManualDevice& d = fresh();
  LaunchList list;
  list.buffers = {ints(d, 4), ints(d, 4), ints(d, 4)};
  write(*list.buffers[2], {1, 2, 3, 4});
  const CompiledKernelRef k = add_kernel(d, {"n"});
  const int64_t one[] = {1};
  list.append(k, std::vector<uint32_t>{1, 2}, one, std::make_shared<ScheduleCall>(), list.launches);
  list.append(k, std::vector<uint32_t>{0, 1}, one, std::make_shared<ScheduleCall>(), list.launches);
  list.bind();
  const auto batches = record_batches(list);
  ASSERT_EQ(batches.size(), 1u);
  const int64_t kernels = GlobalCounters::kernels;
  batches[0]->submit(list);
  batches[0]->submit(list);
  list.values[list.launches[1].values] = 10;
  batches[0]->submit(list);
  EXPECT_EQ(GlobalCounters::kernels - kernels, 6);
  EXPECT_THAT(d.submitted, ElementsAre(ElementsAre(0, 1), ElementsAre(), ElementsAre(1)));
  EXPECT_THAT(read(*list.buffers[0]), ElementsAre(12, 13, 14, 15));
  const BufferRef other = ints(d, 4);
  list.buffers[2] = other;
  list.bind();
  batches[0]->submit(list);
  EXPECT_THAT(d.submitted.back(), ElementsAre(0));
}

TEST(DeviceQueue, HostKernelsAreNoBatches) {
  LaunchList list;
  for (int i = 0; i < 3; i++) list.buffers.push_back(Buffer::create("CPU", 4, dtypes::int32));
  for (int i = 0; i < 2; i++)
    list.append({}, std::vector<uint32_t>{0, 1}, {}, std::make_shared<ScheduleCall>(), list.launches);
  EXPECT_TRUE(record_batches(list).empty());
}

TEST(DeviceQueue, StagingWaitsForTheOldestCopyWhenItIsFull) {
  ManualDevice& d = fresh();
  constexpr int64_t kInts = static_cast<int64_t>(StagingRing::kPiece / 4), kCopies = 9;
  const BufferRef b = ints(d, kInts * kCopies);
  std::vector<int> values(static_cast<size_t>(kInts * kCopies));
  for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<int>(i);
  b->copy_in(std::as_bytes(std::span(values)));
  EXPECT_GE(d.log.lines.size(), 5u) << "nine pieces, room for four";
  EXPECT_LT(d.log.lines.size(), 9u);
  EXPECT_EQ(read(*b), values);
}

TEST(DeviceQueue, FinishedCommandsAreForgotten) {
  Log log;
  ManualQueue a("a", log), b("b", log);
  QueueOrder order;
  char memory = 0;
  for (int64_t i = 0; i < 10000; i++) {
    const MemoryAccess access{&memory, i, i + 1, true};
    const auto lock = order.before(i % 2 ? a : b, {&access, 1});
    (i % 2 ? a : b).add("command", [] {});
    if (i % 100 == 0) {
      a.wait();
      b.wait();
    }
  }
  EXPECT_LT(order.noted(), 2000u);
}

TEST(DeviceQueue, AnErrorOfTheAllocatorLeavesTheCountsRight) {
  auto inner = std::make_unique<VectorAllocator>();
  VectorAllocator& vectors = *inner;
  LruAllocator a(std::move(inner), "MANUAL", 0);
  vectors.fail = true;
  try {
    a.allocate(2 << 20);
    FAIL();
  } catch (const OutOfMemoryError& e) { EXPECT_THAT(e.what(), HasSubstr("at most 1 MiB")); }
  EXPECT_EQ(a.stats().used, 0);
}

// ---- registries ----

TEST(Registry, NamesAndAliasesAreOfAnyCase) {
  EXPECT_EQ(Device::canonical("Manual:0"), "MANUAL");
  EXPECT_EQ(Device::canonical("byhand:3"), "MANUAL:3");
  std::vector<std::string> names;
  for (const DeviceInfo& d : Device::list()) names.push_back(d.name);
  EXPECT_EQ(names.front(), "CPU");
  EXPECT_THAT(names, ::testing::Contains("MANUAL"));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains("BYHAND")));
  EXPECT_LT(std::ranges::find(names, "DISK"), std::ranges::find(names, "MANUAL")) << "by order";
}

TEST(Registry, ANameThatIsTakenIsAnErrorForWhoUsesIt) {
  DeviceKind kind;
  kind.name = "TWICE";
  kind.describe = [] { return std::string("found"); };
  register_device(kind, "first.cpp", 1);
  register_device(kind, "second.cpp", 2);
  const std::string what = test::error_text<DeviceError>([] { Device::get("TWICE"); });
  EXPECT_THAT(what, HasSubstr("TWICE is registered twice, at first.cpp:1 and at second.cpp:2"));
  for (const DeviceInfo& d : Device::list())
    if (d.name == "TWICE") {
      EXPECT_FALSE(d.available);
      EXPECT_THAT(d.note, HasSubstr("registered twice"));
    }
  EXPECT_EQ(test::error_text<DeviceError>([] { Device::get("CPU"); }), "no error") << "the others work";
}

TEST(Registry, WhatIsMissingAndHowToInstallIt) {
  DeviceKind kind;
  kind.name = "ABSENT";
  kind.open = [](const std::string&) -> std::unique_ptr<Device> { return nullptr; };
  kind.describe = []() -> std::string { throw DeviceError("libabsent.so was not found"); };
  kind.install = "apt install absent";
  register_device(kind);
  for (const DeviceInfo& d : Device::list())
    if (d.name == "ABSENT") {
      EXPECT_FALSE(d.available);
      EXPECT_EQ(d.note, "libabsent.so was not found");
      EXPECT_EQ(d.install, "apt install absent");
    }
}

TEST(Registry, WhatDevNamesBehindADeviceWithoutAChoiceIsAnError) {
  Context dev{{"DEV", "MANUAL:NOSUCH:ARCH"}};
  EXPECT_THAT(test::error_text<DeviceError>([] { Device::get("MANUAL:1234"); }),
              HasSubstr("expected MANUAL alone: it has neither renderers nor architectures"));
  Context index{{"DEV", "MANUAL:1234"}};
  EXPECT_EQ(test::error_text<DeviceError>([] { Device::get("MANUAL:1234"); }), "no error") << "a number is no renderer";
}

TEST(Registry, Renderers) {
  register_renderer("HERE", [](const Target& t) { return std::make_unique<ListingRenderer>(t); }, "here.cpp", 7);
  Target t;
  t.renderer = "HERE";
  EXPECT_NE(make_renderer(t), nullptr);
  register_renderer("HERE", [](const Target& t) { return std::make_unique<ListingRenderer>(t); }, "there.cpp", 8);
  EXPECT_THAT(test::error_text<DeviceError>([&] { make_renderer(t); }),
              HasSubstr("HERE is registered twice, at here.cpp:7 and at there.cpp:8"));
  t.renderer = "NOWHERE";
  EXPECT_THAT(test::error_text<DeviceError>([&] { make_renderer(t); }), HasSubstr("got NOWHERE, expected one of "));
}

}  // namespace
}  // namespace tg
