/// \file The random number streams: the state a replayed step needs to draw fresh values.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tg::rng {

/// One draw: `words` 32-bit words of the stream of `device`, generated from `key`.
struct Draw {
  std::string device;
  int64_t words;
  uint64_t key;
};
/// Set to true when TRAINING is read while it has the value `outer`. Returns the previous watch.
struct TrainingRead {
  bool outer = false, seen = false;
};
TrainingRead* watch_training(TrainingRead* t);
/// Name of the bound variable that passes a key (as int64) to a kernel.
inline constexpr const char* kKeyVariable = "rng_key";
/// Advances the stream of `device` by `words` and returns the key these words are generated from. `words` <= 2^32 - 1.
uint64_t next_key(const std::string& device, int64_t words);
/// Returns the words drawn so far from each device's stream, from which a stream continues.
std::vector<std::pair<std::string, uint64_t>> counters();
/// Returns the words drawn so far from the stream of `device`; 0 before the first.
uint64_t counter(const std::string& device);
/// Returns drawn words: the counter goes back from `after` to `before`, unless somebody else has drawn since.
void take_back(const std::string& device, uint64_t before, uint64_t after);
void set_counter(const std::string& device, uint64_t words);
/// All streams: what manual_seed() was given, and key and counter of each device that numbers were drawn on.
struct State {
  struct Stream {
    std::string device;
    uint64_t key, counter;
  };
  uint64_t seed = 0;
  std::vector<Stream> streams;
};
State state();
/// Goes on where `state` was taken.
void set_state(const State& state);
/// Appends this thread's draws to `draws` while set; returns the previous list.
std::vector<Draw>* record(std::vector<Draw>* draws);

}  // namespace tg::rng
