"""Circuit transformers, decided on all 2^n inputs."""

SUMMARY = "prove that a transformer computes a circuit file by chain of thought"
MODEL = "constructions.circuit_simulation:CircuitTransformer"
