"""How `verify.certify` decides a model of this task, and the command that does the same."""

from pathlib import Path
from typing import Any

from verify.tasks.twice.model import TwiceTransformer, as_bytes
from verify.tasks.twice.task import Twice

from verify.arithmetic.readings import options_of
from verify.frame.certificate import Certificate
from verify.frame.decide import How


def posed(module: TwiceTransformer, how: How) -> tuple[Twice, How]:
    return Twice(module), how


def command(module: TwiceTransformer, folder: str, certificate: Certificate, **options: Any) -> list[str]:
    path = Path(folder, "weights.safetensors")
    path.write_bytes(as_bytes(module))
    return ["verify", "twice", "--weights", str(path), "--L", str(module.L), *options_of(options)]
