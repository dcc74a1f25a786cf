# SPDX-License-Identifier: Apache-2.0
"""normjit bench: tables and results files. Runs the real program.

    bench_command_test.py PROGRAM [unittest's arguments]
"""
import json
import subprocess
import time

import program
from program import Case


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

    def test_a_spec_may_follow_the_list_of_threads(self):
        text = self.done("bench", "--threads", "1,all", self.SPEC, "--seconds", "0.01")
        self.assertEqual(len(text.splitlines()), 3)

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
        for words, word in (("1,x", "x"), ("1,,2", ""), (",", ""), ("1,0", "0")):
            self.refused(2, f"--threads {words}: '{word}': allowed: 1..1024, all", "bench", self.SPEC, "--threads", words)
        self.refused(2, "--against: must be heuristic or a schedule; schedule: kind 'fastest': allowed: cpu cuda",
                     "bench", self.SPEC, "--against", "fastest")
        self.refused(2, "--pad-rows: on a CPU only, and not with --against", "bench", self.SPEC, "--pad-rows",
                     "--against", "heuristic")

    def test_padded_rows_move_the_same_bytes(self):
        for words in [], ["--pad-rows"], ["--pad-rows", "--cold"]:
            bench = ["bench", "rmsnorm rows=64 cols=100 x=bf16", "--seconds", "0.01", "--json", "-", *words]
            result, = json.loads(self.done(*bench))["results"]
            self.assertEqual(3 * 64 * 100 * 2, result["bytes"])


if __name__ == "__main__":
    program.main()
