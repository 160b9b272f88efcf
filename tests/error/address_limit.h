// Limits the address space of programs under test.
#pragma once

#include <sys/resource.h>

namespace weft::test {

// Limits this process and its children during its lifetime. Sanitizers map terabytes: there must be
// no limit under them.
class AddressLimit {
 public:
  explicit AddressLimit(rlim_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { setrlimit(RLIMIT_AS, &before_); }
  AddressLimit(const AddressLimit&) = delete;
  AddressLimit& operator=(const AddressLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace weft::test
