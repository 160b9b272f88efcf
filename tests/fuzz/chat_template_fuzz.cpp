// Fuzzes chat templates: a template, and after a byte of 0 the conversation as JSON. What is parsed
// renders, or is refused in one line; a text is the same the second time.
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "weft/data/chat_template/chat_template.h"

using namespace weft;
using Json = nlohmann::ordered_json;

namespace {
const std::string messages = std::string(1, '\0') +
                             R"([{"role":"user","content":" a b\n","n":[1,2.5,null,true,{"k":"é"}]},
{"role":"assistant","content":[{"type":"text","text":"x"}],"tool_calls":[{"function":{"name":"f"}}]}])";

const std::string valid[] = {
    R"({{ bos_token }}{%- for m in messages if m.role != 'system' -%} {{ loop.index0 % 2 ~ m['content']|trim
}}{% if loop.last and not loop.first %}{% break %}{% elif m.n is defined %}{% continue %}{% else %}x{% endif %}
{% else %}none{%- endfor +%}{{ 'go' if add_generation_prompt else messages[0].n|tojson(indent=2) }})" +
        messages,
    R"({% set ns = namespace(a=1, b=[]) %}{% macro f(x, y=2) %}{{ x }}{{ f(x - 1) if x > 0 }}{% endmacro %}
{% set ns.a = ns.a + f(3)|int %}{% set t %}{% generation %}q{% endgeneration %}{% endset %}{{ t.split('q')[1:]
}}{{ ns.a // 2 ** 2 }}{{ range(5)|select('odd')|map('string')|join(', ') }}{{ "\u00e9\n"[::-1].upper() }})" +
        messages,
    R"({# c #}{% for k, v in messages[0].items() %}{{ k }}={{ v|string|length }};{% endfor %}{{ messages
|selectattr('role', 'equalto', 'user')|list|first|items|list }}{{ messages|map(attribute='role')|sort|unique|list
}}{% filter upper %}{{ '{}{0}{k}'.format(1, k='[2]'|from_json) }}{% endfilter %}{{ (1, 2) in [(1, 2)] and 'a' not in {'b': -1.5e3} }}{{ 'a.b'|replace('.', '-')|indent(2, true)|title }})" +
        messages,
};
}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return fuzz::mutate(valid, data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  const Json json = Json::parse(input.substr(std::min(end + 1, size)), nullptr, false);
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    const data::ChatTemplate chat(input.substr(0, end), {{"bos_token", "<s>"}}, "input");
    const data::ChatOptions options{.add_generation_prompt = size % 2 == 0,
                                    .tools = json.is_discarded() ? nullptr : &json,
                                    .now = std::tm{},
                                    .most_work = 100'000};
    const Json conversation = json.is_array() ? json : Json::array();
    const data::Rendering made = chat.rendering(conversation, options);
    if (made.text != chat.render(conversation, options)) std::abort();
    for (const data::TextRange& range : made.generated)
      if (range.begin > range.end) std::abort();
  });
  return 0;
}
