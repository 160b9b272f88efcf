// Computes attention of few queries over a KV cache, as in decoding: thread groups divide the keys
// in the cache, not its capacity, among themselves (flash decoding, Dao et al. 2023).
#pragma once

#include <cstdint>
#include <string>

#include "weft/codegen/gpu_emit.h"
#include "weft/ir/plan.h"

namespace weft::gpu {

class KernelText;

// Sets two words. `visible` is whether `query` sees `key`; the first query is at position `before`
// of the cache. `score` is the product of both, scaled and capped, as the exponent of a power of
// two.
void set_cached_words(KernelText& text, const Node& node, const std::string& product);

// Returns whether the queries that share a key, of an attention with `start`, are few enough.
bool has_few_queries(const Node& node);
size_t cached_attention_scratch(const Node& node);  // bytes
loop::GpuKernel cached_attention(const Launch& launch, loop::GpuLanguage language,
                                 const std::string& prefix);

}  // namespace weft::gpu
