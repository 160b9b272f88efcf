"""Modules: nets as trees of layers, whose parameters have the names and values of C++.

    class Mlp(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = weft.nn.Linear(784, 256)
            self.head = weft.nn.Linear(256, 10)

        def forward(self, x):
            return self.head(weft.relu(self.hidden(x)))

Layers, their options, defaults and initial values are those of weft/nn in C++, which are PyTorch's.
Members register by name, as in PyTorch. A module of C++ knows its full path from its construction
on, and its initial values follow the seed and that path; so a constructor here checks and notes its
arguments, and the whole net is built when it is first used: by a call, parameters(), state().
"""

import contextvars
import inspect
import threading
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from . import _weft
from ._weft import Tensor, Variable, current_seed
from ._weft import _nn
from ._weft._io import Loaded
from ._weft._nn import AttentionMasks, Init, activation_names

__all__ = [
    "Activation", "AttentionMasks", "AvgPool2d", "AvgPool3d", "BatchNorm", "BuildScope", "Buffer",
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "Dropout", "Embedding", "Flatten", "GELU", "GRU", "GlobalAvgPool2d", "GroupNorm", "Init",
    "LSTM", "LayerNorm", "Linear", "MaxPool2d", "MaxPool3d", "Module", "ModuleDict", "ModuleList",
    "MultiheadAttention", "Parameter", "RMSNorm", "ReLU", "SelfAttention", "Sequential", "SiLU",
    "Sigmoid", "SparseMoe", "Tanh", "Transformer", "TransformerDecoder",
    "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
    "activation_names", "add_lora", "merge_lora",
]

_building = threading.RLock()  # modules fill their parameters without the GIL
_options = contextvars.ContextVar("BuildOptions", default=("f32", True, ""))


class BuildScope:
    """with BuildScope(dtype="bf16"): says how modules that are written in it make their variables.

    dtype: of parameters and floating point buffers.
    initialize: False leaves zeros, for plans and for weights from a file.
    root: the path of the root module, which tells the paths of two nets apart.
    """

    def __init__(self, dtype="f32", initialize=True, root="") -> None:
        self._given = dtype, initialize, root

    def __enter__(self) -> "BuildScope":
        self._token = _options.set(self._given)
        return self

    def __exit__(self, *_) -> None:
        _options.reset(self._token)


if TYPE_CHECKING:  # a member that is one of these is a variable from its assignment on
    def Parameter(shape: int | Sequence[int], init: Init = ...) -> Variable: ...
    def Buffer(shape: int | Sequence[int], value: float = 0) -> Variable: ...
else:
    class Parameter:
        """A parameter of the program's module: `self.scale = Parameter((8,), Init.constant(1))`."""

        def __init__(self, shape, init=Init.constant(0)):
            self.shape, self.init = shape, init

        def _make(self, owner, name):
            return owner.parameter(name, self.shape, self.init)

    class Buffer:
        """State that no optimizer updates, as running statistics: `self.mean = Buffer((8,), 0)`."""

        def __init__(self, shape, value=0):
            self.shape, self.value = shape, value

        def _make(self, owner, name):
            return owner.buffer(name, self.shape, self.value)


# What users of PyTorch look for, and where it is.
_HINTS = {
    "eval": ' Hint: weft.compile(mode="eval"), or with weft.ModeScope("eval").',
    "train": " Hint: a step of weft.compile trains unless its mode is eval.",
    "zero_grad": " Hint: weft.grad() returns gradients, and nothing keeps them.",
}


class Module:
    """A net, or a part of one: derive from it, assign members in __init__, and define forward().

    Members are modules, Parameter and Buffer; and variables of other modules, which are shared.
    """

    def __init__(self) -> None:
        self.__dict__.update(_members={}, _parent=None, _native=None,
                             _scope=(*_options.get(), current_seed()))

    # ---- members

    def __setattr__(self, name: str, value: Any) -> None:
        if "_members" not in self.__dict__:
            raise AttributeError(f"super().__init__() comes before {name} is assigned")
        if isinstance(value, (Module, Parameter, Buffer, Variable)):
            self._register(name, value)
        elif name in self._members:
            raise _weft.UsageError(
                f"[module] {name} is a member of {type(self).__name__}, and becomes no "
                f"{type(value).__name__}. Hint: assign() sets the value of a variable.")
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        member = self.__dict__.get("_members", {}).get(name)
        if isinstance(member, (Parameter, Buffer)):
            self._handle()
            member = self._members[name]
        if member is None:
            hint = _HINTS.get(name, "")
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.{hint}")
        return member

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._members]

    def _register(self, name, value):
        former = self._members.get(name)
        if isinstance(former, (Parameter, Buffer, Variable)) and self._native is not None:
            raise _weft.UsageError(f"[module] {name} exists. Hint: assign() sets its value.")
        if isinstance(value, Module):
            if value._parent is not None or value is self:
                raise _weft.UsageError(
                    f"[module] {name}: a module has one place in a net. This "
                    f"{type(value).__name__} has another already. Hint: share its variables.")
            if value._native is not None:
                raise _weft.UsageError(
                    f"[module] {name}: this {type(value).__name__} was used before it became a "
                    "part of the net, and its variables have the names of a net of their own.")
            value.__dict__["_parent"] = self
        if isinstance(former, Module):
            former._release()
            former.__dict__["_parent"] = None
        self._members[name] = value
        if self._native is not None:
            self._attach(name, value)

    # ---- the modules of C++

    def _handle(self):
        """Returns the module of C++, after the whole net was built."""
        with _building:
            if self._native is None and self._parent is not None:
                self._parent._handle()
            if self._native is None:
                try:
                    self._construct(None, "")
                except BaseException:
                    self._release()
                    raise
            return self._native

    def _construct(self, parent, name):
        with _nn.Building(*self._scope):
            self.__dict__["_native"] = self._make(parent, name)
        for key, member in list(self._members.items()):
            self._attach(key, member)

    def _make(self, parent, name):
        return _nn.Net() if parent is None else _nn.Net(parent, name)

    def _attach(self, name, member):
        if isinstance(member, Module):
            member._construct(self._native, name)
        elif isinstance(member, Variable):
            self._native.share(name, member)
        else:
            with _nn.Building(*self._scope):
                self._members[name] = member._make(self._native, name)

    def _release(self):
        for member in self._members.values():
            if isinstance(member, Module):
                member._release()
        self.__dict__["_native"] = None

    # ---- what a net has

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.forward(*inputs, **options)

    @property
    def path(self) -> str:
        """The full path in the net: "blocks.3.attn"; "" for the net itself."""
        return self._handle().path

    def named_parameters(self) -> list[tuple[str, Variable]]:
        """Returns pairs of name and variable of all parameters, with PyTorch's names and order."""
        return self._handle().named_parameters()

    def named_buffers(self) -> list[tuple[str, Variable]]:
        """Returns pairs of name and variable of running statistics."""
        return self._handle().named_buffers()

    def state(self) -> list[tuple[str, Variable]]:
        """Returns pairs of name and variable of parameters and buffers."""
        return self._handle().state()

    def parameters(self) -> list[Variable]:
        """Returns the parameters that are not frozen, for grad() and optimizers."""
        return self._handle().parameters()

    def buffers(self) -> list[Variable]:
        return self._handle().buffers()

    def variables(self) -> list[Variable]:
        """Returns the variables of state()."""
        return self._handle().variables()

    def parameter_count(self) -> int:
        """Returns the number of elements of all parameters."""
        return self._handle().parameter_count()

    def freeze(self, pattern: str = "*") -> None:
        """Freezes the parameters whose names match: freeze("encoder.*"). They get no gradients.

        UsageError: no name matches. An optimizer that exists already keeps its parameters.
        """
        self._handle().freeze(pattern)

    def unfreeze(self, pattern: str = "*") -> None:
        self._handle().unfreeze(pattern)

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the values of parameters and buffers by name, which NumPy and DLPack read.

        They stay as they are while the net trains.
        """
        return {name: variable.value() for name, variable in self.state()}

    def load_state_dict(self, state: Mapping[str, Any], **options: Any) -> Loaded:
        """Sets parameters and buffers to arrays by name: tensors, NumPy's, PyTorch's.

        Options and errors are those of weft.io.load: strict=False, cast=True,
        rename=[("a.*", "*")].
        """
        from .io import load

        return load(self, state, **options)

    def named_children(self) -> list[tuple[str, "Module"]]:
        return [(name, each) for name, each in self._members.items() if isinstance(each, Module)]

    def children(self) -> list["Module"]:
        return [each for _, each in self.named_children()]

    def named_modules(self, prefix: str = "") -> list[tuple[str, "Module"]]:
        """Returns pairs of path and module of this module and all below it."""
        found = [(prefix, self)]
        for name, child in self.named_children():
            found += child.named_modules(f"{prefix}.{name}" if prefix else name)
        return found

    def modules(self) -> list["Module"]:
        return [each for _, each in self.named_modules()]

    def __repr__(self) -> str:
        lines = [f"  ({name}): {child!r}".replace("\n", "\n  ")
                 for name, child in self.named_children()]
        body = "\n" + "\n".join(lines) + "\n" if lines else ""
        return f"{type(self).__name__}({self._described()}{body})"

    def _described(self):
        return ""


# The nets of weft.models, whose modules C++ makes, have the same two methods.
_nn.Module.state_dict = Module.state_dict
_nn.Module.load_state_dict = Module.load_state_dict


def _signature(native):
    """Returns what a constructor takes after the parent and the name, from nanobind's signature."""
    text, _, defaults = native.__init__.__nb_signature__[0]
    parameters = []
    for part in text[text.index("(") + 1:text.rindex(")")].split(", "):
        name, _, rest = part.partition(":")
        if name in ("self", "parent", "name") or not rest:
            continue
        default = inspect.Parameter.empty
        if "\\" in rest:
            default = defaults[int(rest.rpartition("\\")[2])]
        parameters.append(inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    return inspect.Signature(parameters)


class _Layer(Module):
    """A layer of C++, whose class is `native`: what it computes, has and refuses is C++'s."""

    def __init_subclass__(cls, native=None, **rest):
        super().__init_subclass__(**rest)
        if native is not None:
            cls._class = native
            cls._takes = _signature(native)
            cls.__signature__ = cls._takes
        elif "__init__" in cls.__dict__:
            _self, *parameters = inspect.signature(cls.__init__).parameters.values()
            cls.__signature__ = inspect.Signature(parameters)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self.__dict__["_given"] = self._takes.bind(*arguments, **options)
        dtype, _, root, seed = self._scope
        with _nn.Building(dtype, False, root, seed):
            self._class(_nn.Net(), "", *arguments, **options)  # refuses them on the user's line

    def _make(self, parent, name):
        owner = _nn.Net() if parent is None else parent
        return self._class(owner, name, *self._given.args, **self._given.kwargs)

    def __call__(self, *inputs: Any, **options: Any) -> Tensor:
        return self._handle()(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(self._class, name):
            return getattr(self._handle(), name)
        return super().__getattr__(name)

    def _described(self):
        return ", ".join(f"{name}={value!r}" for name, value in self._given.arguments.items())


# ---- layers of one input


class Linear(_Layer, native=_nn.Linear):
    """[..., in_features] -> [..., out_features]. weight [out, in], or [in, out] if transposed."""


class Embedding(_Layer, native=_nn.Embedding):
    """Integers [...] -> [..., embedding_dim]; zeros outside [0, num_embeddings)."""


class Conv1d(_Layer, native=_nn.Conv1d):
    """[B, in, L] -> [B, out, L']."""


class Conv2d(_Layer, native=_nn.Conv2d):
    """[B, in, H, W] -> [B, out, H', W']. Sizes are one number, or one per axis."""


class Conv3d(_Layer, native=_nn.Conv3d):
    """[B, in, D, H, W] -> [B, out, D', H', W']."""


class ConvTranspose1d(_Layer, native=_nn.ConvTranspose1d):
    """[B, in, L] -> [B, out, L']."""


class ConvTranspose2d(_Layer, native=_nn.ConvTranspose2d):
    """[B, in, H, W] -> [B, out, H', W']."""


class ConvTranspose3d(_Layer, native=_nn.ConvTranspose3d):
    """[B, in, D, H, W] -> [B, out, D', H', W']."""


class MaxPool2d(_Layer, native=_nn.MaxPool2d):
    """[B, C, H, W] -> [B, C, H', W']; stride None: the kernel."""


class MaxPool3d(_Layer, native=_nn.MaxPool3d):
    """[B, C, D, H, W] -> [B, C, D', H', W']."""


class AvgPool2d(_Layer, native=_nn.AvgPool2d):
    """[B, C, H, W] -> [B, C, H', W']."""


class AvgPool3d(_Layer, native=_nn.AvgPool3d):
    """[B, C, D, H, W] -> [B, C, D', H', W']."""


class GlobalAvgPool2d(_Layer, native=_nn.GlobalAvgPool2d):
    """[B, C, H, W] -> [B, C, 1, 1]."""


class Flatten(_Layer, native=_nn.Flatten):
    """[B, ...] -> [B, rest]."""


class LayerNorm(_Layer, native=_nn.LayerNorm):
    """Normalizes the last axis, of `features` elements."""


class RMSNorm(_Layer, native=_nn.RMSNorm):
    """Divides the last axis by its root mean square; rows are scaled by weight + offset."""


class GroupNorm(_Layer, native=_nn.GroupNorm):
    """[B, C, ...], over groups of channels."""


class BatchNorm(_Layer, native=_nn.BatchNorm):
    """[B, C, ...]: by the batch's statistics in train mode, by running ones in eval mode."""


class Dropout(_Layer, native=_nn.Dropout):
    """Sets a share p of the elements to 0 in train mode, and scales the others."""


class Activation(_Layer, native=_nn.Activation):
    """A function by its name, one of activation_names()."""

    def _described(self):
        return super()._described() if type(self) is Activation else ""


class ReLU(Activation):
    def __init__(self) -> None:
        super().__init__("relu")


class GELU(Activation):
    def __init__(self) -> None:
        super().__init__("gelu")


class SiLU(Activation):
    def __init__(self) -> None:
        super().__init__("silu")


class Tanh(Activation):
    def __init__(self) -> None:
        super().__init__("tanh")


class Sigmoid(Activation):
    def __init__(self) -> None:
        super().__init__("sigmoid")


# ---- layers of sequences


class LSTM(_Layer, native=_nn.LSTM):
    """[B, T, input_size] -> [B, T, H * directions].

    run(x, h, c, lengths) returns (y, h, c), the states after the last time step of each sequence,
    [num_layers * directions, B, H]. lengths are integers [B].
    """


class GRU(_Layer, native=_nn.GRU):
    """[B, T, input_size] -> [B, T, H * directions]. run(x, h) returns (y, h, None)."""


class SelfAttention(_Layer, native=_nn.SelfAttention):
    """[B, T, width] -> [B, T, width], from one linear layer of queries, keys and values."""


class MultiheadAttention(_Layer, native=_nn.MultiheadAttention):
    """query [B, T, E], key [B, S, kdim], value [B, S, vdim], masks=AttentionMasks() -> [B, T, E].

    num_kv_heads: heads of keys and values (GQA); 0: num_heads.
    """


class TransformerEncoderLayer(_Layer, native=_nn.TransformerEncoderLayer):
    """src [B, T, E], masks=AttentionMasks() -> [B, T, E]."""


class TransformerDecoderLayer(_Layer, native=_nn.TransformerDecoderLayer):
    """tgt [B, T, E], memory [B, S, E], tgt_masks, memory_masks -> [B, T, E]."""


class TransformerEncoder(_Layer, native=_nn.TransformerEncoder):
    """src [B, T, E], masks=AttentionMasks() -> [B, T, E]; norm=True adds a norm of the result."""


class TransformerDecoder(_Layer, native=_nn.TransformerDecoder):
    """tgt [B, T, E], memory [B, S, E], tgt_masks, memory_masks -> [B, T, E]."""


class Transformer(_Layer, native=_nn.Transformer):
    """src [B, S, E], tgt [B, T, E], src_masks, tgt_masks, memory_masks -> [B, T, E]."""


class SparseMoe(_Layer, native=_nn.SparseMoe):
    """[.., H] -> [.., H]: a router sends each token to a few of the experts."""


# ---- containers


class _Modules(Module):
    """Modules named "0", "1", ..., in the order in which they are appended."""

    def append(self, module: Module) -> Self:
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__} has modules. Got {type(module).__name__}")
        self._register(str(len(self)), module)
        return self

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, i: int) -> Module:
        return self.children()[i]

    def __iter__(self) -> Iterator[Module]:
        return iter(self.children())


class Sequential(_Modules):
    """Applies modules one after the other, named "0", "1", ..."""

    def __init__(self, *modules: Module) -> None:
        super().__init__()
        for module in modules:
            self.append(module)

    def forward(self, x: Any) -> Any:
        for module in self.children():
            x = module(x)
        return x


class ModuleList(_Modules):
    """Modules named "0", "1", ..., which the owner of the list calls."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        for module in modules:
            self.append(module)


class ModuleDict(Module):
    """Modules under keys, which the owner of the dict calls."""

    def __init__(
        self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()
    ) -> None:
        super().__init__()
        for key, module in dict(modules).items():
            self[key] = module

    def __setitem__(self, key: str, module: Module) -> None:
        if not key or "." in key:
            raise _weft.UsageError(f"[module] a key is not empty and has no dot. Got {key!r}.")
        if not isinstance(module, Module):
            raise TypeError(f"ModuleDict has modules. Got {type(module).__name__}")
        self._register(key, module)

    def __getitem__(self, key: str) -> Module:
        return self._members[key]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, key) -> bool:
        return key in self._members

    def items(self) -> ItemsView[str, Module]:
        return self._members.items()


# ---- adapters


def _native(model):
    return model._handle() if isinstance(model, Module) else model


def add_lora(model, targets, **options) -> list[str]:
    """Freezes the net, adds adapters to the linear layers that `targets` name, returns their paths.

    A target is the end of a path ("q_proj"); "all-linear": all but the head. Options are PEFT's:
    r, lora_alpha, lora_dropout, use_rslora, use_dora.
    """
    return _nn.add_lora(_native(model), [targets] if isinstance(targets, str) else targets,
                        **options)


def merge_lora(model) -> None:
    """Adds the adapters' products to the weights, and removes the adapters."""
    _nn.merge_lora(_native(model))
