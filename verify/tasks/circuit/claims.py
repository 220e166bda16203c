"""Claims about circuits and regular languages."""

from verify.frame.claim import FRAKNOI, Claim

XOR = """INPUT(x)
INPUT(y)
OUTPUT(z)
z = XOR(x, y)
"""

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "E-3.4",
        "two layers of one head, width 3k+6, in constant-bit arithmetic compute any circuit by chain of thought",
        f"{FRAKNOI}, Thm. 3.4 (second input of NOT, inputs' addresses, value vector and score scale corrected)",
        "constructions.circuit_simulation:build",
        "bounds.circuit_simulation:width, bounds.circuit_simulation:required_bits",
        "verify.tasks.circuit.proof:certify",
        "verify circuit xor.bench",
        deep=("verify circuit xor.bench --precision bfloat16",),
        reads=(("xor.bench", XOR),),
        checked_at="file = xor.bench",
    ),
    Claim(
        "E-3.5",
        "every regular language, on strings of any one length, is computed by the transformer of E-3.4",
        f"{FRAKNOI}, Cor. 3.5",
        "constructions.regular_language:unroll",
        "bounds.circuit_simulation:width, bounds.circuit_simulation:required_bits",
        "verify.tasks.circuit.language.task:for_strings",
        "verify language '0*1(0|10*1)*' --length 64",
        deep=("verify language '(0|1)*1' --length 256",),
        checked_at="N = 64; N = 256",
    ),
)
