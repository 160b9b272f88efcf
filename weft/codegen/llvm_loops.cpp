#include "weft/codegen/llvm_loops.h"

#include <llvm/IR/Function.h>

namespace weft::loop {

void LoopNest::begin(llvm::Function* function) {
  scopes_.assign(1, {});
  current_ = 0;
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function));
}

llvm::Value* LoopNest::open(llvm::Value* from, llvm::Value* to, int64_t step, bool whole_steps,
                            uint32_t axes) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::Function* function = before->getParent();
  Scope scope;
  scope.axes = axes;
  scope.step = step;
  scope.header = llvm::BasicBlock::Create(b_.getContext(), "loop", function);
  llvm::BasicBlock* body = llvm::BasicBlock::Create(b_.getContext(), "body", function);
  scope.exit = llvm::BasicBlock::Create(b_.getContext(), "done", function);
  scopes_.back().hoist = b_.CreateBr(scope.header);
  b_.SetInsertPoint(scope.header);
  scope.counter = b_.CreatePHI(b_.getInt64Ty(), 2);
  scope.counter->addIncoming(from, before);
  llvm::Value* last = whole_steps ? b_.CreateAdd(scope.counter, b_.getInt64(step)) : nullptr;
  llvm::Value* more =
      whole_steps ? b_.CreateICmpSLE(last, to) : b_.CreateICmpSLT(scope.counter, to);
  b_.CreateCondBr(more, body, scope.exit);
  b_.SetInsertPoint(body);
  llvm::Value* counter = scope.counter;
  scopes_.push_back(std::move(scope));
  current_ = depth();
  return counter;
}

void LoopNest::close() {
  Scope& scope = scopes_.back();
  llvm::Value* next = b_.CreateAdd(scope.counter, b_.getInt64(scope.step));
  scope.counter->addIncoming(next, b_.GetInsertBlock());
  b_.CreateBr(scope.header);
  b_.SetInsertPoint(scope.exit);
  pop();
}

void LoopNest::push(uint32_t axes) {
  scopes_.push_back({});
  scopes_.back().axes = axes;
  current_ = depth();
}

void LoopNest::pop() {
  scopes_.pop_back();
  scopes_.back().hoist = nullptr;
  current_ = depth();
}

int LoopNest::scope_of(uint32_t axes, int least) const {
  for (int scope = depth(); scope > least; --scope)
    if ((scopes_[static_cast<size_t>(scope)].axes & axes) != 0) return scope;
  return least;
}

}  // namespace weft::loop
