#include "weft/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "weft/base/host/stopwatch.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/base/numbers/rounding.h"
#include "weft/data/random.h"

namespace weft::data {

void shuffle(std::span<int64_t> order, int64_t seed, int64_t epoch) {
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i-- > 1;) {
    auto last = static_cast<int64_t>(i);
    auto words = random_words(Choice::order, seed, epoch, last);
    std::swap(order[i], order[static_cast<size_t>(below(last + 1, words[0], words[1]))]);
  }
}

void Source::write(const SampleKey&, std::byte*, int64_t*) const {
  WEFT_ASSERT(false, "a source of labels lacks write()");
}
void Variation::add(double x) {
  ++count_;
  const double difference = x - mean_;
  mean_ += difference / count_;
  squares_ += difference * (x - mean_);
}

std::vector<double> Source::target_variations() const {
  std::vector<Variation> all(static_cast<size_t>(element_count(label_shape())));
  std::vector<float> targets(all.size());
  std::vector<std::byte> input(input_type().bytes());
  for (int64_t i = 0; i < size(); ++i) {
    write_targets({.index = i}, input.data(), targets.data());
    for (size_t j = 0; j < all.size(); ++j)
      if (targets[j] != ignored_target) all[j].add(targets[j]);
  }
  std::vector<double> squares;
  squares.reserve(all.size());
  for (const Variation& each : all) squares.push_back(each.squares());
  return squares;
}

void Source::write_targets(const SampleKey&, std::byte*, float*) const {
  WEFT_ASSERT(false, "a source of numbers lacks write_targets()");
}

namespace {

// Slot is one buffer of the ring, with the tensors over it that the caller sees.
struct Slot {
  Tensor inputs, labels;
  int64_t valid = 0;

  std::byte* input_data() const { return inputs->data(); }
  template <class Label>
  Label* label_data() const {
    return reinterpret_cast<Label*>(labels->data());
  }
  // Returns whether the loader alone holds the tensors and their bytes.
  bool unshared() const { return unshared(inputs) && unshared(labels); }

 private:
  static bool unshared(const Tensor& tensor) {
    return tensor.shared().use_count() == 1 && tensor->storage.use_count() == 1 &&
           tensor->storage->buffer().use_count() == 1;
  }
};

Tensor zero_tensor(const Type& type) {
  auto buffer = Buffer::allocate(type.bytes());
  return tensor_over(buffer, buffer->data, type);
}

Type batched(int64_t batch_size, const Type& sample) {
  WEFT_CHECK(sample.shape.size() < max_rank, "[loader] samples have at most {} axes. Got {}.",
             max_rank - 1, to_string(sample));
  Type type{sample.dtype, {batch_size}};
  for (int64_t extent : sample.shape) type.shape.push_back(extent);
  return type;
}

}  // namespace

class Loader::Impl {
 public:
  Impl(std::shared_ptr<const Source> source, const LoaderOptions& options)
      : source_(std::move(source)), options_(options) {
    int64_t size = source_->size(), rows = options.batch_size;
    WEFT_CHECK(rows > 0, "[loader] batch_size must be positive. Got {}.", rows);
    WEFT_CHECK(options.part >= 0 && options.part < options.parts,
               "[loader] part must be one of {}, from 0 on. Got {}.", options.parts, options.part);
    turn_ = options.turn > 0 ? options.turn : rows / options.parts;
    WEFT_CHECK(turn_ > 0 && rows % (turn_ * options.parts) == 0,
               "[loader] a batch of {} rows cannot be dealt out to {} parts in turns of {}.", rows,
               options.parts, turn_);
    WEFT_CHECK(options.prefetch >= 0, "[loader] prefetch must not be negative. Got {}.",
               options.prefetch);
    batches_ = options.drop_last ? size / rows : ceil_div(size, rows);
    if (batches_ < 1)
      throw Error(ErrorKind::data, "[loader] {} samples are too few for a batch of {}{}.", size,
                  rows, options.drop_last ? " (a short last batch is dropped)" : "");
    sample_input_ = source_->input_type();
    sample_labels_ = element_count(source_->label_shape());
    input_type_ = batched(rows / options.parts, sample_input_);
    label_type_ = batched(rows / options.parts, {source_->label_dtype(), source_->label_shape()});
    if (options.shuffle) order_.resize(static_cast<size_t>(size));
  }
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool next(Batch& batch) {
    batch = {};
    if (state_.position == batches_) {
      state_ = {state_.epoch + 1, 0};
      return false;
    }
    reclaim();
    Slot* slot = options_.prefetch > 0 ? take_prepared() : prepare_here();
    lent_.push_back(slot);
    ++state_.position;
    batch = {slot->inputs, slot->labels, slot->valid};
    return true;
  }

  void restore(const LoaderState& state) {
    if (state.epoch < 0 || state.position < 0 || state.position > batches_)
      throw Error(ErrorKind::checkpoint,
                  "[loader] cannot resume from batch {} of epoch {}: an epoch has only {}.",
                  state.position, state.epoch, batches_);
    stop();
    free_.insert(free_.end(), ready_.begin(), ready_.end());
    ready_.clear();
    error_ = nullptr;
    state_ = cursor_ = state;
  }

  double take_waited_seconds() { return std::exchange(waited_, 0.0); }

  const Source& source() const { return *source_; }
  int64_t batches() const { return batches_; }
  const LoaderOptions& options() const { return options_; }
  const Type& input_type() const { return input_type_; }
  const Type& label_type() const { return label_type_; }
  const LoaderState& state() const { return state_; }

 private:
  // Takes back the slots that the caller has released, and adds a new slot for each that it still
  // holds.
  void reclaim() {
    std::unique_lock lock(mutex_);
    auto kept =
        std::partition(lent_.begin(), lent_.end(), [](Slot* slot) { return !slot->unshared(); });
    free_.insert(free_.end(), kept, lent_.end());
    lent_.erase(kept, lent_.end());
    size_t wanted = lent_.size() + static_cast<size_t>(options_.prefetch) + 1;
    while (slots_.size() < wanted) {
      slots_.push_back({zero_tensor(input_type_), zero_tensor(label_type_)});
      free_.push_back(&slots_.back());
      for (auto* list : {&free_, &ready_, &lent_}) list->reserve(slots_.size());
    }
    lock.unlock();
    work_.notify_one();
  }

  Slot* prepare_here() {
    const double begin = now();
    Slot* slot = free_.back();
    fill(*slot);
    free_.pop_back();
    waited_ += now() - begin;
    return slot;
  }

  Slot* take_prepared() {
    if (!thread_.joinable()) thread_ = std::thread([this] { prepare_ahead(); });
    std::unique_lock lock(mutex_);
    if (ready_.empty()) {
      const double begin = now();
      prepared_.wait(lock, [this] { return !ready_.empty() || error_ != nullptr; });
      waited_ += now() - begin;
    }
    if (ready_.empty()) std::rethrow_exception(error_);
    Slot* slot = ready_.front();
    ready_.erase(ready_.begin());
    return slot;
  }

  // Runs in the thread: fills free slots in order until it is stopped or a sample cannot be read.
  void prepare_ahead() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stopping_ || !free_.empty(); });
      if (stopping_) return;
      Slot* slot = free_.back();
      free_.pop_back();
      lock.unlock();
      std::exception_ptr error;
      try {
        fill(*slot);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      (error == nullptr ? ready_ : free_).push_back(slot);
      error_ = error;
      prepared_.notify_one();
      if (error != nullptr) return;
    }
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_one();
    if (thread_.joinable()) thread_.join();
    stopping_ = false;
  }

  // Writes the batch at the cursor, and advances the cursor.
  void fill(Slot& slot) {
    if (is_float(label_type_.dtype))
      fill<float>(slot, &Source::write_targets, ignored_target);
    else
      fill<int64_t>(slot, &Source::write, ignored_label);
    ++cursor_.position;
  }
  template <class Label>
  void fill(Slot& slot, void (Source::*write)(const SampleKey&, std::byte*, Label*) const,
            Label ignored) {
    if (cursor_.position == batches_) cursor_ = {cursor_.epoch + 1, 0};
    if (options_.shuffle && ordered_epoch_ != cursor_.epoch) {
      shuffle(order_, options_.seed, cursor_.epoch);
      ordered_epoch_ = cursor_.epoch;
    }
    int64_t first = cursor_.position * options_.batch_size;
    const int64_t left = source_->size() - first;  // in the whole batch and behind it
    slot.valid = 0;
    while (slot.valid < input_type_.shape[0] && place_of(slot.valid) < left) ++slot.valid;
    std::byte* input = slot.input_data();
    Label* labels = slot.label_data<Label>();
    auto index_of = [&](int64_t row) {
      const int64_t at = first + place_of(row);
      return options_.shuffle ? order_[static_cast<size_t>(at)] : at;
    };
    constexpr int64_t ahead = 4;  // samples to prefetch, as shuffled ones miss the cache
    for (int64_t row = 0; row < slot.valid; ++row) {
      if (row + ahead < slot.valid) source_->expect(index_of(row + ahead));
      int64_t index = index_of(row);
      ((*source_).*write)({options_.seed, cursor_.epoch, index}, input, labels);
      input += sample_input_.bytes();
      labels += sample_labels_;
    }
    std::memset(input, 0,
                slot.inputs->storage->bytes() - static_cast<size_t>(input - slot.input_data()));
    std::fill(labels, slot.label_data<Label>() + label_type_.elements(), ignored);
  }

  // Returns where a row of the part is in the batch.
  int64_t place_of(int64_t row) const {
    return (row / turn_ * options_.parts + options_.part) * turn_ + row % turn_;
  }

  const std::shared_ptr<const Source> source_;
  const LoaderOptions options_;
  int64_t turn_ = 0;
  int64_t batches_ = 0, sample_labels_ = 0;
  Type sample_input_, input_type_, label_type_;

  LoaderState state_;        // the caller's position
  std::deque<Slot> slots_;   // never shrinks; addresses are stable
  std::vector<Slot*> lent_;  // slots that the caller may still hold
  double waited_ = 0;

  LoaderState cursor_;  // next batch to fill; owned by the thread while it runs
  std::vector<int64_t> order_;
  int64_t ordered_epoch_ = -1;

  std::mutex mutex_;  // guards free_, ready_, error_, stopping_
  std::condition_variable work_, prepared_;
  std::vector<Slot*> free_, ready_;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

size_t loader_bytes(const Source& source, const LoaderOptions& options) {
  auto sample =
      source.input_type().bytes() + Type{source.label_dtype(), source.label_shape()}.bytes();
  size_t ring = static_cast<size_t>(options.prefetch) + 1;
  size_t order = options.shuffle ? static_cast<size_t>(source.size()) * sizeof(int64_t) : 0;
  return ring * static_cast<size_t>(options.batch_size / options.parts) * sample + order;
}

Loader::Loader(std::shared_ptr<const Source> source, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(source), options)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

bool Loader::next(Batch& batch) { return impl_->next(batch); }
int64_t Loader::size() const { return impl_->source().size(); }
int64_t Loader::batches_per_epoch() const { return impl_->batches(); }
int64_t Loader::batch_size() const { return impl_->options().batch_size; }
Type Loader::input_type() const { return impl_->input_type(); }
Type Loader::label_type() const { return impl_->label_type(); }
LoaderState Loader::state() const { return impl_->state(); }
void Loader::restore(const LoaderState& state) { impl_->restore(state); }
double Loader::take_waited_seconds() { return impl_->take_waited_seconds(); }

Batches::Batches(std::shared_ptr<const Source> source, const LoaderOptions& options, int64_t epoch)
    : loader_(std::move(source), options) {
  loader_.restore({epoch, 0});
}

void Batches::advance() { done_ = !loader_.next(batch_); }

Batches::Pair Batches::current() const {
  auto valid_rows = [&](const Tensor& tensor) {
    if (batch_.valid == tensor.dim(0)) return tensor;
    Type type = tensor.type();
    type.shape[0] = batch_.valid;
    return tensor_over(tensor.shared(), tensor->data(), type);
  };
  return {valid_rows(batch_.inputs), valid_rows(batch_.labels)};
}

}  // namespace weft::data
