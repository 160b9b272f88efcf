// Room on a disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// Bytes that this user may still write where `path` is or would be made; nullopt where the file
// system does not say.
std::optional<uint64_t> disk_room(const std::string& path);

}  // namespace weft
