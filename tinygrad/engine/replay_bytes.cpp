/// \file Replays as bytes: launches with their machine code (or instructions, on a device that executes those), and
/// where their memory lies.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/env.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/engine/replay_launch.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/uop/serialize.h"
#include "tinygrad/uop/spec.h"

namespace tg {
namespace {
enum Role : uint8_t { kGiven, kExternal, kPlanned, kScratch };
constexpr int64_t kMost = int64_t{1} << 46;  // bytes of one piece of memory

void write_flags(ByteWriter& w, const std::vector<bool>& v) {
  w.size(v.size());
  for (bool b : v) w.value<uint8_t>(b);
}
std::vector<bool> read_flags(ByteReader& r, size_t n, const char* what) {
  r.check(r.size() == n, what);
  std::vector<bool> v(n);
  for (size_t i = 0; i < n; i++) v[i] = r.flag();
  return v;
}

void write_program(ByteWriter& w, const Program& p, const std::string& device) {
  Device& d = Device::get(device);
  TG_CHECK(DeviceError, d.compiles() ? !p.binary.empty() : !p.linear.empty(), "[save] got kernel ", p.name,
           " without code, expected one compiled here");
  const Target& t = d.target();
  w.text(device);
  w.text(t.arch);
  w.size(t.features.size());
  for (const std::string& f : t.features) w.text(f);
  w.text(p.name);
  w.size(p.reads.size());
  for (size_t i = 0; i < p.reads.size(); i++)
    w.value<uint8_t>(static_cast<uint8_t>((p.reads[i] ? 1 : 0) | (p.writes[i] ? 2 : 0)));
  w.size(p.vars.size());
  for (const std::string& v : p.vars) w.text(v);
  w.value(p.estimates);
  w.value<uint8_t>(d.compiles());
  UOps roots{p.thread_extent};
  for (UOp u : p.global_size) roots.push_back(u);
  for (UOp u : p.local_size) roots.push_back(u);
  if (!d.compiles()) roots.insert(roots.end(), p.linear.begin(), p.linear.end());
  write_graph(w, roots);
  w.text({reinterpret_cast<const char*>(p.binary.data()), d.compiles() ? p.binary.size() : 0});
}

/// Of a program in instructions: bytes each parameter is read or written as.
std::vector<int64_t> parameter_bytes(const ByteReader& r, const Program& p) {
  ArenaScope scope(*p.arena);
  std::vector<int64_t> bytes(static_cast<size_t>(p.nbuffers), 0);
  for (UOp u : p.linear) {
    if (!u.is(Ops::PARAM) || u.arg<ParamArg>().addrspace == AddrSpace::kAlu) continue;
    const int64_t slot = u.arg<ParamArg>().slot;
    r.check(slot >= 0 && slot < p.nbuffers, "an instruction that uses memory it is not given");
    bytes[static_cast<size_t>(slot)] =
        std::max(bytes[static_cast<size_t>(slot)], shape_of(u).numel() * u.dtype().itemsize());
  }
  return bytes;
}

CompiledKernelRef read_program(ByteReader& r) {
  const std::string name = r.text();
  Device* d = nullptr;
  try {
    d = &Device::get(name);
  } catch (const Error& e) { throw DeviceError(r.name() + ": got kernels for a device that is not here: " + e.what()); }
  // Cores, caches and the choice of compiler made the code what it is, but any processor with its instructions runs it.
  Target made_for;
  made_for.arch = r.text();
  made_for.features.resize(r.size(8));
  for (std::string& f : made_for.features) f = r.text();
  const Target& here = d->kind() == "CPU" ? host_processor() : d->target();
  const std::string missing = missing_feature(made_for, here);
  TG_CHECK(DeviceError, missing.empty(), r.name(), ": got machine code that uses ", missing, ", which ", d->name(),
           " (", here.arch, here.cpu.empty() ? "" : "," + here.cpu,
           ") has not: capture and save the function on this machine, or there with DEV=CPU:LLVM:", here.arch);
  auto p = std::make_shared<Program>();
  p->name = r.text();
  p->nbuffers = static_cast<int>(r.size());
  for (int i = 0; i < p->nbuffers; i++) {
    const auto flags = r.below<uint8_t>(4, "an unknown access");
    p->reads.push_back(flags & 1);
    p->writes.push_back(flags & 2);
  }
  p->vars.resize(r.size(8));
  for (std::string& v : p->vars) v = r.text();
  p->estimates = r.value<Estimates>();
  r.check(r.flag() == d->compiles(), "code of another kind than the device takes");
  p->arena = std::make_shared<Arena>();
  ArenaScope scope(*p->arena);
  UOps roots = read_graph(r);
  r.check(roots.size() >= 7, "a kernel without its sizes");
  for (size_t i = 0; i < 7; i++) {
    if (!roots[i]) continue;
    for (UOp u : roots[i].toposort())
      r.check(u.in(groups::kAlu | Ops::CONST | Ops::PARAM) && u.dtype().is_int() &&
                  (!u.is_const() || u.arg_kind() == ArgKind::kInt),
              "a size that is no integer expression");
    (i == 0 ? p->thread_extent : i < 4 ? p->global_size[i - 1] : p->local_size[i - 4]) = roots[i];
  }
  p->linear.assign(roots.begin() + 7, roots.end());
  for (UOp u : p->linear) r.check(bool(u), "an instruction that is nothing");
  const std::string code = r.text();
  p->binary.assign(code.begin(), code.end());
  auto k = std::make_shared<CompiledKernel>();
  try {
    if (d->compiles()) {
      k->executable = d->load(p->binary, p->name);
    } else {
      verify_program(p->linear, "load_jit");
      k->executable = d->load(std::shared_ptr<const Program>(p));
    }
  } catch (const InternalError& e) { throw FormatError(r.name() + ": got a kernel that is none: " + e.what()); }
  k->program = std::move(p);
  return k;
}
}  // namespace

void Replay::write(ByteWriter& w) const {
  std::vector<CompiledKernelRef> kernels;
  std::vector<std::string> devices;
  std::unordered_map<const CompiledKernel*, int32_t> number;
  std::vector<std::string> device_of(buffers_.size());
  w.size(buffers_.size());
  for (size_t b = 0; b < buffers_.size(); b++) {
    const auto planned = std::find_if(planned_.begin(), planned_.end(), [&](auto& p) { return p.first == b; });
    const auto external = std::find(external_.begin(), external_.end(), buffers_[b]);
    if (planned != planned_.end()) {
      const ScheduleBuffer& info = planned->second;
      w.value<uint8_t>(kPlanned);
      w.text(info.device);
      w.text(info.dtype.name());
      w.value(info.size);
      w.value(info.offset);
    } else if (std::find(input_number_.begin(), input_number_.end(), static_cast<int32_t>(b)) != input_number_.end() ||
               std::find(output_number_.begin(), output_number_.end(), static_cast<int32_t>(b)) !=
                   output_number_.end()) {
      w.value<uint8_t>(kGiven);
    } else if (external != external_.end()) {
      w.value<uint8_t>(kExternal);
      w.value(static_cast<uint32_t>(external - external_.begin()));
    } else {
      const Buffer& s = *buffers_[b];
      w.value<uint8_t>(kScratch);
      w.text(s.device_name());
      w.text(s.dtype().name());
      w.value(s.size());
    }
  }
  w.size(arenas_.size());
  for (auto& [device, arena] : arenas_) {
    w.text(device);
    w.value(arena->nbytes());
  }
  for (const Launch& l : launches_)
    if (l.kernel && number.try_emplace(l.kernel.get(), static_cast<int32_t>(kernels.size())).second) {
      kernels.push_back(l.kernel);
      devices.push_back(l.device);
    }
  w.size(kernels.size());
  for (size_t k = 0; k < kernels.size(); k++) write_program(w, *kernels[k]->program, devices[k]);
  w.size(launches_.size());
  for (const Launch& l : launches_) {
    w.value<int32_t>(l.kernel ? number.at(l.kernel.get()) : -1);
    w.size(l.buffers.size());
    for (uint32_t b : l.buffers) w.value(b);
    w.size(l.nvars);
    for (uint32_t v = 0; v < l.nvars; v++) w.value(vars_[l.vars + v]);
    w.text(l.call.metadata);
    w.text(l.device);
  }
  w.size(var_patches_.size());
  for (auto [index, at] : var_patches_) {
    w.value<int32_t>(index);
    w.value(at);
  }
  for (const auto* numbers : {&input_number_, &output_number_}) {
    w.size(numbers->size());
    for (int32_t n : *numbers) w.value(n);
  }
  write_flags(w, input_read_);
  write_flags(w, input_written_);
  write_flags(w, external_written_);
}

std::unique_ptr<Replay> Replay::read(ByteReader& r, std::vector<BufferRef> external, std::span<const BufferRef> inputs,
                                     std::span<const BufferRef> outputs, size_t nvars) {
  std::unique_ptr<Replay> out(new Replay);
  Replay& p = *out;
  p.external_ = std::move(external);
  const size_t n = r.size();
  p.buffers_.resize(n);
  p.positions_.resize(n);
  std::vector<int64_t> bytes(n, -1);
  std::vector<bool> given(n, false);
  auto info = [&] {
    ScheduleBuffer b;
    b.device = r.text();
    b.dtype = dtypes::from_name(r.text());
    b.size = r.value<int64_t>();
    r.check(!b.dtype.is_weak() && !b.dtype.is_void() && b.size >= 0 && b.size < kMost / b.dtype.itemsize(),
            "memory of no size");
    return b;
  };
  for (size_t b = 0; b < n; b++) switch (r.below<uint8_t>(4, "an unknown kind of memory")) {
      case kGiven: given[b] = true; break;
      case kExternal: {
        p.buffers_[b] = p.external_[r.below<uint32_t>(p.external_.size(), "memory that is not in the file")];
        bytes[b] = p.buffers_[b]->nbytes();
        break;
      }
      case kPlanned: {
        ScheduleBuffer s = info();
        s.offset = r.value<int64_t>();
        bytes[b] = s.size * s.dtype.itemsize();
        p.planned_.emplace_back(b, s);
        break;
      }
      default: {
        ScheduleBuffer s = info();
        p.buffers_[b] = Buffer::create(s.device, s.size, s.dtype);
        bytes[b] = s.size * s.dtype.itemsize();
      }
    }
  for (size_t a = r.size(16); a > 0; a--) {
    const std::string device = r.text();
    const auto size = r.value<int64_t>();
    r.check(size >= 0 && size < kMost && !p.arenas_.contains(device), "memory of no size");
    p.arenas_[device] = Buffer::create(device, size, dtypes::uint8);
  }
  for (auto& [b, s] : p.planned_) {
    if (s.offset < 0) continue;
    r.check(p.arenas_.contains(s.device) && s.offset % 16 == 0 && s.offset <= p.arenas_[s.device]->nbytes() - bytes[b],
            "memory outside of its device's");
  }
  std::vector<CompiledKernelRef> kernels(r.size(32));
  for (CompiledKernelRef& k : kernels) k = read_program(r);
  p.launches_.resize(r.size(28));
  std::vector<std::pair<size_t, size_t>> copies;
  for (size_t i = 0; i < p.launches_.size(); i++) {
    Launch& l = p.launches_[i];
    const auto k = r.value<int32_t>();
    r.check(k >= -1 && k < static_cast<int32_t>(kernels.size()), "a kernel that is not in the file");
    if (k >= 0) l.kernel = kernels[static_cast<size_t>(k)];
    l.call.kind = k >= 0 ? ScheduleCall::kKernel : ScheduleCall::kCopy;
    l.buffers.resize(r.size(4));
    r.check(l.buffers.size() == (k >= 0 ? static_cast<size_t>(l.kernel->program->nbuffers) : 2),
            "a launch with another number of buffers than its kernel takes");
    l.handles = static_cast<uint32_t>(p.handles_.size());
    for (uint32_t& b : l.buffers) {
      b = r.below<uint32_t>(n, "memory that is not in the file");
      p.positions_[b].push_back(static_cast<uint32_t>(p.handles_.size()));
      p.handles_.push_back(nullptr);
    }
    if (k < 0) copies.emplace_back(l.buffers[0], l.buffers[1]);
    l.nvars = static_cast<uint32_t>(r.size(8));
    l.vars = static_cast<uint32_t>(p.vars_.size());
    r.check(l.nvars == (k >= 0 ? l.kernel->program->vars.size() : 0),
            "a launch with another number of variables than its kernel takes");
    for (uint32_t v = 0; v < l.nvars; v++) p.vars_.push_back(r.value<int64_t>());
    l.call.metadata = r.text();
    l.device = r.text();
    if (!l.kernel) {
      p.ncopies_++;
      continue;
    }
    const Program& program = *l.kernel->program;
    try {
      l.extent = thread_extent_of(program, {p.vars_.data() + l.vars, l.nvars});
    } catch (const InternalError&) { r.check(false, "an extent that is no number"); }
    r.check(l.extent >= 0 && l.extent < int64_t{1} << 31, "an extent out of range");
    if (!program.thread_extent) l.host = l.kernel->executable->host_kernel();
    else if (!program.thread_extent.is_const()) p.symbolic_.push_back(static_cast<uint32_t>(i));
    p.ops_ += program.estimates.ops;
    p.mem_ += program.estimates.mem;
  }
  for (size_t v = r.size(8); v > 0; v--) {
    const auto index = static_cast<int>(r.below<int32_t>(nvars, "a variable that is not in the file"));
    p.var_patches_.emplace_back(index, r.below<uint32_t>(p.vars_.size(), "a variable that no kernel takes"));
  }
  auto numbers = [&](std::vector<int32_t>& list, std::span<const BufferRef> like) {
    r.check(r.size(4) == like.size(), "another number of inputs or results");
    for (const BufferRef& b : like) {
      list.push_back(r.below<int32_t>(n, "memory that is not in the file"));
      const auto at = static_cast<size_t>(list.back());
      r.check(given[at] && bytes[at] == -1, "two uses of one argument");
      bytes[at] = b->nbytes();
    }
  };
  numbers(p.input_number_, inputs);
  numbers(p.output_number_, outputs);
  r.check(std::find(bytes.begin(), bytes.end(), -1) == bytes.end(), "memory that nobody gives");
  for (auto [a, b] : copies) r.check(bytes[a] == bytes[b], "a copy between different sizes");
  for (const Launch& l : p.launches_) {
    if (!l.kernel || l.kernel->program->linear.empty()) continue;
    const std::vector<int64_t> needed = parameter_bytes(r, *l.kernel->program);
    for (size_t b = 0; b < needed.size(); b++)
      r.check(needed[b] <= bytes[l.buffers[b]], "memory that is smaller than its kernel takes");
  }
  p.input_read_ = read_flags(r, inputs.size(), "another number of inputs");
  p.input_written_ = read_flags(r, inputs.size(), "another number of inputs");
  p.external_written_ = read_flags(r, p.external_.size(), "another amount of memory");
  p.parallel_ = tg::parallel_launches(p.uses());
  return out;
}

}  // namespace tg
