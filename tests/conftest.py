"""Shared by all tests: where the real tables are."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Examples may wait for a core on a busy machine; time is measured in bench/, not here.
settings.register_profile("default", deadline=None)
settings.load_profile("default")

# A shell starts what it sends to the background deaf to Ctrl-C, and so would be what is tested here.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real tables, or a skip that says how to provide it."""
    folder = Path(os.environ.get("DPMICRO_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("the real tables are not here; set DPMICRO_DATA to their folder")
    return folder
