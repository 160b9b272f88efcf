#include "weft/io/files.h"

#include <csignal>
#include <cstring>
#include <memory>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"
#include "tests/support/full_disk.h"
#include "weft/base/numbers/hash.h"
#include "weft/base/text/partial_name.h"

using namespace weft;
using namespace weft::test;
namespace fs = std::filesystem;

TEST_CASE("a file is written completely and read back") {
  TemporaryFolder folder;
  std::string text(3'000'000, 'x');
  text += "end";
  io::FileSummary summary = io::write_file_atomically(folder.file("f"), text);
  CHECK(contents_of(folder.file("f")) == text);
  CHECK(io::read_file(folder.file("f"), text.size()) == text);
  CHECK(summary.bytes == text.size());
  CHECK(summary.checksum == hash_text(text));
  CHECK(io::checksum_file(folder.file("f")) == hash_text(text));
  CHECK(folder.entries() == 1);
}

TEST_CASE("an existing file stays until the new one is complete") {
  TemporaryFolder folder;
  folder.file("f", "old");
  {
    io::AtomicFile file(folder.file("f"));
    file.write("new");
    CHECK(contents_of(folder.file("f")) == "old");
  }  // the file is not committed
  CHECK(contents_of(folder.file("f")) == "old");
  CHECK(folder.entries() == 1);
  io::write_file_atomically(folder.file("f"), "new");
  CHECK(contents_of(folder.file("f")) == "new");
}

TEST_CASE("a new file with a reused inode is not mistaken for the file that was read") {
  const TemporaryFolder folder;
  for (int i = 0; i < 20; ++i) {
    const std::string path = folder.file("old");
    io::write_file_atomically(path, "old");
    CHECK(io::read_file(path, 100) == "old");
    CHECK(io::was_read(path));
    io::write_file_atomically(path, "new");
    CHECK(!io::was_read(path));
    const std::string fresh = folder.file(std::to_string(i));
    io::write_file_atomically(fresh, "fresh");
    CHECK(!io::was_read(fresh));
  }
}

TEST_CASE("a full disk is reported and changes nothing") {
  TemporaryFolder folder;
  folder.file("f", "old");
  std::string text(100'000, 'x');
  std::string error;
  {
    FullDisk full(40'000);
    error = error_of([&] { io::write_file_atomically(folder.file("f"), text); });
  }
  CHECK(error == "failed: cannot write " + folder.file("f") +
                     ": File too large after 40000 bytes. Nothing was changed.");
  CHECK(contents_of(folder.file("f")) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("unwritable paths are named") {
  TemporaryFolder folder;
  folder.file("plain", "x");
  fs::create_directory(folder.file("folder"));
  CHECK(error_of([&] { io::write_file_atomically(folder.file("none/f"), "x"); }) ==
        "failed: cannot write " + folder.file("none/f") + ": No such file or directory.");
  CHECK(error_of([&] { io::write_file_atomically(folder.file("plain/f"), "x"); }) ==
        "failed: cannot write " + folder.file("plain/f") + ": Not a directory.");
  CHECK(error_of([&] { io::write_file_atomically(folder.file("folder"), "x"); }) ==
        "failed: cannot write " + folder.file("folder") + ": Is a directory.");
  CHECK(error_of([&] { io::AtomicFolder(folder.file("plain/f")); }) ==
        "failed: cannot create folder " + folder.file("plain") + ": Not a directory.");
  CHECK(folder.entries() == 2);
}

TEST_CASE("read errors have the reader's kind of error") {
  TemporaryFolder folder;
  folder.file("f", "12345");
  CHECK(error_of([&] { io::read_file(folder.file("f"), 4); }) ==
        "data: cannot read " + folder.file("f") + ": 5 bytes, over the limit of 4.");
  CHECK(error_of([&] { io::map_file(folder.file("none"), ErrorKind::checkpoint); }) ==
        "checkpoint: cannot open " + folder.file("none") + ": No such file or directory.");
  CHECK(error_of([&] { io::checksum_file(folder.path()); }) ==
        "data: cannot read " + folder.path() + ": not a regular file.");
}

TEST_CASE("a FIFO or device is refused at once when it is read") {
  TemporaryFolder folder;
  REQUIRE(mkfifo(folder.file("fifo").c_str(), 0600) == 0);
  for (const std::string& path : {folder.file("fifo"), std::string("/dev/zero")}) {
    const std::string refused = "data: cannot read " + path + ": not a regular file.";
    CHECK(error_of([&] { io::read_file(path, 4); }) == refused);
    CHECK(error_of([&] { io::map_file(path); }) == refused);
    CHECK(error_of([&] { io::checksum_file(path); }) == refused);
  }
}

TEST_CASE("a symbolic link stays and its target is written") {
  TemporaryFolder folder;
  fs::create_directory(folder.file("there"));
  folder.file("there/f", "old");
  fs::permissions(folder.file("there/f"), fs::perms(0640));
  fs::create_symlink("there/f", folder.file("near"));
  fs::create_symlink(folder.file("near"), folder.file("far"));
  io::write_file_atomically(folder.file("far"), "new");
  CHECK(contents_of(folder.file("there/f")) == "new");
  CHECK(fs::status(folder.file("there/f")).permissions() == fs::perms(0640));
  CHECK(fs::read_symlink(folder.file("far")) == folder.file("near"));
  CHECK(fs::read_symlink(folder.file("near")) == "there/f");
  fs::create_symlink("there/none", folder.file("to-nothing"));
  io::write_file_atomically(folder.file("to-nothing"), "made");
  CHECK(contents_of(folder.file("there/none")) == "made");
  fs::create_symlink("circle", folder.file("circle"));
  CHECK(error_of([&] { io::write_file_atomically(folder.file("circle"), "x"); }) ==
        "failed: cannot write " + folder.file("circle") + ": Too many levels of symbolic links.");
  CHECK(fs::is_symlink(folder.file("circle")));
}

TEST_CASE("a device or FIFO is written directly and stays") {
  TemporaryFolder folder;
  CHECK(error_of([&] { io::write_file_atomically("/dev/full", "x"); }) ==
        "failed: cannot write /dev/full: No space left on device after 0 bytes.");
  CHECK(fs::is_character_file("/dev/full"));
  const std::string fifo = folder.file("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  std::string read;
  std::thread reader([&] { read = contents_of(fifo); });
  const io::FileSummary summary = io::write_file_atomically(fifo, "through");
  reader.join();
  CHECK(read == "through");
  CHECK(summary.bytes == 7);
  CHECK(fs::is_fifo(fifo));
  CHECK(folder.entries() == 1);
}

TEST_CASE("a FIFO is read up to its limit, and refused beyond") {
  const TemporaryFolder folder;
  const std::string path = folder.file("fifo");
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  const auto read = [&](size_t limit) {
    std::thread writer([&] { std::ofstream(path) << "four"; });
    std::string contents;
    try {
      contents = io::read_stream(path, limit);
    } catch (const Error& error) {
      contents = error.what();
    }
    writer.join();
    return contents;
  };
  CHECK(read(4) == "four");
  CHECK(read(3) == "cannot read " + path + ": over the limit of 3 bytes.");
}

TEST_CASE("a read-only file is not replaced") {
  TemporaryFolder folder;
  const std::string path = folder.file("f", "old");
  fs::permissions(path, fs::perms(0444));
  fs::permissions(folder.path(), fs::perms::all);
  const pid_t child = fork();  // becomes another user, since root may write anywhere
  if (child == 0) {
    const bool other = getuid() != 0 || setuid(65534) == 0;
    const bool refused = error_of([&] { io::write_file_atomically(path, "new"); }) ==
                         "failed: cannot write " + path + ": Permission denied.";
    _exit(other && refused ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(contents_of(path) == "old");
}

TEST_CASE("an incomplete file has an unpredictable name with its process id") {
  const std::string name = partial_name("a/step-1");
  CHECK(name.starts_with(fmt::format("a/step-1.partial-{}-", getpid())));
  CHECK(name != partial_name("a/step-1"));
  const auto owner = partial_owner(name);
  REQUIRE(owner.has_value());
  CHECK(owner->pid == getpid());
  CHECK(owner->name == "a/step-1");
  for (const char* other : {"step-1", "x.partial-", "x.partial-12", "x.partial-a-b", ".partial--",
                            "notes.partial-4000000-draft", "x.partial-1-0123456789abcdef.txt"})
    CHECK(!partial_owner(other).has_value());
}

TEST_CASE("a mapping outlives the file's name and an empty file maps to nothing") {
  TemporaryFolder folder;
  struct sigaction before{};
  sigaction(SIGBUS, nullptr, &before);
  auto map = io::map_file(folder.file("f", "hello"));
  fs::remove(folder.file("f"));
  CHECK(std::string_view(reinterpret_cast<const char*>(map->data), map->bytes) == "hello");
  CHECK(io::map_file(folder.file("empty", ""))->bytes == 0);
  CHECK(io::read_file(folder.file("empty"), 0) == "");
  struct sigaction after{};  // the library must not install its own SIGBUS handler
  sigaction(SIGBUS, nullptr, &after);
  CHECK((after.sa_handler == before.sa_handler));
}

TEST_CASE("a folder appears complete, or not at all") {
  TemporaryFolder folder;
  std::string path = folder.file("step-1");
  {
    io::AtomicFolder unfinished(path);
    io::write_file_atomically(unfinished.path() + "/a", "1");
  }
  CHECK(folder.entries() == 0);
  io::AtomicFolder made(path + "/");
  io::create_folders(made.path() + "/inner");
  io::write_file_atomically(made.path() + "/inner/a", "1");
  CHECK(!fs::exists(path));
  made.commit();
  CHECK(contents_of(path + "/inner/a") == "1");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a folder replaces an existing one of the same name") {
  TemporaryFolder folder;
  for (const char* text : {"1", "2"}) {
    io::AtomicFolder made(folder.file("step"));
    io::write_file_atomically(made.path() + "/" + text, text);
    made.commit();
  }
  CHECK(!fs::exists(folder.file("step/1")));
  CHECK(contents_of(folder.file("step/2")) == "2");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a link is atomically replaced by one to another target") {
  TemporaryFolder folder;
  folder.file("a", "1");
  folder.file("b", "2");
  io::replace_link(folder.file("latest"), "a");
  CHECK(contents_of(folder.file("latest")) == "1");
  io::replace_link(folder.file("latest"), "b");
  CHECK(contents_of(folder.file("latest")) == "2");
  CHECK(fs::read_symlink(folder.file("latest")) == "b");
  CHECK(folder.entries() == 3);
}

TEST_CASE("names from files are sanitised for messages") {
  CHECK(io::printable("block.0\n\x1b[31m") == "block.0\\x0a\\x1b[31m");
  CHECK(io::printable("\u009b31m \u0085\x7f") == "\\xc2\\x9b31m \\xc2\\x85\\x7f");
  CHECK(io::printable("a\x9b\xc3") == "a\\x9b\\xc3");  // not UTF-8
  CHECK(io::printable("Größe \u00a0 東京") == "Größe \u00a0 東京");
  CHECK(io::printable(std::string(1000, 'a')) == std::string(120, 'a') + "...");
  CHECK(io::printable(std::string(119, 'a') + "東京") == std::string(119, 'a') + "...");
}

TEST_CASE("the cleanup of a committed folder does not remove its successor") {
  TemporaryFolder folder;
  auto first = std::make_unique<io::AtomicFolder>(folder.file("step"));
  first->commit();
  io::AtomicFolder second(folder.file("step"));
  io::write_file_atomically(second.path() + "/a", "1");
  first.reset();
  second.commit();
  CHECK(contents_of(folder.file("step/a")) == "1");
}
