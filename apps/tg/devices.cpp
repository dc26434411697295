/// \file tg devices: lists this machine's devices, what is missing for the others, and how to install it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/tg/command.h"
#include "tinygrad/runtime/device.h"

namespace tg::app {

std::function<int()> define_devices(CLI::App& app) {
  app.footer("Examples:\n  tg devices\n  tg devices --json | jq .");
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "One JSON object a line instead of a table");
  return [json] {
    const std::vector<DeviceInfo> devices = Device::list();
    const std::string chosen = Device::default_name();
    if (*json) {
      for (const DeviceInfo& d : devices)
        std::cout << nlohmann::ordered_json{{"name", d.name},
                                            {"available", d.available},
                                            {"default", d.name == chosen},
                                            {"note", d.note},
                                            {"install", d.install}}
                  << "\n";
      return static_cast<int>(kOk);
    }
    size_t width = 0;
    for (const DeviceInfo& d : devices) width = std::max(width, d.name.size());
    for (const DeviceInfo& d : devices) {
      std::printf("%c %-*s  %-3s  %s\n", d.name == chosen ? '*' : ' ', static_cast<int>(width), d.name.c_str(),
                  d.available ? "yes" : "no", d.note.c_str());
      if (!d.install.empty())
        std::printf("  %*s       to install: %s\n", static_cast<int>(width), "", d.install.c_str());
    }
    return static_cast<int>(kOk);
  };
}

}  // namespace tg::app
