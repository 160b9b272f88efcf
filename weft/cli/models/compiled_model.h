// Compiles a model into a file: `weft compile MODEL -o FILE.weft`. kinds/compiled.cpp opens it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/artifact/artifact.h"
#include "weft/base/numbers/dtype.h"
#include "weft/cli/command_line.h"
#include "weft/cli/recipes/recipe_flags.h"

namespace weft::cli {

struct CompileOptions {
  std::string model;
  std::optional<DType> dtype = {};  // type of a published model; absent: its files' type
  std::string activations = {};     // as --activations; "": the usual type
  int64_t batch = 1;                // rows, or sequences
  int64_t context = 0;              // most tokens of a sequence; 0: as many as the model takes, but
                                    // at most usual_context
  std::map<std::string, int64_t, std::less<>> extents = {};  // symbolic extents of inputs by name
  RecipeFlags flags = {};                                    // --device
};
inline constexpr int64_t usual_context = 4096;

// Returns the flags of verbs that take compiled models, --weights and --trust.
std::vector<Option> compiled_options(artifact::ReadOptions& options);
// Throws Error(usage) where they are given for a model that is not compiled.
void check_compiled_options(const std::string& model, const artifact::ReadOptions& options);

// Compiles the steps of a language model by which text is generated, or the forward pass of any
// other model. Throws Error(usage) for extents that are not bound, and as the model's kind does.
artifact::Artifact compiled(const CompileOptions& options);

}  // namespace weft::cli
