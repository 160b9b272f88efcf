// Declares the allocator behind Buffer::allocate.
#pragma once

#include <cstddef>
#include <memory>

namespace weft {

// A source returns zeroed bytes, aligned to buffer_alignment.
using BufferSource = std::shared_ptr<void> (*)(size_t bytes);

// Makes Buffer::allocate take its memory from `source` from now on; null restores the system's
// allocator. Tests use a source that puts guard pages around each buffer.
void set_buffer_source(BufferSource source);

}  // namespace weft
