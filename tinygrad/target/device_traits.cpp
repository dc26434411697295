/// \file The table of device traits.
#include "tinygrad/target/device_traits.h"

#include <map>
#include <mutex>
#include <string>

namespace tg {
namespace {
struct Table {
  std::mutex mutex;
  std::map<std::string, DeviceTraits, std::less<>> kinds{{"CPU", {.row_kernels = true, .attention_kernels = true}}};
};
Table& table() {
  static auto* t = new Table;
  return *t;
}
}  // namespace

DeviceTraits device_traits(std::string_view device) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  const auto it = t.kinds.find(device.substr(0, device.find(':')));
  return it == t.kinds.end() ? DeviceTraits{} : it->second;
}

void set_device_traits(std::string_view kind, DeviceTraits traits) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  t.kinds.insert_or_assign(std::string(kind), traits);
}

}  // namespace tg
