// Tests chat templates against Jinja2 as transformers sets it up: tests/reference/chat.json has its
// texts (make_chat.py), and null where it refuses.
#include "weft/data/chat_template/chat_template.h"

#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"

using namespace weft;
using namespace weft::test;
using data::ChatTemplate;
using Json = nlohmann::ordered_json;

namespace {

const Json& reference() {
  static const Json file = Json::parse(std::ifstream("tests/reference/chat.json"));
  return file;
}

// Returns Saturday, 2024-07-06 05:04:03.
std::tm reference_time() {
  return {.tm_sec = 3,
          .tm_min = 4,
          .tm_hour = 5,
          .tm_mday = 6,
          .tm_mon = 6,
          .tm_year = 124,
          .tm_wday = 6,
          .tm_yday = 187};
}

// Returns what a template without a conversation prints, or the error.
std::string printed(const std::string& text, const Json& variables = Json::object(),
                    size_t most_work = size_t{256} << 20) {
  std::string out;
  const std::string error = error_of([&] {
    out = ChatTemplate(text, {}, "t")
              .render(Json::array(),
                      {.extra = &variables, .now = reference_time(), .most_work = most_work});
  });
  return error == "none" ? out : error;
}

bool is_refusal(const std::string& text) { return text.starts_with("data: [chat_template] t:"); }

}  // namespace

TEST_CASE("templates in the style of each family give transformers' text") {
  for (const Json& one : reference()["renders"]) {
    const std::string name = one["template"];
    CAPTURE(name);
    CAPTURE(one["conversation"].get<std::string>());
    const Json& options = one["options"];
    const auto find = [&](const char* key) {
      return options.contains(key) ? &options[key] : nullptr;
    };
    const ChatTemplate chat(reference()["templates"][name].get<std::string>(),
                            {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "t");
    std::string text;
    const std::string error = error_of([&] {
      text = chat.render(reference()["conversations"][one["conversation"].get<std::string>()],
                         {.add_generation_prompt = options["add_generation_prompt"].get<bool>(),
                          .tools = find("tools"),
                          .documents = find("documents"),
                          .extra = find("extra"),
                          .now = reference_time()});
    });
    if (one["text"].is_null())
      CHECK_MESSAGE(is_refusal(error), error);
    else
      CHECK_MESSAGE(text == one["text"].get<std::string>(), error);
  }
}

TEST_CASE("statements, expressions, filters, tests and methods are Jinja2's") {
  for (const Json& one : reference()["cases"]) {
    const std::string text = one[0];
    CAPTURE(text);
    const std::string got = printed(text, reference()["variables"]);
    if (one[1].is_null())
      CHECK_MESSAGE(is_refusal(got), got);
    else
      CHECK(got == one[1].get<std::string>());
  }
}

TEST_CASE("messages of text render without JSON") {
  const ChatTemplate chat(
      "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m['content'] }};{% endfor %}"
      "{{ 'go' if add_generation_prompt }}{{ tools is none }}",
      {{"bos_token", "<s>"}}, "t");
  CHECK(chat.render({{"user", "a"}, {"assistant", "b"}}) == "<s>user: a;assistant: b;True");
  CHECK(chat.render({{"user", "a\xff"}}, {.add_generation_prompt = true}) ==
        "<s>user: a\xef\xbf\xbd;goTrue");
}

TEST_CASE("the clock is the given one, and otherwise the system's") {
  CHECK(printed("{{ strftime_now('%Y-%m-%d %H:%M') }}") == "2024-07-06 05:04");
  const std::time_t before = std::time(nullptr);
  const std::string year =
      ChatTemplate("{{ strftime_now('%Y') }}", {}, "t").render(Json::array(), {});
  const std::time_t after = std::time(nullptr);
  std::tm first{}, last{};
  localtime_r(&before, &first);
  localtime_r(&after, &last);
  CHECK(std::stoi(year) >= first.tm_year + 1900);
  CHECK(std::stoi(year) <= last.tm_year + 1900);
}

TEST_CASE("an error names the template, its line, and what is wrong") {
  struct Case {
    std::string text, error;
  };
  const Case cases[] = {
      {"a\n{% frob %}",
       "2: the tag 'frob' is not known. Known: if, for, set, filter, macro, generation, "
       "break, continue."},
      {"\n\n{{ 1|frob }}", "3: the filter 'frob' is not known."},
      {"{{ 1 is frob }}", "1: the test 'frob' is not known."},
      {"{% for x in y %}\n", "1: the tag 'for' is not ended."},
      {"{% if x", "1: a tag does not end in '%}'."},
      {"{{ (1] }}", "1: ']' closes nothing."},
      {"{{ 1 $ 2 }}", "1: '$' has no meaning in a tag."},
      {"{{ 99999999999999999999 }}",
       "1: an integer has more than 64 bits: '99999999999999999999'."},
      {"a\n{{ x.y }}", "2: 'x' is undefined."},
      {"{{ messages.x.y }}", "1: a list has no 'x'."},
      {"{{ {}.x.y }}", "1: a mapping has no 'x'."},
      {"{{ frob(1) }}", "1: 'frob' is undefined."},
      {"{{ messages() }}", "1: a list cannot be called."},
      {"\n{{ raise_exception('no\nmore') }}",
       "2: the template refuses the conversation: no\\x0amore."},
      {"{{ 'a'.strip(1) }}", "1: 'strip': the argument 'chars' must be text. Got an integer."},
      {"{{ messages.append(1) }}", "1: weft does not have the method 'append' of a list."},
      {"{{ 2 ** 64 }}", "1: the result is an integer of more than 64 bits."},
      {"{{ 9223372036854775808.0|int }}",
       "1: 'int': 9.223372036854776e+18 is no integer of 64 bits."},
      {"{{ 'a' + 1 }}", "1: there is no text + an integer."},
      {"{{ '%s' % 1 }}", "1: text has no '%' here: weft does not format by it."},
      {"{% for x in [1] recursive %}{% endfor %}", "1: weft does not have recursive loops."},
      {"{% for x in [1] %}{% macro f() %}{% endmacro %}{% endfor %}",
       "1: weft has macros only outside of loops, macros and blocks."},
      {"{% for x 'a\n' %}", "1: 'in' is expected before ''a\\x0a''."},
      {"{{ range }}", "1: a function cannot be printed."},
      {"{{ [1]|map('a\nb') }}", "1: 'map': the filter 'a\\x0ab' is not known."},
      {"{{ [1]|select('a\nb') }}", "1: 'select': the test 'a\\x0ab' is not known."},
      {"{{ (1 if 0)|reverse }}", "1: 'reverse': a value is undefined."},
      {"{{ strftime_now('%9999999d') }}", "1: 'strftime_now': weft does not know the format '%9'."},
  };
  for (const Case& one : cases) {
    CAPTURE(one.text);
    CHECK(printed(one.text) == "data: [chat_template] t:" + one.error);
  }
  CHECK(error_of([] { ChatTemplate(std::string((1 << 20) + 1, 'a'), {}, "t"); }) ==
        "data: [chat_template] t: a template has 1048576 bytes at most. Got 1048577.");
  const ChatTemplate chat("", {}, "t");
  const Json list = Json::array(), object = Json::object(),
             big = Json::array({18446744073709551615ULL});
  CHECK(error_of([&] { chat.render(object, {}); }) ==
        "data: [chat_template] t: the conversation cannot be read: the messages must be a list.");
  CHECK(error_of([&] { chat.render(list, {.extra = &list}); }) ==
        "data: [chat_template] t: the conversation cannot be read: extra variables must be an "
        "object.");
  CHECK(error_of([&] { chat.render(big, {}); }) ==
        "data: [chat_template] t: the conversation cannot be read: 18446744073709551615 is no "
        "integer from -9223372036854775808 to 9223372036854775807.");
  const Json messages = {{"messages", 1}};
  CHECK(error_of([&] { chat.render(list, {.extra = &messages}); }) ==
        "data: [chat_template] t: the conversation cannot be read: 'messages' is no extra "
        "variable.");
}

TEST_CASE("a loop may end behind a block of text") {
  for (const char* block :
       {"{% filter upper %}a{% endfilter %}", "{% set s %}a{% endset %}{{ 'A' }}",
        "{% generation %}A{% endgeneration %}"})
    CHECK(printed("{% for x in [1, 2] %}" + std::string(block) + "{% break %}{% endfor %}") == "A");
}

TEST_CASE("no template runs or grows without end") {
  const size_t most = 1 << 22;
  for (const std::string text : {
           "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
           "{% set n = namespace(x='a') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}"
           "{% endfor %}",
           "{{ 'a' * 999999999999 }}",
           "{{ [1] * 999999999999 }}",
           "{{ '' * 999999999999 ~ 'ab' * 4611686018427387904 }}",
           "{% set n = namespace(x=[1]) %}{% for a in range(60) %}{% set n.x = [n.x, n.x] %}"
           "{% endfor %}{{ n.x == n.x }}{{ n.x }}",
           "{% set n = namespace(x=[1]) %}{% for a in range(60) %}{% set n.x = [n.x, n.x] %}"
           "{% endfor %}{{ n.x|tojson }}",
           "{% set a = 'a' * 9999 %}{{ a|replace('a', a) }}",
           "{% set a = 'a' * 9999 %}{{ a|join(a) }}",
           "{{ 'a\nb'|indent(99999999999) }}",
           "{{ [[1]]|tojson(indent=99999999999) }}",
           "{% set a = 'a' * 99999 %}{% for i in range(99999) %}{{ a == 'a' * 99999 }}{% endfor %}",
       }) {
    CAPTURE(text);
    const std::string got = printed(text, Json::object(), most);
    CHECK(got.starts_with("data: [chat_template] t:"));
    CHECK(got.ends_with("the template does more work than a chat can need."));
  }
  CHECK(printed("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}") ==
        "data: [chat_template] t:1: the template calls itself, or nests expressions, more than 400 "
        "deep.");
  CHECK(printed("{% set n = namespace(x=[]) %}{% for a in range(200) %}{% set n.x = [n.x] %}"
                "{% endfor %}") == "data: [chat_template] t:1: values are nested deeper than 100.");
  const std::string deep = "data: [chat_template] t:1: the template is nested deeper than 200.";
  const auto repeated = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  CHECK(printed("{{ " + repeated("(", 20'000) + "1" + repeated(")", 20'000) + " }}") == deep);
  CHECK(printed("{{ " + repeated("[", 20'000) + repeated("]", 20'000) + " }}") == deep);
  CHECK(printed("{{ " + repeated("not ", 20'000) + "1 }}") == deep);
  CHECK(printed("{{ " + repeated("-", 20'000) + "1 }}") == deep);
  CHECK(printed("{{ 1" + repeated("+1", 20'000) + " }}") == deep);
  CHECK(printed("{{ a" + repeated(".a", 20'000) + " }}") == deep);
  CHECK(printed("{{ 1" + repeated("|abs", 20'000) + " }}") == deep);
  CHECK(printed("{{ 1" + repeated(" if 1 else 1", 20'000) + " }}") == deep);
  CHECK(printed(repeated("{% if 1 %}", 20'000)) == deep);
  Json nested = Json::array();
  for (int i = 0; i < 200; ++i) nested = Json::array({nested});
  CHECK(error_of([&] { ChatTemplate("", {}, "t").render(nested, {}); }) ==
        "data: [chat_template] t: the conversation cannot be read: values are nested deeper than "
        "100.");
}

TEST_CASE("long conversations have more work to do") {
  const ChatTemplate chat("{% for m in messages %}{{ m.content|trim|upper }}{% endfor %}", {}, "t");
  const Json messages = {{{"role", "user"}, {"content", std::string(1 << 20, 'a')}}};
  CHECK(chat.render(messages, {.most_work = 1000}).size() == 1 << 20);
}
