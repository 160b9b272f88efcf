// Finds the Python whose packages tests hold weft against, as in make test-all.
#pragma once

#include <string>

namespace weft::testing {

// Returns the command of the Python that PEERS_PYTHON names, in quotes; "" where there is none, or
// none with the module `package`, which is reported as a skipped test.
std::string python_with(const std::string& package);

}  // namespace weft::testing
