/// \file GET /metrics: counters in the text format of Prometheus, version 0.0.4.
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "tinygrad/llm/serve/server_state.h"

namespace tg::llm {
namespace {

class MetricsText {
 public:
  void metric(std::string_view name, std::string_view type, std::string_view help) {
    out_ << "# HELP tg_" << name << ' ' << help << "\n# TYPE tg_" << name << ' ' << type << '\n';
    name_ = name;
  }
  template <class T> void value(const T& v, std::string_view labels = {}) {
    out_ << "tg_" << name_ << labels << ' ' << v << '\n';
  }
  template <class T> void counter(std::string_view name, std::string_view help, const T& v) {
    metric(name, "counter", help);
    value(v);
  }
  template <class T> void gauge(std::string_view name, std::string_view help, const T& v) {
    metric(name, "gauge", help);
    value(v);
  }
  std::string text() const { return out_.str(); }

 private:
  std::ostringstream out_;
  std::string name_;
};

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  if (!(statm >> size >> resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

void engine_metrics(MetricsText& m, const EngineCounters& c) {
  m.metric("generations_total", "counter", "Replies asked of the engine, by how they ended.");
  m.value(c.finished, "{end=\"finished\"}");
  m.value(c.cancelled, "{end=\"cancelled\"}");
  m.value(c.failed, "{end=\"failed\"}");
  m.value(c.rejected, "{end=\"rejected\"}");
  m.counter("prompt_tokens_total", "Tokens of prompts that were computed.", c.prompt_tokens);
  m.counter("cached_tokens_total", "Tokens of prompts taken from the prefix cache.", c.cached_tokens);
  m.counter("reply_tokens_total", "Tokens generated.", c.reply_tokens);
  m.counter("decode_steps_total", "Batched steps.", c.decode_steps);
  m.counter("decode_rows_total", "Sequences in those steps.", c.decode_rows);
  m.counter("prefill_seconds_total", "Time computing prompts.", c.prefill_seconds);
  m.counter("decode_seconds_total", "Time in batched steps.", c.decode_seconds);
  m.counter("queue_seconds_total", "Time requests waited for a sequence.", c.queue_seconds);
  m.counter("first_token_seconds_total", "Time from submission to the first token, over all replies.",
            c.first_token_seconds);
  m.gauge("requests_waiting", "Requests in the queue.", c.waiting);
  m.gauge("requests_active", "Requests that have a sequence.", c.active);
  m.gauge("sequences", "Sequences the model can hold.", c.sequences);
}

}  // namespace

void RequestCounts::add(std::string_view route, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[{std::string(route), status}];
  row.count++;
  row.seconds += seconds;
}

std::map<std::pair<std::string, int>, RequestCounts::Row> RequestCounts::rows() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

void serve_metrics(ServerState& s, const io::HttpRequest&, const ReplyPtr& reply) {
  MetricsText m;
  const auto rows = s.counts.rows();
  const auto label = [](const auto& key) { return str("{route=\"", key.first, "\",status=\"", key.second, "\"}"); };
  m.metric("requests_total", "counter", "Answered requests.");
  for (const auto& [key, row] : rows) m.value(row.count, label(key));
  m.metric("request_seconds_total", "counter", "Time from a request to the end of its answer.");
  for (const auto& [key, row] : rows) m.value(row.seconds, label(key));
  const io::HttpServer* server = s.http;
  const io::HttpCounters http = server ? server->counters() : io::HttpCounters{};
  m.counter("connections_total", "Connections accepted.", http.connections);
  m.gauge("connections", "Open connections.", http.open_connections);
  m.counter("refused_requests_total", "Requests refused before they reached a route.", http.refused);
  m.counter("disconnects_total", "Clients that left before their answer was complete.", http.disconnects);
  if (s.engine) engine_metrics(m, s.engine->counters());
  m.gauge("resident_bytes", "Memory of the process.", resident_bytes());
  const std::chrono::duration<double> up = std::chrono::steady_clock::now() - s.started;
  m.gauge("uptime_seconds", "Time since the start.", up.count());
  reply->send({200, m.text(), "text/plain; version=0.0.4; charset=utf-8"});
}

}  // namespace tg::llm
