#include "tinygrad/llm/tokenize/split_presets.h"

#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/llm/tokenize/unicode_text.h"

namespace tg::llm {
namespace {

// Parts of the published expressions. Each is one alternative, the bar before it included where it is not the first.
const std::string kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const std::string kLetters = R"(|[^\r\n\p{L}\p{N}]?\p{L}+)";
const std::string kSymbols = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)";
const std::string kSpaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kUpper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
const std::string kLower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
const std::string kSymbolsPaths = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)";
const std::string kAsciiWords = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)";
const std::string kMarkedWords = R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)";

const std::string kLlama3 = kContractions + kLetters + R"(|\p{N}{1,3})" + kSymbols + kSpaces;
const std::string kQwen2 = kContractions + kLetters + R"(|\p{N})" + kSymbols + kSpaces;
const std::string kQwen35 =
    kContractions + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" + kSpaces;
const std::string kTekken = R"([^\r\n\p{L}\p{N}]?)" + kUpper + "*" + kLower + R"(+|[^\r\n\p{L}\p{N}]?)" + kUpper + "+" +
                            kLower + R"(*|\p{N})" + kSymbolsPaths + kSpaces;
const std::string kGpt4o = R"([^\r\n\p{L}\p{N}]?)" + kUpper + "*" + kLower + "+" + kContractions +
                           R"(?|[^\r\n\p{L}\p{N}]?)" + kUpper + "+" + kLower + "*" + kContractions + R"(?|\p{N}{1,3})" +
                           kSymbolsPaths + kSpaces;
const std::string kKimi = R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han}))" + kUpper + R"()*(?:(?!\p{Han}))" + kLower +
                          ")+" + kContractions + R"(?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han}))" + kUpper +
                          R"()+(?:(?!\p{Han}))" + kLower + ")*" + kContractions + R"(?|\p{N}{1,3})" + kSymbols +
                          kSpaces;
const std::string kDeepSeek3 = kAsciiWords + kMarkedWords + kSpaces;
const std::string kCjk = "[一-龥぀-ゟ゠-ヿ]+", kCjkHangul = "[一-龥ࠀ-一가-퟿]+";
const std::string kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
const std::string kSeedCoder = kContractions + kLetters + R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" + kSpaces;
const std::string kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";
/// Letters that have case, in ranges; deepseek-llm's vocabulary was made with this list.
const std::string kCasedLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\x{1f7d}"
    "ᾀ-ᾴᾶ-ᾼ\\x{1fbe}ῂ-ῄῆ-ῌῐ-\\x{1fd3}ῖ-\\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}ℨ\\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-"
    "ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-"
    "Ｚａ-ｚ"
    "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const std::string kPunctuationRuns = R"([\p{P}$+<=>^~|`]+)", kDigit = R"(\p{N})", kDigits = R"(\p{N}+)",
                  kDigits3 = R"(\p{N}{1,3})", kAscii3 = "[0-9][0-9][0-9]", kLineEnd = R"([\r\n])";
const std::string kGpt2Words = "@gpt2";      ///< kGpt2Pattern
const std::string kSpell = "@spell";         ///< from here on words are spelled byte by byte
const std::string kNumericRuns = "@digits";  ///< characters that are numeric, in runs

/// A row of the table: the names that share a way to split, separated by spaces, and the expressions that are applied
/// one after the other to the words that the one before left; matches and what lies between them become words.
struct Row {
  std::string_view names;
  std::vector<std::string> steps;
  bool whole_words = false, add_bos = false, around = false;  ///< `around`: a token behind the text too
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table{
      {"default", {R"([\p{P}$+<=>^~|]+)", kGpt2Words, kDigits, kAscii3}},
      {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2", {kLlama3}, true, true},
      {"dbrx smaug-bpe glm4 chatglm-bpe jais-2 solar-open", {kLlama3}},
      {"qwen2 stablelm2 deepseek-r1-qwen megrez kormo hunyuan grok-2", {kQwen2}},
      {"qwen35 qwen35moe", {kQwen35}},
      {"gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat exaone4 a.x-4.0 mellum modern-bert minerva-7b "
       "jina-v2-code-plain gpt-neox pythia",
       {kGpt2Words}},
      {"jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe", {kGpt2Words}, false, true, true},
      {"starcoder refact command-r smollm codeshell exaone minerva granite-code", {kDigit, kGpt2Words}},
      {"falcon", {kPunctuationRuns, kGpt2Words, kSpell, kNumericRuns, kAscii3}},
      {"tekken", {kTekken}, true, true},
      {"gpt-4o llama4 minimax-m2 kanana2", {kGpt4o}},
      {"kimi-k2", {kKimi}},
      {"deepseek-llm", {kLineEnd, kCasedLetters, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", R"(\s+$)", kCjkHangul, kDigits}},
      {"deepseek-coder", {kLineEnd, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjkHangul, kDigit}},
      {"deepseek-v3 hunyuan-dense joyai-llm", {kDigits3, kCjk, kDeepSeek3}},
      {"bailingmoe bailingmoe2 llada-moe", {kBailing}},
      {"seed-coder", {kSeedCoder}},
      {"superbpe", {kDigits, R"((?=(\d{3})+(?!\d)))"}},
      {"bloom poro-chat gpt3-finnish", {kBloom}},
      {"viking", {kBloom, kDigit}},
      {"chameleon",
       {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", kDigit,
        R"([\p{P}!-/:-@\[-`{-~])", kGpt2Words},
       false,
       true}};
  return table;
}

/// Calls `f(name)` for each name of a row until it returns true; returns whether it did.
template <class F> bool any_name(std::string_view names, F&& f) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (f(names.substr(0, end))) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

SplitPreset split_preset(std::string_view preset, std::string_view name) {
  for (const Row& row : rows()) {
    if (!any_name(row.names, [&](std::string_view n) { return n == preset; })) continue;
    SplitPreset made;
    made.whole_words = row.whole_words;
    made.add_bos = row.add_bos;
    made.add_sep = row.around;
    for (const std::string& step : row.steps) {
      if (step == kSpell) {
        made.steps.push_back(byte_level_step(false, true));
        made.spelled = true;
      } else if (step == kNumericRuns) {
        made.steps.push_back(split_at_class(is_numeric, SplitBehavior::kContiguous));
      } else {
        made.steps.push_back(split_at_pattern(
            SplitPattern(step == kGpt2Words ? kGpt2Pattern : std::string_view(step), name), SplitBehavior::kIsolated));
      }
    }
    return made;
  }
  std::vector<std::string> known;
  for (const std::string_view n : split_preset_names()) known.emplace_back(n);
  throw FormatError(str("[tokenizer] ", name, ": got tokenizer.ggml.pre \"", preset.substr(0, 100), "\", expected \"",
                        nearest_name(preset, known), "\" or another known one"));
}

std::vector<std::string_view> split_preset_names() {
  std::vector<std::string_view> names;
  for (const Row& row : rows()) {
    any_name(row.names, [&](std::string_view n) {
      names.push_back(n);
      return false;
    });
  }
  return names;
}

}  // namespace tg::llm
