/// \file The reference interpreter: executes a linear program as docs/ir.md defines it, checking every access. The
/// oracle for the renderers.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "tinygrad/target/program.h"
#include "tinygrad/uop/eval.h"

namespace tg {

/// A program decoded into steps over one frame of memory. Thread-safe: run() changes nothing.
class Interpreter {
 public:
  /// Keeps the program alive. InternalError for instructions outside of the linear form.
  explicit Interpreter(std::shared_ptr<const Program> program);
  /// Runs the program's outermost THREAD range over [begin, end). Throws InternalError naming the node for an access
  /// outside of its buffer.
  void run(void* const* buffers, const int64_t* vars, int64_t begin, int64_t end) const;

 private:
  enum class Kind : uint8_t { kAlu, kSplat, kVar, kLoop, kThreadLoop, kEnd, kLoad, kStore, kReduce, kCopy, kToBool };
  struct Step {
    Kind kind;
    bool affine = false;  // kLoad, kStore: adjacent lanes are adjacent in memory
    bool buffer_in_frame = false;
    uint8_t item = 0, index_item = 0;
    int lanes = 1, nin = 0;
    EvalLoop fn = nullptr;
    size_t out = 0, in[3] = {};  // offsets in the frame. kLoad: index, alt, gate; kStore: index, value, gate
    int64_t base = 0;            // kLoad, kStore: slot or offset; loops: the step to jump to
    int64_t size = 0;            // elements of the base; kVar: position
    DType index_type;
    bool gated = false;
    UOp u;  // for errors
  };
  class Decoder;
  [[noreturn]] void out_of_bounds(const Step& s, int lane, int64_t index) const;
  int64_t checked_index(const Step& s, const unsigned char* frame, int lane) const;
  void load(const Step& s, unsigned char* frame, void* const* buffers) const;
  void store(const Step& s, unsigned char* frame, void* const* buffers) const;
  void reduce(const Step& s, unsigned char* frame) const;

  std::shared_ptr<const Program> program_;
  std::vector<Step> steps_;
  std::vector<unsigned char> image_;  // literals and lane numbers, the beginning of every frame
  size_t frame_bytes_ = 0;
};

}  // namespace tg
