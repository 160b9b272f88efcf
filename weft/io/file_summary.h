// FileSummary has the size and the checksum of a finished file, for a manifest.
#pragma once

#include <cstdint>

namespace weft::io {

struct FileSummary {
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // as checksum_file (files.h)
};

}  // namespace weft::io
