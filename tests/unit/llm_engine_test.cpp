/// \file The engine with a model that is known: who is computed when, what is shared, how requests end.
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <random>
#include <thread>

#include "helpers/fake_language_model.h"
#include "tinygrad/llm/engine.h"

namespace tg::llm {
namespace {

using test::FakeLanguageModel;

/// What a request gave.
struct Outcome {
  std::vector<int32_t> tokens;
  ReplyEnd end;
  int ends = 0;
  std::promise<void> done;
};
using OutcomePtr = std::shared_ptr<Outcome>;

std::vector<int32_t> text_tokens(const std::string& s) { return {s.begin(), s.end()}; }

EngineRequest request(const OutcomePtr& o, std::vector<int32_t> prompt, int64_t max_tokens) {
  EngineRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  r.on_token = [o](const ReplyToken& t) {
    o->tokens.push_back(t.token);
    return true;
  };
  r.on_end = [o](const ReplyEnd& e) {
    o->end = e;
    if (o->ends++ == 0) o->done.set_value();
  };
  return r;
}

void wait(const OutcomePtr& o) {
  ASSERT_EQ(o->done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

OutcomePtr run(Engine& engine, const std::vector<int32_t>& prompt, int64_t max_tokens) {
  auto o = std::make_shared<Outcome>();
  std::vector<EngineRequest> one;
  one.push_back(request(o, prompt, max_tokens));
  engine.submit(std::move(one));
  wait(o);
  return o;
}

TEST(LlmEngine, RepliesAreTheModels) {
  Engine engine(std::make_shared<FakeLanguageModel>());
  const auto prompt = text_tokens("once upon a time");
  const auto o = run(engine, prompt, 9);
  EXPECT_EQ(o->tokens, FakeLanguageModel::continuation(prompt, 9));
  EXPECT_EQ(o->end.reason, FinishReason::kLength);
  EXPECT_EQ(o->end.prompt_tokens, 16);
  EXPECT_EQ(o->end.reply_tokens, 9);
  EXPECT_EQ(o->end.cached_tokens, 0);
  EXPECT_EQ(o->end.error, "");
  EXPECT_EQ(run(engine, prompt, 0)->tokens, std::vector<int32_t>{});
}

TEST(LlmEngine, ManyMixedRequestsDoNotMix) {
  auto model = std::make_shared<FakeLanguageModel>(5, 300);
  Engine engine(model, {.max_queue = 1000, .prefill_tokens = 32, .shared_prefill_tokens = 23});
  std::mt19937 random(7);
  std::vector<OutcomePtr> outcomes;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 200; i++) {
    std::vector<int32_t> prompt;
    // Prompts branch off each other at random places, so that prefixes are shared in all ways.
    if (i > 0 && random() % 3) {
      const std::vector<int32_t>& other = prompts[random() % prompts.size()];
      prompt.assign(other.begin(), other.begin() + static_cast<int64_t>(random() % other.size()));
    }
    const size_t more = 1 + random() % 100;
    for (size_t k = 0; k < more && prompt.size() < 250; k++) prompt.push_back(static_cast<int32_t>('a' + random() % 3));
    prompts.push_back(prompt);
    outcomes.push_back(std::make_shared<Outcome>());
    requests.push_back(request(outcomes.back(), prompt, static_cast<int64_t>(1 + random() % 40)));
  }
  std::vector<int64_t> lengths;
  for (const EngineRequest& r : requests) lengths.push_back(r.max_tokens);
  for (size_t i = 0; i < requests.size(); i += 10) {
    std::vector<EngineRequest> some(std::make_move_iterator(requests.begin() + static_cast<int64_t>(i)),
                                    std::make_move_iterator(requests.begin() + static_cast<int64_t>(i + 10)));
    engine.submit(std::move(some));
  }
  for (size_t i = 0; i < outcomes.size(); i++) {
    wait(outcomes[i]);
    EXPECT_EQ(outcomes[i]->tokens, FakeLanguageModel::continuation(prompts[i], lengths[i])) << i;
    EXPECT_EQ(outcomes[i]->ends, 1);
  }
  const EngineCounters c = engine.counters();
  EXPECT_EQ(c.finished, 200u);
  EXPECT_EQ(c.active, 0);
  EXPECT_GT(c.decode_rows, 2 * c.decode_steps) << "requests were not decoded together";
  EXPECT_GT(c.cached_tokens, 0u);
}

TEST(LlmEngine, AConversationGoesOnWhereItWas) {
  auto model = std::make_shared<FakeLanguageModel>();
  Engine engine(model);
  std::vector<int32_t> history = text_tokens("a first question of some length");
  const auto first = run(engine, history, 5);
  history.insert(history.end(), first->tokens.begin(), first->tokens.end());
  const int64_t before = model->prefilled();
  for (const int32_t t : text_tokens("next")) history.push_back(t);
  const auto second = run(engine, history, 5);
  EXPECT_EQ(second->tokens, FakeLanguageModel::continuation(history, 5));
  // The last token of the first reply was drawn and never given to the model.
  EXPECT_EQ(model->prefilled() - before, 5);
  EXPECT_EQ(second->end.cached_tokens, static_cast<int64_t>(history.size()) - 5);
}

TEST(LlmEngine, ChoicesOfOnePromptComputeItOnce) {
  auto model = std::make_shared<FakeLanguageModel>(4, 512);
  Engine engine(model, {.prefill_tokens = 50, .shared_prefill_tokens = 50});
  const std::vector<int32_t> prompt(200, 'p');
  std::vector<OutcomePtr> outcomes;
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 4; i++) {
    outcomes.push_back(std::make_shared<Outcome>());
    requests.push_back(request(outcomes.back(), prompt, 6));
  }
  engine.submit(std::move(requests));
  for (const OutcomePtr& o : outcomes) {
    wait(o);
    EXPECT_EQ(o->tokens, FakeLanguageModel::continuation(prompt, 6));
  }
  EXPECT_EQ(model->prefilled(), 200 + 3);  // the others compute the last token only
}

TEST(LlmEngine, OtherConversationsAreKept) {
  auto model = std::make_shared<FakeLanguageModel>(3, 512);
  Engine engine(model);
  const std::string system(40, 's');
  run(engine, text_tokens(system + std::string(60, 'a')), 2);
  run(engine, text_tokens(system + std::string(60, 'b')), 2);  // copies `system`, does not take a's sequence
  run(engine, text_tokens(system + std::string(60, 'c')), 2);
  const auto again = run(engine, text_tokens(system + std::string(60, 'a') + "x"), 2);
  EXPECT_EQ(again->end.cached_tokens, 100);
  run(engine, text_tokens(std::string(60, 'd')), 2);  // takes the least recently used one: b's
  EXPECT_EQ(run(engine, text_tokens(system + std::string(60, 'c') + "x"), 2)->end.cached_tokens, 100);
  EXPECT_EQ(run(engine, text_tokens(system + std::string(60, 'b') + "x"), 2)->end.cached_tokens, 40);
}

TEST(LlmEngine, RecurrentModelsReuseWholeStatesOnly) {
  auto model = std::make_shared<FakeLanguageModel>(1, 512);
  model->recurrent = true;
  Engine engine(model);
  const auto first = run(engine, text_tokens("abcdef"), 3);
  const auto other = run(engine, text_tokens("abcxyz"), 3);
  EXPECT_EQ(other->end.cached_tokens, 0);
  EXPECT_EQ(other->tokens, FakeLanguageModel::continuation(text_tokens("abcxyz"), 3));
}

TEST(LlmEngine, RepliesGoOnWhileAPromptIsComputed) {
  auto model = std::make_shared<FakeLanguageModel>(2, 2000);
  Engine engine(model, {.prefill_tokens = 1000, .shared_prefill_tokens = 10});
  auto talking = std::make_shared<Outcome>(), late = std::make_shared<Outcome>();
  std::promise<void> begun;
  std::vector<EngineRequest> requests;
  requests.push_back(request(talking, text_tokens("x"), 100));
  requests[0].on_token = [&, talking](const ReplyToken& t) {
    if (talking->tokens.empty()) begun.set_value();
    talking->tokens.push_back(t.token);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  };
  engine.submit(std::move(requests));
  begun.get_future().wait();
  std::vector<EngineRequest> second;
  second.push_back(request(late, std::vector<int32_t>(200, 'y'), 1));
  engine.submit(std::move(second));
  wait(talking);
  wait(late);
  int64_t longest = 0, run_length = 0, pieces = 0;
  for (const FakeLanguageModel::Call& c : model->calls()) {
    run_length = c.kind == "prefill" ? run_length + 1 : c.kind == "decode" ? 0 : run_length;
    pieces += c.kind == "prefill";
    longest = std::max(longest, run_length);
  }
  EXPECT_EQ(pieces, 1 + 20);
  EXPECT_LE(longest, 2);
}

TEST(LlmEngine, TheQueueHasALimit) {
  auto model = std::make_shared<FakeLanguageModel>(1);
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  model->before = [gate](const std::string& call) {
    if (call == "prefill") gate.wait();
  };
  Engine engine(model, {.max_queue = 2});
  std::vector<OutcomePtr> outcomes;
  const auto submit = [&](int n) {
    std::vector<EngineRequest> requests;
    for (int i = 0; i < n; i++) {
      outcomes.push_back(std::make_shared<Outcome>());
      requests.push_back(request(outcomes.back(), text_tokens("q"), 2));
    }
    try {
      engine.submit(std::move(requests));
    } catch (...) {
      outcomes.resize(outcomes.size() - static_cast<size_t>(n));
      throw;
    }
  };
  submit(1);
  submit(1);
  EXPECT_THROW(submit(2), QueueFullError);  // all or none
  submit(1);
  EXPECT_THROW(submit(1), QueueFullError);
  EXPECT_EQ(engine.counters().rejected, 3u);
  go.set_value();
  for (const OutcomePtr& o : outcomes) wait(o);
  EXPECT_EQ(outcomes.size(), 3u);
}

TEST(LlmEngine, CancelledRequestsEndOnce) {
  auto model = std::make_shared<FakeLanguageModel>(1, 100000);
  Engine engine(model);
  std::vector<OutcomePtr> outcomes;
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 3; i++) {
    outcomes.push_back(std::make_shared<Outcome>());
    requests.push_back(request(outcomes.back(), text_tokens("q"), 90000));
  }
  const auto tickets = engine.submit(std::move(requests));
  tickets[1]->cancel();
  wait(outcomes[1]);
  EXPECT_EQ(outcomes[1]->tokens.size(), 0u);
  tickets[0]->cancel();
  wait(outcomes[0]);
  tickets[2]->cancel();
  wait(outcomes[2]);
  for (const OutcomePtr& o : outcomes) {
    EXPECT_EQ(o->end.reason, FinishReason::kCancelled);
    EXPECT_EQ(o->ends, 1);
  }
  EXPECT_EQ(engine.counters().cancelled, 3u);
  EXPECT_EQ(run(engine, text_tokens("still"), 3)->tokens, FakeLanguageModel::continuation(text_tokens("still"), 3));
}

TEST(LlmEngine, CallbacksThatThrowEndNothingElse) {
  auto model = std::make_shared<FakeLanguageModel>(2, 100000);
  std::atomic<bool> broken{false};
  model->before = [&](const std::string&) {
    if (broken) throw std::runtime_error("broken");
  };
  Engine engine(model);
  const auto submit = [&](int64_t max_tokens, std::function<void(const ReplyEnd&)> on_end) {
    std::vector<EngineRequest> one;
    one.push_back(request(std::make_shared<Outcome>(), text_tokens("q"), max_tokens));
    one[0].on_end = std::move(on_end);
    return engine.submit(std::move(one))[0];
  };
  const auto wait_for_failures = [&](uint64_t n) {
    for (int i = 0; i < 20000 && engine.counters().failed < n; i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine.counters().failed, n);
  };
  submit(3, [](const ReplyEnd&) { throw std::bad_alloc(); });
  submit(3, [](const ReplyEnd&) { throw 3; });
  submit(90000, [](const ReplyEnd&) { throw std::bad_alloc(); })->cancel();
  wait_for_failures(3);
  EXPECT_EQ(run(engine, text_tokens("still"), 3)->tokens, FakeLanguageModel::continuation(text_tokens("still"), 3));
  broken = true;
  submit(3, [](const ReplyEnd&) { throw std::bad_alloc(); });
  wait_for_failures(5);  // of the model, and of who is told
  broken = false;
  EXPECT_EQ(run(engine, text_tokens("still"), 3)->tokens, FakeLanguageModel::continuation(text_tokens("still"), 3));
  EXPECT_EQ(engine.counters().active, 0);
}

TEST(LlmEngine, EndsOfReplies) {
  auto model = std::make_shared<FakeLanguageModel>(1, 20);
  Engine engine(model);
  EXPECT_EQ(run(engine, std::vector<int32_t>(15, 'c'), -1)->end.reason, FinishReason::kContext);
  EXPECT_EQ(run(engine, std::vector<int32_t>(15, 'c'), -1)->tokens.size(), 5u);
  const auto whole = FakeLanguageModel::continuation(text_tokens("s"), 10);
  auto stopped = std::make_shared<Outcome>();
  std::vector<EngineRequest> requests;
  requests.push_back(request(stopped, text_tokens("s"), 10));
  requests[0].stop_tokens = {whole[4]};
  const auto first = std::find(whole.begin(), whole.end(), whole[4]) - whole.begin();
  engine.submit(std::move(requests));
  wait(stopped);
  EXPECT_EQ(stopped->end.reason, FinishReason::kStop);
  EXPECT_EQ(stopped->tokens, std::vector<int32_t>(whole.begin(), whole.begin() + first));
  auto refused = std::make_shared<Outcome>();
  std::vector<EngineRequest> others;
  others.push_back(request(refused, text_tokens("s"), 10));
  others[0].on_token = [refused](const ReplyToken& t) {
    refused->tokens.push_back(t.token);
    return refused->tokens.size() < 2;
  };
  engine.submit(std::move(others));
  wait(refused);
  EXPECT_EQ(refused->tokens.size(), 2u);
  EXPECT_EQ(refused->end.reason, FinishReason::kStop);
}

TEST(LlmEngine, BadRequestsAreRefusedAtOnce) {
  Engine engine(std::make_shared<FakeLanguageModel>(1, 20));
  const auto submit = [&](std::vector<int32_t> prompt, SamplingOptions sampling = {}) {
    std::vector<EngineRequest> requests(1);
    requests[0].prompt = std::move(prompt);
    requests[0].sampling = sampling;
    engine.submit(std::move(requests));
  };
  EXPECT_THROW(submit({}), ValueError);
  EXPECT_THROW(submit(std::vector<int32_t>(20, 'c')), ValueError);
  EXPECT_THROW(submit({-1}), ValueError);
  EXPECT_THROW(submit({test::kFakeVocabulary}), ValueError);
  SamplingOptions negative;
  negative.temperature = -1;
  EXPECT_THROW(submit({'c'}, negative), ValueError);
  EXPECT_EQ(engine.counters().requests, 0u);
}

TEST(LlmEngine, AFailureOfTheModelEndsItsRequestsOnly) {
  auto model = std::make_shared<FakeLanguageModel>(2);
  int failures = 2;
  model->before = [&](const std::string& call) {
    if (failures == 2 && call == "prefill") {
      failures--;
      throw OutOfMemoryError("no room for a prompt");
    }
    if (failures == 1 && call == "decode") {
      failures--;
      throw OutOfMemoryError("no room for a step");
    }
  };
  Engine engine(model);
  const auto first = run(engine, text_tokens("one"), 4);
  EXPECT_EQ(first->end.error, "no room for a prompt");
  EXPECT_TRUE(first->tokens.empty());
  const auto second = run(engine, text_tokens("two"), 4);
  EXPECT_EQ(second->end.error, "no room for a step");
  EXPECT_EQ(second->tokens.size(), 1u);
  EXPECT_EQ(run(engine, text_tokens("two"), 4)->tokens, FakeLanguageModel::continuation(text_tokens("two"), 4));
  EXPECT_EQ(engine.counters().failed, 2u);
}

TEST(LlmEngine, StoppingEndsEverything) {
  std::vector<OutcomePtr> outcomes;
  {
    Engine engine(std::make_shared<FakeLanguageModel>(2, 100000));
    std::vector<EngineRequest> requests;
    for (int i = 0; i < 6; i++) {
      outcomes.push_back(std::make_shared<Outcome>());
      requests.push_back(request(outcomes.back(), text_tokens("q"), 90000));
    }
    engine.submit(std::move(requests));
    engine.stop();
    EXPECT_THROW(engine.submit(std::vector<EngineRequest>(1)), Error);
  }
  for (const OutcomePtr& o : outcomes) {
    wait(o);
    EXPECT_EQ(o->end.reason, FinishReason::kCancelled);
    EXPECT_EQ(o->ends, 1);
  }
}

TEST(LlmEngine, LogProbabilities) {
  Engine engine(std::make_shared<FakeLanguageModel>());
  auto o = std::make_shared<Outcome>();
  std::vector<EngineRequest> requests;
  requests.push_back(request(o, text_tokens("p"), 1));
  requests[0].logprobs = 3;
  std::vector<TokenProbability> top;
  double own = 1;
  requests[0].on_token = [&](const ReplyToken& t) {
    top.assign(t.top.begin(), t.top.end());
    own = t.logprob;
    return true;
  };
  engine.submit(std::move(requests));
  wait(o);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, FakeLanguageModel::successor(text_tokens("p")));
  EXPECT_EQ(top[0].logprob, own);
  EXPECT_LT(own, 0);
  EXPECT_GT(own, -1e-4);
  EXPECT_GE(top[1].logprob, top[2].logprob);
}

TEST(LlmEngine, RepliesKeepTheirShareOfTheTime) {
  auto model = std::make_shared<FakeLanguageModel>(4, 2000);
  model->before = [](const std::string& call) {  // a piece of a prompt takes as long as ten steps
    if (call == "prefill") std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (call == "decode") std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  Engine engine(model);
  std::vector<OutcomePtr> outcomes;
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 4; i++) {
    outcomes.push_back(std::make_shared<Outcome>());
    requests.push_back(request(outcomes.back(), std::vector<int32_t>(i == 0 ? 1 : 400, static_cast<int32_t>('a' + i)),
                               i == 0 ? 700 : 1));
  }
  engine.submit(std::move(requests));
  for (const OutcomePtr& o : outcomes) wait(o);
  const EngineCounters c = engine.counters();
  EXPECT_GT(c.decode_seconds, 0.6 * c.prefill_seconds);
  // No prompt waits until the reply has ended.
  const auto calls = model->calls();
  const auto last = std::find_if(calls.rbegin(), calls.rend(), [](const auto& k) { return k.kind == "prefill"; });
  EXPECT_GT(std::count_if(calls.rbegin(), last, [](const auto& k) { return k.kind == "decode"; }), 0);
}

EngineRequest embedding(const OutcomePtr& o, std::vector<std::vector<int32_t>> texts,
                        std::vector<std::vector<float>>& vectors) {
  EngineRequest r = request(o, {}, 0);
  r.embedding.emplace().tokens = std::move(texts);
  r.embedding->on_vector = [&vectors](size_t i, std::vector<float> v) {
    EXPECT_EQ(i, vectors.size());
    vectors.push_back(std::move(v));
  };
  return r;
}

TEST(LlmEngine, VectorsOfTexts) {
  auto model = std::make_shared<FakeLanguageModel>(2, 100);
  Engine engine(model, {.prefill_tokens = 3, .shared_prefill_tokens = 2});
  for (const bool last : {false, true}) {
    auto o = std::make_shared<Outcome>();
    std::vector<std::vector<float>> vectors;
    std::vector<EngineRequest> one;
    one.push_back(embedding(o, {{10, 20, 30, 40, 50}, {7}}, vectors));
    one[0].embedding->last_token = last;
    engine.submit(std::move(one));
    wait(o);
    EXPECT_EQ(o->end.reason, FinishReason::kStop);
    EXPECT_EQ(o->end.prompt_tokens, 6);
    ASSERT_EQ(vectors.size(), 2u);
    const float token = last ? 50.0f : 30.0f, position = last ? 4.0f : 2.0f;  // (token, position, 1)
    const float length = std::sqrt(token * token + position * position + 1);
    EXPECT_FLOAT_EQ(vectors[0][0], token / length);
    EXPECT_FLOAT_EQ(vectors[0][1], position / length);
    EXPECT_FLOAT_EQ(vectors[1][2], 1 / std::sqrt(50.0f));
  }
  EXPECT_EQ(engine.counters().finished, 2u);
  // What they leave behind is a prefix like any other.
  EXPECT_EQ(run(engine, {7, 8}, 3)->tokens, FakeLanguageModel::continuation({7, 8}, 3));
  std::vector<EngineRequest> bad(1);
  bad[0].embedding.emplace().tokens = {{1}, {}};
  EXPECT_THROW(engine.submit(std::move(bad)), ValueError);
}

TEST(LlmEngine, ManyTextsDoNotKeepPromptsWaiting) {
  auto model = std::make_shared<FakeLanguageModel>(2, 100);
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  model->before = [gate](const std::string& call) {
    if (call == "hidden") gate.wait();
  };
  Engine engine(model);
  auto texts = std::make_shared<Outcome>(), chat = std::make_shared<Outcome>();
  std::vector<std::vector<float>> vectors;
  std::vector<EngineRequest> requests(1);
  requests[0] = embedding(texts, std::vector<std::vector<int32_t>>(50, std::vector<int32_t>(5, 'e')), vectors);
  engine.submit(std::move(requests));
  std::vector<EngineRequest> second;
  second.push_back(request(chat, text_tokens("hello"), 2));
  engine.submit(std::move(second));
  go.set_value();
  wait(chat);
  wait(texts);
  const auto calls = model->calls();
  const auto prompt = std::find_if(calls.begin(), calls.end(), [](const auto& c) { return c.kind == "prefill"; });
  EXPECT_LE(std::count_if(calls.begin(), prompt, [](const auto& c) { return c.kind == "hidden"; }), 3);
  EXPECT_EQ(vectors.size(), 50u);
}

}  // namespace
}  // namespace tg::llm
