// What VIZ=1 records of programs.
#include <gmock/gmock.h>

#include <map>
#include <thread>

#include "tinygrad/engine/counters.h"
#include "tinygrad/tensor/provenance.h"
#include "tinygrad/tinygrad.h"
#include "tinygrad/viz/print_recording.h"
#include "tinygrad/viz/rewritten_graph.h"
#include "viz/recorded.h"

namespace tg {
namespace {
using testing::HasSubstr;

Tensor products() {
  const Tensor x = Tensor::arange(1024).reshape({32, 32}).cast(dtypes::float32).contiguous();
  return (x.matmul(x + 1).pad({{1, 1}, {0, 3}}).relu().softmax(1).cumsum(0) * 2).sum(0);
}

TEST(Recording, EveryKernelAndPassIsThere) {
  int64_t compiled = 0;
  const viz::Recording r = recorded([&] {
    const int64_t before = GlobalCounters::compiled;
    products().realize();
    compiled = GlobalCounters::compiled - before;
  });
  const auto kernels = spans_of(r, "kernel");
  ASSERT_GT(compiled, 0);
  EXPECT_EQ(static_cast<int64_t>(kernels.size()), compiled);
  for (const viz::Span* k : kernels) {
    EXPECT_FALSE(r.value(*k, "name").empty());
    EXPECT_THAT(r.value(*k, "target"), HasSubstr("CPU"));
    ASSERT_EQ(k->texts.size(), 1u);
    EXPECT_THAT(k->texts[0].text, HasSubstr(std::string(r.value(*k, "name")))) << "the source defines it";
    EXPECT_GE(k->children.size(), 15u) << "passes";
    EXPECT_EQ(k->graphs.size(), 2u) << "the kernel and its program";
  }
}

TEST(Recording, SchedulesSayWhyValuesAreStored) {
  const viz::Recording r = recorded([] {
    const Tensor x = Tensor::rand({64, 64}).realize();
    ((x.sum(0).exp() + 1).reshape({1, 64}).expand({64, 64}) * x).sum(1).realize();
    (x.sin().exp().reshape({64, 64, 1}).expand({64, 64, 8}) * 2).realize();
  });
  std::string told;
  for (const viz::Span* s : spans_of(r, "schedule"))
    for (uint32_t i : s->children)
      if (r.name(r.spans[i].name) == "rangeify")
        for (const viz::Text& t : r.spans[i].texts) told += t.text;
  EXPECT_THAT(told, HasSubstr("stored: a reduction that would be done again (in place 64 times per element)"));
  EXPECT_THAT(told, HasSubstr("stored: computing it again costs more than memory (in place 8 times per element)"));
}

TEST(Recording, SchedulesOfTheCacheAreMarked) {
  const viz::Recording r = recorded([] {
    const Tensor x = Tensor::rand({16}).realize();
    (x + 1).realize();
    (x + 1).realize();
  });
  const auto schedules = spans_of(r, "schedule");
  ASSERT_GE(schedules.size(), 3u);
  EXPECT_EQ(r.value(*schedules[schedules.size() - 2], "cache"), "miss");
  EXPECT_EQ(r.value(*schedules.back(), "cache"), "hit");
}

/// Stands for a helper of the program that the compiler inlines.
[[gnu::always_inline]] inline Tensor squared(const Tensor& x) { return x * x; }
constexpr int kSquaredLine = __LINE__ - 1;

TEST(Recording, LinesOfTheProgramAndTheirKernels) {
  int line = 0;
  const viz::Recording r = recorded([&] {
    const Tensor x = Tensor::arange(600).cast(dtypes::float32).contiguous().realize();
    line = __LINE__ + 1;
    const Tensor y = x.relu();
    squared(y).sum(0).realize();
  });
  std::map<std::string, const viz::LineSum*> lines;
  const std::vector<viz::LineSum> sums = viz::line_sums(r);
  for (const viz::LineSum& l : sums) lines[l.place] = &l;
  const auto* relu = lines[str("recording_test.cpp:", line)];
  const auto* mul = lines[str("recording_test.cpp:", kSquaredLine)];
  const auto* sum = lines[str("recording_test.cpp:", line + 1)];
  ASSERT_TRUE(relu && mul && sum) << "libdw1 is missing, or the tests are compiled without -g";
  EXPECT_THAT(relu->methods, ::testing::Contains("relu"));
  EXPECT_THAT(mul->methods, ::testing::Contains("mul"));
  EXPECT_THAT(sum->methods, ::testing::Contains("sum"));
  ASSERT_FALSE(relu->kernels.empty());
  EXPECT_EQ(relu->kernels, sum->kernels) << "one kernel computes all of it";
  const viz::Span* kernel = r.span(relu->kernels[0]);
  ASSERT_TRUE(kernel);
  EXPECT_EQ(r.name(kernel->kind), "kernel");
  EXPECT_GE(relu->launches, 1);
  const auto programs = spans_of(r, "program");
  ASSERT_EQ(programs.size(), 1u);
  EXPECT_EQ(r.name(programs[0]->name), "recording_test.cpp");
  EXPECT_THAT(programs[0]->texts.at(0).text, HasSubstr("const Tensor y = x.relu();"));
  std::ostringstream text;
  viz::print_lines(text, r);
  EXPECT_THAT(text.str(), HasSubstr(str("recording_test.cpp:", line, ": relu -> ")));
}

TEST(Recording, ProgramsThatAreNotRecordedAskForNoLines) {
  static int asked;
  asked = 0;
  set_call_site([] {
    asked++;
    return std::string();
  });
  Tensor::arange(5).relu().realize();
  EXPECT_EQ(asked, 0);
  recorded([] { Tensor::arange(7).relu().realize(); });
  EXPECT_GT(asked, 0);
  set_call_site(nullptr);
}

// The rewrites of a table, replayed on the graph it began with, make the graph it ended with.
TEST(Recording, RewritesLeadFromTheFirstGraphToTheLast) {
  const viz::Recording r = recorded([] { products().realize(); });
  const auto rewrites = spans_of(r, "rewrite");
  ASSERT_GT(rewrites.size(), 10u);
  size_t compared = 0;
  for (const viz::Span* s : rewrites) {
    ASSERT_FALSE(s->rewrites.empty());
    if (s->graphs.size() != 2) continue;
    const viz::SteppedGraph stepped = step_graph(r, s->graphs[0], s->rewrites, s->rewrites.size());
    ASSERT_EQ(stepped.roots.size(), 1u);
    EXPECT_EQ(stepped.nodes[stepped.roots[0]].number, s->graphs[1].roots[0]) << r.name(s->name);
    EXPECT_EQ(stepped.nodes.size(), viz::nodes_of(r, s->graphs[1]).size()) << r.name(s->name);
    const viz::SteppedGraph begin = step_graph(r, s->graphs[0], s->rewrites, 0);
    EXPECT_EQ(begin.nodes[begin.roots[0]].number, s->graphs[0].roots[0]);
    EXPECT_EQ(begin.nodes.size(), viz::nodes_of(r, s->graphs[0]).size());
    compared++;
  }
  EXPECT_GT(compared, 10u);
}

TEST(Recording, LaunchesAreCountedAndHaveTheirKernel) {
  int64_t launched = 0;
  const viz::Recording r = recorded([&] {
    const int64_t before = GlobalCounters::kernels;
    products().realize();
    launched = GlobalCounters::kernels - before;
  });
  int64_t events = 0;
  for (const viz::Event& e : r.events) {
    if (!viz::is_device(r, e.track)) continue;
    events++;
    EXPECT_LE(e.begin, e.end);
    const size_t key = e.details.find("kernel ");
    ASSERT_NE(key, std::string::npos) << e.details;
    const auto kernels = spans_of(r, "kernel");
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(),
                            [&](const viz::Span* k) { return r.name(k->name) == e.details.substr(key + 7); }));
  }
  EXPECT_EQ(events, launched);
}

TEST(Recording, MemoryReturnsToWhereItWas) {
  const viz::Recording r = recorded([] {
    const Tensor x = Tensor::rand({1024, 1024}).realize();
    EXPECT_GT((x + 1).sum().item<float>(), 0);
  });
  const auto curves = viz::memory_curves(r);
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_EQ(r.name(curves[0].device), "CPU");
  EXPECT_GE(curves[0].peak, 4 << 20);
  EXPECT_LT(curves[0].last, 1 << 20);
  int64_t held = 0;
  for (const auto& [span, bytes] : curves[0].at_peak) held += bytes;
  EXPECT_EQ(held, curves[0].peak) << "every byte has an owner";
}

TEST(Recording, ThreadsHaveSpansOfTheirOwn) {
  const viz::Recording r = recorded([] {
    const recording::Span outer("test", "outer");
    const uint64_t number = recording::Span::current();
    std::thread([number] {
      const Context viz{{"VIZ", 1}};
      const recording::Inside inside(number);
      const recording::Span inner("test", "inner");
      inner.value("key", "value");
    }).join();
  });
  const auto spans = spans_of(r, "test");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1]->parent, spans[0]->number);
  EXPECT_NE(spans[1]->thread, spans[0]->thread);
  EXPECT_EQ(r.value(*spans[1], "key"), "value");
}

TEST(Recording, SearchesTellWhatTheyTried) {
  const viz::Recording r = recorded([] {
    const Context beam{{"BEAM", 2}, {"CACHELEVEL", 0}, {"BEAM_CANDIDATES_MAX", 6}};
    const Tensor x = Tensor::rand({256, 256}).realize();
    x.matmul(x + 1).realize();
  });
  size_t measured = 0;
  for (const viz::Span* s : spans_of(r, "search")) {
    EXPECT_FALSE(r.value(*s, "name").empty());
    EXPECT_THAT(std::string(r.value(*s, "heuristic")),
                testing::MatchesRegex(".+ cycles predicted, .+ us measured: .*"));
    EXPECT_FALSE(r.value(*s, "chosen").empty());
    for (const auto& [key, text] : s->values) measured += r.name(key) == "candidate";
    EXPECT_TRUE(std::any_of(r.spans.begin(), r.spans.end(), [&](const viz::Span& k) {
      return r.name(k.kind) == "kernel" && k.name == s->name;
    })) << "the chosen kernel is compiled under the same key";
  }
  EXPECT_GT(measured, 0u);
  // Candidates are not recorded as kernels: those have different keys, or are of different schedules.
  std::map<std::string, int> keys;
  for (const viz::Span* k : spans_of(r, "kernel")) EXPECT_EQ(++keys[r.name(k->name)], 1);
}

TEST(Recording, CapturesAreThere) {
  const viz::Recording r = recorded([] {
    auto f = jit([](const Tensor& x) { return (x * 2 + 1).relu(); });
    for (int i = 0; i < 4; i++) f(Tensor::full({8}, i).contiguous().realize());
  });
  const auto captures = spans_of(r, "jit");
  ASSERT_EQ(captures.size(), 1u);
  EXPECT_FALSE(captures[0]->children.empty()) << "what it scheduled and compiled";
}

TEST(Recording, NothingIsRecordedUnlessAskedFor) {
  recording::finish();
  products().realize();
  EXPECT_FALSE(recording::begun());
  EXPECT_EQ(recording::path(), "");
}

TEST(Recording, LimitLeavesOutTheRest) {
  const viz::Recording r = recorded([] {
    const Context limit{{"VIZ_LIMIT", 1}};
    const recording::Span span("test", "large");
    std::string noise;
    uint64_t v = 1;
    for (int i = 0; i < 1 << 20; i++) noise += static_cast<char>('a' + (v = v * 6364136223846793005u + 1) % 26);
    for (int i = 0; i < 8; i++) span.text("noise", "", noise);
  });
  const auto spans = spans_of(r, "test");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_LT(spans[0]->texts.size(), 8u);
}

TEST(Recording, FileThatCannotBeWrittenIsSaidAndLeavesTheProgramAlone) {
  recording::finish();
  testing::internal::CaptureStderr();
  {
    const Context viz{{"VIZ", 1}, {"VIZ_FILE", "/proc/nope/test.viz"}};
    EXPECT_EQ((Tensor::ones({3}) + 1).sum().item<float>(), 6);
    recording::finish();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("[VIZ] cannot create /proc/nope/test.viz"));
}

}  // namespace
}  // namespace tg
