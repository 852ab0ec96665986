"""The model in the formats that other servers read. It runs in their environments and imports nothing of the project.

`python -m bench.servers.export FORMAT SOURCE TARGET`, with the folder of a `sentence-transformers` model as SOURCE

| format | TARGET holds |
|---|---|
| `onnx` | the tokenizer, the configuration and `model.onnx` in float32; both say how many tokens the model reads |
| `openvino` | what `SentenceTransformer.save_pretrained` writes with the OpenVINO back end |
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

_WEIGHTS = ("*.safetensors", "*.bin", "*.onnx", "onnx", "openvino")
_OPSET = 17


def to_onnx(source: Path, target: Path) -> None:
    """The transformer alone: servers of ONNX files pool by themselves."""
    import torch  # noqa: PLC0415 - in the environment of the peer
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415 - as above

    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_WEIGHTS))
    _tell_window(target)
    model = AutoModel.from_pretrained(source, attn_implementation="eager", torch_dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(source)
    example = dict(tokenizer(["one text", "and a longer one"], padding=True, return_tensors="pt"))
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in example]

    class LastHiddenState(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model  # as a part of the module, so that its weights are exported as such

        def forward(self, *inputs: Any) -> Any:
            return self.model(**dict(zip(names, inputs, strict=True))).last_hidden_state

    with torch.inference_mode():
        torch.onnx.export(
            LastHiddenState(),
            tuple(example[name] for name in names),
            target / "model.onnx",
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in [*names, "last_hidden_state"]},
            opset_version=_OPSET,
            dynamo=False,
        )


def to_openvino(source: Path, target: Path) -> None:
    """As the library does it, so that nothing is exported at each start."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - as above

    SentenceTransformer(str(source), device="cpu", backend="openvino").save_pretrained(str(target))


def _tell_window(folder: Path) -> None:
    """A server of ONNX files does not read `sentence_bert_config.json`: it would read more of a long text."""
    window = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    for name, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, key: min(window, content.get(key) or window)}, indent=1))


if __name__ == "__main__":
    {"onnx": to_onnx, "openvino": to_openvino}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
