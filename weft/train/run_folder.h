// The folder of a run: runs/NAME/{recipe.yaml, plan.json, log.jsonl, checkpoints/...}.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "weft/train/recipe.h"

namespace weft::train {

// The folder of the run or of the checkpoint that `file` is a part of; "" for any other file, and
// for one that is not there.
std::string owner_of(const std::string& file);

class RunFolder {
 public:
  // Throws Error(usage) if the run exists and neither `resume` nor `overwrite` is set, or it does
  // not and `resume` is, or one of them would replace what is no run. Changes nothing.
  RunFolder(const std::string& runs, const std::string& name, bool resume, bool overwrite);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string log_path() const;
  // The checkpoint to go on from, verified; "" where there is none or the run begins anew.
  std::string checkpoint() const;
  // Of the run that is resumed, as in RunReport; none where it begins anew or the plan is lost.
  std::map<std::string, std::string> kernels() const;
  // The instruction set that it ran on until now, as WEFT_ISA spells it; "" where kernels() is
  // empty.
  std::string isa() const;
  // Makes the folder, empty unless it is resumed; writes what the run is. Throws Error(usage) if
  // another process trains in it. Until keep(), a folder that was made goes with this object, and
  // the run that it replaced comes back: a start that fails takes no name, and loses nothing.
  void begin(const Recipe& recipe, const std::string& plan_json);
  void keep();
  // The run that this one replaced is removed; without this call it stays beside, and a warning
  // says where.
  void drop_replaced();
  // Writes recipe and plan once more where somebody removed or renamed the folder of a run that
  // goes on, in a folder of another name where that of this one is another's by now. What to say of
  // it; "" where the folder is still there.
  std::string restore(const Recipe& recipe, const std::string& plan_json);
  // Takes what came after `step` out of the log, and a black box away: a resumed run writes them
  // again.
  void go_back_to(int64_t step) const;

 private:
  // plan.json of the run that is resumed; no object where kernels() is empty.
  nlohmann::json plan() const;
  void lock();
  void make();                                                       // and locks it
  static std::pair<uint64_t, uint64_t> identity_of(int descriptor);  // device and number
  bool is_there() const;
  bool is_of_another() const;
  void write(const Recipe& recipe, const std::string& plan_json);

  std::string path_;
  bool resume_;
  bool made_ = false;                     // by begin(), and not kept yet
  std::string replaced_;                  // where the run lies meanwhile that had the name
  std::shared_ptr<void> lock_;            // of the folder; goes with the process
  std::pair<uint64_t, uint64_t> locked_;  // the folder that it is of
};

}  // namespace weft::train
