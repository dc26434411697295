/// \file The pages that `tg viz` serves: what a browser asks for, answered from recordings.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/io/http_server.h"

namespace tg::viz {

/// Answers requests about one recording, or two that are compared. The files are those it was made with: no request
/// names a file. What grew since the last request is read again.
class Viewer {
 public:
  /// FileError or FormatError as read_recording(); ValueError where this build has no page (it was configured without
  /// d3, the library that draws the charts).
  explicit Viewer(std::vector<std::string> files);
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
