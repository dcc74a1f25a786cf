# SPDX-License-Identifier: Apache-2.0
"""Runs the program as on machines whose GPU, driver or both are missing or unusable; a library without hardware
imitates the driver.

    FAKE_CUDA_LIBRARY=libnormjit_fake_cuda.so gpu_test.py PROGRAM [unittest's arguments]
"""
import json
import os
import unittest

import program
from program import Case, normjit

LIBRARY = os.environ.get("FAKE_CUDA_LIBRARY", "")
SPEC = "rmsnorm rows=4 cols=64"


def driver(library=LIBRARY, **told):
    """Returns the environment of a program that opens this driver."""
    words = " ".join(f"{key}={value}" for key, value in told.items())
    return {"env": os.environ | {"NORMJIT_CUDA_DRIVER": library, "FAKE_CUDA": words}}


class NoGpu(Case):
    def refused_for(self, reason, device="cuda:0", **options):
        for command in (["run", SPEC], ["bench", SPEC]):
            with self.subTest(command=command[0], reason=reason):
                result = normjit(*command, "--device", device, **options)
                self.assertEqual((result.returncode, result.stdout), (3, ""), result.stderr)
                self.assertRegex(result.stderr, rf"^error: --device {device}: {reason}; available: [^\n]*\n$")

    def test_no_driver(self):
        self.refused_for(r"cuda: no driver: /none/libcuda.so: cannot open [^\n]*", **driver("/none/libcuda.so"))

    def test_an_old_driver(self):
        reason = r"cuda: the driver is too old: it supports CUDA 11\.4; it must support CUDA 11\.8"
        self.refused_for(reason, **driver(version=11040))

    def test_no_device(self):
        self.refused_for("cuda: the driver finds no device", **driver(devices=0))
        self.refused_for("cuda: the driver finds no device", **driver(fail="cuInit:100"))

    def test_a_device_beyond_the_last(self):
        self.refused_for("cuda: no device 2; this process sees 2", device="cuda:2", **driver())

    def test_the_cpu_still_works(self):
        self.assertIn("right", self.done("run", SPEC, "--check", **driver("/none/libcuda.so")))

    def test_a_gpu_that_fails_is_no_missing_gpu(self):
        result = normjit("run", SPEC, "--device", "cuda:0", **driver(fail="cuDevicePrimaryCtxRetain:2"))
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertRegex(result.stderr, r"^error: cuda: [^\n]*: error 2, unknown\n$")


class Tune(Case):
    def test_kernels_that_other_processes_compiled_are_loaded_and_checked(self):
        result = normjit("tune", SPEC, "-o", self.folder / "r.jsonl", "--device", "cuda:0", **driver())
        if "NVRTC" in result.stderr:
            self.skipTest(result.stderr.strip())
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, f"^error: {SPEC}: wrong: dx at row 0, column 0 ")  # this driver computes nothing


class Info(Case):
    def devices(self, **options):
        return json.loads(self.done("info", "--json", **options))["devices"][1:]

    def test_the_gpus_of_a_driver(self):
        listed = self.devices(**driver())
        self.assertEqual([device["name"] for device in listed], ["cuda:0", "cuda:1"])
        self.assertTrue(all(device["available"] for device in listed))
        self.assertIn("Fake H, sm_90 sms=132", listed[0]["description"])

    def test_no_driver(self):
        (device,) = self.devices(**driver("/none/libcuda.so"))
        self.assertEqual((device["name"], device["available"]), ("cuda", False))
        self.assertIn("/none/libcuda.so", device["description"])

    def test_the_variable_is_shown(self):
        variables = json.loads(self.done("info", "--json", **driver()))["environment"]
        (found,) = [each for each in variables if each["name"] == "NORMJIT_CUDA_DRIVER"]
        self.assertEqual(found["value"], LIBRARY)


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        raise SystemExit("FAKE_CUDA_LIBRARY does not name a file")
    program.main()
