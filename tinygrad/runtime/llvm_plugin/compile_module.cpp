/// \file LLVM IR text to object bytes: parse, verify, a short pass list, emit. The only file that includes LLVM.
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopUnrollPass.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "tinygrad/runtime/llvm_plugin/api.h"

namespace {

#if LLVM_VERSION_MAJOR >= 18
using OptLevel = llvm::CodeGenOptLevel;
constexpr auto kObjectFile = llvm::CodeGenFileType::ObjectFile, kAssemblyFile = llvm::CodeGenFileType::AssemblyFile;
constexpr OptLevel kOptNone = OptLevel::None, kOptLess = OptLevel::Less, kOptDefault = OptLevel::Default;
#else
using OptLevel = llvm::CodeGenOpt::Level;
constexpr auto kObjectFile = llvm::CGFT_ObjectFile, kAssemblyFile = llvm::CGFT_AssemblyFile;
constexpr OptLevel kOptNone = llvm::CodeGenOpt::None, kOptLess = llvm::CodeGenOpt::Less,
                   kOptDefault = llvm::CodeGenOpt::Default;
#endif

/// Catches a fatal error of LLVM (an operation without instructions, say) instead of exit(). No destructors in the
/// skipped frames matter: everything LLVM allocated for this compilation is leaked on purpose, its state being unknown.
struct Escape {
  std::jmp_buf jump;
  std::string* message;
};
thread_local Escape* current_escape = nullptr;

void on_fatal_error(void*, const char* reason, bool) {
  if (Escape* escape = current_escape) {
    current_escape = nullptr;
    *escape->message = reason;
    std::longjmp(escape->jump, 1);
  }
}

void initialize_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    llvm::install_fatal_error_handler(on_fatal_error);
    // Disables a pass that is quadratic in the length of integer chains, and helps only where masks are computed in
    // general registers.
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto it = options.find("disable-x86-domain-reassignment"); it != options.end())
      static_cast<llvm::cl::opt<bool>*>(it->second)->setValue(true);
  });
}

/// The code generators for other processors, where this LLVM has them.
void initialize_foreign(const llvm::Triple& triple) {
  if (triple.getArch() == llvm::Triple(llvm::sys::getProcessTriple()).getArch()) return;
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
  });
}

/// Collects errors; without it LLVM prints them and exits.
struct Diagnostics : llvm::DiagnosticHandler {
  explicit Diagnostics(std::string* out) : errors(out) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream stream(*errors);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    stream << '\n';
    return true;
  }
  std::string* errors;
};

/// Drops features unknown to this LLVM, which would print a warning for each.
std::string known_features([[maybe_unused]] const llvm::MCSubtargetInfo& info, llvm::StringRef features) {
  std::string result;
  llvm::SmallVector<llvm::StringRef, 64> parts;
  features.split(parts, ',', -1, false);
  for (llvm::StringRef part : parts) {
    llvm::StringRef name = part.drop_while([](char c) { return c == '+' || c == '-'; });
    // A masked comparison of half vectors gets its operands exchanged where one of them is reloaded (LLVM 19). Without
    // these instructions halves are computed in float32, with the same results.
    bool known = name != "avx512fp16";
#if LLVM_VERSION_MAJOR >= 19
    known &= llvm::any_of(info.getAllProcessorFeatures(),
                          [&](const llvm::SubtargetFeatureKV& kv) { return name == kv.Key; });
#endif
    if (known) result += (result.empty() ? "" : ",") + part.str();
  }
  return result;
}

/// The state shared by compilations for one processor: the code generator and the pass pipelines, whose set-up takes
/// longer than a small kernel. Used by one compilation at a time.
class Machine {
 public:
  /// Returns null, with the reason in `error`, where there is no code generator.
  static std::unique_ptr<Machine> make(const TgLlvmRequest& request, std::string& error);
  bool fits(const TgLlvmRequest& request) const { return key_ == key_of(request); }
  /// False where the code generator keeps pointers into the module it has written.
  bool compiles_again() const { return !target_->getTargetTriple().isNVPTX(); }
  /// Sets the module's data layout and the processor attributes of its functions.
  void describe(llvm::Module& module) const;
  void optimize(llvm::Module& module);
  const llvm::SmallVectorImpl<char>& emit(llvm::Module& module);

 private:
  Machine(const TgLlvmRequest& request, std::string tune, std::unique_ptr<llvm::TargetMachine> target);
  static std::string key_of(const TgLlvmRequest& r) {
    return std::string(r.triple) + ';' + r.cpu + ';' + r.features + ';' + std::to_string(r.opt_level) + ';' +
           std::to_string(r.assembly);
  }

  const std::string key_, tune_;
  std::unique_ptr<llvm::TargetMachine> target_;
  llvm::TargetLibraryInfoImpl libraries_;
  llvm::LoopAnalysisManager loops_;
  llvm::FunctionAnalysisManager functions_;
  llvm::CGSCCAnalysisManager components_;
  llvm::ModuleAnalysisManager modules_;
  llvm::PassBuilder builder_;
  llvm::FunctionPassManager passes_;
  llvm::SmallVector<char, 0> output_;
  llvm::raw_svector_ostream stream_{output_};
  llvm::legacy::PassManager emit_;
  bool writes_ = false;
};

std::unique_ptr<Machine> Machine::make(const TgLlvmRequest& request, std::string& error) {
  llvm::Triple triple(request.triple && *request.triple ? std::string(request.triple) : llvm::sys::getProcessTriple());
#if LLVM_VERSION_MAJOR >= 22
  const llvm::Triple& text = triple;  // older versions take a string
#else
  const std::string& text = triple.str();
#endif
#if LLVM_VERSION_MAJOR >= 21
  const llvm::Triple& name = triple;
#else
  const std::string& name = triple.str();
#endif
  initialize_foreign(triple);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(text, error);
  if (!target) return nullptr;
  const char* baseline = triple.getArch() == llvm::Triple::x86_64 ? "x86-64"
                         : triple.isRISCV64()                     ? "generic-rv64"
                         : triple.isNVPTX()                       ? request.cpu  // what the code may use, too
                                                                  : "generic";
  std::unique_ptr<llvm::MCSubtargetInfo> info(target->createMCSubtargetInfo(text, baseline, ""));
  std::string features = info ? known_features(*info, request.features) : std::string();
  bool tunable = info && *request.cpu && info->isCPUStringValid(request.cpu);
  if (triple.isNVPTX() && !tunable) {
    error = std::string("this LLVM knows no ") + request.cpu;
    return nullptr;
  }

  llvm::TargetOptions options;
  if (triple.isRISCV64()) options.MCOptions.ABIName = "lp64d";
  OptLevel level = request.opt_level >= 2 ? kOptDefault : request.opt_level == 1 ? kOptLess : kOptNone;
  std::unique_ptr<llvm::TargetMachine> made(
      target->createTargetMachine(name, baseline, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, level));
  if (!made) {
    error = "no code generator for " + triple.str();
    return nullptr;
  }
  std::unique_ptr<Machine> machine(new Machine(request, tunable ? request.cpu : "", std::move(made)));
  if (!machine->writes_) {
    error = "the target cannot write this kind of file";
    return nullptr;
  }
  return machine;
}

Machine::Machine(const TgLlvmRequest& request, std::string tune, std::unique_ptr<llvm::TargetMachine> target)
    : key_(key_of(request)),
      tune_(std::move(tune)),
      target_(std::move(target)),
      libraries_(target_->getTargetTriple()),
      builder_(target_.get()) {
  // No function of the C library is known, so none is inferred from loops or arithmetic.
  libraries_.disableAllFunctions();
  functions_.registerPass(
      [&] { return llvm::TargetLibraryAnalysis(libraries_); });  // first, so that it takes precedence
  builder_.registerModuleAnalyses(modules_);
  builder_.registerCGSCCAnalyses(components_);
  builder_.registerFunctionAnalyses(functions_);
  builder_.registerLoopAnalyses(loops_);
  builder_.crossRegisterProxies(loops_, functions_, components_, modules_);
  // The renderer has vectorized and unrolled already: clean up, hoist, and leave the rest to instruction selection.
  passes_.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes_.addPass(llvm::EarlyCSEPass(true));
  passes_.addPass(llvm::InstCombinePass());
  passes_.addPass(llvm::SimplifyCFGPass());
  if (target_->getTargetTriple().isNVPTX())  // loops that say how often
    passes_.addPass(llvm::LoopUnrollPass(llvm::LoopUnrollOptions(2, /*OnlyWhenForced=*/true)));
  passes_.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  passes_.addPass(llvm::EarlyCSEPass(true));
  passes_.addPass(llvm::InstCombinePass());
  passes_.addPass(llvm::SimplifyCFGPass());

  emit_.add(new llvm::TargetLibraryInfoWrapperPass(libraries_));
  writes_ = !target_->addPassesToEmitFile(emit_, stream_, nullptr, request.assembly ? kAssemblyFile : kObjectFile,
                                          /*DisableVerify=*/true);
}

void Machine::describe(llvm::Module& module) const {
#if LLVM_VERSION_MAJOR >= 21
  module.setTargetTriple(target_->getTargetTriple());
#else
  module.setTargetTriple(target_->getTargetTriple().str());
#endif
  module.setDataLayout(target_->createDataLayout());
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    f.addFnAttr(llvm::Attribute::NoUnwind);  // no unwind tables
    if (!tune_.empty() && !f.hasFnAttribute("tune-cpu")) f.addFnAttr("tune-cpu", tune_);
  }
}

void Machine::optimize(llvm::Module& module) {
  for (llvm::Function& f : module)
    if (!f.isDeclaration()) passes_.run(f, functions_);
  loops_.clear();
  functions_.clear();
  components_.clear();
  modules_.clear();  // releases the module
}

const llvm::SmallVectorImpl<char>& Machine::emit(llvm::Module& module) {
  output_.clear();
  emit_.run(module);
  return output_;
}

/// Machines not in use by any compilation.
class Machines {
 public:
  std::unique_ptr<Machine> take(const TgLlvmRequest& request, std::string& error) {
    {
      std::lock_guard lock(mutex_);
      for (auto& m : idle_)
        if (m->fits(request)) {
          std::unique_ptr<Machine> found = std::move(m);
          idle_.erase(idle_.begin() + (&m - idle_.data()));
          return found;
        }
    }
    return Machine::make(request, error);
  }
  void give_back(std::unique_ptr<Machine> machine) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(machine));
    if (idle_.size() > kMost) idle_.erase(idle_.begin());
  }
  static Machines& all() {
    static auto* machines = new Machines;  // threads may compile while the process ends
    return *machines;
  }

 private:
  static constexpr size_t kMost = 64;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Machine>> idle_;  // most recently used last
};

/// State owned by one compilation; leaked when LLVM fails midway.
struct Job {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<Machine> machine;
  const llvm::SmallVectorImpl<char>* output = nullptr;

  __attribute__((noinline)) bool run(const TgLlvmRequest& request, std::string& error);  // not into the frame of setjmp
};

bool Job::run(const TgLlvmRequest& request, std::string& error) {
  context.setDiagnosticHandler(std::make_unique<Diagnostics>(&error));
  llvm::SMDiagnostic parse_error;
  llvm::MemoryBufferRef text(llvm::StringRef(request.ir, request.ir_size), "kernel");
  module = llvm::parseAssembly(text, parse_error, context);
  if (!module) {
    llvm::raw_string_ostream stream(error);
    parse_error.print("", stream, /*ShowColors=*/false);
    return false;
  }
  machine = Machines::all().take(request, error);
  if (!machine) return false;
  machine->describe(*module);
  {
    llvm::raw_string_ostream stream(error);
    if (llvm::verifyModule(*module, &stream)) return false;
  }
  if (request.opt_level > 0) machine->optimize(*module);
  output = &machine->emit(*module);
  return error.empty();
}

char* copy_text(const std::string& text) {
  char* result = static_cast<char*>(std::malloc(text.size() + 1));
  if (result) std::memcpy(result, text.c_str(), text.size() + 1);
  return result;
}

/// Runs the job; returns false when LLVM aborted with a fatal error. Nothing in this frame changes after setjmp.
bool run_guarded(Job* job, const TgLlvmRequest* request, std::string* error, bool* done) {
  Escape escape;
  escape.message = error;
  current_escape = &escape;
  if (setjmp(escape.jump) != 0) return false;
  *done = job->run(*request, *error);
  current_escape = nullptr;
  return true;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int tg_llvm_abi() { return kTgLlvmAbi; }

__attribute__((visibility("default"))) const char* tg_llvm_version() { return LLVM_VERSION_STRING; }

__attribute__((visibility("default"))) void tg_llvm_free(TgLlvmResult* result) {
  std::free(result->data);
  std::free(result->error);
  *result = {};
}

/// Thread-safe. Never exits and never throws.
__attribute__((visibility("default"))) void tg_llvm_compile(const TgLlvmRequest* request, TgLlvmResult* result) {
  *result = {};
  initialize_once();
  Job* job = new Job;
  std::string error;
  bool done = false;
  if (!run_guarded(job, request, &error, &done)) {
    result->error = copy_text("LLVM: " + error);
    return;  // the job is leaked, see Escape
  }
  if (done) {
    result->size = job->output->size();
    result->data = static_cast<unsigned char*>(std::malloc(result->size + 1));
    if (result->data) std::memcpy(result->data, job->output->data(), result->size);
  }
  if (!result->data) result->error = copy_text(error.empty() ? "LLVM: failed without a message" : error);
  std::unique_ptr<Machine> machine = std::move(job->machine);
  delete job;
  if (machine && machine->compiles_again()) Machines::all().give_back(std::move(machine));
}
}
