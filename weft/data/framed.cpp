#include "weft/data/framed.h"

#include <algorithm>
#include <utility>

#include "weft/base/error.h"

namespace weft::data {
namespace {

class FramedSource : public Source {
 public:
  FramedSource(std::shared_ptr<const Source> source, Frame frame)
      : source_(std::move(source)), frame_(std::move(frame)) {
    WEFT_CHECK(source_->input_type().dtype == DType::i64 && source_->label_shape().size() == 1,
               "[data] frames are for tokens that have a label each. Got {}.",
               to_string(source_->input_type()));
  }
  int64_t size() const override { return source_->size(); }
  Type input_type() const override { return {DType::i64, label_shape()}; }
  Shape label_shape() const override { return {source_->label_shape()[0] + frame_.size()}; }
  size_t bytes() const override { return source_->bytes(); }
  void expect(int64_t index) const override { source_->expect(index); }
  uint64_t fingerprint() const override { return source_->fingerprint(); }

  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    const auto inner = static_cast<size_t>(source_->label_shape()[0]);
    std::vector<int64_t> tokens(inner), its_labels(inner);
    source_->write(key, reinterpret_cast<std::byte*>(tokens.data()), its_labels.data());
    while (!tokens.empty() && its_labels[tokens.size() - 1] == ignored_label) tokens.pop_back();
    const auto length = static_cast<size_t>(label_shape()[0]);
    frame_.write(tokens, {reinterpret_cast<int64_t*>(input), length});
    std::fill(labels, labels + length, ignored_label);
    std::copy_n(its_labels.begin(), tokens.size(), labels + frame_.before.size());
  }

 private:
  std::shared_ptr<const Source> source_;
  Frame frame_;
};

}  // namespace

void Frame::write(std::span<const int64_t> tokens, std::span<int64_t> sample) const {
  auto end = std::ranges::copy(before, sample.begin()).out;
  end = std::ranges::copy(tokens, end).out;
  end = std::ranges::copy(after, end).out;
  std::fill(end, sample.end(), pad);
}

Frame frame_of(const Tokenizer& tokenizer, int64_t pad) {
  constexpr std::string_view text = "a";
  const std::vector<int32_t> plain = tokenizer.encode(text, {.special_tokens = false}),
                             whole = tokenizer.encode(text);
  const auto inside = std::ranges::search(whole, plain);
  return {.before = {whole.begin(), inside.begin()},
          .after = {inside.end(), whole.end()},
          .pad = static_cast<int32_t>(pad)};
}

std::shared_ptr<const Source> framed(std::shared_ptr<const Source> source, Frame frame) {
  return std::make_shared<FramedSource>(std::move(source), std::move(frame));
}

}  // namespace weft::data
