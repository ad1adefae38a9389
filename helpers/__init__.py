"""The course's small package: what the notebooks import, and `python3 -m helpers` (see `__main__.py`)."""
