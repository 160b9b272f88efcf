// An Artifact is a compiled model in one file, FILE.weft: the plans of its steps, the variables
// that they share, and what a program needs to know of the model. It starts without a graph and
// without passes. The file is a sealed safetensors file (io/safetensors.h). Among its tensors are
// JSON that describes the model, and for each program JSON of its plan (plan_json.h), which is read
// when that program first runs; the elements of variables are beside them or in another file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/memory/buffer.h"
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
  std::vector<Variable> weights = {};
  std::vector<io::FolderFile> files = {};  // of the model, such as its tokenizer
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

// An OpenArtifact is an artifact whose variables are views of its file. The file was opened once;
// one that takes its name later changes nothing.
struct OpenArtifact {
  std::string kind, about, device;  // as those of Artifact
  std::vector<std::string> programs;
  io::ModelFiles files;
  // Reads the plan of one of `programs`, checks it and binds it to the variables. Throws
  // Error(checkpoint) for a plan that is broken, and Error(usage) for another name.
  std::function<BoundPlan(std::string_view name)> read;
};

// Opens an artifact. Throws Error(checkpoint) for a file that is damaged, or of another version or
// model than it says, and for weights that do not fit; Error(device) for plans of another device,
// instruction set or number of threads.
OpenArtifact open_artifact(const std::string& path, const ReadOptions& options = {});
// Does the same with a file in memory; `name` appears in messages.
OpenArtifact open_artifact(std::shared_ptr<Buffer> file, const std::string& name,
                           const ReadOptions& options = {});

}  // namespace weft::artifact
