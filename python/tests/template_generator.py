"""Random chat templates and values for them: what templates of models use and what surrounds it, mostly well typed."""
import random

STRINGS = ["", "a", "b", "Hello World", "  pad\t", "x,y,,z", "line\nbreak\n", "ÄÖ ß é", "中文🙂", "<b>&\"'", "10",
    "0x1f", " -7 ", "3.5", "1e3", "a.b",
           "<think>x</think>y", "{}", "{0}-{k}", "%s|%s", "role", "user", "İstanbul ΑΣ", "tab\there", "\r\nx\ry",
               "aXbXc", "--", "\u2028sep", "UPPER lower"]
NAMES = ["i", "j", "f", "s", "w", "l", "ls", "d", "m", "n", "t", "z", "nested", "missing", "e", "g", "q", "p"]


FORMATS = ["{}", "{} {}", "{0} {1} {0}", "{} {0}", "{k}", "{:>8}|{:<4}", "{:*^9}", "{0[0]}", "{!r}", "{:d}", "{:.2f}",
           "{:,}", "{:+}", "{:05}", "{:#x}", "{:e}", "{:%}", "{{}}", "{:>{k}}"]
STRING_TESTS = ["isdigit", "isalpha", "isupper", "islower", "isspace", "isalnum", "istitle", "isidentifier", "isascii"]
PAIRS = ["d.items()", "d | items", "d | dictsort", "m | groupby('role')", "[(1, 2), (3, 4)]"]
NESTED = ["[1, [2, [3]], []]", "nested", "l"]
BLOCK_FILTERS = ["upper", "trim", "indent(2)", "replace('a', 'b')", "length"]


def variables(r: random.Random) -> dict:
  s = lambda: r.choice(STRINGS)
  number = lambda: r.choice([0, 1, -1, 2, 3, 7, 10, 255, -12, 1000000, 2**53 + 1, -2**63, 2**63 - 1])
  real = lambda: r.choice([0.0, -0.0, 0.5, 1.5, 2.5, -3.75, 1e16, 1e-5, 123456.789, 1e300, 0.1])
  message = lambda: {"role": r.choice(["user", "assistant", "system", "tool"]), "content": s(),
                     **({"name": s()} if r.random() < .3 else {}), **({"n": number()} if r.random() < .5 else {})}
  return {"i": number(), "j": r.randint(-3, 5), "f": real(), "s": s(), "w": s(), "l": [r.randint(-5, 9) for _ in
      range(r.randint(0, 5))],
          "ls": [s() for _ in range(r.randint(0, 4))], "d": {r.choice(["a", "b", "Key", "é", "items"]): r.choice([
              number(), s(), None, [1], {"x": real()}]) for _ in range(r.randint(0, 4))},
          "m": [message() for _ in range(r.randint(0, 4))], "n": None, "t": True, "z": False, "e": [],
          "nested": [{"x": {"y": r.randint(0, 3)}, "k": s()} for _ in range(r.randint(0, 3))], "g": [r.choice([number
              (), s(), None, real(), True])for _ in range(r.randint(0, 4))]}


class Generator:
  def __init__(self, r: random.Random): self.r = r

  def pick(self, *options): return self.r.choice(options)

  def literal(self) -> str:
    r = self.r
    s = r.choice(STRINGS)
    quoted = "'" + s.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"
    return r.choice([quoted, quoted, str(r.randint(0, 20)), "0x1F", "1_000", "2.5", "1e2", "true", "false", "none",
        "[]", "{}", "()", "(1,)"])

  def number(self, depth) -> str:
    r = self.r
    if depth <= 0: return r.choice(["i", "j", "1", "2", "3", "0", "f", "-1", "loop.index"])
    e = self.number
    return r.choice([
        lambda: f"({e(depth-1)} {r.choice('+ - * / // %'.split())} {e(depth-1)})", lambda:
            f"{self.sequence(depth-1)} | length",
        lambda: f"{self.string(depth-1)} | int", lambda: f"{self.string(depth-1)} | float", lambda:
            f"({e(depth-1)}) | abs",
        lambda: f"({e(depth-1)}) | round", lambda:
            f"({e(depth-1)}) | round({r.randint(-2, 3)}, '{r.choice(['common', 'ceil', 'floor'])}')",
        lambda: f"{self.string(depth-1)} | int({r.randint(0, 9)}, {r.choice([0, 2, 8, 10, 16, 36])})", lambda:
            f"l | sum", lambda: f"l | max", lambda: f"l | min",
        lambda: f"-{e(depth-1)}", lambda:
            f"{self.string(depth-1)}.find({self.string(depth-1)}{r.choice(['', ', 1', ', -2', ', 0, 3'])})",
        lambda: f"{self.string(depth-1)}.count({self.literal()})", lambda:
            f"{self.sequence(depth-1)}.index({e(depth-1)})", lambda: f"{self.string(depth-1)} | wordcount",
        lambda: f"nested | sum(attribute='x.y')", lambda: f"({e(depth-1)} ** {r.randint(0, 3)})", lambda:
            f"{self.sequence(depth-1)} | first",
        lambda: f"{self.sequence(depth-1)}[{r.randint(-2, 2)}]", lambda:
            f"({e(depth-1)} if {self.truth(depth-1)} else {e(depth-1)})"])()

  def string(self, depth) -> str:
    r = self.r
    if depth <= 0: return r.choice(["s", "w", "'a'", "m[0].role", "d.a", "d['Key']", "missing", self.literal(),
        "ls[0]", "loop.index"])
    e = self.string
    method = r.choice(["strip()", "lstrip()", "rstrip()", "upper()", "lower()", "title()", "capitalize()",
        "strip('ab ')", "swapcase()", "casefold()",
                       "replace('a', 'b')", "replace('a', 'b', 1)", "removeprefix('a')", "removesuffix('z')",
                           "zfill(5)", "center(9)", "ljust(6, '.')", "rjust(6)",
                       "expandtabs(4)", "split()[0]", "split(',')[-1]", "rsplit('X', 1)[0]", "partition('X')[2]",
                           "rpartition(',')[0]", "splitlines() | join('|')",
                       "join(ls)", "format(i, s, k=w)", "lstrip('\\n')", "replace('', '-')", "split('X', 1) | last"])
    filt = r.choice(["upper", "lower", "title", "capitalize", "trim", "trim('a')", "string", "replace('a', 'bb')",
        "replace('X', '', 1)", "indent", "indent(2, true)", "indent('> ', blank=true)",
                     "truncate(5)", "truncate(5, true, '..', 0)", "tojson", "tojson(indent=2)",
                         "tojson(ensure_ascii=true)", "escape", "e", "forceescape", "safe", "reverse", "first",
                         "last", "default('x')",
                     "default('x', true)", "d", "center(11)", "urlencode", "list | join('-')", "format(i, s)"])
    return r.choice([
        lambda: f"{e(depth-1)}.{method}", lambda: f"({e(depth-1)} | {filt})", lambda:
            f"({e(depth-1)} ~ {self.any(depth-1)})", lambda: f"({e(depth-1)} + {e(depth-1)})",
        lambda:
            f"{e(depth-1)}[{r.choice(['0', '-1', '1:', ':2', '::-1', '1:3', '-2:', '::2', ':-1', 'j:', '5:1:-1'])}]",
            lambda: f"({self.sequence(depth-1)} | join({r.choice([chr(39) + ', ' + chr(39), '', 's'])}))",
        lambda: f"({self.any(depth-1)} | tojson)", lambda: f"({e(depth-1)} * {r.randint(0, 3)})", lambda:
            f"('%s=%5.2f|%-4d|%x' % ({e(depth-1)}, {self.number(depth-1)}, j, 255))",
        lambda: f"('%s' % {self.any(depth-1)})", lambda: "('%(a)s %(b)s' % {'a': s, 'b': i})", lambda:
            f"({e(depth-1)} if {self.truth(depth-1)} else {e(depth-1)})",
        lambda: f"({e(depth-1)} if {self.truth(depth-1)})", lambda: f"({self.any(depth-1)} | string)", lambda:
            f"({e(depth-1)} or {e(depth-1)})", lambda: f"({e(depth-1)} and {e(depth-1)})",
        lambda:
            f"'{r.choice(FORMATS)}'.format({self.any(depth-1)}, {self.any(depth-1)}, k={self.number(depth-1)})"
            ])()

  def sequence(self, depth) -> str:
    r = self.r
    if depth <= 0: return r.choice(["l", "ls", "m", "e", "g", "nested", "s", "d", "range(3)", "[1, 2]", "(1, 'b')",
        "missing"])
    e = self.sequence
    test = r.choice(["'odd'", "'even'", "'string'", "'defined'", "'none'", "'gt', 1", "'in', [1, 2, 'a']",
        "'equalto', s", "'number'", "'divisibleby', 2", "'mapping'", ""])
    filt = r.choice(["list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)", "unique | list",
        "reverse | list", "map('upper') | list", "map('string') | list", "map('length') | list", "map('int') | list",
        "map('default', 'q') | list",
                     f"select({test}) | list", f"reject({test}) | list", "batch(2) | list", "batch(3, 'f') | list",
                         "slice(2) | list", "map('tojson') | list", "map('trim') | list", "list | reverse | list",
                         "select | list | length", "map('first') | list"])
    attr = r.choice(["map(attribute='role') | list", "map(attribute='name', default='?') | list",
        "map(attribute='content') | list", "selectattr('name') | list",
        "selectattr('role', 'equalto', 'user') | list", "rejectattr('role', 'in', ['system']) | list",
                     "selectattr('n', 'defined') | list", "sort(attribute='role')", "sort(attribute='name')",
                         "sort(attribute='role,content')", "groupby('role')", "groupby('name', default='-')",
                         "unique(attribute='role') | list",
                     "map(attribute='content') | map('length') | list", "selectattr('n', 'gt', 1) | list",
                         "sort(attribute='missing')", "min(attribute='role')", "max(attribute='n')"])
    return r.choice([
        lambda: f"({e(depth-1)} | {filt})", lambda: f"(m | {attr})", lambda:
            f"(nested | map(attribute='x.y') | list)", lambda: f"(nested | sort(attribute='x.y', reverse=true))",
            lambda:
            f"{self.string(depth-1)}.split({r.choice(['', chr(39) + ',' + chr(39), chr(39) + 'X' + chr(39) + ', 1'])})"
            ,
        lambda: f"[{self.any(depth-1)}, {self.any(depth-1)}]", lambda: f"({self.any(depth-1)}, {self.any(depth-1)})",
            lambda: f"{e(depth-1)}[{r.choice(['1:', ':-1', '::2', '::-1', ':0'])}]", lambda:
            f"({e(depth-1)} + {e(depth-1)})",
        lambda: "(d | items | list)", lambda: "(d | dictsort)", lambda: "(d | dictsort(by='value'))", lambda:
            "(d | dictsort(reverse=true, case_sensitive=true))", lambda: "d.items()", lambda: "d.keys() | list",
            lambda: "d.values() | list", lambda:
            f"range({r.randint(-1, 4)}, {r.randint(0, 6)}, {r.choice([1, 2, -1])})",
        lambda: f"({e(depth-1)} * 2)", lambda: f"{self.string(depth-1)}.splitlines({r.choice(['', 'true'])})"])()

  def truth(self, depth) -> str:
    r = self.r
    if depth <= 0: return r.choice(["t", "z", "s", "l", "n", "missing", "i", "true", "m", "loop.first"])
    test = r.choice(["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping",
        "sequence", "iterable", "odd", "even", "true", "false", "lower", "upper", "callable", "divisibleby 2", "eq 1"
        , "sameas true", "in [1, 'a']", "escaped", "gt 2", "ne 'a'", "lessthan(3)", ])
    return r.choice([
        lambda: f"({self.any(depth-1)} {r.choice(['==', '!='])} {self.any(depth-1)})", lambda:
            f"({self.number(depth-1)} {r.choice(['<', '<=', '>', '>='])} {self.number(depth-1)})", lambda:
            f"({self.any(depth-1)} {r.choice(['in', 'not in'])} {self.sequence(depth-1)})",
        lambda: f"({self.any(depth-1)} is {r.choice(['', 'not '])}{test})", lambda: f"not {self.truth(depth-1)}",
            lambda: f"({self.truth(depth-1)} {r.choice(['and', 'or'])} {self.truth(depth-1)})", lambda:
            f"{self.string(depth-1)}.startswith({self.string(depth-1)})",
        lambda:
            f"{self.string(depth-1)}.{r.choice(STRING_TESTS)}()"
            , lambda: f"{self.string(depth-1)}.endswith(('a', s))", lambda: f"(1 < {self.number(depth-1)} <= 7)",
            lambda: f"({self.string(depth-1)} < {self.string(depth-1)})"])()

  def dictionary(self, depth) -> str:
    r = self.r
    return r.choice([lambda: "d", lambda: "m[0]", lambda:
        f"{{'a': {self.any(depth-1)}, {r.choice(['1', 's', 'true'])}: {self.any(depth-1)}}}", lambda:
        f"dict(a2={self.any(depth-1)}, **d)", lambda: "dict(d, q=1)", lambda: "dict([('a', 1), ('b', s)])"])()

  def key(self) -> str: return self.r.choice(["'a'", "'role'", "s", self.literal()])

  def any(self, depth) -> str:
    if depth <= 0: return self.r.choice(NAMES + [self.literal()])
    return self.r.choice([self.number, self.string, self.sequence, self.truth, self.dictionary, lambda k:
        f"{self.dictionary(k)}.get({self.key()}, {self.any(k-1)})", lambda k:
        f"{self.dictionary(k)}[{self.any(k-1)}]"])(depth)

  def space(self) -> str: return self.r.choice(["", "", "", " ", "\n", "  \n", "\n  ", "text", "text\n", "\t"])

  def tag(self, text) -> str:
    r = self.r
    return "{%" + r.choice(["", "", "-", "+"]) + " " + text + " " + r.choice(["", "", "-", "+"]) + "%}"

  def output(self, depth) -> str:
    r = self.r
    return "{{" + r.choice(["", "", "-"]) + " " + self.any(depth) + " " + r.choice(["", "", "-"]) + "}}"

  def body(self, depth, loops=0) -> str:
    return "".join(self.space() + self.statement(depth, loops) for _ in range(self.r.randint(1, 3))) + self.space()

  def statement(self, depth, loops) -> str:
    if depth <= 0 or self.r.random() < .4: return self.output(2)
    return self.r.choice([
        self.branch, self.loop, self.pairs, self.messages, self.recursive, self.assignment, self.set_block,
        self.namespace, self.macro, self.call, self.filter, self.scope, self.other])(depth, loops)

  def otherwise(self, chance, depth, loops) -> str:
    return self.tag("else") + self.body(depth - 1, loops) if self.r.random() < chance else ""

  def branch(self, depth, loops) -> str:
    more = self.tag(f"elif {self.truth(1)}") + self.body(depth - 1, loops) if self.r.random() < .3 else ""
    return (self.tag(f"if {self.truth(2)}") + self.body(depth - 1, loops) + more + self.otherwise(.5, depth, loops) +
            self.tag("endif"))

  def loop(self, depth, loops) -> str:
    condition = f" if {self.truth(1)}" if self.r.random() < .2 else ""
    return (self.tag(f"for x in {self.sequence(2)}{condition}") + "{{ loop.index0 }}{{ x }}" +
            self.body(depth - 1, loops + 1) + self.otherwise(.3, depth, loops) + self.tag("endfor"))

  def pairs(self, depth, loops) -> str:
    return (self.tag(f"for k, v in {self.r.choice(PAIRS)}") + "{{ k }}={{ v }}" + self.body(depth - 1, loops + 1) +
            self.tag("endfor"))

  def messages(self, depth, loops) -> str:
    shown = ("{{ loop.previtem.role }}{{ loop.nextitem.role if not loop.last }}{{ loop.revindex }}"
             "{{ loop.cycle('o', 'e') }}{{ loop.changed(x.role) }}")
    return self.tag("for x in m") + shown + self.body(depth - 1, loops + 1) + self.tag("endfor")

  def recursive(self, depth, loops) -> str:
    shown = "{% if x is sequence and x is not string %}({{ loop(x) }}){% else %}{{ x }}{% endif %}"
    return self.tag(f"for x in {self.r.choice(NESTED)} recursive") + "{{ loop.depth }}" + shown + self.tag("endfor")

  def assignment(self, depth, loops) -> str:
    if self.r.random() < .5: return self.tag(f"set q, p = {self.any(1)}, {self.any(1)}")
    return self.tag(f"set {self.r.choice(['q', 'p'])} = {self.any(2)}")

  def set_block(self, depth, loops) -> str:
    filters = self.r.choice(["", " | upper | trim"])
    return self.tag("set q" + filters) + self.body(depth - 1, loops) + self.tag("endset") + "[{{ q }}]"

  def namespace(self, depth, loops) -> str:
    return (self.tag("set ns = namespace(a=1, b=s)") + self.tag(f"for x in {self.sequence(1)}") +
            self.tag(f"set ns.a = ns.a ~ {self.any(1)}") + self.tag("endfor") + "{{ ns.a }}{{ ns.c is defined }}")

  def macro(self, depth, loops) -> str:
    calls = "{{ f(%s) }}{{ f(%s, b=%s) }}" % (self.any(1), self.any(1), self.any(1))
    return (self.tag("macro f(a, b='B', c=a)") + "<{{ a }}{{ b }}{{ c }}{{ s }}>" + self.body(depth - 1) +
            self.tag("endmacro") + calls)

  def call(self, depth, loops) -> str:
    shown = "{{ caller(%s) if caller else '' }}{{ varargs }}{{ kwargs }}" % self.any(1)
    return (self.tag("macro g()") + shown + self.tag("endmacro") +
            self.tag(f"call(x) g({self.r.choice(['', '1', '1, k=2'])})") + "{{ x }}" + self.body(depth - 1) +
            self.tag("endcall"))

  def filter(self, depth, loops) -> str:
    return self.tag(f"filter {self.r.choice(BLOCK_FILTERS)}") + self.body(depth - 1, loops) + self.tag("endfilter")

  def scope(self, depth, loops) -> str:
    if self.r.random() < .4: return self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration")
    return (self.tag(f"with q = {self.any(2)}, s = {self.any(1)}") + "{{ q }}" + self.body(depth - 1, loops) +
            self.tag("endwith"))

  def other(self, depth, loops) -> str:
    r = self.r
    if loops and r.random() < .4:
      return self.tag("if " + self.truth(1)) + self.tag(r.choice(["break", "continue"])) + self.tag("endif")
    return r.choice(["{#- a comment -#}", "{# two\nlines #}\n", "{% raw %}\n {{ x }} {% endraw %}\n",
                     "{%- raw -%} {% if %} {%- endraw -%}", "{{ raise_exception('no ' ~ s) }}", self.output(3)])

  def template(self) -> str: return self.body(3)
