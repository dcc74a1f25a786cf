#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py [--build]: checks the vcpkg port, the conda recipe and the licenses of others against the sources: versions,
options, and that they name every library that CMake searches for. With --build it also builds them, where vcpkg and rattler-build are. Prints
what was checked and what was not, and exits with 1 if something is wrong."""
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PORT, RECIPE = HERE / "vcpkg" / "normjit", HERE / "conda" / "recipe.yaml"
PRODUCT = ("CMakeLists.txt", "compiler/CMakeLists.txt", "runtime/CMakeLists.txt", "tools/normjit/CMakeLists.txt",
           "tools/cmake/llvm.cmake", "tools/cmake/packages.cmake")
OTHERS = {"threads", "doctest"}  # what belongs to the C library, what only tests need


def libraries():
    """Returns the names of the libraries that the sources of the product need, as packages write them."""
    text = "\n".join((ROOT / name).read_text() for name in PRODUCT)
    found = re.findall(r"^ *(?:find_package|normjit_need_target|normjit_need_header)\((\w+)", text, re.MULTILINE)
    return {name.lower().replace("_", "-") for name in found} - OTHERS


def names_in(dependencies):
    """Returns the names of a port's dependencies."""
    return {each if isinstance(each, str) else each["name"] for each in dependencies}


def wrong_in_files():
    version = re.search(r"project\(normjit VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    options = set(re.findall(r"(?:option\(|^set\()(NORMJIT_\w+)", "".join((ROOT / name).read_text() for name in PRODUCT), re.MULTILINE))
    port, portfile, recipe = json.loads((PORT / "vcpkg.json").read_text()), (PORT / "portfile.cmake").read_text(), RECIPE.read_text()
    if port["version"] != version:
        yield f"vcpkg.json: version {port['version']}; the sources are {version}"
    if f'version: "{version}"' not in recipe:
        yield f"recipe.yaml: the sources are version {version}"
    if set(port["features"]) - set(re.findall(r"(\w+) NORMJIT_", portfile)):
        yield "vcpkg.json: a feature is not in portfile.cmake"
    for name, text in (("portfile.cmake", portfile), ("recipe.yaml", recipe)):
        for option in sorted(set(re.findall(r"NORMJIT_\w+", text)) - options):
            yield f"{name}: {option}: there is no such option; there are {', '.join(sorted(options))}"
    in_port = names_in(port["dependencies"]).union(*(names_in(each["dependencies"]) for each in port["features"].values()))
    hosts = [set(re.findall(r"- ([\w-]+)", part)) for part in re.findall(r"      host:\n((?:        - .*\n)+)", recipe)]
    notices = (HERE / "THIRD_PARTY_LICENSES.txt").read_text()
    for library in sorted(libraries()):
        if not re.search(rf"^{library.replace('-', '.')}: ", notices, re.MULTILINE):
            yield f"THIRD_PARTY_LICENSES.txt: {library} is missing"
        if library not in in_port:
            yield f"vcpkg.json: {library} is missing"
        conda = {"llvm": "llvmdev"}.get(library, library)
        for host in hosts:
            if conda not in {name.replace("_", "-") for name in host}:
                yield f"recipe.yaml: {conda} is missing in an output"


def run(words, what):
    """Runs a command; returns what went wrong, or nothing."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return [f"{what}: {done.stdout.strip()[-2000:]}"] if done.returncode else []


def check_port(build):
    if build and shutil.which("vcpkg"):
        with tempfile.TemporaryDirectory() as work:
            return run(["vcpkg", "install", "normjit[tools]", f"--overlay-ports={PORT.parent}", f"--x-install-root={work}"],
                       "vcpkg"), "built by vcpkg"
    with tempfile.TemporaryDirectory() as work:
        wrong = run(["cmake", f"-DPORT={PORT}", f"-DWORK={work}", "-P", HERE / "ports.cmake"], "vcpkg")
    return wrong, "configured; not built: " + ("--build was not given" if shutil.which("vcpkg") else "there is no vcpkg here")


def check_recipe(build):
    if build and shutil.which("rattler-build"):
        return run(["rattler-build", "build", "--recipe", RECIPE], "conda"), "built by rattler-build"
    not_built = "not built: " + ("--build was not given" if shutil.which("rattler-build") else "there is no rattler-build here")
    if importlib.util.find_spec("rattler_build") is None:
        return [], f"read as text only, for want of the package py-rattler-build; {not_built}"
    import rattler_build

    try:
        variants = rattler_build.VariantConfig.from_file(RECIPE.parent / "variants.yaml")
        made = rattler_build.Stage0Recipe.from_file(RECIPE).render(variants)
    except Exception as error:
        return [f"conda: {error}"], "refused"
    return [], f"rendered as {len(made)} packages; {not_built}"


def main():
    build = "--build" in sys.argv[1:]
    wrong = list(wrong_in_files())
    for name, check in (("vcpkg", check_port), ("conda", check_recipe)):
        more, what = check(build)
        wrong += more
        print(f"{name}: {what}")
    print("\n".join(wrong) if wrong else "versions, options and libraries are those of the sources")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
