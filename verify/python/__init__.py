"""What Python programs use: verdicts by calls, the fixture of pytest, the strategies of Hypothesis."""
