// Tests tokenizers of every kind, with every normalizer and pre-tokenizer, against the `tokenizers`
// package itself, on 5,000 lines in 29 scripts, code, emoji, random characters and broken UTF-8.
// PEERS_PYTHON names a Python that has the package, as in make test-all.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/io/helpers.h"
#include "tests/support/peers.h"
#include "weft/data/tokenizer/tokenizer.h"
#include "weft/data/tokenizer/unicode.h"

using namespace weft;
using namespace weft::test;

namespace {

// Reads texts that are packed as a length of 32 bits and bytes.
std::vector<std::string> unpacked(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  std::vector<std::string> texts;
  for (uint32_t bytes = 0; file.read(reinterpret_cast<char*>(&bytes), 4);) {
    texts.emplace_back(bytes, '\0');
    file.read(texts.back().data(), bytes);
  }
  return texts;
}

std::vector<int32_t> ids_of(const std::string& bytes) {
  std::vector<int32_t> ids(bytes.size() / 4);
  std::memcpy(ids.data(), bytes.data(), 4 * ids.size());
  return ids;
}

}  // namespace

TEST_SUITE("slow tokenizers") {
  TEST_CASE("tokenizers of every kind agree with the tokenizers package") {
    const std::string python = testing::python_with("tokenizers");
    if (python.empty()) return;
    TemporaryFolder files;
    const std::string& folder = files.path();
    const std::string command =
        fmt::format("{} tests/reference/tokenizers_reference.py --live '{}'", python, folder);
    REQUIRE(std::system(command.c_str()) == 0);
    const std::vector<std::string> lines = unpacked(folder + "/lines");
    CHECK(lines.size() == 5000);
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".json") continue;
      const std::string name = entry.path().stem().string();
      CAPTURE(name);
      const auto tokenizer = data::Tokenizer::load(entry.path().string());
      const auto ids = unpacked(folder + "/" + name + ".ids");
      const auto texts = unpacked(folder + "/" + name + ".text");
      size_t other_ids = 0, other_texts = 0;
      for (size_t i = 0; i < lines.size(); ++i) {
        const std::vector<int32_t> expected = ids_of(ids[i]);
        other_ids += tokenizer.encode(lines[i]) != expected;
        other_texts += data::tokenizer::valid_utf8(tokenizer.decode(expected)) != texts[i];
      }
      CHECK(other_ids == 0);
      CHECK(other_texts == 0);
      ++count;
    }
    CHECK(count >= 60);
  }
}
