/// \file Replays as bytes: launches with their machine code (or instructions, on a device that executes those), and
/// where their memory lies.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/launch_batches.h"
#include "tinygrad/engine/program_store.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/uop/serialize.h"
#include "tinygrad/uop/spec.h"

namespace tg {
namespace {
enum Role : uint8_t { kGiven, kExternal, kPlanned, kScratch };
constexpr int64_t kMaxBytes = int64_t{1} << 46;  // of one piece of memory

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
  TG_CHECK(DeviceError, d.compiles() ? !p.binary.empty() : !p.insts.empty(), "[save] got kernel ", p.name,
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
  if (!d.compiles()) roots.insert(roots.end(), p.insts.begin(), p.insts.end());
  write_graph(w, roots);
  w.value(p.shared_bytes);
  write_images(w, p);
  w.text({reinterpret_cast<const char*>(p.binary.data()), d.compiles() ? p.binary.size() : 0});
}

/// Of a program in instructions: bytes each parameter is read or written as.
std::vector<int64_t> parameter_bytes(const ByteReader& r, const Program& p) {
  ArenaScope scope(*p.arena);
  std::vector<int64_t> bytes(static_cast<size_t>(p.nbuffers), 0);
  for (UOp u : p.insts) {
    if (!u.is(Ops::PARAM) || u.arg<ParamArg>().addrspace == AddrSpace::kAlu) continue;
    const int64_t slot = u.arg<ParamArg>().slot;
    r.check(slot >= 0 && slot < p.nbuffers, "an instruction that uses memory it is not given");
    int64_t size = u.dtype().itemsize();
    for (const SInt& n : shape_of(u))
      r.check(!n.symbolic() && n.value() >= 0 && !__builtin_mul_overflow(size, n.value(), &size),
              "a parameter of an impossible size");
    bytes[static_cast<size_t>(slot)] = std::max(bytes[static_cast<size_t>(slot)], size);
  }
  return bytes;
}

/// Reads a device and what the machine code takes of it. Cores, caches and the choice of compiler made the code what it
/// is, but any processor with its instructions runs it.
Device& read_device(ByteReader& r) {
  const std::string name = r.text();
  Device* d = nullptr;
  try {
    d = &Device::get(name);
  } catch (const Error& e) { throw DeviceError(r.name() + ": got kernels for a device that is not here: " + e.what()); }
  Target made_for;
  made_for.arch = r.text();
  made_for.features.resize(r.size(8));
  for (std::string& f : made_for.features) f = r.text();
  const Target& here = d->processor();
  const std::string missing = missing_feature(made_for, here);
  TG_CHECK(DeviceError, missing.empty(), r.name(), ": got machine code that uses ", missing, ", which ", d->name(),
           " (", here.arch, here.cpu.empty() ? "" : "," + here.cpu,
           ") has not: capture and save the function on this machine, or there with DEV=CPU:LLVM:", here.arch);
  return *d;
}

/// Reads the graphs of a program: its sizes, and its instructions on a device that executes those.
void read_graphs(ByteReader& r, Program& p) {
  p.arena = std::make_shared<Arena>();
  ArenaScope scope(*p.arena);
  UOps roots = read_graph(r);
  r.check(roots.size() >= 7, "a kernel without its sizes");
  for (size_t i = 0; i < 7; i++) {
    if (!roots[i]) continue;
    r.check(is_size_expression(roots[i]), "a size that is no integer expression");
    (i == 0 ? p.thread_extent : i < 4 ? p.global_size[i - 1] : p.local_size[i - 4]) = roots[i];
  }
  p.insts.assign(roots.begin() + 7, roots.end());
  for (UOp u : p.insts) r.check(bool(u), "an instruction that is nothing");
}

CompiledKernelRef read_program(ByteReader& r) {
  Device& d = read_device(r);
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
  r.check(r.flag() == d.compiles(), "code of another kind than the device takes");
  read_graphs(r, *p);
  p->shared_bytes = r.value<int64_t>();
  read_images(r, *p);
  const std::string code = r.text();
  p->binary.assign(code.begin(), code.end());
  auto k = std::make_shared<CompiledKernel>();
  try {
    if (d.compiles()) {
      k->executable = d.load(p->binary, p->name);
    } else {
      ArenaScope scope(*p->arena);
      verify_program(p->insts, "load_jit");
      k->executable = d.load(std::shared_ptr<const Program>(p));
    }
  } catch (const InternalError& e) { throw FormatError(r.name() + ": got a kernel that is none: " + e.what()); }
  k->program = std::move(p);
  return k;
}
}  // namespace

void Replay::write_buffers(ByteWriter& w) const {
  const auto is_given = [&](size_t b) {
    const auto number = static_cast<int32_t>(b);
    return std::ranges::count(input_number_, number) > 0 || std::ranges::count(output_number_, number) > 0;
  };
  w.size(list_.buffers.size());
  for (size_t b = 0; b < list_.buffers.size(); b++) {
    const BufferRef& buffer = list_.buffers[b];
    const auto planned = std::find_if(planned_.begin(), planned_.end(), [&](auto& p) { return p.first == b; });
    const auto external = std::find(external_.begin(), external_.end(), buffer);
    if (planned != planned_.end()) {
      const ScheduleBuffer& info = planned->second;
      w.value<uint8_t>(kPlanned);
      w.text(info.device);
      w.text(info.dtype.name());
      w.value(info.size);
      w.value(info.offset);
    } else if (is_given(b)) {
      w.value<uint8_t>(kGiven);
    } else if (external != external_.end()) {
      w.value<uint8_t>(kExternal);
      w.value(static_cast<uint32_t>(external - external_.begin()));
    } else {
      w.value<uint8_t>(kScratch);
      w.text(buffer->device_name());
      w.text(buffer->dtype().name());
      w.value(buffer->size());
    }
  }
  w.size(arenas_.size());
  for (auto& [device, arena] : arenas_) {
    w.text(device);
    w.value(arena->nbytes());
  }
}

void Replay::write_launches(ByteWriter& w) const {
  std::vector<const Launch*> first;  // by kernel
  std::unordered_map<const CompiledKernel*, int32_t> number;
  for (const Launch& l : list_.launches)
    if (l.kernel && number.try_emplace(l.kernel.get(), static_cast<int32_t>(first.size())).second) first.push_back(&l);
  w.size(first.size());
  for (const Launch* l : first) write_program(w, *l->kernel->program, l->device);
  w.size(list_.launches.size());
  for (const Launch& l : list_.launches) {
    TG_CHECK(JitError, !l.is_collective(), "[save_jit] got a function that exchanges values with other processes (",
             Arg(*l.call->collective), "), expected one of this process alone");
    w.value<int32_t>(l.kernel ? number.at(l.kernel.get()) : -1);
    w.size(l.nbuffers);
    for (uint32_t b : list_.numbers_of(l)) w.value(b);
    w.size(l.nvalues);
    for (uint32_t v = 0; v < l.nvalues; v++) w.value(list_.values[l.values + v]);
    w.text(l.call ? l.call->metadata : "");
    w.text(l.device);
  }
}

void Replay::write(ByteWriter& w) const {
  write_buffers(w);
  write_launches(w);
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

/// Reads what write() has written, section by section.
class Replay::Reader {
 public:
  Reader(ByteReader& r, Replay& p) : r_(r), p_(p), list_(p.list_) {}

  void run(std::span<const BufferRef> inputs, std::span<const BufferRef> outputs, size_t nvars) {
    read_buffers();
    read_arenas();
    kernels_.resize(r_.size(32));
    for (CompiledKernelRef& k : kernels_) k = read_program(r_);
    for (size_t i = r_.size(28); i > 0; i--) read_launch();
    for (size_t v = r_.size(8); v > 0; v--) {
      const auto index = static_cast<int>(r_.below<int32_t>(nvars, "a variable that is not in the file"));
      const auto at = r_.below<uint32_t>(list_.values.size(), "a variable that no kernel takes");
      p_.var_patches_.emplace_back(index, at);
    }
    read_numbers(p_.input_number_, inputs);
    read_numbers(p_.output_number_, outputs);
    check_sizes();
    p_.input_read_ = read_flags(r_, inputs.size(), "another number of inputs");
    p_.input_written_ = read_flags(r_, inputs.size(), "another number of inputs");
    p_.external_written_ = read_flags(r_, p_.external_.size(), "another amount of memory");
  }

 private:
  ScheduleBuffer read_kind() {
    ScheduleBuffer b;
    b.device = r_.text();
    b.dtype = dtypes::from_name(r_.text());
    b.size = r_.value<int64_t>();
    r_.check(!b.dtype.is_weak() && !b.dtype.is_void() && b.size >= 0 && b.size < kMaxBytes / b.dtype.itemsize(),
             "memory of no size");
    return b;
  }

  void read_buffers() {
    const size_t n = r_.size();
    list_.buffers.resize(n);
    bytes_.assign(n, -1);
    given_.assign(n, false);
    for (size_t b = 0; b < n; b++) {
      const auto role = r_.below<uint8_t>(4, "an unknown kind of memory");
      if (role == kGiven) {
        given_[b] = true;
      } else if (role == kExternal) {
        list_.buffers[b] = p_.external_[r_.below<uint32_t>(p_.external_.size(), "memory that is not in the file")];
        bytes_[b] = list_.buffers[b]->nbytes();
      } else {
        ScheduleBuffer s = read_kind();
        bytes_[b] = s.size * s.dtype.itemsize();
        if (role == kPlanned) s.offset = r_.value<int64_t>();
        else list_.buffers[b] = Buffer::create(s.device, s.size, s.dtype);
        if (role == kPlanned) p_.planned_.emplace_back(b, s);
      }
    }
  }

  void read_arenas() {
    for (size_t a = r_.size(16); a > 0; a--) {
      const std::string device = r_.text();
      const auto size = r_.value<int64_t>();
      r_.check(size >= 0 && size < kMaxBytes && !p_.arenas_.contains(device), "memory of no size");
      p_.arenas_[device] = Buffer::create(device, size, dtypes::uint8);
    }
    for (auto& [b, s] : p_.planned_) {
      if (s.offset < 0) continue;
      r_.check(
          p_.arenas_.contains(s.device) && s.offset % 16 == 0 && s.offset <= p_.arenas_[s.device]->nbytes() - bytes_[b],
          "memory outside of its device's");
    }
  }

  void read_launch() {
    const auto k = r_.value<int32_t>();
    r_.check(k >= -1 && k < static_cast<int32_t>(kernels_.size()), "a kernel that is not in the file");
    const CompiledKernelRef kernel = k >= 0 ? kernels_[static_cast<size_t>(k)] : CompiledKernelRef();
    std::vector<uint32_t> numbers(r_.size(4));
    r_.check(numbers.size() == (kernel ? static_cast<size_t>(kernel->program->nbuffers) : 2),
             "a launch with another number of buffers than its kernel takes");
    for (uint32_t& b : numbers) b = r_.below<uint32_t>(list_.buffers.size(), "memory that is not in the file");
    if (!kernel) copies_.emplace_back(numbers[0], numbers[1]);
    std::vector<int64_t> values(r_.size(8));
    r_.check(values.size() == (kernel ? kernel->program->vars.size() : 0),
             "a launch with another number of variables than its kernel takes");
    for (int64_t& v : values) v = r_.value<int64_t>();
    auto call = std::make_shared<ScheduleCall>();
    call->kind = kernel ? ScheduleCall::kKernel : ScheduleCall::kCopy;
    call->metadata = r_.text();
    try {
      list_.append(kernel, numbers, values, std::move(call), list_.launches);
    } catch (const InternalError&) { r_.check(false, "an extent that is no number"); }
    Launch& l = list_.launches.back();
    l.device = r_.text();
    const auto in_range = [](int64_t n) { return n >= 0 && n < int64_t{1} << 31; };
    r_.check(in_range(l.size.thread_extent) && std::ranges::all_of(l.size.global, in_range) &&
                 std::ranges::all_of(l.size.local, in_range),
             "an extent out of range");
    if (kernel && has_symbolic_size(*kernel->program))
      p_.symbolic_.push_back(static_cast<uint32_t>(list_.launches.size()) - 1);
  }

  void read_numbers(std::vector<int32_t>& list, std::span<const BufferRef> like) {
    r_.check(r_.size(4) == like.size(), "another number of inputs or results");
    for (const BufferRef& b : like) {
      list.push_back(r_.below<int32_t>(list_.buffers.size(), "memory that is not in the file"));
      const auto at = static_cast<size_t>(list.back());
      r_.check(given_[at] && bytes_[at] == -1, "two uses of one argument");
      bytes_[at] = b->nbytes();
    }
  }

  /// Checks that memory is as large as its launches take.
  void check_sizes() const {
    r_.check(!contains(bytes_, -1), "memory that nobody gives");
    for (auto [a, b] : copies_) r_.check(bytes_[a] == bytes_[b], "a copy between different sizes");
    for (const Launch& l : list_.launches) {
      if (!l.kernel || l.kernel->program->insts.empty()) continue;
      const std::vector<int64_t> needed = parameter_bytes(r_, *l.kernel->program);
      for (size_t k = 0; k < needed.size(); k++)
        r_.check(needed[k] <= bytes_[list_.numbers_of(l)[k]], "memory that is smaller than its kernel takes");
    }
  }

  ByteReader& r_;
  Replay& p_;
  LaunchList& list_;
  std::vector<int64_t> bytes_;  // by buffer; -1: not known yet
  std::vector<bool> given_;     // by buffer
  std::vector<CompiledKernelRef> kernels_;
  std::vector<std::pair<size_t, size_t>> copies_;
};

std::unique_ptr<Replay> Replay::read(ByteReader& r, std::vector<BufferRef> external, std::span<const BufferRef> inputs,
                                     std::span<const BufferRef> outputs, size_t nvars) {
  std::unique_ptr<Replay> out(new Replay);
  out->external_ = std::move(external);
  Reader(r, *out).run(inputs, outputs, nvars);
  out->finish_list();
  return out;
}

}  // namespace tg
