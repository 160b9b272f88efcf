// Declares the communicator of ranks on several hosts: messages of MPI, which go on while kernels
// run, and sums of weft's own.
#pragma once

#include <memory>

#include "weft/comm/mpi_library.h"
#include "weft/comm/peers.h"
#include "weft/device/communicator.h"

namespace weft::comm {

// All ranks send messages to each other, wherever they are. Sums add in the order of the ranks, so
// that results have the bits of ranks on one host.
std::shared_ptr<Communicator> mpi_communicator(const Peers& peers,
                                               const std::shared_ptr<MpiLibrary>& mpi);

}  // namespace weft::comm
