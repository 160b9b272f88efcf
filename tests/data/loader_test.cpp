#include "weft/data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/io/helpers.h"
#include "tests/support/near.h"
#include "weft/base/memory/storage.h"
#include "weft/data/random.h"

using namespace weft;
using namespace weft::test;
using data::Batch;
using data::Loader;
using data::LoaderOptions;
using weft::testing::near;

namespace {

// Numbers is a source whose sample i is {i, epoch, random word} with label i.
class Numbers : public data::Source {
 public:
  explicit Numbers(int64_t size, const Shape& shape = {3}) : size_(size), shape_(shape) {}
  int64_t size() const override { return size_; }
  Type input_type() const override { return {DType::f32, shape_}; }
  Shape label_shape() const override { return {}; }
  void write(const data::SampleKey& key, std::byte* input, int64_t* labels) const override {
    auto* out = reinterpret_cast<float*>(input);
    out[0] = static_cast<float>(key.index);
    out[1] = static_cast<float>(key.epoch);
    auto words = data::random_words(data::Choice::augmentation, key.seed, key.epoch, key.index);
    out[2] = static_cast<float>(words[0] >> 8);
    *labels = key.index;
    ++written;
    if (std::this_thread::get_id() != maker) ++written_elsewhere;
    if (key.index == failing) throw Error(ErrorKind::data, "sample {} is damaged.", key.index);
  }
  mutable std::atomic<int64_t> written{0}, written_elsewhere{0};
  const std::thread::id maker = std::this_thread::get_id();
  int64_t failing = -1;

 private:
  int64_t size_;
  Shape shape_;
};

std::shared_ptr<Numbers> numbers(int64_t size) { return std::make_shared<Numbers>(size); }

struct Seen {
  std::vector<float> inputs;
  std::vector<int64_t> labels;
  int64_t valid;
  friend bool operator==(const Seen&, const Seen&) = default;
};
Seen see(const Batch& batch) {
  return {batch.inputs.to_vector<float>(), batch.labels.to_vector<int64_t>(), batch.valid};
}
// Returns the next `count` batches, across epoch boundaries.
std::vector<Seen> take(Loader& loader, int count) {
  std::vector<Seen> all;
  for (Batch batch; static_cast<int>(all.size()) < count;)
    if (loader.next(batch)) all.push_back(see(batch));
  return all;
}

}  // namespace

TEST_CASE("an epoch has every sample once, in order or shuffled") {
  for (bool shuffle : {false, true}) {
    Loader loader(numbers(100), {.batch_size = 10, .shuffle = shuffle});
    CHECK(loader.size() == 100);
    CHECK(loader.batches_per_epoch() == 10);
    CHECK(loader.input_type() == Type{DType::f32, {10, 3}});
    CHECK(loader.label_type() == Type{DType::i64, {10}});
    std::vector<int64_t> labels;
    for (Batch batch; loader.next(batch);)
      for (int64_t label : see(batch).labels) labels.push_back(label);
    CHECK(std::is_sorted(labels.begin(), labels.end()) == !shuffle);
    CHECK(std::set<int64_t>(labels.begin(), labels.end()).size() == 100);
    CHECK(labels.size() == 100);
  }
}

TEST_CASE("the seed decides each epoch's own order") {
  auto epoch = [](int64_t seed) {
    Loader loader(numbers(64), {.batch_size = 64, .shuffle = true, .seed = seed});
    auto all = take(loader, 2);
    CHECK(all[0].inputs[1] == 0);
    CHECK(all[1].inputs[1] == 1);
    return std::pair(all[0].labels, all[1].labels);
  };
  auto [first, second] = epoch(1);
  CHECK(first != second);
  CHECK(epoch(1).first == first);
  CHECK(epoch(2).first != first);
}

TEST_CASE("shuffling is uniform") {
  // The position of sample 0 among 8, over many epochs, passes a chi-squared test with 7 degrees of
  // freedom.
  std::vector<int64_t> order(8), count(8);
  int epochs = 8000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    data::shuffle(order, 3, epoch);
    ++count[static_cast<size_t>(std::find(order.begin(), order.end(), 0) - order.begin())];
  }
  double chi = 0, expected = epochs / 8.0;
  for (int64_t n : count)
    chi += (static_cast<double>(n) - expected) * (static_cast<double>(n) - expected) / expected;
  CHECK(chi < 24.3);  // p = 0.001
}

TEST_CASE("random numbers below a bound cover the whole range and never leave it") {
  CHECK(data::below(10, 0) == 0);
  CHECK(data::below(10, 0xffffffff) == 9);
  CHECK(data::below(int64_t{1} << 32, 0xffffffff, 0xffffffff) == 0xffffffff);
  CHECK(data::below(3, 0xffffffff, 0xffffffff) == 2);
  CHECK(data::below(3, 0x55555555, 0x55555555) == 0);  // just below a third
  CHECK(data::below(3, 0x55555555, 0x55555556) == 1);  // just above a third
}

TEST_CASE("a background thread prefetches samples unless prefetching is off") {
  for (int prefetch : {0, 2}) {
    const auto source = numbers(40);
    Loader loader(source, {.batch_size = 8, .prefetch = prefetch});
    for (Batch batch; loader.next(batch);) CHECK(batch.valid == 8);
    CHECK(source->written_elsewhere == (prefetch == 0 ? 0 : source->written.load()));
    CHECK(source->written >= 40);
  }
}

TEST_CASE("prefetched batches are bit-identical") {
  std::vector<Seen> expected;
  for (int prefetch : {0, 1, 2, 5}) {
    Loader loader(numbers(50), {.batch_size = 8, .shuffle = true, .seed = 7, .prefetch = prefetch});
    auto all = take(loader, 20);
    if (prefetch == 0) expected = all;
    CHECK(all == expected);
  }
}

TEST_CASE("a partial last batch is dropped or padded with ignored rows") {
  Loader dropping(numbers(10), {.batch_size = 4, .drop_last = true});
  CHECK(dropping.batches_per_epoch() == 2);
  Loader filling(numbers(10), {.batch_size = 4});
  CHECK(filling.batches_per_epoch() == 3);
  Batch batch;
  for (int i = 0; i < 7; ++i) filling.next(batch);  // so that the last buffer is reused
  REQUIRE(batch.valid == 2);
  CHECK(batch.labels.to_vector<int64_t>() ==
        std::vector<int64_t>{8, 9, data::ignored_label, data::ignored_label});
  auto inputs = batch.inputs.to_vector<float>();
  CHECK(inputs[3] == 9);
  CHECK(std::count(inputs.begin() + 6, inputs.end(), 0.0f) == 6);
}

TEST_CASE("a restored loader continues bit-identically from any batch") {
  LoaderOptions options{.batch_size = 4, .shuffle = true, .drop_last = true, .seed = 5};
  Loader whole(numbers(18), options);
  auto expected = take(whole, 12);  // three epochs of four
  for (int stop = 0; stop < 12; ++stop) {
    Loader before(numbers(18), options);
    auto all = take(before, stop);
    data::LoaderState state = before.state();
    for (int prefetch : {0, 3}) {
      LoaderOptions other = options;
      other.prefetch = prefetch;
      Loader after(numbers(18), other);
      after.restore(state);
      CHECK(after.state() == state);
      auto rest = take(after, 12 - stop);
      CHECK(std::equal(rest.begin(), rest.end(), expected.begin() + stop, expected.end()));
    }
    before.restore({0, 0});  // rewinds while prefetching
    CHECK(take(before, 12) == expected);
  }
}

TEST_CASE("the loader's state counts delivered batches and the end of an epoch is seen once") {
  Loader loader(numbers(6), {.batch_size = 3});
  Batch batch;
  CHECK(loader.state() == data::LoaderState{0, 0});
  CHECK(loader.next(batch));
  CHECK(loader.next(batch));
  CHECK(loader.state() == data::LoaderState{0, 2});
  CHECK(!loader.next(batch));
  CHECK(!batch.inputs.defined());
  CHECK(loader.state() == data::LoaderState{1, 0});
  CHECK(loader.next(batch));
  loader.restore({0, 2});
  CHECK(!loader.next(batch));
  CHECK(loader.next(batch));
  CHECK(batch.inputs.to_vector<float>()[1] == 1);
}

TEST_CASE("buffers are reused only after their tensors are destroyed") {
  for (int prefetch : {0, 2}) {
    Loader loader(numbers(1000), {.batch_size = 10, .prefetch = prefetch});
    std::set<const void*> seen;
    Batch batch;
    for (int i = 0; i < 30; ++i) {
      loader.next(batch);
      seen.insert(batch.inputs->data());
    }
    CHECK(seen.size() <= static_cast<size_t>(prefetch) + 1);
    std::vector<Batch> kept(8);
    for (Batch& b : kept) loader.next(b);
    for (int i = 0; i < 30; ++i) loader.next(batch);
    for (size_t i = 0; i < kept.size(); ++i)
      CHECK(kept[i].labels.to_vector<int64_t>()[0] == static_cast<int64_t>(10 * (30 + i)));
  }
}

TEST_CASE("buffers shared with another value are not overwritten") {
  Loader loader(numbers(1000), {.batch_size = 10, .prefetch = 1});
  Batch batch;
  loader.next(batch);
  std::shared_ptr<Buffer> shared = batch.labels->storage->buffer();
  for (int i = 0; i < 20; ++i) loader.next(batch);
  CHECK(reinterpret_cast<int64_t*>(shared->data)[9] == 9);
}

TEST_CASE("the prefetch thread fetches no more than requested and stops with its loader") {
  auto source = numbers(1000);
  {
    Loader loader(source, {.batch_size = 10, .prefetch = 3});
    Batch batch;
    loader.next(batch);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(source->written == 40);
  }
  CHECK(source.use_count() == 1);
  for (int i = 0; i < 50; ++i) {  // destroys the loader at various moments
    Loader loader(source, {.batch_size = 100, .shuffle = true});
    Batch batch;
    for (int n = 0; n < i % 4; ++n) loader.next(batch);
  }
  CHECK(source.use_count() == 1);
}

TEST_CASE("an exception while a sample is read is rethrown by next()") {
  for (int prefetch : {0, 2}) {
    auto source = numbers(100);
    source->failing = 25;
    Loader loader(source, {.batch_size = 10, .prefetch = prefetch});
    Batch batch;
    CHECK(loader.next(batch));
    CHECK(loader.next(batch));
    for (int again = 0; again < 2; ++again)
      CHECK(error_of([&] { loader.next(batch); }) == "data: sample 25 is damaged.");
    source->failing = -1;
    loader.restore({0, 2});
    CHECK(loader.next(batch));
    CHECK(see(batch).labels[5] == 25);
  }
}

TEST_CASE("impossible loader options are refused") {
  CHECK(error_of([] { Loader(numbers(5), {.batch_size = 0}); }) ==
        "usage: [loader] batch_size must be positive. Got 0.");
  CHECK(error_of([] { Loader(numbers(5), {.batch_size = 1, .prefetch = -1}); }) ==
        "usage: [loader] prefetch must not be negative. Got -1.");
  CHECK(error_of([] { Loader(numbers(5), {.batch_size = 6, .drop_last = true}); }) ==
        "data: [loader] 5 samples are too few for a batch of 6 (a short last batch is dropped).");
  CHECK(error_of([] { Loader(numbers(0), {.batch_size = 6}); }) ==
        "data: [loader] 0 samples are too few for a batch of 6.");
  CHECK(error_of([] { Loader(numbers(5), {.batch_size = 5}).restore({0, 2}); }) ==
        "checkpoint: [loader] cannot resume from batch 2 of epoch 0: an epoch has only 1.");
  const auto samples_of = [](const Shape& shape) { return std::make_shared<Numbers>(5, shape); };
  CHECK(error_of([&] { Loader(samples_of({1, 1, 1, 1, 1, 1, 1, 3}), {.batch_size = 1}); }) ==
        "usage: [loader] samples have at most 7 axes. Got f32[1, 1, 1, 1, 1, 1, 1, 3].");
  CHECK(error_of([&] { Loader(samples_of({1, 1, 1, 1, 1, 1, 3}), {.batch_size = 1}); }) == "none");
}

TEST_CASE("a loader's byte count includes its batches, labels and shuffled order") {
  class Tokens : public Numbers {
   public:
    Tokens() : Numbers(100, {6}) {}
    Shape label_shape() const override { return {5}; }
  };
  const size_t sample = 6 * sizeof(float) + 5 * sizeof(int64_t);
  CHECK(data::loader_bytes(Tokens(), {.batch_size = 8, .prefetch = 3}) == 4 * 8 * sample);
  CHECK(data::loader_bytes(Tokens(), {.batch_size = 8, .shuffle = true, .prefetch = 3}) ==
        4 * 8 * sample + 100 * sizeof(int64_t));
}

TEST_CASE("a loop over batches is one epoch with a partial last batch") {
  std::vector<int64_t> rows, labels;
  for (auto [inputs, targets] : data::Batches(numbers(10), {.batch_size = 4}, 3)) {
    rows.push_back(inputs.dim(0));
    CHECK(inputs.to_vector<float>()[1] == 3);  // the epoch
    for (int64_t label : targets.to_vector<int64_t>()) labels.push_back(label);
  }
  CHECK(rows == std::vector<int64_t>{4, 4, 2});
  std::vector<int64_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  CHECK(labels == all);
}

TEST_CASE("a mean over batches weights them by their rows") {
  auto mean_label = [](const Tensor&, const Tensor& labels) {
    auto all = labels.to_vector<int64_t>();
    float total = 0;
    for (int64_t label : all) total += static_cast<float>(label);
    return tensor(std::vector<float>{total / static_cast<float>(all.size())}, {});
  };
  CHECK(average(mean_label, data::Batches(numbers(10), {.batch_size = 4}, 0)) == near(4.5));
}
