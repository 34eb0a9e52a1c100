"""Shared by all tests: where the real tables are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real tables, or a skip that says how to provide it."""
    folder = Path(os.environ.get("DPMICRO_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the real tables are not here; set DPMICRO_DATA to their folder")
    return folder
