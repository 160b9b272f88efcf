// Splits a template into tokens, with Jinja2's control of white space: trim_blocks and
// lstrip_blocks are on, as in transformers, and the newline at the end of the template is left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/data/chat_template/value.h"

namespace weft::data::chat_template {

enum class TokenKind {
  text,         // outside of tags
  print_begin,  // {{
  print_end,    // }}
  block_begin,  // {%
  block_end,    // %}
  name,
  literal,  // text or a number
  op,
  end  // the end of the template
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // its source; of TokenKind::text after stripping
  Value value;       // the literal's value
  int line = 1;
};

// `source` is valid UTF-8. Throws SyntaxFailure.
std::vector<Token> tokens_of(std::string_view source);

bool is_name_character(char c);  // of names and keywords: an ASCII letter, a digit, or _

}  // namespace weft::data::chat_template
