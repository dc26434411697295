/// \file CUDA C++: copies in boxes (TMA), barriers in the memory of a group, clusters.
///
/// One thread of a group gives the commands. Where a parameter begins at no multiple of 16 bytes the copy engine cannot
/// read it: in the second body of such a kernel (cstyle_copy.cpp) all threads copy what would be in the boxes, and wait
/// for each other instead of for barriers in memory.
#include <algorithm>

#include "tinygrad/render/cstyle/cstyle_writer.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/barriers.h"

namespace tg {
namespace {
constexpr const char* kShared = "(unsigned)__cvta_generic_to_shared(";
constexpr const char* kFence = R"(asm volatile("fence.proxy.async;" : : : "memory");)";
constexpr const char* kOfCluster =
    R"(asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" : : : "memory");)";
}  // namespace

/// Returns the groups of a cluster: 1 where there is none.
int64_t CStyleWriter::cluster_groups() const {
  for (const Inst& in : view_.insts())
    if (begins_barriers(in.u)) return barrier_number(in.u, 2);
  return 1;
}
/// Returns a statement for which all threads of the cluster wait, and what they have stored for those of others.
std::string CStyleWriter::cluster_barrier() const {
  return cluster_groups() > 1 ? kOfCluster : std::string(style_.barrier);
}

/// Declares the maps of what is copied in boxes, behind all other parameters, and what tells the runtime of them.
void CStyleWriter::declare_maps() {
  maps_ = tensor_maps(p_.insts);
  if (maps_.empty()) return;
  helpers_ += str("extern \"C\" __device__ char ", p_.name, "_maps[] = \"", image_text(maps_), "\";\n");
  helpers_ += str("struct __attribute__((aligned(", kTensorMapAlign, "))) tensor_map {\n  unsigned long long words[",
                  kTensorMapBytes / 8, "];\n};\n");
  for (size_t i = 0; i < maps_.size(); i++)
    parameters_.push_back({str("const __grid_constant__ tensor_map map", i), ""});
}

/// Declares what tells the warp that gives commands.
void CStyleWriter::declare_first_warp() {
  if (maps_.empty()) return;
  line("const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;");
  line("const bool first_warp = __shfl_sync(0xffffffffu, thread / 32, 0) == 0;");
}
std::string CStyleWriter::gate_text(UOp gate) { return gate ? wrap(value(gate, 1), kUnary) : ""; }
std::string CStyleWriter::address_text(UOp index) {
  const MemAccess a = view_.access(index);
  return address(a, a.base.dtype(), value(a.index, 1)).text;
}

void CStyleWriter::memory_barrier(UOp u) {
  TG_ASSERT(style_.matrices == MatrixSyntax::kAssembly, "a barrier in memory in a language without: ", u);
  const std::string at = address_text(u.src(0));
  if (begins_barriers(u)) return begin_barriers(u, at);
  if (expects_boxes(u)) {
    if (helper("expect_bytes"))
      helper_text("void expect_bytes(unsigned long long* barrier, unsigned bytes)",
                  str("  asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" : : \"r\"(", kShared,
                      "barrier)), \"r\"(bytes) : \"memory\");\n"));
    commands_.push_back(str("expect_bytes(", at, ", ", barrier_number(u), "u);"));
    return give_commands(gate_text(gate_of(u)));
  }
  if (releases_room(u)) return release_room(u, at);
  if (helper("await_phase"))
    helper_text(
        "void await_phase(unsigned long long* barrier, unsigned parity)",
        str("  unsigned done;\n  do {\n    asm volatile(\"{.reg .pred over; mbarrier.try_wait.parity.shared::cta."
            "b64 over, [%1], %2; selp.u32 %0, 1, 0, over;}\" : \"=r\"(done) : \"r\"(",
            kShared, "barrier)), \"r\"(parity) : \"memory\");\n  } while (!done);\n"));
  const std::string wait = str("await_phase(", at, ", ", value(u.src(1), 1).text, ");");
  if (awaits_room(u)) {
    commands_.push_back(wait);
    by_threads_.push_back(kFence);
    by_threads_.push_back(cluster_barrier());
    return;
  }
  line("if (aligned) " + wait);
  line("else {");
  for (const std::string& statement : {std::string(kFence), cluster_barrier()}) line("  " + statement);
  line("}");
}

void CStyleWriter::begin_barriers(UOp u, const std::string& at) {
  if (helper("begin_barriers"))
    helper_text(
        "void begin_barriers(unsigned long long* barriers, int count, int arrivals)",
        str("  for (int i = 0; i < count; i++)\n    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" : : "
            "\"r\"(",
            kShared,
            "barriers + i)), \"r\"(arrivals) : \"memory\");\n"
            "  asm volatile(\"fence.mbarrier_init.release.cluster;\" : : : \"memory\");\n"));
  line(str("if (thread == 0) begin_barriers(", at, ", ", barrier_number(u), ", ", barrier_number(u, 3), ");"));
  line(cluster_barrier());
}

void CStyleWriter::release_room(UOp u, const std::string& at) {
  if (helper("arrive"))
    helper_text("void arrive(unsigned long long* barrier, unsigned groups)",
                str("  for (unsigned group = 0; group < groups; group++)\n    asm volatile(\"{.reg .b32 there; "
                    "mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there];}\" : : "
                    "\"r\"(",
                    kShared, "barrier)), \"r\"(group) : \"memory\");\n"));
  const std::string gate = gate_text(gate_of(u));
  line(str("if (aligned && ", gate.empty() ? "" : gate + " && ", "thread % 32 == 0) arrive(", at, ", ",
           barrier_number(u), ");"));
}

/// Writes the commands so far, for the thread that gives them, and what all threads do in a body without. That thread
/// is elected where they begin: so the compiler knows that there is one.
void CStyleWriter::give_commands(const std::string& gate) {
  if (helper("is_elected"))
    helper_text(
        "bool is_elected()",
        "  unsigned on;\n  asm volatile(\"{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}\" : "
        "\"=r\"(on));\n  return on;\n");
  line(str("if (aligned) {"));
  line(str("  if (", gate.empty() ? "" : gate + " && ", "first_warp && is_elected()) {"));
  for (const std::string& c : commands_) line("    " + c);
  line("  }");
  line("} else {");
  for (const std::string& c : by_threads_) line("  " + c);
  line("}");
  commands_.clear();
  by_threads_.clear();
}

/// Returns the text behind the name of a function that copies a box by a command.
std::string CStyleWriter::box_helper(int64_t groups) {
  const std::string name = str("copy_box", groups > 1 ? "_to_all" : "");
  if (!helper(name)) return name;
  helper_text(
      str("void ", name, "(char* to, unsigned long long* barrier, const tensor_map* map, int column, int row)"),
      str("  asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
          groups > 1 ? ".multicast::cluster" : "", " [%0], [%1, {%2, %3}], [%4]", groups > 1 ? ", %5" : "",
          ";\" : : \"r\"(", kShared, "to)), \"l\"(map), \"r\"(column), \"r\"(row), \"r\"(", kShared, "barrier))",
          groups > 1 ? str(", \"h\"((unsigned short)", (1 << groups) - 1, ")") : "", " : \"memory\");\n"));
  return name;
}

/// Returns a function with which all threads copy a box.
std::string CStyleWriter::copy_helper(const TensorMap& map, int64_t groups) {
  const DType element = map.itemsize == 1 ? dtypes::uint8 : map.itemsize == 2 ? dtypes::uint16 : dtypes::uint32;
  const std::string name = str("copy_each_", tag(element, 1), groups > 1 ? "_to_all" : ""), t = scalar(element);
  if (!helper(name)) return name;
  // Groups of a cluster have addresses for each other's memory.
  std::string store = str("*(", t, "*)(to + at) = v;");
  if (groups > 1)
    store = str("for (unsigned group = 0; group < ", groups,
                "; group++) {\n      char* there;\n      asm(\"mapa.u64 %0, "
                "%1, %2;\" : \"=l\"(there) : \"l\"(to + at), \"r\"(group));\n      *(",
                t, "*)there = v;\n    }");
  helpers_ += "template <long long width, long long height, int box_width, int box_height> ";
  helper_text(
      str("void ", name, "(char* to, const void* from, int column, int row, int thread)"),
      str("  const int threads = blockDim.x * blockDim.y * blockDim.z;\n"
          "  for (int i = thread; i < box_width * box_height; i += threads) {\n"
          "    const int x = i % box_width, y = i / box_width;\n    ",
          t,
          " v = 0;\n"
          "    if (column + x < width && row + y < height)\n"
          "      memcpy(&v, (const char*)from + ((row + y) * width + column + x) * sizeof v, sizeof v);\n"
          "    const int at = (y * ",
          kMatrixRow, " + x * (int)sizeof v) ^ y % ", kMatrixRows, " * ", kMatrixPart, ";\n    ", store, "\n  }\n"));
  return name;
}

void CStyleWriter::copy_box(UOp u) {
  const BoxCopy c{u};
  const TensorMap map = TensorMap::from_text(c.map());
  const auto number = std::find(maps_.begin(), maps_.end(), map) - maps_.begin();
  TG_ASSERT(number < static_cast<std::ptrdiff_t>(maps_.size()), "a box of no map: ", u);
  const auto storage = [&](UOp memory) { return storage_[static_cast<size_t>(view_.position(memory))]; };
  const std::string to = "(char*)(" + address_text(c.to()) + ")", gate = gate_text(c.gate()),
                    at = str(value(c.column(), 1).text, ", ", value(c.row(), 1).text);
  commands_.push_back(str(box_helper(c.groups()), "(", to, ", ", storage(c.barriers()), " + ",
                          wrap(value(c.number(), 1), kMul), ", &map", number, ", ", at, ");"));
  by_threads_.push_back(str(gate.empty() ? "" : "if (" + gate + ") ", copy_helper(map, c.groups()), "<", map.width,
                            ", ", map.height, ", ", map.box_width, ", ", map.box_height, ">(", to, ", ",
                            storage(c.param()), ", ", at, ", thread);"));
}

}  // namespace tg
