// Declares the data sets and formats that are built into weft.
#pragma once

#include <vector>

#include "weft/train/dataset.h"

namespace weft::train {

DataEntry addition();
DataEntry random_images(), random_tokens();
std::vector<DataEntry> known_image_datasets();  // MNIST and similar
std::vector<DataEntry> image_formats();
DataEntry text_format(), jsonl_format(), csv_format();

// Returns whether a recipe of files holds data out to evaluate on; else refuses keys that need
// them. `beside`: a file of such data is beside that of the training data.
bool holds_out(const Recipe& recipe, bool beside = false);
// Returns the tokens of a sample that are those of its text: data.seq_len without the frame.
int64_t tokens_of_text(const Recipe& recipe, const DataOptions& options);

}  // namespace weft::train
