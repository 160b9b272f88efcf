// An Artifact is a compiled model in one file, FILE.weft: the plans of its steps, the variables
// that they share, and what a program needs to know of the model. It starts without a graph and
// without passes. The file is a sealed safetensors file (io/safetensors.h) with the plans in JSON
// (plan_json.h) as one of its tensors; the elements of variables are beside it or inside.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/model_folder.h"
#include "weft/ir/bindings.h"
#include "weft/tensor/tensor.h"

namespace weft::artifact {

struct Program {
  std::string name;  // "forward", or the tokens that a step reads: "16"
  BoundPlan bound;
};

struct Artifact {
  std::string kind;            // what its programs are, for those who run them: "net", "decoder"
  std::string about;           // JSON of that kind
  std::string device = "cpu";  // a backend, whose plans they are
  std::vector<Program> programs;
  // The model's own variables: their elements may be in a file of weights, all others are inside.
  // Reading leaves this empty.
  std::vector<Variable> weights = {};
  std::vector<io::FolderFile> files;  // of the model, such as its tokenizer
};

// Writes an artifact, for this machine, with the machine code that the device's compiler kept
// (KernelCompiler::collect_code), which is signed. The elements of variables go into the file
// `weights`; "": inside. Variables of zeros that a step assigns, such as an empty cache, have none
// in the file. Throws Error(failed) as all writes do.
void write_artifact(const std::string& path, const Artifact& artifact,
                    const std::string& weights = "");

struct ReadOptions {
  std::string weights = {};  // the file of the elements in place of the artifact's own; "": its own
  // `trust` runs machine code that this user did not sign. Otherwise its kernels are compiled
  // again, which a note says once.
  bool trust = false;
};
// Reads an artifact and binds its plans to new variables, which are views of the file. Throws
// Error(checkpoint) for a file that is damaged, or of another version or model than it says, and
// for weights that do not fit; Error(device) for plans of another device, instruction set or number
// of threads.
Artifact read_artifact(const std::string& path, const ReadOptions& options = {});
// Read the plans alone, of a file in memory or of the JSON that it holds, for tests with damaged
// ones; `name` appears in messages. They throw as read_artifact() does.
std::vector<Plan> plans_in(std::span<const std::byte> file, const std::string& name);
std::vector<Plan> plans_in_json(std::string_view json, const std::string& name);
std::string plans_json(const Artifact& artifact);  // the JSON, without machine code

}  // namespace weft::artifact
