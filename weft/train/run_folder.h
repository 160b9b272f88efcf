// The folder of a run: runs/NAME/{recipe.yaml, plan.json, log.jsonl, checkpoints/...}.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "weft/train/recipe.h"

namespace weft::train {

class RunFolder {
 public:
  // Throws Error(usage) if the run exists and neither `resume` nor `overwrite` is set, or it does
  // not and `resume` is, or `overwrite` meets what is no run. Changes nothing.
  RunFolder(const std::string& runs, const std::string& name, bool resume, bool overwrite);

  const std::string& path() const { return path_; }
  std::string log_path() const;
  // The checkpoint to go on from, verified; "" where there is none or the run begins anew.
  std::string checkpoint() const;
  // Of the run that is resumed, as in RunReport; none where it begins anew or the plan is lost.
  std::map<std::string, std::string> kernels() const;
  // Makes the folder, empty unless it is resumed; writes what the run is. Throws Error(usage) if
  // another process trains in it.
  void begin(const Recipe& recipe, const std::string& plan_json);
  // Takes the steps after `step` out of the log: a resumed run writes them again.
  void cut_log(int64_t step) const;

 private:
  void lock();

  std::string path_;
  bool resume_;
  std::shared_ptr<void> lock_;  // of the folder; goes with the process
};

}  // namespace weft::train
