// Declares readers of Hugging Face's config.json for all families of encoders.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/models/encoder.h"
#include "weft/models/encoder_family.h"

namespace weft::models {

// A matrix has at most these columns and rows, so that the bytes of one fit 64 bits.
inline constexpr int64_t most_columns = int64_t{1} << 20, most_rows = int64_t{1} << 28;

// Returns "BertForMaskedLM", ... for the prefix "Bert".
std::vector<std::string> encoder_architectures(std::string_view prefix);
// Throws Error(usage) that lists the known architectures.
EncoderHead encoder_head(const std::string& model_type, std::string_view prefix,
                         std::string_view architecture);

// EncoderLimits are the smallest sizes that a task allows.
struct EncoderLimits {
  int64_t vocab_size = 1, num_labels = 1, max_position_embeddings = 1;
};
// Reads the keys of BERT and RoBERTa. Keys that are absent leave `defaults` as they are, where an
// intermediate_size of 0 stands for 4 hidden_size.
EncoderConfig read_bert_options(nn::OptionReader& reader, const EncoderConfig& defaults,
                                const EncoderLimits& limits = {});
// Returns these keys and their values.
nn::Options bert_options(const EncoderConfig& config);

// Reads num_labels, which a head for masked tokens does not have.
void read_labels(nn::OptionReader& reader, EncoderConfig& config, int64_t least = 1);
void check_heads(const EncoderConfig& config, std::string_view width, std::string_view heads);
// Refuses keys that turn on other equations, and warns in one line of keys that nobody read.
void finish_published(nn::OptionReader& reader, const EncoderConfig& config);

// Returns how published files hold an encoder: with or without the prefix of its base model, whose
// modules are listed, in any floating point type, and with parts that this net may not have.
io::LoadOptions encoder_layout(const std::string& base, const std::vector<std::string>& modules,
                               std::vector<std::string> extra);

}  // namespace weft::models
