"""The compiled rollout of a device and network shape.

Two kernels do the same: `rollout_lanes` (CPU, one work-item walks 16 episodes) and
`rollout_group` (GPU, a work-group walks a tile together), whose layers are float32 (variant group)
or bf16 on tensor cores (variant tensor). A parity test holds them equal.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from backtest.errors import DeviceError
from opencl.devices import Device
from opencl.market import MARKET_FILES, MarketRules
from opencl.programs import Program
from opencl.rollout.shape import Shape
from opencl.rollout.sizes import LANES, MMA, OPERANDS, WIDE_SUMS, Sizes
from opencl.tensor_probe import has_tensor_cores

BAR_GROUP = 64  # work-items a group of kernels over bars
WIDTH = 16  # of them side by side in the fastest dimension, on a GPU

Kernels = Literal["lanes", "group", "tensor"]
Variant = Literal["auto", "lanes", "group", "tensor"]  # auto: float32, as the device likes it


@cache
def rollout_program(
    device: Device,
    shape: Shape,
    rules: MarketRules,
    variant: Variant = "auto",
    tile: int | None = None,
    together: int = 4,
) -> RolloutProgram:
    """Return the compiled rollout of a device, network and market, one object for all calls."""
    return RolloutProgram(device, shape, rules, variant, tile, together)


def policy_files(shape: Shape, variant: Kernels) -> tuple[str, ...]:
    """Return the kernel files of a rollout in the order in which one uses another."""
    walk = "lanes" if variant == "lanes" else "group"
    files = [*MARKET_FILES, "portfolio.cl", "explore.cl", "bar_dense.cl"]
    if shape.kind == "scenario":
        files += ["bar_norm.cl", "bar_scenario.cl", f"bar_tokens_{walk}.cl"]
    if shape.slots:
        files += ["skill_score.cl", *(["skill_search_group.cl"] if walk == "group" else [])]
        files += [f"bar_search_{walk}.cl"]
    files += ["rollout.cl", *(["tensor.cl"] if variant == "tensor" else [])]
    files += [f"layers_{variant}.cl"]
    if shape.kind == "scenario":
        files += [f"queries_{walk}.cl"]
        if shape.slots:
            files += ["task_guess.cl"]
        if shape.slots or walk == "group":
            files += [f"task_{walk}.cl"]
    return (*files, f"{shape.kind}_{variant}.cl", f"rollout_{walk}.cl")


def collection_variant(
    device: Device, shape: Shape, precision: Literal["auto", "fp32", "bf16"]
) -> Variant:
    """Return the variant that collects experience: tensor, or auto for float32.

    Raises:
        DeviceError: bf16 is asked for where no tensor core plays this network; says why.
    """
    if precision == "fp32":
        return "auto"
    obstacle = _obstacle(device, shape)
    if obstacle is None:
        return "tensor"
    if precision == "auto":
        return "auto"
    raise DeviceError(f"runtime.precision = bf16: {obstacle}; use runtime.precision = auto or fp32")


def _obstacle(device: Device, shape: Shape) -> str | None:
    """Return why no tensor core plays this network on this device, or None."""
    if shape.kind == "scenario" and (shape.stack_size > 1 or 0 < shape.top_k < shape.horizon):
        return "tensor cores play no network.stack_size above 1, and no network.top_k"
    if shape.kind == "scenario" and (shape.latent not in (8, MMA) or shape.horizon > MMA):
        return f"tensor cores need network.latent 8 or {MMA} and a network.horizon up to {MMA}"
    if not has_tensor_cores(device):
        return f"{device.name} has no tensor cores that take bf16 (NVIDIA from Ampere on has)"
    try:
        sizes = Sizes(shape, True, device.local_memory, device.name, tensor=True)
    except DeviceError as error:
        return str(error)
    if sizes.operands > 2 * OPERANDS:
        return f"the weights of hidden layers {shape.hidden} do not fit the registers"
    return None


class RolloutProgram:
    """One kernel of `rollout_*.cl` with the kernels that fill its bar tables.

    Attributes:
        device: where it runs.
        shape: of the networks.
        sizes: what it was compiled for.
        program: all kernels.
        kernel: the one that walks.
    """

    def __init__(
        self,
        device: Device,
        shape: Shape,
        rules: MarketRules,
        variant: Variant,
        tile: int | None = None,
        together: int = 4,
    ) -> None:
        """Compile.

        Args:
            device: of `devices.select`.
            shape: of the networks.
            rules: of the market.
            variant: which kernel; auto takes the device's own in float32.
            tile: most episodes a work-group; None: as many as there is room for.
            together: as for `Sizes`.

        Raises:
            DeviceError: the network does not fit the device's local memory.
        """
        if variant == "auto":
            variant = "group" if device.kind == "gpu" else "lanes"
        group, tensor = variant != "lanes", variant == "tensor"
        self.device, self.shape = device, shape
        self.sizes = Sizes(shape, group, device.local_memory, device.name, tensor, tile, together)
        registers = self.sizes.registers if device.nvidia else 0
        sizes = self.sizes.defines() | rules.defines() | {"REGISTERS": registers}
        if not group and device.handle.native_vector_width_float >= LANES:
            sizes["LANE_SUMS"] = WIDE_SUMS
        files = policy_files(shape, variant)
        self.program = Program(device, files, sizes, registers=registers)
        self.kernel = self.program.kernel("rollout_group" if group else "rollout_lanes")

    def over(self, n: int) -> tuple[tuple[int], tuple[int]]:
        """Return global and local size of n items or more.

        A CPU's compiler runs eight items side by side and the rest one by one; exp and 1/sqrt then
        differ, and with them a bar's values by what runs beside it. So its groups are one item.
        """
        if self.device.kind == "cpu":
            return (n,), (1,)
        return (BAR_GROUP * -(-n // BAR_GROUP),), (BAR_GROUP,)

    def across(self, columns: int, rows: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return global and local size of columns x rows, or more rows.

        The local size depends on the columns alone: some drivers compile once more for every one.
        """
        most = BAR_GROUP if self.device.kind == "cpu" else WIDTH
        width = next(d for d in range(min(columns, most), 0, -1) if columns % d == 0)
        height = 1 if self.device.kind == "cpu" else BAR_GROUP // width
        return (columns, height * -(-rows // height)), (width, height)
