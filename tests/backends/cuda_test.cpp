// The fake GPU (tests/fake_cuda) rejects the accesses that a real one rejects; other tests rely on
// that.
#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "tests/support/captured.h"
#include "weft/backends/cuda/cuda_device.h"
#include "weft/tensor/compile.h"
#include "weft/tensor/session.h"

using namespace weft;

namespace {
// Each kernel moves four adjacent elements by one access: an ordinary load, a load through the
// read-only cache, and a store.
constexpr const char* packs = R"(
KERNEL(32) load_pack(GLOBAL u8* to, i64 to_at, GLOBAL u8* from, i64 from_at) {
  ((GLOBAL f32x4*)to)[THREAD] = *(GLOBAL f32x4*)(from + 16 * THREAD);
}

KERNEL(32) read_pack(GLOBAL u8* to, i64 to_at, GLOBAL u8* from, i64 from_at) {
  ((GLOBAL f32x4*)to)[THREAD] = READ_ONLY((GLOBAL f32x4*)(from + 16 * THREAD));
}

KERNEL(32) store_pack(GLOBAL u8* from, i64 from_at, GLOBAL u8* to, i64 to_at) {
  *(GLOBAL f32x4*)(to + 16 * THREAD) = ((GLOBAL f32x4*)from)[THREAD];
}
)";

struct Ending {
  int status = 0;  // as waitpid() returns it
  std::string said;
};
// Launches the kernel `name` in a child process. Its second argument points `begin` bytes into an
// allocation.
Ending run_kernel(const std::string& name, size_t begin) {
  const test::Captured said(STDERR_FILENO);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    const std::unique_ptr<gpu::Device> device = cuda::open_device();
    const gpu::Function function = device->function(device->compile(packs), name);
    const auto aligned = device->allocate(1024), other = device->allocate(1024);
    const std::array<void*, 2> addresses{aligned->data,
                                         static_cast<std::byte*>(other->data) + begin};
    device->launch(function, addresses, 1, 32);
    device->finish();
    _exit(0);
  }
  Ending ending;
  REQUIRE(waitpid(child, &ending.status, 0) == child);
  ending.said = said.text();
  return ending;
}
}  // namespace

TEST_SUITE("fake cuda") {
  TEST_CASE("a session remembers a lost GPU, and another session tries it again") {
    if (std::getenv("FAKE_CUDA_COMPILER") == nullptr) return;
    auto exponentials = [] {
      return compile([](const Tensor& x) { return exp(x); }, {.device = "cuda"});
    };
    const Tensor x = tensor({-1.0, 0.0, 2.0});
    {
      const SessionScope scope{Session()};
      auto step = exponentials();
      const std::vector<double> want = step(x).to_doubles();
      CHECK(want[1] == 1);
      const auto said = [&]() -> std::string {
        try {
          return fmt::format("{}", step(x).to_doubles());
        } catch (const Error& error) {
          CHECK(error.kind() == ErrorKind::device);
          return error.what();
        }
      };
      setenv("FAKE_CUDA_LOST_AFTER", "0", 1);
      CHECK(said().find("CUDA_ERROR_ECC_UNCORRECTABLE") != std::string::npos);
      unsetenv("FAKE_CUDA_LOST_AFTER");  // what is lost stays lost
      for (int use = 0; use < 2; ++use)
        CHECK(said().find("was lost in an earlier run, and this session cannot use it any more.") !=
              std::string::npos);
    }
    const SessionScope another{Session()};
    CHECK(exponentials()(x).to_doubles()[1] == 1);
  }
  TEST_CASE("a misaligned vector access ends the process and names the kernel") {
    if (std::getenv("FAKE_CUDA_COMPILER") == nullptr) return;
    for (const std::string name : {"load_pack", "read_pack", "store_pack"}) {
      for (const size_t begin : {4, 8, 12, 20}) {
        CAPTURE(name);
        CAPTURE(begin);
        const Ending ending = run_kernel(name, begin);
        CHECK(WIFSIGNALED(ending.status));
        CHECK(ending.said ==
              "fake CUDA: " + name + ": an access that is not aligned to its type\n");
      }
      for (const size_t begin : {0, 16}) {
        const Ending ending = run_kernel(name, begin);
        CHECK(ending.status == 0);
        CHECK(ending.said == "");
      }
    }
  }
}
