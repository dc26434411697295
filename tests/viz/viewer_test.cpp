// What the page of tg viz is told: routes, places of nodes, what a rewrite changed.
#include "tinygrad/viz/viewer.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tinygrad/tinygrad.h"
#include "tinygrad/viz/assembly.h"
#include "tinygrad/viz/compared_graph.h"
#include "tinygrad/viz/drawn_graph.h"
#include "viz/recorded.h"

namespace tg {
namespace {
using nlohmann::json;
using testing::HasSubstr;

/// A recording in a file, and a viewer of it.
class ViewerOfARun : public testing::Test {
 protected:
  ViewerOfARun() : folder_("tinygrad-test"), file_((folder_.path() / "run.viz").string()) {
    recorded_to(file_, [] {
      const Tensor x = Tensor::arange(1024).reshape({32, 32}).cast(dtypes::float32).contiguous();
      (x.matmul(x + 1).relu().softmax(1) * 2).sum(0).realize();
    });
    viewer_ = std::make_unique<viz::Viewer>(std::vector{file_});
    overview_ = get("/api/overview");
  }
  io::HttpResponse ask(const std::string& target, const std::string& method = "GET") const {
    io::HttpRequest r;
    r.method = method;
    r.path = target.substr(0, target.find('?'));
    if (r.path.size() < target.size()) r.query = target.substr(r.path.size() + 1);
    return viewer_->answer(r);
  }
  json get(const std::string& target) const {
    const io::HttpResponse answer = ask(target);
    EXPECT_EQ(answer.status, 200) << target << ": " << answer.body;
    return json::parse(answer.body);
  }
  json spans(std::string_view kind) const {
    json out = json::array();
    for (const json& s : overview_["spans"])
      if (s["kind"] == kind) out.push_back(s);
    return out;
  }
  static std::string number(const json& span) { return std::to_string(span["id"].get<uint64_t>()); }

  TempDir folder_;
  std::string file_;
  std::unique_ptr<viz::Viewer> viewer_;
  json overview_;
};

TEST_F(ViewerOfARun, PageIsComplete) {
  const std::string page = ask("/").body;
  for (size_t at = 0; (at = page.find("src=\"", at)) != std::string::npos;) {
    at += 5;
    const std::string file = "/" + page.substr(at, page.find('"', at) - at);
    EXPECT_EQ(ask(file).status, 200) << file;
  }
  // Modules import each other by name.
  for (const std::string& file : std::vector<std::string>{"/app.js", "/graph_view.js", "/graph_canvas.js", "/charts.js",
                                                          "/tables.js", "/program.js"}) {
    const std::string script = ask(file).body;
    for (size_t at = 0; (at = script.find("from \"./", at)) != std::string::npos;) {
      at += 8;
      const std::string imported = "/" + script.substr(at, script.find('"', at) - at);
      EXPECT_EQ(ask(imported).content_type, "text/javascript; charset=utf-8") << imported;
    }
  }
  EXPECT_THAT(ask("/d3.js").body, HasSubstr("behavior"));
}

TEST_F(ViewerOfARun, ScriptsAndStylesOfOthersAreRefused) {
  for (const char* path : {"/", "/app.js", "/api/overview", "/nope"}) {
    std::string policy;
    for (const io::HttpHeader& h : ask(path).headers)
      if (h.name == "Content-Security-Policy") policy = h.value;
    EXPECT_THAT(policy, HasSubstr("default-src 'none'; script-src 'self';")) << path;
    EXPECT_THAT(policy, testing::Not(HasSubstr("unsafe"))) << path;
  }
}

TEST_F(ViewerOfARun, WrongRequestsAreRefused) {
  EXPECT_EQ(ask("/nope").status, 404);
  EXPECT_EQ(ask("/../../etc/passwd").status, 404);
  EXPECT_EQ(ask("/api/../page.css").status, 404);
  EXPECT_EQ(ask("/page/page.css").status, 404);
  EXPECT_EQ(ask("/api/overview?file=1").status, 404);
  EXPECT_EQ(ask("/api/overview?file=../x").status, 400);
  EXPECT_EQ(ask("/api/span?span=99999999").status, 404);
  EXPECT_EQ(ask("/api/span").status, 404);
  EXPECT_EQ(ask("/api/span?span=-1").status, 400);
  EXPECT_EQ(ask("/api/span?span=99999999999999999999999").status, 400);
  EXPECT_EQ(ask("/api/graph?span=1&graph=77").status, 404);
  EXPECT_EQ(ask("/api/overview", "POST").status, 405);
  EXPECT_EQ(ask("/api/overview", "HEAD").status, 200);
}

TEST_F(ViewerOfARun, KernelsHaveGraphsAndSources) {
  const json kernels = spans("kernel");
  ASSERT_GE(kernels.size(), 2u);
  for (const json& k : kernels) {
    const json span = get("/api/span?span=" + number(k));
    EXPECT_EQ(span["name"], k["name"]);
    EXPECT_THAT(span["texts"][0]["text"].get<std::string>(), HasSubstr(k["name"].get<std::string>()));
    const json g = get("/api/graph?span=" + number(k)), all = get("/api/graph?constants=1&span=" + number(k));
    const size_t n = g["nodes"];
    EXPECT_EQ(all["nodes"], all["all_nodes"]);
    EXPECT_EQ(g["all_nodes"], all["nodes"]);
    EXPECT_LT(n, all["nodes"].get<size_t>()) << "constants are in labels";
    for (const char* column : {"op", "type", "line", "argument", "origin", "number", "w", "h", "sources"})
      EXPECT_EQ(g[column].size(), n) << column;
    EXPECT_EQ(g["x"].size(), g["layer"].size());
    for (const json& op : g["op"]) EXPECT_NE(g["texts"][op.get<size_t>()], "CONST");
  }
}

TEST_F(ViewerOfARun, KernelsAreCompiledToAssembly) {
  const json kernel = spans("kernel")[0];
  const std::string text = get("/api/assembly?span=" + number(kernel))["assembly"];
  EXPECT_THAT(text, HasSubstr(kernel["name"].get<std::string>() + ":"));
  EXPECT_THAT(text, HasSubstr("ret"));
  EXPECT_EQ(ask("/api/assembly?span=" + number(spans("schedule")[0])).status, 400);
}

TEST(Viewer, KernelsOfOtherProcessorsHaveNoAssemblyHere) {
  const viz::Recording r = recorded([] {
    const recording::Span span("kernel", "k");
    span.value("target", "CPU:LLVM:pdp11");
    span.text("source", "", "define void @k() { ret void }");
  });
  try {
    viz::assembly_of(r, *spans_of(r, "kernel")[0]);
    FAIL() << "no error";
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("the kernel was made for CPU:LLVM:pdp11, and CPU of "));
  }
}

TEST_F(ViewerOfARun, LaunchesNameTheirKernels) {
  std::set<std::string> keys;
  for (const json& k : spans("kernel")) keys.insert(k["key"]);
  size_t launches = 0;
  const json timeline = get("/api/timeline");
  for (const json& e : timeline["events"]) {
    const std::string details = e[6];
    const size_t at = details.find("; kernel ");
    if (at == std::string::npos) continue;
    launches++;
    EXPECT_TRUE(keys.contains(details.substr(at + 9))) << details;
  }
  EXPECT_EQ(launches, overview_["launches"].get<size_t>());
  EXPECT_THAT(ask("/api/trace").body, HasSubstr("traceEvents"));
  const auto headers = ask("/api/trace").headers;
  EXPECT_TRUE(
      std::any_of(headers.begin(), headers.end(), [](const auto& h) { return h.name == "Content-Disposition"; }));
}

// Each step shows what it added and what it removed, and without the removed nodes it is the graph of that step.
TEST_F(ViewerOfARun, StepsShowWhatChanged) {
  const viz::Recording r = viz::read_recording(file_);
  size_t steps = 0, with_removed = 0;
  for (const viz::Span* s : spans_of(r, "rewrite")) {
    if (s->rewrites.size() > 40) continue;
    for (size_t step = 1; step <= s->rewrites.size(); step++, steps++) {
      const viz::NodeTable& t = *r.graph(s->graphs[0].graph);
      const viz::SteppedGraph before = step_graph(r, s->graphs[0], s->rewrites, step - 1);
      const viz::SteppedGraph after = step_graph(r, s->graphs[0], s->rewrites, step);
      const viz::ComparedGraph c = compare_graphs(t, before, after);
      ASSERT_EQ(c.states.size(), c.graph.nodes.size());
      const auto count = [&](viz::NodeState state) { return std::count(c.states.begin(), c.states.end(), state); };
      const auto same = count(viz::NodeState::kSame), rebuilt = count(viz::NodeState::kRebuilt),
                 added = count(viz::NodeState::kAdded), removed = count(viz::NodeState::kRemoved);
      EXPECT_EQ(same + rebuilt + added, static_cast<int64_t>(after.nodes.size()));
      EXPECT_EQ(same + rebuilt + removed, static_cast<int64_t>(before.nodes.size()));
      for (size_t i = 0; i < c.graph.nodes.size(); i++)
        for (uint32_t source : c.graph.nodes[i].sources) {
          ASSERT_LT(source, i) << "sources first";
          // What is over a node that changed has changed.
          if (c.states[i] == viz::NodeState::kSame) EXPECT_EQ(c.states[source], viz::NodeState::kSame);
        }
      with_removed += removed > 0;
    }
  }
  EXPECT_GT(steps, 50u);
  EXPECT_GT(with_removed, 10u);
}

TEST_F(ViewerOfARun, FileThatGrowsIsReadAgain) {
  const uint64_t version = get("/api/files")[0]["version"];
  EXPECT_EQ(get("/api/files")[0]["version"], version);
  recorded_to(file_, [] { (Tensor::ones({64}) + Tensor::rand({64})).realize(); });
  EXPECT_EQ(get("/api/files")[0]["version"], version + 1);
  EXPECT_NE(get("/api/overview")["kernels"], overview_["kernels"]);
  // What is no recording leaves the last one.
  std::ofstream(file_) << "nonsense";
  EXPECT_EQ(get("/api/files")[0]["version"], version + 1);
  std::filesystem::remove(file_);
  EXPECT_EQ(get("/api/files")[0]["version"], version + 1);
}

TEST_F(ViewerOfARun, IsServedToThisMachineAlone) {
  io::HttpOptions options = viz::viewer_server_options(0);
  EXPECT_EQ(options.address, "127.0.0.1");
  EXPECT_TRUE(options.api_key.empty());
  EXPECT_TRUE(options.allowed_hosts.empty()) << "Host headers of other names are refused";
  EXPECT_TRUE(options.allowed_origins.empty());
}

TEST(Viewer, SaysWhatIsWrongWithAFile) {
  EXPECT_THROW(viz::Viewer({"/nope.viz"}), FileError);
  EXPECT_THROW(viz::Viewer({"/proc/self/exe"}), FormatError);
}

}  // namespace
}  // namespace tg
