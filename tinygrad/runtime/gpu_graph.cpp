/// \file Batches of commands as graphs of a GPU's driver.
#include <algorithm>

#include "tinygrad/runtime/gpu_device.h"

namespace tg {
namespace {

/// A graph whose nodes run one after another. Nodes whose arguments changed are updated in the instantiated graph, what
/// changes its later launches only.
class GpuGraph final : public Batch {
 public:
  GpuGraph(const GpuContext& context, std::span<const BatchCommand> commands)
      : context_(context), commands_(commands), stale_(commands.size(), true) {}
  ~GpuGraph() override { destroy(); }

  void submit(std::span<const uint32_t> changed) override {
    context_.enter();
    for (const uint32_t i : changed) stale_[i] = true;
    // A node cannot have an empty grid.
    if (std::ranges::any_of(commands_, [](const BatchCommand& c) { return c.executable && c.args.is_empty(); }))
      return submit_separately();
    if (!executable_) build();
    else
      for (uint32_t i = 0; i < commands_.size(); i++)
        if (stale_[i]) update(i);
    context_.call(context_.driver.f.launch_graph, executable_, context_.compute);
  }

 private:
  // Of one node, so that its size is less than any limit of a row.
  static constexpr size_t kPiece = size_t{1} << 30;

  static char* place(const BatchCommand& c, int i) { return static_cast<char*>(c.args.buffers[i]); }
  GpuLaunch launch_of(const BatchCommand& c) {
    return static_cast<GpuExecutable&>(*c.executable).prepare(c.args, &arguments_);
  }

  void build() {
    const GpuDriver& driver = context_.driver;
    context_.call(driver.f.create_graph, &graph_, 0u);
    try {
      void* last = nullptr;
      for (const BatchCommand& c : commands_) {
        first_.push_back(nodes_.size());
        if (c.executable) nodes_.push_back(last = driver.add_kernel(context_, graph_, last, launch_of(c)));
        for (size_t at = 0; at < c.copy_bytes; at += kPiece)
          nodes_.push_back(last = driver.add_copy(context_, graph_, last, place(c, 0) + at, place(c, 1) + at,
                                                  std::min(kPiece, c.copy_bytes - at)));
      }
      context_.call(driver.f.instantiate_graph, &executable_, graph_, 0ull);
    } catch (...) {
      destroy();
      throw;
    }
    stale_.assign(commands_.size(), false);
  }

  void update(uint32_t i) {
    const BatchCommand& c = commands_[i];
    const GpuDriver& driver = context_.driver;
    size_t node = first_[i];
    if (c.executable) driver.set_kernel(context_, executable_, nodes_[node], launch_of(c));
    for (size_t at = 0; at < c.copy_bytes; at += kPiece)
      driver.set_copy(context_, executable_, nodes_[node++], place(c, 0) + at, place(c, 1) + at,
                      std::min(kPiece, c.copy_bytes - at));
    stale_[i] = false;
  }

  void submit_separately() {
    for (const BatchCommand& c : commands_) {
      if (c.executable) c.executable->launch(c.args);
      else context_.call(context_.driver.f.copy, place(c, 0), place(c, 1), c.copy_bytes, context_.compute);
    }
  }

  /// Waits for launches of the graph: HIP does not say that it keeps what they need.
  void destroy() noexcept {
    const GpuFunctions& f = context_.driver.f;
    if (graph_ && context_.enter_quietly()) {
      if (executable_) {
        context_.note(f.synchronize_stream(context_.compute), f.synchronize_stream.symbol);
        context_.note(f.destroy_graph_executable(executable_), f.destroy_graph_executable.symbol);
      }
      context_.note(f.destroy_graph(graph_), f.destroy_graph.symbol);
    }
    graph_ = executable_ = nullptr;
    nodes_.clear();
    first_.clear();
  }

  const GpuContext& context_;
  const std::span<const BatchCommand> commands_;
  std::vector<bool> stale_;  // by command: its arguments differ from those of its nodes
  void *graph_ = nullptr, *executable_ = nullptr;
  std::vector<void*> nodes_;
  GpuArguments arguments_;
  std::vector<size_t> first_;  // by command: its first node
};
}  // namespace

std::unique_ptr<Batch> make_gpu_graph(const GpuContext& context, std::span<const BatchCommand> commands) {
  return std::make_unique<GpuGraph>(context, commands);
}

}  // namespace tg
