"""The order of the rooms, read from the source: who may import whom, and which packages are imported where."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import optgeom

PACKAGE = Path(optgeom.__file__).parent
ROOT = PACKAGE.parent

# Sampling is above realization: points under a law of full support, the anchor left out, ARE a weighted program, with
# its verdict. Imports go to earlier lines, or stay within one line where its rooms are joined by "&"; rooms joined by
# "|" do not know each other.
ORDER = """
errors & choices
formatting & progress & _numerics & _checks
inputs
losses
programs
certificates
result & io
prototypes & geometry_file & geometry & wording
solvers
collapse | realization
embeddings
sampling
plotting
training
"""
LEVELS = [(line.replace("|", "&").split(" & "), "|" in line) for line in ORDER.strip().splitlines()]
LEVEL = {room.strip(): number for number, (rooms, _) in enumerate(LEVELS) for room in rooms}
PARALLEL = {room.strip() for rooms, parallel in LEVELS if parallel for room in rooms}

# Where a package may be imported at all; everywhere outside training only inside functions.
OPTIONAL = {
    "cvxpy": {"solvers/conic.py", "solvers/cutting_planes.py", "certificates/cuts.py"},
    "clarabel": {"solvers/conic.py"},
    "torch": {"training/", "io.py", "embeddings/readers/torch_files.py"},
    "pyarrow": {"embeddings/readers/", "collapse/scan_table.py"},
    "safetensors": {"io.py"},
    "torchmetrics": {"training/"},
    "torchvision": {"training/"},
    "jinja2": {"plotting/"},
    "markupsafe": {"plotting/"},
    "matplotlib": {"plotting/"},
    "mpl_toolkits": {"plotting/"},
}
CORE = {"numpy", "scipy", "optgeom"}

# Modules of a room with fewer lines of code join the one whose idea they belong to, but for these: a contract, a
# theorem, or a set of definitions that several modules share.
FLOOR = 40
BRIEF = {
    "certificates/uniqueness.py",
    "collapse/batch_noise.py",
    "embeddings/moments/source.py",
    "embeddings/moments/rounding.py",
    "programs/gram_program.py",
    "programs/group_matrix.py",
    "sampling/maps.py",
}
NO_CODE = {tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
NO_CODE |= {tokenize.ENDMARKER}
BLUNT_NAMES = {"found", "held", "told", "said"}
# Still to be gone through; a room leaves this line when its names are done.
UNNAMED_ROOMS = {"embeddings"}
# What a loss or a result offers of a later room is imported when it is asked for.
UPWARDS = {"torch_module", "class_batches", "plot", "explore"}


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room(path: Path) -> str:
    return relative(path).split("/")[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Dotted names imported by a file, and whether at its top level; what only a type checker sees is left out."""

    def visit(node: ast.AST, top: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.FunctionDef) and node.name in UPWARDS:
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((f"{node.module}.{alias.name}", top) for alias in node.names)
        inside = top and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse(path.read_text(encoding="utf-8")), True)


def test_every_room_has_its_place():
    found = {room(path) for path in sources(PACKAGE)} - {"__init__"}
    assert found <= set(LEVEL), f"not in ORDER: {sorted(found - set(LEVEL))}"


@pytest.mark.parametrize("path", [path for path in sources(PACKAGE) if path != PACKAGE / "__init__.py"], ids=relative)
def test_imports_run_one_way(path):
    here = room(path)
    for name, _ in imports(path):
        parts = name.split(".")
        assert parts[0] != "optgeom_cli", "nobody imports the command line"
        if parts[0] != "optgeom":
            continue
        there = parts[1]
        assert there in LEVEL, f"{name} is no room"
        allowed = LEVEL[there] < LEVEL[here] or there == here or (LEVEL[there] == LEVEL[here] and here not in PARALLEL)
        assert allowed, f"{relative(path)} imports {name}: {there} comes after {here}"


@pytest.mark.parametrize("folder", ["optgeom", "cli", "tests", "benchmarks", "docs"])
def test_files_are_short(folder):
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources(ROOT / folder)
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def lines_of_code(path: Path) -> int:
    """Lines with code on them: no blank lines, comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    inside = {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in NO_CODE]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - inside)


def test_no_module_is_a_splinter():
    short = {relative(path) for path in sources(PACKAGE) if path.stem != "__init__" and lines_of_code(path) < FLOOR}
    assert {path for path in short if "/" in path} <= BRIEF, "join it with its neighbour"


@pytest.mark.parametrize("folder", ["optgeom", "cli"])
def test_names_say_what_they_are(folder):
    """A participle says how a value came about, not what it is."""
    for path in sources(ROOT / folder):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        blunt = sorted((stored | {node.arg for node in nodes if isinstance(node, ast.arg)}) & BLUNT_NAMES)
        here = path.relative_to(ROOT).parts
        assert not blunt or here[1] in UNNAMED_ROOMS, f"{'/'.join(here)} names a value {', '.join(blunt)}"


def private_imports(path: Path) -> Iterator[str]:
    """Underscore names that a file imports from outside its own room; `optgeom._checks` belongs to all rooms."""
    home = path.relative_to(ROOT if path.is_relative_to(PACKAGE) else path.parents[1]).parts[:-1]
    for name, _ in imports(path):
        parts = name.split(".")
        private = [number for number, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
        if parts[0] in ("optgeom", "optgeom_cli") and private and tuple(parts[: private[0]]) != home[: private[0]]:
            yield name


@pytest.mark.parametrize("folder", ["optgeom", "cli", "benchmarks"])
def test_packages_import_public_names_of_each_other(folder):
    private = {str(path.relative_to(ROOT)): [*private_imports(path)] for path in sources(ROOT / folder)}
    assert {path: names for path, names in private.items() if names} == {}


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert project["version"] == optgeom.__version__
    assert f"version: {optgeom.__version__}" in citation.splitlines()
    assert f"## {optgeom.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_pictures_compute_nothing():
    for path in sources(PACKAGE / "plotting"):
        assert not any(name.startswith("optgeom.solvers") for name, _ in imports(path))


@pytest.mark.parametrize("path", sources(PACKAGE), ids=relative)
def test_heavy_packages_stay_where_they_are_used(path):
    for name, top in imports(path):
        package = name.split(".")[0]
        if package in OPTIONAL:
            places = OPTIONAL[package]
            assert any(
                relative(path) == place or (place.endswith("/") and relative(path).startswith(place))
                for place in places
            ), name
        if top and room(path) != "training":
            assert package in CORE or package in sys.stdlib_module_names, f"{relative(path)} imports {name} at its top"


def test_nobody_imports_the_command_line():
    for path in sources(ROOT / "benchmarks"):
        assert not any(name.startswith("optgeom_cli") for name, _ in imports(path))


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=paths)


def test_works_without_the_optional_packages():
    blocked = (
        "cvxpy",
        "clarabel",
        "torch",
        "matplotlib",
        "pyarrow",
        "safetensors",
        "sklearn",
        "jinja2",
        "dask",
        "joblib",
    )
    code = f"import sys\nfor name in {blocked}: sys.modules[name] = None\nimport optgeom as og\n"
    code += "geometry = og.solve(og.ClassDistribution.from_counts([5, 3, 1]), og.SupCon())\n"
    code += "print(geometry.certificate.certified)"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"


def loaded_by(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after this code."""
    done = run_python(f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_import_loads_no_package_beyond_the_standard_library():
    before = loaded_by("import pathlib")
    assert loaded_by("import optgeom") - before <= {"optgeom", *sys.stdlib_module_names}


def test_solving_loads_no_optional_package():
    code = "import optgeom as og\nog.solve(og.ClassDistribution.from_counts([5, 3, 1]), og.SupCon())"
    assert loaded_by(code) & {*OPTIONAL, "rich", "typer", "pandas"} == set()


@pytest.mark.parametrize(
    "command", [["--help"], ["solve", "--help"], ["scan", "--help"], ["train", "encoder", "--help"]]
)
def test_help_loads_no_numpy(command):
    code = (
        f"import sys\nsys.argv[1:] = {command}\nfrom optgeom_cli.main import app\ntry: app()\nexcept SystemExit: pass"
    )
    modules = loaded_by(code)
    assert "typer" in modules
    assert modules & {"numpy", "scipy", "rich", *OPTIONAL} == set()


@pytest.mark.parametrize("name", optgeom.__all__)
def test_public_names_are_documented(name):
    doc = getattr(optgeom, name).__doc__
    assert doc is not None and len(doc.strip()) > 20
    assert not doc.startswith(f"{name}("), "the docstring that a dataclass makes of its fields says nothing"


def test_each_public_name_stands_once_where_type_checkers_read_it():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    names = [alias for line in stub.body if isinstance(line, ast.ImportFrom) for alias in line.names]
    assert len({alias.name for alias in names}) == len(names)
    assert all(alias.asname == alias.name for alias in names), "only `x as x` is public to a type checker"
    assert set(optgeom.__all__) < {alias.name for alias in names} <= set(dir(optgeom))
    assert {alias.name for alias in names} - set(optgeom.__all__) == {"GeometryMonitor"}, "names that need an extra"


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="module 'optgeom' has no attribute 'solved'"):
        _ = optgeom.solved


def test_a_name_that_needs_an_extra_says_which():
    code = "import sys\nsys.modules['torch'] = None\nfrom optgeom import *\nimport optgeom\noptgeom.GeometryMonitor"
    done = run_python(code)
    assert "MissingDependencyError: `GeometryMonitor` needs torch: pip install 'optgeom[torch]'" in done.stderr
