/// \file LLVM IR of grids: elements side by side that a thread reads or writes at once, and copies of 16 bytes into the
/// memory of a group.
///
/// Parameters may be views that begin at any element. Where what is read is aligned if they are, a kernel asks for that
/// of all such parameters first, and its body stands there twice; any other address is asked where it is used.
#include "tinygrad/base/contains.h"
#include "tinygrad/render/llvmir/llvmir_writer.h"

namespace tg {
namespace {
int64_t bytes_of(const LaneBlock& b) {
  return static_cast<int64_t>(b.members.size()) * b.access.base.dtype().itemsize();
}
}  // namespace

/// Writes the condition that all parameters whose alignment matters have that of 16 bytes.
std::string LlvmWriter::alignment_test() {
  std::string bits;
  for (UOp p : aligned_parameters_) {
    const std::string address = emit(str("ptrtoint ptr addrspace(1) %global", p.arg<ParamArg>().slot, " to i64"));
    bits = bits.empty() ? address : emit("or i64 " + bits + ", " + address);
  }
  return emit("icmp eq i64 " + emit("and i64 " + bits + ", 15") + ", 0");
}

/// Returns a value that is computed in one of two ways.
std::string LlvmWriter::either(const std::string& condition, const std::string& t,
                               const std::function<std::string()>& holds, const std::function<std::string()>& fails) {
  const std::string id = std::to_string(next_++);
  line("br i1 " + condition + ", label %F" + id + ", label %G" + id);
  begin_block("F" + id);
  const std::string first = holds(), from = label_;
  line("br label %J" + id);
  begin_block("G" + id);
  const std::string second = fails(), other = label_;
  line("br label %J" + id);
  begin_block("J" + id);
  return emit("phi " + t + " [ " + first + ", %" + from + " ], [ " + second + ", %" + other + " ]");
}
/// Writes what is done on a condition; an empty one always holds.
void LlvmWriter::on(const std::string& condition, const std::function<void()>& then) {
  if (condition.empty()) return then();
  branch(condition, std::to_string(next_++), then, [] {});
}

/// Returns the condition that an address is a multiple of a run.
std::string LlvmWriter::is_multiple(const std::string& at, int64_t bytes) {
  const std::string address = emit("ptrtoint ptr " + at + " to i64");
  return emit("icmp eq i64 " + emit(str("and i64 ", address, ", ", bytes - 1)) + ", 0");
}

std::string LlvmWriter::run_address(const LaneBlock& b, UOp member) {
  return address(view_.access(member.src(0)), b.access.base.dtype(), b.members[0] == member ? 0 : -b.first_at);
}

/// Reads `n` elements side by side of which only each is aligned. Bytes are read one by one: LLVM's NVPTX makes one
/// access of 16 of them, whatever alignment the instruction has, and the device fails (seen with LLVM 19).
std::string LlvmWriter::load_unaligned(const MemAccess& a, DType d, int n, const std::string& at) {
  const std::string t = memory_type(d, n), element = memory_type(d);
  if (d.itemsize() > 1)
    return emit(
        str("load ", t, ", ptr ", at, ", align ", std::min(d.itemsize(), a.base.dtype().itemsize()), aliasing(a)));
  std::string v = "poison";
  for (int i = 0; i < n; i++) {
    const std::string from = emit(str("getelementptr ", element, ", ptr ", at, ", i64 ", i)),
                      one = emit(str("load ", element, ", ptr ", from, ", align 1", aliasing(a)));
    v = emit(str("insertelement ", t, " ", v, ", ", element, " ", one, ", i64 ", i));
  }
  return v;
}

/// Reads all members where the first of them stands; with their gate, if they have one.
void LlvmWriter::load_run(const LaneBlock& b) {
  const DType d = b.access.base.dtype();
  const auto n = static_cast<int>(b.members.size());
  const std::string t = memory_type(d, n);
  const auto read = [&]() -> std::string {
    const std::string at = run_address(b, b.first);
    const auto whole = [&] {
      return emit("load " + t + ", ptr " + at + ", align " + str(bytes_of(b)) + aliasing(b.access));
    };
    const auto by_element = [&] { return load_unaligned(b.access, d, n, at); };
    if (b.aligned) return aligned_ ? whole() : by_element();
    return either(is_multiple(at, bytes_of(b)), t, whole, by_element);
  };
  const std::string run =
      b.first.nsrc() > 2 ? either(value(b.first.src(2), 1), t, read, [] { return std::string("poison"); }) : read();
  runs_[view_.position(b.first)] = run;
}

/// Defines a member as its part of what was read.
void LlvmWriter::read_member(const LaneBlock& b, UOp u) {
  const auto i = std::find(b.members.begin(), b.members.end(), u) - b.members.begin();
  const DType d = u.dtype();
  const std::string t = memory_type(b.access.base.dtype(), static_cast<int>(b.members.size()));
  std::string v = emit(str("extractelement ", t, " ", runs_.at(view_.position(b.first)), ", i64 ", i));
  v = from_memory(v, d, 1);
  if (u.nsrc() > 2) v = select(value(u.src(2), 1), 1, v, value(u.src(1), 1), d, 1);
  values_[static_cast<size_t>(view_.position(u))] = v;
}

/// Writes all members where the last of them stands: at once where the gates of all hold, else one by one.
void LlvmWriter::store_run(const LaneBlock& b) {
  const DType d = b.access.base.dtype();
  const auto n = static_cast<int>(b.members.size());
  const std::string t = memory_type(d, n), element = memory_type(d);
  std::string v = "poison";
  UOps gates;
  for (int i = 0; i < n; i++) {
    const UOp m = b.members[static_cast<size_t>(i)];
    const std::string one = to_memory(value(m.src(1), 1), d, 1);
    v = emit(str("insertelement ", t, " ", v, ", ", element, " ", one, ", i64 ", i));
    if (m.nsrc() > 2) add_once(gates, m.src(2));
  }
  const std::string at = run_address(b, b.members[0]);
  const auto aligned_to = [&](int64_t bytes) {
    line("store " + t + " " + v + ", ptr " + at + ", align " + str(bytes) + aliasing(b.access));
  };
  const auto write = [&] {
    if (b.aligned) return aligned_to(aligned_ ? bytes_of(b) : d.itemsize());
    branch(
        is_multiple(at, bytes_of(b)), std::to_string(next_++), [&] { aligned_to(bytes_of(b)); },
        [&] { aligned_to(d.itemsize()); });
  };
  if (gates.empty()) return write();
  std::string all = value(gates[0], 1);
  for (size_t i = 1; i < gates.size(); i++) all = emit("and i1 " + all + ", " + value(gates[i], 1));
  branch(all, std::to_string(next_++), write, [&] {
    for (int i = 0; i < n && gates.size() > 1; i++) {
      const UOp m = b.members[static_cast<size_t>(i)];
      on(m.nsrc() > 2 ? value(m.src(2), 1) : "", [&] {
        const std::string one = emit(str("extractelement ", t, " ", v, ", i64 ", i)),
                          to = emit(str("getelementptr ", element, ", ptr ", at, ", i64 ", i));
        line(str("store ", element, " ", one, ", ptr ", to, ", align ", d.itemsize(), aliasing(b.access)));
      });
    }
  });
}

/// Copies what `load` reads: 16 bytes, which are under way behind the statement where the target copies so.
void LlvmWriter::copy(UOp store) {
  const UOp load = strip_after(store.src(1));
  const MemAccess to = view_.access(store.src(0)), from = view_.access(load.src(0));
  const DType word = load.dtype();
  TG_ASSERT(from.affine && from.stride == 1 && to.affine && to.stride == 1 && from.lanes * word.itemsize() == 16,
            "a copy of something else than 16 bytes: ", load);
  on(store.nsrc() > 2 ? value(store.src(2), 1) : "", [&] {
    if (aligned_ && copies_later_) {
      const auto [group, group_offset] = group_address(to, word);
      const auto [memory, offset] = start(from, word);
      const std::string global = emit("addrspacecast ptr " + memory + " to ptr addrspace(1)");
      line(str("call void asm sideeffect \"cp.async.cg.shared.global [$0+", group_offset, "], [$1+",
               offset * word.itemsize(), "], 16;\", \"r,l,~{memory}\"(i32 ", group, ", ptr addrspace(1) ", global,
               ") nounwind"));
      return;
    }
    const std::string t = memory_type(word, from.lanes), at = address(from, word);
    const std::string v = aligned_ ? emit(str("load ", t, ", ptr ", at, ", align 16", aliasing(from)))
                                   : load_unaligned(from, word, from.lanes, at);
    line("store " + t + " " + v + ", ptr " + address(to, word) + ", align 16");
  });
}

}  // namespace tg
