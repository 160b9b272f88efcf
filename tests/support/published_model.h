// A published model small enough for tests: a folder as transformers writes it.
#pragma once

#include <cstdint>
#include <string>

namespace weft::test {

struct PublishedModel {
  int64_t ids = 98;          // of the tokenizer: <s>, </s>, the end of line, and printable ASCII
  int64_t vocabulary = 100;  // of the model, whose last ids no token has
  int64_t context = 64;
  int64_t layers = 2;
};

// Writes a Llama with random weights and a tokenizer of single characters to `folder`.
void write_published(const std::string& folder, const PublishedModel& model = {});

}  // namespace weft::test
