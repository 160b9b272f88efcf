// Fuzzes GGUF files of language models: what they say as a folder of Hugging Face's, and the
// config and the tokenizer that are read from it.
#include <cstdio>
#include <unistd.h>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "weft/data/tokenizer/tokenizer.h"
#include "weft/io/files.h"
#include "weft/io/gguf_folder.h"
#include "weft/models/config_json.h"
#include "weft/models/family.h"

using namespace weft;

namespace {
std::string file_of(const std::string& architecture, const std::string& tokenizer) {
  const std::vector<std::string> tokens = {"<unk>", "<s>", "a", "b", "ab", "\u2581", "<0x0A>", "|"};
  io::GgufMetadata metadata = {
      {"general.architecture", architecture},
      {"tokenizer.ggml.model", tokenizer},
      {"tokenizer.ggml.pre", std::string("llama-bpe")},
      {"tokenizer.ggml.tokens", io::GgufArray(tokens)},
      {"tokenizer.ggml.scores", io::GgufArray(std::vector<float>(8, -1))},
      {"tokenizer.ggml.token_type", io::GgufArray(std::vector<int32_t>{2, 3, 1, 1, 1, 1, 6, 4})},
      {"tokenizer.ggml.merges", io::GgufArray(std::vector<std::string>{"a b"})},
      {"tokenizer.ggml.bos_token_id", uint32_t{1}}};
  for (const auto& [key, value] : {std::pair<const char*, uint32_t>{"block_count", 1},
                                   {"context_length", 16},
                                   {"embedding_length", 32},
                                   {"feed_forward_length", 32},
                                   {"attention.head_count", 2},
                                   {"attention.head_count_kv", 1},
                                   {"rope.dimension_count", 16}})
    metadata.emplace_back(architecture + "." + key, value);
  metadata.emplace_back(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
  const BlockFormat& format = block_format("Q8_0");
  const std::vector<std::byte> blocks(8 * static_cast<size_t>(format.bytes)), plain(64);
  const io::GgufTensor tensors[] = {
      {"token_embd.weight", {DType::u8, {8, 1, format.bytes}}, &format, blocks},
      {"blk.0.attn_norm.weight", {DType::f32, {16}}, nullptr, plain},
      {"rope_freqs.weight", {DType::f32, {8}}, nullptr, std::span(plain).first(32)}};
  const std::string path =
      std::string(fuzz::memory_folder) + "/weft_gguf_seed_" + std::to_string(getpid());
  io::write_gguf(path, tensors, metadata);
  std::string bytes = io::read_file(path, 1 << 20);
  std::remove(path.c_str());
  return bytes;
}

const std::string valid[] = {file_of("llama", "llama"), file_of("gemma2", "gpt2"),
                             file_of("phi3", "gpt2")};

// A file may be refused for what it is, or for what weft does not have.
template <class Use>
void expect_refusal_or_value(const Use& use) {
  try {
    use();
  } catch (const Error& error) {
    const bool expected = error.kind() == ErrorKind::data || error.kind() == ErrorKind::usage ||
                          error.kind() == ErrorKind::checkpoint;
    if (!expected || std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
}
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_refusal_or_value([&] {
    const auto file = io::Gguf::parse(fuzz::exact_copy(data, size), "input");
    expect_refusal_or_value([&] {
      const nn::Options config = models::parse_options(io::config_json(file), "input");
      models::blocks_of(config);
      models::family_of(config).read(config);
    });
    expect_refusal_or_value([&] {
      const auto tokenizer = data::Tokenizer::from_json(io::tokenizer_json(file), "input");
      tokenizer.decode(tokenizer.encode("ab a\n<s>|"));
    });
    for (const char* name : {"tokenizer_config.json", "generation_config.json"})
      expect_refusal_or_value([&] { io::text_of_folder(file, name); });
    expect_refusal_or_value([&] {
      const io::TensorFile tensors = io::published(file);
      for (const io::TensorFile::Entry& entry : tensors.entries())
        fuzz::touch(tensors.bytes(entry));
    });
  });
  return 0;
}
