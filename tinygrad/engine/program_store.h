/// \file Compiled kernels on disk: a warm start loads them without codegen. Entries are tied to the exact build of the
/// library.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/target/program.h"

namespace tg {

/// Identity of the running build: the linker's build id of the module that holds the library, or size and time of its
/// file.
const std::string& build_identity();

/// What `load` needs of a program, without its graph. Empty when absent, from another build, or damaged (a damaged
/// entry is never trusted).
std::shared_ptr<Program> load_stored_program(const std::string& key);
/// Stores a compiled program; does nothing for one whose launch depends on symbolic expressions.
void store_program(const std::string& key, const Program& p);

}  // namespace tg
