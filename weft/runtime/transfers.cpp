#include "weft/runtime/transfers.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {

class BeginTransfer : public Kernel {
 public:
  BeginTransfer(Transfers& transfers, bool fetch) : transfers_(transfers), fetch_(fetch) {}
  void run(void* const* operands, void* const* results, void*) const override {
    transfers_.begin_next(static_cast<std::byte*>((fetch_ ? results : operands)[0]));
  }

 private:
  Transfers& transfers_;
  bool fetch_;
};

class AwaitTransfer : public Kernel {
 public:
  AwaitTransfer(Transfers& transfers, size_t transfer)
      : transfers_(transfers), transfer_(transfer) {}
  void run(void* const*, void* const*, void*) const override { transfers_.await_end(transfer_); }

 private:
  Transfers& transfers_;
  size_t transfer_;
};

Transfers::~Transfers() {
  if (!thread_.joinable()) return;
  settle();
  thread_.request_stop();
}

std::unique_ptr<Kernel> Transfers::begin(FileRange file, bool fetch, int memory_slot,
                                         size_t offset) {
  transfers_.push_back({std::move(file), fetch, memory_slot, offset});
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  return std::make_unique<BeginTransfer>(*this, fetch);
}

std::unique_ptr<Kernel> Transfers::await(int memory_slot) {
  const auto latest = std::ranges::find(transfers_.rbegin(), transfers_.rend(), memory_slot,
                                        &Transfer::memory_slot);
  WEFT_ASSERT(latest != transfers_.rend(), "slot {} is not being moved", memory_slot);
  return std::make_unique<AwaitTransfer>(*this,
                                         static_cast<size_t>(transfers_.rend() - latest) - 1);
}

void Transfers::begin_next(std::byte* memory) {
  {
    const std::lock_guard lock(mutex_);
    transfers_[begun_].memory = memory + transfers_[begun_].offset;
    ++begun_;
  }
  begun_or_stopped_.notify_one();
}

void Transfers::await_end(size_t transfer) {
  std::unique_lock lock(mutex_);
  ended_one_.wait(lock, [&] { return ended_ > transfer; });
  if (failure_) std::rethrow_exception(failure_);
}

void Transfers::settle() {
  std::unique_lock lock(mutex_);
  ended_one_.wait(lock, [&] { return ended_ == begun_; });
  begun_ = ended_ = 0;
  failure_ = nullptr;
}

// After a failure, the rest of the run's transfers are only counted.
void Transfers::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (begun_or_stopped_.wait(lock, stop, [&] { return ended_ < begun_; })) {
    const Transfer& next = transfers_[ended_];
    const bool failed = failure_ != nullptr;
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!failed) next.fetch ? next.file.read(next.memory) : next.file.write(next.memory);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) failure_ = failure;
    ++ended_;
    ended_one_.notify_one();
  }
}

}  // namespace weft
