// Measures the megabytes a second at which one thread encodes a text, whole blocks of 100 kB and
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
#include <sstream>

#include <weft/base/env.h>
#include <weft/data/tokenizer/tokenizer.h>
#include <weft/io/files.h>

using namespace weft;

namespace {

double seconds_of(auto&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Prints the best of five runs. The first of them fills the cache of words, as with the package.
void measure(const data::Tokenizer& tokenizer, const char* name,
             const std::vector<std::string>& parts) {
  double least = 1e9, bytes = 0;
  size_t count = 0;
  for (const std::string& part : parts) bytes += static_cast<double>(part.size());
  for (int i = 0; i < 5; ++i) {
    count = 0;
    least = std::min(least, seconds_of([&] {
                       for (const std::string& part : parts) count += tokenizer.encode(part).size();
                     }));
  }
  std::printf("weft %s: %.2f MB/s, %zu ids\n", name, bytes / least / 1e6, count);
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
  for (size_t i = 0; i < text.size(); i += 100'000) blocks.push_back(text.substr(i, 100'000));
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  measure(*tokenizer, "blocks", blocks);
  measure(*tokenizer, "lines", lines);
}
