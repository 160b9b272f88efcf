// Runs regular expressions, as tokenizer files write them (Oniguruma's Ruby syntax), by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "weft/data/tokenizer/part.h"

namespace weft::data::tokenizer {

// Match is a range of bytes; `group` is the highest group that took part, 0 if there is none.
struct Match {
  size_t begin = 0, end = 0;
  int group = 0;
};

// A Regex is immutable; threads may share it.
class Regex {
 public:
  // Compiles an expression in Oniguruma's syntax; `place` names it in errors.
  Regex(std::string_view pattern, const Part& place);
  // Compiles an expression of weft's own, in PCRE2's syntax.
  explicit Regex(std::string_view pattern);

  // Matches runs over all matches in valid UTF-8, from left to right. An empty match right after
  // another match is passed over.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;
    // Returns whether there is another match, and sets `match`. Throws Error(data) if the
    // expression exceeds PCRE2's match limit.
    bool next(Match& match);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  void compile(const std::string& pattern);

  std::shared_ptr<const Code> code_;
  std::string source_;  // as the file writes it
};

// Returns the PCRE2 form of an expression in Oniguruma's Ruby syntax: \s, \w, \h and \b have
// Oniguruma's meaning, a script's name means the script alone, and a && b in a class is an
// intersection. Throws Error(data) for syntax that weft does not read.
std::string pcre2_pattern(std::string_view pattern, const Part& place);

}  // namespace weft::data::tokenizer
