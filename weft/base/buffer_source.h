// Where the bytes of buffers come from.
#pragma once

#include <cstddef>
#include <memory>

namespace weft {

// Zeroed bytes, aligned to buffer_alignment.
using BufferSource = std::shared_ptr<void> (*)(size_t bytes);

// All that Buffer::allocate hands out from now on comes from `source`: tests have one whose buffers
// stand between pages that nobody may touch. Null: the system, as at first.
void set_buffer_source(BufferSource source);

}  // namespace weft
