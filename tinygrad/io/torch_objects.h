/// \file What the pickles of torch.save mean: a closed table of names becomes tensors, containers and numbers.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tinygrad/io/pickle.h"
#include "tinygrad/io/torch_file.h"

namespace tg::io {

/// Builds a TorchFile from the pickle in it. Storages are found by key; where their bytes lie is for the caller to fill
/// in. Throws FormatError that begins with `what`.
class TorchObjects {
 public:
  /// `base`: where the pickle lies in the file.
  TorchObjects(std::string_view what, uint64_t base, bool keep_opaque)
      : what_(what), base_(base), keep_opaque_(keep_opaque) {}

  /// Reads the pickle at the beginning of `bytes` and returns its length.
  uint64_t read(std::span<const uint8_t> bytes);
  /// Storages in the order the pickle names them.
  std::vector<TorchStorage>& storages() { return file_.storages; }
  uint64_t element_size(const TorchStorage& s) const;
  TorchFile take() { return std::move(file_); }

  // The tar format of PyTorch 0.1 has storages and tensors in front of the pickle.
  void add_storage(TorchStorage storage, DType dtype);
  void add_tensor(const std::string& key, const std::string& storage, TorchTensor tensor, uint64_t at);

  /// All classes and functions that are known, refused ones included.
  static std::span<const PickleName> names();
  /// Type of the elements of a storage class ("FloatStorage"), nothing for one this library cannot hold.
  static std::optional<DType> storage_type(std::string_view name);

 private:
  /// Part of a storage: old files have storages that are parts of others.
  struct StorageView {
    uint32_t storage;
    uint64_t first, count;  ///< elements
  };
  using Call = TorchNode (TorchObjects::*)(PickleId node, const std::vector<PickleId>& args);
  struct Known;
  static std::span<const Known> table();
  const Known* known(PickleId name) const;

  /// Counts memory that is made of objects beside themselves: a short pickle can ask for many copies of a long list.
  void charge(uint64_t bytes, PickleId at);
  std::vector<bool> reached() const;
  void list_opaque(const std::vector<bool>& used);
  std::vector<int64_t> sizes(PickleId list, PickleId of);
  template <class... A> void check(bool ok, PickleId at, const A&... got) const;
  const PickleNode& node(PickleId id) const { return pickle_[id]; }
  const std::vector<PickleId>& tuple(PickleId id) const;
  int64_t integer(PickleId id) const;
  uint64_t size(PickleId id) const;
  std::string_view text(PickleId id) const;
  std::string_view bytes(PickleId id) const;
  std::string key(PickleId id) const;
  DType dtype(PickleId id) const;

  void resolve(PickleId id);
  void reference(PickleId id);
  void tensor_reference(PickleId id);
  TorchNode call(PickleId id, PickleId function, PickleId args);
  TorchNode add(TorchTensor t, const StorageView& view, DType storage_type, uint64_t at);
  void check_inside(const TorchTensor& t, const StorageView& view, uint64_t at) const;
  TorchNode whole(const StorageView& view);

  // One for each function that is known.
  TorchNode tensor(PickleId node, const std::vector<PickleId>& args);
  TorchNode first(PickleId node, const std::vector<PickleId>& args);
  TorchNode from_type(PickleId node, const std::vector<PickleId>& args);
  TorchNode torch_size(PickleId node, const std::vector<PickleId>& args);
  TorchNode dictionary(PickleId node, const std::vector<PickleId>& args);
  TorchNode set(PickleId node, const std::vector<PickleId>& args);
  TorchNode byte_string(PickleId node, const std::vector<PickleId>& args);
  TorchNode encode(PickleId node, const std::vector<PickleId>& args);
  TorchNode numpy_dtype(PickleId node, const std::vector<PickleId>& args);
  TorchNode numpy_scalar(PickleId node, const std::vector<PickleId>& args);
  TorchNode numpy_array(PickleId node, const std::vector<PickleId>& args);
  TorchNode opaque(PickleId name, PickleId args);
  DType numpy_type(PickleId id) const;

  std::string_view what_;
  uint64_t base_;
  bool keep_opaque_;
  uint64_t budget_ = 0;  // bytes that may still be derived
  Pickle pickle_;
  TorchFile file_;
  std::vector<DType> storage_types_;
  std::unordered_map<std::string, uint32_t> storage_numbers_, tensor_numbers_;
  std::unordered_map<PickleId, StorageView> views_;
};

}  // namespace tg::io
