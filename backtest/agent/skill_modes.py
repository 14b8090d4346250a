"""The modes of an Actor with skills."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What forward and update do with the enabled banks."""

    DISABLED = "disabled"  # nothing
    COLLECT = "collect"  # observe, and learn skills after backward
    EVALUATE = "evaluate"  # apply, count uses, accumulate influence
    INFERENCE = "inference"  # apply; no byte of a bank changes
    ONLINE = "online"  # apply, count uses, accumulate influence, turn directions


APPLY = (Mode.EVALUATE, Mode.INFERENCE, Mode.ONLINE)
COUNT = (Mode.EVALUATE, Mode.ONLINE)
