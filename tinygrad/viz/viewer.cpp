/// \file Routes of the viewer.
#include "tinygrad/viz/viewer.h"

#include <charconv>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/viz/assembly.h"
#include "tinygrad/viz/drawn_graph.h"
#include "tinygrad/viz/recording_json.h"

namespace tg::viz {
// Made by CMake of tinygrad/viz/page and of Debian's libjs-d3.
std::string_view page_html();
std::string_view page_css();
std::string_view page_d3();
std::string_view page_app();
std::string_view page_graph_canvas();
std::string_view page_graph_view();
std::string_view page_charts();
std::string_view page_parts();
std::string_view page_program();
std::string_view page_tables();

namespace {
using Json = nlohmann::ordered_json;

/// A file of the page.
struct PageFile {
  std::string_view path;
  std::string_view (*text)();
  const char* type;
};
constexpr const char *kHtml = "text/html; charset=utf-8", *kCss = "text/css; charset=utf-8",
                     *kScript = "text/javascript; charset=utf-8";
constexpr PageFile kPageFiles[] = {
    {"/", page_html, kHtml},
    {"/page.css", page_css, kCss},
    {"/d3.js", page_d3, kScript},
    {"/app.js", page_app, kScript},
    {"/graph_canvas.js", page_graph_canvas, kScript},
    {"/graph_view.js", page_graph_view, kScript},
    {"/charts.js", page_charts, kScript},
    {"/parts.js", page_parts, kScript},
    {"/program.js", page_program, kScript},
    {"/tables.js", page_tables, kScript},
};

/// Why a request is refused.
struct Refused {
  int status;
  std::string message;
};

/// What stands behind the question mark: keys with whole numbers.
class Query {
 public:
  explicit Query(std::string_view text) : text_(text) {}
  std::optional<uint64_t> find(std::string_view key) const {
    for (std::string_view left = text_; !left.empty();) {
      const std::string_view pair = left.substr(0, left.find('&'));
      left.remove_prefix(std::min(left.size(), pair.size() + 1));
      if (!pair.starts_with(key) || pair.substr(key.size(), 1) != "=") continue;
      const std::string_view digits = pair.substr(key.size() + 1);
      uint64_t v = 0;
      const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), v);
      if (failed != std::errc() || end != digits.data() + digits.size())
        throw Refused{400, str(key, ": expected a whole number")};
      return v;
    }
    return {};
  }
  uint64_t get(std::string_view key, uint64_t otherwise) const { return find(key).value_or(otherwise); }

 private:
  std::string_view text_;
};

/// A recording, and the state of its file when it was read.
struct Loaded {
  std::shared_ptr<const Recording> recording;
  uint64_t version = 0, bytes = 0;
  std::filesystem::file_time_type time = {};
};

const Span& span_of(const Recording& r, const Query& q) {
  const Span* s = r.span(q.get("span", 0));
  if (!s) throw Refused{404, "the recording has no such span"};
  return *s;
}

std::string serve_overview(const Recording& r, const Query&) { return json_overview(r); }
std::string serve_span(const Recording& r, const Query& q) { return json_span(r, span_of(r, q)); }
std::string serve_graph(const Recording& r, const Query& q) {
  const Span& s = span_of(r, q);
  const DrawnGraphOptions options{.snapshot = q.get("graph", 0),
                                  .rewrites = q.get("step", 0),
                                  .since = q.get("since", SIZE_MAX),
                                  .keep_constants = q.get("constants", 0) != 0};
  if (options.snapshot >= s.graphs.size()) throw Refused{404, "the span has no such graph"};
  return drawn_graph(r, s, options);
}
std::string serve_timeline(const Recording& r, const Query& q) {
  const auto time = [](uint64_t t) { return static_cast<int64_t>(std::min<uint64_t>(t, INT64_MAX)); };
  return json_timeline(r, time(q.get("begin", 0)), time(q.get("end", INT64_MAX)), time(q.get("shortest", 0)));
}
std::string serve_assembly(const Recording& r, const Query& q) {
  return Json({{"assembly", assembly_of(r, span_of(r, q))}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string serve_trace(const Recording& r, const Query&) { return trace_events(r); }

/// A question about a recording.
struct Route {
  std::string_view path;
  std::string (*serve)(const Recording&, const Query&);
  const char* download = nullptr;  ///< the name of a file to be saved
};
constexpr Route kRoutes[] = {
    {"/api/overview", serve_overview}, {"/api/span", serve_span},         {"/api/graph", serve_graph},
    {"/api/timeline", serve_timeline}, {"/api/assembly", serve_assembly}, {"/api/trace", serve_trace, "trace.json"},
};

io::HttpResponse refusal(int status, std::string_view message) {
  return {status, Json({{"error", message}}).dump(-1, ' ', false, Json::error_handler_t::replace)};
}
}  // namespace

struct Viewer::State {
  std::vector<std::string> files;
  std::mutex mutex;  // guards `loaded`
  std::vector<Loaded> loaded;
  std::function<MachineLimits()> measure;
  std::once_flag measured;
  MachineLimits limits;

  /// Returns a recording, read again where its file changed. One that is being replaced or is damaged now stays what
  /// it was.
  Loaded current(size_t i) {
    const std::lock_guard lock(mutex);
    Loaded& l = loaded[i];
    std::error_code missing;
    const uint64_t bytes = std::filesystem::file_size(files[i], missing);
    const auto time = missing ? l.time : std::filesystem::last_write_time(files[i], missing);
    if (missing || (l.recording && bytes == l.bytes && time == l.time)) return l;
    try {
      l.recording = std::make_shared<Recording>(read_recording(files[i]));
      l.version++;
    } catch (const Error&) {
      if (!l.recording) throw;
    }
    l.bytes = bytes;
    l.time = time;
    return l;
  }

  std::string list() {
    Json out = Json::array();
    for (size_t i = 0; i < files.size(); i++) {
      const Loaded l = current(i);
      out.push_back({{"file", std::filesystem::path(files[i]).filename().string()},
                     {"bytes", l.bytes},
                     {"version", l.version},
                     {"nanoseconds", l.recording->length}});
    }
    return out.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  std::string machine() {
    std::call_once(measured, [&] {
      if (measure) limits = measure();
    });
    return Json({{"operations", limits.operations}, {"bytes", limits.bytes}}).dump();
  }

  io::HttpResponse route(const io::HttpRequest& request) {
    if (request.method != "GET" && request.method != "HEAD") {
      io::HttpResponse no = refusal(405, "expected GET");
      no.headers.push_back({"Allow", "GET"});
      return no;
    }
    for (const PageFile& f : kPageFiles)
      if (request.path == f.path) return {200, std::string(f.text()), f.type};
    if (request.path == "/api/files") return {200, list()};
    if (request.path == "/api/machine") return {200, machine()};
    const Query query(request.query);
    for (const Route& route : kRoutes) {
      if (request.path != route.path) continue;
      const uint64_t file = query.get("file", 0);
      if (file >= files.size()) return refusal(404, "there is no such recording");
      io::HttpResponse answer{200, route.serve(*current(file).recording, query)};
      if (route.download)
        answer.headers.push_back({"Content-Disposition", str("attachment; filename=\"", route.download, '"')});
      return answer;
    }
    return refusal(404, "there is no such path");
  }
};

Viewer::Viewer(std::vector<std::string> files, std::function<MachineLimits()> measure)
    : state_(std::make_unique<State>()) {
  TG_CHECK(ValueError, !page_d3().empty(),
           "[viz] this build has no page: it was configured without d3 (Debian: libjs-d3, or -DTG_D3=FILE); --text and "
           "--json print recordings");
  state_->files = std::move(files);
  state_->measure = std::move(measure);
  state_->loaded.resize(state_->files.size());
  for (size_t i = 0; i < state_->files.size(); i++) {
    if (!std::filesystem::exists(state_->files[i])) read_recording(state_->files[i]);  // says what is wrong
    state_->current(i);
  }
}
Viewer::~Viewer() = default;

io::HttpResponse Viewer::answer(const io::HttpRequest& request) {
  io::HttpResponse out;
  try {
    out = state_->route(request);
  } catch (const Refused& e) { out = refusal(e.status, e.message); } catch (const ValueError& e) {
    out = refusal(400, e.what());
  } catch (const Error& e) { out = refusal(500, e.what()); }
  // Names in a recording may be anything. The page writes them as text; should one become markup, it can do nothing.
  for (const auto& [name, value] : {std::pair("Content-Security-Policy",
                                              "default-src 'none'; script-src 'self'; style-src 'self'; "
                                              "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                                              "frame-ancestors 'none'"),
                                    std::pair("Cache-Control", "no-store")})
    out.headers.push_back({name, value});
  return out;
}

io::HttpOptions viewer_server_options(uint16_t port) {
  io::HttpOptions o;
  o.port = port;
  o.limits.unsent_bytes = size_t{1} << 30;
  o.limits.all_unsent_bytes = uint64_t{2} << 30;
  o.stop_on_signals = true;
  o.error_body = [](int status, std::string_view message, std::string_view) { return refusal(status, message).body; };
  return o;
}

}  // namespace tg::viz
