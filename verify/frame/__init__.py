"""The frame of every decision: what is asked, who answers, by when, and what a certificate says."""
