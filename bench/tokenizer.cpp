// Measures the megabytes a second at which one thread encodes a text, blocks of 100 kB and
// line by line, as tests/reference/tokenizers_reference.py --speed does with the tokenizers
// package:
//
//   build/release/bench/tokenizer tokenizer.json text.txt
//
// Without arguments it encodes WikiText-2 by GPT-2's vocabulary, where the data sets are.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <weft/base/host/env.h>
#include <weft/data/tokenizer/tokenizer.h>
#include <weft/io/files.h>

using namespace weft;

namespace {

double seconds_of(auto&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Prints the first and the best of five runs: the first fills the cache of words.
void measure(const data::Tokenizer& tokenizer, const char* name,
             const std::vector<std::string>& parts) {
  double first = 0, least = 1e9, bytes = 0;
  size_t count = 0;
  for (const std::string& part : parts) bytes += static_cast<double>(part.size());
  for (int i = 0; i < 5; ++i) {
    count = 0;
    const double seconds = seconds_of([&] {
      for (const std::string& part : parts) count += tokenizer.encode(part).size();
    });
    if (i == 0) first = seconds;
    least = std::min(least, seconds);
  }
  std::printf("weft %s: first %.2f, best %.2f MB/s, %zu ids\n", name, bytes / first / 1e6,
              bytes / least / 1e6, count);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string data = data_directory();
  const std::string file = argc > 1 ? argv[1] : data + "/tokenizers/gpt2";
  const std::string path = argc > 2 ? argv[2] : data + "/text/wikitext-2-test.txt";
  if (!std::filesystem::exists(file) || !std::filesystem::exists(path)) {
    std::printf("tokenizer: no %s or no %s; set WEFT_DATA_DIR\n", file.c_str(), path.c_str());
    return 0;
  }
  std::optional<data::Tokenizer> tokenizer;
  const double loaded = seconds_of([&] { tokenizer = data::Tokenizer::load(file); });
  std::printf("weft loads %s in %.0f ms\n", file.c_str(), 1e3 * loaded);
  const std::string text = io::read_file(path, size_t{1} << 30);
  std::vector<std::string> blocks, lines;
  for (size_t i = 0; i < text.size(); i += blocks.back().size())
    blocks.push_back(text.substr(i, text.find('\n', i + 100'000) - i));
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  measure(*tokenizer, "blocks", blocks);
  measure(*tokenizer, "lines", lines);
}
