/// \file Byte pair encoding: symbols of a word are merged, the smallest rank first. Short words by a search for the
/// smallest rank in each step, long ones with a heap, so that the time is n log n.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "tinygrad/llm/tokenize/token_model.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {
namespace {

/// Words of up to so many symbols are merged without a heap.
constexpr size_t kShortWord = 24;

void link(std::vector<WordSymbol>& symbols) {
  for (size_t i = 0; i < symbols.size(); i++) {
    symbols[i].prev = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
  }
}

/// Joins symbol `left` with its neighbour.
void join(std::vector<WordSymbol>& s, size_t left, int32_t id) {
  const auto right = static_cast<size_t>(s[left].next);
  s[left].end = s[right].end;
  s[left].id = id;
  s[left].next = s[right].next;
  if (s[left].next >= 0) s[static_cast<size_t>(s[left].next)].prev = static_cast<int32_t>(left);
  s[right].end = 0;
}

template <class Find> void merge_short(std::vector<WordSymbol>& s, Find& find) {
  Merge merges[kShortWord];
  size_t n = s.size();
  for (size_t i = 0; i + 1 < n; i++) merges[i] = find(s[i], s[i + 1]);
  while (n > 1) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; i++)
      if (merges[i].id >= 0 && (best == n || merges[i].rank < merges[best].rank)) best = i;
    if (best == n) break;
    s[best].end = s[best + 1].end;
    s[best].id = merges[best].id;
    s.erase(s.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    n--;
    for (size_t i = best + 1; i + 1 < n; i++) merges[i] = merges[i + 1];
    if (best + 1 < n) merges[best] = find(s[best], s[best + 1]);
    if (best > 0) merges[best - 1] = find(s[best - 1], s[best]);
  }
  link(s);
}

template <class Find> void merge_long(std::vector<WordSymbol>& s, std::vector<MergeCandidate>& heap, Find& find) {
  link(s);
  heap.clear();
  const auto later = [](const MergeCandidate& a, const MergeCandidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto consider = [&](int32_t left) {
    if (left < 0) return;
    const WordSymbol& a = s[static_cast<size_t>(left)];
    if (a.next < 0) return;
    const WordSymbol& b = s[static_cast<size_t>(a.next)];
    const Merge m = find(a, b);
    if (m.id >= 0) heap.push_back({m.rank, static_cast<uint32_t>(left), a.end, b.end, m.id});
  };
  for (size_t i = 0; i + 1 < s.size(); i++) consider(static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    const MergeCandidate m = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    const WordSymbol& a = s[m.left];
    if (a.end != m.middle || a.next < 0 || s[static_cast<size_t>(a.next)].end != m.end) continue;
    join(s, m.left, m.id);
    for (const int32_t left : {a.prev, static_cast<int32_t>(m.left)}) {
      const size_t before = heap.size();
      consider(left);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    }
  }
}

/// Merges until no two neighbours have a merge; `find(left, right)` gives it.
template <class Find> void merge_symbols(ModelScratch& scratch, Find&& find) {
  if (scratch.symbols.size() <= kShortWord) {
    merge_short(scratch.symbols, find);
  } else {
    merge_long(scratch.symbols, scratch.heap, find);
  }
}

WordSymbol symbol(size_t begin, size_t end, int32_t id, bool frozen = false) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end), id, -1, -1, frozen};
}

/// Calls `part` for each part of a word that ends before a space mark behind another character.
template <class F> void split_at_marks(std::string_view word, F&& part) {
  size_t begin = 0;
  for (size_t at = word.find(kSpaceMark, 1); at != word.npos; at = word.find(kSpaceMark, at + kSpaceMark.size())) {
    if (at >= kSpaceMark.size() && word.substr(at - kSpaceMark.size(), kSpaceMark.size()) == kSpaceMark) continue;
    part(word.substr(begin, at - begin));
    begin = at;
  }
  if (begin < word.size()) part(word.substr(begin));
}

}  // namespace

bool ByteTokens::append(std::string_view text, std::vector<int32_t>& out) const {
  for (const char c : text)
    if (ids[static_cast<unsigned char>(c)] < 0) return false;
  for (const char c : text) out.push_back(ids[static_cast<unsigned char>(c)]);
  return true;
}

void MergeBpe::encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (split_before_mark) {
    split_at_marks(word, [&](std::string_view part) { encode_word(part, scratch, out); });
  } else {
    encode_word(word, scratch, out);
  }
}

void MergeBpe::split(std::string_view word, ModelScratch& scratch) const {
  std::vector<WordSymbol>& symbols = scratch.symbols;
  symbols.clear();
  if (byte_level) {
    for (size_t i = 0; i < word.size(); i++) {
      const int32_t id = bytes.ids[static_cast<unsigned char>(word[i])];
      if (id >= 0 || unk >= 0) symbols.push_back(symbol(i, i + 1, id >= 0 ? id : unk));
    }
    return;
  }
  bool fusing = false;  // the last symbol is unknown: the next one that is becomes part of it
  for (size_t i = 0, end; i < word.size(); i = end) {
    end = i + utf8_length(word[i]);
    std::string_view spelling = word.substr(i, end - i);
    if ((i > 0 && !continuing_prefix.empty()) || (end == word.size() && !word_suffix.empty())) {
      scratch.text.clear();
      if (i > 0) scratch.text += continuing_prefix;
      scratch.text += spelling;
      if (end == word.size()) scratch.text += word_suffix;
      spelling = scratch.text;
    }
    const int32_t id = tokens.find(spelling);
    std::vector<int32_t> as_bytes;
    if (id >= 0) {
      symbols.push_back(symbol(i, end, id));
      fusing = false;
    } else if (byte_fallback && bytes.append(spelling, as_bytes)) {
      for (size_t k = 0; k < as_bytes.size(); k++) {
        const size_t at = std::min(i + k, end - 1);
        symbols.push_back(symbol(at, at + 1, as_bytes[k]));
      }
    } else if (unk >= 0) {
      if (fusing && fuse_unk) symbols.back().end = static_cast<uint32_t>(end);
      else symbols.push_back(symbol(i, end, unk));
      fusing = true;
    }
  }
}

void MergeBpe::encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (whole_words) {
    if (const int32_t id = tokens.find(word); id >= 0) return out.push_back(id);
  }
  split(word, scratch);
  merge_symbols(scratch, [this](const WordSymbol& a, const WordSymbol& b) { return merges.find(a.id, b.id); });
  if (scratch.symbols.empty()) return;
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next)
    out.push_back(scratch.symbols[static_cast<size_t>(i)].id);
}

void RankBpe::encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (split_before_mark) {
    split_at_marks(word, [&](std::string_view part) { encode_word(part, scratch, out); });
  } else {
    encode_word(word, scratch, out);
  }
}

void RankBpe::split(std::string_view word, ModelScratch& scratch) const {
  scratch.symbols.clear();
  for (size_t i = 0, end; i < word.size(); i = end) {
    int32_t id = -1;
    const size_t fixed = user_defined.longest_prefix(word.substr(i), id);
    end = fixed > 0 ? i + fixed : byte_level ? i + 1 : i + utf8_length(word[i]);
    if (fixed == 0) id = tokens.find(word.substr(i, end - i));
    scratch.symbols.push_back(symbol(i, end, id, fixed > 0));
  }
}

void RankBpe::append(std::string_view symbol, int32_t id, bool& after_unk, std::vector<int32_t>& out) const {
  const bool known = id >= 0 || (byte_fallback && bytes.append(symbol, out));
  if (id >= 0) out.push_back(id);
  if (!known && unk >= 0 && !after_unk) out.push_back(unk);  // unknown neighbours are one token
  after_unk = !known;
}

void RankBpe::encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (whole_words) {
    if (const int32_t id = tokens.find(word); id >= 0) return out.push_back(id);
  }
  split(word, scratch);
  // What an unused token was merged from, to split it again.
  std::unordered_map<std::string_view, size_t> halves;
  merge_symbols(scratch, [&](const WordSymbol& a, const WordSymbol& b) -> Merge {
    if (a.frozen || b.frozen) return {0, -1};
    const std::string_view both = word.substr(a.begin, b.end - a.begin);
    const int32_t id = tokens.find(both);
    if (id < 0) return {0, -1};
    if (is_unused(id)) halves[both] = a.end - a.begin;
    return {ranks[static_cast<size_t>(id)], id};
  });
  bool after_unk = false;
  std::vector<std::string_view> todo;
  for (int32_t i = scratch.symbols.empty() ? -1 : 0; i >= 0;) {
    const WordSymbol& s = scratch.symbols[static_cast<size_t>(i)];
    const std::string_view text = word.substr(s.begin, s.end - s.begin);
    if (s.frozen || !is_unused(s.id)) {
      append(text, s.id, after_unk, out);
    } else {
      for (todo.assign(1, text); !todo.empty();) {
        const std::string_view part = todo.back();
        todo.pop_back();
        const int32_t id = tokens.find(part);
        const auto half = halves.find(part);
        if (is_unused(id) && half != halves.end()) {
          todo.push_back(part.substr(half->second));
          todo.push_back(part.substr(0, half->second));
        } else {
          append(part, id, after_unk, out);
        }
      }
    }
    i = s.next;
  }
}

}  // namespace tg::llm
