// Recordings that are damaged, and what is asked of those that are not.
#include <gmock/gmock.h>

#include <sstream>

#include "tinygrad/io/file.h"
#include "tinygrad/tinygrad.h"
#include "tinygrad/uop/record_graph.h"
#include "tinygrad/viz/print_recording.h"
#include "tinygrad/viz/recording_json.h"
#include "viz/recorded.h"

namespace tg {
namespace {
using testing::HasSubstr;

/// Returns the bytes of a small recording.
std::string recording_bytes() {
  const TempDir folder("tinygrad-test");
  const std::string file = (folder.path() / "test.viz").string();
  recording::finish();
  {
    const Context viz{{"VIZ", 1}, {"VIZ_FILE", file}};
    const recording::Span span("kernel", "k");
    span.value("name", "E_4");
    recording::event("CPU", 0, "E_4", 10, 30, "details");
    recording::flush();
    span.text("source", "C", "void E_4(void);");
    recording::finish();
  }
  const auto bytes = io::read_file(file, 1 << 20);
  return {bytes.begin(), bytes.end()};
}

std::string error_of(std::string_view bytes) {
  try {
    viz::parse_recording(bytes, "test");
  } catch (const FormatError& e) { return e.what(); }
  return "no error";
}

TEST(RecordingReader, FileThatIsNoRecording) {
  EXPECT_THAT(error_of("not a recording"), HasSubstr("got no recording of this version"));
  EXPECT_THAT(error_of(""), HasSubstr("got no recording of this version"));
  EXPECT_THROW(viz::read_recording("/nope/test.viz"), FileError);
}

TEST(RecordingReader, FileOfAProcessThatWasKilled) {
  const std::string bytes = recording_bytes();
  const viz::Recording whole = viz::parse_recording(bytes, "test");
  EXPECT_FALSE(whole.broken);
  const viz::Recording cut = viz::parse_recording(std::string_view(bytes).substr(0, bytes.size() - 3), "test");
  EXPECT_TRUE(cut.broken);
  ASSERT_EQ(cut.spans.size(), 1u) << "the first block is whole";
  EXPECT_EQ(cut.name(cut.spans[0].kind), "kernel");
  EXPECT_TRUE(cut.spans[0].texts.empty());
  std::ostringstream text;
  viz::print_summary(text, cut);
  EXPECT_THAT(text.str(), HasSubstr("the file ends early"));
}

TEST(RecordingReader, ByteThatChanged) {
  std::string bytes = recording_bytes();
  bytes[sizeof recording::kMagic + sizeof(recording::BlockHeader) + 5] ^= 1;
  EXPECT_THAT(error_of(bytes), HasSubstr("got a block with a wrong checksum"));
}

TEST(RecordingReader, Printing) {
  const viz::Recording r = viz::parse_recording(recording_bytes(), "test");
  std::ostringstream summary, span, launches;
  viz::print_summary(summary, r);
  EXPECT_THAT(summary.str(), HasSubstr("0 schedules, 1 kernels, 0 rewrites, 1 launches and copies"));
  EXPECT_THAT(summary.str(), HasSubstr("kernel E_4"));
  viz::print_span(span, r, r.spans[0]);
  EXPECT_THAT(span.str(), HasSubstr("--- source\nvoid E_4(void);"));
  viz::print_launches(launches, r);
  EXPECT_THAT(launches.str(), HasSubstr("20.0 ns   100%         1  CPU E_4"));
}

TEST(RecordingReader, Json) {
  const viz::Recording r = viz::parse_recording(recording_bytes(), "test");
  EXPECT_THAT(viz::json_overview(r), HasSubstr(R"("kernels":1,"rewrites":0,"launches":1)"));
  EXPECT_THAT(viz::json_span(r, r.spans[0]),
              HasSubstr(R"({"title":"source","language":"C","text":"void E_4(void);"})"));
  EXPECT_EQ(viz::json_timeline(r, 0, INT64_MAX, 0),
            str(R"({"events":[["CPU",0,"E_4",0,20,)", r.spans[0].number, R"(,"details"]],"hidden":0})"));
  EXPECT_EQ(viz::json_timeline(r, 0, INT64_MAX, 1000), R"({"events":[],"hidden":1})");
  EXPECT_THAT(viz::trace_events(r), HasSubstr(R"("name":"process_name","pid":1,"args":{"name":"CPU"})"));
}

TEST(RecordingReader, ExpressionsHaveTheParenthesesTheyNeed) {
  const viz::Recording r = recorded([] {
    const recording::Span span("test", "");
    Arena arena;
    const ArenaScope scope(arena);
    const UOp a = UOp::range(4, 0), b = UOp::range(5, 1);
    record_graph("sum", (a + b) * (a * 3 + b));
    record_graph("call", UOp::alu(Ops::WHERE, {a < b, a, b}));
  });
  const auto spans = spans_of(r, "test");
  ASSERT_EQ(spans.size(), 1u);
  ASSERT_EQ(spans[0]->graphs.size(), 2u);
  const auto text = [&](size_t i) {
    const viz::Snapshot& g = spans[0]->graphs[i];
    return viz::expression(r, g.graph, g.roots[0]);
  };
  EXPECT_EQ(text(0), "(RANGE[(0) LOOP](4) + RANGE[(1) LOOP](5)) * (RANGE[(0) LOOP](4) * 3 + RANGE[(1) LOOP](5))");
  EXPECT_THAT(text(1), testing::StartsWith("WHERE(RANGE"));
  EXPECT_LE(viz::expression(r, spans[0]->graphs[0].graph, spans[0]->graphs[0].roots[0], 20).size(), 23u);
}

}  // namespace
}  // namespace tg
