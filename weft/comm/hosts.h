// Declares the communicator of ranks on several hosts with several ranks each: the ranks of a host
// read each other's memory, and what crosses to another host crosses once, by MPI.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "weft/comm/mpi_library.h"
#include "weft/comm/peers.h"
#include "weft/device/communicator.h"

namespace weft::comm {

// Returns how many ranks each host has, where `machines`, by rank, have equally many in a row and
// more than one; else 0.
int ranks_per_host(std::span<const std::string> machines);

// `per_host` ranks in a row are of one host. Sums add in the order of the ranks, so that results
// have the bits of ranks on one host.
std::shared_ptr<Communicator> hosts_communicator(const Peers& peers, int per_host,
                                                 const std::shared_ptr<MpiLibrary>& mpi);

}  // namespace weft::comm
