#include "weft/data/tokenizer/regex.h"

#include <new>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "weft/base/error.h"
#include "weft/data/tokenizer/unicode.h"
#include "weft/io/files.h"

namespace weft::data::tokenizer {

namespace {
constexpr uint32_t most_steps = 1'000'000;  // steps of one match
}

struct Regex::Code {
  explicit Code(pcre2_code* owned) : code(owned) {
    jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
  bool jit = false;  // false where the system forbids memory that is written and run
};

Regex::Regex(std::string_view pattern, const Part& place) : source_(pattern) {
  compile(pcre2_pattern(pattern, place));
  if (code_ == nullptr)
    place.fail(fmt::format("'{}' is not a regular expression", io::printable(source_)));
}

Regex::Regex(std::string_view pattern) : source_(pattern) {
  compile(source_);
  WEFT_ASSERT(code_ != nullptr, "{}", source_);
}

void Regex::compile(const std::string& pattern) {
  constexpr uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                       options, &code, &offset, context.get());
  if (compiled != nullptr) code_ = std::make_shared<const Code>(compiled);
}

struct Regex::Matches::State {
  State(const Regex& of, std::string_view in) : regex(of), text(in) {
    data = pcre2_match_data_create_from_pattern(of.code_->code, nullptr);
    context = pcre2_match_context_create(nullptr);
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context, most_steps);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Returns PCRE2's result for a search from `from` on: negative if there is no match.
  int search(size_t from) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const Code& code = *regex.code_;
    int result = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code.jit) result = pcre2_jit_match(code.code, subject, text.size(), from, 0, data, context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its stack in the heap
      result = pcre2_match(code.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                           data, context);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
      throw Error(
          ErrorKind::data,
          "[tokenizer] the regular expression '{}' takes more than {} steps at byte {} of a "
          "text.",
          io::printable(regex.source_), most_steps, from);
    return result;
  }

  const Regex& regex;
  std::string_view text;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  size_t from = 0;
  size_t last_end = static_cast<size_t>(-1);
};

Regex::Matches::Matches(const Regex& regex, std::string_view text)
    : state_(std::make_unique<State>(regex, text)) {}
Regex::Matches::~Matches() = default;

bool Regex::Matches::next(Match& match) {
  State& s = *state_;
  while (s.from <= s.text.size()) {
    const int result = s.search(s.from);
    if (result < 0) break;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(s.data);
    match = {range[0], range[1], result - 1};
    if (match.begin > match.end || match.begin < s.from)  // a \K that looks ahead or behind
      throw Error(ErrorKind::data, "[tokenizer] the regular expression '{}' sets its own begin.",
                  io::printable(s.regex.source_));
    if (match.begin == match.end && match.end == s.last_end) {
      s.from += s.from < s.text.size() ? utf8_length(s.text[s.from]) : 1;
      continue;
    }
    s.from = s.last_end = match.end;
    return true;
  }
  s.from = s.text.size() + 1;
  return false;
}

}  // namespace weft::data::tokenizer
