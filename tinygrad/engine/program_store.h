/// \file Compiled kernels on disk: a warm start loads them without codegen. Entries are tied to the exact build of the
/// library.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/base/binary.h"
#include "tinygrad/target/program.h"

namespace tg {

/// Returns the identity of the running build: the linker's build id of the module that holds the library, or size and
/// modification time of its file.
const std::string& build_identity();

/// Returns a stored program without its graph: all that Device::load needs. Empty when it is absent, of another build
/// or damaged.
std::shared_ptr<Program> load_stored_program(const std::string& key);
/// Stores a compiled program.
void store_program(const std::string& key, const Program& p);

/// Writes and reads what a program says of images. Throws FormatError for sizes that are none.
void write_images(ByteWriter& w, const Program& p);
void read_images(ByteReader& r, Program& p);

/// Whether a graph that was read is arithmetic on integers and variables, as sizes of launches are.
bool is_size_expression(UOp u);

}  // namespace tg
