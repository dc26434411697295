/// \file Calls of a model, told by rank 0 to all.
#include "tinygrad/llm/world_leader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <type_traits>
#include <utility>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/io/gguf.h"
#include "tinygrad/llm/load_led.h"
#include "tinygrad/runtime/world/agree.h"
#include "tinygrad/runtime/world/world.h"

namespace tg::llm {
namespace {

enum class CallKind : int64_t {
  kIdle,
  kEnd,
  kLoad,
  kForget,
  kRewind,
  kCopy,
  kPrefill,
  kPrefillAll,
  kPrefillHidden,
  kDecode
};

/// A call, as it is sent; numbers of 32 bits follow it.
struct Call {
  CallKind kind = CallKind::kIdle;
  int64_t model = 0;
  std::array<int64_t, 4> arguments{};  ///< sequences and counts; of kLoad: the options
  int64_t numbers = 0;                 ///< how many follow
};
static_assert(std::is_trivially_copyable_v<Call>);

/// Gives all processes what rank 0 has.
void broadcast(void* data, size_t bytes) {
  Collective c{.what = CollectiveKind::kBroadcast, .dtype = dtypes::uint8, .elements = static_cast<int64_t>(bytes)};
  c.group.resize(static_cast<size_t>(distributed::size()));
  std::iota(c.group.begin(), c.group.end(), 0);
  distributed::run(c, data, data);
}

void send(Call call, std::span<const int32_t> numbers) {
  call.numbers = static_cast<int64_t>(numbers.size());
  broadcast(&call, sizeof call);
  std::vector<int32_t> copy(numbers.begin(), numbers.end());
  if (!copy.empty()) broadcast(copy.data(), copy.size() * sizeof copy[0]);
}

std::pair<Call, std::vector<int32_t>> receive() {
  Call call;
  broadcast(&call, sizeof call);
  std::vector<int32_t> numbers(static_cast<size_t>(call.numbers));
  if (!numbers.empty()) broadcast(numbers.data(), numbers.size() * sizeof numbers[0]);
  return {call, std::move(numbers)};
}

/// Makes a call of a model that the others make as well. What it refuses, all refuse; any other failure leaves them
/// waiting, so that they are told.
template <class F> auto with_others(F&& f) {
  try {
    return f();
  } catch (const PeerError&) { throw; } catch (const ValueError&) {
    throw;
  } catch (const std::exception& e) {
    distributed::fail(e.what());
    throw;
  }
}

/// Returns numbers that differ where two files have other tensors.
std::vector<int32_t> fingerprint(const io::GgufFile& file) {
  Hash128 h;
  for (const io::GgufTensor& t : file.tensors()) {
    h.add(t.name);
    h.add(static_cast<uint64_t>(t.type));
    for (const int64_t size : t.shape) h.add(static_cast<uint64_t>(size));
  }
  std::vector<int32_t> out;
  for (const uint64_t half : {h.lo, h.hi})
    for (const uint64_t word : {half & 0xffffffffu, half >> 32}) out.push_back(static_cast<int32_t>(word));
  return out;
}

std::array<int64_t, 4> packed(const ModelOptions& o) {
  return {o.max_context, o.max_sequences, o.prefill_chunk, o.cache_dtype == dtypes::float16};
}
ModelOptions unpacked(const std::array<int64_t, 4>& a, const std::string& device) {
  return {.max_context = a[0],
          .max_sequences = a[1],
          .cache_dtype = a[3] ? dtypes::float16 : dtypes::float32,
          .prefill_chunk = a[2],
          .device = device,
          .divided = true};
}

std::vector<int32_t> numbers_of(std::span<const NextToken> next) {
  std::vector<int32_t> out;
  for (const NextToken& n : next) out.insert(out.end(), {static_cast<int32_t>(n.sequence), n.token});
  return out;
}
std::vector<NextToken> next_of(std::span<const int32_t> numbers) {
  std::vector<NextToken> out;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) out.push_back({numbers[i], numbers[i + 1]});
  return out;
}

}  // namespace

struct WorldLeader::Impl {
  std::mutex mutex;  ///< of what is sent, and of the calls behind it
  int64_t models = 0;

  Impl() : idle_([this](const std::stop_token& stop) { tell_that_we_wait(stop); }) {}

  /// Tells the others a call and makes it.
  template <class F> auto call(const Call& c, std::span<const int32_t> numbers, F&& f) {
    Cancellation::check("llm");
    Cancellation::Hold hold;
    hold.begin();
    const std::lock_guard lock(mutex);
    send(c, numbers);
    return f();
  }
  /// Tells the others what needs no answer. Where the world has failed, they know.
  void tell(const Call& c) noexcept {
    try {
      const std::lock_guard lock(mutex);
      send(c, {});
    } catch (const std::exception&) {}
  }
  void end() {
    idle_.request_stop();
    idle_.join();
    tell({.kind = CallKind::kEnd});
  }

 private:
  void tell_that_we_wait(const std::stop_token& stop) {
    const double seconds = std::min(60.0, static_cast<double>(env::WORLD_TIMEOUT.get()) / 4);
    std::mutex own;
    std::condition_variable_any wake;
    std::unique_lock lock(own);
    while (!wake.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; }) &&
           !stop.stop_requested())
      tell({.kind = CallKind::kIdle});
  }
  std::jthread idle_;
};

WorldLeader::WorldLeader() : impl_(std::make_unique<Impl>()) {}
WorldLeader::~WorldLeader() { impl_->end(); }

std::shared_ptr<WorldLeader> WorldLeader::begin() {
  if (distributed::size() == 1) return nullptr;
  TG_CHECK(ValueError, distributed::rank() == 0, "[llm] got a leader in rank ", distributed::rank(),
           ", expected it in rank 0");
  return std::shared_ptr<WorldLeader>(new WorldLeader());
}

namespace {

/// Rank 0's part of a divided model.
class LedModel : public LanguageModel {
  /// Makes a call with the others.
  template <class F>
  auto call(CallKind kind, const std::array<int64_t, 4>& arguments, std::span<const int32_t> numbers, F&& f) {
    return leader_->impl().call({kind, id_, arguments}, numbers, [&] { return with_others(f); });
  }

 public:
  LedModel(std::shared_ptr<WorldLeader> leader, int64_t id, std::shared_ptr<LanguageModel> own)
      : leader_(std::move(leader)), id_(id), own_(std::move(own)) {}
  ~LedModel() override { leader_->impl().tell({CallKind::kForget, id_}); }

  const ModelConfig& config() const override { return own_->config(); }
  const ModelOptions& options() const override { return own_->options(); }
  int64_t weight_bytes() const override { return own_->weight_bytes(); }
  int64_t cache_bytes() const override { return own_->cache_bytes(); }
  std::span<const int32_t> tokens(int64_t s) const override { return own_->tokens(s); }
  int64_t rewindable(int64_t s, int64_t tokens) const override { return own_->rewindable(s, tokens); }

  void rewind(int64_t s, int64_t tokens) override {
    call(CallKind::kRewind, {s, tokens}, {}, [&] { own_->rewind(s, tokens); });
  }
  void copy(int64_t from, int64_t to, int64_t tokens) override {
    call(CallKind::kCopy, {from, to, tokens}, {}, [&] { own_->copy(from, to, tokens); });
  }
  std::span<const float> prefill(int64_t s, std::span<const int32_t> tokens) override {
    return call(CallKind::kPrefill, {s}, tokens, [&] { return own_->prefill(s, tokens); });
  }
  std::vector<float> prefill_all(int64_t s, std::span<const int32_t> tokens) override {
    return call(CallKind::kPrefillAll, {s}, tokens, [&] { return own_->prefill_all(s, tokens); });
  }
  std::vector<float> prefill_hidden(int64_t s, std::span<const int32_t> tokens) override {
    return call(CallKind::kPrefillHidden, {s}, tokens, [&] { return own_->prefill_hidden(s, tokens); });
  }
  std::span<const float> decode(std::span<const NextToken> next) override {
    return call(CallKind::kDecode, {}, numbers_of(next), [&] { return own_->decode(next); });
  }

 private:
  std::shared_ptr<WorldLeader> leader_;
  int64_t id_;
  std::shared_ptr<LanguageModel> own_;
};

/// Makes a call of rank 0 in this process.
void make(LanguageModel& m, const Call& c, std::span<const int32_t> numbers) {
  const auto [a, b, d, unused] = c.arguments;
  switch (c.kind) {
    case CallKind::kRewind: return m.rewind(a, b);
    case CallKind::kCopy: return m.copy(a, b, d);
    case CallKind::kPrefill: m.prefill(a, numbers); return;
    case CallKind::kPrefillAll: m.prefill_all(a, numbers); return;
    case CallKind::kPrefillHidden: m.prefill_hidden(a, numbers); return;
    case CallKind::kDecode: m.decode(next_of(numbers)); return;
    default: return;
  }
}

/// Loads this process's part in one step with all others.
std::shared_ptr<LanguageModel> load_part(const io::GgufFile& file, const ModelOptions& o,
                                         std::span<const int32_t> expected) {
  std::shared_ptr<LanguageModel> model;
  distributed::together("llm load", [&] {
    TG_CHECK(ValueError, std::ranges::equal(fingerprint(file), expected), "[llm] ", file.metadata().file(),
             " is another model than rank 0's");
    model = LanguageModel::load(file, o);
  });
  return model;
}

}  // namespace

std::shared_ptr<LanguageModel> load_led(const io::GgufFile& file, const ModelOptions& o) {
  const std::shared_ptr<WorldLeader> leader = o.leader;
  const std::vector<int32_t> print = fingerprint(file);
  ModelOptions own = o;
  own.leader = nullptr;
  own.divided = true;
  WorldLeader::Impl& all = leader->impl();
  const int64_t id = all.models++;
  std::shared_ptr<LanguageModel> part =
      all.call({CallKind::kLoad, id, packed(o)}, print, [&] { return load_part(file, own, print); });
  return std::make_shared<LedModel>(leader, id, std::move(part));
}

void follow_leader(const io::GgufFile& file, const std::string& device) {
  std::map<int64_t, std::shared_ptr<LanguageModel>> models;
  while (true) {
    const auto [call, numbers] = receive();
    if (call.kind == CallKind::kEnd) return;
    if (call.kind == CallKind::kIdle) continue;
    if (call.kind == CallKind::kForget) {
      models.erase(call.model);
      continue;
    }
    try {
      if (call.kind == CallKind::kLoad) models[call.model] = load_part(file, unpacked(call.arguments, device), numbers);
      else with_others([&m = *models.at(call.model), &c = call, &n = numbers] { make(m, c, n); });
    } catch (const ValueError&) {  // rank 0 has it too, and tells its caller
    } catch (const Error&) {
      if (call.kind != CallKind::kLoad) throw;  // else all know that the model is not there, and the world goes on
    }
  }
}

}  // namespace tg::llm
