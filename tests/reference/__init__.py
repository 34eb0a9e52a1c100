"""The papers' algorithms in plain Python, as they are written there: the oracles of the tests."""
