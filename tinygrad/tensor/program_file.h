/// \file Files of the user's program in recordings.
#pragma once
#include <string>
#include <string_view>

namespace tg {

/// Records the text of a file of the program, once for each recording, so that its lines can be shown with the kernels
/// made for them. `name`: what call sites (tensor/provenance.h) name it.
void record_program_file(const std::string& path, std::string_view name, std::string_view language);

}  // namespace tg
