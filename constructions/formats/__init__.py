"""Tensors from the files of other tools, read without running code: a format that is not read is refused by name."""

from constructions.formats.kinds import ENDINGS, check_no_folder, read

__all__ = ["ENDINGS", "check_no_folder", "read"]
