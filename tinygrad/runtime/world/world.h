/// \file A world of processes: the same program, started several times by a launcher of MPI.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/runtime/queue.h"
#include "tinygrad/runtime/world/collective.h"

/// Programs of several processes: who this one is, and what they do together. docs/distributed.md.
namespace tg::distributed {

struct InitOptions {
  double timeout_s = 0;  ///< for the world to form, and of each later wait for others; 0: WORLD_TIMEOUT
};

/// Joins the processes that the launcher started (mpirun, srun), waiting for all of them; returns at once where that
/// was done, or where there is no launcher: then the world is this process alone. PeerError when the world does not
/// form in time, has another size than the launcher says, or a process has another version of the library;
/// DeviceError when there is no MPI library; ValueError after finalize().
void init(const InitOptions& options = {});
/// Whether init() has been called.
bool is_initialized();
/// Returns the number of this process, of all, and the same among those on this machine. Before init(): 0 of 1.
int rank();
int size();
int local_rank();
int local_size();
/// Returns what MPI says of itself, "" in a world of one.
std::string library();

/// Returns a number that all processes have, another one in every run; 0 in a world of one.
uint64_t shared_seed();
/// Returns the devices of this kind of all processes, "CPU@0", "CPU@1", ...: where Tensor::shard distributes to. In a
/// world of one it is the device itself.
std::vector<std::string> devices(const std::string& device = "");

/// Waits until all processes are here. PeerError as by every operation: a process died, left, does something else or
/// does not come in time. ValueError after finalize().
void barrier();
/// Leaves the world, waiting for the others to leave it too; also done when the program ends. The world does not form
/// again. After a PeerError it returns at once.
void finalize();
/// Tells all others that this process cannot go on: each gets a PeerError with this text and our rank, and so does
/// this one.
void fail(const std::string& why);

/// Begins an operation on host memory: pieces at `in`, results at `out`, which may be equal, or do not overlap. Both
/// stay until the event is reached, and `keep` lives until nothing touches them any more. All processes of the group
/// begin their operations in the same order. Event::wait throws PeerError. ValueError for a rank, root or number of
/// elements that cannot be, or after finalize(); DTypeError for an operation that a type does not have.
EventRef start(const Collective& c, const void* in, void* out, std::shared_ptr<void> keep = {});
/// Returns the bytes that this process sends in an operation.
int64_t sent_bytes(const Collective& c);
/// Begins an operation and waits for it. Errors: ValueError and DTypeError as start(), PeerError.
void run(const Collective& c, const void* in, void* out);

}  // namespace tg::distributed
