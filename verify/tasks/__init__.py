"""One folder a task: what is right, the proof, the command, the report, the figures, the claims."""
