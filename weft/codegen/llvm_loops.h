// LoopNest builds the nested loops of an LLVM function and hoists loop-invariant code: code emitted
// `at` a scope is placed before the loop that was opened in that scope.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "weft/codegen/llvm_scalar.h"

namespace weft::loop {

class LoopNest {
 public:
  explicit LoopNest(LlvmBuilder& builder) : b_(builder) {}

  // Starts a function, whose entry is scope 0.
  void begin(llvm::Function* function);
  // Opens the loop `for (i = from; i + step <= to; i += step)` (whole steps), or with the condition
  // `i < to`, and a scope for its body, in which positions of `axes` are known. Returns i.
  llvm::Value* open(llvm::Value* from, llvm::Value* to, int64_t step, bool whole_steps,
                    uint32_t axes);
  void close();
  // Opens a scope without a loop, in which positions of `axes` are known.
  void push(uint32_t axes);
  void pop();

  // Returns the outermost scope, not outside `least`, in which all of `axes` are known.
  int scope_of(uint32_t axes, int least) const;
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  uint32_t axes(int scope) const { return scopes_[static_cast<size_t>(scope)].axes; }

  // Runs `emit` with the builder placed in `scope`.
  template <class F>
  auto at(int scope, F&& emit) {
    if (scope >= current_) return emit();
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(scopes_[static_cast<size_t>(scope)].hoist);
    int saved = current_;
    current_ = scope;
    auto result = emit();
    current_ = saved;
    return result;
  }

  // Returns the value emitted in a scope under a key: its kind, its id and its unrolled copy.
  using Key = std::tuple<char, int, int>;
  llvm::Value*& known(int scope, Key key) { return scopes_[static_cast<size_t>(scope)].known[key]; }

 private:
  struct Scope {
    uint32_t axes = 0;
    llvm::Instruction* hoist = nullptr;  // the jump into the loop opened in this scope
    std::map<Key, llvm::Value*> known;
    llvm::BasicBlock *header = nullptr, *exit = nullptr;  // blocks of the loop whose body this is
    llvm::PHINode* counter = nullptr;
    int64_t step = 1;
  };
  LlvmBuilder& b_;
  std::vector<Scope> scopes_;
  int current_ = 0;
};

}  // namespace weft::loop
