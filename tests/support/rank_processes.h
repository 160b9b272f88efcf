// Runs a test case in several processes, the ranks of a communicator.
#pragma once

#include <string>

#include "weft/comm/shared.h"
#include "weft/ir/mesh.h"

namespace weft::testing {

// Runs the test case of this name of this program in `ranks` processes, each with its share of the
// threads. The case is decorated with doctest::skip(), so that it runs in no other way. Returns ""
// where all of them pass, else what the first one that failed has printed.
std::string run_ranks(int ranks, const std::string& test_case);

// In such a process: the ranks, as the test program that started them connects them.
comm::Peers peers();
// In such a process: a mesh of data parallelism over all ranks.
std::shared_ptr<const Mesh> data_mesh();

}  // namespace weft::testing
