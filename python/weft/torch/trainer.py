"""weft in transformers' Trainer."""

from typing import Any

from .backend import backend, prepare_dynamo


def trainer_callback(**options: Any) -> Any:
    """Returns a callback that compiles the model by weft when training begins.

        Trainer(model=model, args=arguments, callbacks=[weft.torch.trainer_callback()])

    The Trainer's own `torch_compile_backend` takes the names that accelerate lists alone. Options
    are those of torch.compile(backend="weft").
    """
    from transformers import TrainerCallback

    class Compile(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            prepare_dynamo()  # again: transformers may have been imported after weft
            if model is not None:
                model.compile(backend=backend, options=options or None)  # in place

    return Compile()
