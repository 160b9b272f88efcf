#include "weft/data/tokenizer/post_processors.h"

#include <string>

#include <fmt/format.h>

namespace weft::data::tokenizer {
namespace {

constexpr size_t most_around = 1024;  // special tokens around a text

void check_count(const Part& part, const Surroundings& ids) {
  if (ids.before.size() + ids.after.size() > most_around)
    part.fail(fmt::format("has more than {} special tokens", most_around));
}

// Reads "single" of TemplateProcessing: a list of {"SpecialToken": {"id": name}} and one
// {"Sequence": {"id": "A"}}, where special_tokens has the ids of each name.
Surroundings read_template(const Part& part) {
  Surroundings ids;
  bool after = false;
  part.at("single").for_each([&](const Part& item) {
    if (const auto sequence = item.find("Sequence")) {
      if (sequence->at("id").text() != "A" || after) item.must("must be the one sequence A");
      after = true;
      return;
    }
    const std::string_view name = item.at("SpecialToken").at("id").text();
    part.at("special_tokens").at(name).at("ids").for_each([&](const Part& id) {
      (after ? ids.after : ids.before).push_back(id.id());
      check_count(part, ids);
    });
  });
  if (!after) part.at("single").must("must have the sequence A");
  return ids;
}

// Reads the id of ["[SEP]", 102].
int32_t id_of_pair(const Part& pair) {
  int32_t id = -1;
  int count = 0;
  pair.for_each([&](const Part& item) {
    if (count++ == 1) id = item.id();
  });
  if (count != 2) pair.must("must be a token and its id");
  return id;
}

}  // namespace

Surroundings read_post_processor(const Part& part) {
  part.check_depth();
  const std::string_view type = part.at("type").text();
  if (type == "ByteLevel") return {};  // it moves offsets, which weft does not keep
  if (type == "TemplateProcessing") return read_template(part);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {{id_of_pair(part.at("cls"))}, {id_of_pair(part.at("sep"))}};
  if (type == "Sequence") {
    Surroundings all;
    part.at("processors").for_each([&](const Part& item) {
      const Surroundings outer = read_post_processor(item);
      all.before.insert(all.before.begin(), outer.before.begin(), outer.before.end());
      all.after.insert(all.after.end(), outer.after.begin(), outer.after.end());
      check_count(part, all);
    });
    return all;
  }
  part.unknown(
      "type", type,
      {"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"});
}

}  // namespace weft::data::tokenizer
