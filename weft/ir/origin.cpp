#include "weft/ir/origin.h"

#include <mutex>
#include <unordered_set>

namespace weft {
namespace {
thread_local Origin origin;
}  // namespace

const std::string& interned(const std::string& text) {
  static std::unordered_set<std::string> pool;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return *pool.insert(text).first;
}

namespace detail {
void set_origin(const Origin& to) {
  origin = to;
  set_current_user_location(to.where);
}
}  // namespace detail

OriginScope::OriginScope(const std::string& module) : OriginScope(module, origin.where) {}
OriginScope::OriginScope(const std::string& module, UserLocation where) : saved_(origin) {
  detail::set_origin(
      {saved_.where.file != nullptr ? saved_.where : where, &interned(module), saved_.backward});
}
OriginScope::~OriginScope() { detail::set_origin(saved_); }
Origin current_origin() { return origin; }

namespace {
thread_local bool in_call = false;

// Extracts "relu" from "weft::Value weft::relu(weft::Arg)".
std::string_view function_name(std::string_view signature) {
  std::string_view name = signature.substr(0, signature.find('('));
  return name.substr(name.find_last_of(": ") + 1);
}
}  // namespace

CallSite::CallSite(const UserLocation& where, std::source_location callee)
    : CallSite(where, function_name(callee.function_name())) {}
CallSite::CallSite(const UserLocation& where, std::string_view op)
    : outermost_(!in_call), saved_(current_origin()) {
  if (!outermost_) return;
  in_call = true;
  UserLocation user = saved_.where.file == nullptr ? where : saved_.where;
  user.op = op;
  detail::set_origin({user, saved_.module, saved_.backward});
}
CallSite::~CallSite() {
  if (!outermost_) return;
  in_call = false;
  detail::set_origin(saved_);
}

OriginOverride::OriginOverride(const Origin& to) : saved_(origin) { detail::set_origin(to); }
OriginOverride::~OriginOverride() { detail::set_origin(saved_); }

}  // namespace weft
