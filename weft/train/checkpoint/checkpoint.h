// Saves and loads checkpoints: everything a run needs to resume as if it had never stopped, in
// folders that are either complete or absent.
//
//   checkpoints/step-00001000/{model.safetensors, state-optimizer.safetensors, config.json,
//     data.json, rng.json, recipe.yaml, vocabulary.json (text only), MANIFEST.json}
//   A run of a published model, or with a tokenizer, also has the files of published.h: with
//     config.json and the weights' published names, its checkpoints are folders that transformers
//     loads as they are.
//   checkpoints/latest, checkpoints/best                   links to two of them
//
// MANIFEST.json (sizes and XXH3 checksums) is written last. Every error of a checkpoint is one line
// (ErrorKind::checkpoint) that names the file.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/train/experiment.h"

namespace weft::train {

// Progress is the state of a run besides its variables.
struct Progress {
  int64_t step = 0;              // updates done
  std::string data_fingerprint;  // Experiment::data_fingerprint()
  data::LoaderState loader;
  int64_t evaluated_step = 0;                   // the last step with an evaluation
  int64_t evaluations_since_best = 0;           // since the lowest loss, for early stopping
  std::optional<double> best_loss, best_score;  // lowest loss; best of checkpoint.best
  bool stopped = false;                         // early, or by the target
  friend bool operator==(const Progress&, const Progress&) = default;
};

struct CheckpointInfo {
  std::string path;  // the checkpoint's folder
  int64_t step = 0;
  uint64_t bytes = 0;
  bool latest = false, best = false;  // whether the link of this name points to it
};

// Resolves `path`: a checkpoint, a folder of checkpoints or a run folder (its latest one), or a
// link to one of these. Throws Error(checkpoint) if the path has no checkpoint, Error(usage) if it
// is a file.
std::string find_checkpoint(const std::string& path);
// Returns `name` if find_checkpoint() takes it, else the run of that name under `runs` if it
// exists. Throws Error(usage) for the name of an ONNX file that does not exist.
std::string locate_run(const std::string& name, const std::string& runs = "runs");
// Returns the complete checkpoints of a run, ascending by step.
std::vector<CheckpointInfo> list_checkpoints(const std::string& run_folder);
// Returns a path among a run's checkpoints that save_checkpoint() never creates; "" for none.
std::string foreign_among_checkpoints(const std::string& run_folder);
// Throws Error(failed) where the run folder is a broken link, or where `latest` or `best` is
// something other than a link.
void check_may_save(const std::string& run_folder);
// Returns " No checkpoint is saved." if a run has no checkpoint; "" if it has one, or if its folder
// cannot be read.
std::string none_is_saved(const std::string& run_folder);

// Saves under RUN/checkpoints and returns the folder. Moves the link `latest`, and `best` if `best`
// is set; removes checkpoints older than the `keep_last` newest, except the best. Throws
// Error(failed) if the disk is full or not writable, or with `problem`, which says why the run has
// no folder; earlier checkpoints remain. Several ranks save at the same time: the first one's
// `run_folder` and `problem` count, each writes its share, and all throw the first one's error.
std::string save_checkpoint(const std::string& run_folder, const Experiment& experiment,
                            const Progress& progress, bool best, const std::string& problem = "");

// A SaveBeside does so beside training: it copies what this rank writes, and a thread writes the
// copy. The experiment outlives it.
class SaveBeside {
 public:
  // `bytes` is the memory of copies.
  explicit SaveBeside(size_t bytes);
  // Begins a save, where none is under way.
  void begin(const std::string& run_folder, const Experiment& experiment, const Progress& progress,
             bool best, const std::string& problem);
  bool is_under_way() const { return saving_.valid(); }  // from begin() to end()
  bool has_ended() const;                                // end() does not wait
  // Waits for the save, and returns or throws what save_checkpoint() does.
  std::string end() { return saving_.get(); }

 private:
  std::shared_ptr<Buffer> copy_;
  std::future<std::string> saving_;  // ends first, as its thread reads the copy
};

// Writes a checkpoint as a new folder, which appears whole, beside no run. Throws as above.
void write_checkpoint(const std::string& folder, const Experiment& experiment,
                      const Progress& progress);

// Returns the path of a checkpoint's weight file, which has the weights of the model or of its
// adapter.
std::string weights_of(const std::string& checkpoint);

// Checks every file against the manifest, and the manifest's step against the step in data.json.
void verify_checkpoint(const std::string& folder);

// Read the recipe and the vocabulary of a checkpoint; a run folder has a recipe, too. Throw
// Error(checkpoint) for a file that is unreadable, or listed and missing.
Recipe checkpoint_recipe(const std::string& folder);
std::optional<data::TextCodec> checkpoint_vocabulary(const std::string& folder);

// Returns the latest checkpoint of a run that passes verify_checkpoint(); if that is not the last
// one saved, warns with the error of the last. Throws that error if no checkpoint passes.
std::string newest_whole_checkpoint(const std::string& run_folder);
// Returns the verified result of find_checkpoint(). Throws the error found in it, and names the
// newest intact checkpoint of its run.
std::string verified_checkpoint(const std::string& path);

// Loads the weights that the recipe's `model.weights` names into a model that begins with them.
// Throws Error(usage) for a path that has none, Error(data) for weights of another model.
void load_first_weights(const Recipe& recipe, Model& model);

// Loads parameters and buffers of a verified checkpoint; the model must be the one that was saved.
// Throws Error(usage) for a recipe that asks for other tensors than the checkpoint's recipe does.
void load_model(const std::string& folder, Experiment& experiment);
// Also loads the state of the optimizer and the random generator; returns where the run resumes.
Progress load_checkpoint(const std::string& folder, Experiment& experiment);

}  // namespace weft::train
