// Checkpoints: all that a run needs to go on as if it had never stopped, in folders that are whole
// or absent.
//
//   checkpoints/step-00001000/{model.safetensors, config.json, vocabulary.json,
//   state-optimizer.safetensors,
//     data.json, rng.json, recipe.yaml, MANIFEST.json}     (vocabulary.json: of text only)
//   checkpoints/latest, checkpoints/best                   links to two of them
//
// MANIFEST.json (sizes and XXH3 checksums) is written last. Whatever is wrong with a checkpoint is
// one line (ErrorKind::checkpoint) that names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/train/experiment.h"

namespace weft::train {

// Where a run stands, besides its variables.
struct Progress {
  int64_t step = 0;              // updates done
  std::string data_fingerprint;  // Experiment::data_fingerprint()
  data::LoaderState loader;
  int64_t evaluated_step = 0;                   // the last one with an evaluation
  int64_t evaluations_since_best = 0;           // since the lowest loss, for early stopping
  std::optional<double> best_loss, best_score;  // lowest loss; best of checkpoint.best
  bool stopped = false;                         // early, or by the target
  friend bool operator==(const Progress&, const Progress&) = default;
};

struct CheckpointInfo {
  std::string path;  // of the folder
  int64_t step = 0;
  uint64_t bytes = 0;
  bool latest = false, best = false;  // what the links name
};

// `path` may be a checkpoint, a folder of checkpoints (its latest), a run folder (the same) or a
// link. Throws Error(checkpoint) where there is none.
std::string find_checkpoint(const std::string& path);
// `name` itself if it is one of these, else the run of that name under `runs`, if there is one.
std::string locate_run(const std::string& name, const std::string& runs = "runs");
// Those of a run, ascending by step; unfinished ones are not there.
std::vector<CheckpointInfo> list_checkpoints(const std::string& run_folder);
// A path among a run's checkpoints that save_checkpoint() never makes; "" for none.
std::string foreign_among_checkpoints(const std::string& run_folder);
// Throws Error(failed) where something else has the name of a run's checkpoints, or of the links to
// its latest and best.
void check_may_save(const std::string& run_folder);
// " There is none." where a run has no checkpoint; "" where it has, or nobody can tell.
std::string none_is_saved(const std::string& run_folder);

// Saves under RUN/checkpoints; returns the folder. Moves the link `latest`, and `best` if `best` is
// set; removes what is older than the `keep_last` newest, except the best. Throws Error(failed) if
// the disk is full or not writable: what was there remains.
std::string save_checkpoint(const std::string& run_folder, const Experiment& experiment,
                            const Progress& progress, bool best);

// Checks every file against the manifest, and the manifest's step against that of data.json.
void verify_checkpoint(const std::string& folder);

// The recipe and the vocabulary that a checkpoint was made with; a run has a recipe, too. Throws
// Error(checkpoint) for what cannot be read, or is listed and not there.
Recipe checkpoint_recipe(const std::string& folder);
std::optional<io::Vocabulary> checkpoint_vocabulary(const std::string& folder);

// The latest of a run that verify_checkpoint passes; where that is not the last that was saved, a
// warning says what is wrong with the last. Throws what is wrong with the last where none passes.
std::string newest_whole_checkpoint(const std::string& run_folder);
// What find_checkpoint() finds, verified. Throws what is wrong with it, and names the newest of its
// run that is whole.
std::string verified_checkpoint(const std::string& path);

// Parameters and buffers of a checkpoint that is verified already; the model must be the one that
// was saved.
void load_model(const std::string& folder, Experiment& experiment);
// The same with the optimiser and the random state: a run goes on from what this returns.
Progress load_checkpoint(const std::string& folder, Experiment& experiment);

}  // namespace weft::train
