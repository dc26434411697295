/// \file Filters that go over sequences.
#include <algorithm>
#include <unordered_map>

#include "tinygrad/llm/template/template_eval.h"

namespace tg::llm::jinja {

Value attribute_path(Interpreter& in, const Value& v, const Value& path, const Value* absent) {
  if (path.is_integer()) {
    const Value got = in.item(v, path);
    return got.is_undefined() && absent ? *absent : got;
  }
  Value at = v;
  const std::string dot = ".";
  for (const Text& part : split_text(in, path.text(), &dot, -1, false)) {
    in.step();
    const std::string& name = part.bytes;
    const bool number = !name.empty() && name.size() < 10 &&
                        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    at = in.item(at, number ? Value(int64_t{std::stol(name)}) : Value(name));
    if (at.is_undefined() && absent) at = *absent;
  }
  return at;
}

namespace {

/// What values are sorted and compared by: an attribute, and without case.
struct Key {
  const Value* path;
  bool any_case;
  const Value* absent = nullptr;  ///< for parts of the path that are missing
  Value of(Interpreter& in, const Value& v) const {
    Value k = path && !path->is_none() ? attribute_path(in, v, *path, absent) : v;
    if (!any_case || !k.is_string()) return k;
    in.step(k.size());
    return in.string(k.text().derived(lower_text(k.as_string())));
  }
};

Key key_of(Interpreter& in, const Value* attribute, const Value* case_sensitive) {
  if (attribute && !attribute->is_none() && !attribute->is_string() && !attribute->is_integer())
    in.fail("an attribute is a string or a number");
  return {attribute, !case_sensitive || !in.truth(*case_sensitive)};
}

Value length(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("length", a, {});
  if (v.is_undefined()) return Value(0);
  if (v.is_string()) {
    in.step(v.size());
    return Value(static_cast<int64_t>(count_chars(v.as_string())));
  }
  const bool lazy = v.kind() == Value::Kind::view && v.sequence().lazy;
  if (lazy || (!v.is_dict() && !v.is_list() && v.kind() != Value::Kind::tuple && v.kind() != Value::Kind::view))
    in.fail(str(lazy ? "a lazy sequence" : kind_name(v.kind()), " has no length"));
  return Value(static_cast<int64_t>(v.size()));
}

Value make_list(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("list", a, {});
  return in.list(in.iterate(v));
}

Value first(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("first", a, {});
  if (v.kind() == Value::Kind::view && v.sequence().lazy) {
    const Sequence& s = v.sequence();
    return s.taken < s.items.size() ? s.items[s.taken++] : Value::undefined("no first item, sequence was empty");
  }
  if (v.is_list() || v.kind() == Value::Kind::tuple)
    return v.size() ? v.items()[0] : Value::undefined("no first item, sequence was empty");
  const std::vector<Value> items = in.iterate(v);
  return items.empty() ? Value::undefined("no first item, sequence was empty") : items[0];
}

Value last(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("last", a, {});
  if (v.kind() == Value::Kind::view && v.sequence().lazy) in.fail("a lazy sequence cannot be reversed");
  const std::vector<Value> items = in.iterate(v);
  return items.empty() ? Value::undefined("no last item, sequence was empty") : items.back();
}

Value join(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("join", a, {"d", "attribute"});
  const Text separator = b[0] ? in.print(*b[0]) : Text{};
  Text out;
  bool is_first = true;
  for (const Value& i : in.iterate(v)) {
    const Text t = in.print(b[1] && !b[1]->is_none() ? attribute_path(in, i, *b[1]) : i);
    in.charge(t.bytes.size() + separator.bytes.size());
    if (!is_first) out.append(separator);
    is_first = false;
    out.append(t);
  }
  return in.string(std::move(out));
}

Value reverse(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("reverse", a, {});
  const bool lazy = v.kind() == Value::Kind::view && v.sequence().lazy;
  if (lazy && v.size()) in.fail("a lazy sequence cannot be reversed");
  std::vector<Value> items = in.iterate(v);
  std::reverse(items.begin(), items.end());
  if (!v.is_string()) return in.generator(std::move(items));
  Text out;
  for (const Value& c : items) out.append(c.text());
  return in.string(std::move(out));
}

Value items_of(Interpreter& in, const Value& v, const Arguments& a) {
  in.bind("items", a, {});
  if (v.is_undefined()) return in.generator({});
  if (!v.is_dict()) in.fail("items takes a dictionary");
  std::vector<Value> out;
  in.charge(v.size() * 4 * sizeof(Value));
  for (const auto& [key, value] : v.entries()) out.push_back(Value::tuple({key, value}));
  return in.generator(std::move(out));
}

/// Sorts stably by keys; comparisons count as steps.
void sort_by(Interpreter& in, std::vector<std::pair<Value, Value>>& keyed, bool descending) {
  // std::stable_sort is safe although less() throws: what it moves are values that stay valid.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return descending ? in.less(y.first, x.first) : in.less(x.first, y.first);
  });
}

Value sort(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("sort", a, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  // Keys are lists, as in Jinja: what is equal is not compared by order, so keys that are all missing can be sorted.
  std::vector<Value> paths;
  const std::string comma = ",";
  const Key one = key_of(in, b[2], b[1]);
  if (b[2] && b[2]->is_string())
    for (Text& part : split_text(in, b[2]->text(), &comma, -1, false)) paths.emplace_back(std::move(part));
  else paths.push_back(b[2] ? *b[2] : Value());
  for (Value& i : in.iterate(v)) {
    std::vector<Value> keys;
    for (const Value& path : paths) keys.push_back(Key{&path, one.any_case}.of(in, i));
    keyed.emplace_back(in.list(std::move(keys)), std::move(i));
  }
  sort_by(in, keyed, b[0] && in.truth(*b[0]));
  std::vector<Value> out;
  for (auto& [_, i] : keyed) out.push_back(std::move(i));
  return in.list(std::move(out));
}

Value dict_sort(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("dictsort", a, {"case_sensitive", "by", "reverse"});
  const std::string by = b[1] ? b[1]->as_string() : "key";
  if (by != "key" && by != "value") in.fail("dictsort sorts by key or value");
  if (!v.is_dict()) in.fail("dictsort takes a dictionary");
  std::vector<std::pair<Value, Value>> keyed;
  const Key key = key_of(in, nullptr, b[0]);
  for (const auto& [k, value] : v.entries())
    keyed.emplace_back(key.of(in, by == "key" ? k : value), Value::tuple({k, value}));
  sort_by(in, keyed, b[2] && in.truth(*b[2]));
  std::vector<Value> out;
  for (auto& [_, i] : keyed) out.push_back(std::move(i));
  return in.list(std::move(out));
}

Value unique(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("unique", a, {"case_sensitive", "attribute"});
  const Key key = key_of(in, b[1], b[0]);
  std::vector<Value> out, seen;
  for (Value& i : in.iterate(v)) {
    const Value k = key.of(in, i);
    if (!Interpreter::is_hashable(k)) in.fail("unique takes values that can be keys");
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return in.equal(s, k); })) continue;
    seen.push_back(k);
    out.push_back(std::move(i));
  }
  return in.generator(std::move(out));
}

Value extreme(Interpreter& in, const Value& v, const Arguments& a, bool largest) {
  const auto b = in.bind(largest ? "max" : "min", a, {"case_sensitive", "attribute"});
  const Key key = key_of(in, b[1], b[0]);
  const std::vector<Value> items = in.iterate(v);
  if (items.empty()) return Value::undefined("no aggregated item, sequence was empty");
  size_t best = 0;
  Value best_key = key.of(in, items[0]);
  for (size_t i = 1; i < items.size(); i++) {
    Value k = key.of(in, items[i]);
    if (largest ? !in.less(best_key, k) : !in.less(k, best_key)) continue;
    best = i;
    best_key = std::move(k);
  }
  return items[best];
}
Value least(Interpreter& in, const Value& v, const Arguments& a) { return extreme(in, v, a, false); }
Value greatest(Interpreter& in, const Value& v, const Arguments& a) { return extreme(in, v, a, true); }

Value sum(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("sum", a, {"attribute", "start"});
  Value total = b[1] ? *b[1] : Value(0);
  if (total.is_string()) in.fail("sum takes no strings");
  const bool by = b[0] && !b[0]->is_none();
  for (const Value& i : in.iterate(v))
    total = in.arithmetic(Operator::add, total, by ? attribute_path(in, i, *b[0]) : i);
  return total;
}

Value batch(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("batch", a, {"linecount", "fill_with"}, 1);
  const int64_t n = in.integer(*b[0], "batch");
  std::vector<Value> out, row;
  for (Value& i : in.iterate(v)) {
    if (static_cast<int64_t>(row.size()) == n) out.push_back(in.list(std::exchange(row, {})));
    row.push_back(std::move(i));
  }
  if (!row.empty()) {
    const bool fill = b[1] && !b[1]->is_none();
    while (fill && static_cast<int64_t>(row.size()) < n) {
      in.charge(sizeof(Value));
      row.push_back(*b[1]);
    }
    out.push_back(in.list(std::move(row)));
  }
  return in.generator(std::move(out));
}

Value slice_filter(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("slice", a, {"slices", "fill_with"}, 1);
  const int64_t n = in.integer(*b[0], "slice");
  if (n <= 0) in.fail("slice takes a positive number");
  const std::vector<Value> items = in.iterate(v);
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> out;
  int64_t at = 0;
  for (int64_t i = 0; i < n; i++) {
    in.step();
    const int64_t count = size / n + (i < size % n ? 1 : 0);
    std::vector<Value> row(items.begin() + at, items.begin() + at + count);
    at += count;
    if (b[1] && !b[1]->is_none() && i >= size % n) row.push_back(*b[1]);
    out.push_back(in.list(std::move(row)));
  }
  return in.generator(std::move(out));
}

Value group_by(Interpreter& in, const Value& v, const Arguments& a) {
  const auto b = in.bind("groupby", a, {"attribute", "default", "case_sensitive"}, 1);
  Key key = key_of(in, b[0], b[2]);
  key.absent = b[1] && !b[1]->is_none() ? b[1] : nullptr;
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& i : in.iterate(v)) {
    Value k = key.of(in, i);
    keyed.emplace_back(std::move(k), std::move(i));
  }
  sort_by(in, keyed, false);
  std::vector<Value> out;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> group;
    const size_t begin = i;
    for (; i < keyed.size() && in.equal(keyed[i].first, keyed[begin].first); i++) group.push_back(keyed[i].second);
    Value name = Key{b[0], false, key.absent}.of(in, group[0]);
    Sequence pair;
    pair.items = {std::move(name), in.list(std::move(group))};
    pair.label = kGroupLabel;
    out.push_back(Value::from_sequence(std::move(pair), Value::Kind::tuple));
  }
  return in.list(std::move(out));
}

Value map(Interpreter& in, const Value& v, const Arguments& a) {
  std::vector<Value> out;
  if (!in.truth(v)) return in.generator({});
  const bool by_attribute = a.positional.empty();
  if (by_attribute) {
    const auto b = in.bind("map", a, {"attribute", "default"}, 1);
    key_of(in, b[0], nullptr);
    for (const Value& i : in.iterate(v)) {
      out.push_back(attribute_path(in, i, *b[0], b[1] && !b[1]->is_none() ? b[1] : nullptr));
    }
    return in.generator(std::move(out));
  }
  if (!a.positional[0].is_string()) in.fail("map takes the name of a filter");
  const Arguments rest{{a.positional.begin() + 1, a.positional.end()}, a.named};
  for (const Value& i : in.iterate(v)) out.push_back(in.filter(a.positional[0].as_string(), i, rest));
  return in.generator(std::move(out));
}

Value selected(Interpreter& in, const Value& v, const Arguments& a, bool by_attribute, bool keep) {
  if (!in.truth(v)) return in.generator({});
  if (by_attribute && a.positional.empty()) in.fail("an attribute is missing");
  const size_t skip = by_attribute ? 1 : 0;
  if (by_attribute) key_of(in, &a.positional[0], nullptr);
  const bool tested = a.positional.size() > skip;
  if (tested && !a.positional[skip].is_string()) in.fail("expected the name of a test");
  const auto begin = a.positional.begin() + static_cast<std::ptrdiff_t>(skip + (tested ? 1 : 0));
  const Arguments rest{{begin, a.positional.end()}, a.named};
  std::vector<Value> out;
  for (Value& i : in.iterate(v)) {
    const Value got = by_attribute ? attribute_path(in, i, a.positional[0]) : i;
    const bool holds = tested ? in.test(a.positional[skip].as_string(), got, rest) : in.truth(got);
    if (holds == keep) out.push_back(std::move(i));
  }
  return in.generator(std::move(out));
}
Value select(Interpreter& in, const Value& v, const Arguments& a) { return selected(in, v, a, false, true); }
Value reject(Interpreter& in, const Value& v, const Arguments& a) { return selected(in, v, a, false, false); }
Value select_attr(Interpreter& in, const Value& v, const Arguments& a) { return selected(in, v, a, true, true); }
Value reject_attr(Interpreter& in, const Value& v, const Arguments& a) { return selected(in, v, a, true, false); }

}  // namespace

Filter find_sequence_filter(const std::string& name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {
      {"batch", batch},        {"count", length},     {"dictsort", dict_sort},
      {"first", first},        {"groupby", group_by}, {"items", items_of},
      {"join", join},          {"last", last},        {"length", length},
      {"list", make_list},     {"map", map},          {"max", greatest},
      {"min", least},          {"reject", reject},    {"rejectattr", reject_attr},
      {"reverse", reverse},    {"select", select},    {"selectattr", select_attr},
      {"slice", slice_filter}, {"sort", sort},        {"sum", sum},
      {"unique", unique}};
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace tg::llm::jinja
