"""Nothing that can run code is written or read: no pickle in the product, weights only as safetensors, no code from a hub."""

import ast
from pathlib import Path

import pytest

from flows.environment import DEFAULTS
from storage.checkpoints import FORBIDDEN_SUFFIXES

ROOT = Path(__file__).parents[2]
FILES = sorted(path for room in ("flows", "tasks", "storage", "benchmarks") for path in ROOT.glob(f"{room}/**/*.py"))

MODULES = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
CALLS = {"torch.save", "torch.load", "np.save", "np.load", "numpy.save", "numpy.load", "pd.read_pickle"}
COLLECTIVES = {"all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list"}
"""torch.distributed pickles what these send."""

# Between the two processes of a sandbox, which are of one Python; data only, never in a file of the store.
WIRE = {
    "tasks/verifiers/sandbox.py",
    "tasks/verifiers/sandboxed/candidate.py",
    "tasks/verifiers/sandboxed/limits.py",
    "tasks/verifiers/sandboxed/remote.py",
}


def pickles(tree):
    """(line, what) of everything that pickles, unpickles or runs code from a hub."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, each.name) for each in node.names if each.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.lineno, node.module)] if (node.module or "").partition(".")[0] in MODULES else []
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS or name.rpartition(".")[2] in COLLECTIVES:
                found.append((node.lineno, name))
            for each in node.keywords:
                value = each.value.value if isinstance(each.value, ast.Constant) else None
                if (each.arg in ("trust_remote_code", "allow_pickle") and value is not False) or (
                    each.arg == "use_safetensors" and value is not True
                ):
                    found.append((node.lineno, each.arg))
    return found


def models_loaded_without_safetensors(tree):
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith("AutoModel")
        and ast.unparse(node.func).endswith(".from_pretrained")
        and not {"use_safetensors", "gguf_file"} & {each.arg for each in node.keywords}
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_pickled(path):
    found = pickles(ast.parse(path.read_text(encoding="utf-8")))
    if path.relative_to(ROOT).as_posix() in WIRE:
        assert {what for _, what in found} == {"marshal"}
    else:
        assert found == []


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[-2] != "benchmarks"], ids=str)
def test_weights_are_loaded_from_safetensors_only(path):
    assert models_loaded_without_safetensors(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_prefect_keeps_results_as_json():
    assert DEFAULTS["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "json"


def test_every_usual_name_of_a_pickle_is_refused_in_a_checkpoint():
    assert {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz"} <= FORBIDDEN_SUFFIXES


@pytest.mark.parametrize(
    ("source", "num_found"),
    [
        ("import pickle", 1),
        ("def f():\n    from cloudpickle import dumps", 1),
        ("torch.save(x, 'f')", 1),
        ("torch.load('f', weights_only=True)", 1),
        ("torch.distributed.all_gather_object(a, b)", 1),
        ("np.load(f, allow_pickle=True)", 2),
        ("f(trust_remote_code=flag)", 1),
        ("f(trust_remote_code=False, use_safetensors=True)", 0),
        ("f(use_safetensors=False)", 1),
        ("save_file(x, 'f.safetensors')", 0),
    ],
)
def test_the_rule_sees_a_pickle_in_every_form(source, num_found):
    assert len(pickles(ast.parse(source))) == num_found
