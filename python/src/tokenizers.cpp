// Tokenizers, vocabularies and chat templates.
#include <nlohmann/json.hpp>

#include "weft/data/chat_template/tokenizer_config.h"
#include "weft/data/text_codec.h"
#include "weft/io/model_folder.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
using namespace data;
using Ids = std::vector<int32_t>;

// Text may end within a character; such bytes become U+FFFD, as in Python's other decoders.
nb::object text_of(const std::string& bytes) {
  return nb::steal(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

void bind_codecs(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer",
                        "A tokenizer of a published model; threads may use it at once.")
      .def(
          "__init__",
          [](Tokenizer* self, const std::string& path) {
            new (self) Tokenizer(Tokenizer::load(path));
          },
          "path"_a)
      .def_static("from_json", &Tokenizer::from_json, "json"_a, "name"_a = "tokenizer.json")
      .def_static("json_of", &Tokenizer::json_of, "path"_a)
      .def(
          "encode",
          [](const Tokenizer& self, const std::string& text, bool special_tokens, bool truncate,
             bool pad) {
            const nb::gil_scoped_release released;
            return self.encode(
                text, {.special_tokens = special_tokens, .truncate = truncate, .pad = pad});
          },
          "text"_a, "special_tokens"_a = true, "truncate"_a = false, "pad"_a = false)
      .def(
          "decode",
          [](const Tokenizer& self, const Ids& ids, bool skip_special) {
            return text_of(self.decode(ids, {.skip_special = skip_special}));
          },
          "ids"_a, "skip_special"_a = true)
      .def("__len__", &Tokenizer::size)
      .def(
          "id_of",
          [](const Tokenizer& self, const std::string& token) { return self.id_of(token); },
          "token"_a)
      .def("token_of", &Tokenizer::token_of, "id"_a)
      .def("is_special", &Tokenizer::is_special, "id"_a);
  nb::class_<TextCodec>(m, "TextCodec", "A tokenizer, or the vocabulary of a run.")
      .def(nb::init_implicit<Tokenizer>(), "tokenizer"_a)
      .def(
          "encode",
          [](const TextCodec& self, const std::string& text, bool special_tokens) {
            return self.encode(text, special_tokens);
          },
          "text"_a, "special_tokens"_a = true)
      .def(
          "decode", [](const TextCodec& self, const Ids& ids) { return text_of(self.decode(ids)); },
          "ids"_a)
      .def("__len__", &TextCodec::size);
}

nlohmann::ordered_json parsed(const std::string& json) {
  return nlohmann::ordered_json::parse(json);
}

void bind_chat(nb::module_& m) {
  nb::class_<ChatTemplate>(m, "ChatTemplate",
                           "Writes a conversation as the text that a model was trained on.")
      .def(
          "__init__",
          [](ChatTemplate* self, const std::string& text, const SpecialTokens& special_tokens,
             const std::string& name) { new (self) ChatTemplate(text, special_tokens, name); },
          "text"_a, "special_tokens"_a = SpecialTokens(), "name"_a = "template")
      .def(
          "render_json",
          [](const ChatTemplate& self, const std::string& messages, bool add_generation_prompt,
             const std::string& tools, const std::string& documents, const std::string& extra) {
            const nlohmann::ordered_json its_tools = parsed(tools),
                                         its_documents = parsed(documents),
                                         its_extra = parsed(extra);
            ChatOptions options{.add_generation_prompt = add_generation_prompt,
                                .extra = &its_extra};
            if (!its_tools.is_null()) options.tools = &its_tools;
            if (!its_documents.is_null()) options.documents = &its_documents;
            return self.render(parsed(messages), options);
          },
          "messages"_a, "add_generation_prompt"_a, "tools"_a, "documents"_a, "extra"_a);
  m.def(
      "chat_template",
      [](const std::string& model, bool with_tools) {
        return TokenizerConfig::load(io::ModelFiles(model)).chat_template(with_tools);
      },
      "model"_a, "with_tools"_a = false);
}
}  // namespace

void bind_tokenizers(nb::module_& m) {
  bind_codecs(m);
  bind_chat(m);
}

}  // namespace weft::python
