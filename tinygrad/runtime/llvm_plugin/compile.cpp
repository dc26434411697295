/// \file LLVM IR text to object bytes: parse, verify, a short pass list, emit. The only file that includes LLVM.
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

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
constexpr OptLevel kOptNone = llvm::CodeGenOpt::None, kOptLess = llvm::CodeGenOpt::Less, kOptDefault = llvm::CodeGenOpt::Default;
#endif

/// Where a fatal error of LLVM (an operation without instructions, say) goes instead of exit(). The frames in between have no destructors to
/// run that matter: everything LLVM allocated for this compilation is leaked on purpose, its state being unknown.
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
    // A pass that is quadratic in the length of integer chains, and gains something only where masks are computed in general registers.
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto it = options.find("disable-x86-domain-reassignment"); it != options.end()) static_cast<llvm::cl::opt<bool>*>(it->second)->setValue(true);
  });
}

/// The code generators of other processors than this one, where this LLVM has them.
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

/// Drops features this LLVM does not know: it would print a warning for each.
std::string known_features([[maybe_unused]] const llvm::MCSubtargetInfo& info, llvm::StringRef features) {
  std::string result;
  llvm::SmallVector<llvm::StringRef, 64> parts;
  features.split(parts, ',', -1, false);
  for (llvm::StringRef part : parts) {
    llvm::StringRef name = part.drop_while([](char c) { return c == '+' || c == '-'; });
    bool known = true;
#if LLVM_VERSION_MAJOR >= 19
    known = llvm::any_of(info.getAllProcessorFeatures(), [&](const llvm::SubtargetFeatureKV& kv) { return name == kv.Key; });
#endif
    if (known) result += (result.empty() ? "" : ",") + part.str();
  }
  return result;
}

/// Everything one compilation owns; leaked when LLVM fails half-way.
struct Job {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::Module> module;
  llvm::SmallVector<char, 0> output;

  __attribute__((noinline)) bool run(const TgLlvmRequest& request, std::string& error);  // not into the frame of setjmp

 private:
  bool make_machine(const TgLlvmRequest& request, std::string& error);
  void optimize(const llvm::TargetLibraryInfoImpl& libraries);
};

bool Job::make_machine(const TgLlvmRequest& request, std::string& error) {
  llvm::Triple triple(request.triple && *request.triple ? std::string(request.triple) : llvm::sys::getProcessTriple());
#if LLVM_VERSION_MAJOR >= 22
  const llvm::Triple& text = triple;  // where older versions take a string
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
  if (!target) return false;
  const char* baseline = triple.getArch() == llvm::Triple::x86_64 ? "x86-64" : triple.isRISCV64() ? "generic-rv64" : "generic";
  std::unique_ptr<llvm::MCSubtargetInfo> info(target->createMCSubtargetInfo(text, baseline, ""));
  std::string features = info ? known_features(*info, request.features) : std::string();
  bool tunable = info && *request.cpu && info->isCPUStringValid(request.cpu);

  llvm::TargetOptions options;
  if (triple.isRISCV64()) options.MCOptions.ABIName = "lp64d";
  OptLevel level = request.opt_level >= 2 ? kOptDefault : request.opt_level == 1 ? kOptLess : kOptNone;
  machine.reset(target->createTargetMachine(name, baseline, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, level));
  if (!machine) {
    error = "no code generator for " + triple.str();
    return false;
  }
  module->setTargetTriple(name);
  module->setDataLayout(machine->createDataLayout());
  for (llvm::Function& f : *module) {
    if (f.isDeclaration()) continue;
    f.addFnAttr(llvm::Attribute::NoUnwind);  // no unwind tables
    if (tunable && !f.hasFnAttribute("tune-cpu")) f.addFnAttr("tune-cpu", request.cpu);
  }
  return true;
}

/// The renderer has vectorized and unrolled already: clean up, hoist, and leave the rest to instruction selection.
void Job::optimize(const llvm::TargetLibraryInfoImpl& libraries) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine.get());
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(libraries); });  // first, so that it wins over the default
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);

  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass(true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  passes.addPass(llvm::EarlyCSEPass(true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function& f : *module)
    if (!f.isDeclaration()) passes.run(f, functions);
}

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
  if (!make_machine(request, error)) return false;
  {
    llvm::raw_string_ostream stream(error);
    if (llvm::verifyModule(*module, &stream)) return false;
  }
  // No function of the C library is known here, so none is invented from loops or arithmetic.
  llvm::TargetLibraryInfoImpl libraries(llvm::Triple(module->getTargetTriple()));
  libraries.disableAllFunctions();
  if (request.opt_level > 0) optimize(libraries);

  llvm::raw_svector_ostream stream(output);
  llvm::legacy::PassManager emit;
  emit.add(new llvm::TargetLibraryInfoWrapperPass(libraries));
  if (machine->addPassesToEmitFile(emit, stream, nullptr, request.assembly ? kAssemblyFile : kObjectFile, /*DisableVerify=*/true)) {
    error = "the target cannot write this kind of file";
    return false;
  }
  emit.run(*module);
  return error.empty();
}

char* copy_text(const std::string& text) {
  char* result = static_cast<char*>(std::malloc(text.size() + 1));
  if (result) std::memcpy(result, text.c_str(), text.size() + 1);
  return result;
}

/// Runs the job; false when LLVM gave up by a fatal error. Nothing in this frame changes after setjmp.
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
    result->size = job->output.size();
    result->data = static_cast<unsigned char*>(std::malloc(result->size + 1));
    if (result->data) std::memcpy(result->data, job->output.data(), result->size);
  }
  if (!result->data) result->error = copy_text(error.empty() ? "LLVM: failed without a message" : error);
  delete job;
}
}
