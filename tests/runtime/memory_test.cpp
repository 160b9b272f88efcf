// Tests the memory limits of control groups, read from group files that the test writes.
#include "weft/base/memory/memory.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <pthread.h>
#include <sys/resource.h>

#include <doctest/doctest.h>

#include "tests/support/skip.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/threads.h"

namespace weft::testing {
namespace {
constexpr size_t mebibyte = size_t{1} << 20;

class Groups {
 public:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = folder_.file(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  MemoryLimits limits(const std::string& list) const {
    write("list", list);
    return group_limits(folder_.file("list"), folder_.path());
  }

 private:
  test::TemporaryFolder folder_;
};

std::string mebibytes(size_t count) { return std::to_string(count * mebibyte) + "\n"; }
}  // namespace

TEST_CASE("control groups of version 2 and their ancestors limit memory") {
  Groups groups;
  groups.write("a/b/memory.max", "max\n");
  groups.write("a/b/memory.current", mebibytes(100));
  groups.write("a/memory.max", mebibytes(512));
  groups.write("a/memory.current", mebibytes(200));
  groups.write("a/memory.stat", "anon 1\ninactive_file " + mebibytes(50) + "active_file 7\n");
  const MemoryLimits limits = groups.limits("0::/a/b\n");
  CHECK(limits.most == 512 * mebibyte);
  CHECK(limits.available == (512 - 200 + 50) * mebibyte);  // cached files can be freed
  groups.write("a/b/memory.max", mebibytes(64));           // less than it uses: nothing is left
  CHECK(groups.limits("0::/a/b\n").most == 64 * mebibyte);
  CHECK(groups.limits("0::/a/b\n").available == 0);
}

TEST_CASE("a control group of version 1 limits memory and its other controllers do not") {
  Groups groups;
  groups.write("memory/job/memory.limit_in_bytes", mebibytes(300));
  groups.write("memory/job/memory.usage_in_bytes", mebibytes(120));
  groups.write("memory/job/memory.stat", "total_inactive_file " + mebibytes(20));
  groups.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryLimits limits = groups.limits("5:cpu:/job\n4:memory:/job\n");
  CHECK(limits.most == 300 * mebibyte);
  CHECK(limits.available == 200 * mebibyte);
  const MemoryLimits none = groups.limits("5:cpu:/job\n");
  CHECK(none.most > size_t{1} << 60);
  CHECK(none.available > size_t{1} << 60);
}

// The stack of a thread that has ended stays mapped for the next one.
TEST_CASE("a limit of addresses leaves the same memory before, while and after a thread runs") {
  if (sanitized) return skipped("sanitizers map terabytes");
  const Threads team(50);  // whose stacks are to come
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit limit{rlim_t{4} << 30, before.rlim_max};
  setrlimit(RLIMIT_AS, &limit);
  const size_t without = machine_memory();
  std::atomic<bool> ends = false;
  pthread_t thread{};  // one that allocates nothing: the C library would map an arena for it
  const auto wait = [](void* until) -> void* {
    static_cast<std::atomic<bool>*>(until)->wait(false);
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, nullptr, wait, &ends) == 0);
  const size_t beside = machine_memory();
  ends = true, ends.notify_one();
  pthread_join(thread, nullptr);
  const size_t after = machine_memory();
  setrlimit(RLIMIT_AS, &before);
  CHECK(without < size_t{4} << 30);
  for (const size_t now : {beside, after})
    CHECK(std::max(now, without) - std::min(now, without) < 2 * mebibyte);
}
}  // namespace weft::testing
