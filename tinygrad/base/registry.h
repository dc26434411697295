/// \file Registry: named entries that any translation unit adds, listed in an order that does not depend on theirs.
#pragma once
#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg {

/// The entries of one kind. Adding never throws, since most entries are added before main(): a name that is added twice
/// is an error for whoever uses it. Thread-safe; entries stay where they are.
template <class T> class Registry {
 public:
  struct Entry {
    std::string name;
    int order = 0;
    T value;
    std::string where;     ///< file and line that added it
    std::string conflict;  ///< where another entry of this name was added; empty: nowhere
  };

  /// Adds an entry. `order`: its place in all(), equal ones by name.
  void add(std::string name, int order, T value, const char* file, int line) {
    std::string where = str(file, ":", line);
    std::lock_guard lock(mutex_);
    for (Entry& e : entries_)
      if (e.name == name) {
        e.conflict = std::move(where);
        return;
      }
    entries_.push_back({std::move(name), order, std::move(value), std::move(where), {}});
  }
  /// Returns the entry of a name, nullptr when there is none. DeviceError where it was added twice.
  const Entry* find(std::string_view name) const {
    std::lock_guard lock(mutex_);
    for (const Entry& e : entries_)
      if (e.name == name) {
        TG_CHECK(DeviceError, e.conflict.empty(), "[registry] ", name, " is registered twice, at ", e.where, " and at ",
                 e.conflict);
        return &e;
      }
    return nullptr;
  }
  /// Returns all entries by order and name, those added twice as well.
  std::vector<const Entry*> all() const {
    std::vector<const Entry*> out;
    {
      std::lock_guard lock(mutex_);
      for (const Entry& e : entries_) out.push_back(&e);
    }
    std::sort(out.begin(), out.end(), [](const Entry* a, const Entry* b) {
      return a->order != b->order ? a->order < b->order : a->name < b->name;
    });
    return out;
  }
  /// Returns all names, separated by commas.
  std::string names() const {
    std::string out;
    for (const Entry* e : all()) out += (out.empty() ? "" : ", ") + e->name;
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
};

}  // namespace tg
