// Gives the program under test peaks of this machine, which it would measure for seconds.
#pragma once

#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "tests/support/program.h"
#include "weft/backends/cpu/machine.h"
#include "weft/base/host/isa.h"

namespace weft::test {

// Writes peaks into a folder of `place` for a cache, as if measured with these instructions and
// threads.
inline void write_peaks(const Workplace& place, const std::string& cache, int threads,
                        Isa set = isa()) {
  place.write(fmt::format("{}/peaks/{}-{}-threads", cache, name(set), threads),
              fmt::format("100 50 100 20 quiet\n{}, {}, {} threads\n", cpu::this_machine().model,
                          name(set), threads));
  for (const std::string& folder : {cache, cache + "/peaks"})
    std::filesystem::permissions(place.path(folder), std::filesystem::perms::owner_all);
}

}  // namespace weft::test
