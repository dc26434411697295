"""Chat templates: equal to jinja2 in the environment of Hugging Face's apply_chat_template (tests/chat/record.py), on
the templates of the model families in tests/chat and on generated ones. CHAT_TEMPLATES sets how many are generated."""
import os, pathlib, random, sys, unittest
import tinygrad_cpp
from tinygrad_cpp.llm import ChatTemplate, ReplyParser
import template_generator
from hypothesis import given, settings, strategies as st

CHAT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "chat"
sys.path.insert(0, str(CHAT))
try: import record
except ImportError: record = None  # no jinja2
needs_jinja = unittest.skipIf(record is None, "jinja2 is not installed")
COUNT = int(os.environ.get("CHAT_TEMPLATES", "300"))
NOW = 1717243200


# Characters that this Python knows: whether others can be printed depends on the version of Unicode.
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cn", "Cs")), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1) | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(TEXTS | st.integers(-9, 9), v, max_size=4),
    max_leaves=12)


def outcome(source: str, variables: dict) -> dict:
  try: return {"text": ChatTemplate(source, "t").render_variables(variables, unix_seconds=NOW)}
  except tinygrad_cpp.FormatError as e: return {"error": str(e)}


def differs(want: dict, got: dict) -> bool:
  """Whether two outcomes differ in what is not documented: integers of more than 64 bits, how generators, methods and
  slices of constants that have none print, unknown filters and tests that nothing reaches."""
  known = "more than 64 bits", "a slice of"
  if "text" in want and any(k in got.get("error", "") for k in known): return False
  if " object at 0x" in want.get("text", "") or "bound method" in want.get("text", ""): return False
  if want.get("error") == "TemplateAssertionError" and "text" in got: return False
  if "raised" in want: return not got.get("error", "").endswith(": " + want["raised"])
  return want.get("text") != got.get("text")


class TestRender(unittest.TestCase):
  def test_render_takes_what_apply_chat_template_takes(self):
    chat = ChatTemplate(
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ tools | length if tools }"
        "}"
                        "{{ documents }}{{ '>' if add_generation_prompt }}{{ x }}{{ strftime_now('%Y-%m-%d') }}")
    messages = [{"role": "user", "content": "hi"}]
    self.assertEqual(chat.render(messages, tools=[{"a": 1}], bos_token="<s>", x=(1, 2.5), unix_seconds=NOW),
        "<s>[user]hi1None>(1, 2.5)2024-06-01")
    self.assertEqual(chat.render(messages, add_generation_prompt=False, documents=["d"], unix_seconds=0),
        "[user]hi['d']1970-01-01")
    self.assertEqual(chat.render_variables({"messages": [], "x": "ü"}, unix_seconds=0), "ü1970-01-01")
    self.assertTrue(chat.reads("tools") and not chat.reads("enable_thinking"))
    self.assertTrue(chat.source.startswith("{{ bos_token }}"))

  def test_errors(self):
    with self.assertRaisesRegex(tinygrad_cpp.FormatError, "mine:2: the statement 'nope' is"): ChatTemplate(
        "\n{% nope %}", "mine")
    with self.assertRaisesRegex(tinygrad_cpp.FormatError, ":3: no system"): ChatTemplate(
        "\n\n{{ raise_exception('no system') }}").render([])
    with self.assertRaisesRegex(tinygrad_cpp.FormatError, "steps"): ChatTemplate(
        "{% for a in range(999) %}{% for b in [1, 2, 3] %}{% for c in range(999) %}{{ c }}{% endfor %}{% endfor %}{%"
        " endfor %}").render([])
    chat = ChatTemplate("{{ messages }}")
    for wrong in (object(), {1, 2}, [b"x"]):
      with self.assertRaisesRegex(TypeError, "got an object of type"): chat.render(wrong)
    own = []
    own.append(own)
    with self.assertRaisesRegex(ValueError, "nested more than"): chat.render(own)
    wide = [0] * 100
    for _ in range(10): wide = [wide] * 100
    with self.assertRaisesRegex(ValueError, "values"): chat.render(wide)
    with self.assertRaisesRegex(ValueError, "64 bits"): chat.render([2**64])
    with self.assertRaises(ValueError): chat.render(["\ud800"])
    with self.assertRaises(TypeError): chat.render([], bos_token=3)

  def test_replies(self):
    parser = ReplyParser("...<tool_call>...</think>", prompt="<think>\n")
    got = [parser.feed(t) for t in ("hm</th", "ink>\n\nSure.<tool",
        '_call>{"name": "f", "arguments": {"x": 1}}</tool_call>')] + [parser.finish()]
    self.assertEqual("".join(g["reasoning_content"] for g in got), "hm")
    self.assertEqual("".join(g["content"] for g in got), "Sure.")
    self.assertEqual([c for g in got for c in g["tool_calls"]], [{"id": "call_0", "name": "f", "arguments":
        '{"x": 1}'}])


@needs_jinja
class TestEquality(unittest.TestCase):
  def check(self, source: str, variables: dict):
    want, got = record.outcome(source, variables, self.env), outcome(source, variables)
    self.assertFalse(differs(want, got), f"\n{source!r}\n{variables!r}\nwant {want!r}\ngot  {got!r}")

  @classmethod
  def setUpClass(cls): cls.env = record.environment(NOW)

  def test_model_families(self):
    names = []
    for name, source in record.templates():
      for c in record.conversations():
        with self.subTest(name, conversation=c["name"]): self.check(source, record.variables_of(c))
      names.append(name)
    self.assertGreaterEqual(len(names), 40)

  @settings(max_examples=COUNT, deadline=None)
  @given(st.integers(0, 2**32))
  def test_generated_expressions(self, seed):
    r = random.Random(seed)
    variables = template_generator.variables(r)
    expression = "{{ " + template_generator.Generator(r).any(3) + " }}"
    self.check("{% for q in [1, 2] %}" + expression + "{% endfor %}" if "loop" in expression else expression, variables)

  @settings(max_examples=COUNT, deadline=None)
  @given(st.integers(0, 2**32))
  def test_generated_templates(self, seed):
    r = random.Random(seed)
    variables = template_generator.variables(r)
    self.check(template_generator.Generator(r).template(), variables)

  @settings(max_examples=COUNT, deadline=None)
  @given(VALUES)
  def test_generated_values(self, value):
    for source in ("{{ v | tojson }}", "{{ v | tojson(ensure_ascii=true, indent=2) }}", "{{ v }}",
        "{{ v | string | length }}", "{{ [v] | tojson(separators=(',', ':')) }}",
                   "{% for x in [v] %}{{ x is mapping }}{{ x is string }}{{ x is iterable }}{{ x is number }}{{ 1 if"
                       " x }}{{ x == v }}{% endfor %}"):
      self.check(source, {"v": value})


if __name__ == "__main__": unittest.main()
