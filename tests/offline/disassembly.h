/// \file Machine code of NVIDIA's GPUs as text.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tinygrad/base/env.h"
#include "tinygrad/base/process.h"

namespace tg::testing {

/// Returns nvdisasm's path: in PATH, of a toolkit, or of the Python package triton next to the one that has NVRTC;
/// empty: it is not here.
inline std::string find_nvdisasm() {
  if (has_program("nvdisasm")) return "nvdisasm";
  std::vector<std::filesystem::path> places{"/usr/local/cuda/bin/nvdisasm"};
  std::filesystem::path folder = env::NVRTC.get();
  for (int up = 0; up < 5 && folder.has_parent_path(); up++) {
    folder = folder.parent_path();
    places.push_back(folder / "triton/backends/nvidia/bin/nvdisasm");
  }
  for (const std::filesystem::path& p : places) {
    std::error_code ignored;
    if (std::filesystem::exists(p, ignored)) return p.string();
  }
  return "";
}

/// Returns what nvdisasm says of a cubin.
inline std::string disassembled(const std::string& nvdisasm, const std::vector<uint8_t>& cubin) {
  const TempDir folder;
  const std::filesystem::path file = folder.path() / "kernel.cubin";
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(cubin.data()), static_cast<std::streamsize>(cubin.size()));
  const ProcessResult r = run_process({nvdisasm, "-c", file.string()});
  EXPECT_TRUE(r.ok()) << r.err;
  return r.out;
}

}  // namespace tg::testing
