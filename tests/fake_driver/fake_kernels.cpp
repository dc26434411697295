/// \file Modules, launches and graphs of the fake GPUs.
#include "fake_driver/fake_machine.h"

namespace tg::fake {
namespace {

int64_t static_shared(const ProgramImage& image) {
  const int64_t limit = kFace.values[static_cast<int>(GpuAttribute::kSharedBytes)];
  return image.shared_bytes <= limit ? image.shared_bytes : 0;
}

int check_launch(const FunctionObject& f, const GpuLaunch& l) {
  const ProgramImage& image = f.module->image;
  int64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (l.grid[i] == 0 || l.block[i] == 0) return kInvalidValue;
    const int64_t known = image.group[static_cast<size_t>(i)];
    if (known && known != l.block[i])
      violation(str(image.program->name, " is launched with ", l.block[i], " threads along dimension ", i,
                    ", it was compiled for ", known));
    threads *= l.block[i];
  }
  if (threads > kMaxThreads || l.grid[0] % image.cluster) return kInvalidValue;
  const int64_t needed = image.shared_bytes - static_shared(image);
  if (l.shared_bytes < needed)
    violation(str(image.program->name, " needs ", needed, " bytes of shared memory, got ", l.shared_bytes));
  const int64_t all = l.shared_bytes + static_shared(image);
  const auto limit = [](GpuAttribute a) { return kFace.values[static_cast<int>(a)]; };
  if (all > limit(GpuAttribute::kSharedBytesOptIn)) return kInvalidValue;
  if (kFace.shared_opt_in && all > limit(GpuAttribute::kSharedBytes) &&
      static_cast<int>(l.shared_bytes) > f.dynamic_shared)
    return kInvalidValue;
  return 0;
}

/// What the fake driver writes into the bytes of a map.
struct MapImage {
  char magic[16] = "fake tensor map";
  const void* address = nullptr;
  TensorMap form{};
};
static_assert(sizeof(MapImage) <= kTensorMapBytes);

/// Compares a map that a kernel is given with what it copies, and with the memory it is given.
void check_map(const ProgramImage& image, const TensorMap& known, const void* given, const void* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const std::string& name = image.program->name;
  if (reinterpret_cast<uintptr_t>(given) % kTensorMapAlign)
    violation(name + " is given a tensor map at no multiple of 64 bytes");
  MapImage map;
  std::memcpy(&map, given, sizeof map);
  if (std::strcmp(map.magic, MapImage{}.magic) != 0) {  // kernels do not use those of other addresses
    if (address % kTensorAlignment == 0) violation(name + " is given something else for a tensor map");
    return;
  }
  map.form.slot = known.slot;
  if (!(map.form == known)) violation(str(name, " copies boxes of ", known.text(), ", got a map of ", map.form.text()));
  if (map.address != memory) violation(name + " is given the tensor map of other memory");
}

int make_work(const GpuLaunch& l, Work* out) {
  Machine& m = machine();
  for (auto& [key, module] : m.modules)
    if (&module->function == l.function) out->function = &module->function;
  if (!out->function) {
    violation("a handle of no function");
    return kInvalidHandle;
  }
  const ModuleObject& module = *out->function->module;
  if (module.unloaded) violation(str(module.image.program->name, " is launched when its module was unloaded"));
  if (module.device != current_device) {
    violation("a function of another device");
    return kInvalidHandle;
  }
  if (const int error = check_launch(*out->function, l)) return error;
  const size_t buffers = module.image.buffers.size(), vars = module.image.program->vars.size();
  for (size_t i = 0; i < buffers; i++) out->buffers.push_back(*static_cast<void**>(l.parameters[i]));
  for (size_t i = 0; i < vars; i++) out->vars.push_back(*static_cast<int64_t*>(l.parameters[buffers + i]));
  for (size_t i = 0; const TensorMap& m : module.image.maps)
    check_map(module.image, m, l.parameters[buffers + vars + i++], out->buffers.at(static_cast<size_t>(m.slot)));
  for (int i = 0; i < 3; i++) {
    out->size.global[i] = l.grid[i];
    out->size.local[i] = l.block[i];
  }
  out->size.shared_bytes = l.shared_bytes;
  std::copy(l.grid, l.grid + 3, m.last_grid);
  std::copy(l.block, l.block + 3, m.last_block);
  m.last_shared = l.shared_bytes;
  return 0;
}

/// Notes the memory that a launch or a copy touches.
int touch_all(const Stream& s, Moment moment, const Work& w) {
  if (!w.function) {
    const int error = touch(s, moment, w.from, w.bytes, false, "a copy");
    return error ? error : touch(s, moment, w.to, w.bytes, true, "a copy");
  }
  ModuleObject& module = *w.function->module;
  for (size_t i = 0; i < w.buffers.size(); i++) {
    const ImageBuffer& b = module.image.buffers[i];
    if (b.bytes == 0) continue;
    for (const bool writes : {false, true})
      if (writes ? b.writes : b.reads)
        if (const int error = touch(s, moment, w.buffers[i], static_cast<size_t>(b.bytes), writes,
                                    module.image.program->name.c_str(), b.exact))
          return error;
  }
  std::erase_if(module.launches, [](const Moment& l) { return l.before(machine().host); });
  module.launches.push_back(moment);
  return 0;
}

int run(const Work& w, const std::shared_ptr<const Interpreter>& interpreter) {
  if (!w.function) {
    std::memcpy(w.to, w.from, w.bytes);
    return 0;
  }
  try {
    interpreter->run_groups(w.buffers.data(), w.vars.data(), w.size, 0,
                            w.size.global[0] * w.size.global[1] * w.size.global[2]);
    return 0;
  } catch (const std::exception& e) {
    std::lock_guard lock(machine().mutex);
    violation(str("a kernel ended with ", e.what()));
    return kIllegalAddress;
  }
}
std::shared_ptr<const Interpreter> interpreter_of(const Work& w) {
  return w.function ? w.function->module->interpreter : nullptr;
}

bool all_before(const std::vector<Moment>& moments, const Clock& clock) {
  return std::all_of(moments.begin(), moments.end(), [&](const Moment& m) { return m.before(clock); });
}
}  // namespace

int enqueue(Stream& s, Work w) {
  const Moment moment = next_moment(s);
  const int error = touch_all(s, moment, w);
  push(s, [error, w = std::move(w), interpreter = interpreter_of(w)] { return error ? error : run(w, interpreter); });
  return 0;
}

int load_module(void** module, const void* image) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  if (const int error = check_current()) return error;
  ProgramImage read;
  try {
    read = read_image(image);
  } catch (const std::exception&) { return kInvalidImage; }
  ModuleObject* made = add(m.modules, module);
  made->image = std::move(read);
  made->interpreter = std::make_shared<Interpreter>(made->image.program);
  made->function.module = made;
  return 0;
}
int unload_module(void* module) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  ModuleObject* m = find(machine().modules, module, "module");
  if (!m || m->unloaded) return kInvalidHandle;
  if (!all_before(m->launches, machine().host)) violation("a module is unloaded while launches may run");
  m->unloaded = true;
  return 0;
}
int get_function(void** function, void* module, const char* name) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  ModuleObject* m = find(machine().modules, module, "module");
  if (!m) return kInvalidHandle;
  if (m->image.program->name != name) return kNotFound;
  *function = &m->function;
  return 0;
}
int function_attribute(int* value, int attribute, void* function) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  const auto* f = static_cast<FunctionObject*>(function);
  switch (static_cast<GpuFunctionAttribute>(attribute)) {
    case GpuFunctionAttribute::kGroupThreads: *value = kMaxThreads; return 0;
    case GpuFunctionAttribute::kSharedBytes: *value = static_cast<int>(static_shared(f->module->image)); return 0;
    case GpuFunctionAttribute::kRegisters: *value = 32; return 0;
    case GpuFunctionAttribute::kDynamicSharedBytes: *value = f->dynamic_shared; return 0;
  }
  return kInvalidValue;
}
int allow_dynamic_shared(void* function, int bytes) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  auto* f = static_cast<FunctionObject*>(function);
  if (bytes + static_shared(f->module->image) > kFace.values[static_cast<int>(GpuAttribute::kSharedBytesOptIn)])
    return kInvalidValue;
  f->dynamic_shared = bytes;
  return 0;
}
int launch(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
           unsigned block_z, unsigned shared_bytes, void* stream, void** parameters, void** extra) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s || extra) return kInvalidHandle;
  const GpuLaunch l{function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, parameters};
  Work w;
  if (const int error = make_work(l, &w)) return error;
  return enqueue(*s, std::move(w));
}

int make_map(void* map, const TensorMap& form, void* address) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  if (reinterpret_cast<uintptr_t>(map) % kTensorMapAlign || reinterpret_cast<uintptr_t>(address) % kTensorAlignment)
    return kInvalidValue;
  MapImage image;
  image.address = address;
  image.form = form;
  std::memcpy(map, &image, sizeof image);
  return 0;
}

int create_graph(void** graph, unsigned flags) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  if (flags != 0) return kInvalidValue;
  add(machine().graphs, graph);
  return 0;
}
int destroy_graph(void* graph) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  GraphObject* g = find(machine().graphs, graph, "graph");
  if (!g || g->destroyed) return kInvalidHandle;
  g->destroyed = true;
  return 0;
}
namespace {
int add_node(void** out, void* graph, void* const* after, size_t count, Work w) {
  GraphObject* g = find(machine().graphs, graph, "graph");
  if (!g) return kInvalidHandle;
  auto node = std::make_unique<Node>();
  node->work = std::move(w);
  for (size_t i = 0; i < count; i++) {
    const auto it = std::find_if(g->nodes.begin(), g->nodes.end(), [&](const auto& n) { return n.get() == after[i]; });
    if (it == g->nodes.end()) return violation("a node depends on one of another graph");
    node->after.push_back(it->get());
  }
  *out = node.get();
  g->nodes.push_back(std::move(node));
  return 0;
}
Work copy_work(void* to, const void* from, size_t bytes) {
  Work w;
  w.to = static_cast<char*>(to);
  w.from = static_cast<const char*>(from);
  w.bytes = bytes;
  return w;
}
int set_node(void* executable, const void* node, Work w) {
  ExecutableGraph* e = find(machine().executables, executable, "instantiated graph");
  if (!e) return kInvalidHandle;
  const auto it = std::find(e->original.begin(), e->original.end(), node);
  if (it == e->original.end()) return violation("a node of another graph is changed");
  Work& now = e->work[static_cast<size_t>(it - e->original.begin())];
  if ((now.function == nullptr) != (w.function == nullptr)) return violation("a node becomes one of another kind");
  now = std::move(w);
  return 0;
}

/// Whether node b runs behind node a.
bool is_behind(const ExecutableGraph& e, size_t b, size_t a) {
  return std::any_of(e.after[b].begin(), e.after[b].end(), [&](size_t n) { return n == a || is_behind(e, n, a); });
}
}  // namespace

int add_kernel_node(void** node, void* graph, void* const* after, size_t count, const GpuLaunch& l) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Work w;
  if (const int error = make_work(l, &w)) return error;
  return add_node(node, graph, after, count, std::move(w));
}
int set_kernel_node(void* executable, void* node, const GpuLaunch& l) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Work w;
  if (const int error = make_work(l, &w)) return error;
  return set_node(executable, node, std::move(w));
}
int add_copy_node(void** node, void* graph, void* const* after, size_t count, void* to, const void* from,
                  size_t bytes) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  return add_node(node, graph, after, count, copy_work(to, from, bytes));
}
int set_copy_node(void* executable, void* node, void* to, const void* from, size_t bytes) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  return set_node(executable, node, copy_work(to, from, bytes));
}
int instantiate_graph(void** executable, void* graph, unsigned long long flags) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  if (const int error = check_current()) return error;
  const GraphObject* g = find(m.graphs, graph, "graph");
  if (!g || flags != 0) return kInvalidHandle;
  ExecutableGraph* e = add(m.executables, executable);
  for (const auto& n : g->nodes) {
    e->original.push_back(n.get());
    e->work.push_back(n->work);
    e->after.emplace_back();
    for (const Node* a : n->after)
      e->after.back().push_back(
          static_cast<size_t>(std::find(e->original.begin(), e->original.end(), a) - e->original.begin()));
  }
  return 0;
}
/// Nodes that no path of the graph orders may not touch the same memory.
int launch_graph(void* executable, void* stream) {
  Machine& m = machine();
  std::lock_guard lock(m.mutex);
  if (const int error = check_current()) return error;
  ExecutableGraph* e = find(m.executables, executable, "instantiated graph");
  Stream* s = find(m.streams, stream, "stream");
  if (!e || !s) return kInvalidHandle;
  const Moment moment = next_moment(*s);
  int error = 0;
  for (size_t i = 0; i < e->work.size() && !error; i++) {
    if (e->work[i].function && e->work[i].function->module->unloaded) violation("a graph launches an unloaded module");
    if (i > 0 && !is_behind(*e, i, i - 1)) violation("a graph's node is in no order with the one before it");
    error = touch_all(*s, moment, e->work[i]);
  }
  std::erase_if(e->launches, [&](const Moment& l) { return l.before(m.host); });
  e->launches.push_back(moment);
  std::vector<std::shared_ptr<const Interpreter>> interpreters;
  for (const Work& w : e->work) interpreters.push_back(interpreter_of(w));
  push(*s, [error, work = e->work, interpreters = std::move(interpreters)] {
    int result = error;
    for (size_t i = 0; i < work.size() && !result; i++) result = run(work[i], interpreters[i]);
    return result;
  });
  return 0;
}
int destroy_graph_executable(void* executable) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  ExecutableGraph* e = find(machine().executables, executable, "instantiated graph");
  if (!e || e->destroyed) return kInvalidHandle;
  if (!kFace.keeps_running_graphs && !all_before(e->launches, machine().host))
    violation("a graph is destroyed while it may run");
  e->destroyed = true;
  return 0;
}

}  // namespace tg::fake
