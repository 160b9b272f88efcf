// Fuzzes the files of a run's folder: log.jsonl, then after a zero byte plan.json.
#include <filesystem>

#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"
#include "weft/cli/show/run_log.h"
#include "weft/io/files.h"
#include "weft/train/run/run_folder.h"

using namespace weft;

namespace {
const std::string valid[] = {
    R"({"step":1,"loss":2.5,"img/s":10.0})"
    "\n"
    R"({"eval_step":1,"loss":null,"accuracy":0.5,"count":4})"
    "\n"
    R"({"epoch":1,"epoch_step":2,"seconds":0.1})"
    "\n"
    R"({"process_peak":1,"seconds":0.5,"measured_step_seconds":0.1,"planned_step_seconds":0.1})"
    "\n" +
        std::string(1, '\0') +
        R"({"model":"gpt","steps":6,"parameters":8,"process_bytes":9,"kernels":{"matmul":"a:b"}})",
    std::string(1, '\0') + R"({"kernels":["a",1,null]})"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::TemporaryFolder folder(fuzz::memory_folder);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(text.find('\0'), text.size());
  folder.file("log.jsonl", text.substr(0, zero));
  folder.file("plan.json", text.substr(std::min(zero + 1, text.size())));
  auto read = [&] { cli::read_run(folder.path()); };
  fuzz::expect_value_or_error(ErrorKind::data, read);

  std::filesystem::create_directory(folder.file("checkpoints"));  // makes it a run folder
  const std::filesystem::path path = folder.path();
  const train::RunFolder run(path.parent_path(), path.filename(), /*resume=*/true, false);
  run.kernels();
  run.go_back_to(3);
  const std::string cut = test::contents_of(folder.file("log.jsonl"));
  run.go_back_to(3);
  if (test::contents_of(folder.file("log.jsonl")) != cut) std::abort();
  return 0;
}
