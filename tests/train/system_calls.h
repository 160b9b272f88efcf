// Interposes the system calls by which this process changes files, to count them, make them fail,
// or compute what a power cut would leave.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace weft::test {

// Observes each call (open, create, write, fsync, close, rename, mkdir, symlink, unlink) of the
// thread that constructed it, until destruction. Meanwhile fsync only notifies and syncs nothing.
class CallObserver {
 public:
  CallObserver();
  virtual ~CallObserver();
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  // Returns 0 to let the call happen, `half` to write half of the bytes, or the errno of a failure.
  static constexpr int half = -1;
  virtual int before(std::string_view call) = 0;
  // Is called after a successful call, with the descriptor of create and fsync and the path of
  // mkdir.
  virtual void after(std::string_view /*call*/, int /*descriptor*/, const char* /*path*/) {}
};

// Makes call `number` fail, counted from 0.
class FailingCall : public CallObserver {
 public:
  FailingCall(int number, int error) : left_(number), error_(error) {}
  int before(std::string_view call) override;
  void disarm() { left_ = -1; }
  // Returns the name of the failed call, or an empty string before it.
  const std::string& failed() const { return failed_; }

 private:
  int left_, error_;
  std::string failed_;
};

// Makes every disk report `bytes` of free space until destruction.
class DiskOfRoom {
 public:
  explicit DiskOfRoom(uint64_t bytes);
  ~DiskOfRoom();
  DiskOfRoom(const DiskOfRoom&) = delete;
  DiskOfRoom& operator=(const DiskOfRoom&) = delete;
};

// Models what a power cut leaves of a folder: files have the contents, and folders the names, of
// their last sync.
class PowerCut : public CallObserver {
 public:
  // Calls `look`, which must not throw, with copies of the folder in its possible states after each
  // call that changes them: none, all, or any single one of the unsynced name changes is on disk.
  using Look = std::function<void(const std::string& copy)>;
  PowerCut(std::string folder, std::string copies, Look look);

  int before(std::string_view call) override;
  void after(std::string_view call, int descriptor, const char* path) override;
  // Calls `look` for the present states, even if they have not changed.
  void look();

 private:
  using Id = int64_t;  // of a file, folder or link; never reused, unlike inode numbers
  struct Entry {
    Id id = 0;
    bool folder = false;
    std::string target;  // of a symbolic link
    auto operator<=>(const Entry&) const = default;
  };
  using Entries = std::map<std::string, Entry>;
  using Tree = std::map<Id, Entries>;  // keyed by folder

  Id id_of(ino_t inode);
  Entries entries_of(const std::string& folder);
  void read(const std::string& folder, Id id, Tree& tree);
  void write(const Tree& tree, Id folder, const std::string& to) const;
  void look_at_changes();
  void look_at(const Tree& tree);

  std::string folder_, copies_;
  Look look_;
  std::map<ino_t, Id> ids_;
  Id next_ = 1;
  Tree synced_;
  std::map<Id, std::string> contents_;  // of synced files
  std::set<Tree> seen_;                 // trees seen with these contents
  bool looking_ = false;
};

}  // namespace weft::test
