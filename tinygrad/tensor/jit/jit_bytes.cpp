/// \file Captured functions as bytes, and back.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit_patterns.h"
#include "tinygrad/tensor/jit/jit_state.h"
#include "tinygrad/uop/serialize.h"
#include "tinygrad/uop/spec.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr int64_t kMaxBytes = int64_t{1} << 46;

void write_texts(ByteWriter& w, const std::vector<std::string>& v) {
  w.size(v.size());
  for (const std::string& s : v) w.text(s);
}
std::vector<std::string> read_texts(ByteReader& r) {
  std::vector<std::string> v(r.size(8));
  for (std::string& s : v) s = r.text();
  return v;
}
void write_kind(ByteWriter& w, const Buffer& b) {
  w.text(b.device_name());
  w.text(b.dtype().name());
  w.value(b.size());
}
/// Writes constants but those that are addresses of this process.
void write_constants(ByteWriter& w, std::vector<std::pair<std::string, std::string>> constants) {
  std::erase_if(constants, [](auto& c) { return c.second.starts_with("<") || c.second.starts_with("0x"); });
  w.size(constants.size());
  for (auto& [name, text] : constants) {
    w.text(name);
    w.text(text);
  }
}

/// Memory the function uses besides its arguments: allocations, and the parts of them it uses.
struct MemoryTable {
  std::vector<BufferRef> bases, parts;
  std::unordered_map<const Buffer*, uint32_t> number;  // of bases
  std::vector<uint32_t> base_of;
  uint32_t add(const BufferRef& b) {
    if (auto it = std::find(parts.begin(), parts.end(), b); it != parts.end())
      return static_cast<uint32_t>(it - parts.begin());
    auto [it, fresh] = number.try_emplace(&b->base(), static_cast<uint32_t>(bases.size()));
    if (fresh) bases.push_back(b->base().shared_from_this());
    parts.push_back(b);
    base_of.push_back(it->second);
    return static_cast<uint32_t>(parts.size()) - 1;
  }
  /// Writes the allocations; the contents of those that no tensor of a state dict (`named`) is are added to `contents`.
  void write_bases(ByteWriter& w, const std::vector<std::pair<std::string, BufferRef>>& named,
                   std::vector<StoredMemory>& contents, const std::string& function) const {
    w.size(bases.size());
    for (const BufferRef& b : bases) {
      TG_CHECK(DeviceError, Device::get(b->device_name()).computes(), "[save] got memory of ", b->device_name(),
               " used by ", function,
               ", expected memory of a device that computes: call .to() or .clone() before the capture");
      auto it = std::find_if(named.begin(), named.end(), [&](auto& n) { return n.second == b; });
      write_kind(w, *b);
      w.text(it == named.end() ? "" : it->first);
      if (it != named.end()) continue;
      b->ensure_allocated();
      contents.push_back({b, b->nbytes()});
    }
  }
  void write_parts(ByteWriter& w) const {
    w.size(parts.size());
    for (size_t i = 0; i < parts.size(); i++) {
      w.value(base_of[i]);
      w.text(parts[i]->dtype().name());
      w.value(parts[i]->size());
      w.value(parts[i]->offset());
    }
  }
};

/// Realizes the tensors of a state dict and returns the memory of each.
std::vector<std::pair<std::string, BufferRef>> memory_by_name(
    const std::vector<std::pair<std::string, Tensor>>& state) {
  std::vector<std::pair<std::string, BufferRef>> out;
  for (const auto& [name, t] : state) {
    realize({t});
    GraphScope g;
    UOp b = buffer_below(current_view(t.uop()));
    if (b) out.emplace_back(name, buffer_table::get(b));
  }
  return out;
}

/// The storage of a pattern: its only PARAM with memory; empty for a constant.
UOp storage_of(UOp pattern) {
  for (UOp u : pattern.toposort())
    if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal) return u;
  return {};
}
int64_t elements_of(UOp param) { return dims_of(param.src(0)).numel(); }
}  // namespace

void JitCore::write(ByteWriter& w, std::vector<StoredMemory>& memory,
                    const std::vector<std::pair<std::string, Tensor>>& state) const {
  TG_CHECK(JitError, replay_, "[save] got ", name_,
           " before it was captured, expected a function that has been called twice");
  TG_CHECK(JitError, !sharded(), "[save] got ", name_,
           ", which was captured with sharded tensors, expected whole ones");
  TG_CHECK(JitError, state.empty() || !replay_->pruned(), "[save] got ", name_,
           ", whose pruned kernels were computed from this process's tensors, with ",
           "tensors to leave out, expected none: save it whole, or capture it without prune");
  const State& s = *state_;
  TG_CHECK(JitError, s.decisions.empty(), "[save] got ", name_, ", which decides by the contents of its arguments, ",
           "expected one that computes the same for all of them");
  const std::vector<std::pair<std::string, BufferRef>> named = memory_by_name(state);
  GraphScope g;
  MemoryTable table;
  for (const BufferRef& b : replay_->external()) table.add(b);
  UOps roots;
  for (const UOpRef& p : s.patterns) roots.push_back(p);
  for (const UOpRef& n : s.fresh_nodes) roots.push_back(n);
  ByteWriter outputs;
  outputs.size(s.results);
  for (const Output& o : std::span(s.outputs).first(s.results)) {
    UOp view = o.pattern;
    uint32_t index = static_cast<uint32_t>(o.index);
    if (o.kind == Output::kFixed) {
      UOp u = current_view(o.fixed.uop()), b = buffer_below(u);
      view = b ? view_pattern(u, nullptr) : u;
      if (b) index = table.add(buffer_table::get(b));
    }
    outputs.value<uint8_t>(o.kind);
    outputs.value(index);
    outputs.value<uint8_t>(o.requires_grad ? 1 + *o.requires_grad : 0);
    roots.push_back(view);
  }
  w.text(name_);
  write_texts(w, s.names);
  write_texts(w, s.arguments);
  write_texts(w, s.variables);
  write_constants(w, s.constants);
  w.size(s.draws.size());
  for (const rng::Draw& d : s.draws) {
    w.text(d.device);
    w.value(d.words);
  }
  w.size(s.patterns.size());
  w.size(s.fresh.size());
  for (const BufferRef& b : s.fresh) write_kind(w, *b);
  write_graph(w, roots);
  w.bytes.insert(w.bytes.end(), outputs.bytes.begin(), outputs.bytes.end());
  table.write_bases(w, named, memory, name_);
  table.write_parts(w);
  w.size(replay_->external().size());
  replay_->write(w);
}

/// Reads what write() has written, section by section.
class JitCore::Reader {
 public:
  Reader(ByteReader& r, const std::vector<std::pair<std::string, Tensor>>& given, std::vector<StoredMemory>& memory)
      : r_(r), given_(given), memory_(memory) {}

  std::shared_ptr<JitCore> run() {
    core_ = std::make_shared<JitCore>(r_.text());
    read_arguments();
    GraphScope g;
    read_views();
    read_bases();
    read_parts();
    const auto nexternal = static_cast<size_t>(r_.value<uint64_t>());
    r_.check(nexternal <= parts_.size(), "memory that is not in the file");
    attach_fixed_results();
    core_->replay_ = Replay::read(r_, {parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(nexternal)},
                                  inputs_, s_.fresh, s_.variables.size() + s_.draws.size());
    for (size_t i = 0; i < core_->replay_->external().size(); i++)
      s_.tracked.push_back({core_->replay_->external()[i], core_->replay_->writes_external(i)});
    flush_pending(s_.tracked);
    core_->set_whole_results(s_.outputs.size());
    s_.results = s_.outputs.size();
    core_->state_ = std::move(state_);
    core_->count_ = 2;
    core_->loaded_ = true;
    return core_;
  }

 private:
  /// Reads what write_kind has written, as memory of its own.
  BufferRef read_kind() {
    const std::string device = r_.text();
    const DType d = dtypes::from_name(r_.text());
    const auto size = r_.value<int64_t>();
    check_size(d, size);
    return Buffer::create(device, size, d);
  }
  bool is_size(DType d, int64_t size) const {
    return !d.is_weak() && !d.is_void() && size >= 0 && size < kMaxBytes / d.itemsize();
  }
  void check_size(DType d, int64_t size) const { r_.check(is_size(d, size), "memory of no size"); }

  void read_arguments() {
    s_.names = read_texts(r_);
    s_.arguments = read_texts(r_);
    s_.variables = read_texts(r_);
    s_.constants.resize(r_.size(16));
    for (auto& [name, text] : s_.constants) {
      name = r_.text();
      text = r_.text();
    }
    s_.draws.resize(r_.size(16));
    for (rng::Draw& d : s_.draws) {
      d.device = r_.text();
      d.words = r_.value<int64_t>();
      r_.check(d.words > 0 && d.words < int64_t{1} << 32, "a number of random words out of range");
    }
    ninputs_ = static_cast<size_t>(r_.value<uint64_t>());
    const size_t nfresh = r_.size(24);
    r_.check(ninputs_ == s_.names.size(), "another number of arguments than names");
    for (size_t i = 0; i < nfresh; i++) s_.fresh.push_back(read_kind());
  }

  /// Reads the patterns of inputs, the shapes of results and the patterns of results.
  void read_views() {
    const UOps roots = read_graph(r_);
    const size_t nfresh = s_.fresh.size();
    s_.outputs.resize(r_.size(6));
    r_.check(roots.size() == ninputs_ + nfresh + s_.outputs.size(), "another number of views than tensors");
    for (UOp u : roots) check_view(u);
    auto root = roots.begin();
    for (size_t i = 0; i < ninputs_; i++, root++) {
      UOp p = storage_of(*root);
      r_.check(bool(p), "an argument without storage");
      s_.patterns.emplace_back(*root);
      inputs_.push_back(Buffer::create(p.arg<ParamArg>().device, elements_of(p), p.dtype()));
    }
    for (size_t i = 0; i < nfresh; i++, root++) {
      r_.check(root->is(Ops::STACK) && dims_of(*root).numel() == s_.fresh[i]->size(),
               "a result whose shape does not fit its memory");
      s_.fresh_nodes.emplace_back(*root);
    }
    for (Output& o : s_.outputs) read_output(o, *root++);
  }
  void check_view(UOp u) const {
    r_.check(bool(u), "a view of nothing");
    for (UOp n : u.toposort())
      r_.check(n.in(kViewOps | groups::kElementwise | Ops::PARAM | Ops::CONST | Ops::STACK), "a view that computes");
    if (!u.is(Ops::STACK)) verify(u, spec_tensor(), "load_jit");
  }
  void read_output(Output& o, UOp pattern) {
    o.kind = static_cast<Output::Kind>(r_.below<uint8_t>(3, "an unknown kind of result"));
    o.index = r_.value<uint32_t>();
    if (const auto grad = r_.below<uint8_t>(3, "a flag out of range")) o.requires_grad = grad == 2;
    o.pattern = pattern;
    if (o.kind == Output::kFixed) return;
    UOp p = storage_of(pattern);
    const std::vector<BufferRef>& there = o.kind == Output::kFresh ? s_.fresh : inputs_;
    r_.check(o.index < there.size() && p, "a result that is not there");
    r_.check(elements_of(p) == there[o.index]->size() && p.dtype() == there[o.index]->dtype(),
             "a result of another size than its memory");
  }

  /// Reads allocations: memory the caller fills, or that of a tensor it gives by name.
  void read_bases() {
    bases_.resize(r_.size(32));
    for (BufferRef& b : bases_) {
      b = read_kind();
      const std::string name = r_.text();
      if (name.empty()) memory_.push_back({b, b->nbytes()});
      else b = given_memory(name, *b);
    }
  }
  BufferRef given_memory(const std::string& name, const Buffer& want) {
    auto it = std::find_if(given_.begin(), given_.end(), [&](auto& n) { return n.first == name; });
    TG_CHECK(ValueError, it != given_.end(), "[load_jit] got no tensor ", name,
             " in the state, expected it as when the function was saved");
    Tensor t = it->second.to(want.device_name()).contiguous().realize();
    UOp node = buffer_below(current_view(t.uop()));
    TG_CHECK(ValueError, node && node.dtype() == want.dtype() && buffer_table::get(node)->size() == want.size(),
             "[load_jit] got tensor ", name, " as ", t.dtype(), " ", t.shape(), ", expected ", want.size(),
             " elements of ", want.dtype());
    core_->held_.push_back(t);
    return buffer_table::get(node);
  }
  void read_parts() {
    parts_.resize(r_.size(28));
    for (BufferRef& p : parts_) {
      const BufferRef& base = bases_[r_.below<uint32_t>(bases_.size(), "memory that is not in the file")];
      const DType d = dtypes::from_name(r_.text());
      const auto size = r_.value<int64_t>(), offset = r_.value<int64_t>();
      r_.check(is_size(d, size) && offset >= 0 && offset % d.itemsize() == 0 &&
                   offset <= base->nbytes() - size * d.itemsize(),
               "a part outside of its memory");
      p = offset == 0 && size == base->size() && d == base->dtype() ? base : base->view(size, d, offset);
    }
  }

  /// Makes the tensors of results that stay where they are.
  void attach_fixed_results() {
    std::unordered_map<size_t, UOp> node_of;  // one BUFFER for each piece of memory
    for (Output& o : s_.outputs) {
      if (o.kind != Output::kFixed) continue;
      UOp view = o.pattern;
      if (UOp p = storage_of(view)) {
        r_.check(o.index < parts_.size() && elements_of(p) == parts_[o.index]->size() &&
                     p.dtype() == parts_[o.index]->dtype(),
                 "a result of another size than its memory");
        UOp& node = node_of[o.index];
        if (!node) {
          node = new_buffer(dims_of(p.src(0)), p.dtype(), parts_[o.index]->device_name());
          buffer_table::attach(static_cast<uint64_t>(node.arg<ParamArg>().slot), parts_[o.index]);
        }
        r_.check(node.src(0) == p.src(0), "two shapes of one memory");
        view = view.substitute({{p, node}});
      }
      o.fixed = Tensor::from_uop(view);
      o.pattern = UOpRef();
    }
  }

  ByteReader& r_;
  const std::vector<std::pair<std::string, Tensor>>& given_;
  std::vector<StoredMemory>& memory_;
  std::shared_ptr<JitCore> core_;
  std::unique_ptr<JitCore::State> state_ = std::make_unique<JitCore::State>();
  JitCore::State& s_ = *state_;
  size_t ninputs_ = 0;
  std::vector<BufferRef> inputs_;  // like the arguments
  std::vector<BufferRef> bases_, parts_;
};

std::shared_ptr<JitCore> JitCore::read(ByteReader& r, const std::vector<std::pair<std::string, Tensor>>& given,
                                       std::vector<StoredMemory>& memory) {
  return Reader(r, given, memory).run();
}

const std::vector<std::string>& JitCore::input_names() const {
  static const std::vector<std::string> none;
  return state_ ? state_->names : none;
}

const std::vector<UOpRef>& JitCore::input_patterns() const {
  static const std::vector<UOpRef> none;
  return state_ ? state_->patterns : none;
}

}  // namespace tg
