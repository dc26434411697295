/// \file Messages of one operation that are under way.
#pragma once
#include <vector>

#include "tinygrad/runtime/world/mpi.h"

namespace tg {

/// Posts messages of any size and finds out when all have arrived.
class Messages {
 public:
  explicit Messages(Mpi& mpi) : mpi_(&mpi) {}
  void send(const void* data, size_t n, int to, int tag);
  void receive(void* data, size_t n, int from, int tag);
  /// Returns true when every message is done. `moved` becomes true when one was done meanwhile.
  bool all_done(bool* moved);
  /// Returns the ranks of which something has not arrived, each once.
  std::vector<int> missing() const;

 private:
  struct Pending {
    Mpi::Request request;
    int peer;
    bool receives;
    size_t bytes;
  };
  Mpi* mpi_;
  std::vector<Pending> pending_;
};

}  // namespace tg
