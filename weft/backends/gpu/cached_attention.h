// Computes attention of few queries whose keys are a cache, as decoding does: thread groups share
// the keys that are there, whatever the cache has room for (flash decoding, Dao et al. 2023).
#pragma once

#include <cstdint>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/ir/plan.h"

namespace weft::gpu {

class KernelText;

// Sets `visible`, whether `query` sees `key` of a cache in which position `before` is that of the
// first query, and `score`: the product of both, scaled and capped, as a power of two.
void set_cached_words(KernelText& text, const Node& node, const std::string& product);

// Returns whether the queries that share a key, of an attention with `start`, are few enough.
bool has_few_queries(const Node& node);
size_t cached_attention_scratch(const Node& node);  // bytes
loop::GpuKernel cached_attention(const Launch& launch, loop::GpuLanguage language,
                                 const std::string& prefix);

}  // namespace weft::gpu
