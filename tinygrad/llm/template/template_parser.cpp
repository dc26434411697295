/// \file Templates as statements and expressions. The order of operators is Jinja's: or, and, not, comparisons, + and
/// -,
/// ~, * and /, **, signs, then what follows an operand.
#include <functional>
#include <initializer_list>

#include "tinygrad/llm/template/marked_text.h"
#include "tinygrad/llm/template/template_ast.h"
#include "tinygrad/llm/template/template_lexer.h"

namespace tg::llm::jinja {
namespace {

using Token = TemplateToken;

class Parser {
 public:
  Parser(std::vector<Token> tokens, Program& program, const TemplateLimits& limits)
      : tokens_(std::move(tokens)), program_(program), limits_(limits) {}

  void run() {
    program_.loop_id = id("loop");
    program_.caller_id = id("caller");
    program_.varargs_id = id("varargs");
    program_.kwargs_id = id("kwargs");
    program_.body = body({});
    if (current().type != Token::Type::end) fail("unexpected end of a block");
  }

 private:
  /// One level of nesting while it lives.
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++parser.level_ > parser.limits_.nesting)
        parser.fail(str("nested more than ", parser.limits_.nesting, " deep"), TemplateError::Reason::limit);
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { parser.level_--; }
    Parser& parser;
  };

  [[noreturn]] void fail(const std::string& what, TemplateError::Reason reason = TemplateError::Reason::syntax) const {
    const int line = current().line;
    throw TemplateError(reason, line, str("[chat_template] ", program_.name, ":", line, ": ", what));
  }
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_[at_]; }
  bool is_op(std::string_view text) const { return current().type == Token::Type::op && current().text == text; }
  bool is_name(std::string_view text) const { return current().type == Token::Type::name && current().text == text; }
  bool skip_op(std::string_view text) { return is_op(text) && (at_++, true); }
  bool skip_name(std::string_view text) { return is_name(text) && (at_++, true); }
  void expect_op(std::string_view text) {
    if (!skip_op(text)) fail(str("got ", shown(), ", expected '", text, "'"));
  }
  std::string expect_name() {
    if (current().type != Token::Type::name) fail(str("got ", shown(), ", expected a name"));
    return take().text;
  }
  std::string shown() const {
    switch (current().type) {
      case Token::Type::end: return "the end of the template";
      case Token::Type::block_end:
      case Token::Type::output_end: return "the end of the tag";
      case Token::Type::data: return "text";
      default: return python_repr(current().text);
    }
  }
  int id(const std::string& name) {
    const auto [found, added] = program_.name_ids.emplace(name, static_cast<int>(program_.names.size()));
    if (added) program_.names.push_back(name);
    return found->second;
  }

  ExprPtr make(Expr::Type type) const {
    auto e = std::make_unique<Expr>();
    e->type = type;
    e->line = current().line;
    return e;
  }
  std::unique_ptr<Stmt> statement(Stmt::Type type, int line) const {
    auto s = std::make_unique<Stmt>();
    s->type = type;
    s->line = line;
    return s;
  }

  // ---- statements ----

  /// Reads statements up to a tag of one of these names, whose name stays the current token; none: to the end.
  Body body(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Body out;
    while (current().type != Token::Type::end) {
      const int line = current().line;
      if (current().type == Token::Type::data) {
        auto s = statement(Stmt::Type::data, line);
        s->data = Value(Text::of_template(take().text));
        out.push_back(std::move(s));
      } else if (current().type == Token::Type::output_begin) {
        at_++;
        auto s = statement(Stmt::Type::output, line);
        s->exprs.push_back(tuple(true));
        expect_end(Token::Type::output_end);
        out.push_back(std::move(s));
      } else {
        at_++;
        for (std::string_view end : ends)
          if (is_name(end)) return out;
        out.push_back(tag());
        expect_end(Token::Type::block_end);
      }
    }
    if (ends.size()) fail(str("the template ends, expected ", *(ends.end() - 1)));
    return out;
  }
  void expect_end(Token::Type type) {
    if (current().type != type) fail(str("unexpected ", shown()));
    at_++;
  }
  /// Reads the rest of a block's tag, its body and the name of the tag that ends it.
  Body block(std::initializer_list<std::string_view> ends) {
    skip_op(":");
    expect_end(Token::Type::block_end);
    return body(ends);
  }

  std::unique_ptr<Stmt> tag() {
    const int line = current().line;
    if (current().type != Token::Type::name) fail("a tag has no name");
    const std::string word = current().text;
    using Reader = std::unique_ptr<Stmt> (Parser::*)(int);
    static const std::unordered_map<std::string_view, Reader> kTags = {
        {"for", &Parser::read_for},    {"if", &Parser::read_if},
        {"set", &Parser::read_set},    {"macro", &Parser::read_macro},
        {"call", &Parser::read_call},  {"filter", &Parser::read_filter},
        {"with", &Parser::read_with},  {"generation", &Parser::read_generation},
        {"break", &Parser::read_jump}, {"continue", &Parser::read_jump}};
    const auto found = kTags.find(word);
    if (found == kTags.end()) fail(str("the statement ", python_repr(word), " is not supported"));
    if (word != "break" && word != "continue") at_++;
    return (this->*found->second)(line);
  }

  std::unique_ptr<Stmt> read_for(int line) {
    auto s = statement(Stmt::Type::loop, line);
    s->targets.push_back(target("in", false));
    if (!skip_name("in")) fail(str("got ", shown(), ", expected 'in'"));
    s->exprs.push_back(tuple(false));
    if (skip_name("if")) s->exprs.push_back(expression());
    s->recursive = skip_name("recursive");
    loops_++;
    s->bodies.push_back(block({"else", "endfor"}));
    loops_--;
    if (skip_name("else")) s->bodies.push_back(block({"endfor"}));
    at_++;
    return s;
  }
  std::unique_ptr<Stmt> read_if(int line) {
    auto s = statement(Stmt::Type::branch, line);
    s->exprs.push_back(tuple(false));
    s->bodies.push_back(block({"elif", "else", "endif"}));
    while (skip_name("elif")) {
      s->exprs.push_back(tuple(false));
      s->bodies.push_back(block({"elif", "else", "endif"}));
    }
    if (skip_name("else")) s->bodies.push_back(block({"endif"}));
    at_++;
    return s;
  }
  std::unique_ptr<Stmt> read_set(int line) {
    auto s = statement(Stmt::Type::set, line);
    s->targets.push_back(target("", true));
    if (skip_op("=")) {
      s->exprs.push_back(tuple(true));
      return s;
    }
    s->type = Stmt::Type::set_block;
    while (skip_op("|")) s->filters.push_back(filter());
    s->bodies.push_back(block({"endset"}));
    at_++;
    return s;
  }
  void signature(Stmt& s) {
    expect_op("(");
    while (!is_op(")")) {
      if (!s.parameters.empty()) expect_op(",");
      s.parameters.push_back(id(expect_name()));
      if (skip_op("=")) s.exprs.push_back(expression());
      else if (!s.exprs.empty()) fail("a parameter without a default follows one with a default");
    }
    at_++;
  }
  /// Reads the body of a macro or call block: what it names says which arguments it takes.
  void macro_body(Stmt& s, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const size_t first = at_;
    s.bodies.push_back(block({end}));
    for (size_t i = first; i < at_; i++) {
      if (used_.contains(static_cast<int>(i))) {
        const int name = used_[static_cast<int>(i)];
        s.uses_caller |= name == program_.caller_id;
        s.uses_varargs |= name == program_.varargs_id;
        s.uses_kwargs |= name == program_.kwargs_id;
      }
    }
    loops_ = loops;
    at_++;
  }
  std::unique_ptr<Stmt> read_macro(int line) {
    auto s = statement(Stmt::Type::macro, line);
    s->name = expect_name();
    s->name_id = id(s->name);
    signature(*s);
    macro_body(*s, "endmacro");
    return s;
  }
  std::unique_ptr<Stmt> read_call(int line) {
    auto s = statement(Stmt::Type::call, line);
    if (is_op("(")) signature(*s);
    ExprPtr call = expression();
    const bool is_call = call->type == Expr::Type::postfix && call->postfix.back().type == Postfix::Type::call;
    if (!is_call) fail("expected a call");
    macro_body(*s, "endcall");
    s->exprs.insert(s->exprs.begin(), std::move(call));
    return s;
  }
  std::unique_ptr<Stmt> read_filter(int line) {
    auto s = statement(Stmt::Type::filter, line);
    do s->filters.push_back(filter());
    while (skip_op("|"));
    s->bodies.push_back(block({"endfilter"}));
    at_++;
    return s;
  }
  std::unique_ptr<Stmt> read_with(int line) {
    auto s = statement(Stmt::Type::with, line);
    while (current().type != Token::Type::block_end) {
      if (!s->targets.empty()) expect_op(",");
      s->targets.push_back(target("", false));
      expect_op("=");
      s->exprs.push_back(expression());
    }
    s->bodies.push_back(block({"endwith"}));
    at_++;
    return s;
  }
  std::unique_ptr<Stmt> read_generation(int line) {
    auto s = statement(Stmt::Type::generation, line);
    const int loops = std::exchange(loops_, 0);
    s->bodies.push_back(block({"endgeneration"}));
    loops_ = loops;
    at_++;
    return s;
  }
  std::unique_ptr<Stmt> read_jump(int line) {
    if (!loops_) fail("break or continue outside of a loop");
    return statement(take().text == "break" ? Stmt::Type::stop : Stmt::Type::next, line);
  }

  /// Reads what is assigned to, up to `=`, `|`, the end of the tag or the name `end`.
  Target target(std::string_view end, bool with_attributes) {
    Target all;
    all.is_tuple = false;
    while (true) {
      const bool done = (!end.empty() && is_name(end)) || is_op("=") || current().type == Token::Type::block_end;
      if (done && !all.parts.empty()) break;
      all.parts.push_back(target_part(with_attributes));
      if (!skip_op(",")) break;
      all.is_tuple = true;
    }
    if (all.is_tuple) return all;
    Target one = std::move(all.parts[0]);
    return one;
  }
  Target target_part(bool with_attributes) {
    const Level level(*this);
    Target t;
    if (skip_op("(")) {
      t.is_tuple = true;
      while (!is_op(")")) {
        if (!t.parts.empty()) expect_op(",");
        if (is_op(")")) break;
        t.parts.push_back(target_part(with_attributes));
      }
      at_++;
      if (t.parts.size() == 1 && !(tokens_[at_ - 2].type == Token::Type::op)) {
        Target one = std::move(t.parts[0]);
        return one;
      }
      return t;
    }
    const std::string name = expect_name();
    for (std::string_view word : {"true", "false", "none", "True", "False", "None"})
      if (name == word) fail(str("cannot assign to ", word));
    t.name = id(name);
    if (with_attributes && skip_op(".")) t.attribute = expect_name();
    return t;
  }

  // ---- expressions ----

  bool ends_tuple() const {
    const Token::Type t = current().type;
    return t == Token::Type::block_end || t == Token::Type::output_end || is_op(")");
  }
  /// Reads expressions with commas between: a tuple where there is a comma.
  ExprPtr tuple(bool with_choice, bool in_brackets = false) {
    ExprPtr all = make(Expr::Type::tuple);
    bool comma = false;
    while (!ends_tuple() && !is_name("recursive")) {
      all->operands.push_back(with_choice ? expression() : logical_or());
      if (!skip_op(",")) break;
      comma = true;
    }
    if (!comma && all->operands.size() == 1) {
      ExprPtr one = std::move(all->operands[0]);
      return one;
    }
    if (!comma && !in_brackets) fail(str("got ", shown(), ", expected an expression"));
    return all;
  }

  ExprPtr expression() {
    const Level level(*this);
    ExprPtr first = logical_or();
    if (!is_name("if")) return first;
    ExprPtr e = make(Expr::Type::choose);
    e->operands.push_back(std::move(first));
    while (skip_name("if")) {
      e->operands.push_back(logical_or());
      if (!skip_name("else")) {  // `a if b if c`: what stands before is the value
        if (!is_name("if")) break;
        ExprPtr outer = make(Expr::Type::choose);
        nested_choice(outer, std::move(e));
        e = std::move(outer);
        continue;
      }
      e->operands.push_back(logical_or());
    }
    return e;
  }
  void nested_choice(ExprPtr& outer, ExprPtr inner) {
    if (++choices_ > limits_.nesting) fail("conditions are nested too deeply", TemplateError::Reason::limit);
    outer->operands.push_back(std::move(inner));
  }

  /// Reads operands of the next level with one of these words between them.
  ExprPtr words(Expr::Type type, std::string_view word, ExprPtr (Parser::*next)()) {
    ExprPtr first = (this->*next)();
    if (!is_name(word)) return first;
    ExprPtr e = make(type);
    e->operands.push_back(std::move(first));
    while (skip_name(word)) e->operands.push_back((this->*next)());
    return e;
  }
  ExprPtr logical_or() { return words(Expr::Type::logical_or, "or", &Parser::logical_and); }
  ExprPtr logical_and() { return words(Expr::Type::logical_and, "and", &Parser::logical_not); }
  ExprPtr logical_not() {
    int count = 0;
    while (skip_name("not")) count++;
    ExprPtr inner = compare();
    if (!count) return inner;
    ExprPtr e = make(Expr::Type::logical_not);
    e->value = Value(count % 2 == 1);
    e->operands.push_back(std::move(inner));
    return e;
  }
  bool compare_operator(Operator& op) {
    constexpr std::pair<std::string_view, Operator> kOps[] = {{"==", Operator::eq}, {"!=", Operator::ne},
                                                              {"<", Operator::lt},  {"<=", Operator::le},
                                                              {">", Operator::gt},  {">=", Operator::ge}};
    for (const auto& [text, o] : kOps)
      if (skip_op(text)) {
        op = o;
        return true;
      }
    const bool not_in = is_name("not") && ahead().type == Token::Type::name && ahead().text == "in";
    if (not_in) at_ += 2;
    op = not_in ? Operator::not_in : Operator::in;
    return not_in || skip_name("in");
  }
  ExprPtr compare() {
    ExprPtr first = sum();
    Operator op;
    if (!compare_operator(op)) return first;
    ExprPtr e = make(Expr::Type::compare);
    e->operands.push_back(std::move(first));
    do {
      e->operators.push_back(op);
      e->operands.push_back(sum());
    } while (compare_operator(op));
    return e;
  }
  /// Reads operands with these operators between them, from the left.
  ExprPtr chain(std::initializer_list<std::pair<std::string_view, Operator>> ops, ExprPtr (Parser::*next)()) {
    ExprPtr e = (this->*next)();
    bool is_chain = false;
    while (true) {
      const auto* found = std::find_if(ops.begin(), ops.end(), [&](const auto& o) { return is_op(o.first); });
      if (found == ops.end()) return e;
      if (!is_chain) {
        ExprPtr c = make(Expr::Type::chain);
        c->operands.push_back(std::move(e));
        e = std::move(c);
        is_chain = true;
      }
      at_++;
      e->operators.push_back(found->second);
      e->operands.push_back((this->*next)());
    }
  }
  ExprPtr sum() { return chain({{"+", Operator::add}, {"-", Operator::sub}}, &Parser::concat); }
  ExprPtr concat() {
    ExprPtr first = product();
    if (!is_op("~")) return first;
    ExprPtr e = make(Expr::Type::concat);
    e->operands.push_back(std::move(first));
    while (skip_op("~")) e->operands.push_back(product());
    return e;
  }
  ExprPtr product() {
    return chain({{"*", Operator::mul}, {"/", Operator::div}, {"//", Operator::floor_div}, {"%", Operator::mod}},
                 &Parser::power);
  }
  ExprPtr power() { return chain({{"**", Operator::pow}}, &Parser::unary); }

  ExprPtr unary() {
    std::string signs;
    while (is_op("-") || is_op("+")) signs += take().text;
    ExprPtr e = primary();
    if (!signs.empty()) {
      e = postfix(std::move(e), false);
      ExprPtr n = make(Expr::Type::negate);
      n->text = signs;
      n->operands.push_back(std::move(e));
      e = std::move(n);
    }
    return postfix(std::move(e), true);
  }

  ExprPtr constant(Value v) {
    ExprPtr e = make(Expr::Type::constant);
    e->value = std::move(v);
    return e;
  }
  ExprPtr primary() {
    const Level level(*this);
    switch (current().type) {
      case Token::Type::name: {
        const std::string& word = current().text;
        ExprPtr e;
        if (word == "true" || word == "True" || word == "false" || word == "False")
          e = constant(Value(word[0] == 't' || word[0] == 'T'));
        else if (word == "none" || word == "None") e = constant(Value());
        else {
          e = make(Expr::Type::name);
          e->name = id(word);
          used_[static_cast<int>(at_)] = e->name;
        }
        at_++;
        return e;
      }
      case Token::Type::string: {
        std::string all = take().text;
        while (current().type == Token::Type::string) all += take().text;
        return constant(Value(Text::of_template(std::move(all))));
      }
      case Token::Type::integer:
      case Token::Type::real: return constant(take().value);
      default: break;
    }
    if (skip_op("(")) {
      ExprPtr e = tuple(true, true);
      expect_op(")");
      return e;
    }
    if (skip_op("[")) return list();
    if (skip_op("{")) return dict();
    fail(str("unexpected ", shown()));
  }
  ExprPtr list() {
    ExprPtr e = make(Expr::Type::list);
    while (!is_op("]")) {
      if (!e->operands.empty()) expect_op(",");
      if (is_op("]")) break;
      e->operands.push_back(expression());
    }
    at_++;
    return e;
  }
  ExprPtr dict() {
    ExprPtr e = make(Expr::Type::dict);
    while (!is_op("}")) {
      if (!e->operands.empty()) expect_op(",");
      if (is_op("}")) break;
      e->operands.push_back(expression());
      expect_op(":");
      e->operands.push_back(expression());
    }
    at_++;
    return e;
  }

  ExprPtr postfix(ExprPtr base, bool with_filters) {
    std::vector<Postfix> all;
    bool filtered = false;  // behind a filter or test an index needs brackets around all before it
    while (true) {
      const int line = current().line;
      if (!filtered && (is_op(".") || is_op("["))) all.push_back(subscript());
      else if (is_op("(")) {
        Postfix p{Postfix::Type::call, line, "", {}, {}, {}, arguments(), false};
        all.push_back(std::move(p));
      } else if (with_filters && (is_op("|") || is_name("is"))) {
        const bool is_filter = is_op("|");
        at_++;
        all.push_back(is_filter ? filter() : test());
        filtered = true;
      } else break;
    }
    if (all.empty()) return base;
    ExprPtr e = make(Expr::Type::postfix);
    e->operands.push_back(std::move(base));
    e->postfix = std::move(all);
    return e;
  }
  Postfix subscript() {
    Postfix p{Postfix::Type::attribute, current().line, "", {}, {}, {}, {}, false};
    if (skip_op(".")) {
      if (current().type == Token::Type::integer) {
        p.type = Postfix::Type::item;
        p.item = constant(take().value);
      } else p.name = expect_name();
      return p;
    }
    at_++;
    p.type = Postfix::Type::item;
    if (!is_op(":")) p.item = expression();
    if (is_op(",")) fail("an index with a comma is not supported");
    if (skip_op(":")) {
      p.type = Postfix::Type::slice;
      if (!is_op(":") && !is_op("]")) p.stop = expression();
      if (skip_op(":") && !is_op("]")) p.step = expression();
    }
    expect_op("]");
    return p;
  }
  CallArguments arguments() {
    CallArguments a;
    expect_op("(");
    bool first = true;
    while (!is_op(")")) {
      if (!first) expect_op(",");
      if (is_op(")")) break;
      first = false;
      argument(a);
    }
    at_++;
    return a;
  }
  void argument(CallArguments& a) {
    if (skip_op("*")) {
      if (a.spread || a.spread_named) fail("two * in a call");
      a.spread = expression();
    } else if (skip_op("**")) {
      if (a.spread_named) fail("two ** in a call");
      a.spread_named = expression();
    } else if (current().type == Token::Type::name && ahead().type == Token::Type::op && ahead().text == "=") {
      if (a.spread_named) fail("an argument follows **");
      std::string name = take().text;
      at_++;
      a.named.emplace_back(std::move(name), expression());
    } else {
      if (!a.named.empty() || a.spread || a.spread_named) fail("an argument without a name follows one with a name");
      a.positional.push_back(expression());
    }
  }
  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += "." + expect_name();
    return name;
  }
  Postfix filter() {
    Postfix p{Postfix::Type::filter, current().line, "", {}, {}, {}, {}, false};
    p.name = dotted_name();
    if (is_op("(")) p.arguments = arguments();
    return p;
  }
  Postfix test() {
    Postfix p{Postfix::Type::test, current().line, "", {}, {}, {}, {}, false};
    p.negated = skip_name("not");
    p.name = dotted_name();
    const Token::Type t = current().type;
    const bool operand = (t == Token::Type::name && !is_name("else") && !is_name("or") && !is_name("and")) ||
                         t == Token::Type::string || t == Token::Type::integer || t == Token::Type::real ||
                         is_op("[") || is_op("{");
    if (is_op("(")) p.arguments = arguments();
    else if (operand) {
      if (is_name("is")) fail("tests cannot be chained");
      p.arguments.positional.push_back(postfix(primary(), false));
    }
    return p;
  }

  std::vector<Token> tokens_;
  Program& program_;
  const TemplateLimits& limits_;
  size_t at_ = 0;
  int level_ = 0, loops_ = 0, choices_ = 0;
  std::unordered_map<int, int> used_;  // token -> name that it reads
};

}  // namespace

std::shared_ptr<const Program> parse_program(std::string_view source, const std::string& name,
                                             const TemplateLimits& limits) {
  auto program = std::make_shared<Program>();
  program->name = name;
  Parser(lex_template(source, name), *program, limits).run();
  return program;
}

}  // namespace tg::llm::jinja
