// The system calls by which this process changes files: counted, failed, or watched for what would
// be left if the power went.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace weft::test {

// Hears of each call (open, create, write, fsync, close, rename, mkdir, symlink, unlink) of the
// thread that it was made on, while it lives. Nothing is synced meanwhile: that it would be is
// told.
class CallObserver {
 public:
  CallObserver();
  virtual ~CallObserver();
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  // 0: the call happens; `half`, of a write: half of its bytes; else the errno that it fails with.
  static constexpr int half = -1;
  virtual int before(std::string_view call) = 0;
  // After a call that succeeded. `descriptor` is that of create and fsync, `path` that of mkdir.
  virtual void after(std::string_view /*call*/, int /*descriptor*/, const char* /*path*/) {}
};

// Fails one call: the one of that number, counted from 0.
class FailingCall : public CallObserver {
 public:
  FailingCall(int number, int error) : left_(number), error_(error) {}
  int before(std::string_view call) override;
  void disarm() { left_ = -1; }
  // Its name; empty while it has not come.
  const std::string& failed() const { return failed_; }

 private:
  int left_, error_;
  std::string failed_;
};

// While it lives, every disk says that it has so much room.
class DiskOfRoom {
 public:
  explicit DiskOfRoom(uint64_t bytes);
  ~DiskOfRoom();
  DiskOfRoom(const DiskOfRoom&) = delete;
  DiskOfRoom& operator=(const DiskOfRoom&) = delete;
};

// What of a folder is on the disk, if files hold what they held when they were last synced, and
// folders the names that they had then.
class PowerCut : public CallObserver {
 public:
  // `look` is called with a copy of the folder as it could be found, after each call that changes
  // that: with no later change of names on the disk, with all of them, and with any single one. It
  // does not throw.
  using Look = std::function<void(const std::string& copy)>;
  PowerCut(std::string folder, std::string copies, Look look);

  int before(std::string_view call) override;
  void after(std::string_view call, int descriptor, const char* path) override;
  // The same now, though nothing changed.
  void look();

 private:
  using Id =
      int64_t;  // of a file, a folder or a link; never used again, unlike the number of an inode
  struct Entry {
    Id id = 0;
    bool folder = false;
    std::string target;  // of a link
    auto operator<=>(const Entry&) const = default;
  };
  using Entries = std::map<std::string, Entry>;
  using Tree = std::map<Id, Entries>;  // by folder

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
  std::set<Tree> seen_;                 // with these contents
  bool looking_ = false;
};

}  // namespace weft::test
