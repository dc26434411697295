/// \file The reference interpreter: executes a linear program as docs/ir.md defines it, checking every access. The
/// oracle for the renderers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/program.h"
#include "tinygrad/target/tensor_core.h"
#include "tinygrad/target/tensor_map.h"
#include "tinygrad/uop/eval.h"

namespace tg {

/// A program decoded into steps over one frame of memory for each thread. Thread-safe: running changes nothing.
class Interpreter {
 public:
  /// Keeps the program alive. InternalError for instructions outside of the linear form.
  explicit Interpreter(std::shared_ptr<const Program> program);
  /// Runs the program's outermost THREAD range over [begin, end). Throws InternalError naming the node for an access
  /// outside of its buffer.
  void run(void* const* buffers, const int64_t* vars, int64_t begin, int64_t end) const;
  /// Whether instructions are for threads of groups: run_groups() then, also for one thread alone.
  bool needs_groups() const { return needs_groups_; }
  /// Runs groups [begin, end) of a program with a grid, numbered along dimension 0 first, whole clusters: the warps of
  /// a group in turn from barrier to barrier, each group of a cluster as far as it can go without the others. `size`:
  /// of the launch. Throws as run() does, and for threads that wait for each other for ever.
  void run_groups(void* const* buffers, const int64_t* vars, const LaunchSize& size, int64_t begin, int64_t end) const;

 private:
  enum class Kind : uint8_t {
    kAlu,
    kSplat,
    kVar,
    kLoop,
    kThreadLoop,
    kEnd,
    kLoad,
    kStore,
    kReduce,
    kCopy,
    kToBool,
    kSpecial,
    kBarrier,
    kProduct,
    kShuffle,
    kMatrixLoad,
    kMatrix,
    kProductOfMemory,
    kWaitForProducts,
    kEndCopies,
    kBeginBarriers,
    kExpectBoxes,
    kAwaitBoxes,
    kAwaitRoom,
    kReleaseRoom,
    kClusterBarrier,
    kBox,
    kReadPixel,
    kWritePixel
  };
  enum class Memory : uint8_t { kParam, kFrame, kShared };
  struct Step {
    Kind kind;
    bool affine = false;             // kLoad, kStore: adjacent lanes are adjacent in memory
    Memory memory = Memory::kParam;  // kLoad, kStore
    uint8_t item = 0, index_item = 0;
    int lanes = 1, nin = 0;
    EvalLoop fn = nullptr;
    /// kLoad of scattered elements without a gate; see interp.cpp.
    int64_t (*gather)(unsigned char*, const unsigned char*, const unsigned char*, size_t, int64_t) = nullptr;
    size_t out = 0, in[3] = {};  // offsets in the frame. kLoad: index, alt, gate; kStore: index, value, gate
    size_t stride = 0;           // kLoad, kStore: bytes from a thread's own memory to that of the next
    int64_t base = 0;            // kLoad, kStore: slot or offset; loops: the step to jump to
    int64_t size = 0;            // elements of the base; kVar: position; kSpecial: dimension, of threads from 3 on
    DType index_type;
    bool gated = false;
    UOp u;  // for errors
  };
  /// A matrix instruction that threads share: kProduct's `base` is its number. The registers of the result follow each
  /// other in the frame.
  struct Product {
    const TensorCore* core;
    std::vector<size_t> registers;  // places of those of a, b and the sum
    bool across[2] = {};            // of an instruction that reads memory: a, b are not transposed there
  };
  /// A LOAD or STORE of an image: `base` of kReadPixel and kWritePixel is its number. Of the numbers that are read the
  /// places follow each other in the frame.
  struct Pixel {
    ImageSize size;
    int64_t slot;
    size_t y, x;  // places of the coordinates
    DType row_type, column_type;
    size_t values[4], gate;  // places of what is written, or of the alternative
  };
  /// A copy of a box: `base` of kBox is its number.
  struct Box {
    TensorMap map;
    int64_t groups;
    size_t barriers;             // their place in the group's memory
    size_t number, column, row;  // places
    DType number_type, column_type, row_type;
    Step to;  // as a matrix
  };
  class Decoder;
  [[noreturn]] void out_of_bounds(const Step& s, int lane, int64_t index) const;
  /// What the threads of a warp have begun that others must not see: parts of 16 bytes of the group's memory, with the
  /// number of the group of copies that stored them, and of the products that read them, from 1 on. Groups up to the
  /// number `done` are over, the first ones of those that were ended.
  struct UnderWay {
    struct Groups {
      std::vector<int64_t> of_part;
      int64_t ended = 0, done = 0;
      void end() { ended++; }
      void wait(int64_t running) { done = std::max(done, ended - running); }
      bool is_over(size_t part) const { return of_part[part] <= done; }
    };
    Groups copies, products;
  };
  /// A barrier in the memory of a group: what its phase waits for, and how many phases are over.
  struct MemoryBarrier {
    int64_t arrivals = 1, arrived = 0;
    int64_t bytes = 0;  // expected that have not come, or, negative, that have come without
    int64_t phases = 0;
    std::vector<int64_t> seen;  // by warp: phases that it has waited for
  };
  struct Warp;
  /// A group of a cluster.
  struct Group {
    unsigned char* shared = nullptr;
    std::vector<Warp> warps{};
    std::vector<UnderWay> begun{};
    std::map<size_t, MemoryBarrier> barriers{};       // by place
    std::vector<std::pair<size_t, int64_t>> boxes{};  // by part of 16 bytes: barrier of the box there, its phase
  };
  /// Why a warp does not go on.
  enum class Stop : uint8_t { kNone, kEnd, kBarrier, kCluster, kAwait };
  /// Threads that execute every step together, as a warp does, so barriers are between warps. A place p of the frame is
  /// at p * n: there the values of all threads are, thread after thread.
  struct Warp {
    unsigned char *frame, *shared;
    size_t n;                         // threads
    int64_t begin, end;               // of the THREAD range
    std::vector<int64_t> position{};  // by thread: three in the grid, three in the group
    size_t pc = 0;
    size_t first = 0;                        // number of the first thread in its group
    std::vector<UnderWay>* begun = nullptr;  // of all warps of the group; null: no instruction reads its memory
    size_t number = 0;                       // of the warp
    std::vector<Group>* cluster = nullptr;
    size_t group = 0;  // of the cluster
    Stop stop = Stop::kNone;
    Group& own() const { return (*cluster)[group]; }
  };
  void note_store(const Step& s, const Warp& w, size_t at, size_t bytes) const;
  void note_read(const Step& s, const Warp& w, size_t at) const;
  void wait_for_copies(const Step& s, const Warp& w) const;
  static constexpr size_t kWarp = 64;
  int64_t checked_index(const Step& s, const unsigned char* indices, size_t element) const;
  void load(const Step& s, const Warp& w, void* const* buffers) const;
  void store(const Step& s, const Warp& w, void* const* buffers) const;
  unsigned char* memory_of(const Step& s, const Warp& w, void* const* buffers, size_t thread) const;
  void reduce(const Step& s, const Warp& w) const;
  void product(const Step& s, const Warp& w) const;
  void product_of_memory(const Step& s, const Warp& w) const;
  void matrix(const Step& s, const Warp& w) const;
  void shuffle(const Step& s, const Warp& w) const;
  void matrix_load(const Step& s, const Warp& w, void* const* buffers) const;
  void read_pixels(const Step& s, const Warp& w, void* const* buffers) const;
  void write_pixels(const Step& s, const Warp& w, void* const* buffers) const;
  int64_t pixel_of(const Pixel& p, const Warp& w, size_t thread) const;
  void splat(const Step& s, const Warp& w) const;
  void write_all(const Step& s, const Warp& w, int64_t value) const;
  bool begin_loop(const Step& s, const Warp& w) const;
  bool end_of_loop(const Step& s, const Warp& w) const;
  void start(Warp& w) const;
  Stop run_to_barrier(Warp& w, void* const* buffers, const int64_t* vars) const;
  bool run_group(Group& g, void* const* buffers, const int64_t* vars) const;
  void run_cluster(std::vector<Group>& cluster, size_t first, void* const* buffers, const int64_t* vars) const;
  void place_warps(std::vector<Group>& cluster, const LaunchSize& size, int64_t first, size_t threads,
                   unsigned char* memory) const;
  MemoryBarrier& barrier_at(const Step& s, Group& g, size_t at) const;
  size_t barrier_place(const Step& s, const Warp& w) const;
  void begin_barriers(const Step& s, const Warp& w) const;
  void expect_boxes(const Step& s, const Warp& w) const;
  bool await_phase(const Step& s, const Warp& w) const;
  void release_room(const Step& s, const Warp& w) const;
  void copy_box(const Step& s, const Warp& w, void* const* buffers) const;
  void note_box(const Step& s, Group& g, size_t part, size_t barrier) const;

  std::shared_ptr<const Program> program_;
  std::vector<Step> steps_;
  std::vector<unsigned char> image_;  // literals and lane numbers, the beginning of the frame of a thread
  std::vector<std::pair<size_t, size_t>> literals_;  // their places and bytes
  std::vector<Product> products_;
  std::vector<Pixel> pixels_;
  std::vector<Box> boxes_;
  size_t cluster_ = 1;  // groups
  bool needs_groups_ = false;
  size_t frame_bytes_ = 0, shared_bytes_ = 0;
};

}  // namespace tg
