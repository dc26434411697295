/// \file The profile's JSON, and spans that are recorded only when asked for.
#include "tinygrad/base/profile.h"

#include <gtest/gtest.h>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"

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

}  // namespace
}  // namespace tg
