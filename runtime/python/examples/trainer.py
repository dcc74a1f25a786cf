# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny Llama, from random weights, with Hugging Face's Trainer and normjit's backward passes: on a CPU in less
than a minute, without a network. Needs torch, transformers and accelerate.

    python runtime/python/examples/trainer.py"""
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded

import normjit
import torch
import transformers

VOCABULARY, TOKENS = 64, 32


class Counting(torch.utils.data.Dataset):
    """Rows that count upwards from some number, so that the model can learn what comes next."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        row = (torch.arange(TOKENS) + index) % VOCABULARY
        return {"input_ids": row, "labels": row}


def make_model():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=TOKENS))


def main():
    transformers.set_seed(0)
    normjit.torch.enable()                     # serves torch.nn.LayerNorm, which this model does not have
    model = normjit.torch.patch(make_model())  # its RMSNorms, which are written in Python
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, max_steps=30, per_device_train_batch_size=16, learning_rate=3e-3, logging_steps=10, report_to=[],
            save_strategy="no", disable_tqdm=True, bf16=True, use_cpu=not torch.cuda.is_available())
        trainer = transformers.Trainer(model, arguments, train_dataset=Counting())
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("losses", *losses)
    report = normjit.torch.report(model)
    print(f"calls: {report['calls']} by normjit, {report['left_to_torch']} left to torch: {report['reason']}")
    for norm in report["norms"]:
        print(*norm, sep="  ")


if __name__ == "__main__":
    main()
