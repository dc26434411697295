/// \file Who writes what, and in which order it becomes visible.
#include "tinygrad/nn/world_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/safetensors.h"
#include "tinygrad/runtime/world/agree.h"
#include "tinygrad/runtime/world/world.h"

namespace tg::nn {
namespace {

constexpr const char* kOperation = "safe_save_together";
constexpr int64_t kGatheredAtOnce = 256 << 20;  ///< bytes that processes have of others' parts
constexpr size_t kSaveDigits = 16;

int64_t bytes_of(const Tensor& t) { return t.numel() * t.element_size(); }

/// Returns for each tensor the process that writes it: the largest first, each to whoever has least.
std::vector<int> owners_of(const StateDict& tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes_of(tensors[a].second) > bytes_of(tensors[b].second); });
  std::vector<int64_t> load(static_cast<size_t>(distributed::size()), 0);
  std::vector<int> out(tensors.size(), 0);
  for (size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    out[i] = static_cast<int>(least - load.begin());
    *least += bytes_of(tensors[i].second) + 1;
  }
  return out;
}

void check_tensors(const StateDict& tensors) {
  for (const auto& [name, t] : tensors) {
    TG_CHECK(ValueError, t.defined(), "[", kOperation, "] got an undefined tensor for ", name,
             ", expected one with values");
    TG_CHECK(DTypeError, !t.dtype().is_weak(), "[", kOperation, "] got ", name, " of ", t.dtype(),
             ", expected concrete dtypes: cast it");
  }
}

/// Returns what this process writes. All processes compute the same values in the same order, because those that are
/// divided are gathered by all.
StateDict own_part(const StateDict& tensors, const std::vector<int>& owners) {
  StateDict out;
  Tensors batch;
  int64_t gathered = 0;
  const auto compute = [&] {
    if (!batch.empty()) realize(batch);
    batch.clear();
    gathered = 0;
  };
  for (size_t i = 0; i < tensors.size(); i++) {
    const auto& [name, t] = tensors[i];
    const bool mine = owners[i] == distributed::rank(), divided = t.devices().size() > 1;
    if (!mine && !divided) continue;
    batch.push_back((divided ? t.detach().to("CPU") : t.detach()).contiguous());
    if (mine) out.emplace_back(name, batch.back());
    gathered += bytes_of(t);
    if (gathered >= kGatheredAtOnce) compute();
  }
  compute();
  return out;
}

/// Returns a number that no other save has, the same in all processes.
std::string number_of_save() {
  std::random_device random;
  return distributed::of_rank_0(fmt::format("{:08x}{:08x}", random(), random()));
}

/// Names of the files of a save: one for each process that has tensors to write.
struct PartNames {
  std::vector<std::string> of_rank;

  PartNames(const std::string& name, const std::string& save, const std::vector<int>& owners)
      : of_rank(static_cast<size_t>(distributed::size())) {
    const std::set<int> writers(owners.begin(), owners.end());
    size_t k = 0;
    for (int r : writers)
      of_rank[static_cast<size_t>(r)] =
          fmt::format("{}-{}-{:05}-of-{:05}.safetensors", name, save, ++k, writers.size());
  }
};

/// Whether a file is a part of some save, or what is left of writing one.
bool is_part(const std::string& file, const std::string& name) {
  const size_t begin = name.size() + 1, end = begin + kSaveDigits;
  if (!file.starts_with(name + "-") || file.size() <= end || file[end] != '-') return false;
  return file.find_first_not_of("0123456789abcdef", begin) == end && file.find(".safetensors", end) != file.npos;
}

void remove_other_parts(const std::filesystem::path& folder, const std::string& name,
                        const std::vector<std::string>& kept) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string file = entry.path().filename().string();
    if (is_part(file, name) && std::find(kept.begin(), kept.end(), file) == kept.end())
      std::filesystem::remove(entry.path(), none);
  }
}

/// Makes the parts a model: the index replaces the old one.
void write_index(const StateDict& tensors, const std::vector<int>& owners, const PartNames& parts,
                 const std::filesystem::path& path, const Metadata& metadata) {
  io::SafetensorsIndex index{{}, metadata};
  int64_t total = 0;
  for (size_t i = 0; i < tensors.size(); i++) {
    index.files.emplace_back(tensors[i].first, parts.of_rank[static_cast<size_t>(owners[i])]);
    total += bytes_of(tensors[i].second);
  }
  index.metadata.emplace_back("total_size", std::to_string(total));
  const std::string text = io::safetensors_index(index);
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  io::write_file_durable(path, std::span(&bytes, 1), kOperation);
}

}  // namespace

void safe_save_together(const StateDict& tensors, const std::filesystem::path& folder, const Metadata& metadata,
                        const std::string& name) {
  check_tensors(tensors);
  const std::string save = number_of_save();
  const std::vector<int> owners = owners_of(tensors);
  const PartNames parts(name, save, owners);
  const std::string& mine = parts.of_rank[static_cast<size_t>(distributed::rank())];
  const StateDict part = own_part(tensors, owners);
  distributed::together(kOperation, [&] {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    TG_CHECK(FileError, !failed, "[", kOperation, "] ", folder.string(), ": ", failed.message());
    if (!mine.empty()) safe_save(part, folder / mine, {{"format", "pt"}, {kSaveKey, save}});
  });
  distributed::together(kOperation, [&] {
    if (distributed::rank() != 0) return;
    Metadata texts = metadata;
    texts.emplace_back(kSaveKey, save);
    write_index(tensors, owners, parts, folder / (name + ".safetensors.index.json"), texts);
    remove_other_parts(folder, name, parts.of_rank);
  });
}

}  // namespace tg::nn
