/// \file NumPy's files: .npy (one array) and .npz (a zip archive of them).
#pragma once
#include <cstdint>
#include <filesystem>

#include "tinygrad/nn/byte_source.h"
#include "tinygrad/nn/state.h"

namespace tg::nn {

/// Returns the array of a .npy file with its shape and type, on the CPU, read when it is used. Fortran order becomes a
/// permutation; big-endian elements are turned around when they are read. FileError; FormatError (io/npy.h), also for
/// arrays of objects.
Tensor npy_load(const std::filesystem::path& path);
Tensor npy_load(const ByteSource& source);
/// Writes one array in C order; an old file is replaced when the new one is complete. DTypeError for bfloat16, fp8 and
/// weak types, which NumPy lacks; ValueError for an undefined tensor.
void npy_save(const Tensor& t, const std::filesystem::path& path);

/// Returns the arrays of a .npz file by name, without ".npy". Stored arrays are read when they are used, compressed
/// ones are unpacked at once. FormatError (io/zip.h, io/npy.h) for archives that hold something else.
StateDict npz_load(const std::filesystem::path& path);
StateDict npz_load(const ByteSource& source);
/// Writes arrays as np.savez does. ValueError for names that occur twice; DTypeError as npy_save.
void npz_save(const StateDict& arrays, const std::filesystem::path& path);

}  // namespace tg::nn
