// Writes a published model small enough for tests: a folder as transformers writes it.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/temporary_folder.h"

namespace weft::test {

struct PublishedModel {
  int64_t ids = 98;          // of the tokenizer: <s>, </s>, the end of line, and printable ASCII
  int64_t vocabulary = 100;  // of the model, whose last ids no token has
  int64_t context = 64;
  int64_t layers = 2;
  int64_t width = 16;  // hidden_size
  double initializer_range = 0.3;
  int64_t experts = 0;  // of a Mixtral, of which each token takes two; 0: it is a Llama
};

// The tokens of an encoder's tokenizer are its special ones, the end of line, and printable ASCII.
struct PublishedEncoder {
  std::string family = "bert";  // or roberta, distilbert
  std::string head = "ForMaskedLM";
  bool mask = true;        // whether the tokenizer has a mask token
  int64_t positions = 32;  // of which RoBERTa uses two less
};

// Writes a Llama or Mixtral with random weights and a tokenizer of single characters to `folder`.
void write_published(const std::string& folder, const PublishedModel& model = {});
// Writes an encoder with random weights, a vocabulary of 110 ids, and a tokenizer of single
// characters, which puts two special tokens around a text.
void write_published_encoder(const std::string& folder, const PublishedEncoder& encoder = {});
// Returns a text for these tokenizers to train on.
std::string sixty_lines();
// Writes a Mixtral, whose stacks of experts have 6 KiB in float32 for each expert, and a text.
// Returns the lines of a recipe that name both.
std::string mixture_recipe(const TemporaryFolder& folder, int64_t experts);

}  // namespace weft::test
