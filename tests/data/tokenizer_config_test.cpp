// Tests tokenizer_config.json, special_tokens_map.json and chat_template.jinja of a model's folder.
#include "weft/data/chat_template/tokenizer_config.h"

#include <doctest/doctest.h>

#include "tests/io/helpers.h"

using namespace weft;
using namespace weft::test;
using data::TokenizerConfig;

TEST_CASE("a folder's special tokens, flags and template are read") {
  TemporaryFolder files;
  files.file("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>",
      "lstrip": false}, "pad_token": null, "add_bos_token": true, "add_eos_token": false,
      "model_max_length": 2048, "chat_template": "{{ bos_token }}|{{ pad_token }}"})");
  files.file("special_tokens_map.json",
             R"({"bos_token": "other", "pad_token": {"content": "<p>"}})");
  const auto config = TokenizerConfig::load(files.path());
  CHECK(config.special_token("bos_token") == "<s>");
  CHECK(config.special_token("eos_token") == "</s>");
  CHECK(config.special_token("pad_token") == "<p>");
  CHECK(config.special_token("unk_token") == std::nullopt);
  CHECK(config.add_bos_token == true);
  CHECK(config.add_eos_token == false);
  CHECK(config.model_max_length == 2048);
  CHECK(config.chat_template().value().render({{"user", "a"}}) == "<s>|<p>");

  files.file("chat_template.jinja", "from the file {{ eos_token }}\n");
  CHECK(TokenizerConfig::load(files.path()).chat_template().value().render({{"user", "a"}}) ==
        "from the file </s>");
}

TEST_CASE("a folder without these files has no template and no token") {
  TemporaryFolder files;
  const auto config = TokenizerConfig::load(files.path());
  CHECK(!config.chat_template());
  CHECK(!config.special_token("bos_token"));
  CHECK(!config.add_bos_token);
  CHECK(!config.model_max_length);
}

TEST_CASE("of templates with names, conversations with tools have their own") {
  TemporaryFolder files;
  files.file("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656,
      "chat_template": [{"name": "default", "template": "plain"},
                        {"name": "tool_use", "template": "tools"}]})");
  const auto config = TokenizerConfig::load(files.path());
  CHECK(config.chat_template().value().render({{"user", "a"}}) == "plain");
  CHECK(config.chat_template(true).value().render({{"user", "a"}}) == "tools");
  CHECK(!config.model_max_length);
}

TEST_CASE("a bad file is refused in one line that names it and the place") {
  struct Case {
    std::string json, error;
  };
  const Case cases[] = {
      {"{", "not JSON: it ends too early, at line 1, column 2."},
      {"[]", "the file must be an object. Got a list of 0."},
      {R"({"bos_token": 3})", "bos_token must be text. Got 3."},
      {R"({"bos_token": {}})", "bos_token has no 'content'."},
      {R"({"add_bos_token": "yes"})", "add_bos_token must be true or false. Got \"yes\"."},
      {R"({"model_max_length": 0})",
       "model_max_length must be a whole number from 1 to 1000000000000000. Got 0."},
      {R"({"chat_template": 3})",
       "chat_template must be text, or a list of templates with names. Got 3."},
      {R"({"chat_template": [{"name": "a"}]})", "chat_template[0] has no 'template'."},
  };
  TemporaryFolder files;
  for (const Case& one : cases) {
    const std::string path = files.file("tokenizer_config.json", one.json);
    CHECK(error_of([&] { TokenizerConfig::load(files.path()); }) ==
          "data: [tokenizer] " + path + ": " + one.error);
  }
  const std::string path = files.file("tokenizer_config.json", R"({"chat_template": "a\n{{ b"})");
  const auto config = TokenizerConfig::load(files.path());
  CHECK(error_of([&] { config.chat_template(); }) ==
        "data: [chat_template] " + path + ":chat_template:2: a tag does not end in '}}'.");
}
