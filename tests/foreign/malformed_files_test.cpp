/// \file Thousands of damaged files through the doors users take, one after another in a child process whose memory and
/// time are limited: each loads or is refused with a typed error.
///
/// MALFORMED_FILES: how many (10,000; `ninja nightly` takes 1,000,000). MALFORMED_FIRST: the number of the first one. A
/// failure names its number: MALFORMED_FIRST=N MALFORMED_FILES=1 does it again.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>

#include "helpers/gguf_bytes.h"
#include "helpers/malformed.h"
#include "helpers/tiny_encoder.h"
#include "temp_dir.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/process.h"
#include "tinygrad/base/sha256.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/jit_file.h"
#include "tinygrad/llm/bert.h"
#include "tinygrad/llm/chat_session.h"
#include "tinygrad/nn/checkpoint.h"
#include "tinygrad/nn/extract.h"
#include "tinygrad/nn/idx.h"
#include "tinygrad/nn/npy_file.h"
#include "tinygrad/nn/state_file.h"
#include "tinygrad/nn/torch_load.h"
#include "tinygrad/onnx/model.h"
#include "tinygrad/tinygrad.h"

#if defined(__SANITIZE_ADDRESS__)
#define TG_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TG_ADDRESS_SANITIZER
#endif
#endif

namespace tg {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

[[maybe_unused]] constexpr uint64_t kMemoryLimit = uint64_t{512} << 20;  // beyond what the process has at its start
constexpr unsigned kSeconds = 20;                                        // for one file

/// Which errors are the right answer to a damaged file.
enum class Answer : uint8_t {
  kFormat,     ///< FormatError only
  kOtherFile,  ///< also FileError: the file names another one, which is not there
  kFit,        ///< also other typed errors but OutOfMemoryError: it is well formed, but does not fit what it is for
};

struct Kind {
  const char* name;
  std::vector<std::string> seeds;  ///< valid files
  const char* file;                ///< name of the damaged file in the folder
  std::function<void(const fs::path& file)> read;
  Answer answer = Answer::kFormat;
  std::function<void(std::string&)> repair = {};  ///< makes checksums right again, as who wants to be read does
};

std::string text_of(const fs::path& file) {
  const std::vector<uint8_t> b = io::read_file(file, uint64_t{1} << 30);
  return {b.begin(), b.end()};
}
void write(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
std::span<const uint8_t> span_of(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

/// Returns the inputs of a fuzz target that parse, or all of them.
std::vector<std::string> corpus(const std::string& target, bool all = false) {
  std::vector<fs::path> files;
  for (const auto& f : fs::directory_iterator(fs::path(TG_TESTS_DIR) / "fuzz" / "corpus" / target))
    if (all || f.path().filename().string().starts_with("good")) files.push_back(f.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> out;
  for (const fs::path& f : files) out.push_back(text_of(f));
  return out;
}

// ---- valid files that the corpus has not ----

/// Adds a vocabulary of the bytes and a chat template.
test::GgufBytes& add_chat(test::GgufBytes& g) {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  for (const char* word : {"a", "b", "c", "d", "e", "f", "g", "h", "ab", "abc"}) {
    tokens.emplace_back(word);
    types.push_back(1);
  }
  for (const char* special : {"<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(special);
    types.push_back(3);
  }
  g.string("tokenizer.ggml.model", "gpt2")
      .string("tokenizer.ggml.pre", "smollm")
      .strings("tokenizer.ggml.tokens", tokens);
  g.integers("tokenizer.ggml.token_type", types).strings("tokenizer.ggml.merges", {"a b", "ab c"});
  g.integer("tokenizer.ggml.eos_token_id", test::kTinyVocabulary - 1).flag("tokenizer.ggml.add_bos_token", false);
  return g.string("tokenizer.chat_template",
                  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
                  "{%- set ns = namespace(n=0) %}{% macro f(x) %}{{ x * 3 }}{% endmacro %}{{ f('ab') }}"
                  "{% for i in range(5) if i % 2 %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"
                  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
}

std::vector<std::string> models() {
  test::GgufBytes a = test::tiny_decoder("llama"), b = test::tiny_latent_decoder(), c = test::tiny_recurrent_decoder();
  return {add_chat(a).build(), add_chat(b).build(), add_chat(c).build()};
}

std::string jit_file() {
  Tensor w = Tensor({1.f, 2.f, 3.f, 4.f}).realize(), x = Tensor({4.f, 3.f, 2.f, 1.f}).realize();
  auto f = jit([=](const Tensor& a) { return (a * w).contiguous().sum() + Tensor::rand({4}); });
  for (int i = 0; i < 3; i++) f(x);
  const std::vector<uint8_t> b = dump_jit(f.core());
  return {b.begin(), b.end()};
}

// ---- checksums ----

/// Gives the header of a safetensors file the length its text has.
void repair_safetensors(std::string& file) {
  const size_t end = file.find("}}");
  if (end == std::string::npos || end < 8) return;
  const uint64_t length = end + 2 - 8;
  std::memcpy(file.data(), &length, 8);
}
void repair_tar(std::string& file) {
  for (size_t at = 0; at + 512 <= file.size(); at += 512) {
    if (file.compare(at + 257, 5, "ustar") != 0) continue;
    std::memset(file.data() + at + 148, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < 512; i++) sum += static_cast<unsigned char>(file[at + i]);
    std::snprintf(file.data() + at + 148, 8, "%06o", sum);
  }
}
void repair_jit(std::string& file) {
  uint64_t body = 0;
  if (file.size() < 64) return;
  std::memcpy(&body, file.data() + 16, 8);
  if (body > file.size() - 64) return;
  const std::span<const uint8_t> all = span_of(file);
  const Sha256Digest d = Sha256().update(all.first(32)).update(all.subspan(64, body)).finish();
  std::memcpy(file.data() + 32, d.data(), d.size());
}

// ---- readers ----

void use(const llm::Tokenizer& t) {
  try {
    t.decode(t.encode("Hello wörld <|im_end|> \xff 123", {.parse_special = true}), false);
  } catch (const ValueError&) {  // an expression that takes too many steps
  }
}

void read_model(const fs::path& file) {
  const io::GgufFile f = io::GgufFile::open(file);
  for (const io::GgufTensor& t : f.tensors()) f.tensor(t);
  use(llm::Tokenizer::from_gguf(f.metadata()));
  const llm::ChatTemplate chat(std::string(f.metadata().string_or("tokenizer.chat_template", "")));
  llm::ChatInput in;
  in.messages = llm::Value::list({llm::Value::dict({{"role", "user"}, {"content", "hi"}})});
  chat.render(in);
}
void load_model(const fs::path& file) { llm::LanguageModel::load(file, {.max_context = 1}); }

void read_template(const fs::path& file) {
  const llm::ChatTemplate chat(text_of(file));
  llm::ChatInput in;
  in.messages = llm::Value::list({llm::Value::dict({{"role", "user"}, {"content", "hi"}})});
  chat.render(in);
}

void read_torch(const fs::path& file) {
  const nn::TorchValue v = nn::torch_load_value(file, {.keep_opaque = true});
  v.state_dict();
}

void read_checkpoint(const fs::path& file) {
  nn::Checkpoint c;
  const nn::StateDict saved = nn::safe_load(file);
  for (const auto& [name, t] : saved)
    if (name.starts_with("model.") && t.numel() < 100) c.model.emplace_back(name.substr(6), Tensor::zeros(t.shape()));
  nn::load_checkpoint(c, file);
}

/// Every way a file gets in. `folder` has the other files of those that come in several.
/// Loads a model and builds its outputs of ones.
void run_onnx(const fs::path& file) {
  const onnx::Model m = onnx::Model::from_file(file);
  onnx::Model::NamedValues inputs;
  for (const onnx::ValueInfo& v : m.inputs()) {
    Shape s;
    for (const onnx::Dimension& d : v.type.shape.value_or(std::vector<onnx::Dimension>()))
      s.push_back(std::min<int64_t>(d.value.value_or(2), 64));
    const DType d = onnx::storage_dtype(v.type.elem).value_or(dtypes::float32);
    inputs.emplace_back(std::string(v.name), Tensor::ones(s, {.dtype = d}).contiguous());
  }
  m.run(inputs);
}

std::vector<Kind> kinds(const fs::path& folder) {
  test::write_tiny_bert(folder);
  const Tensor w({1.f, 2.f, 3.f});
  fs::create_directories(folder / "shards");
  nn::safe_save_sharded({{"a", w}, {"b", w * 2}, {"c", w * 3}}, folder / "shards", {.max_bytes = 24});
  nn::save_checkpoint({{{"w", w}}, {}, 7, {{"note", "x"}}}, folder / "run");
  nn::npz_save({{"a", w}, {"b", w.half()}}, folder / "a.npz");
  std::vector<std::string> parts;
  for (int i = 0; i < 2; i++) {
    test::GgufBytes g;
    g.integer("split.no", i).integer("split.count", 2).tensor(i == 0 ? "a" : "b", {2, 2});
    parts.push_back(g.build());
  }
  write(folder / "m-00002-of-00002.gguf", parts[1]);
  const auto at = [folder](const char* name) { return text_of(folder / name); };
  const auto bert = [folder](const fs::path&) { llm::BertModel::open(folder); };
  const auto read_idx = [](const fs::path& p) { nn::parse_idx(span_of(text_of(p)), "x", 1 << 20); };
  return {
      {"safetensors", corpus("safetensors"), "x", [](auto& p) { nn::safe_load(p); }, Answer::kFormat,
       repair_safetensors},
      {"safetensors metadata", corpus("safetensors"), "x", [](auto& p) { nn::safe_metadata(p); }},
      {"index",
       {at("shards/model.safetensors.index.json")},
       "shards/model.safetensors.index.json",
       [](auto& p) { nn::safe_load(p); },
       Answer::kOtherFile},
      {"shard",
       {at("shards/model-00002-of-00002.safetensors")},
       "shards/model-00002-of-00002.safetensors",
       [folder](auto&) { nn::safe_load(folder / "shards"); },
       Answer::kFormat,
       repair_safetensors},
      {"gguf", corpus("gguf"), "x", [](auto& p) { io::GgufFile::open(p); }, Answer::kOtherFile},
      {"split gguf", {parts[0]}, "m-00001-of-00002.gguf", [](auto& p) { io::GgufFile::open(p); }, Answer::kFit},
      {"model", models(), "x", read_model, Answer::kOtherFile},
      {"language model", models(), "x", load_model, Answer::kOtherFile},
      {"chat template",
       {std::string(io::parse_gguf(span_of(models()[0]), "x").metadata.string("tokenizer.chat_template"))},
       "x",
       read_template},
      {"torch", corpus("torch"), "x", read_torch},
      {"onnx", corpus("onnx"), "x", run_onnx, Answer::kFit},
      {"npy", corpus("npy"), "x", [](auto& p) { nn::npy_load(p); }},
      {"npz", {at("a.npz")}, "x", [](auto& p) { nn::npz_load(p); }},
      {"zip", corpus("zip"), "x", [](auto& p) { nn::zip_extract(p); }},
      {"tar", corpus("tar"), "x", [](auto& p) { nn::tar_extract(p); }, Answer::kFormat, repair_tar},
      {"gzip", corpus("gzip"), "x", [](auto& p) { nn::gz_extract(p); }},
      {"tokenizer", corpus("tokenizer_json"), "x",
       [](auto& p) { use(llm::Tokenizer::from_json(span_of(text_of(p)), "x")); }},
      {"bert config", {test::kBertConfig}, "config.json", bert},
      {"bert vocabulary", {test::kBertVocabulary}, "tokenizer.json", bert},
      {"bert weights", {at("model.safetensors")}, "model.safetensors", bert, Answer::kFormat, repair_safetensors},
      {"bert pooling", {at("1_Pooling/config.json")}, "1_Pooling/config.json", bert},
      {"captured function", {jit_file()}, "x", [](auto& p) { load_jit(p); }, Answer::kFit, repair_jit},
      {"checkpoint", {at("run")}, "x", read_checkpoint, Answer::kFit, repair_safetensors},
      {"idx", corpus("idx"), "x", read_idx},
  };
}

/// Returns whether the reader took the file or refused it as it should; says so otherwise.
bool answers(const Kind& kind, const fs::path& file, uint64_t number, int& accepted) {
  const auto wrong = [&](const char* what) {
    std::cout << "file " << number << " (" << kind.name << "): " << what << std::endl;
    return false;
  };
  try {
    kind.read(file);
    accepted++;
    return true;
  } catch (const FormatError&) { return true; } catch (const FileError& e) {
    return kind.answer == Answer::kOtherFile || wrong(e.what());
  } catch (const OutOfMemoryError& e) { return wrong(e.what()); } catch (const Error& e) {
    return kind.answer == Answer::kFit || wrong(e.what());
  } catch (const std::exception& e) { return wrong(e.what()); }
}

uint64_t number_of(const char* variable, uint64_t fallback) {
  const char* v = std::getenv(variable);
  return v ? std::strtoull(v, nullptr, 10) : fallback;
}

/// Limits the memory of this process to what it has now and kMemoryLimit. The address sanitizer reserves its shadow
/// memory by the terabyte: there its own limit of one allocation holds instead.
void limit_memory() {
#ifndef TG_ADDRESS_SANITIZER
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + kMemoryLimit;
  const rlimit limit{most, most};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
#endif
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

/// Says the number of the file that takes too long. Only what signal handlers may do.
volatile uint64_t current = 0;
void say_hang(int) {
  char text[64] = "file ";
  size_t n = 5;
  char digits[24];
  size_t k = 0;
  uint64_t v = current;
  do digits[k++] = static_cast<char>('0' + v % 10);
  while ((v /= 10) != 0);
  while (k > 0) text[n++] = digits[--k];
  std::memcpy(text + n, " takes too long\n", 16);
  static_cast<void>(!::write(1, text, n + 16));
  _exit(3);
}

/// Reads the files MALFORMED_FIRST and on. Disabled because it limits its process: it is the child of LoadOrAreRefused,
/// which runs it.
TEST(MalformedFiles, DISABLED_Read) {
  const TempDir dir;
  const fs::path folder = dir / "";
  const std::vector<Kind> all = kinds(folder);
  const uint64_t first = number_of("MALFORMED_FIRST", 0), count = number_of("MALFORMED_FILES", 10000);
  for (const Kind& kind : all) {  // what is not damaged loads
    ASSERT_FALSE(kind.seeds.empty()) << kind.name;
    for (const std::string& seed : kind.seeds) {
      const fs::path file = folder / kind.file;
      write(file, seed);
      ASSERT_NO_THROW(kind.read(file)) << kind.name;
    }
  }
  limit_memory();
  ::signal(SIGALRM, say_hang);
  int accepted = 0, wrong = 0;
  for (uint64_t n = first; n < first + count; n++) {
    const Kind& kind = all[n % all.size()];
    test::Damage damage(n);
    const std::string& seed = kind.seeds[n / all.size() % kind.seeds.size()];
    std::string bytes = damage(seed, kind.seeds[n / 7 % kind.seeds.size()]);
    if (kind.repair && n / all.size() % 2 == 0) kind.repair(bytes);
    const fs::path file = folder / kind.file;
    write(file, bytes);
    std::cout << "at " << n << " (" << kind.name << ")\n";  // the last one is what it died of
    current = n;
    alarm(kSeconds);
    wrong += !answers(kind, file, n, accepted);
    alarm(0);
    if (std::string(kind.file) != "x") write(file, seed);
  }
  std::cout << "accepted " << accepted << " of " << count << std::endl;
  EXPECT_EQ(wrong, 0);
}

TEST(MalformedFiles, LoadOrAreRefused) {
  const char* options = std::getenv("ASAN_OPTIONS");
  const std::string asan = str(options ? options : "", options ? ":" : "", "max_allocation_size_mb=512");
  const uint64_t count = number_of("MALFORMED_FILES", 10000);
  // Files in memory where there is such a folder: a disk waits for each of them.
  const fs::path memory = "/dev/shm", folder = fs::is_directory(memory) ? memory : fs::temp_directory_path();
  const ProcessResult r = run_process(
      {executable_path().string(), "--gtest_also_run_disabled_tests", "--gtest_filter=MalformedFiles.DISABLED_Read"},
      {.env = {{"ASAN_OPTIONS", asan}, {"MALFORMED_FILES", std::to_string(count)}, {"TMPDIR", folder.string()}},
       .timeout_s = 100 + static_cast<double>(count) / 50});
  EXPECT_FALSE(r.timed_out);
  const size_t last = r.out.rfind("\nat ");
  EXPECT_TRUE(r.ok()) << "signal " << r.signal << ", exit code " << r.exit_code
                      << (last == std::string::npos ? r.out : r.out.substr(last, 200)) << "\n"
                      << r.err.substr(0, 4000);
  for (size_t at = r.out.find("\nfile "); at != std::string::npos; at = r.out.find("\nfile ", at + 1))
    ADD_FAILURE() << r.out.substr(at + 1, r.out.find('\n', at + 1) - at - 1);
}

}  // namespace
}  // namespace tg
