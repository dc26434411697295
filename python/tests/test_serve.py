"""The server of language models under OpenAI's official client, with a tiny model of random weights."""
import json
import threading

import pytest

openai = pytest.importorskip("openai")
pytest.importorskip("gguf")

import tiny_model
from tinygrad_cpp.llm.serve import serve

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


def test_completions(client):
  r = client.completions.create(model="tiny", prompt=["Once", "Twice"], max_tokens=8, temperature=0, logprobs=2)
  assert [c.index for c in r.choices] == [0, 1] and len(r.choices[0].logprobs.tokens) <= 8
  text = "".join(c.choices[0].text for c in
                 client.completions.create(model="tiny", prompt="Once", max_tokens=8, temperature=0, stream=True))
  assert text == r.choices[0].text


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
  with pytest.raises(openai.BadRequestError): client.embeddings.create(model="tiny", input="text")


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
