"""JSON schemas as constraints: everything they let through validates with the package `jsonschema`, and texts that
validate are let through where the documentation says so. JSON_SCHEMAS sets how many schemas are generated."""
import json, os, random, unittest
import tinygrad_cpp
from tinygrad_cpp.llm import JsonSchema, TokenBytes
from hypothesis import given, settings, strategies as st

try: import jsonschema
except ImportError: jsonschema = None
needs_jsonschema = unittest.skipIf(jsonschema is None, "jsonschema is not installed")
COUNT = int(os.environ.get("JSON_SCHEMAS", "150"))

WORDS = ['{"', '": ', '", "', "true", "false", "null", "[[", "]]", "12", "-0.5", "e+1", "\\u00e4", "ä", "🙂", "name",
    '"}', "2024-", "a", "bb", "s_", "_n", " ", ", "]
TOKENS = [bytes([b]) for b in range(256)] + [w.encode() for w in WORDS]
BYTES = TokenBytes(TOKENS)


def sample(schema: JsonSchema, r: random.Random, longest: int = 400) -> str | None:
  """Draws a text under the masks of a schema; None for one that does not end."""
  constraint, out = schema.constraint(BYTES), b""
  while not constraint.exhausted:
    if constraint.finished and (r.random() < .5 or len(out) > longest): break
    allowed = constraint.allowed()
    if not allowed:
      assert constraint.finished, out
      break
    if len(out) > 2 * longest: return None
    # what closes a part comes often, so that texts end
    closing = [t for t in allowed if TOKENS[t] in (b'"', b"]", b"}", b",", b":")]
    token = r.choice(closing) if closing and r.random() < (.25 if len(out) < longest else .95) else r.choice(allowed)
    assert constraint.accept(token)
    out += TOKENS[token]
  text = out.decode()  # strict: a text is always UTF-8
  assert schema.accepts(text)
  return text


class Schemas:
  """Random schemas of what is understood, and some of what is not."""
  def __init__(self, r: random.Random): self.r = r

  def scalar(self) -> dict:
    r = self.r
    low, high = sorted([r.randint(-200, 200), r.randint(-200, 200)])
    return r.choice([
      lambda: {"type": "integer"}, lambda: {"type": "number"}, lambda: {"type": "boolean"}, lambda: {"type": "null"},
      lambda: {
          "type": "string"},
      lambda: {"type": "integer", "minimum": low, "maximum": high}, lambda: {"type": "integer", "exclusiveMinimum":
          low, "exclusiveMaximum": high + 2},
      lambda: {"type": "number", "minimum": low / 8, "maximum": high / 8 + 1}, lambda: {"type": "number",
          "exclusiveMaximum": low / 4}, lambda: {"type": "integer", "multipleOf": r.randint(1, 40)},
      lambda: {"type": "string", "minLength": r.randint(0, 4), "maxLength": r.randint(4, 12)}, lambda: {"type":
          "string", "pattern": r.choice(["^a+b*$", "[0-9]{2}", "^(x|yz){1,3}$", "^[^a-z]{3}$", "\\d-\\w", "^\\S+$",
          "é|ü", "^.{2,5}$", "a$|^b"])},
      lambda: {"type": "string", "format": r.choice(["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email",
          "hostname", "uri"])},
      lambda: {"enum": r.sample(["a", "b", 1, 2.5, None, True, [1], {"k": "v"}, "ä\n"], 3)}, lambda: {
          "const": r.choice(["c", 0, -1.5, None, [], {}])},
      lambda: {"type": ["string", "integer"], "maximum": high, "maxLength": 5}])()

  def schema(self, depth: int):
    r = self.r
    if depth <= 0: return self.scalar()
    s = lambda: self.schema(depth - 1)
    names = r.sample(["a", "b", "name", "s_x", "y_n", "ä", "x y"], r.randint(0, 4))
    ascii_names = [n for n in names if n.isascii()]
    return r.choice([
      self.scalar, lambda: {"type": "array", "items": s(), "maxItems": r.randint(1, 4)}, lambda: {"type": "array",
          "prefixItems": [s(), s()], "items": r.choice([False, s()]), "minItems": r.randint(0, 2), "maxItems": 3},
      lambda: {"type": "object", "properties": {n: s() for n in names}, "required": names[:r.randint(0, len(names))],
          "additionalProperties": r.choice([False, False, True, s()])},
      lambda: {"type": "object", "properties": {n: s() for n in ascii_names}, "patternProperties": {"^s_": self.
          scalar(), "_n$": self.scalar()}, "additionalProperties": r.choice([False, s()])},
      lambda: {"anyOf": [s(), s()]}, lambda: {"oneOf": [s(), s()]}, lambda: {"allOf": [s(), s()]}, lambda: {"allOf":
          [{"type": "object", "properties": {n: s() for n in names}}, {"required": names[:1], "additionalProperties":
          r.choice([False, True, s()])}]},
      lambda: {"$ref": "#/$defs/t"}, lambda: {**self.scalar(), "description": "x", "default": 1}, lambda: {"type":
          "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}}, "required": ["next"
          ], "additionalProperties": False},
      lambda: {"type": "array", "items": s(), "uniqueItems": r.choice([False, True]), "maxItems": r.randint(0, 2)}])()

  def root(self) -> dict:
    schema = self.schema(2)
    return {**schema, "$defs": {"t": self.schema(1)}}


class TestConstraint(unittest.TestCase):
  def test_mask_and_accept(self):
    schema = JsonSchema({"type": "object", "properties": {"a": {"type": "integer", "maximum": 12}}, "required": ["a"]
        , "additionalProperties": False})
    tokens = TokenBytes([b'{"', b"a", b'":', b"1", b"2", b"3", b"}", b""])
    self.assertEqual(len(tokens), 8)
    c = schema.constraint(tokens)
    self.assertEqual(c.allowed(), [0])
    self.assertEqual(c.mask(), (1).to_bytes(8, "little"))
    self.assertFalse(c.accept(1) or c.finished)
    for t in (0, 1, 2, 3): self.assertTrue(c.accept(t))
    self.assertEqual(c.allowed(), [3, 4, 6])
    self.assertTrue(c.accept(6) and c.finished and c.exhausted)
    c.reset()
    self.assertEqual(c.allowed(), [0])
    self.assertRaises(IndexError, c.accept, 8)

  def test_options(self):
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    self.assertTrue(JsonSchema(schema).accepts('{"b": 1, "a": 2}'))
    self.assertFalse(JsonSchema(schema, ordered=True).accepts('{"b": 1, "a": 2}'))
    self.assertFalse(JsonSchema(schema, compact=True).accepts('{"a": 1}'))
    self.assertTrue(JsonSchema(json.dumps(schema), compact=True).accepts('{"a":1}'))
    with self.assertRaisesRegex(ValueError, "#/properties/a/not"): JsonSchema({"properties": {"a": {"not": {}}}})
    with self.assertRaises(ValueError): JsonSchema("{")

  @needs_jsonschema
  @settings(max_examples=COUNT, deadline=None)
  @given(st.integers(0, 2**32))
  def test_what_is_sampled_validates(self, seed):
    r = random.Random(seed)
    source = Schemas(r).root()
    try: schema = JsonSchema(source, ordered=r.random() < .3, compact=r.random() < .3)
    except ValueError as e:
      self.assertRegex(str(e), r"^\[json_schema\] (#|nothing satisfies)")
      return
    validator = jsonschema.Draft202012Validator(source, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    for _ in range(3):
      text = sample(schema, r)
      if text is None: continue
      try: errors = [e.message for e in validator.iter_errors(json.loads(text))]
      except RecursionError: return  # a schema that refers to itself without an object or array between
      self.assertEqual(errors, [], f"\n{json.dumps(source)}\n{text}")

  @needs_jsonschema
  def test_what_validates_is_let_through(self):
    """Values written as Python writes them, unless the documentation leaves them out."""
    for source, values in [
      ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "number"}}},
        "additionalProperties": True}, [{}, {"a": [1, 2.5, -3]}, {"b": {"c": [None, "ü\n\"\\"]}}]),
      ({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 5}]}, ["", "äöü", 5, 10**17]),
      ({"type": "object", "patternProperties": {"^s_": {"type": "string"}}, "additionalProperties": {}},
       [{"s_": ""}, {"x": 1, "s_a": "b"}]),
      ({"enum": ["a", 1, None, {"k": [1.5]}]}, ["a", 1, None])]:
      schema = JsonSchema(source)
      for value in values:
        jsonschema.validate(value, source)
        self.assertTrue(schema.accepts(json.dumps(value, ensure_ascii=False)), (source, value))


if __name__ == "__main__": unittest.main()
