"""For other projects' tests: the fixture `assert_proved`, which keeps certificates that still hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torch import nn

    from verify.frame.certificate import Certificate

FOLDER = "weightproof"


@dataclass
class CertificateTally:
    """How many certificates of a run were read, and how many were computed."""

    read: int = 0
    computed: int = 0


TALLY = pytest.StashKey[CertificateTally]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("weightproof")
    group.addoption("--weightproof-fresh", action="store_true", help="compute every certificate again")
    group.addoption(
        "--weightproof-keep", metavar="DIR", help="where certificates are kept (default: in pytest's cache folder)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = CertificateTally()


@pytest.fixture
def assert_proved(request: pytest.FixtureRequest) -> Iterator[object]:
    """Asserts that a model is proved right: `assert_proved(model, reading="bfloat16")`; returns the certificate.

    Options are those of verify.certify. A certificate for the same weights, options and version is read back instead
    of computed. Verdict, reading and margin become properties of the test in JUnit's XML.
    """
    from verify.python.public import assert_proved as asserted
    from verify.python.public import certify

    config = request.config
    folder = config.getoption("--weightproof-keep")
    if folder is None and (cache := getattr(config, "cache", None)) is not None:
        folder = cache.mkdir(FOLDER)
    if config.getoption("--weightproof-fresh"):
        folder = None

    def proved(module: nn.Module, **options: object) -> Certificate:
        __tracebackhide__ = True
        from verify.frame.kept import keep

        is_read = False

        def judge(judged: nn.Module, **asked: object) -> Certificate:
            nonlocal is_read
            if folder is None:
                return certify(judged, **asked)
            certificate, is_read = keep(folder, judged, asked, lambda: certify(judged, **asked))
            return certificate

        said = None
        try:
            certificate = asserted(module, judge=judge, **options)
        except AssertionError as error:
            said = str(error)
        finally:
            tally = config.stash[TALLY]
            tally.read, tally.computed = tally.read + is_read, tally.computed + (not is_read)
        if said is not None:  # outside of the except clause, so that it is printed once
            pytest.fail(said, pytrace=False)
        for name, value in certificate.flat().items():
            if name in ("verdict", "claim", "reading", "method", "inputs_covered", "margin"):
                request.node.user_properties.append((f"weightproof.{name}", value))
        return certificate

    yield proved


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tally = config.stash[TALLY]
    if tally.read or tally.computed:
        said = f"weightproof: {tally.computed} certificates computed, {tally.read} read that still hold"
        terminalreporter.write_line(said)
