/// \file The random number streams: what a replayed step needs to draw fresh numbers.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tg::rng {

/// One draw: `words` 32-bit words from the stream of `device`, made from `key`.
struct Draw {
  std::string device;
  int64_t words;
  uint64_t key;
};
/// While set, becomes true when TRAINING is read with the value `outer` has. Returns what was set before.
struct TrainingRead {
  bool outer = false, seen = false;
};
TrainingRead* watch_training(TrainingRead* t);
/// Name of the bound variable that carries a key (as int64) into a kernel.
inline constexpr const char* kKeyVariable = "rng_key";
/// Advances the stream of `device` by `words` and returns the key these words are made from. `words` <= 2^32 - 1.
uint64_t next_key(const std::string& device, int64_t words);
/// Words drawn so far from each device's stream; what a stream goes on from.
std::vector<std::pair<std::string, uint64_t>> counters();
/// Words drawn so far from the stream of `device`; 0 before the first.
uint64_t counter(const std::string& device);
/// Gives back what was drawn: the counter goes from `after` to `before`, unless somebody else has drawn since.
void take_back(const std::string& device, uint64_t before, uint64_t after);
void set_counter(const std::string& device, uint64_t words);
/// While set on this thread, draws are appended here; returns what was set before.
std::vector<Draw>* record(std::vector<Draw>* draws);

}  // namespace tg::rng
