// Tells the weights that an adapter was trained on from others: the metadata of an adapter's file
// of weights identify its base, and stay with the tensors where the folder is copied in part. PEFT
// reads past them.
#pragma once

#include <string>

#include "weft/io/safetensors.h"
#include "weft/models/model.h"

namespace weft::train {

// Adds two entries to an adapter's metadata: a fingerprint, which is a hash of the names and types
// of the base's tensors and of samples of their bytes and does not depend on the files that hold
// them, and a sample of the tensors' elements, by which a copy of the base in another precision is
// recognized.
void identify_base(io::Metadata& metadata, const std::string& base);

// Compares the base's weights with the weights that an adapter was trained on, if the adapter's
// file identifies them. Adds a note if they are the same in another precision, or if their forms
// cannot be compared (GGUF, weights in blocks). Throws Error(data) if they differ and the folder is
// a checkpoint, which belongs to a run on that base; warns beside any other adapter.
void check_base(const std::string& adapter, const std::string& base);

// Loads the adapter of a folder, PEFT's or a checkpoint's, into the model of the folder `base`, as
// models::load_adapter() does. Throws as that and as check_base().
void load_adapter(Model& model, const std::string& base, const std::string& adapter);

}  // namespace weft::train
