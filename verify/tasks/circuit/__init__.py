"""Circuit transformers, decided on all 2^n inputs."""
