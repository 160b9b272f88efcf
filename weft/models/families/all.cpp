#include "weft/models/families/families.h"

namespace weft::models {

std::vector<Family> published_families() {
  return {gemma2(),  gemma3_text(), gpt2(), gpt_neox(), llama(), mistral(),
          mixtral(), olmo2(),       phi3(), qwen2(),    qwen3(), smollm3()};
}

}  // namespace weft::models
