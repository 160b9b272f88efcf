// Fuzzes tokenizer.json: what is accepted encodes and decodes the file's own text, and a stream of
// its ids is what they decode to.
#include "tests/fuzz/fuzz.h"
#include "weft/data/tokenizer/tokenizer.h"

using namespace weft;

namespace {
const std::string valid[] = {
    R"({"added_tokens":[{"id":5,"content":"<s>","special":true,"normalized":false,"lstrip":true}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Prepend","prepend":"_"},
{"type":"Replace","pattern":{"String":" "},"content":"_"}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},
{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[5]}}},
"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},
{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
"model":{"type":"BPE","unk_token":"?","fuse_unk":true,"byte_fallback":true,
"vocab":{"?":0,"e":1,"t":2,"te":3,"<0x22>":4},"merges":["t e"]}})",
    R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":
{"Regex":"(?i:'s)|[^\\s\\p{L}]?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|[\\w&&[^a]]"},
"behavior":"Isolated","invert":false},{"type":"ByteLevel","use_regex":false}]},
"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","ignore_merges":true,
"vocab":{"e":1,"t":2,"te":3},"merges":[["t","e"]]}})",
    R"({"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},
"post_processor":{"type":"BertProcessing","sep":["s",1],"cls":["c",2]},
"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
"truncation":{"max_length":9,"direction":"Left"},"padding":{"strategy":{"Fixed":8},"pad_id":0},
"model":{"type":"WordPiece","unk_token":"u","vocab":{"u":0,"e":1,"##e":2,"t":3}}})",
    R"({"normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAAEAAAAAAAAYQA="},
"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true},
"decoder":{"type":"Metaspace","replacement":"_"},"model":{"type":"Unigram","unk_id":0,
"byte_fallback":true,"vocab":[["?",0],["_",-1],["e",-2.5],["_te",-3]]}})",
    R"({"normalizer":{"type":"Strip","strip_left":true,"strip_right":true},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Punctuation","behavior":
"MergedWithNext"},{"type":"Digits","individual_digits":true},{"type":"UnicodeScripts"},
{"type":"CharDelimiterSplit","delimiter":"e"},{"type":"FixedLength","length":3}]},
"decoder":{"type":"CTC","pad_token":"p","word_delimiter_token":"|","cleanup":true},
"model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"t":1}}})"};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    const auto tokenizer = data::Tokenizer::from_json(text, "input");
    auto ids = tokenizer.encode(text.substr(0, 256), {.truncate = true, .pad = true});
    for (int32_t id : ids)
      if (id < 0) std::abort();
    ids.resize(std::min<size_t>(ids.size(), 1024));  // padding may add millions
    tokenizer.decode(ids);
    data::StreamDecoder stream(tokenizer);
    for (int32_t id : ids) stream.add(id);
    stream.finish();
  });
  return 0;
}
