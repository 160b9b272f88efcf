// Implements compile, which writes a model's plans to a file that runs without its code.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/numbers/quantity.h"
#include "weft/cli/models/compiled_model.h"
#include "weft/cli/models/inference.h"
#include "weft/cli/models/text_flags.h"
#include "weft/cli/outputs.h"
#include "weft/cli/show/terminal.h"
#include "weft/cli/verbs/verbs.h"
#include "weft/io/files.h"
#include "weft/io/model_folder.h"
#include "weft/train/run/report.h"

namespace weft::cli {
namespace {
struct CompileArguments {
  CompileOptions options;
  std::string dtype, output, weights;
  std::vector<std::string> dims;
  RecipeFlags device;
};

int run_compile(const Program& program, const CompileArguments& arguments) {
  if (!arguments.output.ends_with(io::artifact_ending))
    throw Error(ErrorKind::usage, "--output {}: the name of a compiled model ends in {}.",
                io::printable(arguments.output), io::artifact_ending);
  const auto folder_of = [](const std::string& file) {
    return std::filesystem::absolute(file).lexically_normal().parent_path();
  };
  if (!arguments.weights.empty() && folder_of(arguments.weights) != folder_of(arguments.output))
    throw Error(
        ErrorKind::usage, "--weights {}: the weights are in the folder of the compiled model, {}.",
        io::printable(arguments.weights), io::printable(folder_of(arguments.output).string()));
  if (!io::is_folder(folder_of(arguments.output).string()))
    throw Error(ErrorKind::usage, "--output {}: there is no such folder.",
                io::printable(arguments.output));
  CompileOptions options = arguments.options;
  options.extents = extents_of(arguments.dims);
  options.flags = joined(arguments.device, program.flags);
  if (!arguments.dtype.empty()) options.dtype = parse_dtype(arguments.dtype);
  const artifact::Artifact artifact = compiled(options);
  check_outputs_not_read(program);
  artifact::write_artifact(arguments.output, artifact, arguments.weights);
  size_t launches = 0, arena = 0;
  for (const artifact::Program& each : artifact.programs) {
    launches += each.bound.plan.launches.size();
    arena = std::max(arena, each.bound.plan.arena_bytes);
  }
  line(fmt::format("wrote {}: {} plan{}, {} kernels, an arena of {}",
                   io::printable(arguments.output), artifact.programs.size(),
                   artifact.programs.size() == 1 ? "" : "s", launches,
                   train::bytes_text(static_cast<double>(arena))));
  return 0;
}
}  // namespace

void add_compile_verb(Program& program) {
  auto arguments = std::make_shared<CompileArguments>();
  Verb& verb = program.root.add(
      {.name = "compile",
       .group = "Models",
       .doc =
           "Compiles a model into one file: plans that start without its code. run, generate and "
           "chat take it.",
       .examples =
           "weft compile models/gpt2 -o gpt2.weft\n"
           "weft generate gpt2.weft --prompt 'The meaning of life is'\n"
           "weft compile llama.gguf --context 8192 --batch 4 -o llama.weft\n"
           "weft compile bert.onnx --batch 8 --dim tokens=128 -o bert.weft\n"
           "weft compile runs/pets/checkpoints/best -o pets.weft --weights pets.safetensors\n"
           "weft run pets.weft --input cat.png",
       .run = [arguments, &program] { return run_compile(program, *arguments); },
       .recipe_keys = true});
  CompileOptions& options = arguments->options;
  verb.options = {
      {.type = "MODEL",
       .doc = "an ONNX file, a run, a checkpoint, or a published model (a folder or GGUF file)",
       .target = &options.model,
       .required = true},
      {.flag = "--output",
       .letter = 'o',
       .type = "FILE",
       .doc = "the file, whose name ends in .weft",
       .target = &arguments->output,
       .required = true,
       .written = true},
      {.flag = "--weights",
       .type = "FILE",
       .doc = "write the weights to a safetensors file beside it; otherwise they are inside",
       .target = &arguments->weights,
       .written = true},
      {.flag = "--batch",
       .type = "N",
       .doc = "rows of an input, or sequences at once (1)",
       .target = &options.batch,
       .range = {{1, 0x1p40}}},
      {.flag = "--context",
       .type = "N",
       .doc =
           "language models: most tokens of a sequence (as many as the model takes, at most 4096)",
       .target = &options.context,
       .range = {{1, 0x1p40}}},
      {.flag = "--dtype",
       .type = "TYPE",
       .doc = "published models: f32, bf16 or f16 (that of its files)",
       .target = &arguments->dtype,
       .choices = {"f32", "bf16", "f16"}},
      activations_option(options.activations),
      {.flag = "--dim",
       .type = "NAME=N",
       .doc = "bind a symbolic extent of an input; --batch binds the first of the first input",
       .target = &arguments->dims,
       .most = 64},
      short_flag(arguments->device, "--device")};
}

}  // namespace weft::cli
