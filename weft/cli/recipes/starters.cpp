#include "weft/cli/recipes/starters.h"

namespace weft::cli {
namespace {
constexpr std::string_view image = R"(# Classifies images. Plan it first:  weft plan image.yaml
# Then train:                         weft train image.yaml
# Every key:                          weft config reference
name: image                # the run's folder: runs/image

model:
  name: cnn                # weft list models; or a net of your own instead:
  # layers:
  #   - conv2d: {out_channels: 32, kernel_size: 3, padding: 1}
  #   - relu
  #   - max_pool2d: {kernel_size: 2}
  #   - flatten
  #   - linear: {out_features: 10}

data:
  dataset: mnist           # mnist, fashion-mnist or cifar10, found in WEFT_DATA_DIR or under path
  # format: idx            # your own files instead of dataset: idx or cifar, in the folder path
  # path: data/mine
  # transforms: [{random_crop: {padding: 4}}, random_horizontal_flip]

optimizer:
  name: adamw
  lr: 1.0e-3
  weight_decay: 0.01

scheduler:
  name: cosine             # from lr down to min_lr
  warmup_ratio: 0.05       # of all steps; or warmup_steps: 100

train:
  epochs: 5
  global_batch_size: 128

eval:
  every: epoch
checkpoint:
  every: 1000
  best: accuracy           # checkpoints/best
log:
  every: 50
)";

constexpr std::string_view text =
    R"(# Trains a character-level language model on a text file. Plan it first:  weft plan text.yaml
# Then train:   weft train text.yaml
# Generate:     weft generate text --prompt 'The '
# Every key:    weft config reference
name: text                 # the run's folder: runs/text

model:
  name: gpt
  config:
    hidden_size: 128
    num_hidden_layers: 4
    num_attention_heads: 4
    dropout: 0.0

data:
  format: text
  path: input.txt          # any UTF-8 file, of some hundred kilobytes or more
  tokenizer: characters    # or bytes
  val_split: 0.1           # the end of the file is held out for evaluation
  seq_len: 64

optimizer:
  name: adamw
  lr: 1.0e-3
  betas: [0.9, 0.99]
  weight_decay: 0.1
  decay: matrices          # biases and norms do not decay

scheduler:
  name: cosine
  warmup_ratio: 0.05       # of all steps; or warmup_steps: 100
  min_lr: 1.0e-4

train:
  steps: 2000
  global_batch_size: 12
  grad_clip: 1.0

eval:
  every: 500
checkpoint:
  every: 500
  best: loss
log:
  every: 100
)";

constexpr std::string_view addition =
    R"(# Learns to add. The examples are generated, so it needs no data. Plan it first:  weft plan addition.yaml
# Then train:   weft train addition.yaml
# And ask:      weft generate addition --prompt '12+34=' --temperature 0 --stop '\n'
#               (which answers 64: the last digit comes first)
# Every key:    weft config reference
name: addition             # the run's folder: runs/addition

model:
  name: gpt
  config:
    hidden_size: 64
    num_hidden_layers: 2
    num_attention_heads: 4

data:
  dataset: addition
  digits: 2                # of the largest numbers
  reversed: true           # answers from the last digit to the first: far easier to learn

optimizer:
  name: adamw
  lr: 3.0e-3
  weight_decay: 0.01

scheduler:
  name: cosine
  warmup_ratio: 0.05       # of all steps; or warmup_steps: 75

train:
  steps: 1500
  global_batch_size: 128
  grad_clip: 1.0

eval:
  every: 250               # accuracy: the share of held-out sums with every digit right
  target: 0.99             # and stop there
checkpoint:
  every: 500
log:
  every: 50
)";

constexpr std::string_view table =
    R"(# Predicts numbers from the other columns of a CSV file. Plan it first:  weft plan table.yaml
# Then train:   weft train table.yaml
# Every key:    weft config reference
name: table                # the run's folder: runs/table
# task: classification     # where the target is a class: a word or a number

model:
  name: mlp                # a linear model: layers: [{linear: {out_features: 1}}]
  config:
    hidden_sizes: [64, 64]

data:
  format: csv
  path: table.csv          # its first line names the columns
  target: price            # the column to predict; several: [price, rent]
  # features: [area, rooms]  # the inputs; else all other columns
  # separator: ';'
  val_split: 0.2           # rows held out for evaluation, drawn at random

loss:
  name: auto               # mse; l1 and huber count outliers less

optimizer:
  name: adamw
  lr: 1.0e-3
  weight_decay: 0.01

scheduler:
  name: cosine
  warmup_ratio: 0.05       # of all steps; or warmup_steps: 100

train:
  epochs: 100
  global_batch_size: 32

eval:
  every: epoch             # r2, mae and rmse, in the target's own unit
checkpoint:
  every: 1000
  best: r2                 # checkpoints/best
log:
  every: 50
)";

constexpr Starter all[] = {
    {"image", "classify images: mnist, cifar10, or files of your own", image},
    {"text", "a language model of a text file", text},
    {"table", "predict a column of a CSV file: numbers, or classes", table},
    {"addition", "a small language model that learns to add; needs no data", addition},
};
}  // namespace

std::span<const Starter> starters() { return all; }

}  // namespace weft::cli
