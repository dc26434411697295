"""Malformed HTTP requests for a server of language models, the same ones for the same seed, and a client that judges
the answers: none may be a 5xx, each refusal is a JSON error, none may hang."""
import json
import socket
import time

HOST = b"Host: localhost\r\n"
JSON_TYPE = b"Content-Type: application/json\r\n"
MESSAGES = [{"role": "user", "content": "Hi"}]
WRONG = [None, True, 0, -1, 1.5, 1e300, -1e300, 1 << 62, 1 << 64, -(1 << 63), "", "x", "x" * 3000, [], [None], [[]],
         [-1], {}, {"x": None}, {"type": "object"}, {"type": "json_schema"}, [1e9], ["a"] * 40, "\u0000", "\U0001f600"]
FIELDS = ["model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
          "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "repeat_penalty", "seed", "stop",
          "stream", "stream_options", "n", "logprobs", "top_logprobs", "logit_bias", "tools", "tool_choice",
          "response_format", "chat_template_kwargs", "echo", "suffix", "best_of", "input", "encoding_format",
          "dimensions", "content", "tokens", "add_special", "with_pieces", "user",
          "instructions", "max_output_tokens", "text", "reasoning", "system", "stop_sequences", "thinking",
          "parallel_tool_calls", "query", "documents", "top_n"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 4}, "b": {"type": "integer"}},
          "required": ["a", "b"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
BODIES = [
  ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2}),
  ("/v1/chat/completions", {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [
    {"type": "text", "text": "a"}]}], "max_tokens": 2, "n": 2, "stream": True, "logprobs": True, "top_logprobs": 2,
    "stop": ["z"], "seed": 1, "temperature": 0.5, "stream_options": {"include_usage": True}}),
  ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 4, "tools": [TOOL], "tool_choice": "required"}),
  ("/v1/chat/completions", {"messages": [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"b\"}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "c"}], "max_tokens": 2, "tools": [TOOL]}),
  ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 4, "response_format": {
    "type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA, "strict": True}}}),
  ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "logit_bias": {"65": -100}, "echo": True, "logprobs": 1}),
  ("/v1/completions", {"prompt": [[65, 66], [67]], "max_tokens": 2, "top_k": 3, "top_p": 0.5, "min_p": 0.1}),
  ("/v1/embeddings", {"input": ["a", [66]], "encoding_format": "base64"}),
  ("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "instructions": "s"}),
  ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "c"}], "max_output_tokens": 4, "stream": True,
    "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}], "tool_choice": "required"}),
  ("/v1/messages", {"messages": MESSAGES, "max_tokens": 2, "system": "s", "stop_sequences": ["z"]}),
  ("/v1/messages", {"messages": [*MESSAGES, {"role": "assistant", "content": [
    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": "b"}}]}, {"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": "1", "content": "c"}]}], "max_tokens": 4, "stream": True,
    "tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}),
  ("/v1/messages/count_tokens", {"messages": MESSAGES}),
  ("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True}),
  ("/tokenize", {"content": "abc", "add_special": True, "with_pieces": True}),
  ("/detokenize", {"tokens": [65, 66]}),
]


def head(path, size=None, more=b"", method=b"POST"):
  length = b"" if size is None else b"Content-Length: %d\r\n" % size
  return method + b" " + path.encode() + b" HTTP/1.1\r\n" + HOST + JSON_TYPE + length + more + b"\r\n"


def post(path, body):
  data = body if isinstance(body, bytes) else json.dumps(body).encode()
  return head(path, len(data)) + data


# ---- kinds of requests: each takes a random.Random and returns pieces of bytes, with pauses between them ----

def framing(rng):
  body = json.dumps(rng.choice(BODIES)[1]).encode()
  path, n = "/v1/chat/completions", len(body)
  sizes = [b"-1", b"+%d" % n, b"0x10", b"1e3", b" ", b"%d, %d" % (n, n), b"99999999999999999999999",
           b"9223372036854775807", b"%d" % (n + rng.randrange(1, 50)), b"%d" % rng.randrange(n),
           b"18446744073709551615", b"\xd9\xa3"]
  codings = [b"chunked, chunked", b"gzip", b"gzip, chunked", b"identity", b"chunked ;x", b"\x0bchunked", b"xchunked",
             b""]
  hosts = [b"evil.example", b"127.1.evil", b"", b"a b", b"[::1"]
  types = [b"text/plain", b"", b"application/jsonx"]
  def with_header(line): return head(path, n, line + b"\r\n") + body
  host = b"POST " + path.encode() + b" HTTP/1.1\r\n" + HOST + JSON_TYPE
  return [rng.choice([
    lambda: host + b"Content-Length: " + rng.choice(sizes) + b"\r\n\r\n" + body,
    lambda: host + b"Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (n, n + 1) + body,
    lambda: host + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % n + body,
    lambda: host + b"Transfer-Encoding: " + rng.choice(codings) + b"\r\n\r\n" + body,
    lambda: host + b"\r\n" + body,
    lambda: with_header(b"Content-Encoding: gzip"),
    lambda: with_header(b"Expect: " + rng.choice([b"100-continue", b"200", b""])),
    lambda: with_header(b"Origin: " + rng.choice([b"http://evil.example", b"null", b"*"])),
    lambda: head(path, n).replace(b"localhost", rng.choice(hosts)) + body,
    lambda: head(path, n).replace(b"application/json", rng.choice(types)) + body,
  ])()]


def heads(rng):
  noise = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 300)))
  versions = [b"0.9", b"1.2", b"2.0", b"9" * 9, b"1.1x", b""]
  methods = [b"get", b"G\0T", b"A" * 40, b"", b"POST\t", b"TRACE", b"CONNECT", b"DELETE"]
  targets = [b"http://localhost/", b"*", b"//", b"/%00", b"/../../etc/passwd", b"/v1/models/%2e%2e", b"/\x80", b"/#x",
             b"/?" + b"a" * 9000, b"/v1/models/%zz"]
  lines = [b"X: a\r\n b\r\n", b"X : a\r\n", b": a\r\n", b"X\r\n", b"X: a\0\r\n", b"X: a\rb\r\n", b"\xff: a\r\n",
           b"Host: localhost\r\n", b"X: y\r\n" * 10, b"X: y\r\n" * 2000, b"X: " + b"y" * 100 + b"\r\n",
           b"X: " + b"y" * 40000 + b"\r\n"]
  def get(more=b""): return head("/v1/models", method=b"GET", more=more)
  return [rng.choice([
    lambda: noise,
    lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
    lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise,
    lambda: b"GET / HTTP/" + rng.choice(versions) + b"\r\n" + HOST + b"\r\n",
    lambda: rng.choice(methods) + b" / HTTP/1.1\r\n" + HOST + b"\r\n",
    lambda: b"GET " + rng.choice(targets) + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    lambda: get(rng.choice(lines)),
    lambda: get().replace(b"\r\n", b"\n"),
    lambda: b"\r\n" * rng.choice([1, 3, 20000]),
  ])()]


def chunks(rng):
  body = json.dumps(rng.choice(BODIES)[1]).encode()
  start = head("/v1/chat/completions", more=b"Transfer-Encoding: chunked\r\n")
  if rng.random() < 0.3: return [start + b"".join(b"1\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"]
  size = rng.choice([b"-1", b"+5", b"0x5", b"g", b"", b" 5", b"5 ", b"fffffffffffffffff", b"7fffffffffffffff",
                     b"80000000", b"00000000000000000005", b"5;" + b"x" * 9000, b"5;x", b"%x" % len(body)])
  end = rng.choice([b"\r\n0\r\n\r\n", b"\n0\n\n", b"\r\n0\r\n" + b"T: x\r\n" * rng.choice([1, 2000]) + b"\r\n", b"",
                    b"0\r\n", b"\r\n0\r\n\rx"])
  return [start + size + rng.choice([b"\r\n", b"\n", b"\r"]) + body + end]


def cut_off(rng):
  data = post(*rng.choice(BODIES))
  return [data[:rng.randrange(len(data))]]


def slow(rng):
  data = post(*rng.choice(BODIES)) if rng.random() < 0.7 else framing(rng)[0]
  out, at = [], 0
  while at < len(data):
    step = rng.randrange(1, 60)
    out.append(data[at:at + step])
    at += step
    if len(out) < 12: out.append(rng.random() * 0.01)
  return out


def pipelined(rng):
  kinds = [lambda: post(*rng.choice(BODIES)), lambda: head("/health", method=b"GET"), lambda: damaged(rng)[0],
           lambda: framing(rng)[0]]
  return [b"".join(rng.choice(kinds)() for _ in range(rng.randrange(2, 8)))]


def damaged(rng):
  path, body = rng.choice(BODIES)
  data = bytearray(json.dumps(body).encode())
  pieces = [b"null", b"-1", b"1e400", b"[[[[[[", b"{\"a\":", b"\"\\u0000\"", b"true", b"18446744073709551616", b"\xff",
            b"\\ud800", b"{}", b"[]", b"NaN", b"\"\"", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"//", b"'"]
  for _ in range(rng.randrange(1, 6)):
    at = rng.randrange(len(data))
    match rng.randrange(4):
      case 0: data[at] = rng.randrange(256)
      case 1: data[at:at] = rng.choice(pieces)
      case 2: del data[at:at + rng.randrange(1, 9)]
      case _: data[at:at] = data[rng.randrange(len(data)):][:rng.randrange(30)]
    if not data: data = bytearray(b"{")
  return [post(path, bytes(data))]


def wrong_field(rng):
  path, body = rng.choice(BODIES)
  body = json.loads(json.dumps(body))
  for _ in range(rng.randrange(1, 4)): body[rng.choice(FIELDS)] = rng.choice(WRONG)
  return [post(path, body)]


def wrong_inside(rng):
  """A value anywhere in the body becomes another one."""
  path, body = rng.choice(BODIES)
  body = json.loads(json.dumps(body))
  here, key = body, rng.choice(list(body))
  while isinstance(here[key], (dict, list)) and here[key] and rng.random() < 0.8:
    here = here[key]
    key = rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
  here[key] = rng.choice(WRONG)
  return [post(path, body)]


def deep(rng):
  n = rng.choice([60, 200, 5000, 100000])
  nested = rng.choice([b"[" * n + b"]" * n, b"{\"a\":" * n + b"1" + b"}" * n, b"[" * n, b"{\"a\":[" * n])
  place = rng.choice(["%s", "{\"messages\":%s}", "{\"messages\":[{\"role\":\"user\",\"content\":%s}]}",
                      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"chat_template_kwargs\":%s}",
                      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":%s}"])
  if rng.random() < 0.3:
    text = ("[" * n + "]" * n).replace('"', '\\"')
    return [post("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}]}], "max_tokens": 1})]
  return [post("/v1/chat/completions", place.encode().replace(b"%s", nested))]


def large(rng):
  n = rng.choice([1000, 100000, 1000000])
  word = rng.choice(["x", " ", "\U0001f600", "a b ", "\n", "0", "e\u0301", "<|im_end|>", "\x7f", "\u200d"])
  text = (word * n)[:n]
  def chat(**more): return post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, **more})
  return [rng.choice([
    lambda: chat(messages=[{"role": "user", "content": text}]),
    lambda: chat(messages=MESSAGES * min(n, 30000)),
    lambda: chat(stop=[text[:300]] * 20),
    lambda: chat(tools=[TOOL] * rng.choice([128, 500])),
    lambda: chat(logit_bias={str(i): rng.choice([1, -100]) for i in range(rng.choice([258, 2000]))}),
    lambda: chat(n=16, logprobs=True, top_logprobs=20, max_tokens=None),
    lambda: post("/v1/completions", {"prompt": [65] * min(n, 100000), "max_tokens": 1}),
    lambda: post("/v1/completions", {"prompt": ["a"] * rng.choice([64, 65, 1000]), "n": 16, "max_tokens": 1}),
    lambda: post("/v1/embeddings", {"input": ["ab"] * rng.choice([100, 2049])}),
    lambda: post("/tokenize", {"content": text, "with_pieces": True}),
    lambda: post("/detokenize", {"tokens": [65] * min(n, 250000)}),
    lambda: head("/v1/completions", 5 << 20) + b"{" * 1000,
  ])()]


PATTERNS = ["(a|a)*b", "(a*)*c", "^(a{1,1000}){1,1000}$", "((((a", "[", "\\", "(?=a)b", "a{99999999}", "[^\\d\\D]",
            "\\p{L}+", "(a|b)*a(a|b){12}", "(a|b)*a(a|b){40}", "(" * 500 + "a" + ")" * 500, "a" * 20000, "(?R)", "\\1"]


def schemas(rng):
  n = rng.choice([10, 1000, 100000, 1 << 40])
  few = min(n, 3000)
  chain = {"type": "string"}
  for _ in range(rng.choice([5, 30])):
    chain = rng.choice([{"anyOf": [chain, {"type": "array", "items": chain}]}, {"allOf": [chain, {"type": "string"}]}])
    if len(json.dumps(chain)) > 100000: break
  text, same = {"type": "string"}, {"$ref": "#"}
  schema = rng.choice([
    chain, same, {"$ref": "#/x/y"}, {"$ref": "http://x"}, {"$ref": 5}, {"allOf": [same]}, {"anyOf": [same, same]},
    {"not": {}}, False, {"type": ["string", "null", "x"]}, {"type": []}, {"enum": []}, {"minProperties": n},
    {"type": "string", "maxLength": n}, {"type": "string", "minLength": n},
    {"type": "string", "pattern": rng.choice(PATTERNS)},
    {"type": "string", "format": rng.choice(["date-time", "regex", "%s" * 100])},
    {"type": "array", "items": {"type": "array", "minItems": n}, "minItems": n, "maxItems": n},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"anyOf": [text] * few}, {"enum": list(range(few))}, {"enum": ["x" * i for i in range(min(n, 900))]},
    {"const": "x" * min(n, 200000)},
    {"type": "object", "properties": {f"k{i}": text for i in range(few)}},
    {"type": "object", "properties": {f"k{i}": {} for i in range(400)}, "required": [f"k{i}" for i in range(400)]},
    {"type": "integer", "minimum": -n, "maximum": n, "multipleOf": rng.choice([1, 7, 0, -3, 0.1, n])},
    {"type": "number", "minimum": 1e-300, "exclusiveMaximum": 1e300},
    {"type": "array", "prefixItems": [{}] * few, "items": False},
    {"type": "object", "additionalProperties": same, "properties": {"": same}}])
  return [post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 3, "response_format": {
    "type": "json_schema", "json_schema": {"name": "c", "schema": schema}}})]


KINDS = [framing, heads, chunks, cut_off, slow, pipelined, damaged, damaged, wrong_field, wrong_field, wrong_inside,
         deep, large, schemas, schemas]


def request(rng):
  kind = rng.choice(KINDS)
  return kind.__name__, kind(rng)


# ---- the client ----

class Hang(Exception): pass


def exchange(port, pieces, half_close, timeout=60):
  """Sends the pieces and returns all bytes that come back until the server closes, or has answered and is silent."""
  received, end = b"", time.monotonic() + timeout
  with socket.create_connection(("127.0.0.1", port), timeout=timeout) as s:
    try:
      for piece in pieces:
        if isinstance(piece, float): time.sleep(piece)
        else: s.sendall(piece)
      if half_close: s.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError): pass
    except TimeoutError: raise Hang("the server reads no more and does not close") from None
    while True:
      s.settimeout(0.2 if complete(received) else 1.0 if not half_close else max(0.1, end - time.monotonic()))
      try: more = s.recv(65536)
      except ConnectionResetError: return received
      except TimeoutError:
        if complete(received): return received
        if not half_close:  # an incomplete request: what follows is up to the client
          half_close = True
          try: s.shutdown(socket.SHUT_WR)
          except OSError: return received
          continue
        raise Hang(f"no answer after {timeout} s: {received[:200]!r}") from None
      if not more: return received
      received += more
      if time.monotonic() > end: raise Hang("the answer does not end")


def answers(received):
  """Returns (status, body, whole) of each answer."""
  out = []
  while received:
    top, found, rest = received.partition(b"\r\n\r\n")
    status = int(top[9:12])
    if not found: return [*out, (status, b"", False)]
    received = rest
    if status == 100: continue
    fields = dict(line.lower().split(b": ", 1) for line in top.split(b"\r\n")[1:])
    if fields.get(b"transfer-encoding") == b"chunked":
      body, whole = b"", False
      while not whole and b"\r\n" in received:
        size, _, received = received.partition(b"\r\n")
        n = int(size, 16)
        if len(received) < n + 2: break
        body, received, whole = body + received[:n], received[n + 2:], n == 0
      out.append((status, body, whole))
      if not whole: return out
      continue
    n = int(fields.get(b"content-length", b"0"))
    out.append((status, received[:n], len(received) >= n))
    received = received[n:]
  return out


def complete(received):
  try: return bool(received) and all(whole for _, _, whole in answers(received))
  except (ValueError, IndexError): return False


def judge(received):
  """Returns what is wrong with the answers to a malformed request; nothing: they are right."""
  try: parsed = answers(received)
  except (ValueError, IndexError) as e: return f"no HTTP: {e} in {received[:100]!r}"
  for status, body, whole in parsed:
    if status >= 500 or status < 200: return f"status {status}: {body[:300]!r}"
    if status < 400 and b"the model failed" in body: return f"the model failed: {body[-300:]!r}"
    if status < 400 or not whole: continue
    try: error = json.loads(body)["error"]
    except (ValueError, KeyError) as e: return f"status {status} without a JSON error: {e} in {body[:200]!r}"
    if not isinstance(error.get("message"), str) or "type" not in error: return f"not OpenAI's error: {body[:200]!r}"
  return None
