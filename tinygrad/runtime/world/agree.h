/// \file Work in which each process of a world has a part, and which counts only when all succeed.
#pragma once
#include <exception>
#include <string>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg::distributed {

/// Tells all processes whether this one did its part, `why` being empty, and waits for what they say. PeerError that
/// names the first rank with a reason, unless this process has one itself: it knows its error better. The world goes
/// on.
void agree(const std::string& operation, const std::string& why);

/// Does this process' part of an operation and returns when all did theirs. Throws its own error, or a PeerError where
/// another process failed, so that none goes on alone.
template <class F> void together(const std::string& operation, F&& part) {
  std::exception_ptr error;
  std::string why;
  try {
    part();
  } catch (const PeerError&) {
    throw;  // the world has ended: there is nobody to tell
  } catch (const std::exception& e) {
    error = std::current_exception();
    why = e.what();
  }
  agree(operation, why);
  if (error) std::rethrow_exception(error);
}

/// Returns the texts of all processes, of any lengths, in the order of the ranks. PeerError where another one fails.
std::vector<std::string> of_all(const std::string& mine);

/// Returns the bytes that rank 0 has, in all processes; the texts have one length.
std::string of_rank_0(std::string text);

}  // namespace tg::distributed
