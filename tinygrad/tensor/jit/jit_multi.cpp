/// \file Jitted functions on tensors of several devices: to capture and replay, each shard is an argument or a result
/// of its own.
#include <algorithm>
#include <mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/jit/jit_state.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/state/effects.h"

namespace tg {
using namespace tensor_detail;

/// How the results are joined from those that capture and replay know.
struct JitCore::Multi {
  struct Result {
    size_t count = 0;  ///< shards; 0: a tensor as it is
    ShardAxes axes{};
    std::string devices{};
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
  JitInputs out{{}, {}, in.variables, in.constants, {}};
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
    out.wholes.push_back(t);
    const Shards s = lower_multi(current_view(t.uop()));
    const std::vector<std::string> devices = split_devices(t.device());
    for (size_t k = 0; k < s.parts.size(); k++) {
      TG_CHECK(JitError, !device_of(s.parts[k]).empty(), "[jit] got a constant as ", name, " of ", function,
               ", expected a tensor with storage (JIT inputs must be real buffers): use .clone(), or keep it inside "
               "the function");
      out.tensors.push_back(Tensor::from_uop(s.parts[k]));
      out.names.push_back(str(name, " on ", devices[k]));
    }
    out.constants.emplace_back(kShardingOf + name, str(text_of(s.axes), " over ", t.device()));
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
  // What a run of an outer function decides must be read in it: a replay would hide it.
  if (DecisionScope::innermost() && decides()) return run_uncaptured(in, body);
  if (captures_functions() && !choose(in)) return run_uncaptured(in, body);
  const bool replays = static_cast<bool>(replay_);
  Tensors out = any_multi(in.tensors) || (replays && sharded()) || (!replays && !loaded_) ? call_whole(in, body)
                                                                                          : call_single(in, body);
  if (served) *served = capture_;
  if (!replays && replay_) merge_equal();
  return out;
}

/// A call whose arguments or results may lie on several devices: capture and replay see the shards.
class JitCore::ShardedCall {
 public:
  ShardedCall(JitCore& core, const Body& body) : core_(core), body_(body) {}

  Tensors run(const JitInputs& in) {
    const Body flat_body{[this] { return run_body(); }, [this](size_t i) { return is_shared(i); }};
    Tensors flat = core_.call_single(any_multi(in.tensors) ? flat_inputs(in, core_.name_) : in, flat_body);
    if (ran_) core_.multi_ = made_;
    const auto& results = core_.multi_->results;
    const bool whole = std::all_of(results.begin(), results.end(), [](const Multi::Result& r) { return !r.count; });
    return whole ? flat : joined(flat);
  }

 private:
  /// Runs the function and returns its results with the shards of each.
  Tensors run_body() {
    Tensors results = body_.run(), flat;
    GraphScope g;
    ran_ = true;
    *made_ = Multi();
    whole_.assign(results.size(), Tensor());
    for (size_t i = 0; i < results.size(); i++) {
      UOp u = results[i].defined() ? ops::strong(current_view(results[i].uop())) : UOp();
      Shards s;
      if (u && is_multi(u)) s = lower_multi(u);
      if (s.parts.empty() || device_of(s.parts[0]).empty()) {
        flat.push_back(std::move(results[i]));
        made_->results.emplace_back();
      } else {
        made_->results.push_back({s.parts.size(), s.axes, device_of(u), results[i].requires_grad()});
        whole_[i] = std::move(results[i]);
        for (UOp p : s.parts) flat.push_back(Tensor::from_uop(p));
        // Its shards stand for it from here on; what only we would see of it must not keep them from being storage of
        // their own.
        if (handles(whole_[i]) <= 2 && !(body_.shared && body_.shared(i)))
          set_uop(*whole_[i].impl(), UOp::constant(0, u.dtype()));
      }
      made_->owner.resize(flat.size(), i);
    }
    return flat;
  }
  bool is_shared(size_t flat) const {
    const size_t r = made_->owner[flat];
    return (whole_[r].defined() && handles(whole_[r]) > 2) || (body_.shared && body_.shared(r));
  }

  /// Joins the shards of each result.
  Tensors joined(const Tensors& flat) const {
    GraphScope g;
    Tensors out;
    const std::vector<Multi::Result>& results = core_.multi_->results;
    size_t at = 0;
    for (size_t i = 0; i < results.size(); i++) {
      const Multi::Result& r = results[i];
      if (!r.count) {
        out.push_back(flat[at++]);
        continue;
      }
      UOps parts;
      for (size_t k = 0; k < r.count; k++) parts.push_back(current_view(flat[at++].uop()));
      UOp u = join_shards(parts, r.axes, r.devices);
      if (ran_) {
        set_uop(*whole_[i].impl(), u);
        out.push_back(whole_[i]);
      } else {
        out.push_back(Tensor::from_uop(u));
        out.back().impl()->requires_grad = r.requires_grad;
      }
    }
    return out;
  }

  JitCore& core_;
  const Body& body_;
  std::shared_ptr<Multi> made_ = std::make_shared<Multi>();
  Tensors whole_;  // results of several devices, by number
  bool ran_ = false;
};

Tensors JitCore::call_whole(const JitInputs& in, const Body& body) { return ShardedCall(*this, body).run(in); }

}  // namespace tg
