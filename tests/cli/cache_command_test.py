# SPDX-License-Identifier: Apache-2.0
"""normjit cache: folders and packs of compiled kernels. Runs the real program.

    cache_command_test.py PROGRAM [unittest's arguments]
"""
import json
import os
import subprocess

import program
from program import Case, normjit


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
        self.refused(2, "NORMJIT_CACHE_SIZE=big: must be a whole number of bytes, at least 1, or one such as 64K, 512M or 2G", "cache", "list",
                     env=os.environ | {"NORMJIT_CACHE_SIZE": "big"})

    def test_list(self):
        self.fill()
        entries = self.show("list")["entries"]
        self.assertEqual([entry["spec"] for entry in entries], self.SPECS[::-1])
        self.assertEqual({entry["maker"] for entry in entries}, {"none"})
        self.fill()  # this time from the cache
        self.assertEqual(len(self.show("list")["entries"]), 2)
        for spec in self.SPECS:
            self.assertIn(spec, self.done("cache", "list", env=self.environment))

    def test_fill(self):
        """Fills a folder that only --dir names with kernels for any number of rows and slices, from specs in a file and
        as words."""
        specs, warm = self.folder / "specs.txt", self.folder / "warm"
        specs.write_text("rmsnorm cols=8  # small\n\nlayernorm rows=3 cols=9 x=bf16\n")
        told = self.done("cache", "fill", specs, "layernorm", "cols=9", "--dir", warm, "--json")
        self.assertEqual(json.loads(told), {"specs": 3, "entries": 3})
        entries = json.loads(self.done("cache", "list", "--dir", warm, "--json"))["entries"]
        self.assertEqual({entry["spec"] for entry in entries},
                         {"rmsnorm cols=8", "layernorm rows=3 cols=9 x=bf16", "layernorm cols=9"})
        self.assertIn("3 kernels", self.done("cache", "fill", specs, "--dir", warm))
        specs.write_text("layernorm slices=any cols=8 per_slice=gamma\n")
        self.assertIn("4 kernels", self.done("cache", "fill", specs, "--dir", warm))
        self.done("cache", "fill", "layernorm rows=~1 cols=1024", "--dir", warm)
        self.done("cache", "fill", "layernorm cols=1024", "--dir", warm)
        entries = [entry for entry in json.loads(self.done("cache", "list", "--dir", warm, "--json"))["entries"]
                   if entry["spec"] == "layernorm cols=1024"]
        self.assertEqual(len({entry["schedule"] for entry in entries}), 2)
        told = self.done("cache", "fill", "layernorm slices=~any cols=8 per_slice=gamma", "--dir", warm, "--json")
        self.assertEqual(json.loads(told)["specs"], 1)
        self.refused(2, "spec: rows=x: must be a whole number", "cache", "fill", "layernorm rows=~x cols=8", "--dir", warm)
        self.refused(2, "spec: cols=0: must be at least 1", "cache", "fill", "layernorm cols=0", "--dir", warm)
        asked = self.folder / "asked.txt"
        self.done("run", "rmsnorm rows=2 cols=8", env=os.environ | {"NORMJIT_CAPTURE": str(asked)})
        self.assertEqual(asked.read_text(), "rmsnorm rows=2 cols=8\n")
        self.refused(2, "nothing to make: give a file of specs or a spec (see normjit cache fill --help)", "cache", "fill")
        none = self.file(b"# nothing\n", "none.txt")
        for command in [["cache", "fill"], ["bench"], ["tune", "-o", self.folder / "r.jsonl"]]:
            self.refused(2, "none.txt: has no spec; such a file has one in each line", *command, none)
        result = normjit("cache", "fill", "rmsnorm cols=8", "--device", "cuda:99", "--dir", warm)
        self.assertEqual(result.returncode, 3)
        self.assertIn("--device cuda:99: ", result.stderr)

    def test_a_folder_that_does_not_hold_what_it_was_to_be_filled_with(self):
        small = self.folder / "small"
        result = normjit("cache", "fill", "rmsnorm cols=8", "rmsnorm cols=9", "--dir", small,
                         env=os.environ | {"NORMJIT_CACHE_SIZE": "100"})
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stderr.endswith(f"error: cache: {small} lacks 2 of 2 kernels\n"), result.stderr)

    def test_damage_is_found_and_repaired(self):
        self.fill()
        self.assertEqual(self.show("verify"), {"entries": 2, "damaged": []})
        damaged = sorted(self.cache.glob("*/*"))[0]
        damaged.write_bytes(damaged.read_bytes()[:-10])
        result = normjit("cache", "verify", env=self.environment)
        self.assertEqual((result.returncode, result.stdout), (1, "2 kernels, 1 damaged\n"))
        self.assertIn("checksum: does not match", result.stderr)
        notes = [normjit("run", spec, "--check", env=self.environment).stderr for spec in self.SPECS]
        self.assertEqual(sum("checksum: does not match: the artifact is damaged; the kernel is made again" in note for note in notes), 1)
        self.assertEqual(self.show("verify"), {"entries": 2, "damaged": []})

    def test_garbage(self):
        self.fill()
        (self.cache / f"{'0' * 32}-none.kernel").write_text("something else")
        foreign = self.cache / "foreign.kernel"
        foreign.write_text("somebody else's")
        self.assertEqual(self.show("gc")["removed_files"], 1)
        left = self.show("gc", "--size", "1")
        self.assertEqual((left["removed_files"], left["entries"], left["bytes"]), (2, 0, 0))
        self.assertTrue(foreign.exists())
        message = "--size 0: must be a whole number of bytes, at least 1, or one such as 64K, 512M or 2G"
        self.refused(2, message, "cache", "gc", "--size", "0", "--dir", self.cache)

    def test_files_that_disappear_are_not_damaged(self):
        self.fill()
        entry = next(self.cache.rglob("*.kernel"))
        # Reading this many takes longer than removing them.
        copies = [self.cache / f"{i:032x}-none.kernel" for i in range(3000)]
        for copy in copies:
            copy.write_bytes(entry.read_bytes())
        with subprocess.Popen([program.PROGRAM, "cache", "list", "--json"], env=self.environment,
                              stdout=subprocess.PIPE, text=True) as running:
            for copy in copies:
                copy.unlink()
            errors = {each.get("error") for each in json.load(running.stdout)["entries"]}
        self.assertLessEqual(errors, {None, "artifact: has the name of another artifact"})

    def test_names_that_are_no_text(self):
        folder = os.fsencode(self.folder) + b"/\xff"
        told = self.done("cache", "list", "--dir", os.fsdecode(folder), "--json")
        self.assertEqual(json.loads(told)["folder"], f"{self.folder}/\ufffd")

    def test_a_pack_serves_a_product(self):
        self.fill()
        pack = self.folder / "product.pack"
        self.assertEqual(self.show("pack", "-o", pack)["entries"], 2)
        self.assertEqual(self.show("verify", pack), {"entries": 2, "damaged": []})
        kept, packed = ({(each["spec"], each["target"], each["bytes"]) for each in self.show("list", *given)["entries"]}
                        for given in ((), (pack,)))
        self.assertEqual(kept, packed)
        self.assertIn("2 kernels", self.done("cache", "list", pack))
        environment = self.environment | {"NORMJIT_CACHE_DIR": "off", "NORMJIT_CACHE_PACKS": str(pack)}
        self.done("run", self.SPECS[0], "--check", env=environment)
        pack.write_bytes(pack.read_bytes()[:-1])
        self.refused(2, "pack: product.pack: is not a pack of this version, or is cut off", "cache", "verify", pack)


if __name__ == "__main__":
    program.main()
