// Manages the folder of a run: runs/NAME/{recipe.yaml, plan.json, log.jsonl, checkpoints/...}. Of
// several ranks, rank 0 alone writes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "weft/train/recipe/recipe.h"

namespace weft::train {

// Returns the folder of the run or of the checkpoint that `file` belongs to; "" for any other file
// and for a missing one.
std::string owner_of(const std::string& file);

class RunFolder {
 public:
  // Throws Error(usage) if the run exists and neither `resume` nor `overwrite` is set, if it does
  // not exist and `resume` is set, or if either flag would replace a folder that is not a run.
  // Changes nothing on disk.
  RunFolder(const std::string& runs, const std::string& name, bool resume, bool overwrite);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string log_path() const;  // "" where this rank writes none
  bool is_written_here() const { return is_written_here_; }
  // Returns the verified checkpoint to resume from; "" where there is none or the run starts from
  // scratch.
  std::string checkpoint() const;
  // Returns the kernels of the resumed run, as in RunReport; none for a new run or a lost plan.
  std::map<std::string, std::string> kernels() const;
  // Returns the instruction set of the resumed run, as WEFT_ISA spells it; "" where kernels() is
  // empty.
  std::string isa() const;
  // Creates the folder, empty unless it is resumed, and writes recipe and plan. Throws Error(usage)
  // if another process trains in it. Until commit(), the destructor removes a created folder and
  // restores the run that it replaced: a failed start neither takes a name nor loses anything.
  void begin(const Recipe& recipe, const std::string& plan_json);
  void commit();
  // Undoes commit(), for a run that is refused before it has saved anything.
  void discard();
  // Removes the run that this one replaced; without this call it stays under another name, which a
  // warning gives.
  void drop_replaced();
  // Recreates the folder with recipe and plan where somebody removed or renamed it during the run,
  // under another name where its own name is another run's by now. Returns the message about it; ""
  // where the folder still exists.
  std::string restore(const Recipe& recipe, const std::string& plan_json);
  // Removes log entries after `step`, and a black box: a resumed run writes them again.
  void go_back_to(int64_t step) const;

 private:
  // Returns the plan.json of the resumed run; no object where kernels() is empty.
  nlohmann::json plan() const;
  void lock();
  void make();                                                       // and locks the folder
  static std::pair<uint64_t, uint64_t> identity_of(int descriptor);  // device and inode
  bool is_there() const;
  bool is_of_another() const;
  void write(const Recipe& recipe, const std::string& plan_json);

  std::string path_;
  bool resume_;
  bool is_written_here_;                  // by this rank
  bool made_ = false;                     // created by begin()
  bool committed_ = false;                // by commit()
  std::string replaced_;                  // temporary path of the run that had the name
  std::shared_ptr<void> lock_;            // on the folder; released with the process
  std::pair<uint64_t, uint64_t> locked_;  // the locked folder
};

}  // namespace weft::train
