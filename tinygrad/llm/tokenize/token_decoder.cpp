#include "tinygrad/llm/tokenize/token_decoder.h"

#include <algorithm>
#include <utility>

#include "tinygrad/base/text.h"
#include "tinygrad/llm/tokenize/growth_limit.h"
#include "tinygrad/llm/tokenize/text_split.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to, const GrowthLimit* limit = nullptr) {
  if (from.empty() || text.find(from) == text.npos) return;
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    out += to;
    if (limit) limit->check(out.size());
    done = at + from.size();
  }
  text = out.append(text, done, text.npos);
}

size_t bytes_of(const std::vector<std::string>& texts) {
  size_t n = 0;
  for (const std::string& t : texts) n += t.size();
  return n;
}

/// Removes the spaces of English text that WordPiece's detokenization would leave.
void clean_up(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kPairs) replace_all(text, from, to);
}

void strip(std::string& text, const DecodeStep& step) {
  if (step.from.empty()) return;
  size_t begin = 0, end = text.size();
  for (size_t i = 0; i < step.left && text.compare(begin, step.from.size(), step.from) == 0; i++)
    begin += step.from.size();
  for (size_t i = 0; i < step.right && end - begin >= step.from.size() &&
                     text.compare(end - step.from.size(), step.from.size(), step.from) == 0;
       i++)
    end -= step.from.size();
  text = text.substr(begin, end - begin);
}

void word_piece(std::string& token, const DecodeStep& step, bool first) {
  if (!first) {
    if (!step.from.empty() && token.starts_with(step.from)) token.erase(0, step.from.size());
    else token.insert(0, 1, ' ');
  }
  if (step.cleanup) clean_up(token);
}

/// Joins runs of byte tokens to text; each byte of a run that is not UTF-8 becomes U+FFFD.
std::vector<std::string> join_bytes(std::vector<std::string> tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (is_utf8(run)) {
      out.push_back(run);
    } else {
      for (size_t i = 0; i < run.size(); i++) out.emplace_back(kReplacementChar);
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = byte_of_spelling(token); byte >= 0) {
      run += static_cast<char>(byte);
      continue;
    }
    flush();
    out.push_back(std::move(token));
  }
  flush();
  return out;
}

std::string joined(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& t : tokens) out += t;
  return out;
}

std::string spelled_bytes(const std::string& token) {
  std::string bytes;
  return append_spelled_bytes(bytes, token) ? bytes : token;
}

}  // namespace

int byte_of_spelling(std::string_view token) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  const GrowthLimit limit(bytes_of(tokens));
  for (const DecodeStep& step : steps) {
    switch (step.kind) {
      case DecodeStep::kByteLevel: {
        std::string bytes;
        for (const std::string& t : tokens) bytes += spelled_bytes(t);
        tokens.assign(1, utf8_lossy(bytes));
        break;
      }
      case DecodeStep::kReplace:
        for (size_t i = 0, made = 0; i < tokens.size(); i++) {
          replace_all(tokens[i], step.from, step.to, &limit);
          limit.check(made += tokens[i].size());
        }
        break;
      case DecodeStep::kByteFallback: tokens = join_bytes(std::move(tokens)); break;
      case DecodeStep::kFuse: tokens.assign(1, joined(tokens)); break;
      case DecodeStep::kStrip:
        for (std::string& t : tokens) strip(t, step);
        break;
      case DecodeStep::kMetaspace:
        for (size_t i = 0; i < tokens.size(); i++)
          replace_all(tokens[i], step.from, i == 0 && step.left > 0 ? "" : " ");
        break;
      case DecodeStep::kWordPiece:
        for (size_t i = 0; i < tokens.size(); i++) word_piece(tokens[i], step, i == 0);
        break;
      case DecodeStep::kSuffix:
        for (size_t i = 0; i < tokens.size(); i++) replace_all(tokens[i], step.from, i + 1 < tokens.size() ? " " : "");
        break;
    }
  }
  return joined(tokens);
}

std::string TokenDecoder::bytes(std::string_view token, bool first) const {
  std::string t(token);
  const GrowthLimit limit(token.size());
  bool fused = false;
  for (const DecodeStep& step : steps) {
    switch (step.kind) {
      case DecodeStep::kByteLevel: t = spelled_bytes(t); break;
      case DecodeStep::kReplace: replace_all(t, step.from, step.to, &limit); break;
      case DecodeStep::kByteFallback:
        if (const int byte = byte_of_spelling(t); byte >= 0) t.assign(1, static_cast<char>(byte));
        break;
      case DecodeStep::kFuse: fused = true; break;
      case DecodeStep::kStrip:
        if (!fused) strip(t, step);
        else if (first) strip(t, {.kind = DecodeStep::kStrip, .from = step.from, .left = step.left});
        break;
      case DecodeStep::kMetaspace: replace_all(t, step.from, first && step.left > 0 ? "" : " "); break;
      case DecodeStep::kWordPiece: word_piece(t, step, first); break;
      case DecodeStep::kSuffix: replace_all(t, step.from, " "); break;
    }
  }
  return t;
}

}  // namespace tg::llm
