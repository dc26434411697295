/// \file Operators on texts, which the host computes.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

/// Applies a function to each code point; bytes that are no UTF-8 stay.
template <class F> std::string mapped(const std::string& text, F&& f) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t code = -1;
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i;
    const auto n = utf8proc_iterate(at, static_cast<utf8proc_ssize_t>(text.size() - i), &code);
    if (n <= 0) {
      out += text[i++];
      continue;
    }
    utf8proc_uint8_t bytes[4];
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(utf8proc_encode_char(f(code), bytes)));
    i += static_cast<size_t>(n);
  }
  return out;
}
std::string lower(const std::string& s) { return mapped(s, utf8proc_tolower); }
std::string upper(const std::string& s) { return mapped(s, utf8proc_toupper); }

/// Drops stop words and changes case.
Values normalize(NodeContext& c) {
  const StringArray& x = c.strings(0);
  const std::string change = c.choice("case_change_action", "NONE", {"NONE", "LOWER", "UPPER"});
  const bool sensitive = c.flag("is_case_sensitive");
  std::set<std::string> stops;
  for (const std::string& w : c.attr_strings("stopwords")) stops.insert(sensitive ? w : lower(w));
  TextList out(c, static_cast<int64_t>(x.texts.size()));
  std::vector<int64_t> shape = x.shape;
  c.check(x.shape.size() == 1 || (x.shape.size() == 2 && x.shape[0] == 1), "got ", x.shape.size(),
          " axes, expected (n,) or (1, n)");
  for (const std::string& text : x.texts) {
    if (stops.contains(sensitive ? text : lower(text))) continue;
    out.add(change == "LOWER" ? lower(text) : change == "UPPER" ? upper(text) : text);
  }
  if (out.size() == 0) out.add("");
  shape.back() = static_cast<int64_t>(out.size());
  return {out.in_shape(std::move(shape))};
}

Values concat(NodeContext& c) {
  const StringArray &a = c.strings(0), &b = c.strings(1);
  const std::optional<std::vector<int64_t>> s = broadcast_shape(a.shape, b.shape);
  c.check(s.has_value(), "got shapes that do not broadcast");
  TextList out(c, element_count(*s));
  const std::vector<size_t> i = broadcast_positions(a.shape, *s), j = broadcast_positions(b.shape, *s);
  for (size_t k = 0; k < i.size(); k++) out.add(a.texts[i[k]] + b.texts[j[k]]);
  return {out.in_shape(*s)};
}

/// Splits at a delimiter, or without one at runs of spaces, at most `most` times.
std::vector<std::string> parts_of(const std::string& text, const std::string& delimiter, int64_t most) {
  constexpr const char* kSpaces = " \t\n\v\f\r";
  std::vector<std::string> out;
  size_t at = 0;
  const auto full = [&] { return most >= 0 && static_cast<int64_t>(out.size()) >= most; };
  if (!delimiter.empty()) {
    for (size_t end = text.find(delimiter); end != std::string::npos && !full(); end = text.find(delimiter, at)) {
      out.push_back(text.substr(at, end - at));
      at = end + delimiter.size();
    }
    out.push_back(text.substr(at));
    return out;
  }
  for (at = text.find_first_not_of(kSpaces); at != std::string::npos;) {
    const size_t end = full() ? std::string::npos : text.find_first_of(kSpaces, at);
    out.push_back(text.substr(at, end == std::string::npos ? end : end - at));
    at = end == std::string::npos ? end : text.find_first_not_of(kSpaces, end);
  }
  return out;
}

/// The parts of each text as a new last axis, filled up with empty ones, and how many there are.
Values split(NodeContext& c) {
  const StringArray& x = c.strings(0);
  const std::string delimiter = c.attr("delimiter", "");
  const int64_t most = c.attr("maxsplit", int64_t{-1});
  std::vector<std::vector<std::string>> all;
  size_t longest = 0;
  for (const std::string& text : x.texts) {
    c.run().count_bytes(static_cast<int64_t>(text.size() + 1), sizeof(std::string));  // the most parts it may have
    all.push_back(parts_of(text, delimiter, most));
    longest = std::max(longest, all.back().size());
  }
  std::vector<int64_t> shape = x.shape;
  shape.push_back(static_cast<int64_t>(longest));
  TextList out(c, element_count(shape));
  std::vector<HostInt> counts;
  for (std::vector<std::string>& parts : all) {
    counts.emplace_back(static_cast<int64_t>(parts.size()));
    for (size_t k = 0; k < longest; k++) out.add(k < parts.size() ? std::move(parts[k]) : std::string());
  }
  return {out.in_shape(std::move(shape)), HostArray::of(dtypes::int64, x.shape, {std::move(counts), {}})};
}

/// Says for each text whether a pattern matches all of it.
Values full_match(NodeContext& c) {
  const StringArray& x = c.strings(0);
  const std::string pattern = "(?:" + c.attr("pattern", "") + ")";
  int number = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C, &number, &at, nullptr),
      pcre2_code_free);
  c.check(code != nullptr, "attribute pattern is no regular expression: error at its byte ", at < 3 ? 0 : at - 3);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), 1000000);
  std::vector<HostInt> out;
  for (const std::string& text : x.texts) {
    const int found =
        pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(), limits.get());
    TG_CHECK(ValueError, found >= 0 || found == PCRE2_ERROR_NOMATCH, "matching a text failed with error ", found);
    out.emplace_back(int64_t{found >= 0});
  }
  return {HostArray::of(dtypes::bool_, x.shape, {std::move(out), {}})};
}

/// Words are numbers or texts; as keys of n-grams both are texts.
using Gram = std::vector<std::string>;

/// The n-grams of the attribute pool, with the column each is counted in.
struct Pool {
  std::map<Gram, size_t> columns;  ///< number of the gram among all
  std::vector<int64_t> indexes;
  std::vector<double> weights;
  int64_t width = 0;
};
Pool pool_of(const NodeContext& c) {
  Pool p;
  Gram words = c.attr_strings("pool_strings");
  if (words.empty())
    for (const int64_t v : c.attr_ints("pool_int64s")) words.push_back(std::to_string(v));
  const std::vector<int64_t> starts = c.attr_ints("ngram_counts");
  p.indexes = c.attr_ints("ngram_indexes");
  p.weights = c.attr_floats("weights", std::vector<double>(p.indexes.size(), 1));
  size_t number = 0;
  for (size_t n = 1; n <= starts.size(); n++) {
    const auto all = static_cast<int64_t>(words.size()), start = starts[n - 1],
               stop = n < starts.size() ? starts[n] : all;
    c.check(0 <= start && start <= stop && stop <= all, "ngram_counts has the bounds ", start, " and ", stop, " for ",
            all, " words");
    const auto end = static_cast<size_t>(stop);
    for (auto at = static_cast<size_t>(start); at + n <= end; at += n)
      p.columns.emplace(Gram(words.begin() + static_cast<long>(at), words.begin() + static_cast<long>(at + n)),
                        number++);
  }
  c.check(number <= p.indexes.size() && p.weights.size() == p.indexes.size(), "the pool has ", number, " n-grams, ",
          p.indexes.size(), " indexes and ", p.weights.size(), " weights");
  for (const int64_t i : p.indexes) {
    c.check(i >= 0 && i < (1 << 24), "ngram_indexes has ", i);
    p.width = std::max(p.width, i + 1);
  }
  return p;
}

/// Counts the grams of one row of words: those whose words are up to max_skip_count words apart.
void count_grams(const NodeContext& c, const Pool& pool, const Gram& words, std::vector<double>& counts, size_t row) {
  const auto size = static_cast<int64_t>(words.size());
  const int64_t least = std::max<int64_t>(1, c.required_int("min_gram_length")),
                most = std::min(size, c.required_int("max_gram_length")),
                skips = std::min(size, c.required_int("max_skip_count"));
  for (int64_t n = least; n <= most; n++)
    for (int64_t step = 1; step <= (n == 1 ? 1 : skips + 1); step++)
      for (int64_t i = 0; i + (n - 1) * step < size; i++) {
        Gram gram;
        for (int64_t k = 0; k < n; k++) gram.push_back(words[static_cast<size_t>(i + k * step)]);
        const auto found = pool.columns.find(gram);
        if (found != pool.columns.end())
          counts[row * static_cast<size_t>(pool.width) + static_cast<size_t>(pool.indexes[found->second])]++;
      }
}

Values tf_idf(NodeContext& c) {
  const Pool pool = pool_of(c);
  const std::string mode = c.choice("mode", "", {"TF", "IDF", "TFIDF"});
  Gram words;
  Shape s = c.value(0).shape();
  if (c.value(0).strings()) words = c.strings(0).texts;
  else {
    const HostRef h = c.data(0);
    for (const HostInt& v : h->ints) words.push_back(std::to_string(v.value.value()));
  }
  c.check(s.size() == 1 || s.size() == 2, "got shape ", s, ", expected one or two axes");
  const auto rows = s.size() == 2 ? static_cast<size_t>(s[0].value()) : 1;
  const size_t each = rows ? words.size() / rows : 0;
  c.run().count_bytes(static_cast<int64_t>(rows) * pool.width, sizeof(double));
  std::vector<double> counts(rows * static_cast<size_t>(pool.width), 0);
  for (size_t r = 0; r < rows; r++)
    count_grams(c, pool,
                Gram(words.begin() + static_cast<long>(r * each), words.begin() + static_cast<long>((r + 1) * each)),
                counts, r);
  std::vector<double> weight(static_cast<size_t>(pool.width), 1);
  for (size_t i = 0; i < pool.indexes.size(); i++) weight[static_cast<size_t>(pool.indexes[i])] = pool.weights[i];
  for (size_t i = 0; i < counts.size(); i++) {
    const double w = weight[i % weight.size()];
    if (mode == "IDF") counts[i] = counts[i] > 0 ? w : 0;
    else if (mode == "TFIDF") counts[i] *= w;
  }
  const Tensor out = Tensor::from(counts, {.device = c.device()}).cast(dtypes::float32);
  return {s.size() == 2 ? out.reshape(Shape{s[0], pool.width}) : out};
}

const OperatorRow kRows[] = {
    {"", "StringNormalizer", 10, normalize}, {"", "StringConcat", 20, concat},   {"", "StringSplit", 20, split},
    {"", "RegexFullMatch", 20, full_match},  {"", "TfIdfVectorizer", 9, tf_idf},
};

}  // namespace

OperatorRows text_operators() { return kRows; }

}  // namespace tg::onnx
