// Declares the data sets and formats that are built into weft.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/train/task/dataset.h"

namespace weft::train {

DataEntry addition();
DataEntry random_images(), random_tokens();
std::vector<DataEntry> known_image_datasets();  // MNIST and similar
std::vector<DataEntry> image_formats();
DataEntry text_format(), jsonl_format(), csv_format(), image_folder_format();

// Returns whether a recipe of files has data to evaluate on; if not, refuses keys that need such
// data. `beside`: a file of evaluation data is beside the file of training data.
bool holds_out(const Recipe& recipe, bool beside = false);
// Removes data.val_split of the samples at random, and returns them. The choice depends on nothing
// but their number, so that runs with different seeds are evaluated on the same samples. Both parts
// have at least one sample; `path` is the path of the data, for messages.
std::vector<int64_t> held_out(const Recipe& recipe, std::vector<int64_t>& samples,
                              const std::string& path);
// Returns how many tokens of a sample are of its text: data.seq_len without the tokens of the
// frame.
int64_t tokens_of_text(const Recipe& recipe, const DataOptions& options);

}  // namespace weft::train
