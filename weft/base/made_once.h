// MadeOnce computes each key's value once, in the first caller; concurrent callers wait for it.
#pragma once

#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>

namespace weft {

template <class T>
class MadeOnce {
 public:
  // Rethrows what `make` throws; a later call tries again.
  T get(const std::string& key, const std::function<T()>& make) {
    std::promise<T> made;
    std::shared_future<T> value;
    bool is_first = false;
    {
      std::lock_guard lock(mutex_);
      const auto [at, is_new] = values_.try_emplace(key);
      if (is_new) at->second = made.get_future().share();
      value = at->second;
      is_first = is_new;
    }
    if (is_first) {
      try {
        made.set_value(make());
      } catch (...) {
        made.set_exception(std::current_exception());
        std::lock_guard lock(mutex_);
        values_.erase(key);
      }
    }
    return value.get();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_future<T>> values_;
};

}  // namespace weft
