// Loader: samples in batches, in an order that is a function of the seed and the epoch alone.
//
//   data::Loader loader(dataset.source(), {.batch_size = 128, .shuffle = true, .seed = 1});
//   data::Batch batch;
//   while (loader.next(batch)) step(batch.inputs, batch.labels);   // one epoch; the next call
//   begins another
//
// What a sample looks like depends on (seed, epoch, index) only, so neither the depth of
// prefetching nor a stop and restore() changes a bit. A thread of its own prepares batches ahead
// and sleeps otherwise. Batches live in a ring of buffers: once it has filled, nothing is
// allocated, unless the caller keeps tensors of older batches, which stay valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "weft/tensor/tensor.h"

namespace weft::data {

inline constexpr int64_t ignored_label = -100;  // rows and positions that no loss counts

// Which sample, of which pass over the data, under which seed.
struct SampleKey {
  int64_t seed = 0;
  int64_t epoch = 0;
  int64_t index = 0;  // in [0, Source::size())
};

// Where samples come from. Immutable: several loaders may read one source at once.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;       // samples in an epoch
  virtual Type input_type() const = 0;    // of one sample: f32 [C, H, W], or i64 [T]
  virtual Shape label_shape() const = 0;  // of one sample, i64: [] or [T]
  // Writes one sample, input_type().bytes() and as many labels as label_shape() has.
  virtual void write(const SampleKey& key, std::byte* input, int64_t* labels) const = 0;
  // Bytes that its samples take in this process; 0 where they are made as they are asked for.
  virtual size_t bytes() const { return 0; }
  // Hash of what it read; 0 where its samples are made, not read.
  virtual uint64_t fingerprint() const { return 0; }
  // Sample `index` is written soon: a hint to bring its bytes into the cache.
  virtual void expect(int64_t index) const { static_cast<void>(index); }
};

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last =
      false;  // else a short last batch is filled up with zeros, labelled ignored_label
  int64_t seed = 0;
  int prefetch = 2;  // batches ahead; 0: none, and no thread
};

struct Batch {
  Tensor inputs, labels;  // [B, ...] as Source says
  int64_t valid = 0;      // rows that are samples; the others come last
};

// Where a loader stands: what a checkpoint keeps.
struct LoaderState {
  int64_t epoch = 0;
  int64_t position = 0;  // batches of this epoch that next() has given out
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

// Most bytes that a loader of this source takes: its ring of batches, and their order.
size_t loader_bytes(const Source& source, const LoaderOptions& options);

class Loader {
 public:
  // Throws Error(data) if an epoch would have no batch.
  Loader(std::shared_ptr<const Source> source, const LoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  // The next batch of this epoch; false at its end, after which the next call begins another epoch.
  // What `batch` held is given back first. Throws what reading a sample threw.
  bool next(Batch& batch);

  int64_t size() const;  // samples in an epoch
  int64_t batches_per_epoch() const;
  int64_t batch_size() const;
  Type input_type() const;  // of a batch
  Type label_type() const;
  LoaderState state() const;  // what next() will go on from
  void restore(const LoaderState& state);
  // Seconds that next() has waited for the data since the last call of this.
  double take_waited_seconds();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// One pass, for range-for: `for (auto [images, labels] : dataset.batches(128))`. A short last batch
// has fewer rows here, so that a mean over them needs no mask.
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

// The mean of step(inputs, labels), a mean over rows, over all samples.
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
