/// \file Captured functions as bytes, and back.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit_state.h"
#include "tinygrad/uop/serialize.h"
#include "tinygrad/uop/spec.h"

namespace tg {
using namespace tensor_detail;

namespace {
constexpr int64_t kMost = int64_t{1} << 46;

void write_texts(ByteWriter& w, const std::vector<std::string>& v) {
  w.size(v.size());
  for (const std::string& s : v) w.text(s);
}
std::vector<std::string> read_texts(ByteReader& r) {
  std::vector<std::string> v(r.size(8));
  for (std::string& s : v) s = r.text();
  return v;
}

/// Memory the function uses besides its arguments: by base, and the parts of it.
struct Storage {
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
};

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
  std::vector<std::pair<std::string, BufferRef>> named;
  for (const auto& [name, t] : state) {
    realize({t});
    GraphScope g;
    UOp b = buffer_below(current_view(t.uop()));
    if (b) named.emplace_back(name, memory_of_node(b));
  }
  GraphScope g;
  Storage storage;
  for (const BufferRef& b : replay_->external()) storage.add(b);
  UOps roots;
  ByteWriter rest;
  for (const UOpRef& p : s.patterns) roots.push_back(p);
  for (const UOpRef& n : s.fresh_nodes) roots.push_back(n);
  rest.size(s.results);
  for (const Output& o : std::span(s.outputs).first(s.results)) {
    UOp view = o.pattern;
    uint32_t index = static_cast<uint32_t>(o.index);
    if (o.kind == Output::kFixed) {
      UOp u = current_view(o.fixed.uop()), b = buffer_below(u);
      view = b ? view_pattern(u, nullptr) : u;
      if (b) index = storage.add(memory_of_node(b));
    }
    rest.value<uint8_t>(o.kind);
    rest.value(index);
    rest.value<uint8_t>(o.requires_grad ? 1 + *o.requires_grad : 0);
    roots.push_back(view);
  }
  w.text(name_);
  write_texts(w, s.names);
  write_texts(w, s.arguments);
  write_texts(w, s.variables);
  std::vector<std::pair<std::string, std::string>> constants = s.constants;
  std::erase_if(constants, [](auto& c) {
    return c.second.starts_with("<") || c.second.starts_with("0x");
  });  // addresses of this process
  w.size(constants.size());
  for (auto& [name, text] : constants) {
    w.text(name);
    w.text(text);
  }
  w.size(s.draws.size());
  for (const rng::Draw& d : s.draws) {
    w.text(d.device);
    w.value(d.words);
  }
  w.size(s.patterns.size());
  w.size(s.fresh.size());
  for (const BufferRef& b : s.fresh) {
    w.text(b->device_name());
    w.text(b->dtype().name());
    w.value(b->size());
  }
  write_graph(w, roots);
  w.bytes.insert(w.bytes.end(), rest.bytes.begin(), rest.bytes.end());
  w.size(storage.bases.size());
  for (const BufferRef& b : storage.bases) {
    TG_CHECK(DeviceError, Device::get(b->device_name()).computes(), "[save] got memory of ", b->device_name(),
             " used by ", name_,
             ", expected memory of a device that computes: call .to() or .clone() before the capture");
    auto it = std::find_if(named.begin(), named.end(), [&](auto& n) { return n.second == b; });
    w.text(b->device_name());
    w.text(b->dtype().name());
    w.value(b->size());
    w.text(it == named.end() ? "" : it->first);
    if (it == named.end()) {
      b->ensure_allocated();
      memory.push_back({b, b->nbytes()});
    }
  }
  w.size(storage.parts.size());
  for (size_t i = 0; i < storage.parts.size(); i++) {
    w.value(storage.base_of[i]);
    w.text(storage.parts[i]->dtype().name());
    w.value(storage.parts[i]->size());
    w.value(storage.parts[i]->offset());
  }
  w.size(replay_->external().size());
  replay_->write(w);
}

std::shared_ptr<JitCore> JitCore::read(ByteReader& r, const std::vector<std::pair<std::string, Tensor>>& given,
                                       std::vector<StoredMemory>& memory) {
  auto core = std::make_shared<JitCore>(r.text());
  auto state = std::make_unique<State>();
  State& s = *state;
  s.names = read_texts(r);
  s.arguments = read_texts(r);
  s.variables = read_texts(r);
  s.constants.resize(r.size(16));
  for (auto& [name, text] : s.constants) {
    name = r.text();
    text = r.text();
  }
  s.draws.resize(r.size(16));
  for (rng::Draw& d : s.draws) {
    d.device = r.text();
    d.words = r.value<int64_t>();
    r.check(d.words > 0 && d.words < int64_t{1} << 32, "a number of random words out of range");
  }
  const auto ninputs = static_cast<size_t>(r.value<uint64_t>()), nfresh = r.size(24);
  r.check(ninputs == s.names.size(), "another number of arguments than names");
  auto described = [&] {
    const std::string device = r.text();
    const DType d = dtypes::from_name(r.text());
    const auto size = r.value<int64_t>();
    r.check(!d.is_weak() && !d.is_void() && size >= 0 && size < kMost / d.itemsize(), "memory of no size");
    return Buffer::create(device, size, d);
  };
  for (size_t i = 0; i < nfresh; i++) s.fresh.push_back(described());
  std::vector<BufferRef> inputs;
  std::vector<uint32_t> fixed;
  UOps roots;
  GraphScope g;
  roots = read_graph(r);
  s.outputs.resize(r.size(6));
  r.check(roots.size() == ninputs + nfresh + s.outputs.size(), "another number of views than tensors");
  for (UOp u : roots) {
    r.check(bool(u), "a view of nothing");
    for (UOp n : u.toposort())
      r.check(n.in(kViewOps | groups::kElementwise | Ops::PARAM | Ops::CONST | Ops::STACK), "a view that computes");
    if (!u.is(Ops::STACK)) verify(u, spec_tensor(), "load_jit");
  }
  auto root = roots.begin();
  for (size_t i = 0; i < ninputs; i++, root++) {
    UOp p = storage_of(*root);
    r.check(bool(p), "an argument without storage");
    s.patterns.emplace_back(*root);
    inputs.push_back(Buffer::create(p.arg<ParamArg>().device, elements_of(p), p.dtype()));
  }
  for (size_t i = 0; i < nfresh; i++, root++) {
    r.check(root->is(Ops::STACK) && dims_of(*root).numel() == s.fresh[i]->size(),
            "a result whose shape does not fit its memory");
    s.fresh_nodes.emplace_back(*root);
  }
  for (Output& o : s.outputs) {
    o.kind = static_cast<Output::Kind>(r.below<uint8_t>(3, "an unknown kind of result"));
    o.index = r.value<uint32_t>();
    if (const auto grad = r.below<uint8_t>(3, "a flag out of range")) o.requires_grad = grad == 2;
    o.pattern = *root++;
    UOp p = storage_of(o.pattern);
    if (o.kind == Output::kFixed) continue;
    r.check(o.index < (o.kind == Output::kFresh ? nfresh : ninputs) && p, "a result that is not there");
    const Buffer& b = *(o.kind == Output::kFresh ? s.fresh : inputs)[o.index];
    r.check(elements_of(p) == b.size() && p.dtype() == b.dtype(), "a result of another size than its memory");
  }
  std::vector<BufferRef> bases(r.size(32)), parts;
  for (BufferRef& b : bases) {
    b = described();
    const std::string name = r.text();
    if (name.empty()) {
      memory.push_back({b, b->nbytes()});
      continue;
    }
    auto it = std::find_if(given.begin(), given.end(), [&](auto& n) { return n.first == name; });
    TG_CHECK(ValueError, it != given.end(), "[load_jit] got no tensor ", name,
             " in the state, expected it as when the function was saved");
    Tensor t = it->second.to(b->device_name()).contiguous().realize();
    UOp node = buffer_below(current_view(t.uop()));
    TG_CHECK(ValueError, node && node.dtype() == b->dtype() && memory_of_node(node)->size() == b->size(),
             "[load_jit] got tensor ", name, " as ", t.dtype(), " ", t.shape(), ", expected ", b->size(),
             " elements of ", b->dtype());
    b = memory_of_node(node);
    core->held_.push_back(t);
  }
  parts.resize(r.size(28));
  for (BufferRef& p : parts) {
    const BufferRef& base = bases[r.below<uint32_t>(bases.size(), "memory that is not in the file")];
    const DType d = dtypes::from_name(r.text());
    const auto size = r.value<int64_t>(), offset = r.value<int64_t>();
    r.check(!d.is_weak() && !d.is_void() && size >= 0 && size < kMost / d.itemsize() && offset >= 0 &&
                offset % d.itemsize() == 0 && offset <= base->nbytes() - size * d.itemsize(),
            "a part outside of its memory");
    p = offset == 0 && size == base->size() && d == base->dtype() ? base : base->view(size, d, offset);
  }
  const auto nexternal = static_cast<size_t>(r.value<uint64_t>());
  r.check(nexternal <= parts.size(), "memory that is not in the file");
  std::unordered_map<size_t, UOp> node_of;  // one BUFFER for each piece of memory
  for (Output& o : s.outputs) {
    if (o.kind != Output::kFixed) continue;
    UOp view = o.pattern, p = storage_of(view);
    if (p) {
      r.check(
          o.index < parts.size() && elements_of(p) == parts[o.index]->size() && p.dtype() == parts[o.index]->dtype(),
          "a result of another size than its memory");
      UOp& node = node_of[o.index];
      if (!node) {
        node = new_buffer(dims_of(p.src(0)), p.dtype(), parts[o.index]->device_name());
        buffer_table::attach(static_cast<uint64_t>(node.arg<ParamArg>().slot), parts[o.index]);
      }
      r.check(node.src(0) == p.src(0), "two shapes of one memory");
      view = view.substitute({{p, node}});
    }
    o.fixed = Tensor::from_uop(view);
    o.pattern = UOpRef();
  }
  core->replay_ = Replay::read(r, {parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(nexternal)}, inputs,
                               s.fresh, s.variables.size() + s.draws.size());
  for (size_t i = 0; i < core->replay_->external().size(); i++)
    s.tracked.push_back({core->replay_->external()[i], core->replay_->writes_external(i)});
  flush_pending(s.tracked);
  core->set_whole_results(s.outputs.size());
  s.results = s.outputs.size();
  core->state_ = std::move(state);
  core->count_ = 2;
  core->loaded_ = true;
  return core;
}

const std::vector<std::string>& JitCore::input_names() const {
  static const std::vector<std::string> none;
  return state_ ? state_->names : none;
}

}  // namespace tg
