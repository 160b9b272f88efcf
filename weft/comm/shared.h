// Declares the communicator of ranks on one host: each rank reads what it needs in the memory of
// the others, and writes only its own.
#pragma once

#include <memory>

#include "weft/comm/peers.h"
#include "weft/device/communicator.h"

namespace weft::comm {

// The ranks are processes of one user on one host, which can open each other's files in /proc.
// Throws Error(failed) where they cannot.
std::shared_ptr<Communicator> shared_communicator(const Peers& peers);

}  // namespace weft::comm
