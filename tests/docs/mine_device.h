/// \file The device that docs/new_backend.md registers. It has no hardware: opening it says so.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/render/listing.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/device_registry.h"

class MineDevice final : public tg::Device {
 public:
  explicit MineDevice(const std::string& name) : Device(name, nullptr) { missing(); }
  bool handles_are_addresses() const override { missing(); }
  tg::Queue& queue() override { missing(); }
  const tg::Target& target() override { missing(); }
  tg::Compiler& compiler(const tg::Target&) override { missing(); }
  tg::Compiler& source_compiler(const tg::Target&) override { missing(); }
  using Device::load;
  std::shared_ptr<tg::Executable> load(std::span<const uint8_t>, const std::string&) override { missing(); }

 private:
  [[noreturn]] static void missing() { throw tg::DeviceError("[MINE] there is no accelerator"); }
};

using MineRenderer = tg::ListingRenderer;
