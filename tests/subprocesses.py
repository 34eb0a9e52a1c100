"""`dpmicro` in processes of its own: to be killed, interrupted or run out of disk."""

from __future__ import annotations

import os
import sys

COMMAND = [sys.executable, "-m", "dpmicro_native"]


def environment() -> dict[str, str]:
    """This process's environment; an editable install is not built again by every process."""
    built = [finder.path for finder in sys.meta_path if getattr(finder, "rebuild_flag", False)]
    return os.environ | {"SKBUILD_EDITABLE_SKIP": os.pathsep.join(built), "PYTHONDONTWRITEBYTECODE": "1"}
