#include "tests/support/program.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "weft/io/json.h"

namespace fs = std::filesystem;

namespace weft::test {
namespace {
std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void redirect(int descriptor, const std::string& path) {
  int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
}

// Quotes an argument for a shell.
std::string quoted(const std::string& argument) {
  const bool plain = !argument.empty() &&
                     argument.find_first_of(" \t\n'\"\\$`*?[]{}()<>|&;#~!") == std::string::npos;
  return plain ? argument : "'" + argument + "'";
}

// Records outcomes from which tools/bad_input.py writes and checks docs/bad-input.md.
void record(const Outcome& outcome) {
  const char* path = std::getenv("RECORD_REFUSALS");
  if (path == nullptr) return;
  static std::ofstream file(path);  // overwritten by each test program
  const nlohmann::json entry{
      {"command", outcome.command}, {"code", outcome.code}, {"says", outcome.err}};
  file << io::json_text(entry) << std::endl;
}
}  // namespace

std::string test_cache() {
  const char* set = std::getenv("WEFT_CACHE_DIR");
  return set != nullptr ? set : fs::temp_directory_path() / "weft-test-cache";
}

Workplace::Workplace() {
  folder_ = (fs::temp_directory_path() / "weft-test-XXXXXX").string();
  if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no temporary folder");
}
Workplace::~Workplace() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void Workplace::write(const std::string& name, const std::string& text) const {
  fs::create_directories(fs::path(path(name)).parent_path());
  std::ofstream(path(name), std::ios::binary) << text;
}
std::string Workplace::read(const std::string& name) const { return contents(path(name)); }

Outcome Workplace::weft(const std::vector<std::string>& arguments,
                        const Environment& environment) const {
  const char* program = std::getenv("WEFT");
  if (program == nullptr || *program == '\0')
    throw std::runtime_error("set WEFT to the program under test");
  return run(program, arguments, environment);
}

Outcome Workplace::run(const std::string& program, const std::vector<std::string>& arguments,
                       const Environment& environment) const {
  return start(program, arguments, environment).wait();
}

Running Workplace::start(const std::string& program, const std::vector<std::string>& arguments,
                         const Environment& environment) const {
  Outcome outcome;
  for (const auto& [name, value] : environment)  // settings only, not the test's folders
    if (name.starts_with("WEFT_") && !value.empty() && value.find('/') == std::string::npos)
      outcome.command += name + "=" + quoted(value) + " ";
  outcome.command += program.substr(program.rfind('/') + 1);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    outcome.command += " " + quoted(argument);
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  pid_t child = fork();
  if (child == 0) {
    if (chdir(folder_.c_str()) != 0) _exit(126);
    setenv("WEFT_CACHE_DIR", test_cache().c_str(), 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (const int input = open((folder_ + "/.in").c_str(), O_RDONLY); input >= 0) dup2(input, 0);
    redirect(1, folder_ + "/.out");
    redirect(2, folder_ + "/.err");
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  return {child, std::move(outcome), folder_};
}

Running::~Running() {
  if (process_ == 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void Running::signal(int number) const { kill(process_, number); }

bool Running::ended() const {
  siginfo_t state{};
  waitid(P_PID, static_cast<id_t>(process_), &state, WEXITED | WNOHANG | WNOWAIT);
  return state.si_pid != 0;
}

bool Running::until(const std::function<bool()>& holds) const {
  while (!holds()) {
    if (ended()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

Outcome Running::wait() {
  int status = 0;
  waitpid(std::exchange(process_, 0), &status, 0);
  outcome_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome_.out = contents(folder_ + "/.out");
  outcome_.err = contents(folder_ + "/.err");
  return std::move(outcome_);
}

namespace {
std::string says(const Outcome& outcome, int code, const std::string& prefix,
                 const std::string& message) {
  record(outcome);
  std::string wrong;
  if (outcome.code != code)
    wrong +=
        "exit code " + std::to_string(outcome.code) + " instead of " + std::to_string(code) + "; ";
  if (outcome.err.find(message) == std::string::npos) wrong += "no \"" + message + "\" in it; ";
  if (!outcome.err.starts_with(prefix)) wrong += "does not begin with \"" + prefix + "\"; ";
  if (code != 0 && outcome.err.find('\n') + 1 != outcome.err.size()) wrong += "not one line; ";
  if (outcome.err.find("internal") != std::string::npos) wrong += "an internal error; ";
  for (const char* theirs :
       {"exception", "std::", "basic_string", "_M_", "type must be", "parse err"})
    if (outcome.err.find(theirs) != std::string::npos) wrong += "a library's own words; ";
  return wrong.empty() ? "" : outcome.command + ": " + wrong + "it says: " + outcome.err;
}
}  // namespace

std::string fails_with(const Outcome& outcome, int code, const std::string& message) {
  return says(outcome, code, "weft: error: ", message);
}
std::string goes_on_with(const Outcome& outcome, const std::string& message) {
  return says(outcome, 0, "weft: warning: ", message);
}

nlohmann::json json_of(const Outcome& outcome) {
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return nlohmann::json::parse(outcome.out);
}

}  // namespace weft::test
