/// \file The search: candidates of the cost model, rounds of mutations, a run-off against the heuristic, and the cache
/// of results.
#include "tinygrad/engine/beam.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <set>
#include <sstream>
#include <unordered_map>
#include <variant>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/output.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/codegen/decomp/decomp.h"
#include "tinygrad/codegen/plan/grid_mutate.h"
#include "tinygrad/codegen/plan/grid_plan.h"
#include "tinygrad/codegen/plan/heuristic.h"
#include "tinygrad/codegen/plan/mutate.h"
#include "tinygrad/codegen/plan/variants.h"
#include "tinygrad/engine/kernel_timer.h"
#include "tinygrad/engine/program_store.h"
#include "tinygrad/runtime/thread_pool.h"
#include "tinygrad/schedule/custom.h"

namespace tg {
namespace {
using Clock = std::chrono::steady_clock;
constexpr const char* kTable = "beam";  ///< opts as text, or that the heuristic's kernel is the best
constexpr std::string_view kHeuristic = "heuristic";
constexpr double kWins = 0.98;      ///< of the heuristic's time, in the run-off
constexpr double kProgress = 0.99;  ///< of the best time: a round that brings less is the last
constexpr double kTiny = 2e-6;      ///< seconds below which launching is what takes the time
constexpr double kHopeless =
    2.5;  ///< times the best: neither tried when predicted, nor timed any further when measured
constexpr int kRounds = 12;

std::atomic<int64_t> searches{0}, compiled{0}, dropped{0};

struct KeyHash {
  size_t operator()(const Hash128& h) const { return h.lo; }
};
/// What a search found: opts, or nothing that is better than the heuristic's kernel.
using Found = std::optional<Opts>;
/// What this process found, for when there is no disk.
struct Known {
  std::mutex mutex;
  std::unordered_map<Hash128, Found, KeyHash> found;
};
Known& known() {
  static auto* k = new Known;
  return *k;
}

std::optional<Found> recall(const Hash128& key) {
  if (env::IGNORE_BEAM_CACHE) return {};
  {
    std::lock_guard lock(known().mutex);
    if (auto it = known().found.find(key); it != known().found.end()) return it->second;
  }
  if (build_identity().empty()) return {};
  const auto bytes = disk_cache::get(kTable, key.to_hex());
  if (!bytes) return {};
  const std::string_view text{reinterpret_cast<const char*>(bytes->data()), bytes->size()};
  if (text == kHeuristic) return Found();
  if (Found opts = opts_from_text(text)) return opts;
  return {};
}
void keep(const Hash128& key, const Found& found) {
  {
    std::lock_guard lock(known().mutex);
    known().found[key] = found;
  }
  if (build_identity().empty()) return;
  const std::string text = found ? to_text(*found) : std::string(kHeuristic);
  disk_cache::put(kTable, key.to_hex(), {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

/// What is tried: a candidate of the cost model, or of a kernel of a grid its OptOps.
using Variation = std::variant<Candidate, Opts>;

/// A plan with the candidate it was made from, and what is known of it.
struct Tried {
  bool own = false;  ///< the heuristic's: compiled as it would be without a search, from a plan of any kind
  Candidate candidate{};
  KernelPlan plan{};
  CompiledKernel kernel{};
  double seconds = std::numeric_limits<double>::infinity();
};

/// Whether the heuristic plans by opts of the kinds that are tried.
bool is_by_opts(std::string_view variant) { return variant == "tiles" || variant == "grid"; }

class Search {
 public:
  Search(const Kernel& kernel, Device& device, const Renderer& renderer, const CodegenOptions& options, Program& ranged)
      : kernel_(kernel),
        device_(device),
        renderer_(renderer),
        options_(options),
        names_(ranged.ast),
        request_(ranged.ast, renderer, options, names_),
        own_by_opts_(is_by_opts(ranged.plan.variant)) {
    if (!grid_) choose_form(request_, kTensorCores);
    request_.plan.variant = "search";
  }
  Found run();

 private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool time_left() const { return elapsed() < seconds_ * 0.9; }  // the rest is for the run-off
  /// Applies a variation; false where it does not fit, is too large, or was there before.
  bool add(Variation v, std::vector<Tried>& to);
  bool plan_own();
  std::vector<Variation> variations_of(const Tried& t);
  void compile(std::vector<Tried>& list);
  /// Compiles, checks and times in batches while there is time; what is left goes to the beam.
  void measure(std::vector<Tried> list);
  bool measure_own();
  std::vector<Tried> mutated();
  void search();
  struct Winner {
    const Tried* chosen;
    double before, after;  ///< seconds of the heuristic's kernel, of the chosen one
  };
  Winner run_off();
  void report(const Winner& w) const;
  void record(const char* what, const Tried& t) const;
  void compile_one(Tried& t);

  const Kernel& kernel_;
  const recording::Span span_{"search", kernel_.key.to_hex()};
  Device& device_;
  const Renderer& renderer_;
  const CodegenOptions& options_;
  const bool grid_ = renderer_.has_locals();
  KernelContext names_;
  PlanRequest request_;     // the kernel in the form that the heuristic gives it
  const bool own_by_opts_;  // opts of the kinds that are tried make the heuristic's kernel
  const Clock::time_point begin_ = Clock::now();
  const double seconds_ = static_cast<double>(env::BEAM_TIMEOUT_SEC.get());
  const int64_t most_ = env::BEAM_CANDIDATES_MAX.get(), upcast_max_ = env::BEAM_UPCAST_MAX.get(),
                uops_max_ = env::BEAM_UOPS_MAX.get(), debug_ = env::BEAM_DEBUG.get();
  const bool strict_ = env::BEAM_STRICT_MODE.get() != 0;
  const int threads_ =
      static_cast<int>(env::PARALLEL.get() > 0 ? std::min<int64_t>(env::PARALLEL.get(), 1024) : env::num_cpu_threads());
  Tried own_;
  std::optional<Trial> trial_;
  std::set<Hash128> seen_, expanded_;
  std::vector<Tried> beam_;
  int64_t compiled_ = 0, wrong_ = 0;
};

bool Search::add(Variation v, std::vector<Tried>& to) {
  Tried t{.plan = request_.plan};
  auto* const c = std::get_if<Candidate>(&v);
  {
    KernelAxes axes(request_.axes());
    try {
      if (c) apply_candidate(axes, *c, renderer_);
      else
        for (const Opt& o : std::get<Opts>(v)) axes.apply(o);
    } catch (const KernelOptError&) { return false; }
    int64_t instances = 1;
    for (const auto& a : axes.axes())
      if (a.type == AxisType::kUpcast || a.type == AxisType::kUnroll) instances *= std::max<int64_t>(a.size, 1);
    if (instances > upcast_max_) return false;
    t.plan.opts = axes.applied();
    if (c) t.plan.cycles = c->cycles;
  }
  if (!seen_.insert(t.plan.hash()).second) return false;
  if (c) t.candidate = std::move(*c);
  to.push_back(std::move(t));
  return true;
}

void Search::compile_one(Tried& t) {
  Cancellation::check("beam");
  const Context unrecorded{{"VIZ", 0}};  // what is chosen is compiled once more, and recorded then
  CodegenOptions options = options_;
  options.beam = 0;
  if (!t.own) options.opts = t.plan.opts;
  auto program = to_program(kernel_, renderer_, options);
  if (static_cast<int64_t>(program->insts.size()) > uops_max_ && !t.kernel.program)
    throw KernelOptError("too many instructions");
  Cancellation::check("beam");
  program->binary = device_.compiler(renderer_.target()).compile(program->source);
  t.kernel.executable = device_.load(program);
  t.kernel.program = std::move(program);
}

void Search::compile(std::vector<Tried>& list) {
  const env::Snapshot settings;
  const Cancellation stop = Cancellation::current();
  std::atomic<size_t> next{0}, done{0};
  auto work = [&](int64_t, int64_t) {
    const env::Adopt adopt(settings);
    const Cancellation::Adopt stoppable(stop);
    for (size_t i; (i = next++) < list.size() && time_left();) {
      try {
        compile_one(list[i]);
        done++;
      } catch (const KernelOptError&) {
      } catch (const CompileError&) {
        if (strict_) throw;
      } catch (const InternalError&) {
        if (strict_) throw;
      }
    }
  };
  const int threads = static_cast<int>(std::min<size_t>(static_cast<size_t>(std::max(threads_, 1)), list.size()));
  if (threads <= 1) work(0, 1);
  else ThreadPool::global().parallel_for(0, threads, 1, work, threads);
  compiled_ += static_cast<int64_t>(done);
  tg::compiled += static_cast<int64_t>(done);
  std::erase_if(list, [](const Tried& t) { return !t.kernel.executable; });
}

void Search::measure(std::vector<Tried> list) {
  const size_t batch = static_cast<size_t>(std::max(threads_, 1)) * 3;
  for (size_t at = 0; at < list.size() && time_left() && compiled_ < most_; at += batch) {
    const size_t end = std::min({list.size(), at + batch, at + static_cast<size_t>(most_ - compiled_)});
    std::vector<Tried> some(std::make_move_iterator(list.begin() + static_cast<std::ptrdiff_t>(at)),
                            std::make_move_iterator(list.begin() + static_cast<std::ptrdiff_t>(end)));
    compile(some);
    for (Tried& t : some) {
      Cancellation::check("beam");
      if (!time_left()) break;
      const double best = beam_.front().seconds;
      double once = 0;
      if (!trial_->agrees(t.kernel, &once)) {
        wrong_++;
        dropped++;
        if (env::DEBUG.get() >= 1 || debug_ >= 1)
          print_lines(str("beam: dropped, it computes something else: ", t.plan));
        continue;
      }
      t.seconds = once > best * kHopeless && once > 1e-4 ? once : std::min(once, trial_->time(t.kernel, best));
      record("candidate", t);
      if (debug_ >= 2) print_lines(fmt::format("beam: {:10.2f} us, ", t.seconds * 1e6) + str(t.plan));
      auto place = std::upper_bound(beam_.begin(), beam_.end(), t,
                                    [](const Tried& a, const Tried& b) { return a.seconds < b.seconds; });
      beam_.insert(place, std::move(t));
    }
    if (beam_.size() > static_cast<size_t>(options_.beam)) beam_.erase(beam_.begin() + options_.beam, beam_.end());
  }
}

/// Makes the plan from which the search begins: the heuristic's own, or the model's best for a kernel that the
/// heuristic plans in a way of its own (a scan, packed numbers). False where there is none.
bool Search::plan_own() {
  KernelAxes axes(request_.axes());
  own_.own = true;
  own_.plan = request_.plan;
  if (grid_) {
    if (std::any_of(axes.axes().begin(), axes.axes().end(), [](const KernelAxes::Axis& a) { return a.ordered; }))
      return false;
    plan_workgroups(axes, options_);
  } else {
    if (!request_.best()) return false;
    own_.candidate = *request_.best();
    apply_candidate(axes, own_.candidate, renderer_);
    own_.plan.cycles = own_.candidate.cycles;
  }
  own_.plan.opts = axes.applied();
  return true;
}

/// Returns what is tried next to a plan.
std::vector<Variation> Search::variations_of(const Tried& t) {
  std::vector<Variation> out;
  if (grid_)
    for (Opts& o : grid_mutations(t.plan.opts, request_.axes())) out.emplace_back(std::move(o));
  else
    for (Candidate& c : mutations(t.candidate, request_.axes(), request_.axes().sink(), renderer_))
      out.emplace_back(std::move(c));
  return out;
}

/// Compiles and times the heuristic's own choice; false where there is none.
bool Search::measure_own() {
  if (!plan_own()) return false;
  if (own_by_opts_) seen_.insert(own_.plan.hash());
  own_.kernel.program = std::make_shared<Program>();  // not bounded in size
  compile_one(own_);
  compiled_++;
  tg::compiled++;
  trial_.emplace(request_.axes().sink(), device_);
  trial_->remember(own_.kernel);
  own_.seconds = trial_->time(own_.kernel, std::numeric_limits<double>::infinity());
  beam_.push_back(own_);
  return true;
}

/// Mutates the plans of the beam that were not yet, parents in turns; no more than leaves something for later rounds.
std::vector<Tried> Search::mutated() {
  std::vector<std::vector<Variation>> ways;
  for (const Tried& t : beam_)
    if (expanded_.insert(t.plan.hash()).second) ways.push_back(variations_of(t));
  std::vector<Tried> next;
  const size_t share = std::max<size_t>(12, static_cast<size_t>(std::max<int64_t>(most_, 0)) / 3);
  for (size_t i = 0, more = 1; more && next.size() < share; i++) {
    more = 0;
    for (auto& w : ways)
      if (i < w.size()) {
        more = 1;
        add(std::move(w[i]), next);
      }
  }
  return next;
}

void Search::search() {
  std::vector<Tried> list;
  const auto width = static_cast<size_t>(options_.beam);
  for (Candidate& c :
       grid_ ? std::vector<Candidate>() : candidates(request_.axes(), request_.axes().sink(), renderer_, 2 * width + 4))
    if (c.cycles <= own_.candidate.cycles * kHopeless) add(std::move(c), list);
  measure(std::move(list));
  for (int round = 0; round < kRounds && time_left() && compiled_ < most_; round++) {
    const double best = beam_.front().seconds;
    std::vector<Tried> next = mutated();
    if (next.empty()) break;
    measure(std::move(next));
    if (debug_ >= 1)
      print_lines(fmt::format("beam: round {}, {} compiled, best {:.2f} us", round + 1, compiled_,
                              beam_.front().seconds * 1e6));
    if (beam_.front().seconds > best * kProgress) break;
  }
}

/// Runs the best in turns with the heuristic's: noise must not make a kernel slower than without a search.
Search::Winner Search::run_off() {
  Winner w{&own_, own_.seconds, own_.seconds};
  std::vector<const Tried*> rivals{&own_};
  std::vector<const CompiledKernel*> kernels{&own_.kernel};
  for (const Tried& t : beam_)
    if (!t.own && rivals.size() < (own_.seconds > 0.05 ? 2 : 5)) {
      rivals.push_back(&t);
      kernels.push_back(&t.kernel);
    }
  if (rivals.size() == 1) return w;
  const std::vector<double> medians = trial_->compare(kernels);
  w.before = w.after = medians[0];
  for (size_t i = 1; i < rivals.size(); i++)
    if (medians[i] < w.before * kWins && medians[i] < w.after) {
      w.chosen = rivals[i];
      w.after = medians[i];
    }
  return w;
}

void Search::report(const Winner& w) const {
  print_lines(str(
      "beam ", own_.kernel.program->name, ": ", compiled_, " tried, ", wrong_, " wrong, ",
      fmt::format("{:.2f} s, predicted {:.4g} -> {:.4g} cycles, measured {:.2f} -> {:.2f} us ({:.2f}x): ", elapsed(),
                  own_.plan.cycles, w.chosen->plan.cycles, w.before * 1e6, w.after * 1e6, w.before / w.after),
      w.chosen->own ? "the heuristic's" : str(w.chosen->plan)));
}

void Search::record(const char* what, const Tried& t) const {
  if (!span_.recording()) return;
  span_.value(what, str(t.plan.cycles, " cycles predicted, ", t.seconds * 1e6, " us measured: ", to_text(t.plan.opts)));
}

Found Search::run() {
  if (!measure_own()) return {};
  span_.value("name", own_.kernel.program->name);
  record("heuristic", own_);
  if (own_.seconds > kTiny) search();
  const Winner winner = run_off();
  record("chosen", *winner.chosen);
  searches++;
  if (env::DEBUG.get() >= 2) report(winner);
  return winner.chosen->own ? Found() : winner.chosen->plan.opts;
}

bool searchable(const Kernel& kernel, Device& device, const CodegenOptions& options) {
  if (options.beam <= 0 || options.noopt || options.opts) return false;
  if (!device.compiles() || !device.executes()) {
    env::not_honoured("BEAM", str("got ", options.beam, " for ", device.kind(),
                                  ", whose kernels cannot be timed here: the heuristic decides"));
    return false;
  }
  const KernelInfo& info = kernel.sink.arg<KernelInfo>();
  return !info.opts_to_apply && !info.attention && !source_of(kernel.sink);
}
}  // namespace

void add_beam_settings(Hash128& h, const CodegenOptions& options) {
  if (options.beam <= 0) return;
  for (const env::Int* v :
       {&env::BEAM_TIMEOUT_SEC, &env::BEAM_CANDIDATES_MAX, &env::BEAM_UPCAST_MAX, &env::BEAM_UOPS_MAX})
    h.add(static_cast<uint64_t>(v->get()));
  h.add(static_cast<uint64_t>(env::num_cpu_threads()));
}

BeamCounters beam_counters() { return {searches, compiled, dropped}; }
void clear_beam_cache() {
  std::lock_guard lock(known().mutex);
  known().found.clear();
}

std::optional<Opts> beam_opts(const Kernel& kernel, Device& device, const Renderer& renderer,
                              const CodegenOptions& options) {
  if (!searchable(kernel, device, options)) return {};
  Hash128 key;
  key.add(build_identity());
  key.add(renderer.target().key());
  key.add(device.kind());
  key.add(options.hash());
  key.add(kernel.key);
  key.add(device.compiler(renderer.target()).cache_key());
  add_beam_settings(key, options);
  if (const auto found = recall(key)) return *found;
  // Alone: a second search would disturb the first one's measurements, and may be for the same kernel.
  static std::timed_mutex one;
  std::unique_lock lock(one, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(10))) Cancellation::check("beam");
  if (const auto found = recall(key)) return *found;
  const Context quiet{
      {"DEBUG", std::min<int64_t>(env::DEBUG.get(), 2)}};  // candidates' sources and graphs would bury everything
  CodegenOptions ranges = options;
  ranges.beam = 0;
  ranges.stop_after = "plan";
  Found found;
  try {
    const auto ranged = [&] {
      const Context unrecorded{{"VIZ", 0}};
      return to_program(kernel, renderer, ranges);
    }();
    ArenaScope scope(*ranged->arena);
    if (is_ordered_by_hand(ranged->ast) || emulates_longs(ranged->ast, renderer, options.emulated) ||
        !runs_on_any_numbers(ranged->ast))
      return {};
    found = Search(kernel, device, renderer, options, *ranged).run();
  } catch (const Cancelled&) { throw; } catch (const std::exception& e) {
    // No room for scratch memory, or the kernel itself does not compile, which is said where that is compiled.
    if (env::BEAM_STRICT_MODE) throw;
    if (env::DEBUG.get() >= 1) print_lines(str("beam: no search: ", e.what()));
    return {};
  }
  keep(key, found);
  return found;
}

}  // namespace tg
