// Implements `weft plan --as PROGRAM`: estimates a run by formula, on any devices of the catalogue,
// as weft or a common framework would train it.
#pragma once

#include <string>
#include <vector>

#include "weft/cli/estimate/devices_on.h"
#include "weft/cli/estimate/estimate_flags.h"
#include "weft/estimate/choose.h"
#include "weft/train/recipe/recipe.h"

namespace weft::cli {

// A BatchRate is the rate of a batch, in units per second.
struct BatchRate {
  double batch = 0, rate = 0;
};

// A Remedy is a change with which a run fits that does not fit as it was asked for.
struct Remedy {
  std::string text;  // "--method lora"
  estimate::TrainingAnswer answer;
};

// HourPrice is what a device costs for an hour, and who says so: "Lambda, 2026-03".
struct HourPrice {
  double usd = 0;  // 0: not known
  std::string basis;
};

// RunEstimate is a run on some devices: how, how long, and for how much.
struct RunEstimate {
  DevicesOn on;
  estimate::Program program;
  estimate::TrainingAnswers answers;
  double memory_bytes = 0;  // of one device, which a step can use
  double units = 0;         // of an update, over all devices
  std::string unit;         // "tok"
  int64_t updates = 0;      // of the run
  HourPrice price;
  double watts = 0;                // the limit of a device; 0: not known
  int64_t devices_that_fit = 0;    // where these are too few; 0: none were found
  std::vector<Remedy> remedies;    // for these devices, where the run does not fit
  std::vector<BatchRate> batches;  // that fit, up to the largest, where that was asked for
  std::string refusal;             // why nothing is said of these devices
  bool is_known = true;            // the catalogue has the figures that an answer needs

  bool fits() const { return !answers.fitting.empty(); }
  const estimate::TrainingAnswer& best() const { return answers.fitting.front(); }
  double seconds() const { return best().time.seconds * static_cast<double>(updates); }
  double device_hours() const { return seconds() / 3600 * static_cast<double>(on.count); }
};

// Answers for each of these devices, quickest first. With a deadline or a budget, devices without a
// number ("h100") are answered for the number that costs least and keeps both. A single miss has
// its remedies. Throws Error(usage) for an unknown program, a model that estimates do not know, and
// a layout that does not divide it.
std::vector<RunEstimate> estimate_training(const train::Recipe& recipe, const EstimateFlags& flags,
                                           const std::vector<DevicesOn>& devices);

// Returns an estimate in words, then its tables; of several devices, one table that compares them;
// of a single run that does not fit, the table of changes with which it fits.
std::string estimate_text(const std::vector<RunEstimate>& all);
// Returns the sentence that says why a run does not fit.
std::string misfit_text(const RunEstimate& made);
std::string estimate_json(const std::vector<RunEstimate>& all);

}  // namespace weft::cli
