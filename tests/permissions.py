"""Who may read what the package writes for the curator."""

from __future__ import annotations

import os
from pathlib import Path


def is_private(path: Path) -> bool:
    """Nobody but the owner may read it. Windows has no modes: there, who may is inherited from the parent folder."""
    return os.name == "nt" or path.stat().st_mode & 0o077 == 0
