/// \file Jitted functions on tensors of several devices: to capture and replay, each shard is an argument or a result
/// of its own.
#include <algorithm>

#include "tinygrad/base/env.h"
#include "tinygrad/tensor/effects.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit_state.h"
#include "tinygrad/tensor/lower_multi.h"
#include "tinygrad/tensor/ops.h"

namespace tg {
using namespace tensor_detail;

/// How the results are made of those that capture and replay know.
struct JitCore::Multi {
  struct Result {
    size_t count = 0;  ///< shards; 0: a tensor as it is
    int axis = -1;
    std::optional<bool> requires_grad{};
  };
  std::vector<Result> results;
  std::vector<size_t> owner;  ///< by flat result: which result
};

namespace {
bool any_multi(const Tensors& t) {
  GraphScope g;
  return std::any_of(t.begin(), t.end(), [](const Tensor& x) { return x.defined() && is_multi(x.uop()); });
}

JitInputs flat_inputs(const JitInputs& in, const std::string& function) {
  GraphScope g;
  JitInputs out{{}, {}, in.variables, in.constants};
  Tensors pending;
  for (const Tensor& t : in.tensors)
    if (t.defined() && is_multi(t.uop()) && !t.is_realized()) pending.push_back(t);
  if (!pending.empty()) realize(pending);
  for (size_t i = 0; i < in.tensors.size(); i++) {
    const Tensor& t = in.tensors[i];
    const std::string name = i < in.names.size() ? in.names[i] : str("tensor ", i);
    if (!t.defined() || !is_multi(t.uop())) {
      out.tensors.push_back(t);
      out.names.push_back(name);
      continue;
    }
    const Shards s = lower_multi(current_view(t.uop()));
    const std::vector<std::string> devices = t.devices();
    for (size_t k = 0; k < s.parts.size(); k++) {
      TG_CHECK(JitError, !device_of(s.parts[k]).empty(), "[jit] got a constant as ", name, " of ", function,
               ", expected a tensor with storage (JIT inputs must be real buffers): use .clone(), or keep it inside "
               "the function");
      out.tensors.push_back(Tensor::from_uop(s.parts[k]));
      out.names.push_back(str(name, " on ", devices[k]));
    }
    out.constants.emplace_back(kShardingOf + name, str("axis ", s.axis, " over ", t.device()));
  }
  forget_lowered();
  return out;
}
}  // namespace

bool JitCore::sharded() const {
  return (multi_ && std::any_of(multi_->results.begin(), multi_->results.end(),
                                [](const Multi::Result& r) { return r.count > 0; })) ||
         std::any_of(input_names().begin(), input_names().end(),
                     [](const std::string& n) { return n.find(" on ") != std::string::npos; });
}
void JitCore::set_whole_results(size_t n) {
  auto m = std::make_shared<Multi>();
  for (size_t i = 0; i < n; i++) {
    m->results.emplace_back();
    m->owner.push_back(i);
  }
  multi_ = std::move(m);
}

Tensors JitCore::call(const JitInputs& in, const Body& body, size_t* served) {
  std::lock_guard lock(mutex_);
  TG_CHECK(JitError, !capturing() || !loaded_, "[jit] got a call of ", name_,
           ", which was loaded, inside a function that is being captured");
  if (capturing()) return body.run();  // part of what is being captured
  if (env::JIT && !choose(in)) return run_uncaptured(in, body);
  const bool replays = static_cast<bool>(replay_);
  Tensors out = any_multi(in.tensors) || (replays && sharded()) || (!replays && !loaded_) ? call_whole(in, body)
                                                                                          : call_single(in, body);
  if (served) *served = capture_;
  if (!replays && replay_) merge_equal();
  return out;
}

/// A call whose arguments or results may lie on several devices: capture and replay see the shards.
Tensors JitCore::call_whole(const JitInputs& in, const Body& body) {
  const bool multi = any_multi(in.tensors);
  auto made = std::make_shared<Multi>();
  Tensors whole;  // results of several devices, by number
  bool ran = false;
  const auto run = [&] {
    Tensors results = body.run(), flat;
    GraphScope g;
    ran = true;
    *made = Multi();
    whole.assign(results.size(), Tensor());
    for (size_t i = 0; i < results.size(); i++) {
      Multi::Result r;
      UOp u = results[i].defined() ? ops::strong(current_view(results[i].uop())) : UOp();
      Shards s;
      if (u && is_multi(u)) s = lower_multi(u);
      if (!s.parts.empty() && !device_of(s.parts[0]).empty()) {
        r = {s.parts.size(), s.axis, results[i].requires_grad()};
        whole[i] = std::move(results[i]);
        for (UOp p : s.parts) flat.push_back(Tensor::from_uop(p));
        // Its shards stand for it from here on; what only we would see of it must not keep them from being storage of
        // their own.
        if (handles(whole[i]) <= 2 && !(body.shared && body.shared(i)))
          set_uop(*whole[i].impl(), UOp::constant(0, u.dtype()));
      } else flat.push_back(std::move(results[i]));
      made->owner.resize(flat.size(), i);
      made->results.push_back(r);
    }
    return flat;
  };
  const auto shared = [&](size_t i) {
    const size_t r = made->owner[i];
    return (whole[r].defined() && handles(whole[r]) > 2) || (body.shared && body.shared(r));
  };
  Tensors flat = call_single(multi ? flat_inputs(in, name_) : in, {run, shared});
  if (ran) multi_ = made;
  const Multi& m = *multi_;
  if (flat.size() == m.results.size()) return flat;  // two devices or more: a shard more for each
  GraphScope g;
  Tensors out;
  size_t at = 0;
  for (size_t i = 0; i < m.results.size(); i++) {
    const Multi::Result& r = m.results[i];
    if (!r.count) {
      out.push_back(flat[at++]);
      continue;
    }
    UOps parts;
    for (size_t k = 0; k < r.count; k++) parts.push_back(current_view(flat[at++].uop()));
    UOp u = join_shards(parts, r.axis);
    if (ran) {
      set_uop(*whole[i].impl(), u);
      out.push_back(whole[i]);
    } else {
      out.push_back(Tensor::from_uop(u));
      out.back().impl()->requires_grad = r.requires_grad;
    }
  }
  return out;
}

}  // namespace tg
