#include "weft/data/answers.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft::data {
namespace {
using Json = nlohmann::ordered_json;

bool is_empty(const Json& value) {
  return value.is_null() || ((value.is_array() || value.is_object()) && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

size_t common_begin(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}
size_t common_end(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first -
                             a.rbegin());
}

class Writer {
 public:
  Writer(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer,
         AnswerReport& report)
      : conversation_(conversation),
        chat_(chat),
        tokenizer_(tokenizer),
        report_(report),
        marks_answers_(chat.marks_answers()),
        unread_(conversation.messages.size()) {}

  std::vector<AnswerText> write() {
    for (size_t i = 0; i < conversation_.messages.size(); ++i)
      if (conversation_.learned[i]) add(i);
    if (texts_.size() > 1) {
      ++report_.rewritten;
      report_.texts += std::ssize(texts_);
    }
    report_unread();
    return std::move(texts_);
  }

 private:
  const Json& message(size_t i) const { return conversation_.messages[i]; }

  Rendering render(size_t count, bool add_generation_prompt) {
    const auto begin = conversation_.messages.begin();
    const Json said(begin, begin + static_cast<std::ptrdiff_t>(count));  // a list
    const auto given = [](const std::optional<Json>& value) { return value ? &*value : nullptr; };
    Rendering made;
    try {
      made = chat_.rendering(said, {.add_generation_prompt = add_generation_prompt,
                                    .tools = given(conversation_.tools),
                                    .documents = given(conversation_.documents),
                                    .extra = &conversation_.extra});
    } catch (const TemplateRefusal& refusal) {
      throw Error(ErrorKind::usage, refusal.what());
    }
    for (size_t i = 0; i < count; ++i) still_unread(unread_[i], made.unread_keys[i]);
    still_unread(unread_variables_, made.unread_variables);
    return made;
  }
  // Keeps in `all` only the keys that no rendering so far has read.
  static void still_unread(std::optional<std::vector<std::string>>& all,
                           std::vector<std::string>& now) {
    if (!all)
      all = std::move(now);
    else
      std::erase_if(*all, [&](const std::string& key) { return !std::ranges::count(now, key); });
  }

  void add(size_t i) {
    const bool is_answer = message(i).at("role") == "assistant";
    const std::string prompt =
        i == 0 && !is_answer ? std::string() : render(i, /*add_generation_prompt=*/is_answer).text;
    Rendering whole = render(i + 1, /*add_generation_prompt=*/false);
    size_t begin = common_bytes(tokenizer_, whole.text, prompt);
    size_t rewritten = 0;  // bytes at the start in which this rendering has no marks
    if (begin < prompt.size()) {
      const size_t history =
          i == 0 ? 0 : common_begin(prompt, render(i, /*add_generation_prompt=*/false).text);
      if (const size_t same = common_begin(prompt, whole.text);
          same < history && history < prompt.size()) {
        put_behind(prompt, history, same, whole, i);
        rewritten = begin = prompt.size();
      } else if (same < history) {
        begin = end_of_history(prompt, same, whole.text, begin, i);
      } else if (report_.cut_prompts++ == 0) {
        report_.cut = prompt.substr(begin);
      }
    }
    if (texts_.empty() || !whole.text.starts_with(texts_.back().text)) {
      texts_.emplace_back();
      answers_.clear();
    }
    begin = std::max(begin, texts_.back().text.size());
    std::vector<LearnedPart>& parts = texts_.back().parts;
    if (marks_answers_ && is_answer) {
      answers_.push_back({begin, whole.text.size()});
      mark_answers(whole.generated, rewritten);
    } else if (begin < whole.text.size()) {
      parts.push_back({begin, whole.text.size()});
    } else if (message(i).contains("content") && !is_empty(message(i).at("content"))) {
      throw Error(ErrorKind::usage,
                  "the chat template writes nothing for messages[{}], of role {}.", i,
                  message(i).at("role").get<std::string>());
    }
    texts_.back().text = std::move(whole.text);
  }

  // Replaces the last text's marks from byte `from` on by the marks of its latest rendering. That
  // may mark fewer answers than earlier renderings did: a template may mark the last answer alone.
  void mark_answers(const std::vector<TextRange>& generated, size_t from) {
    std::vector<LearnedPart>& parts = texts_.back().parts;
    std::erase_if(parts, [&](const LearnedPart& part) { return part.touched && part.end > from; });
    for (const TextRange& marked : generated)
      if (marked.end > marked.begin && std::ranges::any_of(answers_, [&](const TextRange& answer) {
            return marked.begin < answer.end && marked.end > answer.begin;
          }))
        parts.push_back({marked.begin, marked.end, /*touched=*/true});
    std::ranges::sort(parts, {}, &LearnedPart::begin);
  }

  // Returns the byte of `text` at which message i begins, if the template rendered the messages
  // before it in another way than in `history`. Both agree in their first `same` bytes. The message
  // begins after the longest suffix of `history` that `text` repeats, if the two differ by one
  // deletion or insertion. If they differ only in the mark at the end of `history`, the message
  // begins at `token`, where their tokens first differ.
  static size_t end_of_history(const std::string& history, size_t same, const std::string& text,
                               size_t token, size_t i) {
    constexpr size_t longest_mark = 24;  // bytes
    size_t begin = 0, longest = 0;
    for (size_t at = text.find(history.back(), same); at + 1 < text.size();
         at = text.find(history.back(), at + 1)) {
      const size_t length = common_end(history, std::string_view(text).substr(0, at + 1));
      const bool leaves_out = at + 1 <= same + length, puts_in = history.size() <= same + length;
      if (length <= longest || !(leaves_out || puts_in)) continue;
      begin = at + 1;
      longest = length;
    }
    if (longest > 0) return begin;
    if (history.size() > same + longest_mark) refuse_history(i);
    return token;
  }
  [[noreturn]] static void refuse_history(size_t i) {
    throw Error(ErrorKind::usage,
                "the chat template changes what was said before messages[{}] as it writes it, so "
                "that its beginning is unknown.",
                i);
  }

  // Replaces the text before message i by `prompt`, the text that a model sees when it writes the
  // message. The template renders earlier messages in another way once the message is there
  // (gpt-oss then drops the reasoning of tool calls). Bytes [0, history) of the prompt are the
  // earlier messages; the text agrees with its first `same` bytes. The message begins after the
  // longest suffix of the prompt that the text repeats; it must contain the generation prompt.
  static void put_behind(const std::string& prompt, size_t history, size_t same, Rendering& whole,
                         size_t i) {
    const size_t least = prompt.size() - history + 1;
    const std::string_view end = std::string_view(prompt).substr(prompt.size() - least);
    size_t begin = 0, longest = 0;
    for (size_t at = whole.text.find(end, same); at != std::string::npos;
         at = whole.text.find(end, at + 1)) {
      const std::string_view before = std::string_view(whole.text).substr(same, at + least - same);
      const size_t length = common_end(prompt, before);
      if (length <= longest) continue;
      begin = at + least;
      longest = length;
    }
    if (longest == 0) refuse_history(i);
    std::erase_if(whole.generated, [&](const TextRange& marked) { return marked.end <= begin; });
    for (TextRange& marked : whole.generated) {  // a mark may begin within the request
      marked.begin = std::max(marked.begin, begin - longest) + prompt.size() - begin;
      marked.end += prompt.size() - begin;
    }
    whole.text.replace(0, begin, prompt);
  }

  void report_unread() {
    for (size_t i = 0; i < unread_.size(); ++i) {
      if (!unread_[i]) continue;  // no text has it
      const std::string role = message(i).at("role").get<std::string>();
      for (const std::string& key : *unread_[i])
        if (!is_read_reasoning(i, key))
          ++report_.unread[fmt::format("{} of {} messages", key, role)];
    }
    if (unread_variables_)
      for (const std::string& key : *unread_variables_) ++report_.unread[key];
  }
  // A message has its reasoning under several names, and a template reads one of them. Only the
  // first name is reported as unread, and only if the template reads none.
  bool is_read_reasoning(size_t i, const std::string& key) const {
    if (!std::ranges::count(reasoning_names, key)) return false;
    return key != reasoning_names[0] ||
           std::ranges::any_of(reasoning_names, [&](std::string_view name) {
             return message(i).contains(name) && !std::ranges::count(*unread_[i], name);
           });
  }

  const Conversation& conversation_;
  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  AnswerReport& report_;
  bool marks_answers_;
  std::vector<AnswerText> texts_;
  std::vector<TextRange> answers_;                               // learned ones of the last text
  std::vector<std::optional<std::vector<std::string>>> unread_;  // keys of each message
  std::optional<std::vector<std::string>> unread_variables_;
};
}  // namespace

std::vector<AnswerText> answer_texts(const Conversation& conversation, const ChatTemplate& chat,
                                     const Tokenizer& tokenizer, AnswerReport& report) {
  return Writer(conversation, chat, tokenizer, report).write();
}

}  // namespace weft::data
