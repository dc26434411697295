"""Serves a language model over HTTP, as OpenAI's API: `serve(FILE)`, or `python -m tinygrad_cpp.llm --serve`."""
from .._core import LlmServer, StreamRouter, llm_serve

__all__ = ["LlmServer", "StreamRouter", "serve", "serve_forever"]


def serve(model, *, host="127.0.0.1", port=0, api_key="", max_sequences=4, context=0, max_queue=128, names=(),
          warm_up=True, chat_template=""):
  """Loads a GGUF file, or a model that the registry knows by name, and serves it from threads of its own until the
  result's stop() or its end. Addresses that other machines reach need an api_key; port 0 is any free one (`.port` says
  which). `chat_template`, a file or the name of a known one, stands in place of the model's."""
  return llm_serve(str(model), host, port, api_key, max_sequences, context, max_queue, list(names), warm_up,
                   str(chat_template))


def serve_forever(model, **options):
  """Serves until Ctrl-C."""
  server = serve(model, **options)
  host = options.get("host", "127.0.0.1")
  print(f"ready: http://{host}:{server.port} (chat page), http://{host}:{server.port}/v1 (API); Ctrl-C stops",
        flush=True)
  try:
    while not server.wait(0.2): pass
  except KeyboardInterrupt:
    server.stop()
    while not server.wait(0.2): pass
