"""What reading the source can check: names, one place for constants, a test for every kernel."""

import re
from pathlib import Path

import pytest

from backtest.config import Reward
from backtest.market.layout import COMPONENTS, PARAMS, STATE, STEP
from opencl import layout
from opencl.market import MarketRules

ROOT = Path(__file__).resolve().parents[1]
KERNELS = sorted((ROOT / "opencl" / "kernels").glob("*.cl"))
# A definition: qualifiers and a type, the name, parameters, and a body.
FUNCTION = re.compile(
    r"^(?:static |inline |__kernel |__attribute__\(\(.*?\)\)\s*)+"
    r"[\w\s]*?(?P<name>\w+)\((?P<parameters>[^;{}]*?)\)\s*\{",
    re.MULTILINE,
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
by_kernel = pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)


def code(path):
    return COMMENT.sub("", path.read_text(encoding="utf-8"))


def functions(path):
    return [found["name"] for found in FUNCTION.finditer(code(path))]


def test_the_parser_sees_every_kind_of_definition(tmp_path):
    path = tmp_path / "some.cl"
    path.write_text(
        "static inline uint4 first(uint4 x)\n{\n}\n"
        "inline float second(__constant const P *p,\n    const float x) { return x; }\n"
        "inline __attribute__((always_inline)) StepResult\nthird(int a)\n{\n}\n"
        "// inline int not_this(int a) {}\n"
        "__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void fourth(\n"
        "    __global float *x)\n{\n    if (x) { call(x); }\n}\n"
        "__kernel void fifth(void)\n{\n}\n"
    )
    assert functions(path) == ["first", "second", "third", "fourth", "fifth"]


@by_kernel
def test_every_function_is_parsed_and_named_by_a_test(path):
    text = code(path)
    opened = len(re.findall(r"^\{|\)\s*\{[^\n]*\}\s*$", text, re.MULTILINE))
    names = functions(path)
    assert names and len(names) == opened, f"{path.name}: parsed {names}, {opened} bodies"
    tests = "\n".join(
        p.read_text(encoding="utf-8") for p in (ROOT / "tests" / "opencl").rglob("*.py")
    )
    product = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "opencl").rglob("*.py"))
    for name in names:
        # a probe of the product is itself the test of its kernel
        assert re.search(
            rf"(\b|test_){name}\b", tests + product if path.stem == "exactness" else tests
        ), f"{path.name}: no test names {name}"


@by_kernel
def test_every_kernel_file_has_a_test_file(path):
    """One test file a kernel file; two files of one kernel share theirs."""
    shared = {
        "exactness": "probe",
        "bar_search_group": "bar_search",
        "bar_search_lanes": "bar_search",
        "bar_tokens_group": "bar_scenario",
        "bar_tokens_lanes": "bar_scenario",
        "layers_group": "layers",
        "layers_lanes": "layers",
        "layers_tensor": "layers",
        "mlp_group": "rollout",
        "mlp_lanes": "rollout",
        "mlp_tensor": "rollout",
        "rollout_group": "rollout",
        "rollout_lanes": "rollout",
        "queries_group": "scenario",
        "queries_lanes": "scenario",
        "scenario_group": "scenario",
        "scenario_lanes": "scenario",
        "task_group": "task",
        "task_guess": "task",
        "task_lanes": "task",
        "skill_cells": "d2skill",
        "skill_judge": "skill_utility",
        "skill_metric": "skill_update",
        "skill_search_group": "skill_retrieval",
    }
    assert (ROOT / "tests" / "opencl" / f"test_{shared.get(path.stem, path.stem)}.py").is_file()


@by_kernel
def test_constants_and_structs_are_written_in_python_only(path):
    text = code(path)
    assert not re.search(r"^\s*#\s*define", text, re.MULTILINE)
    assert not re.search(r"^\s*enum\b|typedef\s+enum", text, re.MULTILINE)
    made = {name for name in re.findall(r"\}\s*(\w+)\s*;", text)}
    assert not made & {struct.name for struct in layout.STRUCTS}


@by_kernel
def test_every_upper_case_name_comes_from_python(path):
    """What a kernel writes in capitals is rendered by `layout.preamble` or a program's size."""
    rendered = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", layout.preamble()))
    product = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "opencl").rglob("*.py"))
    sizes = set(re.findall(r'"([A-Z][A-Z0-9_]+)"', product)) | {
        f"LEARNS_{name}" for name in ("DIRECTION", "MAGNITUDE", "ORDER", "URGENCY")
    }
    words = set(re.findall(r"\b[A-Z][A-Z0-9_]{1,}\b", code(path)))
    local = {"CLK_LOCAL_MEM_FENCE", "CLK_GLOBAL_MEM_FENCE", "INFINITY"}  # of the language
    assert words - rendered - sizes - local == set()


def test_reward_keys_are_the_same_in_config_and_kernel_parameters():
    keys = set(Reward.model_fields)
    fields = [name for name, _, _ in PARAMS.fields]
    assert keys <= set(fields)
    used = "\n".join(code(path) for path in KERNELS)
    compiled_in = set(MarketRules.__annotations__) & set(fields)
    assert compiled_in == {"formula", "fill"}
    for name in set(fields) - compiled_in:
        assert re.search(rf"->{name}\b", used), f"no kernel reads MarketParams.{name}"


@pytest.mark.parametrize("struct", [STATE, STEP], ids=lambda struct: struct.name)
def test_every_field_is_written_by_the_market(struct):
    text = code(ROOT / "opencl" / "kernels" / "market.cl")
    for name, _, _ in struct.fields:
        assert re.search(rf"(->|\.){name} = |&r\.{name}\b", text), f"{struct.name}.{name}"


def test_components_open_the_step_result():
    assert tuple(name for name, _, _ in STEP.fields)[: len(COMPONENTS)] == COMPONENTS


def test_market_kernels_use_no_transcendental_function():
    """exp, log, pow and their kin differ between devices; only the policy may use them."""
    inexact = re.compile(
        r"\b(exp|exp2|log|log1p|log2|pow|powr|sin|cos|tanh|rsqrt|native_\w+|mad)\("
    )
    skills = [path.stem for path in KERNELS if re.match("skill_|d2skill", path.stem)]
    assert len(skills) == 9
    for name in ("fill", "reward", "market", "totals", "simulate", "philox", "explore", *skills):
        assert not inexact.search(code(ROOT / "opencl" / "kernels" / f"{name}.cl")), name
    assert re.search(r"\bfma\(", code(ROOT / "opencl" / "kernels" / "bar_dense.cl"))
    for name in ("fill", "reward", "market", "totals", "simulate", *skills):
        assert not re.search(r"\bfma\(", code(ROOT / "opencl" / "kernels" / f"{name}.cl")), name


def test_kernels_and_definition_share_their_function_names():
    """The twins read side by side: same functions, in NumPy and in OpenCL C."""
    twins = {
        "fill": "backtest/market/fill.py",
        "reward": "backtest/market/reward.py",
        "market": "backtest/market/step.py",
        "totals": "backtest/market/totals.py",
        "portfolio": "backtest/market/portfolio.py",
        "philox": "backtest/rng.py",
        "explore": "backtest/agent/explore.py",
    }
    # what C needs and NumPy has: indexing, argmax, struct loads, rows after an end
    helpers = {"one_of", "bar_at", "dead_step", "arg_max", "drawn_value", "drawn_action"}
    for stem, module in twins.items():
        defined = set(re.findall(r"^def (\w+)", (ROOT / module).read_text(), re.MULTILINE))
        names = set(functions(ROOT / "opencl" / "kernels" / f"{stem}.cl"))
        assert names - helpers <= defined, f"{stem}.cl and {module}"
