"""Where the learner is: the torch device beside an OpenCL device."""

from __future__ import annotations

from functools import cache

from backtest.errors import DeviceError
from opencl.devices import Device
from opencl.exchange import cuda_driver, external_memory


@cache
def cuda_index(device: Device) -> int:
    """Return the index by which torch knows an OpenCL device.

    The two may list GPUs in another order, and CUDA_VISIBLE_DEVICES hides some from torch.

    Raises:
        DeviceError: torch has no such device.
    """
    import torch

    wanted = external_memory.uuid(device)
    count = torch.cuda.device_count()
    for index in range(count):
        if cuda_driver.uuid(index) == wanted:
            return index
    raise DeviceError(f"none of torch's {count} CUDA devices is {device.name}, by their UUIDs")


def torch_device(device: Device) -> str:
    """Return where torch trains beside an OpenCL device: on its GPU if torch can, else the CPU.

    A GPU of NVIDIA that torch does not recognise leaves the learner on torch's first GPU.
    """
    if not device.nvidia:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    try:
        return f"cuda:{cuda_index(device)}"
    except (DeviceError, OSError, AttributeError):
        return "cuda:0"
