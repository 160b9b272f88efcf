#include "weft/codegen/code_store.h"

#include <utility>

#include "weft/base/host/signature.h"

namespace weft::loop {
CodeStore& CodeStore::instance() {
  static CodeStore store;  // one for the process, as the linked code is
  return store;
}

void CodeStore::collect() {
  const std::lock_guard lock(mutex_);
  collects_ = true;
}

std::vector<KernelCode> CodeStore::collected() const {
  const std::lock_guard lock(mutex_);
  std::vector<KernelCode> all;
  all.reserve(collected_.size());
  for (const auto& [key, code] : collected_) all.push_back(code);
  return all;
}

void CodeStore::add(const std::vector<KernelCode>& codes) {
  const std::lock_guard lock(mutex_);
  for (const KernelCode& code : codes) added_.insert_or_assign(code.key, code);
}

std::optional<KernelCode> CodeStore::find(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  if (added_.empty()) return std::nullopt;
  const auto found = added_.find(sha256_of(text));
  return found == added_.end() ? std::nullopt : std::optional(found->second);
}

void CodeStore::note(std::string_view text, KernelCode code) {
  const std::lock_guard lock(mutex_);
  if (!collects_) return;
  code.key = sha256_of(text);
  std::string key = code.key;
  collected_.insert_or_assign(std::move(key), std::move(code));
}

}  // namespace weft::loop
