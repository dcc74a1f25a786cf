# SPDX-License-Identifier: Apache-2.0
"""Tests the scripts that judge tuning records, with records and results whose verdict is known."""
import json
import os
import pathlib
import subprocess
import sys

import program
from program import Case

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
SCRIPTS = TOOLS / "lab"
FAST, USUAL = "cpu row_block=4", "cpu row_block=2"


def script(name, *arguments):
    return subprocess.run([sys.executable, SCRIPTS / name, *map(str, arguments)], capture_output=True, text=True)


def record(spec, gain, target="x86-64"):
    return {"spec": spec, "device": "M", "target": target, "threads": 2, "heuristic": USUAL, "gain": gain,
            "schedule": FAST if gain > 1 else USUAL}


def duel(spec, low, gain, high, schedule=FAST):
    return {"spec": spec, "schedule": schedule, "against": {"schedule": USUAL, "gain": gain, "low": low, "high": high}}


class Confirm(Case):
    def confirm(self, *runs):
        lines = "\n".join(json.dumps(record(spec, 1.2)) for spec in ["a", "b"])
        records = self.file(lines.encode(), "r.jsonl")
        files = [self.file(json.dumps({"results": run}).encode(), f"{i}.json") for i, run in enumerate(runs)]
        return script("confirm.py", records, *files)

    def test_gains_are_confirmed(self):
        done = self.confirm(*[[duel("a", 1.1, 1.2, 1.3), duel("b", 0.97, 0.99, 1.01)]] * 3)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, "a .* tuner 1.200 +bench 1.200")

    def test_a_record_that_loses_fails_and_is_named(self):
        good, slow = [duel("a", 1.1, 1.2, 1.3), duel("b", 1.1, 1.2, 1.3)], duel("b", 0.9, 0.95, 0.99)
        self.assertEqual(self.confirm(good, good, [good[0], slow]).returncode, 0)  # one loss may be chance
        done = self.confirm(good, [good[0], slow], [good[0], slow])
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"\n +b .*SLOWER\n")
        self.assertNotRegex(done.stdout, r" a .*SLOWER\n")

    def test_a_record_that_is_not_used_fails(self):
        done = self.confirm(*[[duel("a", 0.99, 1, 1.01, schedule=USUAL)]] * 3)
        self.assertEqual(done.returncode, 1)
        self.assertIn("NOT USED", done.stdout)

    def test_runs_in_the_caches_confirm_no_record_of_cold_data(self):
        records = self.file(json.dumps(record("a", 1.2) | {"caches": "cold"}).encode(), "r.jsonl")
        for caches, code in [("cold", 0), ("warm", 1)]:
            run = self.file(json.dumps({"results": [duel("a", 1.1, 1.2, 1.3) | {"caches": caches}]}).encode(), "1.json")
            done = script("confirm.py", records, run)
            self.assertEqual(done.returncode, code)
            self.assertEqual("MEASURED WARM" in done.stdout, caches == "warm")

    def test_nothing_is_no_confirmation(self):
        self.assertEqual(self.confirm([]).returncode, 1)

    def test_what_is_confirmed(self):
        records = [record(f"s{i}", 1 + i / 100) for i in range(40)] + [record("other", 2, target="x86-64-avx512")]
        file = self.file("\n".join(map(json.dumps, records)).encode(), "r.jsonl")
        picked = script("confirm.py", file, "--pick", 8, "--target", "x86-64").stdout.split()
        self.assertEqual(picked[:4], ["s39", "s38", "s37", "s36"])
        self.assertEqual(len(set(picked)), 8)
        self.assertFalse({"s0", "other"} & set(picked))  # the heuristic's own schedule, and the record of another
                                                         # machine


class Round(Case):
    SPEC = "layernorm rows=512 cols=1000"

    def test_a_record_of_a_slow_schedule_fails_the_round(self):
        records = self.folder / "cpu_records.jsonl"
        self.done("tune", self.SPEC, "-o", records, "--candidates", "1", "--seconds", "0.01",
                  env=os.environ | {"NORMJIT_RECORDS": "off"})
        # With a partial for each row, this schedule moves about twice the bytes; no machine's tuner would choose it.
        slow = {"schedule": "cpu row_groups=512 row_block=1 strip=1 unroll=1", "gain": 1.5}
        records.write_text(json.dumps(json.loads(records.read_text()) | slow) + "\n")
        done = subprocess.run([SCRIPTS / "tune_round.sh", pathlib.Path(program.PROGRAM).parent, self.folder, "confirm"],
                              capture_output=True, text=True, env=os.environ | {"CONFIRM_SECONDS": "0.02"})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        runs = [f"ok      cpu: bench of records against the heuristic, run {run}" for run in (1, 2, 3)]
        self.assertEqual([line for line in done.stdout.splitlines() if line.startswith(("ok", "FAILED"))],
                         [*runs, "FAILED  cpu: no record is slower than the heuristic"])
        self.assertRegex(done.stdout, rf"\n  {self.SPEC} +tuner 1.500 +bench 0\..*SLOWER\n")
        self.assertTrue(done.stdout.endswith("\n1 failed\n"))


class Regret(Case):
    def test_shapes_are_drawn(self):
        shapes = self.file(b"# all\n" + b"".join(b"rmsnorm rows=%d cols=8 x=f32 # n\n" % i for i in range(9)), "all.txt")
        fitted = self.file(b"rmsnorm cols=8 rows=3\n\nrmsnorm rows=4 x=bf16 cols=8\n", "fitted.txt")
        everything = script("regret.py", "--draw", shapes, "--without", fitted).stdout.splitlines()
        self.assertEqual(everything, [f"rmsnorm rows={i} cols=8 x=f32" for i in range(9) if i != 3])
        drawn = [script("regret.py", "--draw", shapes, "--sample", 4, "--seed", seed).stdout for seed in (1, 1, 3)]
        self.assertEqual(len(drawn[0].splitlines()), 4)
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])

    def test_random_problems(self):
        drawn = [script("regret.py", "--random", 40, *more).stdout.splitlines()
                 for more in ([], ["--seed", 5], ["--seed", 5], ["--seed", 6, "--most", 1])]
        self.assertEqual([len(each) for each in drawn], [40] * 4)
        self.assertEqual(drawn[1], drawn[2])
        self.assertNotEqual(drawn[0], drawn[1])
        for spec in drawn[3]:
            norm, rows, cols, dtype = spec.split()
            rows, cols = (int(each.split("=")[1]) for each in (rows, cols))
            self.assertNotEqual(cols & (cols - 1), 0)
            self.assertTrue(64 <= cols <= 53248 and 1 << 16 <= rows * cols * 3 * (4 if "f32" in dtype else 2) <= 1 << 20, spec)
        self.assertTrue(any("rows=1 " in spec or "rows=2 " in spec for spec in drawn[0] + drawn[1] + drawn[3]))

    def test_shares_by_size(self):
        small, large = "layernorm rows=4 cols=9000 x=bf16", "rmsnorm rows=90000 cols=3000"
        records = [record(small, 2) | {"share": 0.8}, record(large, 1) | {"share": 0.9}]
        done = script("regret.py", self.file("\n".join(map(json.dumps, records)).encode(), "r.jsonl"), "--classes")
        self.assertRegex(done.stdout, r"\n +0 - 1 +1 +0.400 +0.400 +0.800 +0.800 +2.000 +2.000\n")
        self.assertRegex(done.stdout, r"\n +from 512 +1 +0.900 +0.900 +0.900 +0.900 +1.000 +1.000\n")

    def test_means(self):
        records = self.file("\n".join(json.dumps(record(s, g)) for s, g in [("a", 4), ("b", 1)]).encode(), "r.jsonl")
        done = script("regret.py", records)
        self.assertIn("heuristic over best 2.000 in the geometric mean, 4.000 at worst; beaten in 1", done.stdout)

    def test_the_point_to_blame_is_named(self):
        beaten = record("layernorm rows=8192 cols=4096 x=f16", 1.1, target="sm_90 sms=132 l2=57000000")
        done = script("regret.py", self.file(json.dumps(beaten).encode(), "r.jsonl"), "--why", program.PROGRAM)
        self.assertIn("\n         - point of h", done.stdout)
        self.assertIn("\n         - (chooses cuda row_groups=", done.stdout)  # the record has another heuristic


if __name__ == "__main__":
    program.main()
