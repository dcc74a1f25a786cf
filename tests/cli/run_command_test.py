# SPDX-License-Identifier: Apache-2.0
"""normjit run: from tensors in a file, or made data, to gradients. Runs the real program.

    run_command_test.py PROGRAM [unittest's arguments]
"""
import json
import re

import program
from program import SAMPLE, Case, f32, normjit, read_tensors, small_problem, tensor_file


def layernorm_gradients(x, dy, gamma, mean, rstd):
    """Computes the gradients from plain lists of rows, by the formula in spec.h."""
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

    def test_slices_of_a_file(self):
        x, dy, gamma, mean, rstd = [[1, 3], [-1, 1]], [[1, 0], [0, 2]], [[1, 1], [2, 3]], [2, 0], [1, 1]
        each = [layernorm_gradients([x[i]], [dy[i]], gamma[i], [mean[i]], [rstd[i]]) for i in range(2)]
        problem = small_problem() | {name: ("F32", [2, 1, 2], f32(*rows[0], *rows[1])) for name, rows in
                                     [("x", x), ("dy", dy)]}
        problem["gamma"] = ("F32", [2, 2], f32(*gamma[0], *gamma[1]))
        tensors, metadata = self.gradients(problem)
        self.assertEqual(metadata["spec"], "layernorm slices=2 rows=1 cols=2 per_slice=gamma")
        self.assertEqual(tensors["dx"], ("F32", [2, 1, 2], f32(*each[0][0][0], *each[1][0][0])))
        self.assertEqual(tensors["dgamma"], ("F32", [2, 2], f32(*each[0][1], *each[1][1])))
        self.assertEqual(tensors["dbeta"], ("F32", [2], f32(*(a + b for a, b in zip(each[0][2], each[1][2])))))
        problem["gamma"] = ("F32", [1, 2], f32(1, 1))
        self.refused(2, 't.safetensors: tensor "gamma": shape [1, 2] must be [2], the columns of x, or have the first '
                     "dimensions of its shape [2, 1, 2] before them", "run", "--input", self.file(tensor_file(problem)))

    def test_gradients_have_the_shapes_of_their_weights(self):
        x = ("F32", [1, 2, 1, 2], f32(1, 3, -1, 1))
        for shape, gamma in [([1, 2, 2], [1, 1, 2, 3]), ([1, 2, 1, 2], [1, 1, 2, 3]), ([1, 2], [1, 1]), ([2], [1, 1])]:
            tensors, _ = self.gradients({"x": x, "dy": x, "gamma": ("F32", shape, f32(*gamma))}, "norm=rmsnorm")
            self.assertEqual(tensors["dgamma"][1], shape)

    def test_one_slice(self):
        problem = small_problem()
        problem |= {name: ("F32", [1, 2, 2], problem[name][2]) for name in ("x", "dy")}
        plain, _ = self.gradients(problem)
        problem["gamma"] = ("F32", [1, 2], problem["gamma"][2])
        for words in [[], ["slices=1"], ["slices=any"], ["slices=1", "per_slice=gamma"], ["slices=any", "per_slice=gamma"]]:
            tensors, metadata = self.gradients(problem, *words)
            self.assertEqual(metadata["spec"], "layernorm rows=2 cols=2")
            self.assertEqual(tensors, plain | {"dgamma": ("F32", [1, 2], plain["dgamma"][2])})

    def test_any_slices_are_those_of_the_tensors(self):
        problem = small_problem()
        problem |= {name: ("F32", [2, 1, 2], problem[name][2]) for name in ("x", "dy")}
        problem["gamma"] = ("F32", [2, 2], f32(1, 1, 2, 3))
        _, metadata = self.gradients(problem, "slices=any", "per_slice=gamma")
        self.assertEqual(metadata["spec"], "layernorm slices=2 rows=1 cols=2 per_slice=gamma")

    def test_a_weight_that_is_a_number_is_refused(self):
        problem = small_problem() | {"gamma": ("F32", [], f32(1))}
        for words, allowed in [(["slices=2", "per_slice=gamma"], "[2, 2], a row for each slice"),
                               ([], "[2], the columns of x")]:
            self.refused(2, f't.safetensors: tensor "gamma": shape [] must be {allowed}', "run", "--input",
                         self.file(tensor_file(problem)), *words)

    def test_no_rows(self):
        nothing = ("F32", [0, 2], b"")
        tensors, _ = self.gradients({"x": nothing, "dy": nothing, "gamma": ("F32", [2], f32(1, 1))}, "norm=rmsnorm")
        self.assertEqual(tensors["dx"], nothing)
        self.assertEqual(tensors["dgamma"], ("F32", [2], f32(0, 0)))

    def test_no_slices(self):
        x, gamma = ("F32", [0, 3, 2], b""), ("F32", [0, 2], b"")
        self.refused(2, 't.safetensors: tensor "gamma": shape [0, 2] has no slice; there must be one or more', "run",
                     "--input", self.file(tensor_file({"x": x, "dy": x, "gamma": gamma})), "norm=rmsnorm")

    def test_a_misspelt_tensor_is_noticed(self):
        tensors = small_problem()
        tensors["gama"] = tensors.pop("gamma")
        result = normjit("run", "--input", self.file(tensor_file(tensors)))
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr, f'note: {self.folder}/t.safetensors: tensor "gama" is not used\n')

    def test_expected_tensors_have_the_shapes_of_outputs(self):
        turned = small_problem() | {"expected.dx": ("F32", [2, 1, 2], f32(0, 0, 0, 0))}
        self.refused(2, 't.safetensors: tensor "expected.dx": has the shape [2, 1, 2], dx has [1, 2, 2]',
                     "run", "--input", self.file(tensor_file(turned)))
        misspelt = small_problem() | {"expected.dz": ("F32", [2], f32(0, 0))}
        result = normjit("run", "--input", self.file(tensor_file(misspelt)))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('tensor "expected.dz" is not used: dz is not computed', result.stderr)

    def test_an_expected_tensor_that_is_not_compared_is_noticed(self):
        tensors = small_problem() | {"expected.dbeta": ("F32", [2], f32(7, 7))}
        result = normjit("run", "--input", self.file(tensor_file(tensors)), "out=dx", "--check")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('tensor "expected.dbeta" is not used: dbeta is not computed', result.stderr)

    def test_a_framework_that_differs_fails_the_check(self):
        tensors = small_problem() | {"expected.dbeta": ("F32", [2], f32(1, 2.5))}
        result = normjit("run", "--input", self.file(tensor_file(tensors)))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "error: 1 of 3 outputs are outside their tolerance, the first is dbeta\n")
        self.assertIn("DIFFERS", result.stdout)

    def test_the_layer_of_a_file(self):
        problem = small_problem()
        tensors = {"x": problem["x"], "gamma": problem["gamma"], "beta": ("F32", [2], f32(10, 20)),
                   "residual": ("F32", [1, 2, 2], f32(1, 1, 0, 0)), "expected.y": ("F32", [1, 2, 2], f32(9, 21, 9, 21))}
        words = ["pass=forward", "norm=layernorm", "eps=0", "out=y,h,mean"]
        layer, metadata = self.gradients(tensors, *words)
        self.assertEqual(layer["h"], ("F32", [1, 2, 2], f32(2, 4, -1, 1)))
        self.assertEqual(layer["mean"], ("F32", [1, 2], f32(3, 0)))
        self.assertEqual(sorted(layer), ["h", "mean", "y"])
        self.assertIn("layernorm pass=forward rows=2 cols=2 residual=f32", metadata["spec"])

    def test_an_output_is_replaced_whole(self):
        output = self.folder / "g.safetensors"
        output.write_bytes(b"something else" * 1000)
        self.done("run", "--input", self.file(tensor_file(small_problem())), "--output", output)
        self.assertEqual(sorted(read_tensors(output)[0]), ["dbeta", "dgamma", "dx"])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["g.safetensors", "t.safetensors"])

    def test_the_input_is_not_replaced(self):
        path = self.file(tensor_file(small_problem()))
        self.refused(2, "t.safetensors: is already used by this command, and would be lost",
                     "run", "--input", path, "--output", path)

    def test_the_artifact_is_not_replaced(self):
        artifact = self.folder / "k.artifact"
        self.done("compile", "layernorm rows=2 cols=2", "--emit", "artifact", "-o", artifact)
        self.refused(2, "k.artifact: is already used by this command, and would be lost", "run", "--input",
                     self.file(tensor_file(small_problem())), "--artifact", artifact, "--output", artifact)

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

    def test_an_artifact_for_any_slices(self):
        artifact = self.folder / "k.artifact"
        self.done("compile", "rmsnorm slices=any cols=2 per_slice=gamma stats=recompute", "--emit", "artifact", "-o",
                  artifact)
        made = "rmsnorm slices=3 rows=5 cols=2 per_slice=gamma stats=recompute"
        self.done("run", made, "--artifact", artifact, "--check")
        x, gamma = ("F32", [2, 1, 2], f32(1, 3, -1, 1)), ("F32", [2, 2], f32(1, 2, 3, 4))
        path = self.file(tensor_file({"x": x, "dy": x, "gamma": gamma}))
        outputs = []
        for words in [["--artifact", artifact], []]:
            output = self.folder / "g.safetensors"
            self.done("run", "--input", path, "norm=rmsnorm", "--check", "--output", output, *words)
            outputs.append(read_tensors(output)[0])
        self.assertEqual(outputs[0], outputs[1])

    def test_made_data(self):
        for text in [
            "layernorm rows=33 cols=257 x=bf16 gamma=f32",
            "rmsnorm rows=5 cols=1000 x=f16 stats=recompute",
            "rmsnorm rows=7 cols=1 out=dx",
            "layernorm rows=0 cols=9",
            "layernorm pass=forward rows=33 cols=257 x=bf16 gamma=f32 out=y,mean,rstd",
            "rmsnorm pass=forward rows=9 cols=64 x=bf16 residual=f32 rowscale=f32",
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


if __name__ == "__main__":
    program.main()
