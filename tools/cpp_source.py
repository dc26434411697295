"""A small reader of C++ sources for the checks in check_source.py: tokens without comments and directives, and the
nesting of namespaces, classes, blocks and initialisers. It knows as much of the language as this project uses."""
import re
from typing import NamedTuple

TOKEN = re.compile(r"""
  (?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*)
 |(?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)")
 |(?P<text>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
 |(?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
 |(?P<word>[A-Za-z_]\w*)
 |(?P<mark>::|->\*?|<=>|[-+*/%&|^<=>!]=|<<=|>>=|&&|\|\||\+\+|--|<<|\.\.\.|.)""", re.S | re.M | re.X)


class Token(NamedTuple):
  text: str  # of a closed group its opening bracket, "{}" of a block, "lambda" of a lambda's body
  line: int


class Scope(NamedTuple):
  kind: str  # "file", "namespace", "class", "enum", "code", "init", "(", "["
  head: list  # the tokens before the bracket that belong to it
  line: int


def tokens(text):
  line, at = 1, 0
  for m in TOKEN.finditer(text):
    line += text.count("\n", at, m.start())
    at = m.start()
    if m["skip"] is None: yield Token('""' if m["raw"] or m["text"] else m[0], line)


def without_templates(head):
  """The head without `template <...>`, whose parameters may be called class."""
  out, depth, i = [], 0, 0
  for i, t in enumerate(head):
    if t == "<" and (depth or (i and head[i - 1] == "template")): depth += 1
    elif depth and t in (">", ">>"): depth -= len(t)
    elif not depth: out.append(t)
  return out


def is_lambda(head):
  """[...] (...) specifiers -> type, at the end of the head."""
  if "[" not in head: return False
  after = head[len(head) - head[::-1].index("["):]
  if after[:1] == ["("]: after = after[1:]
  elif after: return False
  return not after or after[0] in ("mutable", "noexcept", "->", "constexpr")


def kind_of_brace(outer, head):
  words = without_templates(head)
  if "namespace" in words or words == ["extern", '""']: return "namespace"
  if is_lambda(head): return "code"
  last = head[-1] if head else ""
  if outer.kind in ("(", "[", "init") or last in ("=", ",", "return", "?"): return "init"
  keys = [w for w in words if w in ("struct", "class", "union", "enum")]
  if keys and "=" not in words and last != ")" and not (words[-1] == "(" and "alignas" not in words):
    return "enum" if keys[0] == "enum" else "class"
  if outer.kind == "enum": return "init"
  if last in ("(", "const", "noexcept", "override", "final", "try", "else", "do", ":", "{", "{}", "") or "->" in head:
    return "code"
  return "init"


def read(text, leave):
  """Calls leave(outer scope, statement tokens) for every statement or member, outermost last, where it ends."""
  stack = [(Scope("file", [], 1), [])]
  for t in tokens(text):
    scope, statement = stack[-1]
    if t.text in "([":
      stack.append((Scope(t.text, [], t.line), []))
    elif t.text == "{":
      head = [s.text for s in statement]
      stack.append((Scope(kind_of_brace(scope, head), head, t.line), []))
    elif t.text in (")", "]", "}") and len(stack) > 1:
      if statement: leave(scope, statement)
      stack.pop()
      outer, before = stack[-1]
      if t.text != "}": before.append(Token(scope.kind, scope.line))
      elif scope.kind == "init": before.append(Token("{", scope.line))
      elif scope.kind == "code" and is_lambda(scope.head): before.append(Token("lambda", scope.line))
      else:
        before.append(Token("{}", scope.line))
        if scope.kind not in ("class", "enum"):
          leave(outer, before)
          before.clear()
    elif t.text == ";":
      leave(scope, statement)
      statement.clear()
    else:
      statement.append(t)
      if t.text == ":" and scope.kind == "class" and len(statement) == 2: statement.clear()  # public:
