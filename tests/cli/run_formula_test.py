# SPDX-License-Identifier: Apache-2.0
"""normjit run: formulas on tensors in a file. Runs the real program.

    run_formula_test.py PROGRAM [unittest's arguments]
"""
import math
import pathlib
import struct

import program
from program import Case, f32, normjit, read_tensors, tensor_file

GATED = ("norm gated(x[M,N], z[M,N], w?[N]) -> y[M,N], rstd?[M] "
         "{ rstd = rsqrt(row_mean(x * x) + 1e-5); y = x * rstd * w * silu(z) }")
X, Z, W, DY = [[1.0, -2.0], [0.5, 3.0]], [[0.3, 1.0], [-1.0, 2.0]], [1.5, -0.5], [[1.0, 2.0], [-1.0, 0.25]]


def gated(x, z, w):
    """Returns y and rstd of rows in double precision."""
    y, statistics = [], []
    for row, gates in zip(x, z):
        rstd = 1 / math.sqrt(sum(value * value for value in row) / len(row) + 1e-5)
        y.append([value * rstd * scale * gate / (1 + math.exp(-gate)) for value, gate, scale in zip(row, gates, w)])
        statistics.append(rstd)
    return y, statistics


def slopes(function, at):
    """Returns the gradient of a number by finite differences."""
    found = []
    for i in range(len(at)):
        sides = [function([*at[:i], at[i] + step, *at[i + 1:]]) for step in (1e-6, -1e-6)]
        found.append((sides[0] - sides[1]) / 2e-6)
    return found


def rows(values):
    return [values[:2], values[2:]]


def flat(of_rows):
    return [value for row in of_rows for value in row]


def matrix(of_rows):
    return "F32", [1, 2, 2], f32(*flat(of_rows))


def problem(**others):
    return {"x": matrix(X), "z": matrix(Z), "w": ("F32", [2], f32(*W)), **others}


class RunFormula(Case):
    def computed(self, tensors, *words, metadata=None):
        output = self.folder / "out.safetensors"
        self.done("run", "--input", self.file(tensor_file(tensors, metadata)), "--output", output, "--check", *words)
        return read_tensors(output)

    def assert_near(self, tensor, shape, wanted):
        self.assertEqual(tensor[:2], ("F32", shape))
        for one, other in zip(struct.unpack(f"<{len(wanted)}f", tensor[2]), wanted, strict=True):
            self.assertAlmostEqual(one, other, delta=1e-4)

    def test_forward(self):
        y, rstd = gated(X, Z, W)
        file = self.folder / "gated.norm"
        file.write_text(GATED)
        for text in (GATED, file):
            tensors, metadata = self.computed(problem(), text, "pass=forward", "out=y,rstd")
            self.assert_near(tensors["y"], [1, 2, 2], flat(y))
            self.assert_near(tensors["rstd"], [1, 2], rstd)
        self.assertEqual(metadata["spec"].partition("} ")[2], "pass=forward rows=2 cols=2 w=f32 out=rstd,y")

    def test_the_formula_is_not_replaced(self):
        formula = self.file((GATED + "\n").encode(), "own.norm")
        for text in (["own.norm", "pass=forward"], ["own.norm pass=forward"]):
            result = normjit("run", "--input", self.file(tensor_file(problem())), "--output", "own.norm", *text, cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr),
                             (2, "error: own.norm: is already used by this command, and would be lost\n"))
        self.assertEqual(pathlib.Path(formula).read_text(), GATED + "\n")

    def test_gradients(self):
        def of(x=flat(X), z=flat(Z), w=W):
            return sum(a * b for a, b in zip(flat(gated(rows(x), rows(z), w)[0]), flat(DY)))

        wanted = {"dx": slopes(lambda x: of(x=x), flat(X)), "dz": slopes(lambda z: of(z=z), flat(Z)), "dw": slopes(lambda w: of(w=w), W)}
        statistics = ("F32", [1, 2], f32(*gated(X, Z, W)[1]))
        for others, saved in (({}, "save=none"), ({"rstd": statistics}, "")):
            tensors, metadata = self.computed(problem(dy=matrix(DY), **others), GATED)
            self.assertIn(saved, metadata["spec"])
            for name, values in wanted.items():
                self.assert_near(tensors[name], [2] if name == "dw" else [1, 2, 2], values)

    def test_problems_in_one_file(self):
        tensors = {f"{name}.{key}": value for name in ("a", "b.c") for key, value in problem(dy=matrix(DY)).items()}
        made, _ = self.computed({**tensors, "other": matrix(X)}, metadata={"spec": GATED + " out=dx", "b.c.spec": "out=dw"})
        self.assertEqual(sorted(made), ["a.dx", "b.c.dw"])

    def test_sums_are_added_to(self):
        tensors = problem(dy=matrix(DY))
        plain, _ = self.computed(tensors, GATED, "out=dw")
        added, _ = self.computed({**tensors, "dw": ("F32", [2], f32(10, 20))}, GATED, "out=dw", "accumulate=dw")
        values = struct.unpack("<2f", plain["dw"][2])
        self.assert_near(added["dw"], [2], [values[0] + 10, values[1] + 20])

    def test_slices_runs_and_numbers(self):
        x = ("F32", [2, 3, 4], f32(*range(24)))
        sliced, _ = self.computed({"x": x, "w": ("F32", [2, 4], f32(*range(8)))}, "norm f(x[S,M,N], w[S,N]) -> y[S,M,N] { y = x * w }",
                                  "pass=forward")
        self.assert_near(sliced["y"], [2, 3, 4], [i * (i % 4 + 4 * (i // 12)) for i in range(24)])
        shared, metadata = self.computed({"x": x, "a": ("F32", [3, 4], f32(*range(12)))},
                                         "norm f(x[S,M,N], a[M,N]) -> y[S,M,N] { y = x * a }", "pass=forward")
        self.assertIn("slices=2", metadata["spec"])
        self.assert_near(shared["y"], [2, 3, 4], [i * (i % 12) for i in range(24)])
        runs = {"x": x, "w": ("F32", [2], f32(10, 20)), "a": ("F32", [], f32(3))}
        made, _ = self.computed(runs, "norm f(x[M,N], w[N/R], a[]) -> y[M,N] { y = x * w * a }", "pass=forward", "R=2")
        self.assert_near(made["y"], [2, 3, 4], [i * 3 * (20 if i % 4 > 1 else 10) for i in range(24)])
        sums, _ = self.computed({**runs, "dy": x}, "norm f(x[M,N], w[N/R], a[]) -> y[M,N] { y = x * w * a }", "out=dw,da")  # R follows from w
        self.assert_near(sums["dw"], [2], [sum(3 * i * i for i in range(24) if (i % 4 > 1) == second) for second in (False, True)])
        self.assertEqual(sums["da"][:2], ("F32", []))

    def test_eight_bit_types(self):
        x = ("F32", [1, 128], f32(*([1, -1] * 64)))
        made, _ = self.computed({"x": x, "gamma": ("F32", [128], f32(*[1] * 128))}, "rmsnorm_blocks", "pass=forward", "y=e4m3")
        self.assertEqual(made["y"], ("F8_E4M3", [1, 128], bytes([0x7E, 0xFE] * 64)))  # 448 and -448
        self.assert_near(made["scale"], [1, 1], [1 / 448])

    def test_results_are_compared(self):
        y = flat(gated(X, Z, W)[0])
        for change, code in ((0, 0), (1, 1)):
            expected = ("F32", [1, 2, 2], f32(y[0] + change, *y[1:]))
            result = normjit("run", "--input", self.file(tensor_file(problem(**{"expected.y": expected}))), GATED, "pass=forward")
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)

    def test_a_gradient_whose_factors_underflow_is_right(self):
        power = "norm power(x[M,N]) -> y[M,N] { a = x * x; b = a * a; c = b * b; d = c * c; y = d * d * x }"
        result = normjit("run", power, "rows=40 cols=64", "--check")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"dx +f32 .* right")

    def test_what_is_refused(self):
        column = ("F32", [3], f32(1, 2, 3))
        other = ("F32", [2, 2], f32(1, 2, 3, 4))
        for tensors, words, message in (
                ({"x": matrix(X)}, [GATED, "pass=forward"], 'there is no tensor "z", which the formula reads'),
                (problem(), [GATED], "has no problem of the formula: a problem has the tensors that the formula reads"),
                ({"q": matrix(X)}, ["softmax", "pass=forward"], "has no problem of the formula"),
                (problem(z=other), [GATED, "pass=forward"], 'tensor "z": shape [2, 2] must be that of x, [1, 2, 2]'),
                (problem(w=column), [GATED, "pass=forward"], 'tensor "w": shape [3] must be [2], the columns of x'),
                (problem(dy=matrix(DY), rstd=column), [GATED], 'tensor "rstd": shape [3] must have 2 elements, the rows of x'),
                (problem(), [GATED, "pass=forward", "x=bf16"], 'tensor "x": has x=f32, not bf16'),
                (problem(), [GATED, "pass=forward", "rows=3"], 'tensor "x": has rows=2, not 3')):
            with self.subTest(message):
                result = normjit("run", "--input", self.file(tensor_file(tensors)), *words)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(message, result.stderr)

    def test_unused_tensors_are_noticed(self):
        result = normjit("run", "--input", self.file(tensor_file(problem(**{"v": matrix(X), "expected.dx": matrix(X)}))), GATED, "pass=forward")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('tensor "v" is not used', result.stderr)
        self.assertIn('tensor "expected.dx" is not used: dx is not computed', result.stderr)


if __name__ == "__main__":
    program.main()
