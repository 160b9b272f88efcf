// Defines GPT recipes that train within seconds.
#pragma once

#include <string>

namespace weft::test {

inline std::string tiny_gpt(int steps, int batch) {
  return "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
         "num_attention_heads: 2}}\n"
         "data: {dataset: addition, digits: 1}\ntrain: {steps: " +
         std::to_string(steps) + ", global_batch_size: " + std::to_string(batch) +
         "}\neval: {batch_size: 4}\n";
}

inline std::string tiny_gpt(const std::string& device) {
  return "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
         "num_attention_heads: 2, dropout: 0.1}}\n"
         "data: {dataset: addition, digits: 1}\n"
         "train: {steps: 60, global_batch_size: 8, device: " +
         device + "}\neval: {batch_size: 4, every: 20}\nlog: {every: 1}\ncheckpoint: {every: 5}\n";
}

}  // namespace weft::test
