// Tests libraries that are loaded on demand, and the messages for one that is missing and one that
// exists but does not load.
#include "weft/base/host/shared_library.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "weft/base/error.h"

using namespace weft;

namespace {
std::string load_error(const std::string& name) {
  try {
    const SharedLibrary library("owner", {name}, "install it.");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    return error.what();
  }
  return "";
}
}  // namespace

TEST_SUITE("shared libraries") {
  TEST_CASE("a shared library is found on the system and its functions by name") {
    const SharedLibrary library("owner", {"libnone.so.7", "libm.so.6"}, "install it.");
    double (*root)(double) = nullptr;
    library.find(root, "sqrt");
    CHECK(root(9) == 3);
    CHECK(library.path() == "libm.so.6");
    CHECK_THROWS_WITH_AS(library.find(root, "no_such_function"),
                         "[owner] libm.so.6 has no no_such_function: it is too old.", Error);
  }
  TEST_CASE("a missing library is named, and a broken one with the loader's reason") {
    CHECK(load_error("libnone.so.7") ==
          "[owner] no libnone.so.7 among the system's libraries. Hint: install it.");
    const auto file =
        std::filesystem::temp_directory_path() / fmt::format("libbroken_{}.so", getpid());
    std::ofstream(file) << "no library";
    const std::string said = load_error(file);
    std::filesystem::remove(file);
    CHECK(said.find(" does not load: ") != std::string::npos);
    CHECK(said.find("file too short") != std::string::npos);
  }
}
