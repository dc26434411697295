/// \file Who writes what, and in which order it becomes visible.
#include "tinygrad/nn/world_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <set>
#include <string_view>
#include <unordered_map>

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

/// A tensor of the world, as all processes know it.
struct Entry {
  std::string name, type;  ///< type: dtype, shape and where it is
  int64_t bytes = 0;
  bool divided = false;  ///< over the processes, which gather it together
  std::vector<int> holders{};
  int owner = 0;  ///< who writes it
};

/// Says what tensors this process has: a line for each, and its name, which may have any characters, behind its length.
std::string inventory_of(const StateDict& tensors) {
  std::string out;
  for (const auto& [name, t] : tensors) {
    const bool divided = is_world(t.device());
    out += fmt::format("{} {} {} {} of shape {}{}\n{}", bytes_of(t), divided ? 1 : 0, name.size(), str(t.dtype()),
                       str(t.shape()), divided ? ", on " + t.device() : "", name);
  }
  return out;
}
std::vector<Entry> parse_inventory(std::string_view text) {
  std::vector<Entry> out;
  const auto next_number = [&] {
    int64_t n = 0;
    const char* const end = std::from_chars(text.data(), text.data() + text.size(), n).ptr;
    text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
    return n;
  };
  while (!text.empty()) {
    Entry e;
    e.bytes = next_number();
    e.divided = next_number() != 0;
    const auto length = static_cast<size_t>(next_number());
    const size_t end = text.find('\n');
    e.type = text.substr(0, end);
    e.name = text.substr(end + 1, length);
    text.remove_prefix(end + 1 + length);
    out.push_back(std::move(e));
  }
  return out;
}

/// Returns the tensors that the processes have, each once: a stage of a pipeline has some that others do not. The same
/// in all, or the same ValueError.
std::vector<Entry> tensors_of_all(const StateDict& tensors) {
  std::vector<Entry> out;
  std::unordered_map<std::string, size_t> known;
  const std::vector<std::string> texts = distributed::of_all(inventory_of(tensors));
  for (size_t r = 0; r < texts.size(); r++)
    for (Entry& e : parse_inventory(texts[r])) {
      const auto [at, is_new] = known.emplace(e.name, out.size());
      if (is_new) out.push_back(std::move(e));
      Entry& entry = out[at->second];
      TG_CHECK(ValueError, is_new || entry.type == e.type, "[", kOperation, "] got ", entry.name, " as ", e.type,
               " in rank ", r, ", expected ", entry.type, ", as in rank ",
               entry.holders.empty() ? 0 : entry.holders[0]);
      entry.holders.push_back(static_cast<int>(r));
    }
  for (const Entry& e : out)
    TG_CHECK(ValueError, !e.divided || e.holders.size() == texts.size(), "[", kOperation, "] got ", e.name, ", ",
             e.type, ", in some processes only, expected a tensor that is divided over processes in all of them");
  return out;
}

/// Decides who writes what: the largest first, each by that process of those that have it which has least.
void choose_owners(std::vector<Entry>& entries) {
  std::vector<Entry*> order;
  for (Entry& e : entries) order.push_back(&e);
  std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return a->bytes > b->bytes; });
  std::vector<int64_t> load(static_cast<size_t>(distributed::size()), 0);
  const auto load_of = [&](int r) -> int64_t& { return load[static_cast<size_t>(r)]; };
  for (Entry* e : order) {
    e->owner =
        *std::min_element(e->holders.begin(), e->holders.end(), [&](int a, int b) { return load_of(a) < load_of(b); });
    load_of(e->owner) += e->bytes + 1;
  }
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
StateDict own_part(const StateDict& tensors, const std::vector<Entry>& entries) {
  StateDict out;
  std::unordered_map<std::string_view, const Tensor*> own;
  for (const auto& [name, t] : tensors) own.emplace(name, &t);
  Tensors batch;
  int64_t gathered = 0;
  const auto compute = [&] {
    if (!batch.empty()) realize(batch);
    batch.clear();
    gathered = 0;
  };
  for (const Entry& e : entries) {
    const bool mine = e.owner == distributed::rank();
    if (!mine && !e.divided) continue;
    const Tensor& t = *own.at(e.name);
    batch.push_back((t.devices().size() > 1 ? t.detach().to("CPU") : t.detach()).contiguous());
    if (mine) out.emplace_back(e.name, batch.back());
    if (e.divided) gathered += e.bytes;  // the same in all, so that they gather the same at once
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

  PartNames(const std::string& name, const std::string& save, const std::vector<Entry>& entries)
      : of_rank(static_cast<size_t>(distributed::size())) {
    std::set<int> writers;
    for (const Entry& e : entries) writers.insert(e.owner);
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

/// Looks whether all parts are where the index will name them.
void check_parts(const PartNames& parts, const std::filesystem::path& folder) {
  for (size_t r = 0; r < parts.of_rank.size(); r++)
    TG_CHECK(FileError, parts.of_rank[r].empty() || std::filesystem::exists(folder / parts.of_rank[r]), "[", kOperation,
             "] ", folder.string(), ": rank ", r,
             " wrote its part elsewhere, expected one folder that all processes see");
}

/// Makes the parts a model: the index replaces the old one.
void write_index(const std::vector<Entry>& entries, const PartNames& parts, const std::filesystem::path& path,
                 const Metadata& metadata) {
  io::SafetensorsIndex index{{}, metadata};
  int64_t total = 0;
  for (const Entry& e : entries) {
    index.files.emplace_back(e.name, parts.of_rank[static_cast<size_t>(e.owner)]);
    total += e.bytes;
  }
  index.metadata.emplace_back("total_size", std::to_string(total));
  const std::string text = io::safetensors_index(index);
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  io::write_file_durable(path, std::span(&bytes, 1), kOperation);
}

}  // namespace

void safe_save_together(const StateDict& tensors, const std::filesystem::path& folder, const Metadata& metadata,
                        const std::string& name) {
  distributed::together(kOperation, [&] { check_tensors(tensors); });
  const std::string save = number_of_save();
  std::vector<Entry> entries = tensors_of_all(tensors);
  choose_owners(entries);
  const PartNames parts(name, save, entries);
  const std::string& mine = parts.of_rank[static_cast<size_t>(distributed::rank())];
  const StateDict part = own_part(tensors, entries);
  distributed::together(kOperation, [&] {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    TG_CHECK(FileError, !failed, "[", kOperation, "] ", folder.string(), ": ", failed.message());
    if (!mine.empty()) safe_save(part, folder / mine, {{"format", "pt"}, {kSaveKey, save}});
  });
  distributed::together(kOperation, [&] {
    if (distributed::rank() != 0) return;
    check_parts(parts, folder);
    Metadata texts = metadata;
    texts.emplace_back(kSaveKey, save);
    write_index(entries, parts, folder / (name + ".safetensors.index.json"), texts);
    remove_other_parts(folder, name, parts.of_rank);
  });
}

}  // namespace tg::nn
