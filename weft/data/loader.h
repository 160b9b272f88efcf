// A Loader returns samples in batches, in an order that depends on the seed and the epoch alone.
//
//   data::Loader loader(dataset.source(), {.batch_size = 128, .shuffle = true, .seed = 1});
//   data::Batch batch;
//   while (loader.next(batch)) step(batch.inputs, batch.labels);   // one epoch, then another
//
// A sample depends on (seed, epoch, index) only, so neither the prefetch depth nor a stop and
// restore() changes a bit. A thread prepares batches ahead and sleeps otherwise. Batches are in a
// ring of buffers: once it is full, nothing is allocated, unless the caller keeps tensors of older
// batches, which stay valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "weft/tensor/tensor.h"

namespace weft::data {

inline constexpr int64_t ignored_label = -100;  // rows and positions that no loss counts
// No loss counts this target, where labels are numbers. It is finite, so that searches for the
// origin of an infinity or NaN pass it.
inline constexpr float ignored_target = std::numeric_limits<float>::lowest();

// A Variation is the sum of squared differences of numbers from their mean (Welford 1962).
class Variation {
 public:
  void add(double x);
  double squares() const { return squares_; }

 private:
  double count_ = 0, mean_ = 0, squares_ = 0;
};

// SampleKey says which sample, of which pass over the data, under which seed.
struct SampleKey {
  int64_t seed = 0;
  int64_t epoch = 0;
  int64_t index = 0;  // in [0, Source::size())
};

// A Source provides samples. It is immutable: several loaders may read it at once.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;     // samples in an epoch
  virtual Type input_type() const = 0;  // type of one sample: f32 [C, H, W], or i64 [T]
  // Returns the shape of one sample's labels, [] or [T], or [N] for N targets.
  virtual Shape label_shape() const = 0;
  virtual DType label_dtype() const { return DType::i64; }  // f32: targets, which are numbers
  // Write one sample: input_type().bytes() of input, and the labels or targets of label_shape(). A
  // source implements one of the two: write_targets() if label_dtype() is f32.
  virtual void write(const SampleKey& key, std::byte* input, int64_t* labels) const;
  virtual void write_targets(const SampleKey& key, std::byte* input, float* targets) const;
  // Returns for each target the sum of squared differences from its mean, over the samples that
  // have the target: exactly 0 if it is constant. A source with targets in double overrides it.
  virtual std::vector<double> target_variations() const;
  // Returns the bytes of its samples in this process; 0 if they are generated on demand.
  virtual size_t bytes() const { return 0; }
  // Returns a hash of the files that it read; 0 if its samples are generated.
  virtual uint64_t fingerprint() const { return 0; }
  // Prefetches the bytes of sample `index` into the cache: a hint that write() soon reads them.
  virtual void expect(int64_t index) const { static_cast<void>(index); }
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  // Without drop_last a short batch is padded with zeros, labelled ignored_label or ignored_target.
  bool drop_last = false;
  int64_t seed = 0;
  int prefetch = 2;  // batches ahead; 0: none, and no thread
  // The loader returns part `part` of each batch, of `parts` that have equally many rows. The rows
  // are dealt out in turns, `turn` to each part; 0: all of its rows in one turn.
  int64_t part = 0, parts = 1, turn = 0;
};

struct Batch {
  Tensor inputs, labels;  // [B, ...] as Source says
  int64_t valid = 0;      // rows that are samples; padding rows come last
};

// LoaderState is the position of a loader, which a checkpoint keeps.
struct LoaderState {
  int64_t epoch = 0;
  int64_t position = 0;  // batches of this epoch that next() has returned
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

// Returns the most bytes that a loader of this source takes: its ring of batches, and their order.
size_t loader_bytes(const Source& source, const LoaderOptions& options);

class Loader {
 public:
  // Throws Error(data) if an epoch would have no batch.
  Loader(std::shared_ptr<const Source> source, const LoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  // Gets the next batch of this epoch; returns false at its end, after which the next call begins
  // another epoch. Releases the former tensors of `batch` first. Rethrows an exception of the
  // source.
  bool next(Batch& batch);

  int64_t size() const;  // samples in an epoch
  int64_t batches_per_epoch() const;
  int64_t batch_size() const;
  Type input_type() const;  // type of a batch, or of the part that is returned
  Type label_type() const;
  LoaderState state() const;  // where next() continues
  void restore(const LoaderState& state);
  // Returns the seconds that next() has waited for data since the last call of this.
  double take_waited_seconds();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Batches is one pass, for range-for: `for (auto [images, labels] : dataset.batches(128))`. A short
// last batch has fewer rows here, so that a mean over them needs no mask.
class Batches {
 public:
  struct Pair {
    Tensor inputs, labels;
  };
  class Iterator {
   public:
    explicit Iterator(Batches* batches) : batches_(batches) {}
    Pair operator*() const { return batches_->current(); }
    Iterator& operator++() {
      batches_->advance();
      return *this;
    }
    bool operator!=(std::default_sentinel_t) const { return !batches_->done_; }

   private:
    Batches* batches_;
  };

  Batches(std::shared_ptr<const Source> source, const LoaderOptions& options, int64_t epoch);
  Iterator begin() {
    advance();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  void advance();
  Pair current() const;

  Loader loader_;
  Batch batch_;
  bool done_ = false;
};

// Returns the mean of step(inputs, labels) over all samples. step() returns the mean over the rows
// of a batch.
template <class Step>
double average(Step& step, Batches batches) {
  double total = 0, rows = 0;
  for (auto [inputs, labels] : batches) {
    auto count = static_cast<double>(inputs.dim(0));
    total += step(inputs, labels).item() * count;
    rows += count;
  }
  return rows > 0 ? total / rows : 0;
}

}  // namespace weft::data
