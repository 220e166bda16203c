"""Judgement: procedures that decide a module on all its inputs, and the `verify` command."""

TYPE_CHECKING = False  # what typing's is at run time, without the milliseconds that importing typing takes
if TYPE_CHECKING:
    from verify.arithmetic.readings import ConstantBits as ConstantBits
    from verify.arithmetic.readings import Kernel as Kernel
    from verify.arithmetic.readings import Real as Real
    from verify.arithmetic.readings import Rounded as Rounded
    from verify.arithmetic.readings import reading_of as reading_of
    from verify.frame.certificate import Certificate as Certificate
    from verify.frame.certificate import Verdict as Verdict
    from verify.python import strategies as strategies
    from verify.python.public import assert_proved as assert_proved
    from verify.python.public import certify as certify
    from verify.python.public import quantise as quantise
    from verify.python.public import radius as radius
    from verify.python.public import repair as repair

__version__ = "1.0.0"

# Where each public name lives: it is imported when it is first asked for, so that `import verify` costs nothing.
_HOME = {
    "certify": "python.public",
    "assert_proved": "python.public",
    "repair": "python.public",
    "radius": "python.public",
    "quantise": "python.public",
    "Certificate": "frame.certificate",
    "Verdict": "frame.certificate",
    "Real": "arithmetic.readings",
    "Rounded": "arithmetic.readings",
    "ConstantBits": "arithmetic.readings",
    "Kernel": "arithmetic.readings",
    "reading_of": "arithmetic.readings",
}

__all__ = [
    "Certificate",
    "ConstantBits",
    "Kernel",
    "Real",
    "Rounded",
    "Verdict",
    "__version__",
    "assert_proved",
    "certify",
    "quantise",
    "radius",
    "reading_of",
    "repair",
    "strategies",
]


def __getattr__(name: str) -> object:
    from importlib import import_module  # loads for milliseconds, before which Ctrl-C would be a traceback

    if name == "strategies":
        return import_module("verify.python.strategies")
    if name in _HOME:
        return getattr(import_module(f"verify.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
