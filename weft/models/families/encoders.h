// Declares the published families of encoders, one per file: BERT, RoBERTa and DistilBERT. Each has
// three architectures, ...ForMaskedLM, ...ForTokenClassification and ...ForSequenceClassification.
//
// Keys of config.json that say nothing about the equations are ignored, and keys that weft does not
// know are named in one warning. A net with other equations (relative positions, a decoder,
// cross-attention, an untied decoder) is refused with Error(usage).
#pragma once

#include <memory>
#include <vector>

#include "weft/models/encoder_family.h"

namespace weft::models {

EncoderFamily bert_family();
EncoderFamily roberta_family();
EncoderFamily distilbert_family();
std::vector<EncoderFamily> encoder_families();  // sorted by name

// Makes the BERT of a recipe: for masked tokens, or for one label per sample, by the task.
std::unique_ptr<Model> make_bert(const nn::Options& config, const TaskShape& task);

}  // namespace weft::models
