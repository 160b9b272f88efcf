// Pre-tokenizers split text into words, each of which the model encodes alone.
#pragma once

#include <memory>

#include "weft/data/tokenizer/part.h"
#include "weft/data/tokenizer/split.h"

namespace weft::data::tokenizer {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
  // Returns whether the last pre-tokenizer of a sequence maps bytes to characters (ByteLevel).
  virtual bool ends_in_bytes() const { return false; }
  // Makes that pre-tokenizer leave bytes as they are, for a model that maps them
  // (Model::take_bytes).
  virtual void leave_bytes() {}
};

// Return the pre-tokenizer that a file describes.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Part& part);
std::unique_ptr<PreTokenizer> make_byte_level(const Part& part);
std::unique_ptr<PreTokenizer> make_metaspace(const Part& part);
std::unique_ptr<PreTokenizer> make_unicode_scripts();

// PrependScheme says to which pieces Metaspace prepends its character. Its decoder removes that
// character again.
enum class PrependScheme { always, first, never };
PrependScheme prepend_scheme_of(const Part& part);

}  // namespace weft::data::tokenizer
