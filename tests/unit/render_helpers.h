/// \file Linear programs by hand, and ways to run them: by the interpreter and by compiled code of a given renderer and
/// processor.
#pragma once
#include <cmath>
#include <cstring>
#include <random>

#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/elf_loader.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/interp.h"
#include "tinygrad/uop/facts.h"

namespace tg::test {

using Bytes = std::vector<uint8_t>;
using Memory = std::vector<Bytes>;  // by parameter slot

inline UOp i32(int64_t v) { return UOp::constant(ConstValue(v), dtypes::int32); }
inline UOp param(int slot, DType d, int64_t size) {
  return UOp::make(Ops::PARAM, d, {UOp::shape_stack(std::vector<int64_t>{size})},
                   Arg(ParamArg{slot, AddrSpace::kGlobal, "", "", 0, 0}));
}
inline UOp reg(int slot, DType d, int64_t size, AddrSpace space = AddrSpace::kReg) {
  return UOp::make(Ops::BUFFER, d, {UOp::shape_stack(std::vector<int64_t>{size})},
                   Arg(ParamArg{slot, space, "", "", 0, 0}));
}
inline UOp range(int64_t end, int id, AxisType type = AxisType::kLoop) {
  return UOp::range(i32(end), RangeArg{{id}, type}, dtypes::int32);
}
inline UOp gated_store(UOp index, UOp value, UOp gate) {
  return UOp::make(Ops::STORE, dtypes::void_, {index, value, gate});
}
inline UOp group(const UOps& effects) { return UOp::make(Ops::GROUP, dtypes::void_, effects); }
inline UOp end(UOp effect, UOp r) { return effect.end(std::vector<UOp>{r}); }

/// A program of everything `sink` depends on.
inline std::shared_ptr<Program> program_of(ArenaRef arena, UOp effect, int nbuffers,
                                           std::vector<std::string> vars = {}) {
  auto p = std::make_shared<Program>();
  p->name = "kernel";
  p->arena = std::move(arena);
  p->ast = UOp::sink(std::vector<UOp>{effect});
  for (UOp u : p->ast.toposort())
    if (!u.dtype().is_weak()) p->insts.push_back(u);
  p->nbuffers = nbuffers;
  p->vars = std::move(vars);
  return p;
}

inline std::vector<void*> pointers(Memory& m) {
  std::vector<void*> p;
  for (Bytes& b : m) p.push_back(b.data());
  return p;
}
inline void run_interp(const std::shared_ptr<Program>& p, Memory& m, const std::vector<int64_t>& vars = {},
                       int64_t begin = 0, int64_t end = 1) {
  Interpreter(p).run(pointers(m).data(), vars.data(), begin, end);
}

/// A processor of the x86-64 line by its features; `available` says whether this machine runs its code.
inline Target target(const std::string& renderer, const std::string& arch) {
  Target t = parse_processor(arch);
  t.device = "CPU";
  t.renderer = renderer;
  return t;
}
inline bool runs_here(const Target& t) { return missing_feature(t, host_processor()).empty(); }
inline const std::vector<std::string>& processors() {
  static const std::vector<std::string> all = {"x86_64", "x86_64,haswell", "x86_64,skylake-avx512"};
  return all;
}
inline std::unique_ptr<Compiler> compiler(const Target& t) {
  return t.renderer == "CLANG" ? make_clang_compiler(t) : make_llvm_compiler(t);
}

struct Compiled {
  std::shared_ptr<ElfImage> image;
  HostKernel kernel = nullptr;
  std::string source;
  void operator()(Memory& m, const std::vector<int64_t>& vars = {}, int64_t begin = 0, int64_t end = 1) const {
    kernel(pointers(m).data(), vars.data(), begin, end);
  }
};
/// Renders and compiles; `kernel` stays null where this machine cannot run the code.
inline Compiled compile(const std::shared_ptr<Program>& p, const Target& t) {
  Compiled c;
  c.source = make_renderer(t)->render(*p);
  std::vector<uint8_t> object;
  try {
    object = compiler(t)->compile_cached(c.source);
  } catch (const Error& e) { throw CompileError(str(e.what(), "\n", c.source)); }
  if (!runs_here(t)) return c;
  c.image = ElfImage::load(object);
  c.kernel = reinterpret_cast<HostKernel>(c.image->function(p->name));
  return c;
}

inline const std::vector<DType>& all_types() {
  static const std::vector<DType> all = {dtypes::bool_,  dtypes::int8,    dtypes::uint8,   dtypes::int16,
                                         dtypes::uint16, dtypes::int32,   dtypes::uint32,  dtypes::int64,
                                         dtypes::uint64, dtypes::float16, dtypes::float32, dtypes::float64};
  return all;
}

/// Values with every special case in front, then random ones.
inline Bytes inputs(DType d, int64_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  Bytes out(static_cast<size_t>(n) * eval_itemsize(d));
  std::vector<ConstValue> special;
  if (d.is_float()) {
    const double inf = std::numeric_limits<double>::infinity();
    for (double v :
         {0.0, -0.0, 1.0, -1.0, inf, -inf, std::nan(""), 0.5, -2.5, 1e-7, 3e4, 6e-8, 255.7, -129.3, 1e-40, 65504.0})
      special.push_back(v);
  } else {
    for (int128 v : {int128(0), int128(1), int128(2), int128(3), int128(7), int128(31), int128(64), int_max(d),
                     int_min(d), int_max(d) - 1})
      special.push_back(v);
    if (int_min(d) < 0)
      for (int v : {-1, -2, -7}) special.push_back(v);
  }
  for (int64_t i = 0; i < n; i++) {
    ConstValue v;
    if (random() % 4) v = special[random() % special.size()];
    else if (d.is_float())
      v = std::ldexp(static_cast<double>(static_cast<int64_t>(random())) / 9.2e18, static_cast<int>(random() % 24) - 8);
    else v = truncate_int(static_cast<int128>(static_cast<int64_t>(random())) >> (random() % 60), d);
    store_const(out.data() + static_cast<size_t>(i) * eval_itemsize(d), v, d);
  }
  return out;
}

/// Index of the first element that differs, -1 without one: integers by value, floats by bits, every NaN being the same
/// and, if asked, both zeros.
inline int64_t first_difference(const Bytes& a, const Bytes& b, DType d, bool zeros_equal = false) {
  const size_t item = eval_itemsize(d);
  for (size_t i = 0; i * item < a.size(); i++) {
    if (!std::memcmp(&a[i * item], &b[i * item], item)) continue;
    const ConstValue x = load_const(&a[i * item], d), y = load_const(&b[i * item], d);
    if (d.is_float() && x.f != x.f && y.f != y.f) continue;
    if (zeros_equal && d.is_float() && x.f == y.f) continue;
    return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace tg::test
