/// \file The HTTP server under clients that are wrong, slow, greedy or gone.
#include "tinygrad/io/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "helpers/http_client.h"
#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

using test::Client;
using test::ClientReply;
using test::get;
using test::post;

/// Answers with what it was asked; `/stream` in pieces, `/wait` never, `/throw` not.
void echo(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  if (request.path == "/throw") throw ValueError("the secret of another client");
  if (request.path == "/drop") return;
  if (request.path != "/stream")
    return reply->send({200, str(request.method, " ", request.path, " ", request.query, " ", request.body)});
  reply->start({200, {}, "text/plain"});
  for (int i = 0; i < 3; i++) reply->write(str("piece ", i, ";"));
  reply->finish();
}

HttpOptions quick() {
  HttpOptions o;
  o.limits.idle_s = o.limits.head_s = o.limits.body_s = 0.3;
  o.limits.drain_s = 0.3;
  o.limits.body_bytes = 1000;
  o.limits.request_line_bytes = 200;
  o.limits.head_bytes = 1000;
  o.limits.headers = 10;
  return o;
}

class Http : public testing::Test {
 protected:
  HttpServer server{quick(), echo};
  ClientReply ask(std::string_view bytes) { return Client(server.port()).request(bytes); }
  int status(std::string_view bytes) { return ask(bytes).status; }
};

TEST_F(Http, RequestsAreAnswered) {
  EXPECT_EQ(ask(get("/a/b?x=1")).body, "GET /a/b x=1 ");
  EXPECT_EQ(ask(post("/p", "hello")).body, "POST /p  hello");
  const ClientReply stream = ask(get("/stream"));
  EXPECT_EQ(stream.body, "piece 0;piece 1;piece 2;");
  EXPECT_TRUE(stream.complete);
  EXPECT_EQ(ask("HEAD /x HTTP/1.1\r\nHost: localhost\r\n\r\n").header("Content-Length"), "9");
  EXPECT_EQ(ask(get("/x")).header("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(ask(get("/x")).head.find("Access-Control"), std::string::npos);
}

TEST_F(Http, ConnectionsAreKept) {
  Client c(server.port());
  for (int i = 0; i < 5; i++) EXPECT_EQ(c.request(get(str("/", i))).body, str("GET /", i, "  "));
  EXPECT_EQ(c.request(get("/stream")).body.size(), 24u);
  EXPECT_EQ(c.request(post("/last", "x", "Connection: close\r\n")).header("Connection"), "close");
  EXPECT_FALSE(c.receive());
}

TEST_F(Http, PipelinedRequestsAreAnsweredInOrder) {
  Client c(server.port());
  c.send(get("/1") + post("/2", "two") + get("/stream") + get("/4"));
  EXPECT_EQ(c.read().body, "GET /1  ");
  EXPECT_EQ(c.read().body, "POST /2  two");
  EXPECT_EQ(c.read().body, "piece 0;piece 1;piece 2;");
  EXPECT_EQ(c.read().body, "GET /4  ");
}

TEST_F(Http, OldProtocolEndsWithTheConnection) {
  Client c(server.port());
  c.send("GET /stream HTTP/1.0\r\n\r\n");
  while (c.receive()) {}
  EXPECT_TRUE(c.received().ends_with("\r\n\r\npiece 0;piece 1;piece 2;")) << c.received();
  EXPECT_EQ(c.received().find("chunked"), std::string::npos);
}

TEST_F(Http, ChunkedBodies) {
  const std::string head = "POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ask(head + "3\r\nabc\r\nA;name=value\r\n0123456789\r\n0\r\n\r\n").body, "POST /c  abc0123456789");
  EXPECT_EQ(ask(head + "0\r\nTrailer: x\r\n\r\n").body, "POST /c  ");
  for (const std::string bad :
       {"-1\r\n", "+3\r\nabc", "0x3\r\nabc", " 3\r\nabc", "\r\n", ";x\r\n", "g\r\n", "3 \r\nabc", "3\nabc",
        "3\r\nabcd\r\n", "3\r\nabc\n0\r\n\r\n", "{\"messages\"", "0\r\n\rx"})
    EXPECT_EQ(status(head + bad), 400) << bad;
  EXPECT_EQ(status(head + "ffffffffffffffff\r\n"), 413);
  EXPECT_EQ(status(head + "7fffffff\r\n"), 413);
  EXPECT_EQ(status(head + "1F4\r\n" + std::string(500, 'x') + "\r\n1F5\r\n"), 413);
  EXPECT_EQ(status(head + "1;" + std::string(5000, 'x')), 400);
  std::string drops = head;
  for (int i = 0; i < 3000; i++) drops += "1;ab\r\nx\r\n";
  EXPECT_EQ(status(drops), 413);
}

TEST_F(Http, LengthsMustBeClear) {
  const auto with = [&](std::string_view headers) {
    return status(str("POST / HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\nabc"));
  };
  EXPECT_EQ(with("Content-Length: 3\r\n"), 200);
  EXPECT_EQ(with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(with("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"), 400);
  EXPECT_EQ(with("Content-Length: 3\r\nContent-Length: 3\r\n"), 400);
  EXPECT_EQ(with("Content-Length: 3, 3\r\n"), 400);
  EXPECT_EQ(with("Content-Length: +3\r\n"), 400);
  EXPECT_EQ(with("Content-Length: -3\r\n"), 400);
  EXPECT_EQ(with("Content-Length: 3x\r\n"), 400);
  EXPECT_EQ(with("Content-Length: 0x3\r\n"), 400);
  EXPECT_EQ(with("Content-Length:\r\n"), 400);
  EXPECT_EQ(with("Content-Length: 1001\r\n"), 413);
  EXPECT_EQ(with("Content-Length: 99999999999999999999999999\r\n"), 400);
  EXPECT_EQ(with("Transfer-Encoding: gzip\r\n"), 400);
  EXPECT_EQ(with("Transfer-Encoding: gzip, chunked\r\n"), 400);
  EXPECT_EQ(with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(with("Transfer-Encoding : chunked\r\n"), 400);
  EXPECT_EQ(with("Content-Encoding: gzip\r\nContent-Length: 3\r\n"), 415);
  EXPECT_EQ(with("Expect: something\r\nContent-Length: 3\r\n"), 417);
  EXPECT_EQ(with(""), 411);
}

TEST_F(Http, HeadsMustBeWellFormed) {
  const std::string host = "Host: localhost\r\n\r\n";
  const std::vector<std::string> all = {"GET / HTTP/1.1\r\n\r\n",
                                        "GET / HTTP/2.0\r\n" + host,
                                        "GET / HTTP/1.2\r\n" + host,
                                        "GET / http/1.1\r\n" + host,
                                        "GET /\r\n" + host,
                                        "GET  / HTTP/1.1\r\n" + host,
                                        "get / HTTP/1.1\r\n" + host,
                                        "GET / HTTP/1.1 \r\n" + host,
                                        "GET x HTTP/1.1\r\n" + host,
                                        "GET http://localhost/ HTTP/1.1\r\n" + host,
                                        "\r\n\r\n",
                                        "GET / HTTP/1.1\n" + host,
                                        "GET /\x01 HTTP/1.1\r\n" + host,
                                        "GET /\xff HTTP/1.1\r\n" + host,
                                        "GET /#x HTTP/1.1\r\n" + host,
                                        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
                                        "GET / HTTP/1.1\r\nX: a\r\n folded\r\n" + host,
                                        "GET / HTTP/1.1\r\nNo colon\r\n" + host,
                                        "GET / HTTP/1.1\r\n: empty\r\n" + host,
                                        "GET / HTTP/1.1\r\nX: a\x01\r\n" + host,
                                        std::string("GET / HTTP/1.1\r\nX: a\0b\r\n", 24) + host,
                                        std::string("\x16\x03\x01\x02\x00", 5),
                                        "GET / HTTP/1.1\r\nX: a\rb\r\n" + host,
                                        "GET / HTTP/1.1\r\nHost: localhost:99999999\r\n\r\n",
                                        "GET / HTTP/1.1\r\nHost: local host:x\r\n\r\n"};
  for (const std::string& bad : all) {
    const ClientReply r = ask(bad);
    EXPECT_EQ(r.status, 400) << bad;
    EXPECT_EQ(r.header("Connection"), "close");
    EXPECT_TRUE(r.body.starts_with("{\"error\"")) << r.body;
  }
}

TEST_F(Http, HeadsAreBounded) {
  EXPECT_EQ(status(get("/" + std::string(300, 'a'))), 414);
  EXPECT_EQ(status(get("/", "X: " + std::string(1000, 'a') + "\r\n")), 431);
  std::string many;
  for (int i = 0; i < 20; i++) many += "X: y\r\n";
  EXPECT_EQ(status(get("/", many)), 431);
  EXPECT_EQ(status(std::string(100000, 'A')), 400);
}

TEST_F(Http, SlowClientsAreCutOff) {
  const auto start = std::chrono::steady_clock::now();
  Client silent(server.port()), head(server.port()), body(server.port());
  head.send("GET / HTTP/1.1\r\n");
  body.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  std::thread drip([&] {  // a byte now and then does not help
    for (int i = 0; i < 30 && head.send("X"); i++) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  });
  EXPECT_EQ(head.read().status, 408);
  EXPECT_EQ(body.read().status, 408);
  EXPECT_FALSE(silent.receive());
  drip.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GT(took.count(), 0.25);
  EXPECT_LT(took.count(), 8);
}

TEST_F(Http, HandlersThatFailSayNothingOfIt) {
  const ClientReply r = ask(get("/throw"));
  EXPECT_EQ(r.status, 500);
  EXPECT_EQ(r.body.find("secret"), std::string::npos);
  EXPECT_EQ(status(get("/drop")), 500);
}

TEST(HttpCallbacks, ThatThrowEndNothingElse) {
  HttpOptions o = quick();
  o.log = [](std::string_view) { throw std::runtime_error("the disk is full"); };
  o.error_body = [](int, std::string_view, std::string_view) -> std::string { throw std::bad_alloc(); };
  std::atomic<int> closed{0};
  HttpServer server(o, [&](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    if (request.path == "/close") {
      reply->on_close([&] {
        closed++;
        throw std::runtime_error("x");
      });
      while (!reply->closed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    if (request.path == "/number") throw 3;
    echo(request, reply);
  });
  const auto status = [&](const std::string& bytes) { return Client(server.port()).request(bytes).status; };
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(status(get("/x")), 200);
    EXPECT_EQ(status(get("/throw")), 500);
    EXPECT_EQ(status(get("/number")), 500);
    EXPECT_EQ(status("nonsense\r\n\r\n"), 400);
    EXPECT_EQ(Client(server.port()).request(get("/throw")).body, R"({"error":{"code":500}})");
  }
  { Client(server.port()).send(get("/close")); }
  for (int i = 0; i < 500 && closed == 0; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(closed, 1);
  EXPECT_EQ(status(get("/x")), 200);
}

TEST_F(Http, OtherSitesAreRefused) {
  const auto host = [&](std::string_view name) { return status(str("GET / HTTP/1.1\r\nHost: ", name, "\r\n\r\n")); };
  EXPECT_EQ(host("localhost"), 200);
  EXPECT_EQ(host("LocalHost:8000"), 200);
  EXPECT_EQ(host("127.0.0.1:1"), 200);
  EXPECT_EQ(host("[::1]:8000"), 200);
  EXPECT_EQ(host("evil.example"), 403);
  EXPECT_EQ(host("localhost.evil.example"), 403);
  EXPECT_EQ(host("127.0.0.2"), 200);
  EXPECT_EQ(host("127.evil.example"), 403);
  EXPECT_EQ(host("127.0.0.1.evil.example"), 403);
  EXPECT_EQ(host("[::1]evil"), 400);
  EXPECT_EQ(host("[::2]"), 403);
  EXPECT_EQ(host(""), 400);
  const auto origin = [&](std::string_view o) { return status(get("/", str("Origin: ", o, "\r\n"))); };
  EXPECT_EQ(origin("http://localhost"), 200);
  EXPECT_EQ(origin("http://evil.example"), 403);
  EXPECT_EQ(origin("null"), 403);
  EXPECT_EQ(origin("http://localhost:81"), 403);
  EXPECT_EQ(server.counters().refused, 10u);
}

TEST_F(Http, HalfClosedClientsGetTheirAnswer) {
  Client c(server.port());
  c.send(get("/x"));
  c.close_sending();
  EXPECT_EQ(c.read().body, "GET /x  ");
}

TEST_F(Http, ContinueIsSentBeforeTheBody) {
  Client c(server.port());
  c.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(c.receive());
  EXPECT_EQ(c.received(), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(c.request("abc").body, "POST /  abc");
}

TEST(HttpKey, IsAskedFor) {
  HttpOptions o = quick();
  o.api_key = "right key";
  o.open_paths = {"/open"};
  o.allowed_origins = {"https://friend.example"};
  std::vector<std::string> lines;
  o.log = [&](std::string_view line) { lines.emplace_back(line); };
  {
    HttpServer server(o, echo);
    const auto with = [&](std::string_view path, std::string_view header) {
      return Client(server.port()).request(get(path, header));
    };
    EXPECT_EQ(with("/x?secret=query", "Authorization: Bearer right key\r\n").status, 200);
    EXPECT_EQ(with("/x", "authorization: bearer right key\r\n").status, 200);
    for (const char* wrong : {"", "Authorization: Bearer wrong key\r\n", "Authorization: Bearer right ke\r\n",
                              "Authorization: Bearer \r\n", "Authorization: Basic right key\r\n",
                              "Authorization: Bearer right key2\r\n", "Authorization: right key\r\n"}) {
      const ClientReply r = with("/x", wrong);
      EXPECT_EQ(r.status, 401) << wrong;
      EXPECT_EQ(r.header("WWW-Authenticate"), "Bearer");
    }
    EXPECT_EQ(with("/open", "").status, 200);
    EXPECT_EQ(with("/open/x", "").status, 401);
    const ClientReply friendly = with("/open", "Origin: https://friend.example\r\n");
    EXPECT_EQ(friendly.header("Access-Control-Allow-Origin"), "https://friend.example");
    EXPECT_EQ(Client(server.port())
                  .request("OPTIONS /x HTTP/1.1\r\nHost: any\r\nOrigin: https://friend.example\r\n\r\n")
                  .status,
              204);
  }
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines[0].starts_with("GET /x 200 ")) << lines[0];
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find("key"), std::string::npos) << line;
    EXPECT_EQ(line.find("secret"), std::string::npos) << line;
  }
}

TEST(HttpBind, OtherMachinesNeedAKey) {
  HttpOptions o;
  o.address = "0.0.0.0";
  EXPECT_THROW(HttpServer(o, echo), ValueError);
  o.address = "::";
  EXPECT_THROW(HttpServer(o, echo), ValueError);
  o.address = "nowhere";
  EXPECT_THROW(HttpServer(o, echo), ValueError);
  o.address = "0.0.0.0";
  o.api_key = "k";
  const HttpServer open(o, echo);
  o.port = open.port();
  EXPECT_THROW(HttpServer(o, echo), FileError);
}

TEST(HttpLoad, ConnectionsAreBounded) {
  HttpOptions o = quick();
  o.limits.connections = 4;
  o.limits.idle_s = 5;
  HttpServer server(o, echo);
  std::vector<std::unique_ptr<Client>> held;
  for (int i = 0; i < 4; i++) {  // each with a request that has begun to arrive
    held.push_back(std::make_unique<Client>(server.port()));
    EXPECT_EQ(held.back()->request(get("/")).status, 200);
    held.back()->send(post("/", "body").substr(0, 60));
  }
  const ClientReply refused = Client(server.port()).request(get("/"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("Retry-After"), "1");
  held.pop_back();
  int last = 0;
  for (int i = 0; i < 100 && last != 200; i++) {  // the end of a connection takes a moment to be seen
    last = Client(server.port()).request(get("/")).status;
    if (last != 200) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(last, 200);
}

/// A client that sends a body far above the limit before it reads gets the answer, not a connection that is reset.
TEST(HttpLoad, LargeBodiesAreRefusedWithAnAnswer) {
  HttpServer server(quick(), echo);
  Client client(server.port());
  EXPECT_TRUE(client.send(post("/", std::string(24 << 20, 'x'))));
  EXPECT_EQ(client.read().status, 413);
}

/// Clients that keep connections and ask for nothing do not lock others out: who has been idle for longest goes.
TEST(HttpLoad, IdleConnectionsMakeRoom) {
  HttpOptions o = quick();
  o.limits.connections = 4;
  o.limits.idle_s = o.limits.body_s = 60;
  HttpServer server(o, echo);
  Client busy(server.port());
  busy.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbo");
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 3; i++) {
    idle.push_back(std::make_unique<Client>(server.port()));
    EXPECT_EQ(idle.back()->request(get("/")).status, 200);
  }
  EXPECT_EQ(idle[0]->request(get("/")).status, 200);  // now the second one has been idle for longest
  Client fifth(server.port());
  EXPECT_EQ(fifth.request(get("/")).status, 200);
  EXPECT_EQ(idle[1]->request(get("/")).status, 0);
  EXPECT_EQ(idle[2]->request(get("/")).status, 200);
  EXPECT_EQ(idle[0]->request(get("/")).status, 200);
  EXPECT_EQ(busy.request("dy").status, 200);
  std::vector<std::unique_ptr<Client>> silent;  // more than the limit, which never say anything
  for (int i = 0; i < 40; i++) silent.push_back(std::make_unique<Client>(server.port()));
  EXPECT_EQ(Client(server.port()).request(get("/")).status, 200);
}

TEST(HttpLoad, BodiesOfAllClientsAreBounded) {
  HttpOptions o = quick();
  o.limits.body_s = 5;
  o.limits.all_bodies_bytes = 1500;
  HttpServer server(o, echo);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string chunk = "320\r\n" + std::string(800, 'x') + "\r\n";
  Client first(server.port()), second(server.port());
  first.send(chunked + chunk);
  int last = 0;
  for (int i = 0; i < 100 && last != 429; i++)
    last = Client(server.port()).request(post("/", std::string(800, 'y'))).status;
  EXPECT_EQ(last, 429);
  EXPECT_EQ(second.request(chunked + chunk + "0\r\n\r\n").status, 429);
  EXPECT_EQ(first.request("0\r\n\r\n").status, 200);
  EXPECT_EQ(Client(server.port()).request(chunked + chunk + "0\r\n\r\n").status, 200);
}

TEST(HttpLoad, AnnouncedBodiesTakeNoRoom) {
  HttpOptions o = quick();
  o.limits.body_s = 5;
  o.limits.all_bodies_bytes = 1500;
  HttpServer server(o, echo);
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 8; i++) {
    silent.push_back(std::make_unique<Client>(server.port()));
    silent.back()->send(i % 2 ? "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx"
                              : "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3E8\r\nx");
  }
  for (int i = 0; i < 5; i++) EXPECT_EQ(Client(server.port()).request(post("/", std::string(900, 'y'))).status, 200);
}

TEST(HttpLoad, HandlersLearnThatTheClientIsGone) {
  std::atomic<int> closed{0};
  std::shared_ptr<HttpReply> kept;
  std::mutex mutex;
  HttpServer server(quick(), [&](const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    reply->on_close([&] { closed++; });
    if (request.path == "/stream") reply->start({200, {}, "text/plain"});
    const std::lock_guard lock(mutex);
    kept = std::move(reply);
  });
  for (const char* path : {"/wait", "/stream"}) {
    const int before = closed;
    {
      Client c(server.port());
      c.send(get(path));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    for (int i = 0; i < 500 && closed == before; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(closed, before + 1) << path;
    const std::lock_guard lock(mutex);
    ASSERT_TRUE(kept);
    EXPECT_TRUE(kept->closed());
    kept->write("into the void");
    kept->finish();
    kept.reset();
  }
  EXPECT_EQ(server.counters().disconnects, 2u);
}

TEST(HttpLoad, ClientsThatDoNotReadAreDropped) {
  HttpOptions o = quick();
  o.limits.unsent_bytes = 1 << 20;
  std::atomic<bool> gone{false};
  std::atomic<int64_t> written{0};
  HttpServer server(o, [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
    reply->start({200, {}, "text/plain"});
    for (int i = 0; i < 2000 && !reply->closed(); i++) {
      reply->write(std::string(64 << 10, 'x'));
      written += 64 << 10;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    gone = reply->closed();
  });
  Client c(server.port());
  c.send(get("/"));
  for (int i = 0; i < 1000 && !gone; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(gone);
  EXPECT_LT(written, 100 << 20);
}

TEST(HttpLoad, UnreadAnswersAreBoundedTogether) {
  HttpOptions o = quick();
  o.limits.write_s = 20;
  o.limits.all_unsent_bytes = 64 << 20;
  HttpServer server(o, [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    reply->send({200, std::string(request.path == "/big" ? 24 << 20 : 10, 'x')});
  });
  std::vector<std::unique_ptr<Client>> greedy;
  for (int i = 0; i < 5; i++) {
    greedy.push_back(std::make_unique<Client>(server.port(), 5));
    greedy.back()->send(get("/big"));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  EXPECT_EQ(Client(server.port()).request(get("/")).status, 200);
  int whole = 0;
  for (const auto& c : greedy) whole += c->read().complete;
  EXPECT_GE(whole, 2);
  EXPECT_LT(whole, 5);
}

TEST(HttpStop, AnswersUnderWayAreFinished) {
  std::shared_ptr<HttpReply> kept;
  std::mutex mutex;
  HttpOptions o = quick();
  o.limits.drain_s = 5;
  HttpServer server(o, [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    reply->start({200, {}, "text/plain"});
    reply->write("begun ");
    const std::lock_guard lock(mutex);
    kept = std::move(reply);
  });
  Client busy(server.port()), idle(server.port());
  busy.send(get("/"));
  ASSERT_TRUE(busy.receive());
  server.stop();
  EXPECT_FALSE(idle.receive());
  EXPECT_FALSE(server.wait_for(0.1));
  for (int i = 0; i < 100; i++) {
    const std::lock_guard lock(mutex);
    if (kept) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  {
    const std::lock_guard lock(mutex);
    kept->write("ended");
    kept->finish();
    kept.reset();
  }
  EXPECT_EQ(busy.read().body, "begun ended");
  EXPECT_TRUE(server.wait_for(5));
  EXPECT_FALSE(Client(server.port()).connected());
}

TEST(HttpStop, SignalsStop) {
  for (const int signal : {SIGTERM, SIGINT}) {
    HttpOptions o = quick();
    o.stop_on_signals = true;
    HttpServer server(o, echo);
    EXPECT_EQ(Client(server.port()).request(get("/")).status, 200);
    std::raise(signal);
    EXPECT_TRUE(server.wait_for(10));
  }
  std::shared_ptr<HttpReply> kept;
  std::mutex mutex;
  HttpOptions o = quick();
  o.stop_on_signals = true;
  o.limits.drain_s = 60;
  HttpServer server(o, [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    const std::lock_guard lock(mutex);
    kept = std::move(reply);
  });
  Client c(server.port());
  c.send(get("/"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::raise(SIGTERM);
  EXPECT_FALSE(server.wait_for(0.2)) << "an answer is under way";
  std::raise(SIGTERM);  // at once
  EXPECT_TRUE(server.wait_for(10));
  const std::lock_guard lock(mutex);
  kept.reset();
}

TEST(HttpStop, DoesNotWaitForever) {
  std::shared_ptr<HttpReply> kept;
  std::mutex mutex;
  HttpServer server(quick(), [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    const std::lock_guard lock(mutex);
    kept = std::move(reply);
  });
  Client c(server.port());
  c.send(get("/"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.stop();
  EXPECT_TRUE(server.wait_for(10));
  EXPECT_EQ(c.read().status, 0);
  const std::lock_guard lock(mutex);
  kept.reset();
}

/// Well-formed requests, damaged at random: the server answers each or closes, and serves the next one.
TEST(HttpFuzz, DamagedRequests) {
  HttpOptions o = quick();
  o.limits.head_s = o.limits.body_s = 0.05;
  HttpServer server(o, echo);
  std::mt19937 random(16);
  const std::vector<std::string> seeds = {
      get("/a?b=c", "Origin: http://localhost\r\nX: y\r\n"), post("/p", "{\"a\": [1, 2, 3]}"),
      "POST /c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
      get("/1") + get("/2"), "POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx"};
  for (int i = 0; i < 400; i++) {
    std::string bytes = seeds[random() % seeds.size()];
    for (size_t edits = 1 + random() % 6; edits > 0; edits--) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.insert(at, 1, "\r\n:; ,0\x7f"[random() % 8]); break;
        case 2: bytes.erase(at, 1 + random() % 5); break;
        default: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 40)); break;
      }
      if (bytes.empty()) bytes = "x";
    }
    Client c(server.port());
    c.send(bytes);
    if (random() % 2) c.close_sending();
    const ClientReply r = c.read();
    EXPECT_TRUE(r.status == 0 || r.status < 500) << bytes << "\n -> " << r.status;
  }
  EXPECT_EQ(Client(server.port()).request(get("/alive")).status, 200);
}

}  // namespace
}  // namespace tg::io
