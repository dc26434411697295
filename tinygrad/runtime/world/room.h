/// \file Memory for messages.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tg {

/// Memory for what arrives, kept from one operation to the next: new pages cost as much as a message.
class Room {
 public:
  using Piece = std::unique_ptr<std::byte[]>;
  explicit Room(size_t bytes) : bytes_(bytes) {
    const std::lock_guard lock(free().mutex);
    auto& pieces = free().pieces;
    const auto it =
        std::ranges::find_if(pieces, [&](const auto& p) { return p.first >= bytes && p.first <= 2 * bytes; });
    if (it == pieces.end()) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      return;
    }
    bytes_ = it->first;
    memory_ = std::move(it->second);
    free().bytes -= bytes_;
    pieces.erase(it);
  }
  ~Room() {
    const std::lock_guard lock(free().mutex);
    if (free().bytes + bytes_ > kKept) return;
    free().bytes += bytes_;
    free().pieces.emplace_back(bytes_, std::move(memory_));
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  std::byte* data() const { return memory_.get(); }

 private:
  static constexpr size_t kKept = 16 << 20;
  struct Free {
    std::mutex mutex;
    size_t bytes = 0;
    std::vector<std::pair<size_t, Piece>> pieces;
  };
  static Free& free() {
    static auto* f = new Free;
    return *f;
  }
  size_t bytes_;
  Piece memory_;
};

}  // namespace tg
