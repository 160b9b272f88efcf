// A task to learn from nothing: sums, spelled out. "123+045=168\n", padded with '\n' to one length.
// Numbers begin with zeros, so that a digit's place says its worth: without them whether a model
// comes to see which digits belong together hangs on its seed.
//
// Which sums are held out is a hash of the two numbers in either order, so no sum of the test set
// is ever trained, not even as b+a.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weft/data/loader.h"
#include "weft/io/text.h"

namespace weft::train {

struct AdditionOptions {
  int digits = 3;          // of the longest numbers; 1 to 4
  bool reversed = false;   // the answer's digits from the last to the first: far easier to learn
  double held_out = 0.01;  // the part of all sums that is for testing
  int64_t size = 100'000;  // samples in an epoch of training; the most sums to test
};

// Thirteen characters: '\n', '+', the digits, '='.
io::Vocabulary addition_vocabulary();
// Characters of a sample: inputs and labels are one fewer.
int64_t addition_length(const AdditionOptions& options);
// "a+b=" and its answer with the end of line.
std::string addition_question(int64_t a, int64_t b, const AdditionOptions& options);
std::string addition_answer(int64_t a, int64_t b, const AdditionOptions& options);
bool addition_held_out(int64_t a, int64_t b, const AdditionOptions& options);

// Inputs i64 [length - 1], labels i64 [length - 1] the next characters; only those of the answer
// and its end of line count, the others are data::ignored_label. Training: random sums, none held
// out; short numbers come more often than by chance. Testing: held-out sums, the same in every
// epoch.
std::shared_ptr<const data::Source> addition_train(const AdditionOptions& options = {});
std::shared_ptr<const data::Source> addition_test(const AdditionOptions& options = {});

}  // namespace weft::train
