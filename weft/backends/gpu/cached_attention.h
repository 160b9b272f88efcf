// Computes attention of few queries whose keys are a cache, as decoding does: thread groups share
// the keys that are there, whatever the cache has room for (flash decoding, Dao et al. 2023).
#pragma once

#include <cstdint>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/ir/plan.h"

namespace weft::gpu {

// Returns whether the queries that share a key, of an attention with `start`, are few enough.
bool has_few_queries(const Node& node);
size_t cached_attention_scratch(const Node& node);  // bytes
loop::GpuKernel cached_attention(const Launch& launch, loop::GpuLanguage language,
                                 const std::string& prefix);

}  // namespace weft::gpu
