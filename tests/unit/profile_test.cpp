/// \file The profile's JSON, and spans that are recorded only when asked for.
#include "tinygrad/base/profile.h"

#include <gtest/gtest.h>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/world/world_trace.h"

namespace tg {
namespace {

TEST(Profile, RecordsOnlyWhenAsked) {
  profile::clear();
  {
    const Context off{{"PROFILE", 0}};
    const profile::Span span(profile::kHost, "nothing");
    EXPECT_FALSE(span.recording());
  }
  EXPECT_EQ(profile::events(), 0);
  {
    const Context on{{"PROFILE", 1}};
    const profile::Span span(profile::kHost, "something");
    EXPECT_TRUE(span.recording());
  }
  EXPECT_EQ(profile::events(), 1);
  profile::clear();
}

TEST(Profile, NamesAreEscapedAndTimesStartAtZero) {
  profile::clear();
  profile::record("CPU", "a \"quoted\" \\ name\n", 5'000'000, 5'001'500, "3 bytes");
  profile::record(profile::kHost, "b", 4'000'000, 6'000'000);
  const std::string json = profile::json();
  EXPECT_NE(json.find("\"a \\\"quoted\\\" \\\\ name\\u000a\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"ts\":1000.000,\"dur\":1.500"), std::string::npos) << json;
  EXPECT_NE(json.find("\"ts\":0.000,\"dur\":2000.000"), std::string::npos) << json;
  EXPECT_NE(json.find("\"args\":{\"details\":\"3 bytes\"}"), std::string::npos) << json;
  EXPECT_THROW(profile::write("/nonexistent/folder/trace.json"), FileError);
  profile::clear();
  EXPECT_EQ(profile::json().find("\"X\""), std::string::npos);
}

/// The other clock is 1 s ahead and loses 1 ms in 10 s.
TEST(Profile, TimesOfAnotherProcessAreThoseOfOneClock) {
  profile::clear();
  using Role = profile::Flow::Role;
  profile::record("world", "sum", 5'000'000'000, 5'000'001'000, "4 bytes", {0xab, Role::kBegins});
  profile::record("world", "sum", 6'000'000'000, 6'000'001'000, "4 bytes", {0xab, Role::kEnds});
  profile::record("CPU", "kernel", 10'000'000'000, 10'000'002'000);
  const profile::Part part = profile::part_of({.rank = 2,
                                               .host = "far",
                                               .origin = 1'000'000'000,
                                               .first = {0, 1'000'000'000, 40},
                                               .last = {10'000'000'000, 999'000'000, 50}});
  profile::clear();
  const std::string text = profile::joined({part, {.events = "", .about = "\"rank 3\":{}"}});
  for (const char* piece :
       {"\"name\":\"rank 2 on far: world\"", "\"name\":\"rank 2 on far: CPU\"", "\"pid\":2001,", "\"pid\":2002,",
        // 5 s and half of the drift; then all of it.
        "\"ts\":4999500.000", "\"ts\":9999000.000",
        "\"ph\":\"s\",\"cat\":\"world\",\"name\":\"exchange\",\"id\":\"ab.0\"",
        "\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"world\",\"name\":\"exchange\",\"id\":\"ab.1\"",
        "\"rank 2\":{\"clock_offset_ns\":1000000000,\"clock_drift_ns\":-1000000,\"clock_error_ns\":50,\"dropped\":0}",
        ",\"rank 3\":{}}}"})
    EXPECT_NE(text.find(piece), std::string::npos) << piece << '\n' << text;
}

TEST(Profile, TheShortestRoundTripTellsTheTime) {
  using distributed::ClockSample;
  const std::vector<ClockSample> samples{{1000, 51'000, 3000}, {5000, 55'100, 5200}, {9000, 59'010, 9400}};
  const profile::ClockMatch m = distributed::match_of(samples);
  EXPECT_EQ(m.at, 5100);
  EXPECT_EQ(m.offset, 50'000);
  EXPECT_EQ(m.error, 100);
}

TEST(Profile, AProcessOfSeveralThatWritesAloneHasItsRankInTheName) {
  const Context named{{"PROFILE_FILE", std::string("/tmp/folder.d/trace.json")}};
  profile::clear();
  EXPECT_TRUE(profile::file(3).ends_with(".3.json")) << profile::file(3);
  EXPECT_FALSE(profile::file().ends_with(".3.json"));
}

}  // namespace
}  // namespace tg
