"""Small training models of every family that weft's backend of PyTorch is tested with.

MODELS has an Entry for each name; Entry.make() returns a Case: a module with random weights, the
arguments of a call, and the loss of its output. Nothing is downloaded, and a step takes well below
a second. The groups say what a model needs: `small` and `own` have torch alone, the others the
package of their name.
"""

import collections
import importlib
import importlib.util
import math

import media  # noqa: F401  (before anything imports torchvision or torchaudio)
import torch
from torch import nn
from torch.nn import functional as F

Case = collections.namedtuple("Case", "module args kwargs loss")
Entry = collections.namedtuple("Entry", "name group make")
PACKAGES = {
    "vision": "torchvision", "audio": "torchaudio", "timm": "timm", "transformers": "transformers"}
MODELS = {}


def model(group):
    """Registers a function that returns a Case, under the function's name."""

    def register(function):
        add(function.__name__, group, function)
        return function

    return register


def add(name, group, make):
    assert name not in MODELS, f"two models {name}"
    MODELS[name] = Entry(name, group, make)


def missing_package(entry):
    """Returns the package that a model needs and that is not installed, else None."""
    package = PACKAGES.get(entry.group)
    return package if package and importlib.util.find_spec(package) is None else None


def without_dropout(module):
    """Sets every rate of dropout, of dropped paths and of dropped layers to 0, and returns it."""
    for each in module.modules():
        holders = [each] + [c for c in [getattr(each, "config", None)] if c is not None]
        for holder in holders:
            for name, value in list(vars(holder).items()):
                if isinstance(value, float) and (name == "p" or "drop" in name):
                    setattr(holder, name, 0.0)
    return module


# ---- batches and losses
def image(batch, channels, size):
    return torch.randn(batch, channels, size, size)


def labels(batch, classes=10):
    return torch.randint(0, classes, (batch,))


def tokens(batch=2, length=16, most=128):
    """Returns ids [batch, length] that are none of the special tokens 0, 1 and 2."""
    return torch.randint(3, most, (batch, length))


def cross_entropy(target):
    return lambda output: F.cross_entropy(output, target)


def loss_of(output):
    """Returns the loss that models of transformers compute themselves."""
    return output.loss


def itself(output):
    return output


def classifier(module, batch, size, channels=3, classes=10):
    """Returns the case of a module that classifies square images."""
    return Case(module, (image(batch, channels, size),), {}, cross_entropy(labels(batch, classes)))


# ---- small: what a tutorial has
@model("small")
def mlp():
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    return classifier(module, 32, 28, channels=1)


@model("small")
def lenet():
    module = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return classifier(module, 8, 28, channels=1)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs))
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x), inplace=True)


@model("small")
def resnet_small():
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), Residual(8, 16, 2), Residual(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return classifier(module, 8, 16)


class Recurrent(nn.Module):
    """A classifier of sequences of ids: embedding, a recurrent net over time, mean, and head."""

    def __init__(self, kind, **options):
        super().__init__()
        self.embedding = nn.Embedding(100, 32, padding_idx=0)
        self.net = kind(32, 48, batch_first=True, **options)
        self.head = nn.Linear(96 if options.get("bidirectional") else 48, 4)

    def forward(self, ids):
        output, _ = self.net(self.embedding(ids))
        return self.head(output.mean(1))


def recurrent(kind, **options):
    ids = torch.randint(0, 100, (4, 12))
    return Case(Recurrent(kind, **options), (ids,), {}, cross_entropy(labels(4, 4)))


@model("small")
def lstm_classifier():
    return recurrent(nn.LSTM, num_layers=2, dropout=0.1, bidirectional=True)


@model("small")
def gru_classifier():
    return recurrent(nn.GRU)


@model("small")
def conv3d():
    module = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1), nn.InstanceNorm3d(4, affine=True), nn.ELU(),
        nn.MaxPool3d(2), nn.Conv3d(4, 8, 3, padding=1), nn.BatchNorm3d(8), nn.Hardswish(),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 3))
    return Case(module, (torch.randn(2, 1, 8, 8, 8),), {}, cross_entropy(labels(2, 3)))


class SmallTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(32, 4)

    def forward(self, ids):
        hidden = self.encoder(self.embedding(ids), src_key_padding_mask=(ids == 0))
        return self.head(hidden.mean(1))


@model("small")
def torch_transformer():
    ids = torch.randint(0, 100, (4, 12))
    return Case(SmallTransformer(), (ids,), {}, cross_entropy(labels(4, 4)))


# ---- vision: torchvision's nets by name, as published but for their classes
# Batches are as large as batch norm needs: of two images it computes with few values a channel,
# whose rounding it multiplies at every layer.
def vision_net(name, batch, size, **options):
    models = importlib.import_module("torchvision.models")
    return classifier(getattr(models, name)(num_classes=10, **options), batch, size)


VISION = {  # name to torchvision's name, batch, size of the images, and options
    "resnet18": ("resnet18", 8, 32, {}),
    "resnet50": ("resnet50", 8, 64, {}),
    "mobilenet_v2": ("mobilenet_v2", 8, 64, {}),
    "mobilenet_v3": ("mobilenet_v3_small", 8, 64, {}),
    "efficientnet_b0": ("efficientnet_b0", 8, 64, {}),
    "mnasnet": ("mnasnet0_5", 8, 64, {}),
    "squeezenet": ("squeezenet1_1", 2, 64, {}),
    "shufflenet_v2": ("shufflenet_v2_x0_5", 8, 64, {}),
    "googlenet": ("googlenet", 8, 64, {"aux_logits": False, "init_weights": False}),
}
for _name, (_published, _batch, _size, _options) in VISION.items():
    add(_name, "vision",
        lambda p=_published, b=_batch, s=_size, o=_options: vision_net(p, b, s, **o))


def shallow_resnet(**options):
    from torchvision.models.resnet import Bottleneck, ResNet

    return classifier(ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, **options), 8, 32)


@model("vision")
def wide_resnet():
    return shallow_resnet(width_per_group=128)


@model("vision")
def resnext():
    return shallow_resnet(groups=32, width_per_group=4)


def small_head(name, features, batch, size):
    """Returns an early net with a small head: its own has 50 million weights or more."""
    models = importlib.import_module("torchvision.models")
    module = getattr(models, name)()
    module.avgpool = nn.AdaptiveAvgPool2d(1)
    module.classifier = nn.Sequential(
        nn.Linear(features, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, 10))
    return classifier(module, batch, size)


@model("vision")
def vgg11_bn():
    return small_head("vgg11_bn", 512, 8, 32)


@model("vision")
def alexnet():
    return small_head("alexnet", 256, 2, 64)


@model("vision")
def densenet():
    from torchvision.models import DenseNet

    module = DenseNet(
        growth_rate=16, block_config=(3, 4, 4, 3), num_init_features=32, num_classes=10)
    return classifier(module, 8, 64)


@model("vision")
def vit():
    from torchvision.models import VisionTransformer

    module = VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128,
        num_classes=10, dropout=0.1)
    return classifier(module, 2, 32)


@model("vision")
def lraspp():
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    module = lraspp_mobilenet_v3_large(num_classes=5, weights=None, weights_backbone=None)
    target = torch.randint(0, 5, (4, 64, 64))
    return Case(
        module, (image(4, 3, 64),), {},
        lambda output: F.cross_entropy(output["out"], target, ignore_index=4))


# ---- audio: torchaudio's nets, with few and narrow layers
def audio_net(name, **options):
    return getattr(importlib.import_module("torchaudio.models"), name)(**options)


@model("audio")
def conformer():
    module = audio_net(
        "Conformer", input_dim=32, num_heads=4, ffn_dim=64, num_layers=2,
        depthwise_conv_kernel_size=7)
    target = torch.randn(3, 12, 32)
    return Case(
        module, (torch.randn(3, 12, 32), torch.tensor([12, 10, 7])), {},
        lambda output: F.mse_loss(output[0], target))


@model("audio")
def emformer():
    module = audio_net(
        "Emformer", input_dim=32, num_heads=4, ffn_dim=64, num_layers=2, segment_length=4,
        left_context_length=4, right_context_length=1, max_memory_size=2)
    target = torch.randn(1, 12, 32)  # of one sequence, as more read their longest length by item()
    return Case(
        module, (torch.randn(1, 13, 32), torch.tensor([12])), {},
        lambda output: F.mse_loss(output[0], target))


@model("audio")
def conv_tasnet():
    module = audio_net(
        "ConvTasNet", enc_num_feats=32, msk_num_feats=16, msk_num_hidden_feats=32,
        msk_num_layers=2, msk_num_stacks=2)
    target = torch.randn(2, 2, 400)
    return Case(
        module, (torch.randn(2, 1, 400),), {}, lambda output: F.mse_loss(output, target))


@model("audio")
def deepspeech():
    module = audio_net("DeepSpeech", n_feature=16, n_hidden=32, n_class=10)
    target = labels(24)
    return Case(
        module, (torch.randn(2, 1, 12, 16),), {},
        lambda output: F.nll_loss(output.flatten(0, 1), target))


@model("audio")
def wav2letter():
    module = audio_net("Wav2Letter", num_classes=10, input_type="mfcc", num_features=13)
    target = labels(2 * 21).view(2, 21)
    return Case(
        module, (torch.randn(2, 13, 40),), {}, lambda output: F.nll_loss(output, target))


@model("audio")
def wavernn():
    module = audio_net(
        "WaveRNN", upsample_scales=[2, 2], n_classes=16, hop_length=4, n_res_block=2, n_rnn=32,
        n_fc=32, n_freq=16, n_hidden=16, n_output=16)
    target = labels(2 * 12, 16)
    return Case(
        module, (torch.randn(2, 1, 12), torch.randn(2, 1, 16, 7)), {},
        lambda output: F.cross_entropy(output.flatten(0, 2), target))


@model("audio")
def wav2vec2_audio():
    module = audio_net(
        "wav2vec2_model", extractor_mode="layer_norm",
        extractor_conv_layer_config=[(32, 10, 5), (32, 3, 2), (32, 3, 2)],
        extractor_conv_bias=True, encoder_embed_dim=64, encoder_projection_dropout=0.1,
        encoder_pos_conv_kernel=16, encoder_pos_conv_groups=4, encoder_num_layers=2,
        encoder_num_heads=4, encoder_attention_dropout=0.1, encoder_ff_interm_features=128,
        encoder_ff_interm_dropout=0.1, encoder_dropout=0.1, encoder_layer_norm_first=True,
        encoder_layer_drop=0.0, aux_num_out=10)
    target = labels(2)
    return Case(
        module, (torch.randn(2, 800),), {},
        lambda output: F.cross_entropy(output[0].mean(1), target))


# ---- timm: nets by name, with few and narrow layers
def timm_net(name, batch, size, **options):
    create = importlib.import_module("timm").create_model
    return classifier(create(name, num_classes=10, **options), batch, size)


TIMM = {  # name to timm's name, batch, size of the images, and options
    "convnext": ("convnext_atto", 2, 64, {
        "depths": (1, 1, 2, 1), "drop_path_rate": 0.1}),
    "swin": ("swin_tiny_patch4_window7_224", 2, 56, {
        "img_size": 56, "window_size": 7, "embed_dim": 24, "depths": (1, 2),
        "num_heads": (2, 4)}),
    "deit3": ("deit3_small_patch16_224", 2, 64, {
        "img_size": 64, "depth": 2, "embed_dim": 64, "num_heads": 4, "drop_path_rate": 0.1}),
    "efficientnet_lite": ("efficientnet_lite0", 8, 64, {}),
    "resnetv2": ("resnetv2_50", 8, 64, {"layers": [1, 1, 1, 1], "channels": (32, 64, 128, 128)}),
    "levit": ("levit_128s", 8, 64, {
        "img_size": 64, "embed_dim": (32, 48), "num_heads": (2, 3), "depth": (1, 1),
        "distilled": False}),
    "xcit": ("xcit_nano_12_p16_224", 4, 64, {
        "img_size": 64, "embed_dim": 64, "depth": 2, "num_heads": 4}),
    "tiny_vit": ("tiny_vit_5m_224", 4, 64, {
        "embed_dims": [32, 32, 64, 64], "depths": [1, 1, 2, 1], "num_heads": [1, 2, 2, 4],
        "window_sizes": [7, 7, 4, 2]}),
}
for _name, (_published, _batch, _size, _options) in TIMM.items():
    add(_name, "timm",
        lambda p=_published, b=_batch, s=_size, o=_options: timm_net(p, b, s, **o))


@model("timm")
def mixer():
    from timm.models.mlp_mixer import MlpMixer

    module = MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=64)
    return classifier(module, 2, 32)


@model("timm")
def poolformer():
    from timm.models.metaformer import GroupNorm1, MetaFormer

    module = MetaFormer(
        depths=(1, 1, 1, 1), dims=(16, 32, 48, 64), downsample_norm=None, mlp_act=nn.GELU,
        mlp_bias=True, norm_layers=GroupNorm1, layer_scale_init_values=1e-5,
        res_scale_init_values=None, use_mlp_head=False, num_classes=10)
    return classifier(module, 2, 64)


@model("timm")
def regnet():
    from timm.models.regnet import RegNet, RegNetCfg

    config = RegNetCfg(w0=24, wa=36.44, wm=2.49, group_size=8, depth=13, se_ratio=0.25)
    return classifier(RegNet(config, num_classes=10), 4, 64)


@model("timm")
def coatnet():
    from timm.models.maxxvit import MaxxVit, MaxxVitCfg

    config = MaxxVitCfg(
        embed_dim=(32, 32, 64, 64), depths=(1, 1, 1, 1), block_type=("C", "C", "T", "T"),
        stem_width=16)
    return classifier(MaxxVit(config, img_size=64, num_classes=10), 8, 64)


@model("timm")
def maxvit():
    from timm.models.maxxvit import MaxxVit, MaxxVitCfg, MaxxVitTransformerCfg

    config = MaxxVitCfg(
        embed_dim=(32, 64), depths=(1, 1), block_type=("M", "M"), stem_width=16,
        transformer_cfg=MaxxVitTransformerCfg(window_size=(4, 4), grid_size=(4, 4)))
    return classifier(MaxxVit(config, img_size=64, num_classes=10), 4, 64)


# ---- transformers
def built(kind, config, **options):
    transformers = importlib.import_module("transformers")
    return getattr(transformers, kind)(getattr(transformers, config)(**options))


SHORT = {  # options under the names that most configurations of transformers have
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {**SHORT, **SPECIAL, "use_cache": False}
GROUPED = {**DECODER, "num_key_value_heads": 2}

# Language models that predict the next token: name to model, configuration, and its options.
CAUSAL = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {
        "vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64,
        "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 16}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": 8}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {
        **GROUPED, "head_dim": 16, "sliding_window": 8}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {
        **GROUPED, "head_dim": 16, "sliding_window": 8}),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", GROUPED),
    "phi": ("PhiForCausalLM", "PhiConfig", DECODER),
    "falcon": ("FalconForCausalLM", "FalconConfig", {
        **DECODER, "new_decoder_architecture": False, "multi_query": True}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", DECODER),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {
        "vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64,
        "rotary_dim": 8, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}),
    "opt": ("OPTForCausalLM", "OPTConfig", {
        **DECODER, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    "bloom": ("BloomForCausalLM", "BloomConfig", {
        "vocab_size": 128, "hidden_size": 64, "n_layer": 2, "n_head": 4, "use_cache": False,
        **SPECIAL}),
    "mamba": ("MambaForCausalLM", "MambaConfig", {
        "vocab_size": 128, "hidden_size": 64, "state_size": 8, "num_hidden_layers": 2,
        "use_cache": False}),
    "mixtral_moe": ("MixtralForCausalLM", "MixtralConfig", {
        **GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2,
        "output_router_logits": True}),
}


def causal(kind, config, options):
    ids = tokens()
    given = {"input_ids": ids, "labels": ids.clone()}
    if kind != "MambaForCausalLM":  # which has no attention to mask
        given["attention_mask"] = torch.ones_like(ids)
    return Case(built(kind, config, **options), (), given, loss_of)


# Encoders with a classifier behind them.
ENCODERS = {
    "bert": ("BertForSequenceClassification", "BertConfig", SHORT),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", {**SHORT, **SPECIAL}),
    "albert": ("AlbertForSequenceClassification", "AlbertConfig", {
        **SHORT, "embedding_size": 32}),
    "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig", {
        "vocab_size": 128, "dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4,
        "max_position_embeddings": 64}),
    "electra": ("ElectraForSequenceClassification", "ElectraConfig", {
        **SHORT, "embedding_size": 32}),
    "xlnet": ("XLNetForSequenceClassification", "XLNetConfig", {
        "vocab_size": 128, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128,
        "summary_type": "last"}),
    "deberta_v3": ("DebertaV2ForSequenceClassification", "DebertaV2Config", {
        **SHORT, "relative_attention": True, "position_buckets": 8,
        "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "type_vocab_size": 0}),
    "longformer": ("LongformerForSequenceClassification", "LongformerConfig", {
        **SHORT, **SPECIAL, "attention_window": 8}),
    "big_bird": ("BigBirdForSequenceClassification", "BigBirdConfig", {
        **SHORT, "attention_type": "original_full"}),
}


def encoder(kind, config, options):
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[0, 10:] = 0
    given = {"input_ids": ids, "attention_mask": mask, "labels": labels(2, 2)}
    return Case(built(kind, config, **options), (), given, loss_of)


# Encoders with a decoder.
BOTH = {
    "vocab_size": 128, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128, "decoder_start_token_id": 1, "use_cache": False, **SPECIAL,
}
TRANSLATORS = {
    "t5": ("T5ForConditionalGeneration", "T5Config", {
        "vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2,
        "num_heads": 4, "decoder_start_token_id": 0, "use_cache": False}),
    "bart": ("BartForConditionalGeneration", "BartConfig", {
        **BOTH, "max_position_embeddings": 64}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", {
        **BOTH, "max_position_embeddings": 64}),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", {
        **BOTH, "max_position_embeddings": 64}),
}


def translator(kind, config, options):
    ids = tokens()
    given = {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, :8].clone()}
    return Case(built(kind, config, **options), (), given, loss_of)


# Classifiers of images.
PATCHED = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "image_size": 32, "patch_size": 8,
}
IMAGES = {
    "vit_hf": ("ViTForImageClassification", "ViTConfig", PATCHED),
    "deit_hf": ("DeiTForImageClassification", "DeiTConfig", PATCHED),
    "beit": ("BeitForImageClassification", "BeitConfig", {
        **PATCHED, "use_relative_position_bias": True}),
}


def image_classifier(kind, config, options):
    given = {"pixel_values": image(2, 3, 32), "labels": labels(2, 2)}
    return Case(built(kind, config, **options), (), given, loss_of)


# Encoders of sound.
SOUND = {
    "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "conv_dim": (32, 32, 32), "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3), "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0, "layerdrop": 0.0,
    "classifier_proj_size": 32,
}
SOUNDS = {
    "wav2vec2": ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", SOUND),
    "hubert": ("HubertForSequenceClassification", "HubertConfig", SOUND),
}


def sound_classifier(kind, config, options):
    given = {"input_values": torch.randn(2, 800), "labels": labels(2, 2)}
    return Case(built(kind, config, **options), (), given, loss_of)


for _table, _make in ((CAUSAL, causal), (ENCODERS, encoder), (TRANSLATORS, translator),
                      (IMAGES, image_classifier), (SOUNDS, sound_classifier)):
    for _name, _described in _table.items():
        add(_name, "transformers", lambda m=_make, d=_described: m(*d))


@model("transformers")
def bert_mlm():
    ids = tokens()
    target = ids.clone()
    target[:, ::2] = -100
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": target}
    return Case(built("BertForMaskedLM", "BertConfig", **SHORT), (), given, loss_of)


@model("transformers")
def wav2vec2_ctc():
    module = built("Wav2Vec2ForCTC", "Wav2Vec2Config", **SOUND)
    target = torch.randint(1, 32, (2, 6))
    return Case(module, (), {"input_values": torch.randn(2, 800), "labels": target}, loss_of)


@model("transformers")
def whisper():
    module = built(
        "WhisperForConditionalGeneration", "WhisperConfig", **BOTH, num_mel_bins=16,
        max_source_positions=50, max_target_positions=32)
    given = {"input_features": torch.randn(2, 16, 100), "labels": tokens(2, 8)}
    return Case(module, (), given, loss_of)


@model("transformers")
def clip():
    text = {**SHORT, **SPECIAL, "max_position_embeddings": 32}
    module = built(
        "CLIPModel", "CLIPConfig", text_config=text, vision_config=PATCHED, projection_dim=32)
    ids = tokens(2, 12)
    ids[:, -1] = 2  # the end, whose place the text's feature is read at
    given = {"input_ids": ids, "pixel_values": image(2, 3, 32),
             "attention_mask": torch.ones_like(ids), "return_loss": True}
    return Case(module, (), given, loss_of)


@model("transformers")
def vit_mae():
    module = built(
        "ViTMAEForPreTraining", "ViTMAEConfig", **PATCHED, decoder_num_attention_heads=4,
        decoder_hidden_size=64, decoder_num_hidden_layers=1, decoder_intermediate_size=128)
    given = {"pixel_values": image(2, 3, 32), "noise": torch.rand(2, 16)}  # chooses the patches
    return Case(module, (), given, loss_of)


@model("transformers")
def segformer():
    module = built(
        "SegformerForSemanticSegmentation", "SegformerConfig", num_encoder_blocks=2,
        depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3],
        strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=32,
        num_labels=5)
    given = {"pixel_values": image(4, 3, 32), "labels": torch.randint(0, 5, (4, 32, 32))}
    return Case(module, (), given, loss_of)


# ---- own: what a program writes itself
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.down3 = self.block(3, 8), self.block(8, 16), self.block(16, 16)
        self.up = nn.ConvTranspose2d(16, 16, 2, 2)
        self.up1, self.up2 = self.block(32, 8), self.block(16, 8)
        self.head = nn.Conv2d(8, 1, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.1))

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.down3(F.max_pool2d(b, 2))
        d = self.up1(torch.cat([b, self.up(c)], 1))
        u = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.up2(torch.cat([a, u], 1)))


@model("own")
def unet():
    target = torch.randint(0, 2, (2, 1, 32, 32)).float()
    return Case(
        UNet(), (image(2, 3, 32),), {},
        lambda output: F.binary_cross_entropy_with_logits(output, target))


class CausalBlock(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.mlp(self.norm2(x))


class NanoGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(128, 64), nn.Embedding(32, 64)
        self.blocks = nn.ModuleList([CausalBlock(), CausalBlock()])
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 128, bias=False)
        self.embedding.weight = self.head.weight

    def forward(self, ids, target):
        h = self.embedding(ids) + self.positions(torch.arange(ids.size(1)))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.view(-1, 128), target.view(-1), ignore_index=-1)


@model("own")
def nanogpt():
    ids = torch.randint(0, 128, (2, 32))
    return Case(NanoGPT(), (ids, ids.roll(-1, 1)), {}, itself)


class DiTBlock(nn.Module):
    """Attention and a multilayer perceptron, both shifted, scaled and gated by a condition."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c):
        batch, length, width = x.shape
        parts = self.condition(c).unsqueeze(1).chunk(6, 2)
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        h = self.norm1(x) * (1 + scale1) + shift1
        qkv = self.qkv(h).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + gate1 * self.out(h)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


def sinusoids(t, width, longest=10000):
    """Maps times t[B] to [B, width]: cosines, then sines, of geometric frequencies."""
    half = width // 2
    frequencies = torch.exp(-math.log(longest) * torch.arange(half, dtype=torch.float32) / half)
    angles = t[:, None].float() * frequencies[None]
    return torch.cat([angles.cos(), angles.sin()], -1)


class DiT(nn.Module):
    """A diffusion transformer over 8 x 8 patches, which drops a tenth of the labels."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(4, 64, 2, 2)
        self.positions = nn.Parameter(torch.zeros(1, 64, 64))
        self.classes = nn.Embedding(11, 64)
        self.time = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64))
        self.blocks = nn.ModuleList([DiTBlock(), DiTBlock()])
        self.head, self.drop_rate = nn.Linear(64, 16), 0.1

    def forward(self, x, t, y):
        h = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        drops = torch.rand(y.shape[0]) < self.drop_rate
        c = self.time(sinusoids(t, 64)) + self.classes(torch.where(drops, 10, y))
        for block in self.blocks:
            h = block(h, c)
        h = self.head(h).reshape(-1, 8, 8, 2, 2, 4)
        return torch.einsum("nhwpqc->nchpwq", h).reshape(-1, 4, 16, 16)


@model("own")
def dit():
    noise = torch.randn(2, 4, 16, 16)
    args = torch.randn(2, 4, 16, 16), torch.randint(0, 1000, (2,)), torch.randint(0, 10, (2,))
    return Case(DiT(), args, {}, lambda output: F.mse_loss(output, noise))


class TimedResidual(nn.Module):
    def __init__(self, inputs, outputs, time=64):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.dropout = nn.Linear(time, outputs), nn.Dropout(0.1)
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(self.dropout(F.silu(self.norm2(h))))


class SpatialAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.out = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(self.norm(x).view(batch, channels, -1)).chunk(3, 1)
        weights = torch.softmax(torch.bmm(q.transpose(1, 2), k) / channels**0.5, -1)
        y = self.out(torch.bmm(v, weights.transpose(1, 2)))
        return x + y.view(batch, channels, height, width)


class DiffusionUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
        self.down, self.up = nn.Conv2d(32, 64, 3, 2, 1), nn.Upsample(scale_factor=2)
        self.block1, self.block2 = TimedResidual(32, 32), TimedResidual(64, 64)
        self.block3 = TimedResidual(96, 32)
        self.attention = SpatialAttention(64)

    def forward(self, x, t):
        t = sinusoids(t, 64)
        h = self.block1(self.first(x), t)
        middle = self.attention(self.block2(self.down(h), t))
        return self.last(self.block3(torch.cat([self.up(middle), h], 1), t))


@model("own")
def diffusion_unet():
    noise = torch.randn(2, 3, 16, 16)
    return Case(
        DiffusionUNet(), (torch.randn(2, 3, 16, 16), torch.rand(2)), {},
        lambda output: F.mse_loss(output, noise))


class GCN(nn.Module):
    """A graph convolutional network over edges [2, E] from a source to a destination."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    @staticmethod
    def propagate(x, edges):
        source, destination = edges
        ones = torch.ones(destination.size(0))
        degree = torch.zeros(x.size(0)).scatter_add_(0, destination, ones).clamp(min=1)
        weight = (degree[source] * degree[destination]).rsqrt()
        return torch.zeros_like(x).index_add_(0, destination, x[source] * weight[:, None])

    def forward(self, x, edges):
        h = F.relu(self.first(self.propagate(x, edges)))
        return self.second(self.propagate(h, edges))


class GAT(nn.Module):
    """A graph attention network, with a softmax over the edges into each node."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(16, 32), nn.Linear(32, 4)
        self.a, self.b = nn.Parameter(torch.randn(32)), nn.Parameter(torch.randn(32))

    def forward(self, x, edges):
        source, destination = edges
        h, nodes = self.first(x), x.size(0)
        scores = (h * self.a).sum(-1)[source] + (h * self.b).sum(-1)[destination]
        scores = F.leaky_relu(scores, 0.2)
        most = torch.full((nodes,), -1e9).scatter_reduce(0, destination, scores, "amax")
        weights = torch.exp(scores - most[destination])
        total = torch.zeros(nodes).index_add(0, destination, weights)
        weights = weights / total[destination].clamp(min=1e-9)
        into = destination[:, None].expand(-1, 32)
        return self.head(
            F.elu(torch.zeros_like(h).scatter_add(0, into, h[source] * weights[:, None])))


def graph_net(module):
    edges = torch.randint(0, 40, (2, 200))
    return Case(module, (torch.randn(40, 16), edges), {}, cross_entropy(labels(40, 4)))


@model("own")
def gnn_gcn():
    return graph_net(GCN())


@model("own")
def gnn_gat():
    return graph_net(GAT())


class TabTransformer(nn.Module):
    """Columns of categories [B, 3], a bag of tags [B, 4] and numbers [B, 5]."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 16, mode="mean")
        self.columns = nn.ModuleList([nn.Embedding(7, 16) for _ in range(3)])
        layer = nn.TransformerEncoderLayer(
            16, 2, 32, batch_first=True, activation="gelu", norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.norm = nn.BatchNorm1d(5)
        self.head = nn.Linear(16 * 4 + 5, 1)

    def forward(self, categories, tags, numbers):
        columns = [column(categories[:, i]) for i, column in enumerate(self.columns)]
        h = self.encoder(torch.stack(columns + [self.bag(tags)], 1)).flatten(1)
        return self.head(torch.cat([h, self.norm(numbers)], 1)).squeeze(-1)


@model("own")
def tab_transformer():
    target = torch.rand(6)
    args = torch.randint(0, 7, (6, 3)), torch.randint(0, 50, (6, 4)), torch.randn(6, 5)
    return Case(TabTransformer(), args, {}, lambda output: F.huber_loss(output, target))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 4, 2, 1), nn.ReLU(),
            nn.Flatten())
        self.mean, self.log_variance = nn.Linear(784, 8), nn.Linear(784, 8)
        self.rows = nn.Linear(8, 784)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, x, noise):  # which it is given, as weft's own is another than torch's
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + noise * torch.exp(0.5 * log_variance)
        y = torch.sigmoid(self.decoder(F.relu(self.rows(z)).view(-1, 16, 7, 7)))
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return F.binary_cross_entropy(y, x, reduction="sum") + divergence


@model("own")
def vae():
    args = torch.rand(4, 1, 28, 28), torch.randn(4, 8)
    return Case(VAE(), args, {}, lambda output: output / 4 / 784)


class GAN(nn.Module):
    """Both losses at once; the discriminator's last layer has spectral norm."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
            nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.utils.parametrizations.spectral_norm(nn.Conv2d(16, 1, 4)), nn.Flatten())

    def forward(self, z, x):
        made, judge = self.generator(z), self.discriminator
        of_judge = F.softplus(-judge(x)).mean() + F.softplus(judge(made.detach())).mean()
        return of_judge + F.softplus(-judge(made)).mean()


@model("own")
def gan():
    return Case(GAN(), (torch.randn(4, 16, 1, 1), image(4, 3, 8)), {}, itself)


class DenseMixture(nn.Module):
    """Computes all experts, and weighs the outputs of the two that the router chose."""

    def __init__(self, width=32, experts=4):
        super().__init__()
        self.router, self.head = nn.Linear(width, experts), nn.Linear(width, 4)
        self.first = nn.Parameter(torch.randn(experts, width, 64) * 0.1)
        self.second = nn.Parameter(torch.randn(experts, 64, width) * 0.1)

    def forward(self, x):
        p = F.softmax(self.router(x), -1)
        weight, chosen = p.topk(2, -1)
        gates = torch.zeros_like(p).scatter(1, chosen, weight / weight.sum(-1, keepdim=True))
        h = F.silu(torch.einsum("nc,ech->neh", x, self.first))
        y = torch.einsum("neh,ehc->nec", h, self.second)
        load = F.one_hot(chosen[:, 0], 4).float().mean(0)
        return self.head((y * gates[..., None]).sum(1)), (load * p.mean(0)).sum()


@model("own")
def moe_dense():
    target = labels(24, 4)
    return Case(
        DenseMixture(), (torch.randn(24, 32),), {},
        lambda output: F.cross_entropy(output[0], target) + 0.01 * output[1])


class DLRM(nn.Module):
    """A recommender: numbers [B, 4], bags of ids, and the products of all pairs of features."""

    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
        self.bags = nn.ModuleList([nn.EmbeddingBag(20, 16, mode="sum") for _ in range(3)])
        self.top = nn.Sequential(nn.Linear(16 + 6, 8), nn.ReLU(), nn.Linear(8, 1))
        self.register_buffer("pairs", torch.tril_indices(4, 4, -1))

    def forward(self, numbers, ids, offsets):
        dense = self.bottom(numbers)
        bags = [bag(ids[i], offsets) for i, bag in enumerate(self.bags)]
        features = torch.stack([dense] + bags, 1)
        products = torch.bmm(features, features.transpose(1, 2))
        pairs = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, pairs], 1))


@model("own")
def dlrm():
    target = torch.rand(6, 1).round()
    args = torch.randn(6, 4), torch.randint(0, 20, (3, 12)), torch.arange(0, 12, 2)
    return Case(
        DLRM(), args, {}, lambda output: F.binary_cross_entropy_with_logits(output, target))


class Policy(nn.Module):
    """The loss of proximal policy optimization: clipped ratio, value and entropy."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, x, action, old, advantage, returns):
        h = self.body(x)
        log_p = F.log_softmax(self.policy(h), -1)
        ratio = torch.exp(log_p.gather(1, action[:, None]).squeeze(1) - old)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(log_p * log_p.exp()).sum(-1).mean()
        of_value = F.smooth_l1_loss(self.value(h).squeeze(-1), returns)
        return -gain + 0.5 * of_value - 0.01 * entropy


@model("own")
def ppo_policy():
    args = torch.randn(16, 8), labels(16, 4), *(torch.randn(16) for _ in range(3))
    return Case(Policy(), args, {}, itself)


class TCN(nn.Module):
    """Dilated causal convolutions [B, 8, T] with weight norm."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([
            nn.utils.parametrizations.weight_norm(
                nn.Conv1d(8, 8, 3, padding=2 * 2**i, dilation=2**i))
            for i in range(3)])
        self.head, self.activation = nn.Linear(8, 4), nn.PReLU()

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            x = self.activation(conv(x)[..., : -2 * 2**i]) + x
        return self.head(x.amax(-1))


@model("own")
def conv1d_tcn():
    return Case(TCN(), (torch.randn(4, 8, 20),), {}, cross_entropy(labels(4, 4)))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, anchor, positive, negative):
        a, p, n = (F.normalize(self.net(x), dim=-1) for x in (anchor, positive, negative))
        near = (1 - F.cosine_similarity(a, p)).mean()
        return F.triplet_margin_loss(a, p, n) + near + torch.cdist(a, n).mean() * 0.1


@model("own")
def siamese_triplet():
    return Case(Siamese(), tuple(torch.randn(4, 16) for _ in range(3)), {}, itself)
