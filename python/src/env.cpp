/// \file Python: environment variables of this thread, the disk cache and its folder.
#include "tinygrad/base/env.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/paths.h"

namespace tg::python {

void bind_env(nb::module_& m) {
  m.def("env_names", &env::names, "Names of the library's environment variables, in the order of its table.");
  m.def(
      "env_get",
      [](std::string_view name) {
        auto v = env::find(name);
        if (!v) throw nb::key_error(std::string(name).c_str());
        return *v;
      },
      "name"_a, "The value of a variable on this thread: an int or a str. KeyError for an unknown name.");
  m.def(
      "env_set",
      [](const std::string& name, const std::variant<int64_t, std::string>& value) {
        if (!env::find(name)) throw nb::key_error(name.c_str());
        std::visit([&](const auto& v) { env::set({name.c_str(), v}); }, value);
      },
      "name"_a, "value"_a,
      "Changes a variable on this thread. KeyError for an unknown name, ValueError for a value that does not fit.");

  m.def("cache_dir", &cache_dir, "Folder for caches and downloads.");
  m.def(
      "diskcache_get",
      [](std::string_view table, std::string_view key) -> std::optional<nb::bytes> {
        std::optional<std::vector<uint8_t>> v;
        {
          nb::gil_scoped_release release;
          v = disk_cache::get(table, key);
        }
        if (!v) return std::nullopt;
        return nb::bytes(v->data(), v->size());
      },
      "table"_a, "key"_a, "The bytes stored under (table, key), else None.");
  m.def(
      "diskcache_put",
      [](std::string_view table, std::string_view key, nb::bytes value) {
        const std::span bytes(static_cast<const uint8_t*>(value.data()), value.size());
        nb::gil_scoped_release release;
        disk_cache::put(table, key, bytes);
      },
      "table"_a, "key"_a, "value"_a, "Stores bytes under (table, key).");
  m.def(
      "diskcache_clear", [](std::string_view table) { disk_cache::clear(table); }, "table"_a = "",
      "Removes one table's entries, or all.");
}

}  // namespace tg::python
