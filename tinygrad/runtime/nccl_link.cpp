/// \file Communicators of NCCL that do not block, each with one group of processes; operations on streams.
#include "tinygrad/runtime/nccl_link.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/gpu_device.h"
#include "tinygrad/runtime/nccl_library.h"

namespace tg {
namespace {
constexpr unsigned kNonBlockingStream = 1;

bool combines(const Collective& c) {
  return c.what == CollectiveKind::kAllReduce || c.what == CollectiveKind::kReduceScatter;
}
/// Returns the number of a type whose values NCCL combines; -1: there is none.
int type_of(DType d) {
  const std::pair<DType, int> kTypes[] = {{dtypes::int8, nccl::kInt8},       {dtypes::uint8, nccl::kUint8},
                                          {dtypes::int32, nccl::kInt32},     {dtypes::uint32, nccl::kUint32},
                                          {dtypes::int64, nccl::kInt64},     {dtypes::uint64, nccl::kUint64},
                                          {dtypes::float16, nccl::kFloat16}, {dtypes::float32, nccl::kFloat32},
                                          {dtypes::float64, nccl::kFloat64}, {dtypes::bfloat16, nccl::kBfloat16}};
  for (const auto& [type, number] : kTypes)
    if (type == d) return number;
  return -1;
}
/// Returns the number of an operation; -1: there is none. NCCL's maximum of floats leaves NaN out, ours does not.
int operation_of(Ops op, DType d) {
  if (op == Ops::ADD) return nccl::kSum;
  if (op == Ops::MUL) return nccl::kProd;
  return op == Ops::MAX && !d.is_float() ? nccl::kMax : -1;
}
char* address(MemoryPlace p) { return static_cast<char*>(p.block) + p.offset; }

/// A stream, its own or the device's for all groups.
class Stream {
 public:
  explicit Stream(const GpuContext& context) : context_(context) {
    context.enter();
    context.call(context.driver.f.create_stream, &handle_, kNonBlockingStream);
  }
  ~Stream() {
    if (context_.enter_quietly()) context_.driver.f.destroy_stream(handle_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* handle() const { return handle_; }

 private:
  const GpuContext& context_;
  void* handle_ = nullptr;
};

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(const GpuContext& context, std::shared_ptr<Stream> stream, const NcclId& id, std::vector<int> group,
            int rank)
      : context_(context),
        f_(nccl_library().f),
        stream_(std::move(stream)),
        queue_(context, stream_->handle()),
        group_(std::move(group)) {
    context.enter();
    NcclConfig config;
    const auto ranks = static_cast<int>(group_.size());
    check(f_.CommInitRankConfig(&comm_, ranks, id, position_of(rank), &config), "CommInitRankConfig");
  }
  ~NcclGroup() override { abandon({}); }

  bool takes(const Collective& c) const override {
    return !combines(c) || (type_of(c.dtype) >= 0 && operation_of(c.op, c.dtype) >= 0);
  }
  void start(std::span<const DeviceOperation> operations) override;
  EventRef launched() override;
  size_t under_way() override {
    std::lock_guard lock(mutex_);
    forget_done();
    return under_way_.size();
  }
  std::string broken() override;
  void abandon(const std::function<void(const std::string&)>& lost) noexcept override;
  bool leave() override;

 private:
  struct UnderWay {
    EventRef done;
    std::string text;
  };
  int position_of(int rank) const {
    return static_cast<int>(std::find(group_.begin(), group_.end(), rank) - group_.begin());
  }
  void issue(const DeviceOperation& o);
  void issue_all_to_all(const DeviceOperation& o);
  void check(int error, const char* function) const;
  void check_present() const {
    TG_CHECK(DeviceError, comm_, "[NCCL] got an operation of ", context_.name, " after its group had ended");
  }
  void forget_done() {
    while (!under_way_.empty() && under_way_.front().done->done()) under_way_.pop_front();
  }

  const GpuContext& context_;
  const NcclFunctions& f_;
  const std::shared_ptr<Stream> stream_;
  GpuQueue queue_;
  const std::vector<int> group_;
  std::mutex mutex_;  // guards what follows, and calls with the communicator
  void* comm_ = nullptr;
  bool launching_ = true;  // also while it joins
  bool finalizing_ = false;
  std::string text_;  // of what is being launched; empty: nothing
  EventRef last_;
  std::deque<UnderWay> under_way_;
};

void NcclGroup::check(int error, const char* function) const {
  if (error == nccl::kSuccess || error == nccl::kInProgress) return;
  const char* const last = f_.GetLastError(comm_);
  throw DeviceError(str("[nccl", function, "] ", context_.name, ": ", f_.GetErrorString(error),
                        last && *last ? str(" (", last, ")") : ""));
}

void NcclGroup::start(std::span<const DeviceOperation> operations) {
  std::lock_guard lock(mutex_);
  check_present();
  TG_ASSERT(!launching_, "operations begun before others were launched");
  context_.enter();
  context_.order(stream_->handle(), context_.compute);
  for (const DeviceOperation& o : operations)  // the value of a send is what was sent
    if (o.what.what == CollectiveKind::kSend && o.what.elements && address(o.in) != address(o.out))
      queue_.copy(o.out, o.in, o.what.piece_bytes());
  text_ = operations.size() == 1 ? text_of(operations[0].what)
                                 : str(text_of(operations[0].what), " and ", operations.size() - 1, " more");
  launching_ = true;
  check(f_.GroupStart(), "GroupStart");
  std::exception_ptr error;
  try {
    for (const DeviceOperation& o : operations)
      if (o.what.elements) issue(o);
  } catch (...) { error = std::current_exception(); }
  const int ended = f_.GroupEnd();  // also behind an error: the group is the thread's
  if (error) std::rethrow_exception(error);
  check(ended, "GroupEnd");
}

/// Calls NCCL's function. What is only moved has no type: its bytes are.
void NcclGroup::issue(const DeviceOperation& o) {
  const Collective& c = o.what;
  const void* const in = address(o.in);
  void *const out = address(o.out), *const stream = stream_->handle();
  const size_t n = static_cast<size_t>(c.elements), bytes = c.piece_bytes();
  switch (c.what) {
    case CollectiveKind::kAllReduce:
      return check(f_.AllReduce(in, out, n, type_of(c.dtype), operation_of(c.op, c.dtype), comm_, stream), "AllReduce");
    case CollectiveKind::kReduceScatter:
      return check(f_.ReduceScatter(in, out, n, type_of(c.dtype), operation_of(c.op, c.dtype), comm_, stream),
                   "ReduceScatter");
    case CollectiveKind::kAllGather:
      return check(f_.AllGather(in, out, bytes, nccl::kUint8, comm_, stream), "AllGather");
    case CollectiveKind::kBroadcast:
      return check(f_.Broadcast(in, out, bytes, nccl::kUint8, c.root, comm_, stream), "Broadcast");
    case CollectiveKind::kSend:
      return check(f_.Send(in, bytes, nccl::kUint8, position_of(c.root), comm_, stream), "Send");
    case CollectiveKind::kReceive:
      return check(f_.Recv(out, bytes, nccl::kUint8, position_of(c.root), comm_, stream), "Recv");
    case CollectiveKind::kAllToAll: return issue_all_to_all(o);
  }
}

void NcclGroup::issue_all_to_all(const DeviceOperation& o) {
  const size_t bytes = o.what.piece_bytes();
  for (size_t p = 0; p < group_.size(); p++) {
    const int peer = static_cast<int>(p);
    check(f_.Send(address(o.in) + p * bytes, bytes, nccl::kUint8, peer, comm_, stream_->handle()), "Send");
    check(f_.Recv(address(o.out) + p * bytes, bytes, nccl::kUint8, peer, comm_, stream_->handle()), "Recv");
  }
}

EventRef NcclGroup::launched() {
  std::lock_guard lock(mutex_);
  check_present();
  if (!launching_) return last_;
  context_.enter();
  int error = 0;
  check(f_.CommGetAsyncError(comm_, &error), "CommGetAsyncError");
  check(error, text_.empty() ? "CommInitRankConfig" : "CommGetAsyncError");
  if (error == nccl::kInProgress) return {};
  last_ = queue_.record();
  forget_done();
  if (!text_.empty()) under_way_.push_back({last_, std::move(text_)});
  text_.clear();
  launching_ = false;
  return last_;
}

std::string NcclGroup::broken() {
  std::lock_guard lock(mutex_);
  if (!comm_ || launching_) return {};  // launched() says it
  int error = 0;
  if (const int failed = f_.CommGetAsyncError(comm_, &error)) error = failed;
  if (error == nccl::kSuccess || error == nccl::kInProgress) return {};
  const char* const last = f_.GetLastError(comm_);
  return str("has an error of its device: [NCCL] ", f_.GetErrorString(error),
             last && *last ? str(" (", last, ")") : "");
}

void NcclGroup::abandon(const std::function<void(const std::string&)>& lost) noexcept {
  std::lock_guard lock(mutex_);
  if (!comm_) return;
  if (!context_.enter_quietly()) {  // the program ends, and the driver has ended before
    comm_ = nullptr;
    return;
  }
  forget_done();
  if (!text_.empty() || !under_way_.empty()) {
    const std::string text = under_way_.empty() ? text_ : under_way_.front().text;
    if (lost) context_.lose([lost, text] { lost(text); });
  }
  f_.CommAbort(comm_);
  comm_ = nullptr;
}

bool NcclGroup::leave() {
  std::lock_guard lock(mutex_);
  if (!comm_) return true;
  if (!context_.enter_quietly()) {  // the program ends, and the driver has ended before
    comm_ = nullptr;
    return true;
  }
  forget_done();
  if (!under_way_.empty()) return false;
  if (!std::exchange(finalizing_, true)) check(f_.CommFinalize(comm_), "CommFinalize");
  int error = 0;
  check(f_.CommGetAsyncError(comm_, &error), "CommGetAsyncError");
  check(error, "CommFinalize");
  if (error == nccl::kInProgress) return false;
  check(f_.CommDestroy(std::exchange(comm_, nullptr)), "CommDestroy");
  return true;
}

class NcclLink final : public DeviceLink {
 public:
  explicit NcclLink(const GpuContext& context) : context_(context) {}
  std::string missing() override {
    if (!env::NCCL) return "NCCL=0";
    try {
      nccl_library();
      return {};
    } catch (const DeviceError& e) { return e.what(); }
  }
  /// Names the GPU by its bus, and by the machine where the user says which one that is to NCCL.
  std::string hardware() override {
    char text[32] = {};
    context_.call(context_.driver.f.bus_id, text, static_cast<int>(sizeof text), context_.device);
    const char* const host = std::getenv("NCCL_HOSTID");
    return host && *host ? str(text, " of ", host) : text;
  }
  int version() override { return nccl_library().version; }
  std::string make_id() override {
    NcclId id;
    const NcclFunctions& f = nccl_library().f;
    const int error = f.GetUniqueId(&id);
    TG_CHECK(DeviceError, error == nccl::kSuccess, "[ncclGetUniqueId] ", context_.name, ": ", f.GetErrorString(error));
    return {id.bytes, sizeof id.bytes};
  }
  std::unique_ptr<DeviceGroup> join(const std::string& id, const std::vector<int>& group, int rank,
                                    bool pair) override {
    NcclId known;
    std::memcpy(known.bytes, id.data(), std::min(id.size(), sizeof known.bytes));
    // Operations of groups run one after another, in the order that all processes begin them in. Two processes that
    // send to each other begin theirs in no order.
    if (!shared_) shared_ = std::make_shared<Stream>(context_);
    return std::make_unique<NcclGroup>(context_, pair ? std::make_shared<Stream>(context_) : shared_, known, group,
                                       rank);
  }

 private:
  const GpuContext& context_;
  std::shared_ptr<Stream> shared_;
};
}  // namespace

std::unique_ptr<DeviceLink> make_nccl_link(const GpuContext& context) { return std::make_unique<NcclLink>(context); }

}  // namespace tg
