// Declares MPI as weft sees it: the functions of libweft-mpi.so, which is loaded where ranks are on
// several hosts.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "weft/base/host/shared_library.h"
#include "weft/comm/mpi_plugin/mpi_plugin.h"

namespace weft::comm {

// All functions throw Error(device) where MPI refuses, but send(), receive() and test() throw
// Error(rank_lost): what worked at the start fails where a rank or a link is gone.
class MpiLibrary {
 public:
  // Loads the plugin that WEFT_MPI_PLUGIN names, or the one beside weft's libraries.
  MpiLibrary();

  // Joins MPI's ranks, which must be those of the run: MPI has to say that this is rank `rank` of
  // `size`.
  void start(int rank, int size);
  std::string description() const;  // "Open MPI v4.1.4"
  void send(const std::byte* bytes, size_t count, int rank, int tag, weft_mpi_request& request);
  void receive(std::byte* bytes, size_t count, int rank, int tag, weft_mpi_request& request);
  bool has_ended(weft_mpi_request& request);
  void stop() { stop_(); }

 private:
  SharedLibrary library_;
  decltype(&weft_mpi_start) start_ = nullptr;
  decltype(&weft_mpi_rank) rank_ = nullptr;
  decltype(&weft_mpi_size) size_ = nullptr;
  decltype(&weft_mpi_describe) describe_ = nullptr;
  decltype(&weft_mpi_send) send_ = nullptr;
  decltype(&weft_mpi_receive) receive_ = nullptr;
  decltype(&weft_mpi_test) test_ = nullptr;
  decltype(&weft_mpi_stop) stop_ = nullptr;
};

}  // namespace weft::comm
