/// \file Models that choose among the tokens a word can be split into: unigram, WordPiece, WordLevel.
#include <algorithm>

#include "tinygrad/llm/tokenize/token_model.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {

void Unigram::encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  std::vector<PathNode>& path = scratch.path;
  path.assign(word.size() + 1, PathNode{0, 0, -1});
  const auto reach = [&](size_t begin, size_t end, double score, int32_t id) {
    double total = score + path[begin].score;
    if (single) total = static_cast<float>(total);
    if (path[end].id < 0 || total > path[end].score) path[end] = {total, static_cast<uint32_t>(begin), id};
  };
  for (size_t i = 0; i < word.size(); i += utf8_length(word[i])) {
    const size_t size = utf8_length(word[i]);
    bool has_char = false;
    trie.for_each_prefix(word.substr(i), [&](size_t bytes_of, int32_t id) {
      reach(i, i + bytes_of, scores[static_cast<size_t>(id)], id);
      has_char |= bytes_of == size;
    });
    if (!has_char) reach(i, i + size, unk_score, unk);
  }
  // From the end to the begin; neighbours that are unknown become one.
  scratch.symbols.clear();
  for (size_t end = word.size(); end > 0; end = path[end].begin) {
    const PathNode& node = path[end];
    std::vector<WordSymbol>& s = scratch.symbols;
    if (fuse_unk && node.id == unk && !s.empty() && s.back().id == unk) s.back().begin = node.begin;
    else s.push_back({node.begin, static_cast<uint32_t>(end), node.id, -1, -1, false});
  }
  for (size_t i = scratch.symbols.size(); i-- > 0;) {
    const WordSymbol& s = scratch.symbols[i];
    if (s.id == unk && byte_fallback && bytes.append(word.substr(s.begin, s.end - s.begin), out)) continue;
    out.push_back(s.id);
  }
}

void WordPiece::encode(std::string_view word, ModelScratch&, std::vector<int32_t>& out) const {
  const size_t chars = static_cast<size_t>(
      std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  if (chars > max_chars) return out.push_back(unk);
  const size_t before = out.size();
  for (size_t i = 0; i < word.size();) {
    const TokenTable& table = i == 0 ? begins : continues;
    size_t end = std::min(word.size(), i + table.longest());
    int32_t id = -1;
    for (; end > i; end--) {
      if (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xc0) == 0x80) continue;  // inside a character
      if ((id = table.find(word.substr(i, end - i))) >= 0) break;
    }
    if (id < 0) {
      out.resize(before);
      return out.push_back(unk);
    }
    out.push_back(id);
    i = end;
  }
}

void WordLevel::encode(std::string_view word, ModelScratch&, std::vector<int32_t>& out) const {
  const int32_t id = tokens.find(word);
  if (id >= 0 || unk >= 0) out.push_back(id >= 0 ? id : unk);
}

}  // namespace tg::llm
