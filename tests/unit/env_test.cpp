/// \file The table of environment variables: parsing, older spellings, scoped overrides, threads, printing.
#include "tinygrad/base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "helpers/error_text.h"
#include "tinygrad/base/env_parse.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {

using ::testing::HasSubstr;

env::Values parse(const std::map<std::string, std::string>& environment) {
  return env::detail::parse(
      [&](const char* name) { return environment.contains(name) ? environment.at(name).c_str() : nullptr; });
}
std::string dev_of(const std::map<std::string, std::string>& environment) {
  return parse(environment).strs[env::str_index::DEV];
}

TEST(Env, DefaultsAndValues) {
  const env::Values none = parse({});
  EXPECT_EQ(none.ints[env::int_index::DEBUG], 0);
  EXPECT_EQ(none.ints[env::int_index::JIT], 1);
  EXPECT_EQ(none.strs[env::str_index::DEFAULT_FLOAT], "float32");
  const env::Values some =
      parse({{"DEBUG", "3"}, {"BEAM", " 2 "}, {"DEFAULT_FLOAT", "half"}, {"JIT", ""}, {"REWRITE_STACK_LIMIT", "+7"}});
  EXPECT_EQ(some.ints[env::int_index::DEBUG], 3);
  EXPECT_EQ(some.ints[env::int_index::BEAM], 2);
  EXPECT_EQ(some.ints[env::int_index::REWRITE_STACK_LIMIT], 7);
  EXPECT_EQ(some.ints[env::int_index::JIT], 1) << "empty means unset";
  EXPECT_EQ(some.strs[env::str_index::DEFAULT_FLOAT], "half");
}

/// What is said on stderr meanwhile.
template <class F> std::string said(F&& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

TEST(Env, ValuesOutsideOfTheirRange) {
  env::Values v;
  const std::string text = said([&] {
    v = parse({{"NUM_CPU_THREADS", "100000"},
               {"MEMORY_LIMIT", "-5"},
               {"CACHE_LIMIT", "-1"},
               {"DEBUG", "-1"},
               {"SPEC", "9"},
               {"TC_SELECT", "999"},
               {"CPU_PINNING", "7"},
               {"TRAINING", "1"}});
  });
  EXPECT_EQ(v.ints[env::int_index::NUM_CPU_THREADS], 1024) << "the greatest";
  EXPECT_EQ(v.ints[env::int_index::MEMORY_LIMIT], 0) << "the default";
  EXPECT_EQ(v.ints[env::int_index::CACHE_LIMIT], 1024) << "the default";
  EXPECT_EQ(v.ints[env::int_index::DEBUG], 0);
  EXPECT_EQ(v.ints[env::int_index::SPEC], 2);
  EXPECT_EQ(v.ints[env::int_index::TC_SELECT], 255);
  EXPECT_EQ(v.ints[env::int_index::CPU_PINNING], 1);
  EXPECT_THAT(text, HasSubstr("tinygrad: [NUM_CPU_THREADS] got 100000, expected 0 to 1024: taken as 1024\n"));
  EXPECT_THAT(text, HasSubstr("[CPU_PINNING] got 7, expected 0 or 1: taken as 1\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("TRAINING")));
  EXPECT_EQ(said([] { parse({{"CPU_PINNING", "7"}}); }), "") << "once";
}

TEST(Env, ContextOutsideOfTheRange) {
  EXPECT_THAT(said([] {
                Context ctx{{"RING", 33}};
                EXPECT_EQ(env::RING.get(), 2);
              }),
              HasSubstr("[RING] got 33, expected 0 to 2: taken as 2"));
}

TEST(Env, RangesAsText) {
  EXPECT_EQ(env::range_text("SPEC"), "0 to 2");
  EXPECT_EQ(env::range_text("NOOPT"), "0 or 1");
  EXPECT_EQ(env::range_text("PENDING_MB"), "from 0");
  EXPECT_EQ(env::range_text("JITBEAM"), "-1 to 1000");
  EXPECT_EQ(env::range_text("NO_COLOR"), "any");
  EXPECT_EQ(env::range_text("CC"), "text");
  EXPECT_EQ(env::range_text("NOT_A_VARIABLE"), "");
}

/// The sources below a folder of the repository, what CMake says of them included, in one text.
std::string sources(const std::vector<std::string>& folders, const std::vector<std::string>& without) {
  std::string all;
  for (const std::string& folder : folders)
    for (const auto& e : std::filesystem::recursive_directory_iterator(std::string(TG_SOURCE_DIR "/") + folder)) {
      const std::string ext = e.path().extension(), name = e.path().filename();
      if ((ext != ".cpp" && ext != ".h" && ext != ".py" && ext != ".txt") ||
          std::find(without.begin(), without.end(), name) != without.end())
        continue;
      std::ostringstream text;
      text << std::ifstream(e.path()).rdbuf();
      all += text.str();
    }
  return all;
}
bool has_word(const std::string& text, const std::string& word) {
  auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if (!(at > 0 && letter(text[at - 1])) && !letter(text[at + word.size()])) return true;
  return false;
}

TEST(Env, EveryVariableHasAReaderARangeAndATest) {
  const std::string library = sources({"tinygrad", "apps"}, {"env.h"}), tests = sources({"tests", "python/tests"}, {});
  for (std::string_view name : env::names()) {
    const std::string n(name);
    EXPECT_TRUE(has_word(library, "env::" + n) || has_word(library, n + ".get") || has_word(library, "int_index::" + n))
        << n << " is read nowhere";
    EXPECT_TRUE(has_word(tests, n)) << n << " has no test";
    EXPECT_NE(env::range_text(n), "") << n;
  }
}

/// But for those of others, which mean to us what they mean to them.
TEST(Env, EveryVariableThatIsReadIsInTheTable) {
  const std::string library = sources({"tinygrad", "apps"}, {"env.cpp"});
  const std::string call = "getenv(\"";
  for (size_t at = library.find(call); at != std::string::npos; at = library.find(call, at + 1)) {
    const size_t begin = at + call.size();
    const std::string name = library.substr(begin, library.find('"', begin) - begin);
    EXPECT_TRUE(env::find(name) || name == "PATH" || name == "NCCL_HOSTID") << name;
  }
}

TEST(Env, NoColorIsOnWithAnyValue) {
  EXPECT_EQ(parse({{"NO_COLOR", "yes"}}).ints[env::int_index::NO_COLOR], 1);
  EXPECT_EQ(parse({{"NO_COLOR", "0"}}).ints[env::int_index::NO_COLOR], 0);
}

TEST(Env, ViewerTurnsRecordsOn) {
  const env::Values viz = parse({{"VIZ", "1"}});
  EXPECT_EQ(viz.ints[env::int_index::PROFILE], 1);
  EXPECT_EQ(viz.ints[env::int_index::TRACK_MATCH_STATS], 2);
  EXPECT_EQ(parse({{"VIZ", "1"}, {"PROFILE", "0"}}).ints[env::int_index::PROFILE], 0);
  EXPECT_EQ(parse({{"TRACK_MATCH_STATS", "2"}}).ints[env::int_index::VIZ], 1);
  EXPECT_EQ(parse({{"TRACK_MATCH_STATS", "1"}}).ints[env::int_index::VIZ], 0);
}

TEST(Env, OlderSpellingsOfDev) {
  EXPECT_EQ(dev_of({}), "");
  EXPECT_EQ(dev_of({{"DEVICE", "CUDA"}}), "CUDA");
  EXPECT_EQ(dev_of({{"CUDA", "1"}}), "CUDA");
  EXPECT_EQ(dev_of({{"GPU", "1"}}), "GPU");
  EXPECT_EQ(dev_of({{"CPU", "1"}}), "CPU");
  EXPECT_EQ(dev_of({{"CLANG", "1"}}), "CPU:CLANG");
  EXPECT_EQ(dev_of({{"LLVM", "1"}}), "CPU:LLVM");
  EXPECT_EQ(dev_of({{"CPU", "1"}, {"LLVM", "1"}}), "CPU:LLVM") << "the more exact one";
  EXPECT_EQ(dev_of({{"CPU", "0"}}), "");
  EXPECT_EQ(dev_of({{"CLANG", "/usr/bin/clang"}}), "") << "not a flag";
  EXPECT_EQ(dev_of({{"DEV", "NULL"}, {"DEVICE", "CUDA"}, {"CLANG", "1"}}), "NULL") << "DEV wins";
  EXPECT_EQ(dev_of({{"DEVICE", "METAL"}, {"CLANG", "1"}}), "METAL");
}

TEST(Env, BadIntegerThrowsAtFirstUseAndNamesTheVariable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("NOOPT", "banana", 1);
  EXPECT_EXIT(
      {
        (void)env::DEBUG.get();  // others still work
        try {
          (void)env::NOOPT.get();
        } catch (const ValueError& e) {
          std::fputs(e.what(), stderr);
          std::exit(7);
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(7), "\\[NOOPT\\] got 'banana' in the environment, expected an integer");
  unsetenv("NOOPT");
}

TEST(Env, ContextOverridesAndRestores) {
  const int64_t before = env::DEBUG.get();
  {
    Context ctx{{"DEBUG", 2}, {"CC", "tcc"}};
    EXPECT_EQ(env::DEBUG.get(), 2);
    EXPECT_EQ(env::CC.get(), "tcc");
    {
      Context inner{{"DEBUG", "5"}};
      EXPECT_EQ(env::DEBUG.get(), 5);
      EXPECT_EQ(env::CC.get(), "tcc");
    }
    EXPECT_EQ(env::DEBUG.get(), 2);
  }
  EXPECT_EQ(env::DEBUG.get(), before);
}

TEST(Env, ContextTakesDoubleBraces) {
  Context ctx{{{"DEBUG", 2}, {"NOOPT", 1}}};
  EXPECT_EQ(env::DEBUG.get(), 2);
  EXPECT_EQ(env::NOOPT.get(), 1);
  Context one{{{"NOOPT", 0}}};
  EXPECT_EQ(env::NOOPT.get(), 0);
  EXPECT_EQ(env::DEBUG.get(), 2);
}

TEST(Env, ContextRestoresWhenAnExceptionPasses) {
  const int64_t before = env::BEAM.get();
  try {
    Context ctx{{"BEAM", before + 4}};
    throw ValueError("x");
  } catch (const ValueError&) {}
  EXPECT_EQ(env::BEAM.get(), before);
}

std::string context_error(std::initializer_list<Context::Setting> settings) {
  return test::error_text<ValueError>([&] { Context ctx(settings); });
}

TEST(Env, ContextRejectsMistakesAndChangesNothing) {
  EXPECT_THAT(context_error({{"DEBUGG", 1}}), HasSubstr("[Context] got unknown variable 'DEBUGG'"));
  EXPECT_THAT(context_error({{"DEBUGG", 1}}), HasSubstr("the nearest is DEBUG"));
  EXPECT_THAT(context_error({{"DEBUG", "much"}}), HasSubstr("[Context] got DEBUG='much', expected an integer"));
  EXPECT_THAT(context_error({{"DEV", 1}}), HasSubstr("[Context] got DEV=1, expected a string"));
  const int64_t before = env::DEBUG.get();
  EXPECT_THAT(context_error({{"DEBUG", before + 9}, {"NOPE", 1}}), HasSubstr("NOPE"));
  EXPECT_EQ(env::DEBUG.get(), before);
}

TEST(Env, DeviceIsAnotherNameForDevInContext) {
  Context ctx{{"DEVICE", "INTERP"}};
  EXPECT_EQ(env::DEV.get(), "INTERP");
}

TEST(Env, OverridesStayOnTheirThreadUnlessAdopted) {
  Context ctx{{"DEBUG", 6}};
  const env::Snapshot snapshot;
  int64_t plain = -1, adopted = -1, after = -1;
  std::thread([&] {
    plain = env::DEBUG.get();
    {
      env::Adopt scope(snapshot);
      adopted = env::DEBUG.get();
    }
    after = env::DEBUG.get();
  }).join();
  EXPECT_NE(plain, 6);
  EXPECT_EQ(adopted, 6);
  EXPECT_EQ(after, plain);
}

TEST(Env, SetLastsUntilTheContextEnds) {
  const int64_t before = env::DEBUG.get();
  {
    Context ctx{{"NOOPT", 1}};
    env::set({"DEBUG", 7});
    EXPECT_EQ(env::DEBUG.get(), 7);
    env::Snapshot snapshot;
    {
      env::Adopt scope(snapshot);
      env::set({"DEBUG", 3});
      EXPECT_EQ(env::DEBUG.get(), 3);
      EXPECT_EQ(snapshot.values().ints[env::int_index::DEBUG], 7) << "what other threads may hold stays";
    }
    EXPECT_EQ(env::DEBUG.get(), 7);
  }
  EXPECT_EQ(env::DEBUG.get(), before);
  int64_t set = 0, nested = 0, after = 0;
  std::thread([&] {
    env::set({"DEBUG", 5});
    set = env::DEBUG.get();
    {
      Context ctx{{"DEBUG", 6}};
      nested = env::DEBUG.get();
    }
    after = env::DEBUG.get();
  }).join();
  EXPECT_EQ(set, 5);
  EXPECT_EQ(nested, 6);
  EXPECT_EQ(after, 5);
  EXPECT_EQ(env::DEBUG.get(), before) << "another thread's own";
}

TEST(Env, FindByName) {
  Context ctx{{"DEBUG", 3}, {"CC", "gcc"}};
  EXPECT_EQ(std::get<int64_t>(env::find("DEBUG").value()), 3);
  EXPECT_EQ(std::get<std::string>(env::find("CC").value()), "gcc");
  EXPECT_FALSE(env::find("NOT_A_VARIABLE"));
  const auto names = env::names();
  EXPECT_EQ(names.front(), "DEV");
  for (std::string_view n : names) EXPECT_TRUE(env::find(n)) << n;
  EXPECT_THROW(env::set({"NOT_A_VARIABLE", 1}), ValueError);
  EXPECT_THROW(env::set({"DEBUG", "many"}), ValueError);
  EXPECT_EQ(env::DEBUG.get(), 3);
}

TEST(Env, NumCpuThreads) {
  EXPECT_GE(env::num_cpu_threads(), 1);
  Context ctx{{"NUM_CPU_THREADS", 3}};
  EXPECT_EQ(env::num_cpu_threads(), 3);
  const Context many{{"NUM_CPU_THREADS", 1024}};
  const std::string text =
      said([] { EXPECT_LE(env::num_cpu_threads(), std::max(64u, 8 * std::thread::hardware_concurrency())); });
  if (std::thread::hardware_concurrency() < 128) EXPECT_THAT(text, HasSubstr("[NUM_CPU_THREADS] got 1024 with "));
}

TEST(Env, PrintShowsEveryVariableAndMarksChanges) {
  Context ctx{{"DEBUG", 4}};
  std::ostringstream os;
  env::print(os);
  EXPECT_THAT(os.str(), HasSubstr("* DEBUG"));
  EXPECT_THAT(os.str(), HasSubstr("  NOOPT"));
  EXPECT_THAT(os.str(), HasSubstr("DEFAULT_FLOAT"));
  EXPECT_THAT(os.str(), HasSubstr("; default 0)"));
}

TEST(Env, DocumentationIsUpToDate) {
  std::ostringstream expected;
  env::print_markdown(expected);
  std::ifstream file(TG_SOURCE_DIR "/docs/env.md");
  std::ostringstream written;
  written << file.rdbuf();
  EXPECT_EQ(written.str(), expected.str()) << "make env-docs";
}

}  // namespace
}  // namespace tg
