"""Does the token at each position occur at least twice? Decided on all T^L sequences."""

SUMMARY = "prove that one attention layer knows which tokens occur at least twice"
MODEL = "verify.tasks.twice.model:TwiceTransformer"
