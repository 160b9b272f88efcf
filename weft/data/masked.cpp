#include "weft/data/masked.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/base/error.h"
#include "weft/data/random.h"

namespace weft::data {
namespace {

class MaskedSource : public Source {
 public:
  MaskedSource(std::shared_ptr<const Source> source, const MaskOptions& options)
      : source_(std::move(source)), options_(options) {
    WEFT_CHECK(source_->input_type().dtype == DType::i64 && source_->input_type().shape.size() == 1,
               "[data] masks are for tokens. Got {}.", to_string(source_->input_type()));
    WEFT_CHECK(options.vocabulary > 0 && options.probability > 0 && options.probability <= 1,
               "[data] masking needs a vocabulary, and a probability above 0. Got {} and {}.",
               options.vocabulary, options.probability);
  }
  int64_t size() const override { return source_->size(); }
  Type input_type() const override { return source_->input_type(); }
  Shape label_shape() const override { return input_type().shape; }
  size_t bytes() const override { return source_->bytes(); }
  void expect(int64_t index) const override { source_->expect(index); }

  uint64_t fingerprint() const override { return source_->fingerprint(); }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    source_->write(key, input, labels);
    auto* tokens = reinterpret_cast<int64_t*>(input);
    std::vector<int64_t> places;  // positions of real tokens, not of padding
    for (int64_t i = 0; i < input_type().elements(); ++i)
      if (labels[i] != ignored_label) places.push_back(i);
    std::fill(labels, labels + input_type().elements(), ignored_label);
    if (places.empty()) return;
    auto count = static_cast<int64_t>(places.size());
    auto wanted =
        std::max<int64_t>(1, std::llround(options_.probability * static_cast<double>(count)));
    for (int64_t i = 0; i < wanted; ++i) {  // the first of a Fisher-Yates shuffle
      auto words =
          random_words(Choice::mask, key.seed, key.epoch, key.index, static_cast<uint32_t>(i));
      auto at = static_cast<size_t>(i + below(count - i, words[0]));
      std::swap(places[static_cast<size_t>(i)], places[at]);
      int64_t place = places[static_cast<size_t>(i)];
      labels[place] = tokens[place];
      tokens[place] = hidden(tokens[place], words);
    }
  }

 private:
  int64_t hidden(int64_t token, const std::array<uint32_t, 4>& words) const {
    constexpr int64_t tenths = 10;
    int64_t chance = below(tenths, words[1]);
    if (chance < 8) return options_.mask;
    return chance == 8 ? some_token(words) : token;
  }
  // A token that is replaced by padding would no longer be attended to.
  int64_t some_token(const std::array<uint32_t, 4>& words) const {
    if (!options_.pad || options_.vocabulary == 1)
      return below(options_.vocabulary, words[2], words[3]);
    const int64_t token = below(options_.vocabulary - 1, words[2], words[3]);
    return token < *options_.pad ? token : token + 1;
  }

  std::shared_ptr<const Source> source_;
  MaskOptions options_;
};

}  // namespace

std::shared_ptr<const Source> masked(std::shared_ptr<const Source> source,
                                     const MaskOptions& options) {
  return std::make_shared<MaskedSource>(std::move(source), options);
}

}  // namespace weft::data
