"""LLVM's language as machine code for this machine, where llvmlite is installed (weightproof[fast])."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine


@cache
def is_compiled() -> bool:
    """Whether machine code can be made: llvmlite with pointers of no type."""
    return bool(find_spec("llvmlite")) and tuple(map(int, version("llvmlite").split(".")[:2])) >= (0, 45)


def has_wide_registers() -> bool:
    """Whether the machine has 32 registers of 64 bytes."""
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get("avx512f"))


def engine_of(source: str, *, has_variables: bool = False) -> ExecutionEngine:
    """What owns the machine code of a source; variables in memory become registers only where it has such."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    module = llvm.parse_assembly(source)
    module.verify()
    if has_variables:
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
