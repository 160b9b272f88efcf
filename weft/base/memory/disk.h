// Measures the free space of a disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// Returns the bytes that this user may still write to the file system of `path`, which need not
// exist; nullopt where the file system does not report them.
std::optional<uint64_t> disk_room(const std::string& path);

}  // namespace weft
