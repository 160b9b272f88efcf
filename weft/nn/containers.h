// ModuleList and ModuleDict own modules in a list, or by name. A container does not call its
// modules: the module that owns the container does.
//
//   nn::ModuleList<Block> blocks{*this, "blocks"};
//   for (int i = 0; i < 12; ++i) blocks.add(width, heads);      "blocks.0", "blocks.1", ...
//   for (const Block& block : blocks) x = block(x, mask);
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/nn/module.h"

namespace weft::nn {

template <std::derived_from<Module> M>
class ModuleContainer : public Module {
 public:
  ~ModuleContainer() override {
    while (!modules_.empty()) modules_.pop_back();  // newest first, which ~Module() finds fastest
  }

  size_t size() const { return modules_.size(); }
  bool empty() const { return modules_.empty(); }

  // Iterates over the modules in the order in which they were added.
  class Iterator {
   public:
    explicit Iterator(const std::unique_ptr<M>* at) : at_(at) {}
    M& operator*() const { return **at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const std::unique_ptr<M>* at_;
  };
  Iterator begin() const { return Iterator(modules_.data()); }
  Iterator end() const { return Iterator(modules_.data() + modules_.size()); }

 protected:
  using Module::Module;
  template <class Made, class... Args>
  Made& emplace(std::string name, Args&&... args) {
    auto module = std::make_unique<Made>(*this, std::move(name), std::forward<Args>(args)...);
    Made& made = *module;
    modules_.push_back(std::move(module));
    return made;
  }
  std::vector<std::unique_ptr<M>> modules_;
};

// ModuleList names its modules "0", "1", ... as PyTorch does. M is their type, or a base of it.
template <std::derived_from<Module> M>
class ModuleList : public ModuleContainer<M> {
 public:
  ModuleList(Module& parent, std::string name) : ModuleContainer<M>(parent, std::move(name)) {}

  // Makes the next module from the arguments that its constructor takes after the name: add(784,
  // 256), or add<Linear>(784, 256).
  template <std::derived_from<M> Made = M, class... Args>
  Made& add(Args&&... args) {
    return this->template emplace<Made>(std::to_string(this->size()), std::forward<Args>(args)...);
  }
  M& operator[](size_t i) const {
    WEFT_CHECK(i < this->size(), "[module] \"{}\" has {} modules. Got index {}.", this->path(),
               this->size(), i);
    return *this->modules_[i];
  }
};

// ModuleDict keeps each module under a key, as PyTorch does.
template <std::derived_from<Module> M>
class ModuleDict : public ModuleContainer<M> {
 public:
  ModuleDict(Module& parent, std::string name) : ModuleContainer<M>(parent, std::move(name)) {}

  // Makes a module, as in add("encoder", 784, 256). Throws Error(usage) for a known, empty or
  // dotted key.
  template <std::derived_from<M> Made = M, class... Args>
  Made& add(const std::string& key, Args&&... args) {
    WEFT_CHECK(!key.empty() && key.find('.') == std::string::npos,
               "[module] a key of \"{}\" must not be empty or have a dot. Got \"{}\".",
               this->path(), key);
    return this->template emplace<Made>(key, std::forward<Args>(args)...);
  }
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  M& operator[](std::string_view key) const {
    M* found = find(key);
    WEFT_CHECK(found != nullptr, "[module] \"{}\" has no module \"{}\".", this->path(), key);
    return *found;
  }

 private:
  M* find(std::string_view key) const {
    auto found = std::ranges::find(
        this->modules_, key, [](const auto& each) -> std::string_view { return each->name(); });
    return found == this->modules_.end() ? nullptr : found->get();
  }
};

}  // namespace weft::nn
