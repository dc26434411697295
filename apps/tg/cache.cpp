/// \file tg cache: lists and empties the disk cache. tg replay-compare: compares kernels of two recorded runs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/engine/process_replay.h"

namespace tg::app {
namespace {

int info(bool json) {
  const DiskCache::Info i = disk_cache::info();
  if (json) {
    nlohmann::ordered_json tables = nlohmann::ordered_json::array();
    for (const DiskCache::TableInfo& t : i.tables)
      tables.push_back(
          {{"name", t.name}, {"entries", t.entries}, {"bytes", t.bytes}, {"hits", t.hits}, {"misses", t.misses}});
    std::cout << nlohmann::ordered_json{{"path", i.path},
                                        {"usable", i.usable},
                                        {"problem", i.problem},
                                        {"bytes", i.file_bytes},
                                        {"limit_mib", env::CACHE_LIMIT.get()},
                                        {"tables", tables}}
              << "\n";
    return i.usable ? kOk : kFailed;
  }
  TG_CHECK(FileError, i.usable, "[cache info] ", i.problem);
  std::printf("%s, %s in the file, limit %s%s\n", i.path.c_str(),
              human_bytes(static_cast<double>(i.file_bytes)).c_str(),
              human_bytes(static_cast<double>(env::CACHE_LIMIT.get()) * (1 << 20)).c_str(),
              env::CACHELEVEL.get() == 0 ? ", turned off by CACHELEVEL=0" : "");
  for (const DiskCache::TableInfo& t : i.tables)
    std::printf("%-24s %8lld entries  %9s  found %lld of %lld\n", t.name.c_str(), static_cast<long long>(t.entries),
                human_bytes(static_cast<double>(t.bytes)).c_str(), static_cast<long long>(t.hits),
                static_cast<long long>(t.hits + t.misses));
  return kOk;
}

/// Removes a table's entries, or all; `table`: empty for all.
int clear(const std::string& table, bool json) {
  const DiskCache::Info before = disk_cache::info();
  TG_CHECK(FileError, before.usable, "[cache clear] ", before.problem);
  const std::vector<DiskCache::TableInfo>& tables = before.tables;
  auto named = [&](const DiskCache::TableInfo& t) { return table.empty() || t.name == table; };
  if (!table.empty() && std::none_of(tables.begin(), tables.end(), named)) {
    std::string names;
    for (const DiskCache::TableInfo& t : tables) names += (names.empty() ? "" : ", ") + t.name;
    throw ValueError(
        str("[cache clear] got table ", table, ", expected one of: ", names.empty() ? "(the cache is empty)" : names));
  }
  disk_cache::clear(table);
  int64_t entries = 0, bytes = 0;
  for (const DiskCache::TableInfo& t : tables)
    if (named(t)) {
      entries += t.entries;
      bytes += t.bytes;
    }
  const DiskCache::Info left = disk_cache::info();
  const bool done = std::none_of(left.tables.begin(), left.tables.end(), named);
  if (json)
    std::cout << nlohmann::ordered_json{{"path", left.path},
                                        {"cleared", done},
                                        {"entries", done ? entries : 0},
                                        {"bytes", done ? bytes : 0}}
              << "\n";
  return done ? kOk : kFailed;
}

nlohmann::ordered_json to_json(const ReplayComparison& c) {
  nlohmann::ordered_json different = nlohmann::ordered_json::array();
  for (const ReplayDifference& d : c.different)
    different.push_back({{"name", d.name}, {"before", d.before}, {"after", d.after}});
  return {{"same", c.same}, {"different", different}};
}

}  // namespace

std::function<int()> define_cache(CLI::App& app) {
  app.footer("Examples:\n  tg cache info\n  tg cache info --json | jq .bytes\n  tg cache clear");
  struct Choice {
    bool clear = false, json = false;
    std::string table;
  };
  auto choice = std::make_shared<Choice>();
  app.require_subcommand(1);
  CLI::App* show = app.add_subcommand("info", "Show file, size and tables (CACHEDB names another file)");
  show->add_flag("--json", choice->json, "As a JSON object");
  CLI::App* remove = app.add_subcommand("clear", "Remove all entries, or those of one table");
  remove->add_option("table", choice->table, "Name of a table as `info` shows it");
  remove->add_flag("--json", choice->json, "Say what was removed, as a JSON object");
  remove->callback([choice] { choice->clear = true; });
  return [choice] { return choice->clear ? clear(choice->table, choice->json) : info(choice->json); };
}

std::function<int()> define_replay_compare(CLI::App& app) {
  app.footer(
      "Examples:\n  CAPTURE_PROCESS_REPLAY=1 CACHEDB=before.db python train.py\n  CAPTURE_PROCESS_REPLAY=1 "
      "CACHEDB=after.db python train.py     # with a changed library\n  tg replay-compare before.db after.db");
  struct Choice {
    std::string before, after;
    bool json = false;
  };
  auto choice = std::make_shared<Choice>();
  app.add_flag("--json", choice->json, "As a JSON object, with the sources");
  app.add_option("before", choice->before, "Cache file (CACHEDB) of a run with CAPTURE_PROCESS_REPLAY=1")->required();
  app.add_option("after", choice->after, "The same of another run")->required();
  return [choice] {
    const ReplayComparison c = compare_replays(choice->before, choice->after);
    if (choice->json) std::cout << to_json(c) << "\n";
    else print_comparison(std::cout, c);
    return c.different.empty() ? kOk : kFailed;
  };
}

}  // namespace tg::app
