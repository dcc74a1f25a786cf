#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks which models of transformers train with normjit as they do without it, and writes a page of Markdown.

For each family one small model with random weights takes a training step on the CPU, with torch's kernels and with
enable() and patch(), from the same seeds. It compares the losses, bit by bit, and all gradients. With --compiled, the
step runs torch.compile's graphs, in which GraphPass("all") has replaced every region that a formula can compute. The
rest runs operator by operator, without Inductor's compiler.

    PYTHONPATH=build/python tried_models.py [--page runtime/python/TRIED.md] [--families llama bert ...] [--seconds 60]
    PYTHONPATH=build/python tried_models.py --compiled [--page runtime/python/TRIED_COMPILED.md] [--families ...]

Exit code 1: losses differ somewhere (compiled: by more than rounding explains), or gradients by more than that."""
import argparse
import contextlib
import datetime
import inspect
import io
import math
import pathlib
import platform
import signal
import sys
import warnings

sys.path.append(str(pathlib.Path(__file__).parents[2] / "runtime" / "python" / "tests"))

import normjit.torch
import torch
import torch._inductor.lowering  # decompositions ask for it
import transformers
from graph_models import Rewritten
from normjit.torch import graph, graph_operator
from transformers.models.auto import modeling_auto

TASKS = ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "MODEL_FOR_MASKED_LM_MAPPING")
SMALL = {  # sizes under all the names that families use; a configuration takes those that it knows
    64: ("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim", "word_embed_proj_dim"),
    96: ("intermediate_size", "d_ff", "ffn_dim", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size",
         "shared_expert_intermediate_size", "hidden_dim", "ffn_hidden_size", "mlp_hidden_size"),
    2: ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
        "num_key_value_heads", "num_kv_heads", "num_experts_per_tok", "num_local_experts_per_tok"),
    4: ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads", "decoder_attention_heads",
        "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    16: ("head_dim", "d_kv", "attention_head_dim", "rotary_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim",
         "kv_lora_rank", "q_lora_rank"),
    100: ("vocab_size",),
    128: ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len"),
}
TOKEN_IDS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 1}
MULTI_HEAD = ("axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "longcat_flash",
              "minicpm3", "sarvam_mla", "youtu")  # as many key heads as query heads
OWN = {  # for families whose sizes depend on each other; None keeps the family's own size
    **dict.fromkeys(MULTI_HEAD, {"num_key_value_heads": 4}),
    "mamba2": {"num_heads": 8, "n_groups": 1, "state_size": 16}, "gpt_neo": {"num_layers": None},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 16}, "reformer": {"is_decoder": True},
}
MOST_PARAMETERS = 20_000_000
TOKENS = 12
LARGEST_DIFFERENCE = 1e-4  # limit for the difference of a parameter's gradient in f32, relative to the 2-norm of all
                           # gradients


def families():
    """Returns {model_type: (class of its configuration, class of its model)}, for the first task that has one."""
    found = {}
    for task in TASKS:
        for config, kinds in getattr(modeling_auto, task).items():
            found.setdefault(config.model_type, (config, kinds[0] if isinstance(kinds, tuple) else kinds))
    return found


def small_config(kind):
    """Returns a configuration with small sizes, as far as SMALL and the configuration share names."""
    known = {*inspect.signature(kind).parameters, *vars(kind()), *kind.attribute_map}
    sizes = {name: size for size, names in SMALL.items() for name in names if name in known}
    sizes.update(OWN.get(kind.model_type, {}))
    config = kind(**{name: size for name, size in sizes.items() if size is not None})
    vars(config).update(TOKEN_IDS)
    return config


def made(config, kind):
    with torch.device("meta"):
        count = sum(p.numel() for p in kind(config).parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(f"its smallest configuration here has {count / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    return kind(config).float().train()


def step(model, call=None):
    """Returns the loss, and gradients by name; `call` is called in place of the model."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    tokens = torch.randint(2, 100, (2, TOKENS))
    named = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    loss = (model if call is None else call)(input_ids=tokens, labels=tokens, **named).loss
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def difference(gradients, right):
    """Returns the largest difference of a parameter, relative to the 2-norm of all."""
    size = sum(float(g.double().square().sum()) for g in right.values()) ** 0.5
    return max(float((gradients[name].double() - right[name].double()).norm()) for name in right) / size


def tried(config_kind, kind):
    """Returns a family's row of the page."""
    model = made(small_config(config_kind), kind)
    right = step(model)
    again = step(model)
    if not torch.equal(right[0], again[0]):
        raise ValueError("two steps by torch's kernels differ")
    before = normjit.torch.report()
    with normjit.torch.enabled(devices="cpu"):
        normjit.torch.patch(model, strict=False)
        loss, gradients = step(model)
        after = normjit.torch.report(model)
    left = {why: count - before["left_to_modules"].get(why, 0) for why, count in after["left_to_modules"].items()}
    whose = [each[2] for each in after["norms"]]
    return {"class": kind.__name__, "norms": len(whose), "patched": sum("patch()" in each for each in whose),
            "enabled": sum("by enable()" in each for each in whose), "calls": after["calls"] - before["calls"],
            "left": sum(left.values()) + after["left_to_torch"] - before["left_to_torch"],
            "why": sorted({why for why, count in left.items() if count} | {
                each.split(": ", 1)[1] for each in whose if each.startswith("torch's: ")}),
            "equal": torch.equal(loss, right[0]), "difference": difference(gradients, right[1])}


def compiles_whole(model):
    """True if torch.compile makes one graph of a model's forward pass. Fails if it makes none."""
    for is_whole in (True, False):
        torch.compiler.reset()
        try:
            step(model, torch.compile(model, backend="aot_eager", fullgraph=is_whole))
        except torch._dynamo.exc.TorchDynamoException:
            if not is_whole:
                raise
        else:
            break
    return is_whole


def tried_compiled(config_kind, kind):
    """Returns a family's row of the page of compiled models."""
    config = small_config(config_kind)
    vars(config).update({name: 0.0 for name, value in vars(config).items() if "drop" in name and isinstance(value, float)})
    model = made(config, kind)  # without dropout: compiled graphs draw other numbers
    right = step(model)
    is_whole = compiles_whole(model)
    torch.compiler.reset()
    graph._reported.clear()
    graph_operator.calls.clear()
    backend = Rewritten()
    row = {"class": kind.__name__, "whole": is_whole}
    try:
        loss, gradients = step(model, torch.compile(model, backend=backend, fullgraph=is_whole))
    except Exception as error:  # the model compiles without normjit
        why = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        return row | {"graphs": 0, "regions": 0, "taken": 0, "loss": math.nan, "difference": math.nan, "equal": False, "why": [why]}
    regions = normjit.torch.graph_report()
    if difference(gradients, right[1]) > LARGEST_DIFFERENCE:  # by torch.compile itself, perhaps
        torch.compiler.reset()
        right = step(model, torch.compile(model, backend=Rewritten("none"), fullgraph=is_whole))
    left = {each["why"].split(": ", 1)[-1] for each in regions if not each["taken"]}  # without names of nodes
    mistakes = [why for why in left if "Error" in why]
    off = float((loss.double() - right[0].double()).abs() / right[0].double().abs())
    return row | {"graphs": len(backend.graphs), "regions": len(regions), "taken": sum(each["taken"] for each in regions),
                  "loss": off, "difference": difference(gradients, right[1]),
                  "equal": off <= LARGEST_DIFFERENCE and not mistakes, "why": sorted(left)}


@contextlib.contextmanager
def at_most(seconds):
    def stop(*_):
        raise TimeoutError(f"takes more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def is_good(row):
    return row["equal"] and row["difference"] <= LARGEST_DIFFERENCE


def page(rows, failed, day):
    good = sum(map(is_good, rows.values()))
    lines = ["# Models tried", "",
             f"A training step of a small model with random weights, on the CPU in f32, with `enable()` and `patch()` and "
             f"without, by `tools/lab/tried_models.py`: torch {torch.__version__}, transformers {transformers.__version__}, "
             f"Python {platform.python_version()}, {day}. Of {len(rows)} families {good} have the same loss to the bit, and "
             f"gradients that differ by at most {LARGEST_DIFFERENCE:g} of the 2-norm of all.", "",
             "Norms: how many `patch()` and `enable()` serve, of all that look like one, with a gate or without. Calls: backward "
             "passes by normjit's kernels, but for those with a gate, which are not counted, and those that were left to the "
             "module or to torch.", "",
             "| family | class | norms served | calls | left | loss | gradients | not served |", "|---|---|---|---|---|---|---|---|"]
    for family, row in sorted(rows.items()):
        lines.append(f"| {family} | {row['class']} | {row['patched'] + row['enabled']} of {row['norms']} | {row['calls']} | "
                     f"{row['left']} | {'equal' if row['equal'] else 'DIFFERS'} | {row['difference']:.0e} | "
                     f"{'; '.join(row['why']).replace('|', '/')} |")
    return "\n".join(lines + not_tried(failed)) + "\n"


def compiled_page(rows, failed, day):
    good = sum(map(is_good, rows.values()))
    lines = ["# Compiled models tried", "",
             f"A training step of a small model with random weights, on the CPU in f32: torch.compile's graphs, in which normjit's "
             f"pass has taken every region that a formula can compute, beside eager mode, or torch.compile's own graphs where these differ from it, by `tools/lab/tried_models.py --compiled`: "
             f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}, {day}. Of "
             f"{len(rows)} families {good} have the same loss and gradients, to at most {LARGEST_DIFFERENCE:g} of the loss and of the "
             "2-norm of all gradients.", "",
             "Whole: torch.compile makes one graph of the forward pass. Regions: those with a normjit kernel, of all with a row "
             "reduction, in forward and backward graphs.", "",
             "| family | class | whole | graphs | regions | loss | gradients | not taken |", "|---|---|---|---|---|---|---|---|"]
    for family, row in sorted(rows.items()):
        lines.append(f"| {family} | {row['class']} | {'yes' if row['whole'] else 'no'} | {row['graphs']} | {row['taken']} of "
                     f"{row['regions']} | {row['loss']:.0e} | {row['difference']:.0e} | "
                     f"{'; '.join(row['why']).replace('|', '/')} |")
    return "\n".join(lines + not_tried(failed)) + "\n"


def not_tried(failed):
    lines = ["", "## Not tried", "", "These could not be made, or did not run without normjit.", "", "| family | why |",
              "|---|---|"]
    return lines + [f"| {family} | {why.replace('|', '/')} |" for family, why in sorted(failed.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # fixes the order of a step's sums
    rows, failed = {}, {}
    attempt, write = (tried_compiled, compiled_page) if options.compiled else (tried, page)
    for family, (config, kind) in sorted(families().items()):
        if options.families and family not in options.families:
            continue
        try:
            with at_most(options.seconds), contextlib.redirect_stdout(io.StringIO()):
                rows[family] = attempt(config, kind)
        except Exception as error:
            failed[family] = f"{type(error).__name__}: {error}".split("\n")[0][:120]
        print(family, rows.get(family) or failed[family], flush=True)
        if options.page:
            options.page.write_text(write(rows, failed, datetime.date.today()))
    sys.exit(0 if all(map(is_good, rows.values())) else 1)


if __name__ == "__main__":
    main()
