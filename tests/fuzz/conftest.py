"""run.py is a program that needs atheris, not a test."""

collect_ignore = ["run.py"]
