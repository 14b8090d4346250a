"""Renders codes, structs and sizes of the host as OpenCL C, and checks that a device agrees.

Nothing here has a value of its own: all come from `backtest.market.layout`, `backtest.rng` and
`backtest.agent.bank`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cache
from itertools import accumulate

import numpy as np

from backtest import rng
from backtest.agent.bank import codes, records, snapshot
from backtest.agent.bank import state as bank_state
from backtest.errors import KernelError
from backtest.market import fill, portfolio, reward
from backtest.market import layout as host
from backtest.market.layout import Struct

STRUCTS: tuple[Struct, ...] = (
    host.STATE,
    host.BAR,
    host.PARAMS,
    host.STEP,
    host.PART,
    host.TOTALS,
    records.RULES,
    records.SKILL,
    records.CELL,
    records.HEAD,
)

# Prefix of an enum's members in OpenCL C: Direction.SHORT is DIRECTION_SHORT.
ENUMS: dict[str, type[IntEnum]] = {
    "DIRECTION": host.Direction,
    "ORDER": host.Order,
    "END": host.End,
    "FILL": host.Fill,
    "FORMULA": host.Formula,
    "BAR": host.BarFlag,
    "STAGE": rng.Stage,
    "SLOT": codes.SlotState,
    "DECISION": codes.Decision,
}
# Fixed numbers of a bank, under their own names.
BANK_REALS = (
    "LEAST_SQUARE",
    "CLOSE_SCORES",
    "LEAST_SHARE",
    "NORM_RATE",
    "CELL_RATE",
    "MASS_KEEP",
    "MASS_GAIN",
    "AGE_WEIGHT",
    "AGE_LIMIT",
    "LEAST_DELTA",
)

C_TYPES: dict[type[np.generic], str] = {
    np.float32: "float",
    np.int32: "int",
    np.uint32: "uint",
}


def preamble(**sizes: int) -> str:
    """Return what stands before every kernel: the pragma, codes, structs, and these sizes.

    Args:
        sizes: one `#define` each, by name; what a program is specialised to.

    Raises:
        KernelError: a name is no upper-case C name, already taken, or a value no 32-bit integer.
    """
    fixed = _codes()
    for name, value in sizes.items():
        if not re.fullmatch("[A-Z][A-Z0-9_]*", name) or name in fixed:
            raise KernelError(f"size {name}: not an upper-case name, or one of the fixed codes")
        if not -(2**31) < operator.index(value) < 2**31:
            raise KernelError(f"size {name} = {value} does not fit a 32-bit int")
    slots = ", ".join(map(str, host.PORTFOLIO_SLOTS))
    branches = ", ".join(map(str, host.BRANCHES.values()))
    return "\n".join(
        (
            "#pragma OPENCL FP_CONTRACT OFF",
            *(f"#define {name} {value}" for name, value in fixed.items()),
            *(f"#define {name} ({operator.index(value)})" for name, value in sizes.items()),
            *map(_typedef, STRUCTS),
            f"__constant int BRANCH_SIZE[N_BRANCHES] = {{{branches}}};",
            f"__constant int PORTFOLIO_SLOT[N_PORTFOLIO] = {{{slots}}};",
            "",
        )
    )


def probe_source() -> str:
    """Return the kernel `layout_probe(__global uint *out)`: what `expected` lists, in its order."""
    places: list[str] = []
    for struct in STRUCTS:
        places.append(f"sizeof({struct.name})")
        places += [
            f"(__private char *)&{struct.name}_.{name} - (__private char *)&{struct.name}_"
            for name, _, _ in struct.fields
        ]
    lines = [f"    {struct.name} {struct.name}_;" for struct in STRUCTS]
    lines += [f"    out[{i}] = (uint)({place});" for i, place in enumerate(places)]
    return "\n".join(("__kernel void layout_probe(__global uint *out)", "{", *lines, "}", ""))


def expected() -> list[tuple[str, str, int]]:
    """Return (struct, field, byte offset on the host); `sizeof` stands before the fields."""
    rows = []
    for struct in STRUCTS:
        offsets = {name: place[1] for name, place in (struct.dtype.fields or {}).items()}
        rows.append((struct.name, "sizeof", struct.dtype.itemsize))
        rows += [(struct.name, name, offsets[name]) for name, _, _ in struct.fields]
    return rows


def check(reported: Sequence[int], device: str) -> None:
    """Compare what `layout_probe` wrote with `expected`.

    Raises:
        KernelError: names the device, struct, field and both values.
    """
    for (struct, field, value), seen in zip(expected(), reported, strict=True):
        if value != seen:
            raise KernelError(
                f"{struct}.{field}: {value} bytes on the host, {seen} on {device}; the device's "
                "compiler lays structs out differently: use another device and report this one"
            )


@cache
def _codes() -> dict[str, str]:
    sizes = host.BRANCHES
    first = accumulate(sizes.values(), initial=0)
    named: dict[str, int] = {
        f"{prefix}_{member.name}": member.value for prefix, enum in ENUMS.items() for member in enum
    }
    named |= _numbered("BRANCH", sizes)
    named |= {f"N_{name.upper()}": size for name, size in sizes.items()}
    # Position of a branch's first value among the N_ACTIONS heads.
    named |= {f"FIRST_{name.upper()}": start for name, start in zip(sizes, first, strict=False)}
    named |= {"N_BRANCHES": host.N_BRANCHES, "N_ACTIONS": host.N_ACTIONS}
    named |= _numbered("COMPONENT", host.COMPONENTS)
    named |= _numbered("COUNT", bank_state.COUNTERS)
    named |= _numbered("RULE", records.UTILITY_RULES)
    named |= {
        "N_COMPONENTS": host.N_COMPONENTS,
        "N_COUNTERS": len(bank_state.COUNTERS),
        "PORTFOLIO_STRIDE": host.PORTFOLIO_STRIDE,
        "STATE_DIM": host.STATE_DIM,
        "N_PORTFOLIO": host.N_PORTFOLIO,
        "AUX_SLOT": host.AUX_SLOT,
        "PHILOX_ROUNDS": rng.ROUNDS,
        "DSR_WARMUP": reward.DSR_WARMUP,
        "MISS": snapshot.MISS,
        "ABSTAIN": snapshot.ABSTAIN,
    }
    reals = {
        "DUST": fill.DUST,
        "Z_LIMIT": reward.Z_LIMIT,
        "STATE_LIMIT": portfolio.STATE_LIMIT,
        "HOLD_UNIT": portfolio.HOLD_UNIT,
    } | {name: getattr(codes, name) for name in BANK_REALS}
    words = (*rng.MULTIPLIERS, *rng.WEYL)
    names = ("PHILOX_M0", "PHILOX_M1", "PHILOX_W0", "PHILOX_W1")
    return (
        {name: str(value) if value >= 0 else f"({value})" for name, value in named.items()}
        | {name: f"{float(np.float32(value))!r}f" for name, value in reals.items()}
        | {name: f"{word:#010x}u" for name, word in zip(names, words, strict=True)}
    )


def _numbered(prefix: str, names: Iterable[str]) -> dict[str, int]:
    return {f"{prefix}_{name.upper()}": i for i, name in enumerate(names)}


def _typedef(struct: Struct) -> str:
    fields = (
        f"    {C_TYPES[kind]} {name}{f'[{length}]' if length > 1 else ''};"
        for name, kind, length in struct.fields
    )
    return "\n".join(("typedef struct {", *fields, f"}} {struct.name};"))
