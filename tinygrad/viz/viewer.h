/// \file The pages that `tg viz` serves: what a browser asks for, answered from recordings.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/io/http_server.h"

namespace tg::viz {

/// What the processor of this machine can do, in a second; zeros where that is not known.
struct MachineLimits {
  double operations = 0;  ///< multiply-adds count as two
  double bytes = 0;       ///< read from memory
};

/// Answers requests about one recording, or two that are compared. The files are those it was made with: no request
/// names a file. What grew since the last request is read again.
class Viewer {
 public:
  /// `measure` finds the limits of this machine; it is called once, when a page asks for them.
  /// FileError or FormatError as read_recording(); ValueError where this build has no page (it was configured without
  /// d3, the library that draws the charts).
  explicit Viewer(std::vector<std::string> files, std::function<MachineLimits()> measure = {});
  ~Viewer();
  Viewer(const Viewer&) = delete;
  /// Returns the answer to a request; bad ones get a status and a message. Any thread.
  io::HttpResponse answer(const io::HttpRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the options of a server for a viewer: this machine alone, large answers.
io::HttpOptions viewer_server_options(uint16_t port);

}  // namespace tg::viz
