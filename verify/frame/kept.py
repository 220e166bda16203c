"""Certificates kept by the digest of what they speak of: one that still holds is read, not computed again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn

from constructions.errors import BadInput
from constructions.written_files import made_folder, write_whole
from verify.arithmetic.readings import Reading
from verify.frame.certificate import CERTIFIED, Certificate, Verdict
from verify.frame.judged import check_judged
from verify.frame.program import code

HOME = "constructions."
OWN = frozenset(vars(nn.Module()))  # what every module has beside its class's attributes
PLAIN = (int, float, str, bool, type(None), torch.dtype)


def keep(
    folder: str | os.PathLike[str], module: nn.Module, options: dict[str, object], certify: Callable[[], Certificate]
) -> tuple[Certificate, bool]:
    """The certificate kept in the folder for this module and these options, else a new one, which is then kept.

    Says also whether it was read. The key is a digest of the weights, of all that the module is made of, of the
    options, of this program and of what it computes with. UNKNOWN is not kept, as a longer budget may decide it; nor
    is what one kernel ran, nor a module that is not plainly one of this project's.
    Raises: BadInput as `certify` does, and where the folder cannot be made.

    >>> import tempfile
    >>> from constructions import relation_counting
    >>> from verify.histogram import certify
    >>> model = relation_counting.dot(T=4, L=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [keep(folder, model, {}, lambda: certify(model))[1] for _ in range(2)]
    [False, True]
    """
    about = key(module, options)
    if about is None:
        return certify(), False
    place = made_folder(folder, "keep") / f"{about}.json"
    with suppress(OSError, BadInput, UnicodeDecodeError):
        return Certificate.from_json(place.read_text(encoding="utf-8")), True
    certificate = certify()
    if certificate.verdict is not Verdict.UNKNOWN:
        write_whole(place, certificate.to_json().encode(), "keep")
    return certificate, False


def key(module: nn.Module, options: dict[str, object]) -> str | None:
    """The digest under which a certificate is kept; None where not all is known that it would depend on.

    >>> from constructions import relation_counting
    >>> model = relation_counting.dot(T=4, L=3)
    >>> len(key(model, {"budget": 1.0})), key(model, {"method": "sampled"})
    (64, None)
    """
    if options.get("method", CERTIFIED) != CERTIFIED:
        return None
    if not all(isinstance(value, (*PLAIN, Reading)) for value in options.values()):
        return None
    try:
        for part in module.modules():
            if not type(part).__module__.startswith((HOME, "torch.nn.")):
                return None
            check_judged(part, type(part))
        parts = [*_parts(module)]
    except (BadInput, TypeError):
        return None
    said = json.dumps([code(), parts, sorted((name, repr(value)) for name, value in options.items())])
    return hashlib.sha256(said.encode()).hexdigest()


def _parts(module: nn.Module) -> Iterator[list[str]]:
    """Every class, plain attribute and tensor of a module.

    Raises: TypeError for an attribute whose value is not known in full.
    """
    for path, part in module.named_modules():
        yield [path, f"{type(part).__module__}.{type(part).__qualname__}"]
        for name, value in sorted(vars(part).items()):
            if name not in OWN:
                yield [path, name, _plain(value)]
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        yield [name, str(tensor.dtype), str(tuple(tensor.shape)), digest(tensor)]


def _plain(value: object) -> str:
    if isinstance(value, tuple | list) and all(isinstance(entry, PLAIN) for entry in value):
        return repr(value)
    if not isinstance(value, PLAIN):
        raise TypeError(f"{type(value).__name__} is not plain")
    return repr(value)


def digest(tensor: Tensor) -> str:
    """The SHA-256 of a tensor's bytes.

    >>> digest(torch.zeros(2))[:16], digest(-torch.zeros(2))[:16]
    ('af5570f5a1810b7a', '830c36064389b2cc')
    """
    plain = tensor.detach().cpu().contiguous().flatten()
    return hashlib.sha256(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"").hexdigest()
