# SPDX-License-Identifier: Apache-2.0
"""normjit tune: records, and tuners that are stopped. Runs the real program.

    tune_command_test.py PROGRAM [unittest's arguments]
"""
import collections
import json
import os
import pathlib
import subprocess
import time

import program
from program import Case, normjit


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
        self.assertEqual((again.returncode, again.stderr), (0, "note: 3 problems already in the records\n"))
        self.assertEqual(self.records(), records)
        with open(self.folder / "r.jsonl", "a") as file:
            file.write("garbage\n")
        environment = os.environ | {"NORMJIT_RECORDS": str(self.folder / "r.jsonl")}
        info = normjit("bench", self.SPECS[0], "--threads", "1", "--seconds", "0.01", "--json", "-", env=environment)
        self.assertEqual(info.returncode, 0)
        self.assertIn("r.jsonl:4: not a record", info.stderr)
        self.assertEqual(json.loads(info.stdout)["results"][0]["schedule"], records[0]["schedule"])

    def test_points_are_of_gpus(self):
        result = normjit("tune", self.SPECS[0], "--points", self.folder / "p.txt")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("--points: no heuristic reads points of CPUs: give --device cuda:N, or -o alone", result.stderr)
        self.assertFalse((self.folder / "p.txt").exists())

    def test_info_says_whose_points_decide(self):
        points = pathlib.Path(__file__).parents[2] / "compiler/schedule/points/h100.txt"
        spec = next(line for line in points.open() if line.startswith("rmsnorm pass=forward ")).partition(" | ")[0]
        if not json.loads(self.done("info", "--json"))["nvrtc"]["available"]:
            self.skipTest("no NVRTC")
        of = {sm: json.loads(self.done("info", spec, "--target", sm, "--json"))["reason"]
              for sm in ("sm_90 sms=132 shared=232448 l2=52428800", "sm_80")}
        self.assertRegex(of["sm_90 sms=132 shared=232448 l2=52428800"], r"^point of h100\.txt, distance 0\.00: rmsnorm pass=forward ")
        self.assertRegex(of["sm_80"], r"^point of h.00\.txt \(NVIDIA H.*, another GPU\), distance ")

    def test_a_killed_tuner_goes_on_where_it_was(self):
        self.file("\n".join(self.SPECS).encode(), "shapes.txt")
        journal = self.folder / "r.jsonl.progress"
        lines = kills = torn = 0
        for _ in range(200):
            process = subprocess.Popen([program.PROGRAM, *map(str, self.tune(candidates=12))],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and (not journal.exists() or journal.read_text().count("\n") < lines + 7):
                time.sleep(0.001)
            process.kill()
            if process.wait() == 0:
                break
            kills += 1
            lines = journal.read_text().count("\n")
        starts, finishes = collections.Counter(), collections.Counter()
        for line in journal.read_text().splitlines():
            if not line.endswith("}"):  # a kill may cut off what is being written
                torn += 1
                continue
            entry = json.loads(line)
            (starts if entry["did"] == "start" else finishes)[entry["key"]] += 1
        self.assertLessEqual(torn, kills)
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
                         "note: left: 3 of 3 problems; start again to continue\n")

    def test_a_device_that_is_missing_is_one_error(self):
        for words in (self.SPECS, ["--points", self.folder / "p.txt"]):
            result = normjit("tune", *words, "-o", self.folder / "r.jsonl", "--device", "cuda:0",
                             env=os.environ | {"NORMJIT_CUDA_DRIVER": "/nowhere"})
            self.assertEqual((result.returncode, result.stdout), (3, ""))
            self.assertRegex(result.stderr, r"^error: --device cuda:0: cuda: .*/nowhere.*; available: cpu\n$")
            self.assertFalse((self.folder / "p.txt").exists())

    def test_sizes_of_specs_that_are_for_any(self):
        any_size = "layernorm slices=any cols=64 per_slice=gamma"
        self.file((any_size + "\n").encode(), "shapes.txt")
        self.refused(2, "shapes.txt:1: spec: rows is missing: the number of rows to make, at least 1; --rows gives it",
                     *self.tune())
        self.refused(2, "shapes.txt:1: spec: slices=any: the number of slices to make is missing; --slices gives it",
                     *self.tune("--rows", "8"))
        self.done(*self.tune("--rows", "8", "--slices", "3"))
        self.assertEqual([each["spec"] for each in self.records()],
                         ["layernorm slices=3 rows=8 cols=64 per_slice=gamma"])

    def test_usage(self):
        self.file(b"layernorm rows=3 cols=64\nlayernorm cols=7\n", "shapes.txt")
        self.refused(2, "shapes.txt:2: spec: rows is missing: the number of rows to make, at least 1; --rows gives it",
                     *self.tune())
        self.refused(2, "nothing to tune: give a shapes file or a spec (see normjit tune --help)",
                     "tune", "-o", self.folder / "r.jsonl")
        result = normjit("tune", "layernorm rows=1000000000 cols=1000", "-o", self.folder / "r.jsonl")
        self.assertEqual(result.returncode, 3)  # as for normjit bench
        self.assertRegex(result.stderr, "rows=1000000000 cols=1000 take 10.9 TiB; this machine has ")
        self.refused(2, "--shard 5/4: must be one of several parts, such as 1/4",
                     *self.tune("--rows", "8", "--shard", "5/4"))
        self.done("tune", "rmsnorm rows=8 cols=8", "-o", self.folder / "r.jsonl", "--shard", "2/2")
        self.refused(2, "--budget soon: must be a time, such as 90s, 10m or 2h", *self.tune("--rows", "8", "--budget", "soon"))

    def test_files_that_would_be_lost(self):
        shapes, records = self.file(b"layernorm rows=3 cols=64\n", "shapes.txt"), self.folder / "r.jsonl"
        records.write_text("")
        lost = "is already used by this command, and would be lost"
        self.refused(2, f"shapes.txt: {lost}", "tune", shapes, "-o", shapes)
        self.refused(2, f"shapes.txt: {lost}", "tune", shapes, "-o", records, "--json", shapes)
        self.refused(2, f"r.jsonl: {lost}", "tune", shapes, "-o", records, "--json", records)
        self.refused(2, f"shapes.txt: {lost}", "bench", shapes, "--json", shapes)
        new = self.folder / "new.jsonl"
        for name in [new, f"{self.folder}/../{self.folder.name}/new.jsonl"]:
            result = normjit("tune", shapes, "-o", new, "--json", name)
            self.assertEqual((result.returncode, result.stderr), (2, f"error: {name}: {lost}\n"))
        self.assertFalse(new.exists())
        os.link(shapes, self.folder / "other.txt")
        self.refused(2, f"other.txt: {lost}", "bench", shapes, "--json", self.folder / "other.txt")
        self.assertEqual(pathlib.Path(shapes).read_bytes(), b"layernorm rows=3 cols=64\n")
        self.refused(2, "/dev/full: is not a regular file", "tune", shapes, "-o", "/dev/full")
        os.mkfifo(self.folder / "r.jsonl.progress")
        self.refused(2, "r.jsonl.progress: is not a regular file", "tune", shapes, "-o", self.folder / "r.jsonl")
        (self.folder / "q.jsonl.progress").mkdir()
        self.refused(2, "q.jsonl.progress: cannot be written: it is a folder", "tune", shapes, "-o", self.folder / "q.jsonl")
        self.refused(2, "shapes.txt: line 1 is not a tuning record: give another file",
                     "tune", "rmsnorm rows=8 cols=8", "-o", shapes)
        results = self.file(b"{\n  \"version\": 1\n}\n", "results.json")
        self.refused(2, "results.json: line 2 is not a tuning record: give another file", "tune", shapes, "-o", results)

    def test_a_budget_of_more_than_a_clock_counts(self):
        self.file(b"layernorm rows=3 cols=64\n", "shapes.txt")
        self.done(*self.tune("--budget", "1e300h", candidates=1))
        self.assertEqual(len(self.records()), 1)


if __name__ == "__main__":
    program.main()
