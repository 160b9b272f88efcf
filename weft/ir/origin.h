// Declares the origin of nodes (the user's line and the module), and the scopes that set it.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include "weft/base/error.h"

namespace weft {

// An Origin says where a node was written: the user's line and the module ("blocks.3.attn.qkv").
struct Origin {
  UserLocation where;
  const std::string* module = nullptr;  // interned; null outside modules
  bool backward = false;                // made by a gradient rule
};

// Returns a copy that lives as long as the process; equal texts share one.
const std::string& interned(const std::string& text);

// While an OriginScope lives, new nodes carry its module path and, inside weft's own modules, the
// line of the user's call instead of weft's. Scopes nest.
class OriginScope {
 public:
  explicit OriginScope(const std::string& module);  // absolute path
  OriginScope(const std::string& module, UserLocation where);
  ~OriginScope();
  OriginScope(const OriginScope&) = delete;
  OriginScope& operator=(const OriginScope&) = delete;

 private:
  Origin saved_;
};
Origin current_origin();
namespace detail {
void set_origin(const Origin& origin);
}  // namespace detail
// While a CallSite lives, errors and nodes name the user's line `where`. Inside another CallSite it
// does nothing, so that a composite's nodes carry the line of the composite.
class CallSite {
 public:
  // `callee` is the operation; only its name is kept.
  explicit CallSite(const UserLocation& where,
                    std::source_location callee = std::source_location::current());
  CallSite(const UserLocation& where, std::string_view op);
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

 private:
  bool outermost_;
  Origin saved_;
};
// While an OriginOverride lives, new nodes take their origin from `origin` (used by gradient rules
// and passes).
class OriginOverride {
 public:
  explicit OriginOverride(const Origin& origin);
  ~OriginOverride();
  OriginOverride(const OriginOverride&) = delete;
  OriginOverride& operator=(const OriginOverride&) = delete;

 private:
  Origin saved_;
};

}  // namespace weft
