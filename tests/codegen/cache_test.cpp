// Tests the disk cache of compiled kernels, and compilation in several threads at once.
#include <climits>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/codegen/fused_launch.h"
#include "weft/base/text/partial_name.h"
#include "weft/codegen/object_cache.h"
#include "weft/ops/ops.h"

using namespace weft;

namespace weft::loop {
std::string compiler_text();  // from llvm_jit.h, which needs LLVM's headers
}

namespace {
// Sets WEFT_CACHE_DIR to an unused folder and removes that at the end of its lifetime.
class CacheFolder {
 public:
  explicit CacheFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("weft-test-" + name + "-" + std::to_string(getpid()))) {
    const char* saved = getenv("WEFT_CACHE_DIR");
    if (saved != nullptr) saved_ = saved;
    setenv("WEFT_CACHE_DIR", path_.c_str(), 1);
  }
  ~CacheFolder() {
    if (saved_.empty())
      unsetenv("WEFT_CACHE_DIR");
    else
      setenv("WEFT_CACHE_DIR", saved_.c_str(), 1);
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> result;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path_ / "kernels", error))
      result.push_back(entry.path());
    return result;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string saved_;
};

std::string first_word(const std::string& command) {
  std::string word(100, ' ');
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  word.resize(fread(word.data(), 1, word.size(), pipe));
  CHECK(pclose(pipe) == 0);
  return word.substr(0, word.find_first_of(" \n"));
}
}  // namespace

TEST_SUITE("codegen cache") {
  TEST_CASE("a compiled object is read back unchanged") {
    CacheFolder folder("objects");
    CHECK_FALSE(loop::read_object("text").has_value());
    loop::write_object("text", "machine code");
    REQUIRE(folder.files().size() == 1);
    CHECK(loop::read_object("text") == "machine code");
    CHECK_FALSE(loop::read_object("other text").has_value());
  }
  TEST_CASE("the key of an object includes the source, the compiler and the target processor") {
    const std::string key = loop::compiler_text();
    CHECK(key.find(first_word("sha256sum weft/codegen/llvm_jit.cpp")) != std::string::npos);
    CHECK(key.find("\n" + first_word("llvm-config-19 --version") + "\n") != std::string::npos);
    const std::string bf16 = "x86-64-v4\n+avx512bf16,+avx512vnni\n";
    const std::map<std::string, std::string> processors{{"baseline", "x86-64-v2\n\n"},
                                                        {"avx2", "x86-64-v3\n\n"},
                                                        {"avx512", "x86-64-v4\n\n"},
                                                        {"avx512_bf16", bf16},
                                                        {"amx", bf16}};
    const char* value = std::getenv("WEFT_ISA");
    const std::string set = value == nullptr ? "" : value;
    if (!set.empty() && set != "auto") {
      CHECK(key.starts_with(processors.at(set)));
      return;
    }
    // The key names the host as LLVM's llc does, and has the features that Linux reports.
    CHECK(key.starts_with(first_word("llc-19 --version | sed -n 's/ *Host CPU: //p'") + "\n"));
    const size_t begin = key.find('\n') + 1;
    const std::string features = "," + key.substr(begin, key.find('\n', begin) - begin) + ",";
    for (const auto& [flag, feature] :
         std::map<std::string, std::string>{{"sse4_2", "sse4.2"},
                                            {"avx2", "avx2"},
                                            {"fma", "fma"},
                                            {"f16c", "f16c"},
                                            {"avx512f", "avx512f"},
                                            {"avx512bw", "avx512bw"},
                                            {"avx512vl", "avx512vl"},
                                            {"avx512_vnni", "avx512vnni"},
                                            {"avx512_bf16", "avx512bf16"},
                                            {"amx_tile", "amx-tile"}}) {
      CAPTURE(flag);
      const bool has = first_word("grep -cwm1 " + flag + " /proc/cpuinfo || true") == "1";
      CHECK(features.find((has ? ",+" : ",-") + feature + ",") != std::string::npos);
    }
  }
  TEST_CASE("a cache with too many objects keeps the newest") {
    CacheFolder folder("many");
    for (int i = 0; i < 6; ++i) loop::write_object("text " + std::to_string(i), "code");
    for (const auto& file : folder.files())
      std::filesystem::last_write_time(file, std::filesystem::file_time_type::min());
    loop::write_object("new", "code");
    loop::trim_objects(7);
    CHECK(folder.files().size() == 7);
    loop::trim_objects(6);
    CHECK(folder.files().size() == 3);
    CHECK(loop::read_object("new").has_value());
  }
  TEST_CASE("damaged and foreign files are ignored and rewritten") {
    CacheFolder folder("damage");
    loop::write_object("text", "machine code");
    std::filesystem::path file = folder.files().at(0);
    auto size = std::filesystem::file_size(file);
    for (uintmax_t at : {uintmax_t{0}, uintmax_t{9}, size - 1}) {
      std::fstream damage(file, std::ios::in | std::ios::out | std::ios::binary);
      damage.seekp(static_cast<std::streamoff>(at));
      damage.put('\x7f');
      damage.close();
      CHECK_FALSE(loop::read_object("text").has_value());
      loop::write_object("text", "machine code");
      CHECK(loop::read_object("text") == "machine code");
    }
    std::filesystem::resize_file(file, size - 1);
    CHECK_FALSE(loop::read_object("text").has_value());
    std::ofstream(file, std::ios::trunc) << "";
    CHECK_FALSE(loop::read_object("text").has_value());
  }
  TEST_CASE("objects are read only from folders and files of this user") {
    CacheFolder folder("private");
    const std::filesystem::path kernels = folder.path() / "kernels";
    using std::filesystem::perms;
    auto stays = [&] {
      loop::write_object("text", "machine code");
      return loop::read_object("text").has_value();
    };
    REQUIRE(stays());
    for (const auto& made : {folder.path(), kernels})
      CHECK(std::filesystem::status(made).permissions() == perms::owner_all);
    for (const auto& shared : {folder.path(), kernels}) {
      for (int bit = 1; bit <= 040; bit *= 2) {
        std::filesystem::permissions(shared, perms::owner_all | perms(bit));
        CHECK_FALSE(stays());
        CHECK(std::filesystem::status(shared).permissions() == (perms::owner_all | perms(bit)));
      }
      std::filesystem::permissions(shared, perms::owner_all);
      if (geteuid() == 0) {
        REQUIRE(chown(shared.c_str(), 65534, 65534) == 0);
        CHECK_FALSE(stays());
        REQUIRE(chown(shared.c_str(), 0, 0) == 0);
      }
    }
    CHECK(stays());
    const std::filesystem::path object = folder.files().at(0), elsewhere = folder.path() / "else";
    if (geteuid() == 0) {
      REQUIRE(chown(object.c_str(), 65534, 65534) == 0);
      CHECK_FALSE(loop::read_object("text").has_value());
      REQUIRE(chown(object.c_str(), 0, 0) == 0);
      CHECK(loop::read_object("text").has_value());
    }
    for (perms others : {perms::group_write, perms::others_write}) {
      std::filesystem::permissions(object, perms::owner_read | perms::owner_write | others);
      CHECK_FALSE(loop::read_object("text").has_value());
    }
    CHECK(stays());
    std::filesystem::rename(object, elsewhere);
    std::filesystem::create_symlink(elsewhere, object);
    CHECK_FALSE(loop::read_object("text").has_value());
    std::filesystem::remove(object);
    std::filesystem::create_directory(object);
    CHECK_FALSE(loop::read_object("text").has_value());
    std::filesystem::remove(object);
    REQUIRE(mkfifo(object.c_str(), 0600) == 0);
    CHECK_FALSE(loop::read_object("text").has_value());
    CHECK(stays());
  }
  TEST_CASE("an empty folder is made private unless others may have written there") {
    CacheFolder folder("empty");
    using std::filesystem::perms;
    const perms readable = perms::owner_all | perms::group_read | perms::group_exec;
    std::filesystem::create_directory(folder.path());
    for (perms others : {perms::group_write, perms::others_write}) {
      std::filesystem::permissions(folder.path(), readable | others);
      loop::write_object("text", "machine code");
      CHECK(std::filesystem::is_empty(folder.path()));
      CHECK(std::filesystem::status(folder.path()).permissions() == (readable | others));
    }
    std::filesystem::permissions(folder.path(), readable);
    loop::write_object("text", "machine code");
    CHECK(loop::read_object("text") == "machine code");
    CHECK(std::filesystem::status(folder.path()).permissions() == perms::owner_all);
  }
  TEST_CASE("an object is written under an unpredictable temporary name") {
    CacheFolder folder("partial");
    loop::write_object("other text", "machine code");
    const int changes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    REQUIRE(inotify_add_watch(changes, (folder.path() / "kernels").c_str(), IN_CREATE) >= 0);
    std::set<std::string> names;
    for (int i = 0; i < 2; ++i) {
      loop::write_object("text", "machine code");
      alignas(inotify_event) char bytes[sizeof(inotify_event) + NAME_MAX + 1];
      REQUIRE(read(changes, bytes, sizeof bytes) > 0);
      const std::string name = reinterpret_cast<const inotify_event*>(bytes)->name;
      CAPTURE(name);
      const size_t end = name.rfind('-');
      CHECK(partial_owner(name)->pid == getpid());
      CHECK(name.size() - end == 1 + 16);
      names.insert(name.substr(end));
    }
    CHECK(names.size() == 2);
    CHECK(folder.files().size() == 2);
    close(changes);
  }
  TEST_CASE("kernels are cached in the folder and compile without one") {
    CacheFolder folder("kernels");
    test::check({input({DType::f32, {7771}}, 0) * 3.0});
    CHECK(folder.files().size() == 1);
    std::filesystem::remove_all(folder.path());
    std::ofstream(folder.path()) << "a file where the folder should be";
    test::check({input({DType::f32, {7772}}, 0) * 3.0});
    std::filesystem::remove(folder.path());
  }
  TEST_CASE("equal kernels are compiled once per process") {
    test::FusedLaunch first({exp(input({DType::f32, {50}}, 0))}),
        second({exp(input({DType::f32, {5, 10}}, 0))});
    CHECK(compile_cpu(first.launch).code == compile_cpu(second.launch).code);
  }
  TEST_CASE("threads compile kernels concurrently") {
    std::vector<test::FusedLaunch> steps;
    steps.reserve(8);
    for (int64_t i = 0; i < 8; ++i)
      steps.emplace_back(std::vector<Value>{tanh(input({DType::f32, {100 + i}}, 0))});
    std::vector<CompiledKernel> kernels(steps.size());
    std::vector<std::thread> threads;
    threads.reserve(steps.size());
    for (size_t i = 0; i < steps.size(); ++i)
      threads.emplace_back([&, i] { kernels[i] = compile_cpu(steps[i].launch); });
    for (auto& thread : threads) thread.join();
    for (const auto& kernel : kernels) CHECK(kernel.stages.size() == 1);
  }
}
