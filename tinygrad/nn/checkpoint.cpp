/// \file Checkpoints.
#include "tinygrad/nn/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "tinygrad/base/error.h"
#include "tinygrad/nn/world_file.h"
#include "tinygrad/runtime/world/agree.h"
#include "tinygrad/tensor/ops/random.h"

namespace tg::nn {
namespace {

constexpr std::string_view kFormat = "tinygrad checkpoint 1";
constexpr const char *kFormatKey = "format", *kStepKey = "step", *kRandomKey = "random", *kOwnPrefix = "user.";
constexpr size_t kMaxStreams = 1024;

/// Reads a whole text as a number.
template <class T> std::optional<T> number(std::string_view text) {
  T v{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error == std::errc() && end == text.data() + text.size() ? std::optional<T>(v) : std::nullopt;
}

/// Names of a model's tensors by handle.
std::unordered_map<const void*, std::string> names_of(const StateDict& model) {
  std::unordered_map<const void*, std::string> out;
  for (const auto& [name, t] : model) out.emplace(t.impl(), name);
  return out;
}

/// Returns all tensors of a checkpoint under their names in the file.
StateDict tensors_of(const Checkpoint& c, std::string_view op) {
  StateDict out;
  for (const auto& [name, t] : c.model) out.emplace_back("model." + name, t);
  const auto names = names_of(c.model);
  for (size_t i = 0; i < c.optimizers.size(); i++) {
    const Optimizer& o = *c.optimizers[i];
    const std::string prefix = str("optimizer.", i, ".");
    out.emplace_back(prefix + "lr", o.lr);
    for (const Optimizer::StateSlot& slot : o.state_slots()) {
      if (!slot.per_parameter) {
        out.emplace_back(prefix + slot.name, o.state()[slot.first]);
        continue;
      }
      for (size_t j = 0; j < o.params().size(); j++) {
        const auto name = names.find(o.params()[j].impl());
        TG_CHECK(ValueError, name != names.end(), "[", op, "] got an optimizer whose parameter ", j, " of shape ",
                 o.params()[j].shape(), " is not in the model, expected one of get_parameters(model)");
        out.emplace_back(str(prefix, slot.name, ".", name->second), o.state()[slot.first + j]);
      }
    }
  }
  return out;
}

const std::string* find(const Metadata& m, std::string_view key) {
  const auto at = std::find_if(m.begin(), m.end(), [&](const auto& e) { return e.first == key; });
  return at == m.end() ? nullptr : &at->second;
}

/// Cuts off what is in front of a separator, or all.
std::string_view next(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view out = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return out;
}

rng::State parse_random(std::string_view text) {
  const auto check = [](bool ok) {
    TG_CHECK(FormatError, ok, "[set_random_state] got a text that is no state of random numbers");
  };
  rng::State out;
  const std::optional<uint64_t> seed = number<uint64_t>(next(text, ';'));
  check(seed.has_value());
  out.seed = *seed;
  while (!text.empty()) {
    std::string_view one = next(text, ';');
    const size_t name = one.rfind('=');
    check(name != std::string_view::npos && name > 0 && out.streams.size() < kMaxStreams);
    std::string_view numbers = one.substr(name + 1);
    const std::optional<uint64_t> key = number<uint64_t>(next(numbers, ',')), counter = number<uint64_t>(numbers);
    check(key && counter);
    out.streams.push_back({std::string(one.substr(0, name)), *key, *counter});
  }
  return out;
}

}  // namespace

std::string random_state() {
  const rng::State s = rng::state();
  std::string out = std::to_string(s.seed);
  for (const rng::State::Stream& one : s.streams) out += str(";", one.device, "=", one.key, ",", one.counter);
  return out;
}

void set_random_state(std::string_view state) { rng::set_state(parse_random(state)); }

namespace {
Metadata texts_of(const Checkpoint& c) {
  Metadata out{{kFormatKey, std::string(kFormat)}, {kStepKey, std::to_string(c.step)}, {kRandomKey, random_state()}};
  for (const auto& [key, value] : c.metadata) out.emplace_back(kOwnPrefix + key, value);
  return out;
}

/// What a file says besides tensors.
struct Read {
  StateDict tensors;
  Metadata metadata;
  int64_t step = 0;
  rng::State random;
};
Read read_checkpoint(const std::filesystem::path& path) {
  Read out;
  out.metadata = safe_metadata(path);
  const std::string *format = find(out.metadata, kFormatKey), *step = find(out.metadata, kStepKey),
                    *random = find(out.metadata, kRandomKey);
  TG_CHECK(FormatError, format && *format == kFormat && step && random, "[load_checkpoint] ", path.string(),
           ": got a file that save_checkpoint did not write");
  const std::optional<int64_t> count = number<int64_t>(*step);
  TG_CHECK(FormatError, count, "[load_checkpoint] ", path.string(), ": got step '", step->substr(0, 32), "'");
  out.step = *count;
  out.random = parse_random(*random);
  out.tensors = safe_load(path);
  return out;
}
}  // namespace

void save_checkpoint(const Checkpoint& c, const std::filesystem::path& path) {
  safe_save(tensors_of(c, "save_checkpoint"), path, texts_of(c));
}

void save_sharded_checkpoint(const Checkpoint& c, const std::filesystem::path& folder) {
  safe_save_together(tensors_of(c, "save_sharded_checkpoint"), folder, texts_of(c));
}

namespace {
/// Returns the names of tensors in all processes.
std::unordered_set<std::string> names_of_all(const StateDict& tensors) {
  std::string mine;
  for (const auto& [name, t] : tensors) mine.append(name).push_back('\0');
  std::unordered_set<std::string> out;
  for (const std::string& names : distributed::of_all(mine))
    for (std::string_view left = names; !left.empty();) out.emplace(next(left, '\0'));
  return out;
}
/// Returns what this process has of the tensors of a file, and what nobody has, for an error: stages of a pipeline have
/// the rest.
StateDict part_of(const StateDict& file, const StateDict& own) {
  const std::unordered_set<std::string> all = names_of_all(own);
  std::unordered_set<std::string_view> mine;
  for (const auto& [name, t] : own) mine.insert(name);
  StateDict out;
  for (const auto& [name, t] : file)
    if (mine.contains(name) || !all.contains(name)) out.emplace_back(name, t);
  return out;
}
}  // namespace

void load_checkpoint(Checkpoint& c, const std::filesystem::path& path) {
  Read read;
  StateDict own;
  distributed::together("load_checkpoint", [&] {
    read = read_checkpoint(path);
    own = tensors_of(c, "load_checkpoint");
  });
  const StateDict part = part_of(read.tensors, own);
  distributed::together("load_checkpoint", [&] { load_state_dict(own, part); });
  rng::set_state(read.random);
  c.step = read.step;
  c.metadata.clear();
  for (const auto& [key, value] : read.metadata)
    if (key.starts_with(kOwnPrefix)) c.metadata.emplace_back(key.substr(5), value);
}

}  // namespace tg::nn
