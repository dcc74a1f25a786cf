# SPDX-License-Identifier: Apache-2.0
"""What the commands print and write, from help to gradients. Runs the real program.

    commands_test.py PROGRAM [unittest's arguments]
"""
import collections
import json
import os
import re
import shutil
import subprocess
import time
import unittest

import program
from program import COMMANDS, SAMPLE, Case, f32, has_llvm, normjit, read_tensors, small_problem, tensor_file


class Help(Case):
    def test_every_command_has_help_with_examples(self):
        for name in [*COMMANDS, "cache"]:
            self.assertRegex(self.done("--help"), rf"\n  {name}  +\S")
            text = self.done(name, "--help")
            self.assertIn(f"Examples:\n  normjit {name}", text)
            self.assertIn("--json", text)
        self.assertIn("Exit codes: 0 done; 1 it ran and failed; 2 bad input or usage; 3", self.done("--help"))

    def test_version(self):
        self.assertRegex(self.done("--version"), r"^normjit \d+\.\d+\.\d+\n$")

    def test_usage_errors(self):
        commands = "allowed: run compile bench tune cache info (see normjit --help)"
        self.refused(2, f"no command; {commands}")
        self.refused(2, f"unknown command 'paint'; {commands}", "paint")
        self.refused(2, "The following argument was not expected: --colour (see normjit run --help)", "run", "--colour")
        self.refused(2, "--threads: Value 0 not in range 1 to 1024 (see normjit run --help)", "run", "--threads", "0")
        self.refused(2, "nothing to run: give --input FILE or a spec (see normjit run --help)", "run")
        self.refused(2, "nothing to compile: give a spec (see normjit compile --help)", "compile")
        self.refused(2, "nothing to measure: give a shapes file or a spec (see normjit bench --help)", "bench")


def layernorm_gradients(x, dy, gamma, mean, rstd):
    """Plain lists of rows; the formula of the design."""
    cols = len(gamma)
    dx, dgamma, dbeta = [], [0.0] * cols, [0.0] * cols
    for x_row, dy_row, m, r in zip(x, dy, mean, rstd):
        xhat = [(value - m) * r for value in x_row]
        g = [d * scale for d, scale in zip(dy_row, gamma)]
        c1, c2 = sum(a * b for a, b in zip(g, xhat)) / cols, sum(g) / cols
        dx.append([r * (g[j] - xhat[j] * c1 - c2) for j in range(cols)])
        dgamma = [dgamma[j] + dy_row[j] * xhat[j] for j in range(cols)]
        dbeta = [dbeta[j] + dy_row[j] for j in range(cols)]
    return dx, dgamma, dbeta


class Run(Case):
    def gradients(self, tensors, *words, metadata=None):
        output = self.folder / "g.safetensors"
        self.done("run", "--input", self.file(tensor_file(tensors, metadata)), "--output", output, "--check", *words)
        return read_tensors(output)

    def test_gradients_of_a_file(self):
        dx, dgamma, dbeta = layernorm_gradients([[1, 3], [-1, 1]], [[1, 0], [0, 2]], [1, 1], [2, 0], [1, 1])
        tensors, metadata = self.gradients(small_problem())
        self.assertEqual(tensors["dx"], ("F32", [1, 2, 2], f32(*dx[0], *dx[1])))
        self.assertEqual(tensors["dgamma"], ("F32", [2], f32(*dgamma)))
        self.assertEqual(tensors["dbeta"], ("F32", [2], f32(*dbeta)))
        self.assertEqual(metadata["spec"], "layernorm rows=2 cols=2")

    def test_words_choose_outputs_and_types(self):
        tensors, _ = self.gradients(small_problem(), "out=dx,dgamma", "dgamma=bf16")
        self.assertEqual({name: tensor[0] for name, tensor in tensors.items()}, {"dx": "F32", "dgamma": "BF16"})

    def test_missing_statistics_are_computed(self):
        problem = small_problem()
        del problem["mean"], problem["rstd"]
        _, metadata = self.gradients(problem, "norm=layernorm", "eps=0.25")
        self.assertEqual(metadata["spec"], "layernorm rows=2 cols=2 stats=recompute eps=0.25")

    def test_groups_and_metadata(self):
        problem = small_problem()
        tensors = {f"a.b.{name}": tensor for name, tensor in problem.items()}
        tensors |= {f"c.{name}": problem[name] for name in ["x", "dy", "rstd"]}
        gradients, metadata = self.gradients(tensors, metadata={"c.spec": "norm=rmsnorm eps=1e-6"})
        self.assertEqual(sorted(gradients), ["a.b.dbeta", "a.b.dgamma", "a.b.dx", "c.dx"])
        self.assertEqual(metadata["c.spec"], "rmsnorm rows=2 cols=2 gamma=none")

    def test_no_rows(self):
        nothing = ("F32", [0, 2], b"")
        tensors, _ = self.gradients({"x": nothing, "dy": nothing, "gamma": ("F32", [2], f32(1, 1))}, "norm=rmsnorm")
        self.assertEqual(tensors["dx"], nothing)
        self.assertEqual(tensors["dgamma"], ("F32", [2], f32(0, 0)))

    def test_a_misspelt_tensor_is_noticed(self):
        tensors = small_problem()
        tensors["gama"] = tensors.pop("gamma")
        result = normjit("run", "--input", self.file(tensor_file(tensors)))
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr, f'note: {self.folder}/t.safetensors: tensor "gama" is not used\n')

    def test_a_framework_that_differs_fails_the_check(self):
        tensors = small_problem() | {"expected.dbeta": ("F32", [2], f32(1, 2.5))}
        result = normjit("run", "--input", self.file(tensor_file(tensors)))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "error: 1 of 3 gradients are outside their tolerance, the first is dbeta\n")
        self.assertIn("DIFFERS", result.stdout)

    def test_an_output_is_replaced_whole(self):
        output = self.folder / "g.safetensors"
        output.write_bytes(b"something else" * 1000)
        self.done("run", "--input", self.file(tensor_file(small_problem())), "--output", output)
        self.assertEqual(sorted(read_tensors(output)[0]), ["dbeta", "dgamma", "dx"])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["g.safetensors", "t.safetensors"])

    def test_an_artifact_runs_instead_of_the_compiler(self):
        artifact = self.folder / "k.artifact"
        self.done("compile", "rmsnorm cols=40", "--schedule", "cpu row_block=3", "--emit", "artifact", "-o", artifact)
        facts = self.done("run", "rmsnorm rows=7 cols=40", "--artifact", artifact, "--check", "--json")
        self.assertIn(" row_block=3 ", json.loads(facts)["results"][0]["schedule"])
        for spec in ["rmsnorm rows=7 cols=41", "layernorm rows=7 cols=40", "rmsnorm rows=7 cols=40 x=bf16"]:
            result = normjit("run", spec, "--artifact", artifact)
            self.assertEqual(result.returncode, 2)
            self.assertIn(": is for 'rmsnorm cols=40'", result.stderr)
            self.assertIn(f", not for '{spec}", result.stderr)

    def test_made_data(self):
        for text in [
            "layernorm rows=33 cols=257 x=bf16 gamma=f32",
            "rmsnorm rows=5 cols=1000 x=f16 stats=recompute",
            "rmsnorm rows=7 cols=1 out=dx",
            "layernorm rows=0 cols=9",
        ]:
            self.assertIn("right", self.done("run", text, "--check", "--seed", "7"))
            result = json.loads(self.done("run", text, "--check", "--json"))["results"][0]
            self.assertTrue(all(output["ours"]["holds"] for output in result["outputs"].values()))


class Sample(Case):
    def test_matches_the_framework(self):
        text = self.done("run", "--input", SAMPLE, "--check")
        self.assertNotIn("WRONG", text)
        self.assertNotIn("DIFFERS", text)
        self.assertEqual(len(re.findall(r" matches( to bf16)?\n", text)), 15)

    def test_json(self):
        results = json.loads(self.done("run", "--input", SAMPLE, "--json"))["results"]
        self.assertEqual(len(results), 6)
        for result in results:
            self.assertGreater(result["median_seconds"], 0)
            for output in result["outputs"].values():
                self.assertTrue(output["ours"]["holds"] and output["framework"]["holds"])
                if output["ours"]["type"] == "bf16":
                    self.assertLess(output["ours"]["ulp"], 0.51)


class Compile(Case):
    SPEC = "layernorm cols=300 x=bf16 gamma=f32"
    TARGET = ["--target", "x86-64-avx512"]

    def test_every_stage(self):
        for stage in self.done("compile", "--emit", "list").split():
            if stage == "asm" and not shutil.which("objdump"):
                continue
            text = self.done("compile", self.SPEC, *self.TARGET, "--emit", stage)
            path = self.folder / "stage"
            self.assertEqual(self.done("compile", self.SPEC, *self.TARGET, "--emit", stage, "-o", path), "")
            self.assertEqual(path.read_text(), text)
            as_json = json.loads(self.done("compile", self.SPEC, *self.TARGET, "--emit", stage, "--json"))
            self.assertEqual(as_json, {"stage": stage, "text": text})

    def test_stages_of_a_gpu(self):
        target = ["--target", "sm_90"]
        stages = self.done("compile", *target, "--emit", "list").split()
        self.assertEqual([s for s in stages if s in ("asm", "cuda", "ptx", "sass")], ["cuda", "ptx", "sass"])
        source = self.done("compile", self.SPEC, *target, "--emit", "cuda")
        self.assertIn('extern "C" __global__', source)
        self.assertIn("// " + self.SPEC, source)

    def test_what_the_stages_show(self):
        emit = lambda stage: self.done("compile", self.SPEC, *self.TARGET, "--emit", stage)
        self.assertIn("row_mean(g * xhat)", emit("ir"))
        self.assertIn("partial_accumulate", emit("ir:split_column_sums"))
        self.assertIn("phase final_reduce", emit("plan"))
        self.assertRegex(emit("schedule"), r"^cpu row_groups=\d+")
        self.assertTrue(emit("artifact").startswith("normjit-artifact "))

    def test_assembly(self):
        text = self.done("compile", self.SPEC, *self.TARGET, "--emit", "asm")
        for label in ["rows:", "final_reduce:"]:
            self.assertIn(label, text.splitlines())
        self.assertRegex(text, r"vfn?madd\w+\s+zmm")
        self.assertRegex(text, r"zmm\d+ ?\{k\d\}")

    def test_other_processors(self):
        if not has_llvm():
            return
        expected = {"x86-64-v3": r"vfmadd\w+\s+ymm", "x86-64": r"mulps\s+xmm", "aarch64": r"fmla\s+v"}
        for target, instruction in expected.items():
            arguments = ["compile", "rmsnorm cols=1000 x=f32", "--target", target, "--emit"]
            self.assertRegex(self.done(*arguments, "asm"), instruction)
            self.assertRegex(self.done(*arguments, "llvm"), r"define void @rows\(ptr %task\)")

    def test_back_ends(self):
        for backend in ["portable", "llvm"] if has_llvm() else ["portable"]:
            text = self.done("run", "layernorm rows=9 cols=33 x=bf16", "--backend", backend, "--check", "--threads", "1")
            self.assertRegex(text, rf"\d launches, 1 thread, {backend}")
            self.assertIn("right", text)

    def test_caps(self):
        for cap in ["avx512", "avx2", "sse", "portable"]:
            env = {**os.environ, "NORMJIT_ISA": cap}
            self.assertIn("right", self.done("run", "rmsnorm rows=9 cols=33 x=f16", "--check", env=env))
        message = "NORMJIT_ISA=mmx: allowed: machine avx512 avx2 sse portable"
        self.refused(2, message, "run", "rmsnorm rows=9 cols=33", env={**os.environ, "NORMJIT_ISA": "mmx"})

    def test_unknown_stage(self):
        result = normjit("compile", self.SPEC, "--emit", "soup")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^error: --emit soup: allowed for --target host: list ir .* artifact\n$")

    def test_summary(self):
        facts = json.loads(self.done("compile", self.SPEC, *self.TARGET, "--json"))
        self.assertEqual(facts["spec"], self.SPEC)
        self.assertIn("rows", facts["entries"])
        self.assertIn("compile_seconds", json.loads(self.done("compile", self.SPEC, "--time", "--json")))


class Bench(Case):
    SPEC = "rmsnorm rows=64 cols=96"

    def test_shapes_file(self):
        shapes = self.file(f"# shapes\n\n{self.SPEC}  # narrow\nlayernorm rows=4 cols=300 x=bf16\n".encode(), "shapes.txt")
        results = json.loads(self.done("bench", shapes, "--seconds", "0.01", "--threads", "1,all", "--json", "-"))["results"]
        self.assertEqual([result["spec"] for result in results], [self.SPEC] * 2 + ["layernorm rows=4 cols=300 x=bf16"] * 2)
        self.assertEqual(results[0]["threads"], 1)
        self.assertEqual(results[0]["bytes"], 3 * 64 * 96 * 4)
        self.assertGreater(results[0]["share"], 0)

    def test_table_and_json_file(self):
        path = self.folder / "out.json"
        text = self.done("bench", self.SPEC, "--seconds", "0.01", "--json", path)
        self.assertEqual(text.split("\n")[0].split(), ["spec", "threads", "time", "GB/s", "ceiling", "share"])
        self.assertEqual(len(json.loads(path.read_text())["results"]), 1)

    def test_two_schedules_in_turn(self):
        schedule = "cpu row_groups=2 row_block=2"
        bench = ["bench", self.SPEC, "--seconds", "0.01", "--threads", "1", "--schedule", schedule, "--against"]
        for other in ["heuristic", schedule]:
            result, = json.loads(self.done(*bench, other, "--json", "-"))["results"]
            against = result["against"]
            self.assertEqual(against["schedule"] == result["schedule"], other == schedule)
            self.assertLessEqual(against["low"], against["gain"])
            self.assertLessEqual(against["gain"], against["high"])
            for key in ["median_seconds", "own_median_seconds"]:
                self.assertGreater(against[key], 0)
        self.assertIn("95 % sure", self.done(*bench, "heuristic").split("\n")[0])
        self.refused(2, self.SPEC + ": schedule: row_block=100: must be 1 to 64", *bench, "cpu row_block=100")

    def test_cold(self):
        other = "layernorm rows=3 cols=7000 x=bf16"
        for words, caches in [([], "warm"), (["--cold"], "cold")]:
            results = json.loads(self.done("bench", self.SPEC, other, "--seconds", "0.01", "--json", "-", *words))["results"]
            for result in results:
                self.assertEqual(result["caches"], caches)
                self.assertEqual(result["copies"] > 1, caches == "cold")
                self.assertGreater(result["share"], 0)
        result, = json.loads(self.done("bench", self.SPEC, "--cold", "--against", "heuristic", "--seconds", "0.01",
                                       "--json", "-"))["results"]
        self.assertGreater(result["against"]["gain"], 0)

    def test_a_run_that_is_killed_keeps_its_results(self):
        path = self.folder / "out.json"
        command = [program.PROGRAM, "bench", *[f"rmsnorm rows=64 cols={n}" for n in range(96, 116)], "--json", path]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            process.kill()
        document = json.loads(path.read_text())
        self.assertEqual(document["planned"], 20)
        self.assertIn(len(document["results"]), range(1, 20))
        self.assertEqual(document["results"][0]["spec"], "rmsnorm rows=64 cols=96")

    def test_the_line_of_a_bad_shape_is_named(self):
        shapes = self.file(b"rmsnorm rows=4 cols=8\nrmsnorm rows=4\n", "shapes.txt")
        message = "shapes.txt:2: spec: cols is missing: the number of columns, at least 1"
        self.refused(2, message, "bench", shapes)
        self.refused(2, "--threads x: allowed: 1..1024, all", "bench", self.SPEC, "--threads", "1,x")


class Cache(Case):
    SPECS = ["rmsnorm rows=2 cols=8", "layernorm rows=3 cols=9 x=bf16"]

    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.environment = os.environ | {"NORMJIT_CACHE_DIR": str(self.cache), "NORMJIT_CACHE_EVERYTHING": "1"}

    def fill(self):
        for spec in self.SPECS:
            self.done("run", spec, "--check", env=self.environment)

    def show(self, *arguments):
        return json.loads(self.done("cache", *arguments, "--json", env=self.environment))

    def test_empty(self):
        self.assertEqual(self.show("list")["entries"], [])
        self.assertIn("0 kernels, 0 bytes of at most 1.00 GiB", self.done("cache", "list", env=self.environment))
        self.refused(2, "cache: cache holds no kernels", "cache", "pack", "--dir", self.cache, "-o", self.folder / "x")
        message = "cache: there is no folder: give --dir, or set NORMJIT_CACHE_DIR"
        self.refused(2, message, "cache", "list", env=os.environ | {"NORMJIT_CACHE_DIR": "off"})
        self.refused(2, "NORMJIT_CACHE_SIZE=big: must be a number of bytes, with K, M or G for more", "cache", "list",
                     env=os.environ | {"NORMJIT_CACHE_SIZE": "big"})

    def test_list(self):
        self.fill()
        entries = self.show("list")["entries"]
        self.assertEqual([entry["spec"] for entry in entries], self.SPECS[::-1])
        self.assertEqual({entry["maker"] for entry in entries}, {"none"})
        self.fill()  # from the cache
        self.assertEqual(len(self.show("list")["entries"]), 2)
        for spec in self.SPECS:
            self.assertIn(spec, self.done("cache", "list", env=self.environment))

    def test_damage_is_found_and_repaired(self):
        self.fill()
        self.assertEqual(self.show("verify"), {"entries": 2, "damaged": []})
        damaged = sorted(self.cache.iterdir())[0]
        damaged.write_bytes(damaged.read_bytes()[:-100])
        result = normjit("cache", "verify", env=self.environment)
        self.assertEqual((result.returncode, result.stdout), (1, "2 kernels, 1 damaged\n"))
        self.assertIn("the checksum does not match", result.stderr)
        notes = [normjit("run", spec, "--check", env=self.environment).stderr for spec in self.SPECS]
        self.assertEqual(sum("the checksum does not match; the kernel is made again" in note for note in notes), 1)
        self.assertEqual(self.show("verify"), {"entries": 2, "damaged": []})

    def test_garbage(self):
        self.fill()
        (self.cache / "foreign-none.kernel").write_text("something else")
        self.assertEqual(self.show("gc")["removed_files"], 1)
        left = self.show("gc", "--size", "1")
        self.assertEqual((left["removed_files"], left["entries"], left["bytes"]), (2, 0, 0))
        message = "--size 0: must be a number of bytes, with K, M or G for more"
        self.refused(2, message, "cache", "gc", "--size", "0", "--dir", self.cache)

    def test_a_pack_serves_a_product(self):
        self.fill()
        pack = self.folder / "product.pack"
        self.assertEqual(self.show("pack", "-o", pack)["entries"], 2)
        self.assertEqual(self.show("verify", pack), {"entries": 2, "damaged": []})
        environment = self.environment | {"NORMJIT_CACHE_DIR": "off", "NORMJIT_CACHE_PACKS": str(pack)}
        self.done("run", self.SPECS[0], "--check", env=environment)
        pack.write_bytes(pack.read_bytes()[:-1])
        self.refused(2, "pack: product.pack: is no pack of this version, or is cut off", "cache", "verify", pack)


class Info(Case):
    def test_program(self):
        facts = json.loads(self.done("info", "--json"))
        names = ",".join(device["name"] for device in facts["devices"])
        self.assertRegex(names, r"^cpu(,cuda|(,cuda:\d+)+)$")
        self.assertIn("available", facts["nvrtc"])
        self.assertIn("environment", self.done("info"))

    def test_spec(self):
        facts = json.loads(self.done("info", "rmsnorm rows=10 cols=8 gamma=none", "--json"))
        self.assertEqual(facts["bytes_moved"], 3 * 10 * 8 * 4 + 10 * 4)
        self.assertIn("schedule", self.done("info", "rmsnorm cols=8", "--target", "x86-64-avx512"))


class Tune(Case):
    SPECS = [f"layernorm rows={rows} cols=64" for rows in (3, 5, 9)]

    def tune(self, *words, candidates=6):
        return ["tune", self.folder / "shapes.txt", "-o", self.folder / "r.jsonl", "--seconds", "0.002",
                "--candidates", candidates, "--threads", "1", *words]

    def records(self):
        return [json.loads(line) for line in (self.folder / "r.jsonl").read_text().splitlines()]

    def test_tunes_resumes_and_is_used(self):
        self.file("\n".join(self.SPECS).encode(), "shapes.txt")
        result = json.loads(self.done(*self.tune("--json", "-")))
        self.assertEqual([each["spec"] for each in result["results"]], self.SPECS)
        self.assertEqual((result["failed_candidates"], result["errors"]), ([], []))
        records = self.records()
        self.assertEqual(records, result["results"])
        for record in records:
            self.assertEqual((record["verified"], record["caches"], record["threads"]), ("double", "cold", 1))
            self.assertTrue(record["gain"] == 1 or record["schedule"] != record["heuristic"])
            self.assertNotIn(str(self.folder), json.dumps(record))
        again = normjit(*self.tune())
        self.assertEqual((again.returncode, again.stderr), (0, "note: 3 problems were in the records before\n"))
        self.assertEqual(self.records(), records)
        with open(self.folder / "r.jsonl", "a") as file:
            file.write("garbage\n")
        environment = os.environ | {"NORMJIT_RECORDS": str(self.folder / "r.jsonl")}
        info = normjit("bench", self.SPECS[0], "--threads", "1", "--seconds", "0.01", "--json", "-", env=environment)
        self.assertEqual(info.returncode, 0)
        self.assertIn("r.jsonl:4: not a record", info.stderr)
        self.assertEqual(json.loads(info.stdout)["results"][0]["schedule"], records[0]["schedule"])

    def test_a_killed_tuner_goes_on_where_it_was(self):
        self.file("\n".join(self.SPECS).encode(), "shapes.txt")
        journal = self.folder / "r.jsonl.progress"
        lines = 0
        for _ in range(200):
            process = subprocess.Popen([program.PROGRAM, *map(str, self.tune(candidates=12))],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and (not journal.exists() or journal.read_text().count("\n") < lines + 7):
                time.sleep(0.001)
            process.kill()
            if process.wait() == 0:
                break
            lines = journal.read_text().count("\n")
        starts, finishes = collections.Counter(), collections.Counter()
        for line in journal.read_text().splitlines():
            entry = json.loads(line)
            (starts if entry["did"] == "start" else finishes)[entry["key"]] += 1
        self.assertEqual(max(finishes.values()), 1)
        self.assertLessEqual(max(starts.values()), 2)
        self.assertEqual([each["spec"] for each in self.records()], self.SPECS)

    def test_shards_and_budget(self):
        self.file("\n".join(self.SPECS).encode(), "shapes.txt")
        for part in "123":
            self.done(*self.tune("--shard", part + "/3", "--json", self.folder / (part + ".json")))
        self.assertEqual([each["spec"] for each in self.records()], self.SPECS)
        (self.folder / "r.jsonl").unlink()
        result = normjit(*self.tune("--budget", "0.000001"))
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr,
                         "note: the time was up before 3 of 3 problems; start again to go on\n")

    def test_usage(self):
        self.file(b"layernorm rows=3 cols=64\nlayernorm cols=7\n", "shapes.txt")
        self.refused(2, "shapes.txt:2: spec: rows is missing: the number of rows to make, at least 0", *self.tune())
        self.refused(2, "nothing to tune: give a shapes file or a spec (see normjit tune --help)",
                     "tune", "-o", self.folder / "r.jsonl")
        self.refused(2, "--shard 5/4: must be a part of a number of parts, as 1/4",
                     *self.tune("--rows", "8", "--shard", "5/4"))
        self.refused(2, "--budget soon: must be a time, as 90s, 10m or 2h", *self.tune("--rows", "8", "--budget", "soon"))


if __name__ == "__main__":
    program.main()
