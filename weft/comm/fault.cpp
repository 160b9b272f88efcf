#include "weft/comm/fault.h"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <cxxabi.h>
#include <execinfo.h>
#include <fmt/format.h>

namespace weft::comm {
namespace {
constexpr std::string_view uninterruptible = "in a system call that cannot be interrupted";

// The interrupted thread writes its frames here; signal handlers reach only what is static.
struct Frames {
  std::array<void*, 64> addresses{};
  std::atomic<int> count{-1};  // -1: not written yet
};
Frames frames;  // of the one thread that is interrupted at a time

void on_interrupt(int /*signal*/) {
  const int saved = errno;
  frames.count = backtrace(frames.addresses.data(), static_cast<int>(frames.addresses.size()));
  errno = saved;
}

std::string frame_text(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr)
    return fmt::format("  {}\n", fmt::ptr(address));
  std::string function = "?";
  if (info.dli_sname != nullptr) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
    function = status == 0 ? name.get() : info.dli_sname;
  }
  const auto offset = static_cast<char*>(address) - static_cast<char*>(info.dli_fbase);
  return fmt::format("  {}  {}+{:#x}\n", function,
                     std::filesystem::path(info.dli_fname).filename().string(), offset);
}

std::string word_of(const std::string& path) {
  std::string text;
  std::ifstream file(path);
  std::getline(file, text);
  return text;
}

std::string state_of(const std::string& thread) {
  const std::string text = word_of("/proc/self/task/" + thread + "/stat");
  const size_t end = text.rfind(") ");
  if (end == text.npos || end + 2 >= text.size()) return "gone";
  switch (text[end + 2]) {
    case 'R':
      return "running";
    case 'D':
      return std::string(uninterruptible);
    default:
      return "waiting";
  }
}

// Returns the frames of a thread; empty where it does not answer within `most` milliseconds.
std::string stack_of(pid_t thread, int signal, int most) {
  frames.count = -1;
  if (syscall(SYS_tgkill, getpid(), thread, signal) != 0) return "";
  for (int wait = 0; frames.count < 0; ++wait) {
    if (wait == most) return "";  // it blocks the signal
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string text;
  constexpr int own = 2;  // frames of the handler
  for (int i = own; i < frames.count; ++i)
    text += frame_text(frames.addresses[static_cast<size_t>(i)]);
  return text;
}
}  // namespace

void prepare_stacks() {
  std::array<void*, 1> first{};
  backtrace(first.data(), 1);
}

std::string stacks() {
  const int signal = SIGRTMIN + 6;
  struct sigaction action{}, before{};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, &before);
  std::string text;
  std::error_code gone;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  constexpr int most_threads = 64;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    const std::string thread = entry.path().filename().string();
    const pid_t number = std::atoi(thread.c_str());
    if (number == self || ++count > most_threads) continue;
    const std::string state = state_of(thread);
    // A thread that writes a file answers once the disk has it.
    const std::string stack = stack_of(number, signal, state == uninterruptible ? 2000 : 100);
    text +=
        fmt::format("thread {} {}, {}\n{}", thread, word_of("/proc/self/task/" + thread + "/comm"),
                    state, stack.empty() ? "  (it blocks signals)\n" : stack);
  }
  // A late answer must not end the process, as the signal's default action would: the handler
  // stays.
  return text;
}

void write_fault(const std::string& path, const std::string& text, const Beat& beat,
                 const RankDescription& words) {
  const auto collective = [&](uint64_t sequence) {
    return words.collective ? words.collective(sequence) : std::to_string(sequence);
  };
  std::ofstream file(path);
  file << text << "\nsteps done: " << beat.step << "\n";
  if (beat.launch >= 0) {
    const int launch = static_cast<int>(beat.launch);
    file << "last launch: " << (words.launch ? words.launch(launch) : std::to_string(launch))
         << "\n";
  }
  if (beat.begun > 0) file << "last collective begun: " << collective(beat.begun) << "\n";
  if (beat.awaited > 0) file << "awaits: " << collective(beat.awaited) << "\n";
  file << "\n" << stacks();
}

}  // namespace weft::comm
