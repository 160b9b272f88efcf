// Declares a synthetic task: sums, spelled out as "123+045=168\n" and padded with '\n' to one
// length. Numbers have leading zeros, so that a digit's position gives its place value: without
// them, whether a model learns to align the digits depends on its seed.
//
// A hash of the two numbers, in either order, selects the held-out sums, so that no sum of the test
// set is trained on, not even as b+a.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weft/data/loader.h"
#include "weft/io/text.h"

namespace weft::train {

struct AdditionOptions {
  int digits = 3;          // digits of the longest numbers; 1 to 4
  bool reversed = false;   // the answer begins with its last digit: far easier to learn
  double held_out = 0.01;  // the share of all sums that is for testing
  int64_t size = 100'000;  // samples of a training epoch; at most this many sums for testing
};

// The vocabulary has thirteen characters: '\n', '+', the digits, '='.
io::Vocabulary addition_vocabulary();
// Returns the characters of a sample: inputs and labels have one fewer.
int64_t addition_length(const AdditionOptions& options);
// Return "a+b=", and its answer with the end of line.
std::string addition_question(int64_t a, int64_t b, const AdditionOptions& options);
std::string addition_answer(int64_t a, int64_t b, const AdditionOptions& options);
bool addition_held_out(int64_t a, int64_t b, const AdditionOptions& options);

// Return sources of inputs i64 [length - 1] and labels i64 [length - 1], the next characters; only
// the characters of the answer and its end of line count, the other labels are data::ignored_label.
// Training draws random sums that are not held out, and short numbers more often than uniformly.
// Testing uses held-out sums, the same in every epoch.
std::shared_ptr<const data::Source> addition_train(const AdditionOptions& options = {});
std::shared_ptr<const data::Source> addition_test(const AdditionOptions& options = {});

}  // namespace weft::train
